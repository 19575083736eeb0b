//! Rows of coloured spans over one axis: stacked bars and timelines, as an SVG string.

use plotters::coord::Shift;
use plotters::element::PathElement;
use plotters::element::Rectangle;
use plotters::prelude::DrawingArea;
use plotters::prelude::IntoDrawingArea;
use plotters::prelude::SVGBackend;
use plotters::style::Color;
use plotters::style::text_anchor::HPos;
use plotters::style::text_anchor::Pos;
use plotters::style::text_anchor::VPos;

use crate::render::chart::Drawn;
use crate::render::chart::letters;
use crate::render::scale::GRID;
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
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// At the left.
    pub label: String,
    /// In any order; later ones are drawn over earlier ones.
    pub spans: Vec<Span>,
}

/// Rows below one another.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows {
    /// Above the drawing.
    pub title: String,
    /// What the axis shows, unit included.
    pub axis: String,
    /// The legend; colours go by position.
    pub kinds: Vec<String>,
    /// From the top.
    pub rows: Vec<Row>,
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
    Row { label: label.to_owned(), spans }
}

const WIDTH: i32 = 860;
const ROW_HEIGHT: i32 = 26;
const TOP: i32 = 66;
const BOTTOM: i32 = 48;
const RIGHT: i32 = 24;
/// Width of a letter of the labels, about.
const LETTER: i32 = 7;

/// The rows as one `<svg>` element.
pub fn row_chart(rows: &Rows) -> String {
    let mut svg = String::new();
    draw(rows, &mut svg).expect("a string takes every byte");
    svg
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Where rows and axis lie, in pixels.
struct Frame {
    left: i32,
    bottom: i32,
    scale: Scale,
}

impl Frame {
    fn x(&self, value: f64) -> i32 {
        self.left + libm::round(self.scale.share(value) * f64::from(WIDTH - RIGHT - self.left)) as i32
    }
}

fn draw(rows: &Rows, svg: &mut String) -> Drawn {
    let longest = rows.rows.iter().map(|row| row.label.chars().count()).max().unwrap_or(0);
    let left = (i32::try_from(longest).unwrap_or(i32::MAX).saturating_mul(LETTER)).saturating_add(24).min(WIDTH / 3);
    let bottom = TOP + ROW_HEIGHT * i32::try_from(rows.rows.len()).unwrap_or(i32::MAX / 100).min(10_000);
    let values = rows.rows.iter().flat_map(|row| row.spans.iter().flat_map(|span| [span.start, span.end]));
    let frame = Frame { left, bottom, scale: Scale::around(values, false) };
    let height = u32::try_from(bottom + BOTTOM).unwrap_or(1);
    let area = SVGBackend::with_string(svg, (WIDTH.unsigned_abs(), height)).into_drawing_area();
    area.draw_text(&rows.title, &letters(16), (12, 10))?;
    draw_legend(&area, &rows.kinds)?;
    draw_axis(&area, &frame, &rows.axis)?;
    for (at, row) in (0..).zip(&rows.rows) {
        draw_row(&area, &frame, row, TOP + at * ROW_HEIGHT)?;
    }
    area.present()
}

fn draw_legend(area: &Area<'_>, kinds: &[String]) -> Drawn {
    let mut x = 12;
    for (at, kind) in kinds.iter().enumerate() {
        area.draw(&Rectangle::new([(x, 38), (x + 11, 49)], color(at).filled()))?;
        area.draw_text(kind, &letters(12), (x + 16, 36))?;
        x = x.saturating_add(i32::try_from(kind.chars().count()).unwrap_or(0).saturating_mul(LETTER)).saturating_add(34);
    }
    Ok(())
}

fn draw_axis(area: &Area<'_>, frame: &Frame, label: &str) -> Drawn {
    let below = letters(12).pos(Pos::new(HPos::Center, VPos::Top));
    for tick in frame.scale.ticks(8) {
        let x = frame.x(tick);
        area.draw(&PathElement::new(vec![(x, TOP - 4), (x, frame.bottom)], GRID.stroke_width(1)))?;
        area.draw_text(&tick_label(tick), &below, (x, frame.bottom + 6))?;
    }
    area.draw_text(label, &below, ((frame.left + WIDTH - RIGHT) / 2, frame.bottom + 26))
}

fn draw_row(area: &Area<'_>, frame: &Frame, row: &Row, top: i32) -> Drawn {
    let beside = letters(12).pos(Pos::new(HPos::Right, VPos::Center));
    area.draw_text(&row.label, &beside, (frame.left - 8, top + ROW_HEIGHT / 2))?;
    for span in row.spans.iter().filter(|span| span.end > span.start) {
        // A span narrower than a pixel is still seen.
        let (start, end) = (frame.x(span.start), frame.x(span.end).max(frame.x(span.start) + 1));
        area.draw(&Rectangle::new([(start, top + 4), (end, top + ROW_HEIGHT - 4)], color(span.kind).filled()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
            rows: vec![stacked("now & then", &[8.0, 4.0]), stacked("later", &[8.0, 0.0])],
        };
        let svg = row_chart(&rows);
        // Two of the legend, three of length: the last part has none.
        assert_eq!(svg.matches("<rect").count(), 5, "{svg}");
        for text in ["where the time goes", "compute", "communication", "now &amp; then", "later"] {
            assert!(svg.contains(text), "{text}");
        }
        assert_eq!(svg, row_chart(&rows), "the same bytes again");
    }

    #[test]
    fn no_rows_and_odd_kinds_draw_too() {
        let span = Span { start: 1.0, end: f64::INFINITY, kind: 99 };
        let rows =
            Rows { title: String::new(), axis: String::new(), kinds: vec![], rows: vec![Row { label: String::new(), spans: vec![span] }] };
        assert!(row_chart(&rows).trim_end().ends_with("</svg>"));
        assert!(row_chart(&Rows { rows: vec![], ..rows }).trim_end().ends_with("</svg>"));
    }
}
