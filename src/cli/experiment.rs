//! `lanecast experiment`: a ledger of runs, what they prove, and the next one.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::path::PathBuf;

use clap::Args;
use clap::Subcommand;
use clap::ValueEnum;

use crate::cli::guard;
use crate::cli::launch;
use crate::cli::launch::Wish;
use crate::cli::output::Output;
use crate::cli::session::Session;
use crate::decide::experiment::CASE;
use crate::decide::experiment::append::append;
use crate::decide::experiment::ledger::Ledger;
use crate::decide::experiment::ledger::Outcome;
use crate::decide::experiment::ledger::Run;
use crate::decide::experiment::propose::next;
use crate::decide::experiment::verdict::status;
use crate::error::Fault;
use crate::error::Result;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::write::write_file;
use crate::report::Report;
use crate::report::experiment as page;
use crate::trace::table::read_text;

/// Keep a ledger of runs; say what they prove and which to make next
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

/// What to do with a ledger.
#[derive(Debug, Subcommand)]
enum Action {
    /// Say what each run proves and does not; without a file, of the case
    Status(Read),
    /// Propose the run that isolates or pays most; without a file, of the case
    Next(Read),
    /// Write a ledger to begin with: the case's, to be changed
    New(New),
    /// Add a run that was made by hand
    Add(Add),
    /// Launch a command with factors on, watch it, and add the run
    Run(Launch),
    /// What ends the command of `run` when this program is ended
    #[command(hide = true)]
    Guard {
        /// The ledger
        file: PathBuf,
    },
}

#[derive(Args, Debug)]
struct Read {
    /// The ledger
    file: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
struct New {
    /// The ledger to write; an existing file is refused
    file: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// How a run made by hand ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Ended {
    /// With an error
    Crash,
    /// It did not answer in time
    Hang,
    /// It answered wrongly
    Wrong,
    /// It was ended before it could tell
    Interrupted,
    /// It answered rightly, nothing was measured
    Serves,
    /// It answered rightly and was measured
    Measured,
}

#[derive(Args, Debug)]
struct Add {
    /// The ledger
    file: PathBuf,
    /// Factors that were on, separated by commas; none: the server as it is
    #[arg(long, value_delimiter = ',')]
    factors: Vec<String>,
    /// How it ended; measured when --value is given
    #[arg(long, value_enum)]
    outcome: Option<Ended>,
    /// What was measured
    #[arg(long)]
    value: Option<f64>,
    /// Smallest of the repetitions
    #[arg(long, requires = "value")]
    low: Option<f64>,
    /// Largest of the repetitions
    #[arg(long, requires = "value")]
    high: Option<f64>,
    /// The message of a crash
    #[arg(long, default_value = "")]
    message: String,
    /// Free text
    #[arg(long, default_value = "")]
    note: String,
    /// When
    #[arg(long)]
    date: Option<String>,
    /// A version that bears on it: --version-of driver=595.58
    #[arg(long, value_name = "NAME=TEXT")]
    version_of: Vec<String>,
    #[command(flatten)]
    output: Output,
}

#[derive(Args, Debug)]
struct Launch {
    /// The ledger
    file: PathBuf,
    /// Factors to switch on: their variables are set for the command; separated by commas
    #[arg(long, value_delimiter = ',')]
    factors: Vec<String>,
    /// Seconds after which it is ended and noted as a hang
    #[arg(long, default_value_t = 1800.0)]
    timeout: f64,
    /// The value is the number behind this text, in the last line that has it
    #[arg(long, value_name = "TEXT")]
    value_after: Option<String>,
    /// Printing this text means that it serves: it is then ended, unless a value is waited for
    #[arg(long, value_name = "TEXT")]
    ready: Option<String>,
    /// A version that bears on it: --version-of engine="sglang 0.5.14"
    #[arg(long, value_name = "NAME=TEXT")]
    version_of: Vec<String>,
    /// Free text
    #[arg(long, default_value = "")]
    note: String,
    #[command(flatten)]
    output: Output,
    /// The command
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl Arguments {
    /// Where the result goes.
    pub fn output(&self) -> &Output {
        match &self.action {
            Action::Status(read) | Action::Next(read) => &read.output,
            Action::New(new) => &new.output,
            Action::Add(add) => &add.output,
            Action::Run(launch) => &launch.output,
            Action::Guard { .. } => const { &Output::STDOUT },
        }
    }
}

/// Reads, adds or launches.
///
/// # Errors
/// Bad ledgers and arguments; what cannot be started.
pub fn run(arguments: &Arguments, session: &Session) -> Result<Report> {
    match &arguments.action {
        Action::Status(read) => {
            let (ledger, text) = load(read.file.as_deref())?;
            let status = status(&ledger);
            Ok(report(session, &text, page::status_sections(&ledger, &status), page::status_rows(&status)))
        }
        Action::Next(read) => {
            let (ledger, text) = load(read.file.as_deref())?;
            let status = status(&ledger);
            let next = next(&ledger, &status)?;
            Ok(report(session, &text, page::next_sections(&ledger, &status, &next), page::next_rows(&next)))
        }
        Action::New(new) => {
            if new.file.exists() {
                return Err(Fault::new("ledger-exists", format!("{} is there already", new.file.display())).help("name another file"));
            }
            write_file(&new.file, CASE.as_bytes())?;
            said(session, &new.file, format!("Wrote {}: the case's campaign; put your own factors and runs in.", new.file.display()))
        }
        Action::Add(add) => {
            let run = by_hand(add)?;
            let id = append(&add.file, &run)?;
            said(session, &add.file, format!("Run {id} is in {}.", add.file.display()))
        }
        Action::Run(wish) => launched(wish, session),
        Action::Guard { file } => {
            guard::stand(file, session)?;
            let rows = crate::render::table::Table::new(Vec::new());
            Ok(Report { exact: Some(String::new()), ..report(session, "", Vec::new(), rows) })
        }
    }
}

fn load(file: Option<&Path>) -> Result<(Ledger, String)> {
    match file {
        None => Ok((Ledger::from_toml("the case", CASE)?, CASE.to_owned())),
        Some(path) => {
            let text = read_text(path)?;
            Ok((Ledger::from_toml(&path.display().to_string(), &text)?, text))
        }
    }
}

fn report(session: &Session, text: &str, sections: Vec<Section>, rows: crate::render::table::Table) -> Report {
    let reproduce = session.reproduce().input("ledger", text.as_bytes());
    Report { title: "Experiments".to_owned(), sections, rows, exact: None, json: None, reproduce, passed: true }
}

/// What was done, and what the ledger says now.
fn said(session: &Session, file: &Path, text: String) -> Result<Report> {
    let (ledger, read) = load(Some(file))?;
    let status = status(&ledger);
    let mut sections = vec![Section { heading: String::new(), blocks: vec![Block::Text(text)] }];
    sections.extend(page::status_sections(&ledger, &status));
    Ok(report(session, &read, sections, page::status_rows(&status)))
}

fn pairs(texts: &[String]) -> Result<BTreeMap<String, String>> {
    let pair = |text: &String| {
        let (name, value) = text.split_once('=').ok_or_else(|| {
            Fault::new("argument-environment", format!("`{text}` is no NAME=TEXT")).help("for example --version-of driver=595.58")
        })?;
        Ok((name.to_owned(), value.to_owned()))
    };
    texts.iter().map(pair).collect()
}

fn factor_set(factors: &[String]) -> BTreeSet<String> {
    factors.iter().map(|factor| factor.trim().to_owned()).filter(|factor| !factor.is_empty()).collect()
}

fn by_hand(add: &Add) -> Result<Run> {
    let outcome = match add.outcome {
        Some(Ended::Crash) => Outcome::Crash,
        Some(Ended::Hang) => Outcome::Hang,
        Some(Ended::Wrong) => Outcome::Wrong,
        Some(Ended::Interrupted) => Outcome::Interrupted,
        Some(Ended::Serves) => Outcome::Serves,
        Some(Ended::Measured) => Outcome::Measured,
        None if add.value.is_some() => Outcome::Measured,
        None => {
            return Err(Fault::new("ledger-outcome", "the run has neither --outcome nor --value")
                .help("say --outcome crash, hang, wrong or serves, or give the --value that was measured"));
        }
    };
    let scrubber = launch::scrubber();
    Ok(Run {
        id: 0,
        date: add.date.clone(),
        factors: factor_set(&add.factors),
        outcome,
        message: scrubber.text(&add.message),
        value: add.value,
        low: add.low,
        high: add.high,
        note: add.note.clone(),
        exit: None,
        seconds: None,
        command: String::new(),
        log: String::new(),
        environment: BTreeMap::new(),
        versions: pairs(&add.version_of)?,
        clocks: BTreeMap::new(),
    })
}

fn launched(wish: &Launch, session: &Session) -> Result<Report> {
    let (ledger, _) = load(Some(&wish.file))?;
    let factors = factor_set(&wish.factors);
    let mut environment = BTreeMap::new();
    for id in &factors {
        let factor = ledger.factor(id).ok_or_else(|| {
            let known: Vec<&str> = ledger.factors.iter().map(|factor| factor.id.as_str()).collect();
            Fault::new("ledger", format!("there is no factor `{id}`")).help(format!("known are {}", known.join(", ")))
        })?;
        environment.extend(factor.environment.clone());
    }
    if !(0.1..=1e7).contains(&wish.timeout) {
        return Err(Fault::new("ledger-outcome", format!("a time-out of {} s is not possible", wish.timeout)).help("expected 0.1 or more"));
    }
    let wanted = Wish {
        command: &wish.command,
        environment: &environment,
        timeout_s: wish.timeout,
        value_after: wish.value_after.as_deref(),
        ready: wish.ready.as_deref(),
        factors,
        note: &wish.note,
        versions: pairs(&wish.version_of)?,
        ledger: &wish.file,
    };
    let run = launch::watch(&wanted, session)?;
    let id = append(&wish.file, &run)?;
    said(session, &wish.file, format!("Run {id} ended: {}. It is in {}.", run.outcome.name(), wish.file.display()))
}
