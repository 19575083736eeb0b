//! The arguments that say what is asked; the defaults are the case.

use std::collections::BTreeMap;
use std::path::Path;

use clap::Args;
use clap::ValueEnum;

use crate::case::Case;
use crate::case::LaunchMode;
use crate::case::too_large;
use crate::cli::session::Session;
use crate::error::Fault;
use crate::error::Result;
use crate::import::input::Input;
use crate::machine::Cabling;
use crate::machine::Machine;
use crate::model::Model;
use crate::model::Phase;
use crate::model::Workload;
use crate::nccl::graph_file;
use crate::plan::Partition;
use crate::strategy::Context;
use crate::strategy::Strategy;

/// The machine of the case.
pub const DEFAULT_MACHINE: &str = "8x-rtx-pro-6000-server";

/// How a pass is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Launch {
    /// One replayed CUDA graph
    Graph,
    /// Each kernel from the host
    Eager,
}

/// What kind of pass it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PhaseArgument {
    /// One new token a sequence
    Decode,
    /// Root and drafts at once
    Verify,
    /// Many new tokens
    Prefill,
}

/// Machine, model and workload.
#[derive(Args, Clone, Debug)]
pub struct QuestionArguments {
    /// A built-in machine (`lanecast machines`) or a machine file
    #[arg(long, default_value = DEFAULT_MACHINE)]
    pub machine: String,
    /// A built-in model (`lanecast models`) or a config.json
    #[arg(long, default_value = "kimi-k2.5")]
    pub model: String,
    /// New tokens of each sequence in the pass (root and drafts)
    #[arg(long, short = 't', default_value_t = 3)]
    pub tokens: u64,
    /// Cached positions of each sequence. The case's public figures are of short
    /// prompts: the mean over the first few hundred tokens
    #[arg(long, default_value_t = 128)]
    pub context: u64,
    /// Sequences
    #[arg(long, default_value_t = 1)]
    pub batch: u64,
    /// Tensor-parallel ranks
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub tp: u32,
    /// What kind of pass; by default verify, and decode for one token
    #[arg(long, value_enum)]
    pub phase: Option<PhaseArgument>,
    /// How the pass is launched
    #[arg(long, value_enum, default_value = "graph")]
    pub launch: Launch,
    /// The same GPUs cabled otherwise: direct, one-switch, two-switches, three-switch-tree
    #[arg(long)]
    pub cabling: Option<Cabling>,
    /// Changes one number (`lanecast explain knobs`): `--set fabric.host_memory_latency_ns=600`
    #[arg(long, value_name = "PATH=NUMBER")]
    pub set: Vec<super::arguments::Assignment>,
    /// A variable that is set for NCCL whatever the strategy: `--env NCCL_P2P_LEVEL=SYS`;
    /// the file that NCCL_GRAPH_FILE names is read
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
}

/// What the arguments name, loaded, with `--set` applied.
pub struct Loaded(pub Case);

impl std::ops::Deref for Loaded {
    type Target = Case;

    fn deref(&self) -> &Case {
        &self.0
    }
}

impl QuestionArguments {
    /// Whether it is the case's server, however many tokens are asked for: the
    /// public figures of the case are of it alone.
    pub fn is_case(&self) -> bool {
        self.machine == DEFAULT_MACHINE && self.model == "kimi-k2.5" && self.batch == 1 && self.tp == 8 && self.cabling.is_none()
    }

    /// Reads the files and checks the numbers.
    ///
    /// # Errors
    /// Unknown names, bad files, bad numbers.
    pub fn load(&self, session: &Session) -> Result<Loaded> {
        let phase = match self.phase {
            Some(PhaseArgument::Decode) => Phase::Decode,
            Some(PhaseArgument::Verify) => Phase::Verify,
            Some(PhaseArgument::Prefill) => Phase::Prefill,
            None if self.tokens == 1 => Phase::Decode,
            None => Phase::Verify,
        };
        let mut workload = Workload::new(phase, self.tokens, self.context);
        workload.batch = self.batch;
        workload.check()?;
        let launch = match self.launch {
            Launch::Graph => LaunchMode::Graph,
            Launch::Eager => LaunchMode::Eager,
        };
        let mut machine = Machine::load(&self.machine)?;
        if let Some(cabling) = self.cabling {
            machine = machine.recable(cabling)?;
        }
        let model = Model::load(&self.model)?;
        if let Some(unknown) = model.unknown_architecture() {
            session.warn(&unknown);
        }
        let mut case = Case::new(machine, model, workload, Partition::tensor(self.tp), launch);
        case.environment = environment(&self.env)?;
        warn_of_variables(&case.environment, &case.machine, session)?;
        for assignment in &self.set {
            case.set(&assignment.name, assignment.value)?;
        }
        Ok(Loaded(case))
    }
}

impl Loaded {
    /// What was defaulted when the machine was imported.
    pub fn assumptions(&self) -> Vec<String> {
        let notes = &self.machine.notes;
        let imported = notes.iter().any(|note| note.starts_with("Imported:"));
        notes.iter().filter(|note| imported && note.contains("ASSUMED")).cloned().collect()
    }

    /// A sentence where the weights alone do not fit the GPUs.
    fn memory_words(&self) -> String {
        let Some((weights, memory)) = too_large(&self.machine, &self.model, self.partition.ranks()) else { return String::new() };
        let gb = |bytes: u64| format!("{:.0}", bytes as f64 / 1e9);
        format!(" It does not fit: {} GB of weights a GPU of {} GB; what follows is what it would take if it did.", gb(weights), gb(memory))
    }

    /// Whether the weights fit the GPUs: a column of every table for programs.
    pub fn fits_memory(&self) -> bool {
        too_large(&self.machine, &self.model, self.partition.ranks()).is_none()
    }

    /// One line that names the question.
    pub fn headline(&self) -> String {
        let launch = if self.launch == LaunchMode::Graph { "in one CUDA graph" } else { "launched from the host" };
        let fits = self.memory_words();
        format!(
            "{} on {} ({}), TP {}: {} sequence(s) of {} new token(s) after {} cached, {launch}.{fits}",
            self.model.name,
            self.machine.id,
            self.machine.name,
            self.partition.tp,
            self.workload.batch,
            self.workload.tokens,
            self.workload.context
        )
    }
}

/// Says which variables and values NCCL would not heed, or are not modelled.
///
/// # Errors
/// `nccl-environment` for values that NCCL would misread or refuse.
pub fn warn_of_variables(environment: &BTreeMap<String, String>, machine: &Machine, session: &Session) -> Result<()> {
    let version = Context::new(machine, 1).nccl_version()?;
    for warning in crate::nccl::Environment::parse(environment, version)?.warnings {
        session.warn(&warning);
    }
    for name in environment.keys().filter(|name| !name.starts_with("NCCL_")) {
        session.warn(&format!("{name} is no variable of NCCL: it changes nothing here"));
    }
    Ok(())
}

/// `NAME=VALUE` pairs; of `NCCL_GRAPH_FILE` the file's name and, from the next line on, its text.
///
/// # Errors
/// `argument-environment` for anything else; `io`, `file-too-large` for a graph file that cannot be read.
pub fn environment(pairs: &[String]) -> Result<BTreeMap<String, String>> {
    (pairs.iter())
        .map(|pair| {
            let (name, value) = pair.split_once('=').ok_or_else(|| {
                Fault::new("argument-environment", format!("`{pair}` is no NAME=VALUE")).help("for example --env NCCL_P2P_LEVEL=SYS")
            })?;
            if name.is_empty() {
                return Err(
                    Fault::new("argument-environment", format!("`{pair}` names no variable")).help("for example --env NCCL_P2P_LEVEL=SYS")
                );
            }
            let value = if name == "NCCL_GRAPH_FILE" && !value.is_empty() { read_graph(Path::new(value))? } else { value.to_owned() };
            Ok((name.to_owned(), value))
        })
        .collect()
}

fn read_graph(path: &Path) -> Result<String> {
    let text = Input::open(path)?.text()?;
    if !text.trim_start().starts_with('<') {
        return Err(Fault::new("nccl-graph-file", format!("{} is no graph file: it is no XML", path.display()))
            .help("dump one with NCCL_GRAPH_DUMP_FILE on the machine"));
    }
    Ok(graph_file::named_text(&path.display().to_string(), &text))
}

/// The strategies of a comma-separated list, or all.
///
/// # Errors
/// `argument-list` for an empty one, `strategy-unknown`.
pub fn strategies(list: Option<&str>) -> Result<Vec<&'static Strategy>> {
    match list {
        None => Ok(crate::strategy::all().collect()),
        Some(list) => {
            let ids: Vec<&str> = list.split(',').map(str::trim).filter(|id| !id.is_empty()).collect();
            if ids.is_empty() {
                return Err(Fault::new("argument-list", "the list of strategies is empty")
                    .help("leave --strategies out to take all; `lanecast strategies` lists them"));
            }
            ids.into_iter().map(Strategy::find).collect()
        }
    }
}

/// What was observed of the server, as far as it was.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ObservedPair {
    /// One verify pass, ms.
    pub verify_ms: Option<f64>,
    /// Plain decoding, tokens/s.
    pub decode_tps: Option<f64>,
}

/// Milliseconds and tokens per second that somebody can have measured.
const OBSERVABLE: std::ops::RangeInclusive<f64> = 1e-3..=1e9;

/// `--observed verify_ms=30`, `--observed decode_tps=82`.
///
/// # Errors
/// `observed-bad-value`, `observed-unknown`.
pub fn observed_pair(assignments: &[super::arguments::Assignment]) -> Result<ObservedPair> {
    let mut observed = ObservedPair::default();
    for assignment in assignments {
        if !OBSERVABLE.contains(&assignment.value) {
            return Err(Fault::new("observed-bad-value", format!("{} = {:e} was not observed", assignment.name, assignment.value))
                .help(format!("expected {:e} to {:e}", OBSERVABLE.start(), OBSERVABLE.end())));
        }
        match assignment.name.as_str() {
            "verify_ms" => observed.verify_ms = Some(assignment.value),
            "decode_tps" => observed.decode_tps = Some(assignment.value),
            other => {
                return Err(
                    Fault::new("observed-unknown", format!("there is no observation {other}")).help("known are verify_ms and decode_tps")
                );
            }
        }
    }
    Ok(observed)
}
