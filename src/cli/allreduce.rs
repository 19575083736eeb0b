//! `lanecast allreduce`: latency of one all-reduce by size and strategy.

use std::io::Read;
use std::path::Path;
use std::path::PathBuf;

use clap::Args;
use clap::ValueEnum;

use crate::case::chain::ChainLaunch;
use crate::cli::arguments::Assignment;
use crate::cli::arguments::Size;
use crate::cli::output::Output;
use crate::cli::output::Pages;
use crate::cli::question::environment;
use crate::cli::question::strategies;
use crate::cli::question::warn_of_variables;
use crate::cli::session::Session;
use crate::decide::allreduce::Request;
use crate::decide::allreduce::grid;
use crate::decide::variables::Asked;
use crate::decide::variables::effects;
use crate::error::Fault;
use crate::error::Result;
use crate::machine::Machine;
use crate::render::write::write_file;
use crate::report::Report;
use crate::report::allreduce as words;
use crate::report::allreduce_page::add_drawings;
use crate::strategy::Searches;
use crate::strategy::Strategy;
use crate::trace::observation;
use crate::trace::observation::Observation;
use crate::trace::observation::Timing;
use crate::trace::observation::write_csv;

/// How the chain of all-reduces is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Launch {
    /// One replayed CUDA graph
    Graph,
    /// Each kernel from the host, a process a rank
    Eager,
    /// Each kernel from one host thread for all ranks
    EagerSingleThread,
}

/// Measurements that come with the program.
const BUILT_IN: [(&str, &str); 2] = [
    ("rtx-pro-6000-allreduce.csv", include_str!("../../traces/observations/rtx-pro-6000-allreduce.csv")),
    ("h200-nccl-graph.csv", include_str!("../../traces/observations/h200-nccl-graph.csv")),
];

/// Latency of one all-reduce by size and strategy, without any model
#[derive(Args, Debug)]
pub struct Arguments {
    /// A built-in machine or a machine file
    #[arg(long, default_value = "8x-rtx-pro-6000-server")]
    machine: String,
    /// Ranks
    #[arg(long, default_value_t = 8)]
    ranks: usize,
    /// Message sizes, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1K,4K,14336,43008,57344,128K,256K,1M,4M")]
    sizes: Vec<Size>,
    /// Only these strategies, separated by commas
    #[arg(long, value_name = "IDS")]
    strategies: Option<String>,
    /// The strategy that the others are said to cross
    #[arg(long, value_name = "ID", default_value = "nccl-default")]
    against: String,
    /// How the chain is launched
    #[arg(long, value_enum, default_value = "graph")]
    launch: Launch,
    /// Also say what each variable of this strategy changes at each size: `--variables nccl-few-channels`
    #[arg(long, value_name = "ID")]
    variables: Option<String>,
    /// Changes one number of the machine: `--set fabric.host_memory_latency_ns=600`
    #[arg(long, value_name = "PATH=NUMBER")]
    set: Vec<Assignment>,
    /// A variable that is set for NCCL whatever the strategy: `--env NCCL_P2P_LEVEL=SYS`
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Also write the forecasts as observations (CSV), for `validate` and to compare with measurements
    #[arg(long, value_name = "FILE")]
    observations: Option<PathBuf>,
    /// Measurements to draw beside the forecasts of --html; by default those that are built in
    #[arg(long, value_name = "FILE")]
    measured: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) pages: Pages,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Simulates chains of all-reduces.
///
/// # Errors
/// Bad input.
pub fn run(arguments: &Arguments, session: &Session) -> Result<Report> {
    let mut machine = Machine::load(&arguments.machine)?;
    for assignment in &arguments.set {
        machine.set(&assignment.name, assignment.value)?;
    }
    if !(2..=64).contains(&arguments.ranks) {
        return Err(Fault::new("argument-ranks", format!("an all-reduce of {} ranks cannot be simulated", arguments.ranks))
            .help("give from 2 to 64 ranks, at most as many as the machine has"));
    }
    let (launch, timing, how) = match arguments.launch {
        Launch::Graph => (ChainLaunch::Graph, Timing::GraphChain, "in one CUDA graph"),
        Launch::Eager => (ChainLaunch::EagerThreadPerRank, Timing::EagerChainThreadPerRank, "each launched from a host thread of its rank"),
        Launch::EagerSingleThread => (ChainLaunch::EagerSingleThread, Timing::EagerChainSingleThread, "all launched from one host thread"),
    };
    let request = Request {
        machine: &machine,
        ranks: arguments.ranks,
        environment: environment(&arguments.env)?,
        launch,
        sizes: sizes(&arguments.sizes)?,
        strategies: wanted(arguments.strategies.as_deref())?,
        against: Strategy::find(&arguments.against)?,
    };
    warn_of_variables(&request.environment, &machine, session)?;
    let grid = grid(&request)?;
    let effects = match &arguments.variables {
        Some(id) => {
            let asked =
                Asked { machine: &machine, ranks: request.ranks, environment: &request.environment, searches: &Searches::default() };
            let sizes: Vec<(u64, bool)> = request.sizes.iter().map(|&bytes| (bytes, true)).collect();
            effects(&asked, Strategy::find(id)?, &sizes)?
        }
        None => Vec::new(),
    };
    if let Some(path) = &arguments.observations {
        let (rows, left) = words::observations(&request, &grid, &timing);
        let comment = format!("{FORECASTS} {}", env!("CARGO_PKG_VERSION"));
        refuse_to_replace(path)?;
        write_file(path, write_csv(&[comment], &rows).as_bytes())?;
        session.note(&format!("wrote {} forecasts to {}", rows.len(), path.display()));
        if !left.is_empty() {
            session.note(&format!("the format of observations has no columns for the variables of {}", left.join(", ")));
        }
    }
    let mut sections = words::sections(&request, &grid, how, &effects);
    if arguments.pages.wanted() {
        add_drawings(&mut sections, &request, &grid, &measured(&arguments.measured)?, &timing);
    }
    Ok(Report {
        title: "All-reduce by size".to_owned(),
        sections,
        rows: words::rows(&request, &grid),
        exact: None,
        json: None,
        reproduce: session.reproduce().input("machine", machine.to_toml().as_bytes()),
        passed: true,
    })
}

/// Measurements in those files, else those that are built in.
fn measured(files: &[PathBuf]) -> Result<Vec<Observation>> {
    let mut rows = Vec::new();
    for file in files {
        rows.extend(observation::read_file(file)?);
    }
    if files.is_empty() {
        for (name, text) in BUILT_IN {
            rows.extend(observation::read_bytes(name, text.as_bytes())?);
        }
    }
    Ok(rows)
}

/// The largest message: a chunk of prefill has some tens of megabytes.
const LARGEST_BYTES: u64 = 1 << 30;

/// How a file of forecasts begins.
const FORECASTS: &str = "forecasts of lanecast";

/// Measurements have the same format: only forecasts are replaced by forecasts.
fn refuse_to_replace(path: &Path) -> Result<()> {
    let mut known = Vec::new();
    // What cannot be read cannot be written over either, and says so then.
    let _ = std::fs::File::open(path).and_then(|file| file.take(64).read_to_end(&mut known));
    let is_device = std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir());
    if known.is_empty() || is_device || known.starts_with(format!("# {FORECASTS}").as_bytes()) {
        return Ok(());
    }
    Err(Fault::new("argument-replaces", format!("{} holds no forecasts; it would be replaced", path.display()))
        .help("name a new file, or move that one away"))
}

/// Ascending, each once.
fn sizes(asked: &[Size]) -> Result<Vec<u64>> {
    let mut sizes: Vec<u64> = asked.iter().map(|size| size.0.0).collect();
    sizes.sort_unstable();
    sizes.dedup();
    match sizes.first() {
        Some(0) => Err(Fault::new("argument-size", "an all-reduce of 0 bytes moves nothing").help("give sizes of 1 byte or more")),
        Some(_) if sizes.last() > Some(&LARGEST_BYTES) => {
            Err(Fault::new("argument-size", format!("a message of {} bytes", sizes[sizes.len() - 1])).help("give sizes of at most 1G"))
        }
        Some(_) => Ok(sizes),
        None => Err(Fault::new("argument-size", "no size was given").help("for example --sizes 43008,1M")),
    }
}

/// Strategies that are ways to carry out one all-reduce: not the bound, and not those that split the model.
fn wanted(list: Option<&str>) -> Result<Vec<&'static Strategy>> {
    let tensor =
        |strategy: &&'static Strategy| strategy.id != "free-communication" && (strategy.partition)(8) == crate::plan::Partition::tensor(8);
    let all = strategies(list)?;
    Ok(if list.is_some() { all } else { all.into_iter().filter(tensor).collect() })
}
