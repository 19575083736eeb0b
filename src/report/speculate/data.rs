//! A speculation for programs: CSV and JSON with the same keys.

use serde::Serialize;

use crate::decide::speculate::Answer;
use crate::decide::speculate::Cell;
use crate::render::number::Number;
use crate::render::number::to_json;
use crate::render::table::Cell as Field;
use crate::render::table::Column;
use crate::render::table::Table;

use super::tables::count;

/// One cell for programs.
#[derive(Serialize)]
struct JsonCell<'a> {
    batch: u64,
    drafts: u64,
    width: u64,
    verified: u64,
    strategy: &'a str,
    message_bytes: u64,
    plain_ms: Option<f64>,
    verify_ms: Option<f64>,
    draft_ms: Option<f64>,
    host_ms: Option<f64>,
    cycle_ms: Option<f64>,
    expected_tokens: Option<f64>,
    tokens_per_s: Option<f64>,
    plain_tokens_per_s: Option<f64>,
    gain_pct: Option<f64>,
    break_even_acceptance: Option<f64>,
    break_even_verify_ms: Option<f64>,
}

#[derive(Serialize)]
struct JsonStep<'a> {
    up_to_bytes: u64,
    strategy: &'a str,
    allreduce_us: Option<f64>,
}

#[derive(Serialize)]
struct JsonAnswer<'a> {
    cells: Vec<JsonCell<'a>>,
    policy: Vec<JsonStep<'a>>,
    fits_memory: bool,
}

fn json_cell(cell: &Cell) -> JsonCell<'_> {
    let number = |value: f64| Number::new(value, 6).rounded();
    JsonCell {
        batch: cell.batch,
        drafts: cell.shape.steps,
        width: cell.shape.width,
        verified: cell.shape.verified,
        strategy: cell.strategy,
        message_bytes: cell.message_bytes,
        plain_ms: number(cell.plain_ms),
        verify_ms: number(cell.verify_ms),
        draft_ms: number(cell.draft_ms),
        host_ms: number(cell.host_ms),
        cycle_ms: number(cell.cycle_ms()),
        expected_tokens: number(cell.expected),
        tokens_per_s: number(cell.tokens_per_s()),
        plain_tokens_per_s: number(cell.plain_tokens_per_s()),
        gain_pct: number(cell.gain_pct()),
        break_even_acceptance: cell.break_even_rate.and_then(|rate| Number::new(rate, 6).rounded()),
        break_even_verify_ms: number(cell.break_even_verify_ms()),
    }
}

/// Cells and policy.
pub fn json(answer: &Answer, fits_memory: bool) -> String {
    let policy = answer.policy.iter().map(|step| JsonStep {
        up_to_bytes: step.bytes,
        strategy: step.strategy.id,
        allreduce_us: Number::new(step.time.us(), 4).rounded(),
    });
    to_json(&JsonAnswer { cells: answer.cells.iter().map(json_cell).collect(), policy: policy.collect(), fits_memory })
}

/// All cells for CSV, keys as in JSON.
pub fn csv_table(answer: &Answer) -> Table {
    const COUNTS: [&str; 4] = ["batch", "drafts", "width", "verified"];
    const NUMBERS: [&str; 11] = [
        "plain_ms",
        "verify_ms",
        "draft_ms",
        "host_ms",
        "cycle_ms",
        "expected_tokens",
        "tokens_per_s",
        "plain_tokens_per_s",
        "gain_pct",
        "break_even_acceptance",
        "break_even_verify_ms",
    ];
    let mut columns: Vec<Column> = COUNTS.iter().map(|key| Column::number(key, key)).collect();
    columns.push(Column::text("strategy", "strategy"));
    columns.push(Column::number("message_bytes", "message_bytes"));
    columns.extend(NUMBERS.iter().map(|key| Column::number(key, key)));
    let mut table = Table::new(columns);
    for cell in &answer.cells {
        let json = json_cell(cell);
        let mut row: Vec<Field> = [json.batch, json.drafts, json.width, json.verified].map(count).into();
        row.push(json.strategy.into());
        row.push(count(json.message_bytes));
        let numbers = [
            json.plain_ms,
            json.verify_ms,
            json.draft_ms,
            json.host_ms,
            json.cycle_ms,
            json.expected_tokens,
            json.tokens_per_s,
            json.plain_tokens_per_s,
            json.gain_pct,
            json.break_even_acceptance,
            json.break_even_verify_ms,
        ];
        row.extend(numbers.map(|value| Field::from(Number::maybe(value, 6))));
        table.row(row);
    }
    table
}
