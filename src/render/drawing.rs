//! What all drawings share: their two widths, legends and the words for those
//! who do not see them.

use plotters::coord::Shift;
use plotters::element::Rectangle;
use plotters::prelude::DrawingArea;
use plotters::prelude::DrawingAreaErrorKind;
use plotters::prelude::SVGBackend;
use plotters::style::Color;
use plotters::style::IntoFont;
use plotters::style::TextStyle;

use crate::render::page::Block;
use crate::render::scale::INK;
use crate::render::scale::color;

/// For desktops and paper, in pixels.
pub const WIDE: i32 = 860;
/// For phones: the letters stay readable without zooming.
pub const NARROW: i32 = 380;
/// Height of a line of the legend.
pub const LEGEND_LINE: i32 = 20;

/// What drawing into a string can return; it does not happen.
pub(crate) type Drawn = std::result::Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Where drawings are drawn.
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The letters of drawings, `size` pixels high: the reader's own sans-serif, as
/// no font is embedded. plotters' SVG writes sizes divided by 1.24.
pub(crate) fn letters(size: u32) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", f64::from(size) * 1.24).into_font()).color(&INK)
}

/// The drawing in both widths; the page shows the one that fits. `words` say
/// what it shows.
pub fn both(words: &str, draw: impl Fn(i32) -> String) -> Block {
    let named = |width: i32, class: &str| {
        // What is so without saying makes pages a third larger.
        let svg = draw(width).replace(" opacity=\"1\"", "").replace(" stroke=\"none\"", "");
        let label = escaped(words);
        format!("<div class=\"{class}\">{}</div>", svg.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{label}\" "), 1))
    };
    Block::Drawing(format!("{}\n{}", named(WIDE, "on-wide"), named(NARROW, "on-narrow")))
}

/// Words that belong to a drawing: they stand on pages only.
pub fn caption(text: &str) -> Block {
    Block::Drawing(format!("<p>{}</p>", escaped(text)))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

/// Lines that a legend takes at a width.
pub(crate) fn legend_lines(names: &[String], width: i32) -> i32 {
    places(names, width).last().map_or(0, |(_, line)| line + 1)
}

/// Draws the legend with its first line at `top`.
pub(crate) fn draw_legend(area: &Area<'_>, names: &[String], width: i32, top: i32) -> Drawn {
    for (at, (name, (x, line))) in names.iter().zip(places(names, width)).enumerate() {
        let y = top + line * LEGEND_LINE;
        area.draw(&Rectangle::new([(x, y + 2), (x + 11, y + 13)], color(at).filled()))?;
        area.draw_text(name, &letters(12), (x + 16, y))?;
    }
    Ok(())
}

/// Where each entry of a legend stands: left edge and line.
fn places(names: &[String], width: i32) -> Vec<(i32, i32)> {
    let (mut x, mut line) = (12, 0);
    let mut places = Vec::with_capacity(names.len());
    for name in names {
        let length = text_width(name) + 30;
        if x > 12 && x + length > width {
            (x, line) = (12, line + 1);
        }
        places.push((x, line));
        x = x.saturating_add(length);
    }
    places
}

/// About how wide a text of the labels' size is: 6.5 pixels a letter.
pub(crate) fn text_width(text: &str) -> i32 {
    i32::try_from(text.chars().count()).unwrap_or(i32::MAX / 8).saturating_mul(13) / 2
}

/// `text` cut to `pixels`, with an ellipsis.
pub(crate) fn fitted(text: &str, pixels: i32) -> String {
    let most = usize::try_from(pixels.saturating_mul(2) / 13).unwrap_or(0);
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legends_wrap() {
        let names: Vec<String> = (0..6).map(|at| format!("strategy number {at}")).collect();
        assert_eq!(legend_lines(&names, WIDE), 1);
        assert!(legend_lines(&names, NARROW) >= 3);
        assert_eq!(legend_lines(&[], NARROW), 0);
    }

    #[test]
    fn both_widths_carry_the_words() {
        let Block::Drawing(html) = both("a \"b\" < c", |width| format!("<svg width=\"{width}\"></svg>")) else { panic!("a drawing") };
        assert_eq!(html.matches("aria-label=\"a &quot;b&quot; &lt; c\"").count(), 2);
        assert!(html.contains("on-wide") && html.contains("on-narrow") && html.contains("width=\"380\""));
    }

    #[test]
    fn long_labels_are_cut() {
        assert_eq!(fitted("abcdefghij", 65), "abcdefghij");
        assert_eq!(fitted("abcdefghijk", 65), "abcdefghi…");
    }
}
