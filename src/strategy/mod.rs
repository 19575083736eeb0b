//! Ways to communicate: for each its gate, its partition, the lowering of each
//! logical collective to a schedule, and what a person must know to try it.
//!
//! A strategy is one row of [`ALL`] and lives in one file of this folder.
//! Adding one touches nothing else.

pub mod context;
mod custom;
mod fused;
pub mod gate;
mod island_family;
pub mod nccl_family;
pub mod nccl_graph;
pub mod nccl_schedule;
pub mod observed;
mod packets;
pub mod page;
mod partitioned;
mod refused;
mod searches;
mod two_hops;

use std::collections::BTreeMap;

use crate::collective::Schedule;
use crate::error::Fault;
use crate::error::Result;
use crate::plan::Kind;
use crate::plan::Partition;

pub use context::Context;
pub use gate::Decline;
pub use gate::Need;
pub use searches::Searches;

/// A logical collective that a strategy is asked to lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Logical {
    /// Every rank gets the sum.
    AllReduce,
    /// Every rank gets every shard; bytes are those of the whole.
    AllGather,
    /// Every rank gets the sum of its shard; bytes are those of the whole.
    ReduceScatter,
    /// Every rank sends a row to every other; bytes are those of all rows of a
    /// rank, its own included.
    AllToAll,
    /// Rank 0 of a group of two sends to rank 1.
    SendReceive,
}

impl From<Kind> for Logical {
    /// A plan's kind of collective.
    fn from(kind: Kind) -> Logical {
        match kind {
            Kind::AllReduce => Logical::AllReduce,
            Kind::AllGather => Logical::AllGather,
            Kind::ReduceScatter => Logical::ReduceScatter,
            Kind::AllToAll => Logical::AllToAll,
            Kind::SendRecv => Logical::SendReceive,
        }
    }
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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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

    /// A kernel whose regions lie in pinned host memory.
    pub fn over_host(schedule: Schedule) -> Lowering {
        let through_host = vec![true; schedule.ranks * schedule.ranks];
        Lowering { schedule, kernel: Kernel::Custom, through_host }
    }

    /// The same for a group inside a larger one; see [`Schedule::among`].
    #[must_use]
    pub fn among(self, members: &[usize], ranks: usize) -> Lowering {
        let mut through_host = Vec::new();
        if !self.through_host.is_empty() {
            through_host.resize(ranks * ranks, false);
            for (source, &from) in members.iter().enumerate() {
                for (target, &to) in members.iter().enumerate() {
                    if let Some(place) = through_host.get_mut(from * ranks + to) {
                        *place = self.staged(source, target);
                    }
                }
            }
        }
        Lowering { schedule: self.schedule.among(members, ranks), kernel: self.kernel, through_host }
    }

    /// Two collectives of disjoint groups that run at once; both are lowerings
    /// among the same ranks (see [`Lowering::among`]).
    #[must_use]
    pub fn beside(self, other: Lowering) -> Lowering {
        let pairs = self.through_host.len().max(other.through_host.len());
        let staged = |list: &[bool], pair: usize| list.get(pair).copied().unwrap_or(false);
        let through_host = (0..pairs).map(|pair| staged(&self.through_host, pair) || staged(&other.through_host, pair)).collect();
        Lowering { schedule: self.schedule.beside(other.schedule), kernel: self.kernel, through_host }
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
    /// What the model holds.
    pub modelled: &'static str,
    /// What is left out of the model.
    pub not_modelled: &'static [&'static str],
    /// What must hold for it to run at all.
    pub needs: &'static [Need],
    /// Software that leaves it aside without an error.
    pub declines: &'static [Decline],
    /// Variables of NCCL that it sets.
    pub environment: &'static [(&'static str, &'static str)],
    /// Flags of the engine.
    pub flags: &'static [&'static str],
    /// Whether the residual add and the norm after an all-reduce are part of its kernel.
    pub fuses_norm: bool,
    /// How a model is split over that many ranks.
    pub partition: fn(u32) -> Partition,
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

    /// What will leave the strategy aside on this machine without an error, and
    /// how to see it: to be shown wherever the strategy is advised.
    pub fn notes(&self, context: &Context<'_>) -> Vec<String> {
        self.declines.iter().filter_map(|decline| decline.note(context)).collect()
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
    [
        nccl_family::ALL,
        nccl_graph::ALL,
        custom::ALL,
        two_hops::ALL,
        island_family::ALL,
        packets::ALL,
        fused::ALL,
        refused::ALL,
        partitioned::ALL,
    ]
    .into_iter()
    .flatten()
}
