//! The drawings of a comparison.

use crate::compare::Comparison;
use crate::compare::Portion;
use crate::render::bars::Rows;
use crate::render::bars::row_chart;
use crate::render::bars::stacked;
use crate::render::chart::Axis;
use crate::render::chart::Chart;
use crate::render::chart::Point;
use crate::render::chart::Series;
use crate::render::chart::line_chart;
use crate::render::drawing::both;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::report::timeline::Timeline;
use crate::trace::record::Record;

fn kinds() -> Vec<String> {
    Portion::ALL.iter().map(|portion| portion.name().to_owned()).collect()
}

/// Both passes as stacked bars: the mean rank and the critical path.
pub fn portions(comparison: &Comparison) -> Vec<Block> {
    let [a, b] = &comparison.sides;
    let scaled = |parts: &[f64; 5]| parts.map(|us| us / 1e3);
    let mut rows = Vec::new();
    for (name, a, b) in [("mean rank", &a.spent, &b.spent), ("critical path", &a.path, &b.path)] {
        for (letter, parts) in [("A", a), ("B", b)] {
            let mut row = stacked(&format!("{letter}, {name}"), &scaled(parts));
            row.note = format!("{} ms", Number::new(parts.iter().sum::<f64>() / 1e3, 3));
            rows.push(row);
        }
    }
    let rows = Rows { title: String::new(), axis: "ms".to_owned(), kinds: kinds(), rows, range: None };
    vec![both("Both passes by portion", |width| row_chart(&rows, width))]
}

/// A pass of each trace, and the layer that differs most from close by.
pub fn timelines(comparison: &Comparison, records: &[Vec<Record>; 2]) -> Vec<Section> {
    let most = comparison.layers.iter().max_by(|a, b| a.difference_us().abs().total_cmp(&b.difference_us().abs()));
    let layer = most.filter(|line| line.difference_us() != 0.0).and_then(|line| line.layer);
    let section = |(letter, records): (&str, &Vec<Record>)| {
        let timeline = Timeline::new(records)?;
        let blocks = timeline.blocks(layer.or_else(|| timeline.most_waiting()));
        Some(Section { heading: format!("Timeline of {letter}"), blocks })
    };
    ["A", "B"].into_iter().zip(records).filter_map(section).collect()
}

/// Each rank in both traces.
pub fn ranks(comparison: &Comparison) -> Vec<Block> {
    if comparison.ranks.len() > 16 {
        return Vec::new();
    }
    let mut rows = Vec::new();
    for line in &comparison.ranks {
        for (letter, spent) in ["A", "B"].iter().zip(&line.spent) {
            rows.push(stacked(&format!("{}, {letter}", line.name), &spent.map(|us| us / 1e3)));
        }
    }
    let rows = Rows { title: String::new(), axis: "ms".to_owned(), kinds: kinds(), rows, range: None };
    vec![both("Each rank in both traces by portion", |width| row_chart(&rows, width))]
}

/// The difference by layer, one line a portion that moved.
pub fn layers(comparison: &Comparison) -> Vec<Block> {
    if comparison.layers.len() < 2 {
        return Vec::new();
    }
    let series: Vec<Series> = Portion::ALL
        .iter()
        .map(|portion| {
            let points = (comparison.layers.iter())
                .map(|line| Point { x: f64::from(line.layer.unwrap_or(0)), y: line.portion_us(*portion), interval: None })
                .collect();
            Series { name: portion.name().to_owned(), points, joined: true, marked: false }
        })
        .filter(|series| series.points.iter().any(|point| point.y.abs() >= 1e-3))
        .collect();
    let named = series.len();
    let chart = Chart {
        title: String::new(),
        x: Axis { label: "layer".to_owned(), log: false },
        y: Axis { label: "B − A, us".to_owned(), log: false },
        series,
        named,
        marks: Vec::new(),
        diagonal: false,
    };
    vec![both("The difference by layer", |width| line_chart(&chart, width))]
}
