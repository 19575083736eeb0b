//! `lanecast validate`: forecasts against measurements.

use std::path::Path;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::cli::output::Output;
use crate::cli::session::Session;
use crate::cost::observations;
use crate::error::Fault;
use crate::error::Result;
use crate::fit::accuracy;
use crate::fit::baseline;
use crate::fit::split::Split;
use crate::fit::validate::Compared;
use crate::fit::validate::Errors;
use crate::fit::validate::Key;
use crate::fit::validate::collectives;
use crate::fit::validate::errors;
use crate::fit::validate::groups;
use crate::fit::validate::kernels;
use crate::fit::validate::transfers;
use crate::machine::Machine;
use crate::render::number::Number;
use crate::render::number::to_json;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Cell;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::report::Report;
use crate::simulate::Part;
use crate::trace::flows;
use crate::trace::observation;
use crate::trace::observation::Observation;
use crate::trace::table::read_text;

/// Hold forecasts against measured collectives, flows and kernels
#[derive(Args, Debug)]
pub struct Arguments {
    /// Observations, flows or kernel tables (CSV); a split names its own
    #[arg(required_unless_present_any = ["split", "page", "figures"])]
    files: Vec<PathBuf>,
    /// A folder of machine files that observations may name by id
    #[arg(long, value_name = "DIR")]
    machines: Option<PathBuf>,
    /// The machine of files without that column; for kernels, whose GPU
    #[arg(long, value_name = "MACHINE")]
    machine: Option<String>,
    /// Only the rows that this split tests
    #[arg(long, value_name = "FILE")]
    split: Option<PathBuf>,
    /// Beside our errors those of interpolation and alpha-beta, fitted to the rows that the split fits
    #[arg(long, requires = "split")]
    baseline: bool,
    /// Write docs/accuracy.md from the committed data, in the project's folder
    #[arg(long, conflicts_with_all = ["files", "split", "figures"])]
    page: bool,
    /// Write validation/accuracy.csv, the same figures for the program
    #[arg(long, conflicts_with_all = ["files", "split"])]
    figures: bool,
    /// Show the N rows with the largest errors, and on what their forecasts spend the time
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
    if arguments.page || arguments.figures {
        let (page, figures) = accuracy::page(Path::new(""))?;
        return Ok(exact(if arguments.page { page } else { figures }, session));
    }
    let (compared, baselines) = compare(arguments)?;
    let overall = errors(&compared);
    let groups = groups(&compared);
    let mut table = Table::new(columns());
    for (key, errors) in &groups {
        table.row(group_cells(key, errors));
    }
    let mut blocks = vec![Block::Table(table.clone()), Block::Text(total("", &overall))];
    blocks.extend(baselines.iter().map(|(name, errors)| Block::Text(total(&format!("{name}: "), errors))));
    blocks.extend(skipped(&compared));
    if arguments.worst > 0 {
        blocks.push(Block::Table(worst(&compared, arguments.worst)));
    }
    let passed = (overall.skipped == 0 || arguments.allow_skipped) && arguments.median.is_none_or(|limit| overall.median_pct <= limit);
    let json = to_json(&JsonReport {
        groups: groups.iter().map(|(key, errors)| json_group(key, errors)).collect(),
        overall: json_errors(&overall),
        baselines: baselines.iter().map(|(name, errors)| (*name, json_errors(errors))).collect(),
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

/// A file that is the whole result.
fn exact(text: String, session: &Session) -> Report {
    Report {
        title: "Accuracy".to_owned(),
        sections: Vec::new(),
        rows: Table::new(Vec::new()),
        exact: Some(text),
        json: None,
        reproduce: session.reproduce(),
        passed: true,
    }
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

/// All rows with their forecasts, and the errors of simple models on the same rows.
fn compare(arguments: &Arguments) -> Result<(Vec<Compared>, Vec<(&'static str, Errors)>)> {
    let folder = arguments.machines.clone();
    let find = move |id: &str| {
        let own = folder.as_ref().map(|folder| folder.join(format!("{id}.toml"))).filter(|path| path.exists());
        own.map_or_else(|| Machine::load(id), |path| Machine::load(&path.to_string_lossy()))
    };
    let mut compared = Vec::new();
    let mut baselines = Vec::new();
    if let Some(path) = &arguments.split {
        let rows = Split::read(path)?.rows(Path::new(""))?;
        let (fit, test) = (rows.fit(), rows.test());
        let tested: Vec<Observation> = test.iter().map(|row| (*row).clone()).collect();
        compared.extend(collectives(&tested, &find));
        if arguments.baseline {
            for (name, forecasts) in
                [("Interpolation", baseline::interpolation(&fit, &test)), ("Alpha-beta", baseline::alpha_beta(&fit, &test))]
            {
                let mut simple = compared.clone();
                simple.iter_mut().zip(forecasts).for_each(|(one, forecast)| {
                    one.forecast = forecast.ok_or_else(|| "no fitted row is like it".to_owned());
                });
                baselines.push((name, errors(&simple)));
            }
        }
    }
    for file in &arguments.files {
        compared.extend(compare_file(file, arguments.machine.as_deref(), &find)?);
    }
    Ok((compared, baselines))
}

/// The rows of one file, whose header says what they are.
fn compare_file(file: &Path, machine: Option<&str>, find: &(dyn Fn(&str) -> Result<Machine> + Sync)) -> Result<Vec<Compared>> {
    let (text, name) = (read_text(file)?, file.display().to_string());
    let header = text.lines().find(|line| !line.starts_with('#') && !line.trim().is_empty()).unwrap_or_default();
    let columns: Vec<&str> = header.split(',').map(str::trim).collect();
    let named = |id: &mut String| {
        if let (true, Some(machine)) = (id.is_empty(), machine) {
            machine.clone_into(id);
        }
    };
    if columns.contains(&"total_GBps") {
        let mut rows = flows::read_bytes(&name, text.as_bytes())?;
        rows.iter_mut().for_each(|row| named(&mut row.machine));
        return Ok(transfers(&rows, find));
    }
    if columns.contains(&"bytes") || columns.contains(&"ranks") {
        let mut rows = observation::read_bytes(&name, text.as_bytes())?;
        rows.iter_mut().for_each(|row| named(&mut row.machine));
        return Ok(collectives(&rows, find));
    }
    let rows = observations::read(&name, &text)?;
    let machine = find(machine.ok_or_else(|| {
        Fault::new("validate-no-machine", format!("{name} does not say on which machine its kernels ran"))
            .help("name it: --machine 8x-rtx-pro-6000-server")
    })?)?;
    let kind = machine.gpu_kind(0).ok_or_else(|| Fault::new("machine-no-kind", "device 0 has no kind"))?;
    Ok(kernels(&rows, &machine.id, kind))
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

/// The largest errors, each with the share of every part of the critical path.
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
