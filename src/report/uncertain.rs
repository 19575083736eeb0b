//! How sure a ranking is, in words, as a table and as data.

use serde::Serialize;

use crate::decide::rank::Ranking;
use crate::decide::uncertain::Interval;
use crate::decide::uncertain::Uncertainty;
use crate::decide::uncertain::sensitivity::Share;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Cell;
use crate::render::table::Column;
use crate::render::table::Table;

/// Rows of the table for people.
const SHOWN: usize = 10;
/// Constants that are named.
const NAMED: usize = 6;

/// The section for people.
pub fn section(ranking: &Ranking, uncertainty: &Uncertainty) -> Section {
    let tied: Vec<&str> = uncertainty.rows.iter().filter(|(id, row)| row.tied && **id != uncertainty.leader).map(|(id, _)| *id).collect();
    let leader = uncertainty.rows.get(uncertainty.leader);
    let mut words = format!(
        "{} samples, seed {}. Most often fastest: {} ({} % of the samples)",
        Number::integer(uncertainty.samples as u64).grouped(),
        uncertainty.seed,
        uncertainty.leader,
        percent(leader.map_or(0.0, |row| row.best))
    );
    if tied.is_empty() {
        words.push_str("; every other is slower in more than 95 % of them.");
    } else {
        words.push_str(&format!("; tied with it, as neither is faster in 95 % of the samples: {}.", tied.join(", ")));
    }
    let legend = "Ranges hold 90 % of the samples. A sample draws every constant within its interval and the models' errors from the residuals of the nearest group of observations; all strategies see the same draw.";
    let mut blocks = vec![Block::Text(words), Block::Table(table(ranking, uncertainty)), Block::Text(legend.to_owned())];
    let lines: Vec<String> = uncertainty.decide.iter().take(NAMED).map(decide_line).collect();
    if !lines.is_empty() {
        let heading = format!("What decides between {} and {}, and what would settle it:", uncertainty.leader, ranking.baseline_id);
        let heading = if uncertainty.leader == ranking.baseline_id {
            "What is not known of the pass, and what would settle it:".to_owned()
        } else {
            heading
        };
        blocks.extend([Block::Text(heading), Block::List(lines)]);
    }
    Section { heading: "How sure".to_owned(), blocks }
}

fn percent(share: f64) -> String {
    Number::new(share * 100.0, 0).digits()
}

fn range(ends: [f64; 2]) -> String {
    format!("{} to {}", Number::new(ends[0], 2).digits(), Number::new(ends[1], 2).digits())
}

fn decide_line(share: &Share) -> String {
    let ends = share.ends_ms.map_or(String::new(), |ends| {
        format!(
            ": {} ms at the low end, {} at the high one of {}",
            Number::new(ends[0], 2).signed(),
            Number::new(ends[1], 2).signed(),
            share.known
        )
    });
    format!("{} % {}{ends}. Measure: {} ({} min).", percent(share.share), share.what, share.measurement, share.minutes)
}

fn table(ranking: &Ranking, uncertainty: &Uncertainty) -> Table {
    let mut table = Table::new(vec![
        Column::text("strategy", "strategy"),
        Column::number("pass_ms", "pass, ms"),
        Column::text("pass_90", "90 %"),
        Column::text("saving_90", "saving, ms, 90 %"),
        Column::number("best_pct", "fastest, %"),
        Column::number("beats_pct", "beats baseline, %"),
        Column::text("tied", "tied"),
    ]);
    let rows = ranking.rows.iter().filter_map(|row| Some((row, row.outcome.as_ref().ok()?, uncertainty.rows.get(row.strategy.id)?)));
    let shown = |at: usize, id: &str| at < SHOWN || id == ranking.baseline_id;
    for (_, (row, forecast, interval)) in rows.enumerate().filter(|(at, (row, _, _))| shown(*at, row.strategy.id)) {
        table.row(vec![
            row.strategy.id.into(),
            Number::new(forecast.pass.ms(), 2).into(),
            range(interval.pass_ms).into(),
            range(interval.saving_ms).into(),
            Number::new(interval.best * 100.0, 0).into(),
            Number::new(interval.beats_baseline * 100.0, 0).into(),
            if interval.tied { "=".into() } else { Cell::Empty },
        ]);
    }
    table
}

/// What a row of the JSON array has more where samples were drawn.
#[derive(Serialize)]
pub struct JsonInterval {
    pass_low_ms: Option<f64>,
    pass_high_ms: Option<f64>,
    saving_low_ms: Option<f64>,
    saving_high_ms: Option<f64>,
    best_probability: Option<f64>,
    beats_baseline_probability: Option<f64>,
    tied: bool,
    residual: String,
}

/// A strategy's interval as data.
pub fn json(interval: &Interval) -> JsonInterval {
    let number = |value: f64, decimals: usize| Number::new(value, decimals).rounded();
    JsonInterval {
        pass_low_ms: number(interval.pass_ms[0], 6),
        pass_high_ms: number(interval.pass_ms[1], 6),
        saving_low_ms: number(interval.saving_ms[0], 6),
        saving_high_ms: number(interval.saving_ms[1], 6),
        best_probability: number(interval.best, 5),
        beats_baseline_probability: number(interval.beats_baseline, 5),
        tied: interval.tied,
        residual: interval.residual.clone(),
    }
}

/// The same as more columns of the table for CSV, whose first column is the strategy.
pub fn add_columns(table: &mut Table, uncertainty: &Uncertainty) {
    const NUMBERS: [&str; 6] =
        ["pass_low_ms", "pass_high_ms", "saving_low_ms", "saving_high_ms", "best_probability", "beats_baseline_probability"];
    table.columns.extend(NUMBERS.iter().map(|key| Column::number(key, key)));
    table.columns.push(Column::text("tied", "tied"));
    for row in &mut table.rows {
        let interval = row.first().and_then(|cell| uncertainty.rows.get(cell.field().as_str())).map(json);
        let numbers = interval.as_ref().map_or([None; 6], |i| {
            [i.pass_low_ms, i.pass_high_ms, i.saving_low_ms, i.saving_high_ms, i.best_probability, i.beats_baseline_probability]
        });
        row.extend(numbers.map(|value| Cell::from(Number::maybe(value, 6))));
        row.push(interval.map_or(Cell::Empty, |i| i.tied.into()));
    }
}
