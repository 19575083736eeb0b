//! Ways to communicate: for each its gate, its partition, the lowering of each
//! logical collective to a schedule, and what a person must know to try it.
//!
//! A strategy is one row of [`ALL`] and lives in one file of this folder.
//! Adding one touches nothing else.

pub mod context;
mod custom;
mod fused;
pub mod gate;
mod nccl_family;
pub mod nccl_schedule;
mod refused;

use std::collections::BTreeMap;

use crate::collective::Schedule;
use crate::error::Fault;
use crate::error::Result;

pub use context::Context;
pub use gate::Need;

/// A logical collective that a strategy is asked to lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Logical {
    /// Every rank gets the sum.
    AllReduce,
    /// Every rank gets every shard; bytes are those of the whole.
    AllGather,
    /// Every rank gets the sum of its shard; bytes are those of the whole.
    ReduceScatter,
}

/// Whose kernel a schedule is: what its prologue costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kernel {
    /// NCCL's: work list, channels, pointers.
    Nccl,
    /// A custom kernel.
    Custom,
    /// None: communication that takes no time.
    None,
}

/// A collective lowered to a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lowering {
    /// Who sends what to whom.
    pub schedule: Schedule,
    /// Whose kernel runs it.
    pub kernel: Kernel,
    /// Pairs `[source * ranks + target]` that go through host memory; empty when none does.
    pub through_host: Vec<bool>,
}

impl Lowering {
    /// A custom kernel whose messages go straight to the peers.
    pub fn custom(schedule: Schedule) -> Lowering {
        Lowering { schedule, kernel: Kernel::Custom, through_host: Vec::new() }
    }

    /// Whether messages of this pair go through host memory.
    pub fn staged(&self, source: usize, target: usize) -> bool {
        self.through_host.get(source * self.schedule.ranks + target).copied().unwrap_or(false)
    }
}

/// Who can run a strategy for real.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Executor {
    /// Our kernels.
    Ours,
    /// NCCL.
    Nccl,
    /// Another project's kernels: it can be simulated only.
    ModelledOnly,
}

impl Executor {
    /// As reports and JSON name it.
    pub fn name(self) -> &'static str {
        match self {
            Executor::Ours => "ours",
            Executor::Nccl => "nccl",
            Executor::ModelledOnly => "modelled-only",
        }
    }
}

/// How much work it is to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// Environment variables and a restart.
    Minutes,
    /// A flag, a package or a rebuild.
    Hours,
    /// Code in the serving engine.
    Days,
    /// Not something to try: a bound.
    None,
}

impl Effort {
    /// As reports name it.
    pub fn name(self) -> &'static str {
        match self {
            Effort::Minutes => "minutes",
            Effort::Hours => "hours",
            Effort::Days => "days",
            Effort::None => "-",
        }
    }
}

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Risk {
    /// At worst it is slower.
    Low,
    /// The server may not start, or may hang.
    Medium,
    /// Results may be wrong without a sign.
    High,
}

impl Risk {
    /// As reports name it.
    pub fn name(self) -> &'static str {
        match self {
            Risk::Low => "low",
            Risk::Medium => "medium",
            Risk::High => "high",
        }
    }
}

/// What to set, and what must be true for it to work.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Settings {
    /// Variables to set before the server starts.
    pub environment: BTreeMap<String, String>,
    /// Flags of the serving engine.
    pub flags: Vec<String>,
    /// What must be true, in words.
    pub requires: Vec<String>,
}

/// One way to communicate.
pub struct Strategy {
    /// Kebab-case, e.g. `nccl-ring-ll`.
    pub id: &'static str,
    /// One sentence: how it works.
    pub summary: &'static str,
    /// Who can run it.
    pub executor: Executor,
    /// How much work it is to try.
    pub effort: Effort,
    /// What can go wrong.
    pub risk: Risk,
    /// The risk in words.
    pub risk_words: &'static str,
    /// How to go back.
    pub way_back: &'static str,
    /// What is left out of the model.
    pub not_modelled: &'static [&'static str],
    /// What must hold for it to run at all.
    pub needs: &'static [Need],
    /// Variables of NCCL that it sets.
    pub environment: &'static [(&'static str, &'static str)],
    /// Flags of the engine.
    pub flags: &'static [&'static str],
    /// Whether the residual add and the norm after an all-reduce are part of its kernel.
    pub fuses_norm: bool,
    /// Lowers a collective of a context's ranks.
    pub lower: fn(&Context<'_>, &Strategy, Logical, u64) -> Result<Lowering>,
}

impl Strategy {
    /// The strategy of that id.
    ///
    /// # Errors
    /// `strategy-unknown`, with the nearest known name.
    pub fn find(id: &str) -> Result<&'static Strategy> {
        all().find(|strategy| strategy.id == id).ok_or_else(|| {
            let known: Vec<&str> = all().map(|strategy| strategy.id).collect();
            Fault::new("strategy-unknown", format!("there is no strategy {id}")).help(format!("known are {}", known.join(", ")))
        })
    }

    /// The reason why it cannot run, or None.
    pub fn refusal(&self, context: &Context<'_>) -> Option<String> {
        self.needs.iter().find_map(|need| need.refusal(context))
    }

    /// What to set to try it.
    pub fn settings(&self) -> Settings {
        Settings {
            environment: self.environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            flags: self.flags.iter().map(|flag| (*flag).to_owned()).collect(),
            requires: self.needs.iter().map(Need::words).collect(),
        }
    }
}

/// Every strategy, families in the order in which people meet them.
pub fn all() -> impl Iterator<Item = &'static Strategy> {
    [nccl_family::ALL, custom::ALL, fused::ALL, refused::ALL].into_iter().flatten()
}
