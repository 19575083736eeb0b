//! Lines and points over linear or logarithmic axes, as an SVG string.

use plotters::element::Circle;
use plotters::element::PathElement;
use plotters::prelude::IntoDrawingArea;
use plotters::prelude::SVGBackend;
use plotters::style::Color;
use plotters::style::FontTransform;
use plotters::style::text_anchor::HPos;
use plotters::style::text_anchor::Pos;
use plotters::style::text_anchor::VPos;

use crate::render::drawing::Area;
use crate::render::drawing::Drawn;
use crate::render::drawing::LEGEND_LINE;
use crate::render::drawing::WIDE;
use crate::render::drawing::draw_legend;
use crate::render::drawing::legend_lines;
use crate::render::drawing::letters;
use crate::render::drawing::text_width;
use crate::render::scale::GRID;
use crate::render::scale::INK;
use crate::render::scale::Scale;
use crate::render::scale::color;
use crate::render::scale::tick_label;

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

/// A vertical line with a word, such as where two series cross.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// Where.
    pub x: f64,
    /// At its top.
    pub label: String,
}

/// A chart of lines and points.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Above the drawing; may be empty.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Drawn in order, coloured by position. Those after `named` take the
    /// colours again from the first and stand not in the legend.
    pub series: Vec<Series>,
    /// Series with a place in the legend.
    pub named: usize,
    /// Vertical lines.
    pub marks: Vec<Mark>,
    /// Draw the line on which both axes have the same value?
    pub diagonal: bool,
}

const BOTTOM: i32 = 46;
const RIGHT: i32 = 16;
const TITLE_HEIGHT: i32 = 26;

/// The chart as one `<svg>` element of that width in pixels. Points that an
/// axis cannot show (not finite, not positive on a logarithmic axis) are left out.
pub fn line_chart(chart: &Chart, width: i32) -> String {
    let mut svg = String::new();
    draw(chart, width, &mut svg).expect("a string takes every byte");
    svg
}

/// Where the axes lie, in pixels.
struct Frame {
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
    x: Scale,
    y: Scale,
}

impl Frame {
    fn at(&self, x: f64, y: f64) -> (i32, i32) {
        let along = libm::round(self.x.share(x) * f64::from(self.right - self.left)) as i32;
        let up = libm::round(self.y.share(y) * f64::from(self.bottom - self.top)) as i32;
        (self.left + along, self.bottom - up)
    }
}

fn is_shown(chart: &Chart, point: &Point) -> bool {
    let shown = |value: f64, axis: &Axis| value.is_finite() && (!axis.log || value > 0.0);
    shown(point.x, &chart.x) && shown(point.y, &chart.y)
}

fn draw(chart: &Chart, width: i32, svg: &mut String) -> Drawn {
    let points = || chart.series.iter().flat_map(|s| s.points.iter().filter(|point| is_shown(chart, point)));
    let heights = points().flat_map(|p| [p.y, p.interval.map_or(p.y, |i| i.0), p.interval.map_or(p.y, |i| i.1)]);
    let names: Vec<String> = chart.series.iter().take(chart.named).map(|series| series.name.clone()).collect();
    let title = if chart.title.is_empty() { 0 } else { TITLE_HEIGHT };
    let top = 12 + title + legend_lines(&names, width) * LEGEND_LINE + if chart.marks.is_empty() { 8 } else { 40 };
    let plot = if width >= WIDE { 330 } else { 250 };
    let (x, y) = (Scale::around(points().map(|p| p.x), chart.x.log), Scale::around(heights, chart.y.log));
    let frame = Frame { left: 58, right: width - RIGHT, top, bottom: top + plot, x, y };
    let area = SVGBackend::with_string(svg, (width.unsigned_abs(), (top + plot + BOTTOM).unsigned_abs())).into_drawing_area();
    if !chart.title.is_empty() {
        area.draw_text(&chart.title, &letters(15), (12, 10))?;
    }
    draw_legend(&area, &names, width, 10 + title)?;
    draw_axes(&area, &frame, chart)?;
    draw_marks(&area, &frame, chart)?;
    if chart.diagonal {
        draw_diagonal(&area, &frame)?;
    }
    for (at, series) in chart.series.iter().enumerate() {
        let points: Vec<Point> = series.points.iter().filter(|point| is_shown(chart, point)).copied().collect();
        draw_series(&area, &frame, series, &points, if at < chart.named { at } else { at - chart.named })?;
    }
    area.present()
}

fn draw_axes(area: &Area<'_>, frame: &Frame, chart: &Chart) -> Drawn {
    let below = letters(12).pos(Pos::new(HPos::Center, VPos::Top));
    let beside = letters(12).pos(Pos::new(HPos::Right, VPos::Center));
    let columns = usize::try_from((frame.right - frame.left) / 60).unwrap_or(2);
    for tick in frame.x.ticks(columns.clamp(2, 15)) {
        let (x, _) = frame.at(tick, 0.0);
        area.draw(&PathElement::new(vec![(x, frame.top), (x, frame.bottom)], GRID.stroke_width(1)))?;
        area.draw_text(&tick_label(tick), &below, (x, frame.bottom + 6))?;
    }
    for tick in frame.y.ticks(if chart.y.log { 12 } else { 8 }) {
        let y = frame.at(0.0, tick).1;
        area.draw(&PathElement::new(vec![(frame.left, y), (frame.right, y)], GRID.stroke_width(1)))?;
        area.draw_text(&tick_label(tick), &beside, (frame.left - 6, y))?;
    }
    let corner = vec![(frame.left, frame.top), (frame.left, frame.bottom), (frame.right, frame.bottom)];
    area.draw(&PathElement::new(corner, INK.stroke_width(1)))?;
    area.draw_text(&chart.x.label, &below, ((frame.left + frame.right) / 2, frame.bottom + 24))?;
    let upwards = letters(12).transform(FontTransform::Rotate270).pos(Pos::new(HPos::Center, VPos::Top));
    area.draw_text(&chart.y.label, &upwards, (4, (frame.top + frame.bottom) / 2))
}

fn draw_marks(area: &Area<'_>, frame: &Frame, chart: &Chart) -> Drawn {
    let above = letters(11).pos(Pos::new(HPos::Center, VPos::Bottom));
    // Labels that would overlap stand on two lines in turn.
    let mut last = [i32::MIN / 2; 2];
    for mark in chart.marks.iter().filter(|mark| mark.x.is_finite()) {
        let (x, _) = frame.at(mark.x, 0.0);
        let half = text_width(&mark.label) / 2 + 4;
        let line = usize::from(x - half < last[0] && x - half >= last[1]);
        last[line] = x + half;
        for dash in (frame.top..frame.bottom).step_by(8) {
            area.draw(&PathElement::new(vec![(x, dash), (x, (dash + 4).min(frame.bottom))], INK.stroke_width(1)))?;
        }
        area.draw_text(
            &mark.label,
            &above,
            (x.clamp(frame.left + 20, frame.right - 20), frame.top - 4 - 14 * i32::try_from(line).unwrap_or(0)),
        )?;
    }
    Ok(())
}

/// The line on which both axes have the same value, as far as both show it.
fn draw_diagonal(area: &Area<'_>, frame: &Frame) -> Drawn {
    let (x, y) = (frame.x.range(), frame.y.range());
    let (low, high) = (x.start.max(y.start), x.end.min(y.end));
    if low >= high {
        return Ok(());
    }
    area.draw(&PathElement::new(vec![frame.at(low, low), frame.at(high, high)], INK.stroke_width(1)))
}

fn draw_series(area: &Area<'_>, frame: &Frame, series: &Series, points: &[Point], at: usize) -> Drawn {
    let color = color(at);
    if series.joined && points.len() > 1 {
        let line: Vec<(i32, i32)> = points.iter().map(|point| frame.at(point.x, point.y)).collect();
        area.draw(&PathElement::new(line, color.stroke_width(2)))?;
    }
    if !series.marked {
        return Ok(());
    }
    for point in points {
        let (x, y) = frame.at(point.x, point.y);
        if let Some((low, high)) = point.interval {
            let (low, high) = (frame.at(point.x, low).1, frame.at(point.x, high).1);
            area.draw(&PathElement::new(vec![(x, low), (x, high)], color.stroke_width(1)))?;
            for end in [low, high] {
                area.draw(&PathElement::new(vec![(x - 3, end), (x + 3, end)], color.stroke_width(1)))?;
            }
        }
        area.draw(&Circle::new((x, y), 3, color.filled()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::drawing::NARROW;

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
            named: 2,
            marks: vec![Mark { x: 8192.0, label: "crossing".to_owned() }],
            diagonal: true,
        }
    }

    #[test]
    fn a_chart_shows_its_points_line_legend_and_labels() {
        for width in [WIDE, NARROW] {
            let svg = line_chart(&sample(), width);
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
            // The third point is not positive: two circles for three points.
            assert_eq!(svg.matches("<circle").count(), 2);
            for text in ["measured", "modelled", "message, bytes", "latency, us", "latency &lt;of&gt; one", "1000", "crossing"] {
                assert!(svg.contains(text), "{text} in {svg}");
            }
            assert!(!svg.contains("NaN"));
            assert_eq!(svg, line_chart(&sample(), width), "the same bytes again");
        }
    }

    #[test]
    fn an_empty_chart_is_still_a_drawing() {
        let empty = Chart { series: Vec::new(), ..sample() };
        assert!(line_chart(&empty, WIDE).trim_end().ends_with("</svg>"));
    }
}
