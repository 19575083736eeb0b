//! `lanecast validate`: forecasts against measurements.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::cli::output::Output;
use crate::cli::session::Session;
use crate::error::Result;
use crate::fit::validate::Compared;
use crate::fit::validate::Errors;
use crate::fit::validate::Key;
use crate::fit::validate::compare;
use crate::fit::validate::errors;
use crate::fit::validate::groups;
use crate::machine::Machine;
use crate::render::number::Number;
use crate::render::number::to_json;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Cell;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::report::Report;
use crate::trace::observation;

/// Hold forecasts against measured collectives
#[derive(Args, Debug)]
pub struct Arguments {
    /// Observations (CSV)
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// A folder of machine files that observations may name by id
    #[arg(long, value_name = "DIR")]
    machines: Option<PathBuf>,
    /// Show the N rows with the largest errors
    #[arg(long, value_name = "N", default_value_t = 0)]
    worst: usize,
    /// Rows that cannot be simulated do not make the exit code 1
    #[arg(long)]
    allow_skipped: bool,
    /// The largest median of all rows that passes, in percent
    #[arg(long, value_name = "PERCENT")]
    median: Option<f64>,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Validates.
///
/// # Errors
/// Files that cannot be read.
pub fn run(arguments: &Arguments, session: &Session) -> Result<Report> {
    let mut rows = Vec::new();
    for file in &arguments.files {
        rows.extend(observation::read_file(file)?);
    }
    let folder = arguments.machines.clone();
    let find = move |id: &str| {
        let own = folder.as_ref().map(|folder| folder.join(format!("{id}.toml"))).filter(|path| path.exists());
        own.map_or_else(|| Machine::load(id), |path| Machine::load(&path.to_string_lossy()))
    };
    let compared = compare(&rows, &find);
    let all: Vec<&Compared<'_>> = compared.iter().collect();
    let overall = errors(&all);
    let groups = groups(&compared);
    let mut table = Table::new(columns());
    for (key, errors) in &groups {
        table.row(group_cells(key, errors));
    }
    let total = format!(
        "{} rows, {} skipped: median {} %, 95th percentile {} %, largest {} %.",
        overall.rows,
        overall.skipped,
        Number::new(overall.median_pct, 1).digits(),
        Number::new(overall.p95_pct, 1).digits(),
        Number::new(overall.max_pct, 1).digits()
    );
    let mut blocks = vec![Block::Table(table.clone()), Block::Text(total)];
    blocks.extend(skipped(&compared));
    if arguments.worst > 0 {
        blocks.push(Block::Table(worst(&compared, arguments.worst)));
    }
    let passed = (overall.skipped == 0 || arguments.allow_skipped) && arguments.median.is_none_or(|limit| overall.median_pct <= limit);
    let json = to_json(&JsonReport {
        groups: groups.iter().map(|(key, errors)| json_group(key, errors)).collect(),
        overall: json_errors(&overall),
    });
    Ok(Report {
        title: "Forecast against measurement".to_owned(),
        sections: vec![Section { heading: "Errors".to_owned(), blocks }],
        rows: table,
        exact: None,
        json: Some(json),
        reproduce: session.reproduce(),
        passed,
    })
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
fn skipped(compared: &[Compared<'_>]) -> Option<Block> {
    let mut reasons: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    for reason in compared.iter().filter_map(|one| one.forecast_us.as_ref().err()) {
        *reasons.entry(reason).or_default() += 1;
    }
    let lines: Vec<String> = reasons.into_iter().map(|(reason, count)| format!("{count} skipped: {reason}")).collect();
    (!lines.is_empty()).then_some(Block::List(lines))
}

fn worst(compared: &[Compared<'_>], count: usize) -> Table {
    let mut order: Vec<&Compared<'_>> = compared.iter().filter(|one| one.error_pct().is_some()).collect();
    order.sort_by(|a, b| b.error_pct().unwrap_or(0.0).total_cmp(&a.error_pct().unwrap_or(0.0)));
    let mut table = Table::new(vec![
        Column::text("row", "row"),
        Column::number("bytes", "bytes"),
        Column::number("measured_us", "measured, us"),
        Column::number("forecast_us", "forecast, us"),
        Column::number("error_pct", "error, %"),
    ]);
    for one in order.into_iter().take(count) {
        let row = one.row;
        let channels = row.channels.map_or(String::new(), |channels| format!(" {}ch", channels.max));
        let name = format!("{} {} {} {} {}{channels}", row.machine, row.ranks, row.implementation, row.algorithm, row.protocol);
        let forecast = one.forecast_us.as_ref().copied().unwrap_or(f64::NAN);
        table.row(vec![
            name.into(),
            Number::integer(row.bytes).into(),
            Number::new(row.latency_us, 2).into(),
            Number::new(forecast, 2).into(),
            Number::new((forecast / row.latency_us - 1.0) * 100.0, 1).into(),
        ]);
    }
    table
}

#[derive(Serialize)]
struct JsonReport {
    groups: Vec<JsonGroup>,
    overall: JsonErrors,
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
