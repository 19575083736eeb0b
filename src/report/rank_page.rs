//! The drawings of a ranking.

use crate::decide::rank::Ranking;
use crate::render::bars::Row;
use crate::render::bars::Rows;
use crate::render::bars::row_chart;
use crate::render::bars::stacked;
use crate::render::drawing::both;
use crate::render::drawing::caption;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::render::page::Section;

/// Puts the bars before the table of the section `Ranking`.
pub fn add_drawings(sections: &mut [Section], ranking: &Ranking, baseline: &str) {
    if let Some(section) = sections.iter_mut().find(|section| section.heading == "Ranking") {
        section.blocks.insert(0, bars(ranking, baseline));
        let words = "What the pass spends under each strategy. The line at a bar's end is its 90 % interval.";
        section.blocks.insert(1, caption(words));
    }
}

/// All feasible strategies as stacked bars with their intervals.
fn bars(ranking: &Ranking, baseline: &str) -> Block {
    let rows: Vec<Row> = (ranking.rows.iter())
        .filter_map(|row| row.outcome.as_ref().ok().map(|forecast| (row.strategy.id, forecast)))
        .map(|(id, forecast)| {
            let parts = [forecast.compute, forecast.communication, forecast.skew, forecast.launch].map(|time| time.ms());
            let pass = forecast.pass.ms();
            let label = if id == baseline { format!("{id} *") } else { id.to_owned() };
            let interval = (forecast.margin_ms > 0.0).then_some((pass - forecast.margin_ms, pass + forecast.margin_ms));
            Row { interval, note: Number::new(pass, 2).digits(), ..stacked(&label, &parts) }
        })
        .collect();
    let kinds = ["compute", "communication", "waiting for other ranks", "launch gaps"].map(str::to_owned).to_vec();
    let rows = Rows { title: String::new(), axis: "pass, ms (* the baseline)".to_owned(), kinds, rows, range: None };
    both("The strategies by pass, with intervals", |width| row_chart(&rows, width))
}
