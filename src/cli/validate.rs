//! `lanecast validate`: forecasts against measurements.

use std::path::PathBuf;

use clap::Args;

use crate::cli::output::Output;
use crate::cli::output::Pages;
use crate::cli::session::Session;
use crate::error::Result;
use crate::fit::validate::compare;
use crate::machine::Machine;
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
    pub(super) pages: Pages,
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
    let report = crate::report::validate::report(&compared, arguments.worst, session.reproduce(), arguments.pages.wanted());
    let overall = crate::report::validate::overall(&compared);
    let passed = (overall.skipped == 0 || arguments.allow_skipped) && arguments.median.is_none_or(|limit| overall.median_pct <= limit);
    Ok(Report { passed, ..report })
}
