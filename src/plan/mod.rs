//! What a pass does: template blocks of operations, how often each repeats,
//! and which ranks run which. Knows neither executor, no cost and no text.
//!
//! A [`Block`] is an acyclic graph of [`Action`]s (petgraph); edges are data
//! dependencies. A [`RankClass`] lists the [`Run`]s (block × repeats) that its
//! ranks go through; [`Plan::expand`] unfolds them for one rank, in canonical
//! order. All ranks of a tensor-parallel group meet in the same collectives,
//! in the same order.
//!
//! Invariants: names are unique within a block; a block's canonical order is
//! topological, ties broken by name, so that the order in which operations
//! were listed reaches neither ids nor the hash; the first operations of a
//! block need the last ones of the block before.

mod block;
mod build;
mod collective;
mod draft;
mod expand;
mod fingerprint;
mod partition;
mod show;

pub use block::Action;
pub use block::Block;
pub use block::BlockBuilder;
pub use block::BlockKind;
pub use block::Slot;
pub use build::Build;
pub use collective::Collective;
pub use collective::Group;
pub use collective::Kind;
pub use collective::Role;
pub use draft::Drafting;
pub use expand::OpId;
pub use expand::Place;
pub use expand::Planned;
pub use partition::ExpertExchange;
pub use partition::Partition;
pub use show::CollectiveCount;
pub use show::Summary;

/// A pass of all ranks, folded.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How the model is split.
    pub partition: Partition,
    /// Sequences × tokens in the pass.
    pub rows: u64,
    /// Layers of the model.
    pub layers: u32,
    /// The templates.
    pub blocks: Vec<Block>,
    /// Who runs what; every rank is in exactly one class.
    pub classes: Vec<RankClass>,
}

/// Index into [`Plan::blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct BlockId(pub u32);

/// Ranks that do the same work on different data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankClass {
    /// Pipeline stage.
    pub stage: u32,
    /// The ranks, ascending.
    pub ranks: Vec<u32>,
    /// What they go through.
    pub runs: Vec<Run>,
}

/// One block, several times in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Which template.
    pub block: BlockId,
    /// Where the first repetition stands; the next ones count up from it.
    pub place: Place,
    /// How many times.
    pub repeats: u32,
}
