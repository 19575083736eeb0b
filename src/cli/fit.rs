//! `lanecast fit`: measurements → constants of a machine.

use std::path::Path;
use std::path::PathBuf;

use clap::Args;

use crate::cli::output::Output;
use crate::cli::session::Session;
use crate::error::Fault;
use crate::error::Result;
use crate::fit::constants::Constant;
use crate::fit::constants::Fitted;
use crate::fit::constants::Status;
use crate::fit::constants::fit;
use crate::fit::filter::Filter;
use crate::fit::filter::select;
use crate::fit::split::Split;
use crate::fit::validate::Errors;
use crate::fit::validate::on_machine;
use crate::machine::Machine;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Cell;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::report::Report;
use crate::trace::observation;
use crate::trace::observation::Observation;

/// Constants that are fitted unless others are named; those of protocols that no row uses stay as they are.
const USUAL: [&str; 22] = [
    "protocol.nccl_kernel_ns",
    "protocol.custom_kernel_ns",
    "protocol.poll_ns",
    "protocol.ll_entry_ns",
    "protocol.ll_trip_ns",
    "protocol.ll_warp_ns",
    "protocol.trip_operation_share",
    "protocol.ll128_entry_ns",
    "protocol.ll128_trip_ns",
    "protocol.ll128_warp_ns",
    "protocol.simple_entry_ns",
    "protocol.simple_exit_ns",
    "protocol.simple_thread_gbps",
    "protocol.barrier_warp_ns",
    "protocol.wide_block_ns",
    "protocol.branch_skew_ns",
    "protocol.barrier_ns",
    "protocol.flag_poll_ns",
    "protocol.reads_in_flight",
    "protocol.peer_share",
    "launch.framework_ns",
    "launch.eager_ns",
];

/// Fit a machine's constants to measured collectives
#[derive(Args, Debug)]
#[command(after_help = "Without --output the constants are shown; with it the machine is written as TOML, each \
                        fitted number with its interval and its rows as source.")]
pub struct Arguments {
    /// Observations (CSV); a split names its own
    #[arg(required_unless_present = "split")]
    files: Vec<PathBuf>,
    /// The machine whose constants are fitted; constants that the rows do not pin stay as it has them
    #[arg(long, value_name = "MACHINE", required_unless_present = "split")]
    machine: Option<String>,
    /// Fit the rows that this accepts, e.g. ranks=2|4,protocol=ll; several add up
    #[arg(long, value_name = "FILTER")]
    rows: Vec<String>,
    /// Hold these rows out and test on them; without it, on all that --rows leaves
    #[arg(long, value_name = "FILTER")]
    holdout: Vec<String>,
    /// Constants to fit, by path, comma-separated; of those that show only as a sum the first is fitted
    #[arg(long, value_name = "PATHS", value_delimiter = ',')]
    constants: Vec<String>,
    /// A file of validation/splits that states all of the above
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rows", "holdout", "constants"])]
    split: Option<PathBuf>,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Fits.
///
/// # Errors
/// Files that cannot be read, and what fitting can meet.
pub fn run(arguments: &Arguments, session: &Session) -> Result<Report> {
    let request = Request::new(arguments)?;
    let fitted = fit(&request.machine, &chosen(&request.rows, &request.fit), &request.constants)?;
    let inside = on_machine(&fitted.machine, &chosen(&request.rows, &request.fit));
    let tested = chosen(&request.rows, &request.test);
    let outside = (!tested.is_empty()).then(|| on_machine(&fitted.machine, &tested));
    for reason in first_reasons(&fitted.skipped) {
        session.warn(&format!("not fitted: {reason}"));
    }
    let lines = summary(&fitted, &inside, outside.as_ref());
    if arguments.output.output.is_some() {
        lines.iter().for_each(|line| session.note(line));
    }
    let table = table(&fitted.constants);
    let mut blocks = vec![Block::Table(table.clone())];
    blocks.extend(lines.iter().cloned().map(Block::Text));
    let reached = outside.as_ref().is_none_or(|errors| request.reached(errors));
    let comments: String = lines.iter().map(|line| format!("# {line}\n")).collect();
    Ok(Report {
        title: "Fitted constants".to_owned(),
        sections: vec![Section { heading: "Constants".to_owned(), blocks }],
        rows: table,
        exact: arguments.output.output.as_ref().map(|_| format!("{comments}{}", fitted.machine.to_toml())),
        json: None,
        reproduce: session.reproduce(),
        passed: reached,
    })
}

struct Request {
    machine: Machine,
    rows: Vec<Observation>,
    fit: Vec<bool>,
    test: Vec<bool>,
    constants: Vec<String>,
    split: Option<Split>,
}

impl Request {
    fn new(arguments: &Arguments) -> Result<Request> {
        match &arguments.split {
            Some(path) => Request::of_split(Split::read(path)?, arguments.machine.as_deref()),
            None => Request::of_files(arguments),
        }
    }

    fn of_split(split: Split, machine: Option<&str>) -> Result<Request> {
        let machine = Machine::load(machine.unwrap_or(&split.machine))?;
        let rows = split.rows(Path::new(""))?;
        let test = rows.fitted.iter().map(|fitted| !fitted).collect();
        Ok(Request { machine, rows: rows.all, fit: rows.fitted, test, constants: split.constants.clone(), split: Some(split) })
    }

    fn of_files(arguments: &Arguments) -> Result<Request> {
        let machine = Machine::load(arguments.machine.as_deref().unwrap_or_default())?;
        let mut rows = Vec::new();
        for file in &arguments.files {
            rows.extend(observation::read_file(file)?);
        }
        rows.retain(|row| row.machine.is_empty() || row.machine == machine.id);
        if rows.is_empty() {
            return Err(Fault::new("fit-too-few-rows", format!("no row was measured on {}", machine.id))
                .help("--machine must be the id that the file's machine column has"));
        }
        let parse = |texts: &[String]| texts.iter().map(|text| Filter::parse(text)).collect::<Result<Vec<Filter>>>();
        let held = if arguments.holdout.is_empty() { vec![false; rows.len()] } else { select(&rows, &parse(&arguments.holdout)?) };
        let fit: Vec<bool> = select(&rows, &parse(&arguments.rows)?).iter().zip(&held).map(|(chosen, held)| *chosen && !held).collect();
        let test = if arguments.holdout.is_empty() { fit.iter().map(|fitted| !fitted).collect() } else { held };
        let constants = if arguments.constants.is_empty() { usual(&machine) } else { arguments.constants.clone() };
        Ok(Request { machine, rows, fit, test, constants, split: None })
    }

    fn reached(&self, errors: &Errors) -> bool {
        let Some(split) = &self.split else { return true };
        let within = |value: f64, limit: Option<f64>| limit.is_none_or(|limit| value <= limit);
        within(errors.median_pct, split.reach.median_pct) && within(errors.p95_pct, split.reach.p95_pct)
    }
}

/// The usual constants of the kind of the machine's first GPU, and its host memory's.
fn usual(machine: &Machine) -> Vec<String> {
    let kind = machine.kinds.keys().next().cloned().unwrap_or_default();
    let mut paths: Vec<String> = USUAL.iter().map(|name| format!("kinds.{kind}.{name}")).collect();
    paths.extend(["fabric.host_read_gbps", "fabric.host_memory_latency_ns"].map(str::to_owned));
    paths
}

fn chosen<'a>(rows: &'a [Observation], flags: &[bool]) -> Vec<&'a Observation> {
    rows.iter().zip(flags).filter(|(_, flag)| **flag).map(|(row, _)| row).collect()
}

fn first_reasons(skipped: &[String]) -> Vec<String> {
    let mut counts: std::collections::BTreeMap<&str, usize> = std::collections::BTreeMap::new();
    for reason in skipped {
        *counts.entry(reason).or_default() += 1;
    }
    counts.into_iter().map(|(reason, count)| format!("{count} rows, {reason}")).collect()
}

fn summary(fitted: &Fitted, inside: &Errors, outside: Option<&Errors>) -> Vec<String> {
    let pinned = fitted.constants.iter().filter(|constant| constant.status != Status::Kept).count();
    let errors = |errors: &Errors| {
        let digits = |value: f64| Number::new(value, 2).digits();
        format!(
            "{} rows, median {} %, 95th percentile {} %, largest {} %",
            errors.rows,
            digits(errors.median_pct),
            digits(errors.p95_pct),
            digits(errors.max_pct)
        )
    };
    let mut lines = vec![
        format!("{pinned} of {} constants are pinned by {} rows, in {} rounds.", fitted.constants.len(), fitted.rows, fitted.rounds),
        format!("On the fitted rows: {}.", errors(inside)),
    ];
    lines.extend(outside.map(|outside| format!("On rows not fitted: {}.", errors(outside))));
    lines
}

fn table(constants: &[Constant]) -> Table {
    let mut table = Table::new(vec![
        Column::text("constant", "constant"),
        Column::text("unit", "unit"),
        Column::number("before", "before"),
        Column::number("value", "value"),
        Column::number("low", "low"),
        Column::number("high", "high"),
        Column::text("status", "status"),
        Column::text("pinned_by", "pinned by"),
    ]);
    for constant in constants {
        let number = |value: f64| Cell::from(Number::new(value, if value.abs() < 10.0 { 4 } else { 1 }));
        table.row(vec![
            constant.path.as_str().into(),
            constant.unit.into(),
            number(constant.before.value),
            number(constant.value),
            number(constant.low),
            number(constant.high),
            constant.status.name().into(),
            constant.pinned_by.as_str().into(),
        ]);
    }
    table
}
