//! `lanecast diagnose`: what is really slow.

use std::path::PathBuf;

use clap::Args;

use crate::cli::output::Output;
use crate::cli::question::Loaded;
use crate::cli::question::QuestionArguments;
use crate::cli::session::Session;
use crate::decide::diagnose::gather::Gathered;
use crate::decide::diagnose::observed::parse;
use crate::decide::diagnose::scenario::Setup;
use crate::decide::diagnose::verdict::diagnose;
use crate::error::Fault;
use crate::error::Result;
use crate::report::Report;
use crate::report::diagnose as page;
use crate::strategy::Context;
use crate::strategy::Strategy;

/// What the built-in case shows: two measurements and the owner's reading of a profile.
pub const CASE: [&str; 3] = ["decode_tps=82", "verify_ms=30", "profiled_us=150..300"];

/// Find what fits all observations at once; without arguments, the case
#[derive(Args, Debug)]
pub struct Arguments {
    /// Files to take observations and facts from: observation CSV, TOML, logs, whatever `import` reads
    files: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) question: QuestionArguments,
    /// How the all-reduces are believed to run
    #[arg(long, default_value = "nccl-16-channels")]
    strategy: String,
    /// What was observed: decode_tps=82, verify_ms=30, acceptance=0.5, allreduce_us@43008=30, busbw_gbps@64M-in-bytes,
    /// p2p_near_gbps, p2p_far_gbps, host_gbps, pcie_gbps, profiled_us=150..300, allreduce_share, …
    #[arg(long, value_name = "NAME=NUMBER")]
    observed: Vec<String>,
    /// What an observation without an interval scatters by, percent
    #[arg(long, default_value_t = 3.0, value_name = "PERCENT")]
    noise: f64,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Diagnoses.
///
/// # Errors
/// Bad input, files that hold nothing of use, a strategy that cannot run.
pub fn run(arguments: &Arguments, session: &Session) -> Result<Report> {
    let loaded = arguments.question.load(session)?;
    let setup = setup(&loaded, &arguments.strategy)?;
    let scatter = scatter(arguments.noise)?;
    let mut gathered = Gathered::default();
    let given = arguments.observed.iter().map(|text| (text.as_str(), "--observed"));
    let case = CASE.iter().map(|text| (*text, "the case")).filter(|_| arguments.observed.is_empty() && arguments.files.is_empty());
    for (text, source) in given.chain(case) {
        let observed = parse(text, source, scatter, setup.partition.tp)?;
        gathered.notes.extend(gathered.observations.add(observed));
    }
    for file in &arguments.files {
        gathered.read(file, &setup, scatter)?;
    }
    gathered.notes.iter().for_each(|note| session.note(note));
    let diagnosis = diagnose(&setup, gathered.observations, &gathered.facts)?;
    Ok(Report {
        title: "What is really slow".to_owned(),
        sections: page::sections(&diagnosis, &setup, &headline(&loaded, setup.strategy)),
        rows: page::rows(&diagnosis),
        exact: None,
        json: None,
        reproduce: session.reproduce().input("machine", loaded.machine.to_toml().as_bytes()),
        passed: true,
    })
}

/// What is asked, with the belief about the all-reduces.
pub fn headline(loaded: &Loaded, strategy: &Strategy) -> String {
    format!("{} All-reduces are believed to run as {}.", loaded.headline(), strategy.id)
}

/// Percent as a relative scatter.
///
/// # Errors
/// `observed-bad-value`.
pub fn scatter(percent: f64) -> Result<f64> {
    if (0.1..=50.0).contains(&percent) {
        return Ok(percent / 100.0);
    }
    Err(Fault::new("observed-bad-value", format!("a noise of {percent} % is not possible")).help("expected 0.1 to 50"))
}

/// The question as a diagnosis takes it.
///
/// # Errors
/// `strategy-unknown`, `diagnose-strategy`, a pass of one token.
pub fn setup<'a>(loaded: &'a Loaded, strategy: &str) -> Result<Setup<'a>> {
    let strategy = Strategy::find(strategy)?;
    let context = Context::new(&loaded.machine, loaded.partition.tp as usize);
    if let Some(reason) = strategy.refusal(&context) {
        return Err(Fault::new("diagnose-strategy", format!("{} cannot run on {}: {reason}", strategy.id, loaded.machine.id))
            .help("say with --strategy what runs the all-reduces"));
    }
    if loaded.partition.tp < 2 || loaded.workload.tokens < 2 {
        return Err(Fault::new("diagnose-strategy", "a diagnosis wants at least two ranks and two tokens to verify")
            .help("use --tp 2 or more and --tokens 2 or more; without speculation any number of tokens will do"));
    }
    Ok(Setup {
        machine: &loaded.machine,
        model: &loaded.model,
        partition: loaded.partition,
        batch: loaded.workload.batch,
        tokens: loaded.workload.tokens,
        context: loaded.workload.context,
        strategy,
        environment: loaded.environment.clone(),
    })
}
