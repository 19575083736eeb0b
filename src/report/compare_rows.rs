//! A comparison for programs: one table of all views, and JSON.

use serde_json::Value;
use serde_json::json;

use crate::compare::Comparison;
use crate::compare::Line;
use crate::compare::Portion;
use crate::render::number::Number;
use crate::render::number::to_json;
use crate::render::table::Cell;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::report::compare::Check;
use crate::report::compare_words;

/// Decimals of microseconds: picoseconds.
const DECIMALS: usize = 6;

/// Every line of every view; `view` says which.
pub fn table(comparison: &Comparison) -> Table {
    let mut columns = vec![Column::text("view", "view"), Column::text("name", "name")];
    let numbers = ["layer", "a_count", "b_count", "a_us", "b_us", "difference_us", "share_pct"];
    columns.extend(numbers.iter().map(|key| Column::number(key, key)));
    columns.extend(Portion::ALL.map(|portion| Column::number(&key(portion), &key(portion))));
    columns.extend(["critical_a_us", "critical_b_us"].map(|key| Column::number(key, key)));
    let mut table = Table::new(columns);
    let [a, b] = &comparison.sides;
    let pass = Line {
        name: "pass".to_owned(),
        count: [a.rows, b.rows],
        spent: [a.spent, b.spent],
        path: [a.pass_us, b.pass_us],
        ..Line::default()
    };
    table.row(line(comparison, "pass", &pass));
    for portion in Portion::ALL {
        let at = portion as usize;
        let mut spent = [[0.0; 5]; 2];
        (spent[0][at], spent[1][at]) = (a.spent[at], b.spent[at]);
        let one = Line { name: portion.name().to_owned(), spent, path: [a.path[at], b.path[at]], ..Line::default() };
        table.row(line(comparison, "part", &one));
    }
    let views =
        [("kind", &comparison.kinds), ("operation", &comparison.operations), ("layer", &comparison.layers), ("rank", &comparison.ranks)];
    for (view, lines) in views {
        lines.iter().for_each(|one| table.row(line(comparison, view, one)));
    }
    for one in &comparison.ledger {
        let count = one.count.map(|count| libm::round(count) as u64);
        let transfer = |side: usize| [0.0, one.transfer_us[side], one.skew_us[side], 0.0, 0.0];
        let name = format!("{} {}", one.name, one.bytes);
        let one = Line { name, count, spent: [transfer(0), transfer(1)], path: [f64::NAN; 2], ..Line::default() };
        table.row(line(comparison, "collective", &one));
    }
    for one in &comparison.unmatched {
        let mut row = vec![Cell::from(if one.side == 0 { "only-a" } else { "only-b" }), one.op.as_str().into()];
        row.resize(2 + 7 + 5 + 2, Cell::Empty);
        row[5 + one.side] = Number::new(one.us, DECIMALS).into();
        row[3 + one.side] = Number::integer(1).into();
        table.row(row);
    }
    table
}

fn key(portion: Portion) -> String {
    format!("{}_us", portion.name().replace(' ', "_"))
}

fn line(comparison: &Comparison, view: &str, line: &Line) -> Vec<Cell> {
    let us = |us: f64| Cell::from(Number::new(us, DECIMALS));
    let mut row: Vec<Cell> = vec![view.into(), line.name.as_str().into()];
    row.push(line.layer.map_or(Cell::Empty, |layer| Number::integer(u64::from(layer)).into()));
    row.extend(line.count.map(|count| Cell::from(Number::integer(count))));
    row.extend([us(line.us(0)), us(line.us(1)), us(line.difference_us())]);
    row.push(Number::maybe(comparison.share_pct(line.difference_us()), 3).into());
    row.extend(Portion::ALL.map(|portion| us(line.portion_us(portion))));
    row.extend(line.path.map(us));
    row
}

/// Everything, nested.
pub fn json(comparison: &Comparison, checks: &[Check]) -> String {
    let us = |us: f64| json!(Number::new(us, DECIMALS));
    let portions =
        |spent: &[f64; 5]| Value::Object(Portion::ALL.iter().map(|portion| (key(*portion), us(spent[*portion as usize]))).collect());
    let sides: Vec<Value> = (comparison.sides.iter())
        .map(|side| {
            let header: serde_json::Map<String, Value> =
                side.header.entries.iter().filter(|(key, _)| !key.contains('.')).map(|(key, value)| (key.clone(), json!(value))).collect();
            json!({ "file": side.name, "header": header, "rows": side.rows, "ranks": side.ranks, "passes": side.passes,
                "pass_us": us(side.pass_us), "mean_rank": portions(&side.spent), "critical_path": portions(&side.path), "overlap_us": us(side.overlap_us) })
        })
        .collect();
    let lines = |lines: &[Line]| -> Vec<Value> {
        (lines.iter())
            .map(|line| {
                json!({ "name": line.name, "layer": line.layer, "count": line.count, "a_us": us(line.us(0)), "b_us": us(line.us(1)),
                    "difference_us": us(line.difference_us()), "share_pct": comparison.share_pct(line.difference_us()).map(|share| Number::new(share, 3)),
                    "a": portions(&line.spent[0]), "b": portions(&line.spent[1]), "critical_us": line.path.map(us) })
            })
            .collect()
    };
    let causes: Vec<Value> = (comparison.causes.iter())
        .map(|cause| {
            json!({ "words": compare_words::cause(cause, comparison), "us": us(cause.us),
                "share_pct": comparison.share_pct(cause.us).map(|share| Number::new(share, 3)) })
        })
        .collect();
    let ledger: Vec<Value> = (comparison.ledger.iter())
        .map(|line| {
            json!({ "name": line.name, "bytes": line.bytes, "count": line.count.map(|count| Number::new(count, 3)), "kernel_us": line.duration_us.map(us),
                "skew_us": line.skew_us.map(us), "transfer_us": line.transfer_us.map(us), "source": line.source })
        })
        .collect();
    let unmatched: Vec<Value> = (comparison.unmatched.iter())
        .map(|one| json!({ "trace": if one.side == 0 { "A" } else { "B" }, "pass": one.pass, "op": one.op, "us": us(one.us) }))
        .collect();
    let parts: serde_json::Map<String, Value> = comparison.parts.iter().map(|(name, both)| (name.clone(), json!(both.map(us)))).collect();
    let checks: Vec<Value> = checks
        .iter()
        .map(|check| json!({ "what": check.what, "limit": check.limit, "value": Number::new(check.value, 6), "held": check.held() }))
        .collect();
    to_json(&json!({
        "traces": sides, "difference_us": us(comparison.difference_us()), "joined_by_order": comparison.by_order, "causes": causes,
        "critical_path_parts_us": parts, "kinds": lines(&comparison.kinds), "operations": lines(&comparison.operations),
        "layers": lines(&comparison.layers), "ranks": lines(&comparison.ranks), "ledger": ledger, "unmatched": unmatched, "tolerances": checks,
    }))
}
