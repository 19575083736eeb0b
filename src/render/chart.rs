//! Lines and points over linear or logarithmic axes, as an SVG string.

use plotters::chart::ChartBuilder;
use plotters::chart::ChartContext;
use plotters::chart::SeriesLabelPosition;
use plotters::coord::cartesian::Cartesian2d;
use plotters::element::Circle;
use plotters::element::ErrorBar;
use plotters::element::PathElement;
use plotters::prelude::DrawingAreaErrorKind;
use plotters::prelude::IntoDrawingArea;
use plotters::prelude::SVGBackend;
use plotters::series::LineSeries;
use plotters::style::Color;
use plotters::style::IntoFont;
use plotters::style::TextStyle;

use crate::render::scale::GRID;
use crate::render::scale::INK;
use crate::render::scale::Scale;
use crate::render::scale::color;
use crate::render::scale::tick_label;

/// What drawing into a string can return; it does not happen.
pub(crate) type Drawn = std::result::Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// The letters of drawings, `size` pixels high: the reader's own sans-serif, as
/// no font is embedded. plotters' SVG writes sizes divided by 1.24.
pub(crate) fn letters(size: u32) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", f64::from(size) * 1.24).into_font()).color(&INK)
}

/// One axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// What it shows, unit included: `message, bytes`.
    pub label: String,
    /// Equal factors at equal distances.
    pub log: bool,
}

/// One point, with an interval where one is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Along the horizontal axis.
    pub x: f64,
    /// Along the vertical axis.
    pub y: f64,
    /// The ends of the interval around `y`.
    pub interval: Option<(f64, f64)>,
}

/// Points that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// In the legend.
    pub name: String,
    /// In the order in which a line joins them.
    pub points: Vec<Point>,
    /// Join the points?
    pub joined: bool,
    /// Mark each point (with its interval)?
    pub marked: bool,
}

/// A chart of lines and points.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Above the drawing.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Drawn in order, coloured by position.
    pub series: Vec<Series>,
}

const WIDTH: u32 = 860;
const HEIGHT: u32 = 440;

/// The chart as one `<svg>` element. Points that an axis cannot show (not
/// finite, not positive on a logarithmic axis) are left out.
pub fn line_chart(chart: &Chart) -> String {
    let mut svg = String::new();
    draw(chart, &mut svg).expect("a string takes every byte");
    svg
}

fn draw(chart: &Chart, svg: &mut String) -> Drawn {
    let shown = |v: f64, axis: &Axis| v.is_finite() && (!axis.log || v > 0.0);
    let visible = |p: &&Point| shown(p.x, &chart.x) && shown(p.y, &chart.y);
    let points = || chart.series.iter().flat_map(|s| s.points.iter().filter(visible));
    let heights = points().flat_map(|p| [p.y, p.interval.map_or(p.y, |i| i.0), p.interval.map_or(p.y, |i| i.1)]);
    let x = Scale::around(points().map(|p| p.x), chart.x.log);
    let y = Scale::around(heights, chart.y.log);

    let area = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
    let mut builder = ChartBuilder::on(&area);
    builder.margin(12).caption(&chart.title, letters(16)).x_label_area_size(44).y_label_area_size(62);
    let mut context = builder.build_cartesian_2d(x, y)?;
    let label = |value: &f64| tick_label(*value);
    context
        .configure_mesh()
        .light_line_style(GRID.mix(0.0))
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(letters(12))
        .x_desc(&chart.x.label)
        .y_desc(&chart.y.label)
        .x_label_formatter(&label)
        .y_label_formatter(&label)
        .draw()?;
    for (at, series) in chart.series.iter().enumerate() {
        let points: Vec<Point> = series.points.iter().filter(visible).copied().collect();
        draw_series(&mut context, series, &points, at)?;
    }
    if !chart.series.is_empty() {
        context.configure_series_labels().position(SeriesLabelPosition::UpperLeft).label_font(letters(12)).draw()?;
    }
    area.present()
}

type Context<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Scale, Scale>>;

fn draw_series(context: &mut Context<'_, '_>, series: &Series, points: &[Point], at: usize) -> Drawn {
    let color = color(at);
    if series.joined {
        context.draw_series(LineSeries::new(points.iter().map(|p| (p.x, p.y)), color.stroke_width(2)))?;
    }
    if series.marked {
        // An error bar brings the point's own mark along.
        let intervals = points.iter().filter_map(|p| p.interval.map(|(low, high)| (p, low, high)));
        context.draw_series(intervals.map(|(p, low, high)| ErrorBar::new_vertical(p.x, low, p.y, high, color.filled(), 6)))?;
        let bare = points.iter().filter(|p| p.interval.is_none());
        context.draw_series(bare.map(|p| Circle::new((p.x, p.y), 3, color.filled())))?;
    }
    // An empty series carries the legend, whatever was drawn above.
    let legend = context.draw_series(std::iter::empty::<Circle<(f64, f64), i32>>())?;
    legend.label(&series.name).legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], color.stroke_width(3)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Chart {
        let point = |x, y, interval| Point { x, y, interval };
        let measured = vec![point(1024.0, 17.0, Some((16.0, 19.0))), point(43008.0, 22.5, None), point(0.0, 1.0, None)];
        let modelled = vec![point(1024.0, 16.5, None), point(43008.0, 23.0, None)];
        Chart {
            title: "latency <of> one".to_owned(),
            x: Axis { label: "message, bytes".to_owned(), log: true },
            y: Axis { label: "latency, us".to_owned(), log: true },
            series: vec![
                Series { name: "measured".to_owned(), points: measured, joined: false, marked: true },
                Series { name: "modelled".to_owned(), points: modelled, joined: true, marked: false },
            ],
        }
    }

    #[test]
    fn a_chart_shows_its_points_line_legend_and_labels() {
        let svg = line_chart(&sample());
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
        // The third point is not positive: two circles for three points.
        assert_eq!(svg.matches("<circle").count(), 2);
        for text in ["measured", "modelled", "message, bytes", "latency, us", "latency &lt;of&gt; one", "1000", "50k"] {
            assert!(svg.contains(text), "{text} in {svg}");
        }
        assert!(!svg.contains("NaN"));
        assert_eq!(svg, line_chart(&sample()), "the same bytes again");
    }

    #[test]
    fn an_empty_chart_is_still_a_drawing() {
        let empty = Chart { series: Vec::new(), ..sample() };
        assert!(line_chart(&empty).trim_end().ends_with("</svg>"));
    }
}
