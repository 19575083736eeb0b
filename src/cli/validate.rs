//! `lanecast validate`: forecasts against measurements.

use std::path::Path;
use std::path::PathBuf;

use clap::Args;

use crate::cli::output::Output;
use crate::cli::output::Pages;
use crate::cli::session::Session;
use crate::cost::observations;
use crate::error::Fault;
use crate::error::Result;
use crate::fit::accuracy;
use crate::fit::baseline;
use crate::fit::split::Split;
use crate::fit::validate::Compared;
use crate::fit::validate::Errors;
use crate::fit::validate::collectives;
use crate::fit::validate::errors;
use crate::fit::validate::kernels;
use crate::fit::validate::transfers;
use crate::machine::Machine;
use crate::render::table::Table;
use crate::report::Report;
use crate::report::validate::report;
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
    pub(super) pages: Pages,
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
    let passed = (overall.skipped == 0 || arguments.allow_skipped) && arguments.median.is_none_or(|limit| overall.median_pct <= limit);
    let report = report(&compared, &baselines, arguments.worst, session.reproduce(), arguments.pages.wanted());
    Ok(Report { passed, ..report })
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

/// Errors of simple models, by name.
type Baselines = Vec<(&'static str, Errors)>;

/// All rows with their forecasts, and the errors of simple models on the same rows.
fn compare(arguments: &Arguments) -> Result<(Vec<Compared>, Baselines)> {
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
