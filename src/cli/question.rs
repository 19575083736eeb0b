//! The arguments that say what is asked; the defaults are the case.

use std::collections::BTreeMap;

use clap::Args;
use clap::ValueEnum;

use crate::case::LaunchMode;
use crate::case::Question;
use crate::error::Fault;
use crate::error::Result;
use crate::machine::Cabling;
use crate::machine::Machine;
use crate::model::Model;
use crate::model::Phase;
use crate::model::Workload;
use crate::plan::Partition;
use crate::strategy::Strategy;

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
    #[arg(long, default_value = "8x-rtx-pro-6000-server")]
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
    #[arg(long, default_value_t = 8)]
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
    /// Changes one number of the machine: `--set fabric.host_memory_latency_ns=600`
    #[arg(long, value_name = "PATH=NUMBER")]
    pub set: Vec<super::arguments::Assignment>,
    /// A variable that is set for NCCL whatever the strategy: `--env NCCL_P2P_LEVEL=SYS`
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
}

/// What the arguments name, loaded.
pub struct Loaded {
    /// The machine, with `--set` applied.
    pub machine: Machine,
    /// The model.
    pub model: Model,
    /// The pass.
    pub workload: Workload,
    /// How the model is split.
    pub partition: Partition,
    /// How the pass is launched.
    pub launch: LaunchMode,
    /// `--env`.
    pub environment: BTreeMap<String, String>,
}

impl QuestionArguments {
    /// Reads the files and checks the numbers.
    ///
    /// # Errors
    /// Unknown names, bad files, bad numbers.
    pub fn load(&self) -> Result<Loaded> {
        let mut machine = Machine::load(&self.machine)?;
        if let Some(cabling) = self.cabling {
            machine = machine.recable(cabling)?;
        }
        for assignment in &self.set {
            machine.set(&assignment.name, assignment.value)?;
        }
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
        Ok(Loaded {
            machine,
            model: Model::load(&self.model)?,
            workload,
            partition: Partition::tensor(self.tp),
            launch: match self.launch {
                Launch::Graph => LaunchMode::Graph,
                Launch::Eager => LaunchMode::Eager,
            },
            environment: environment(&self.env)?,
        })
    }
}

impl Loaded {
    /// As a question.
    pub fn question(&self) -> Question<'_> {
        Question { machine: &self.machine, model: &self.model, workload: self.workload, partition: self.partition, launch: self.launch }
    }

    /// One line that names the question.
    pub fn headline(&self) -> String {
        let launch = if self.launch == LaunchMode::Graph { "in one CUDA graph" } else { "launched from the host" };
        format!(
            "{} on {} ({}), TP {}: {} sequence(s) of {} new token(s) after {} cached, {launch}.",
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

/// `NAME=VALUE` pairs.
///
/// # Errors
/// `argument-environment` for anything else.
pub fn environment(pairs: &[String]) -> Result<BTreeMap<String, String>> {
    (pairs.iter())
        .map(|pair| {
            let (name, value) = pair.split_once('=').ok_or_else(|| {
                Fault::new("argument-environment", format!("`{pair}` is no NAME=VALUE")).help("for example --env NCCL_P2P_LEVEL=SYS")
            })?;
            Ok((name.to_owned(), value.to_owned()))
        })
        .collect()
}

/// The strategies of a comma-separated list, or all.
///
/// # Errors
/// `strategy-unknown`.
pub fn strategies(list: Option<&str>) -> Result<Vec<&'static Strategy>> {
    match list {
        None => Ok(crate::strategy::all().collect()),
        Some(list) => list.split(',').map(str::trim).filter(|id| !id.is_empty()).map(Strategy::find).collect(),
    }
}
