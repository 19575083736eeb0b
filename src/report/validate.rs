//! Forecasts against measurements: errors by group, the worst rows, drawings.

use serde::Serialize;

use crate::fit::validate::Compared;
use crate::fit::validate::Errors;
use crate::fit::validate::Key;
use crate::fit::validate::errors;
use crate::fit::validate::groups;
use crate::render::chart::Axis;
use crate::render::chart::Chart;
use crate::render::chart::Point;
use crate::render::chart::Series;
use crate::render::chart::line_chart;
use crate::render::drawing::both;
use crate::render::number::Number;
use crate::render::number::to_json;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Cell;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::report::Report;
use crate::report::reproduce::Reproduce;
use crate::simulate::Part;

/// The report; whether it passed is the caller's to say.
///
/// `baselines`: what simple models make of the same rows.
pub fn report(
    compared: &[Compared],
    baselines: &[(&'static str, Errors)],
    worst_rows: usize,
    reproduce: Reproduce,
    drawings: bool,
) -> Report {
    let overall = errors(compared);
    let groups = groups(compared);
    let mut table = Table::new(columns());
    for (key, errors) in &groups {
        table.row(group_cells(key, errors));
    }
    let mut blocks = vec![Block::Table(table.clone()), Block::Text(total("", &overall))];
    blocks.extend(baselines.iter().map(|(name, errors)| Block::Text(total(&format!("{name}: "), errors))));
    blocks.extend(skipped(compared));
    let mut sections = Vec::new();
    if drawings {
        blocks.push(scatter(compared));
        blocks.push(by_size(compared));
    }
    if worst_rows > 0 {
        blocks.push(Block::Table(worst(compared, worst_rows)));
    }
    sections.push(Section { heading: "Errors".to_owned(), blocks });
    let json = to_json(&JsonReport {
        groups: groups.iter().map(|(key, errors)| json_group(key, errors)).collect(),
        overall: json_errors(&overall),
        baselines: baselines.iter().map(|(name, errors)| (*name, json_errors(errors))).collect(),
    });
    let title = "Forecast against measurement".to_owned();
    Report { title, sections, rows: table, exact: None, json: Some(json), reproduce, passed: true }
}

fn total(name: &str, errors: &Errors) -> String {
    let digits = |value: f64| Number::new(value, 1).digits();
    format!(
        "{name}{} rows, {} skipped: median {} %, 95th percentile {} %, largest {} %.",
        errors.rows,
        errors.skipped,
        digits(errors.median_pct),
        digits(errors.p95_pct),
        digits(errors.max_pct)
    )
}

/// Measured and forecast time of one row, and its size.
type Measured = (f64, f64, f64);

/// Collectives with a forecast, by machine and ranks: (name, (measured, forecast, bytes)).
fn by_machine(compared: &[Compared]) -> Vec<(String, Vec<Measured>)> {
    let mut found: std::collections::BTreeMap<(&str, u32), Vec<Measured>> = std::collections::BTreeMap::new();
    for one in compared.iter().filter(|one| one.bytes > 0) {
        if let Ok(forecast) = &one.forecast {
            found.entry((&one.key.0, one.key.1)).or_default().push((one.measured, *forecast, one.bytes as f64));
        }
    }
    found.into_iter().map(|((machine, ranks), rows)| (format!("{machine}, {ranks} ranks"), rows)).collect()
}

/// Forecast over measurement, with the line on which they are equal.
fn scatter(compared: &[Compared]) -> Block {
    let groups = by_machine(compared);
    let named = groups.len();
    let marked = |points, name: String| Series { name, points, joined: false, marked: true };
    let series: Vec<Series> = (groups.iter())
        .map(|(name, rows)| marked(rows.iter().map(|(x, y, _)| Point { x: *x, y: *y, interval: None }).collect(), name.clone()))
        .collect();
    let axis = |label: &str| Axis { label: label.to_owned(), log: true };
    let title = "Forecast over measurement; on the line they are equal".to_owned();
    let chart =
        Chart { title: title.clone(), x: axis("measured, us"), y: axis("forecast, us"), series, named, marks: Vec::new(), diagonal: true };
    both(&title, |width| line_chart(&chart, width))
}

/// Signed error over size.
fn by_size(compared: &[Compared]) -> Block {
    let groups = by_machine(compared);
    let series: Vec<Series> = (groups.into_iter())
        .map(|(name, rows)| {
            let points = rows
                .iter()
                .map(|(measured, forecast, bytes)| Point { x: *bytes, y: (forecast / measured - 1.0) * 100.0, interval: None })
                .collect();
            Series { name, points, joined: false, marked: true }
        })
        .collect();
    let title = "Error by message size; above zero the forecast is too slow".to_owned();
    let chart = Chart {
        title: title.clone(),
        x: Axis { label: "message, bytes".to_owned(), log: true },
        y: Axis { label: "forecast / measured − 1, %".to_owned(), log: false },
        named: series.len(),
        series,
        marks: Vec::new(),
        diagonal: false,
    };
    both(&title, |width| line_chart(&chart, width))
}

fn columns() -> Vec<Column> {
    let mut columns: Vec<Column> = vec![Column::text("machine", "machine"), Column::number("ranks", "ranks")];
    columns.extend(["implementation", "algorithm", "protocol", "timing"].iter().map(|key| Column::text(key, key)));
    columns.extend(["rows", "skipped"].iter().map(|key| Column::number(key, key)));
    columns.extend(
        [("median_pct", "median, %"), ("p95_pct", "p95, %"), ("max_pct", "max, %"), ("kendall_tau", "tau")]
            .iter()
            .map(|(k, h)| Column::number(k, h)),
    );
    columns
}

fn group_cells(key: &Key, errors: &Errors) -> Vec<Cell> {
    let (machine, ranks, implementation, algorithm, protocol, timing) = key;
    let mut cells: Vec<Cell> = vec![machine.as_str().into(), Number::integer(u64::from(*ranks)).into()];
    cells.extend([implementation, algorithm, protocol, timing].map(|name| Cell::from(name.as_str())));
    cells.extend([errors.rows, errors.skipped].map(|count| Cell::from(Number::integer(count as u64))));
    cells.extend([errors.median_pct, errors.p95_pct, errors.max_pct].map(|value| Cell::from(Number::new(value, 2))));
    cells.push(Number::new(errors.kendall_tau, 3).into());
    cells
}

/// The reasons of skipped rows, each once with its count.
fn skipped(compared: &[Compared]) -> Option<Block> {
    let mut reasons: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    for reason in compared.iter().filter_map(|one| one.forecast.as_ref().err()) {
        *reasons.entry(reason).or_default() += 1;
    }
    let lines: Vec<String> = reasons.into_iter().map(|(reason, count)| format!("{count} skipped: {reason}")).collect();
    (!lines.is_empty()).then_some(Block::List(lines))
}

/// The largest errors, each with what every part of the critical path takes.
fn worst(compared: &[Compared], count: usize) -> Table {
    let mut order: Vec<&Compared> = compared.iter().filter(|one| one.error_pct().is_some()).collect();
    order.sort_by(|a, b| b.error_pct().unwrap_or(0.0).total_cmp(&a.error_pct().unwrap_or(0.0)));
    let mut columns = vec![
        Column::text("row", "row"),
        Column::number("bytes", "bytes"),
        Column::number("measured", "measured"),
        Column::number("forecast", "forecast"),
        Column::text("unit", "unit"),
        Column::number("error_pct", "error, %"),
    ];
    columns.extend(Part::ALL.iter().map(|part| Column::number(part.name(), part.name())));
    let mut table = Table::new(columns);
    for one in order.into_iter().take(count) {
        let mut cells: Vec<Cell> = vec![
            one.label.as_str().into(),
            Number::integer(one.bytes).into(),
            Number::new(one.measured, 2).into(),
            Number::new(one.forecast.as_ref().copied().unwrap_or(f64::NAN), 2).into(),
            one.unit.into(),
            Number::new(one.signed_pct().unwrap_or(f64::NAN), 1).into(),
        ];
        cells.extend(Part::ALL.iter().map(|&part| match one.parts {
            Some(parts) => Number::new(parts[part as usize] as f64 / 1e6, 2).into(),
            None => Cell::from(""),
        }));
        table.row(cells);
    }
    table
}

#[derive(Serialize)]
struct JsonReport {
    groups: Vec<JsonGroup>,
    overall: JsonErrors,
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    baselines: std::collections::BTreeMap<&'static str, JsonErrors>,
}

#[derive(Serialize)]
struct JsonGroup {
    machine: String,
    ranks: u32,
    implementation: String,
    algorithm: String,
    protocol: String,
    timing: String,
    rows: usize,
    skipped: usize,
    median_pct: Option<f64>,
    p95_pct: Option<f64>,
    max_pct: Option<f64>,
    kendall_tau: Option<f64>,
}

#[derive(Serialize)]
struct JsonErrors {
    rows: usize,
    skipped: usize,
    median_pct: Option<f64>,
    p95_pct: Option<f64>,
    max_pct: Option<f64>,
}

fn rounded(value: f64) -> Option<f64> {
    Number::new(value, 4).rounded()
}

fn json_group(key: &Key, errors: &Errors) -> JsonGroup {
    let (machine, ranks, implementation, algorithm, protocol, timing) = key.clone();
    JsonGroup {
        machine,
        ranks,
        implementation,
        algorithm,
        protocol,
        timing,
        rows: errors.rows,
        skipped: errors.skipped,
        median_pct: rounded(errors.median_pct),
        p95_pct: rounded(errors.p95_pct),
        max_pct: rounded(errors.max_pct),
        kendall_tau: rounded(errors.kendall_tau),
    }
}

fn json_errors(errors: &Errors) -> JsonErrors {
    JsonErrors {
        rows: errors.rows,
        skipped: errors.skipped,
        median_pct: rounded(errors.median_pct),
        p95_pct: rounded(errors.p95_pct),
        max_pct: rounded(errors.max_pct),
    }
}
