//! Arguments to requests to reports. One file a command.
//!
//! A command is a struct `Arguments` (what was typed) and a function
//! `run(&Arguments, &Session) -> Result<Report>`, which can be tested without a
//! process, and one row in [`Command`]. It prints nothing (but for `import`,
//! which streams): [`main`] writes the report to stdout or a file, notes and
//! faults to stderr, and chooses the exit code.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done, or the reader of stdout went away |
//! | 1 | a check that was asked for failed; the report says which |
//! | 2 | no answer: bad input or arguments, missing hardware |
//! | 101 | a bug |

pub mod allreduce;
pub mod arguments;
pub mod bundle;
pub mod calibrate;
pub mod compare;
pub mod detect;
pub mod diagnose;
pub mod doctor;
pub mod experiment;
pub mod explain;
pub mod export;
mod files;
pub mod fit;
mod guard;
pub mod import;
pub mod launch;
pub mod lists;
pub mod optimize;
pub mod output;
pub mod plan;
pub mod policy;
pub mod question;
pub mod rank;
#[cfg(feature = "gpu")]
mod run;
pub mod session;
pub mod shell;
pub mod simulate;
pub mod speculate;
pub mod sweep;
pub mod validate;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::FromArgMatches;
use clap::Parser;
use clap::Subcommand;

use crate::cli::output::Output;
use crate::cli::output::Pages;
use crate::cli::session::ColorChoice;
use crate::cli::session::Session;
use crate::error::Result;
use crate::report::Report;

/// Forecasts what a forward pass of a large language model costs on GPUs that
/// talk over PCIe, and ranks the ways to make it faster.
#[derive(Debug, Parser)]
#[command(name = "lanecast", version, max_term_width = 100, subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 done, 1 a check that was asked for failed, 2 no answer.")]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Print the result only: no notes, no progress
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,

    /// Say more on stderr
    #[arg(short, long, global = true)]
    verbose: bool,

    /// When to use colours; NO_COLOR in the environment turns them off too
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,
}

/// Every command, in the order of `--help`.
#[derive(Debug, Subcommand)]
enum Command {
    Rank(rank::Arguments),
    Simulate(simulate::Arguments),
    #[cfg(feature = "gpu")]
    Run(Box<run::Arguments>),
    Plan(plan::Arguments),
    Allreduce(allreduce::Arguments),
    Validate(validate::Arguments),
    Fit(fit::Arguments),
    Diagnose(diagnose::Arguments),
    Experiment(experiment::Arguments),
    Doctor(doctor::Arguments),
    Bundle(bundle::Arguments),
    Sweep(sweep::Arguments),
    Optimize(optimize::Arguments),
    Import(import::Arguments),
    Export(export::Arguments),
    Speculate(speculate::Arguments),
    Detect(detect::Arguments),
    Calibrate(calibrate::Arguments),
    Compare(compare::Arguments),
    Machines(lists::Machines),
    Models(lists::Models),
    Strategies(lists::Strategies),
    Explain(explain::Arguments),
    Completions(shell::Completions),
    Man(shell::Manual),
}

impl Command {
    fn output(&self) -> Output {
        match self {
            Command::Rank(arguments) => arguments.output.clone(),
            Command::Simulate(arguments) => arguments.output.clone(),
            #[cfg(feature = "gpu")]
            Command::Run(arguments) => arguments.output.clone(),
            Command::Plan(arguments) => arguments.output().clone(),
            Command::Allreduce(arguments) => arguments.output.clone(),
            Command::Validate(arguments) => arguments.output.clone(),
            Command::Diagnose(arguments) => arguments.output.clone(),
            Command::Experiment(arguments) => arguments.output().clone(),
            Command::Doctor(arguments) => arguments.output.clone(),
            Command::Bundle(arguments) => arguments.output.clone(),
            Command::Sweep(arguments) => arguments.report.clone(),
            Command::Optimize(arguments) => arguments.output.clone(),
            Command::Compare(arguments) => arguments.output.clone(),
            // They write files of other formats; what they say is a table.
            Command::Import(_) | Command::Export(_) => Output::default(),
            Command::Speculate(arguments) => arguments.output.clone(),
            Command::Detect(arguments) => arguments.output(),
            Command::Calibrate(arguments) => arguments.output(),
            Command::Machines(arguments) => arguments.output.clone(),
            Command::Models(arguments) => arguments.output.clone(),
            Command::Strategies(arguments) => arguments.output.clone(),
            Command::Explain(arguments) => arguments.output.clone(),
            Command::Fit(arguments) => arguments.output.clone(),
            Command::Completions(arguments) => arguments.output.clone(),
            Command::Man(arguments) => arguments.output.clone(),
        }
    }

    /// `--html`, of the commands that take it.
    fn pages(&self) -> Option<&Pages> {
        match self {
            Command::Rank(arguments) => Some(&arguments.pages),
            Command::Simulate(arguments) => Some(&arguments.pages),
            Command::Allreduce(arguments) => Some(&arguments.pages),
            Command::Validate(arguments) => Some(&arguments.pages),
            Command::Compare(arguments) => Some(&arguments.pages),
            _ => None,
        }
    }

    fn emit(&self, report: &Report, session: &Session) -> Result<bool> {
        if let Some(pages) = self.pages() {
            pages.emit(report)?;
        }
        self.output().emit(report, session)
    }

    fn run(&self, session: &Session) -> Result<Report> {
        match self {
            Command::Rank(arguments) => rank::run(arguments, session),
            Command::Simulate(arguments) => simulate::run(arguments, session),
            #[cfg(feature = "gpu")]
            Command::Run(arguments) => run::run(arguments, session),
            Command::Plan(arguments) => plan::run(arguments, session),
            Command::Allreduce(arguments) => allreduce::run(arguments, session),
            Command::Validate(arguments) => validate::run(arguments, session),
            Command::Fit(arguments) => fit::run(arguments, session),
            Command::Diagnose(arguments) => diagnose::run(arguments, session),
            Command::Experiment(arguments) => experiment::run(arguments, session),
            Command::Doctor(arguments) => doctor::run(arguments, session),
            Command::Bundle(arguments) => bundle::run(arguments, session),
            Command::Sweep(arguments) => sweep::run(arguments, session),
            Command::Optimize(arguments) => optimize::run(arguments, session),
            Command::Import(arguments) => import::run(arguments, session),
            Command::Export(arguments) => export::run(arguments, session),
            Command::Speculate(arguments) => speculate::run(arguments, session),
            Command::Detect(arguments) => detect::run(arguments, session),
            Command::Calibrate(arguments) => calibrate::run(arguments, session),
            Command::Compare(arguments) => compare::run(arguments, session),
            Command::Machines(arguments) => lists::machines(arguments, session),
            Command::Models(arguments) => lists::models(arguments, session),
            Command::Strategies(arguments) => lists::strategies(arguments, session),
            Command::Explain(arguments) => explain::run(arguments, session),
            Command::Completions(arguments) => shell::completions(arguments, Cli::command(), session),
            Command::Man(arguments) => shell::manual(arguments, Cli::command(), session),
        }
    }
}

/// The whole program, from the arguments (its own path first) to the exit code.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let typed: Vec<OsString> = arguments.collect();
    std::panic::set_hook(Box::new(|panic| session::say(&format!("{}\n", session::bug_line(&panic.to_string())))));
    let parsed = Cli::command().try_get_matches_from(&typed).and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(usage) => {
            // Help that nobody reads to its end is a success as any broken pipe is.
            let _ = usage.print();
            return ExitCode::from(if usage.use_stderr() { 2 } else { 0 });
        }
    };
    let session = Session::from_environment(&typed, cli.color, cli.quiet, cli.verbose);
    let done = files::refuse_shared(&matches).and_then(|()| cli.command.run(&session));
    match done.and_then(|report| cli.command.emit(&report, &session)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(fault) => {
            session.show_fault(&fault);
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    /// A new argument that takes a path must say whether the file is read or written.
    #[test]
    fn every_path_has_a_role() {
        fn walk(command: &clap::Command) {
            for argument in command.get_arguments() {
                let is_path = argument.get_value_parser().type_id() == std::any::TypeId::of::<std::path::PathBuf>();
                let (of, id) = (command.get_name(), argument.get_id().as_str());
                assert!(!is_path || files::role(of, id).is_some(), "{of}: {id}");
            }
            command.get_subcommands().for_each(walk);
        }
        walk(&Cli::command());
    }

    #[test]
    fn every_command_says_what_it_does() {
        for command in Cli::command().get_subcommands().filter(|c| !c.is_hide_set()) {
            assert!(command.get_about().is_some(), "{} has no description", command.get_name());
        }
    }
}
