//! Tables of a speculation for people.

use crate::decide::speculate::Answer;
use crate::decide::speculate::Cell;
use crate::decide::speculate::Request;
use crate::decide::speculate::policy::Step;
use crate::render::number::Number;
use crate::render::table::Cell as Field;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::units::Bytes;

pub(super) fn number(value: f64, decimals: usize) -> Field {
    Number::new(value, decimals).into()
}

pub(super) fn count(value: u64) -> Field {
    Number::integer(value).into()
}

pub(super) fn by_shape<'a>(cells: impl Iterator<Item = &'a Cell>) -> Table {
    let mut table = Table::new(vec![
        Column::number("drafts", "drafts"),
        Column::number("verified", "verified"),
        Column::number("message_bytes", "message, B"),
        Column::number("verify_ms", "verify, ms"),
        Column::number("draft_ms", "draft, ms"),
        Column::number("cycle_ms", "cycle, ms"),
        Column::number("expected", "E"),
        Column::number("tokens_per_s", "tokens/s"),
        Column::number("gain_pct", "gain, %"),
        Column::number("break_even_acceptance", "break-even acceptance"),
        Column::number("break_even_verify_ms", "break-even verify, ms"),
    ]);
    for cell in cells {
        table.row(vec![
            count(cell.shape.steps),
            count(cell.shape.verified),
            count(cell.message_bytes),
            number(cell.verify_ms, 2),
            number(cell.draft_ms, 2),
            number(cell.cycle_ms(), 2),
            number(cell.expected, 2),
            number(cell.tokens_per_s(), 1),
            number(cell.gain_pct(), 1),
            Number::maybe(cell.break_even_rate, 2).into(),
            number(cell.break_even_verify_ms(), 2),
        ]);
    }
    table
}

/// Rows of the table of strategies.
const SHOWN: usize = 10;

pub(super) fn by_strategy(request: &Request<'_>, answer: &Answer, batch: u64) -> Table {
    let mut table = Table::new(vec![
        Column::text("strategy", "strategy"),
        Column::number("plain_tokens_per_s", "plain, tokens/s"),
        Column::text("drafts", "best drafts"),
        Column::number("verify_ms", "verify, ms"),
        Column::number("tokens_per_s", "tokens/s"),
        Column::number("gain_pct", "gain, %"),
    ]);
    let mut ids: Vec<&str> = answer.cells.iter().filter(|cell| cell.batch == batch).map(|cell| cell.strategy).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut rows: Vec<(&str, &Cell, bool)> = (ids.into_iter())
        .filter_map(|id| match answer.best_shape(batch, id) {
            Some(best) => Some((id, best, true)),
            None => answer.of(batch, id).next().map(|cell| (id, cell, false)),
        })
        .collect();
    let speed = |row: &(&str, &Cell, bool)| if row.2 { row.1.tokens_per_s() } else { row.1.plain_tokens_per_s() };
    rows.sort_by(|a, b| speed(b).total_cmp(&speed(a)).then(a.0.cmp(b.0)));
    let keep = |at: usize, id: &str| at < SHOWN || id == request.baseline.id;
    for (_, (id, cell, pays)) in rows.iter().enumerate().filter(|(at, row)| keep(*at, row.0)) {
        let drafts = if *pays { cell.shape.steps.to_string() } else { "none pays".to_owned() };
        table.row(vec![
            (*id).into(),
            number(cell.plain_tokens_per_s(), 1),
            drafts.into(),
            number(cell.verify_ms, 2),
            number(if *pays { cell.tokens_per_s() } else { cell.plain_tokens_per_s() }, 1),
            number(if *pays { cell.gain_pct() } else { 0.0 }, 1),
        ]);
    }
    table
}

/// One row per batch and run of shapes with the same best strategy.
pub(super) fn by_batch(request: &Request<'_>, answer: &Answer) -> Table {
    let mut table = Table::new(vec![
        Column::number("batch", "batch"),
        Column::text("drafts", "drafts"),
        Column::text("messages", "messages, B"),
        Column::text("strategy", "best strategy"),
        Column::text("best_drafts", "best drafts"),
        Column::number("tokens_per_s", "tokens/s"),
        Column::number("gain_pct", "gain, %"),
    ]);
    for &batch in &request.batches {
        let mut runs: Vec<Vec<&Cell>> = Vec::new();
        for cell in request.shapes.iter().filter_map(|shape| answer.best_strategy(batch, *shape)) {
            match runs.last_mut() {
                Some(run) if run[0].strategy == cell.strategy => run.push(cell),
                _ => runs.push(vec![cell]),
            }
        }
        for run in runs {
            let (first, last) = (run[0], run[run.len() - 1]);
            let best = run.iter().fold(first, |best, cell| if cell.tokens_per_s() > best.tokens_per_s() { cell } else { best });
            let range = |a: String, b: String| if a == b { a } else { format!("{a} to {b}") };
            table.row(vec![
                count(batch),
                range(first.shape.steps.to_string(), last.shape.steps.to_string()).into(),
                range(Bytes(first.message_bytes).to_string(), Bytes(last.message_bytes).to_string()).replace(" B", "").into(),
                first.strategy.into(),
                if best.gain_pct() > 0.0 { best.shape.steps.to_string() } else { "none pays".to_owned() }.into(),
                number(best.tokens_per_s(), 1),
                number(best.gain_pct(), 1),
            ]);
        }
    }
    table
}

pub(super) fn policy_table(policy: &[Step]) -> Table {
    let mut table = Table::new(vec![
        Column::number("up_to_bytes", "up to, B"),
        Column::text("strategy", "strategy"),
        Column::number("allreduce_us", "all-reduce, us"),
        Column::text("next", "next best"),
        Column::number("next_us", "us"),
        Column::text("executor", "executor"),
        Column::text("effort", "effort"),
    ]);
    for step in policy {
        table.row(vec![
            count(step.bytes),
            step.strategy.id.into(),
            number(step.time.us(), 1),
            step.next.map_or("", |next| next.0.id).into(),
            Number::maybe(step.next.map(|next| next.1.us()), 1).into(),
            step.strategy.executor.name().into(),
            step.strategy.effort.name().into(),
        ]);
    }
    table
}
