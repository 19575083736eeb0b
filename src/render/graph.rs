//! A graph in layers, its edges coloured by how much of them is used, as an SVG string.

use plotters::element::PathElement;
use plotters::element::Rectangle;
use plotters::prelude::IntoDrawingArea;
use plotters::prelude::SVGBackend;
use plotters::style::Color;
use plotters::style::RGBColor;
use plotters::style::text_anchor::HPos;
use plotters::style::text_anchor::Pos;
use plotters::style::text_anchor::VPos;

use crate::render::drawing::Area;
use crate::render::drawing::Drawn;
use crate::render::drawing::LEGEND_LINE;
use crate::render::drawing::letters;
use crate::render::drawing::text_width;
use crate::render::scale::GRID;
use crate::render::scale::INK;
use crate::render::scale::PALETTE;

/// A vertex.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Inside its box.
    pub label: String,
    /// From the top, 0 first.
    pub layer: usize,
    /// From the left, 0 to 1.
    pub x: f64,
}

/// An edge with two directions.
#[derive(Clone, Debug, PartialEq)]
pub struct Edge {
    /// Index of a node.
    pub from: usize,
    /// Index of another.
    pub to: usize,
    /// Used share of what it can carry, from `from` to `to` and back; `None` when nothing crosses.
    pub load: [Option<f64>; 2],
}

/// A graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// Its nodes.
    pub nodes: Vec<Node>,
    /// Its edges.
    pub edges: Vec<Edge>,
}

/// Upper ends of the classes of load, their words and colours.
const CLASSES: [(f64, &str, RGBColor); 4] = [
    (0.1, "below 10 %", PALETTE[5]),
    (0.3, "10 to 30 %", PALETTE[0]),
    (0.6, "30 to 60 %", PALETTE[4]),
    (f64::INFINITY, "60 % and more", PALETTE[1]),
];

const TOP: i32 = 20;
const LAYER_HEIGHT: i32 = 78;
const BOX_HEIGHT: i32 = 26;

/// The graph as one `<svg>` element of that width in pixels.
pub fn graph_chart(graph: &Graph, width: i32) -> String {
    let mut svg = String::new();
    draw(graph, width, &mut svg).expect("a string takes every byte");
    svg
}

fn draw(graph: &Graph, width: i32, svg: &mut String) -> Drawn {
    let layers = graph.nodes.iter().map(|node| node.layer + 1).max().unwrap_or(1).min(100);
    let legend_width = CLASSES.iter().map(|(_, words, _)| text_width(words) + 34).sum::<i32>();
    let lines = if legend_width > width { 2 } else { 1 };
    let top = TOP + lines * LEGEND_LINE;
    let height = top + 10 + LAYER_HEIGHT * (i32::try_from(layers).unwrap_or(1) - 1) + BOX_HEIGHT + 12;
    let area = SVGBackend::with_string(svg, (width.unsigned_abs(), height.unsigned_abs())).into_drawing_area();
    draw_legend(&area, width)?;
    let place = |node: &Node| {
        let x = 4.0 + node.x.clamp(0.0, 1.0) * f64::from(width - 8);
        (libm::round(x) as i32, top + 10 + BOX_HEIGHT / 2 + LAYER_HEIGHT * i32::try_from(node.layer.min(100)).unwrap_or(0))
    };
    for edge in &graph.edges {
        if let (Some(from), Some(to)) = (graph.nodes.get(edge.from), graph.nodes.get(edge.to)) {
            draw_edge(&area, place(from), place(to), edge.load)?;
        }
    }
    for (at, node) in graph.nodes.iter().enumerate() {
        let nearest = graph.nodes.iter().enumerate().filter(|(other, n)| *other != at && n.layer == node.layer);
        let room = nearest.map(|(_, other)| ((other.x - node.x).abs() * f64::from(width - 8)) as i32 - 6).min().unwrap_or(120);
        draw_node(&area, place(node), &node.label, room.clamp(16, 120))?;
    }
    area.present()
}

fn draw_legend(area: &Area<'_>, width: i32) -> Drawn {
    let (mut x, mut y) = (12, 10);
    for (_, words, color) in CLASSES {
        let length = text_width(words) + 34;
        if x > 12 && x + length > width {
            (x, y) = (12, y + LEGEND_LINE);
        }
        area.draw(&Rectangle::new([(x, y + 5), (x + 14, y + 9)], color.filled()))?;
        area.draw_text(words, &letters(12), (x + 20, y))?;
        x += length;
    }
    Ok(())
}

/// Two lines side by side, one a direction; on the right of the way is what goes that way.
fn draw_edge(area: &Area<'_>, from: (i32, i32), to: (i32, i32), load: [Option<f64>; 2]) -> Drawn {
    let (dx, dy) = (f64::from(to.0 - from.0), f64::from(to.1 - from.1));
    let length = libm::sqrt(dx * dx + dy * dy).max(1.0);
    let (ox, oy) = (libm::round(-dy / length * 3.0) as i32, libm::round(dx / length * 3.0) as i32);
    for (load, sign) in load.into_iter().zip([1, -1]) {
        let class = load.and_then(|share| CLASSES.iter().find(|(most, ..)| share < *most));
        let (color, stroke) = class.map_or((GRID, 2), |(_, _, color)| (*color, 4));
        let line = vec![(from.0 + sign * ox, from.1 + sign * oy), (to.0 + sign * ox, to.1 + sign * oy)];
        area.draw(&PathElement::new(line, color.stroke_width(stroke)))?;
    }
    Ok(())
}

fn draw_node(area: &Area<'_>, (x, y): (i32, i32), label: &str, room: i32) -> Drawn {
    // Where the label does not fit, its number does.
    let digits: String = label.chars().filter(char::is_ascii_digit).collect();
    let shown = if text_width(label) + 8 <= room || digits.is_empty() { label } else { &digits };
    let half = (text_width(shown) / 2 + 6).max(13);
    let corners = [(x - half, y - BOX_HEIGHT / 2), (x + half, y + BOX_HEIGHT / 2)];
    area.draw(&Rectangle::new(corners, PAPER.filled()))?;
    area.draw(&Rectangle::new(corners, INK.stroke_width(1)))?;
    area.draw_text(shown, &letters(12).pos(Pos::new(HPos::Center, VPos::Center)), (x, y))
}

/// Behind the labels. The page turns this very colour around in the dark.
const PAPER: RGBColor = RGBColor(0xfe, 0xfe, 0xfe);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::drawing::NARROW;
    use crate::render::drawing::WIDE;

    #[test]
    fn nodes_and_edges_are_drawn() {
        let node = |label: &str, layer, x| Node { label: label.to_owned(), layer, x };
        let nodes = vec![node("cpu0", 0, 0.5), node("gpu<0>", 1, 0.25), node("gpu1", 1, 0.75)];
        let edges = vec![
            Edge { from: 0, to: 1, load: [Some(0.05), None] },
            Edge { from: 0, to: 2, load: [Some(0.7), Some(0.2)] },
            Edge { from: 0, to: 9, load: [None, None] },
        ];
        let graph = Graph { nodes, edges };
        for width in [WIDE, NARROW] {
            let svg = graph_chart(&graph, width);
            assert_eq!(svg.matches("<polyline").count(), 4, "two edges of two directions: {svg}");
            assert!(svg.contains("gpu&lt;0&gt;") && svg.contains("60 % and more"));
            assert_eq!(svg, graph_chart(&graph, width), "the same bytes again");
        }
        assert!(graph_chart(&Graph::default(), NARROW).trim_end().ends_with("</svg>"));
    }
}
