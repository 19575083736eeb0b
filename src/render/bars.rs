//! Rows of coloured spans over one axis: stacked bars and timelines, as an SVG string.

use plotters::element::PathElement;
use plotters::element::Rectangle;
use plotters::prelude::IntoDrawingArea;
use plotters::prelude::SVGBackend;
use plotters::style::Color;
use plotters::style::text_anchor::HPos;
use plotters::style::text_anchor::Pos;
use plotters::style::text_anchor::VPos;

use crate::render::drawing::Area;
use crate::render::drawing::Drawn;
use crate::render::drawing::LEGEND_LINE;
use crate::render::drawing::draw_legend;
use crate::render::drawing::fitted;
use crate::render::drawing::legend_lines;
use crate::render::drawing::letters;
use crate::render::drawing::text_width;
use crate::render::scale::GRID;
use crate::render::scale::INK;
use crate::render::scale::Scale;
use crate::render::scale::color;
use crate::render::scale::tick_label;

/// A coloured stretch of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Where it starts on the axis.
    pub start: f64,
    /// Where it ends, not before the start.
    pub end: f64,
    /// Index into [`Rows::kinds`].
    pub kind: usize,
}

/// One row with its label.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// At the left.
    pub label: String,
    /// In any order; later ones are drawn over earlier ones.
    pub spans: Vec<Span>,
    /// The ends of an interval, drawn over the spans.
    pub interval: Option<(f64, f64)>,
    /// At the right of the last span, such as its value; may be empty.
    pub note: String,
}

/// Rows below one another.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// Above the drawing; may be empty.
    pub title: String,
    /// What the axis shows, unit included.
    pub axis: String,
    /// The legend; colours go by position.
    pub kinds: Vec<String>,
    /// From the top.
    pub rows: Vec<Row>,
    /// Where the axis begins and ends; around the spans from zero where absent.
    pub range: Option<(f64, f64)>,
}

/// A row of parts set end to end from zero: one stacked bar. What is negative
/// or not finite has no length.
pub fn stacked(label: &str, parts: &[f64]) -> Row {
    let mut spans = Vec::with_capacity(parts.len());
    let mut start = 0.0;
    for (kind, part) in parts.iter().enumerate() {
        let length = if part.is_finite() { part.max(0.0) } else { 0.0 };
        spans.push(Span { start, end: start + length, kind });
        start += length;
    }
    Row { label: label.to_owned(), spans, ..Row::default() }
}

const ROW_HEIGHT: i32 = 26;
const TITLE_HEIGHT: i32 = 26;
const BOTTOM: i32 = 46;
const RIGHT: i32 = 16;

/// The rows as one `<svg>` element of that width in pixels.
pub fn row_chart(rows: &Rows, width: i32) -> String {
    let mut svg = String::new();
    draw(rows, width, &mut svg).expect("a string takes every byte");
    svg
}

/// Where rows and axis lie, in pixels.
struct Frame {
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
    scale: Scale,
}

impl Frame {
    fn new(rows: &Rows, width: i32) -> Frame {
        let longest = rows.rows.iter().map(|row| text_width(&row.label)).max().unwrap_or(0);
        let left = longest.saturating_add(20).min(width * 2 / 5);
        let title = if rows.title.is_empty() { 0 } else { TITLE_HEIGHT };
        let top = 12 + title + legend_lines(&rows.kinds, width) * LEGEND_LINE + 8;
        let count = i32::try_from(rows.rows.len()).unwrap_or(i32::MAX / 100).min(10_000);
        let notes = rows.rows.iter().map(|row| text_width(&row.note)).max().unwrap_or(0);
        let values = rows.rows.iter().flat_map(|row| row.spans.iter().flat_map(|span| [span.start, span.end]));
        let ends = rows.rows.iter().filter_map(|row| row.interval).flat_map(|(low, high)| [low, high]);
        let scale = match rows.range {
            Some((low, high)) => Scale::between(low, high),
            None => Scale::around(values.chain(ends), false),
        };
        Frame { left, right: width - RIGHT - notes, top, bottom: top + ROW_HEIGHT * count, scale }
    }

    fn x(&self, value: f64) -> i32 {
        self.left + libm::round(self.scale.share(value) * f64::from(self.right - self.left)) as i32
    }
}

fn draw(rows: &Rows, width: i32, svg: &mut String) -> Drawn {
    let frame = Frame::new(rows, width);
    let height = u32::try_from(frame.bottom + BOTTOM).unwrap_or(1);
    let area = SVGBackend::with_string(svg, (width.unsigned_abs(), height)).into_drawing_area();
    let mut top = 10;
    if !rows.title.is_empty() {
        area.draw_text(&rows.title, &letters(15), (12, top))?;
        top += TITLE_HEIGHT;
    }
    draw_legend(&area, &rows.kinds, width, top)?;
    draw_axis(&area, &frame, &rows.axis)?;
    for (at, row) in (0..).zip(&rows.rows) {
        draw_row(&area, &frame, row, frame.top + at * ROW_HEIGHT)?;
    }
    area.present()
}

fn draw_axis(area: &Area<'_>, frame: &Frame, label: &str) -> Drawn {
    let below = letters(12).pos(Pos::new(HPos::Center, VPos::Top));
    let count = usize::try_from((frame.right - frame.left) / 70).unwrap_or(2);
    for tick in frame.scale.ticks(count.clamp(2, 8)) {
        let x = frame.x(tick);
        area.draw(&PathElement::new(vec![(x, frame.top - 4), (x, frame.bottom)], GRID.stroke_width(1)))?;
        area.draw_text(&tick_label(tick), &below, (x, frame.bottom + 6))?;
    }
    area.draw_text(label, &below, ((frame.left + frame.right) / 2, frame.bottom + 24))
}

fn draw_row(area: &Area<'_>, frame: &Frame, row: &Row, top: i32) -> Drawn {
    let beside = letters(12).pos(Pos::new(HPos::Right, VPos::Center));
    let middle = top + ROW_HEIGHT / 2;
    area.draw_text(&fitted(&row.label, frame.left - 10), &beside, (frame.left - 8, middle))?;
    let mut last = frame.left;
    for span in row.spans.iter().filter(|span| span.end > span.start) {
        // A span narrower than a pixel is still seen.
        let (start, end) = (frame.x(span.start), frame.x(span.end).max(frame.x(span.start) + 1));
        area.draw(&Rectangle::new([(start, top + 4), (end, top + ROW_HEIGHT - 4)], color(span.kind).filled()))?;
        last = last.max(end);
    }
    if let Some((low, high)) = row.interval {
        let (low, high) = (frame.x(low), frame.x(high));
        area.draw(&PathElement::new(vec![(low, middle), (high, middle)], INK.stroke_width(1)))?;
        for end in [low, high] {
            area.draw(&PathElement::new(vec![(end, middle - 4), (end, middle + 4)], INK.stroke_width(1)))?;
        }
        last = last.max(high);
    }
    if row.note.is_empty() {
        return Ok(());
    }
    let behind = letters(12).pos(Pos::new(HPos::Left, VPos::Center));
    area.draw_text(&row.note, &behind, (last + 6, middle))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::drawing::NARROW;
    use crate::render::drawing::WIDE;

    #[test]
    fn parts_are_set_end_to_end() {
        let row = stacked("a", &[1.0, f64::NAN, 2.0, -3.0]);
        let ends: Vec<(f64, f64)> = row.spans.iter().map(|s| (s.start, s.end)).collect();
        assert_eq!(ends, [(0.0, 1.0), (1.0, 1.0), (1.0, 3.0), (3.0, 3.0)]);
    }

    #[test]
    fn a_row_chart_shows_each_span_and_the_legend() {
        let rows = Rows {
            title: "where the time goes".to_owned(),
            axis: "ms".to_owned(),
            kinds: vec!["compute".to_owned(), "communication".to_owned()],
            rows: vec![
                Row { interval: Some((11.0, 13.0)), note: "12 ms".to_owned(), ..stacked("now & then", &[8.0, 4.0]) },
                stacked("later", &[8.0, 0.0]),
            ],
            range: None,
        };
        for width in [WIDE, NARROW] {
            let svg = row_chart(&rows, width);
            // Two of the legend, three of length: the last part has none.
            assert_eq!(svg.matches("<rect").count(), 5, "{svg}");
            for text in ["where the time goes", "compute", "communication", "now &amp; then", "later", "12 ms"] {
                assert!(svg.contains(text), "{text}");
            }
            assert_eq!(svg, row_chart(&rows, width), "the same bytes again");
        }
    }

    #[test]
    fn no_rows_and_odd_kinds_draw_too() {
        let span = Span { start: 1.0, end: f64::INFINITY, kind: 99 };
        let row = Row { spans: vec![span], ..Row::default() };
        let rows = Rows { title: String::new(), axis: String::new(), kinds: vec![], rows: vec![row], range: Some((3.0, 3.0)) };
        assert!(row_chart(&rows, WIDE).trim_end().ends_with("</svg>"));
        assert!(row_chart(&Rows { rows: vec![], ..rows }, NARROW).trim_end().ends_with("</svg>"));
    }
}
