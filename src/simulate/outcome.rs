//! What a simulation returns.

use super::stamp::Stamp;

/// The result of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// When each rank ended, and on what its critical path spent the time.
    pub ends: Vec<Stamp>,
    /// Per collective of the program.
    pub totals: Vec<CollectiveTotals>,
    /// Bytes that each directed link carried.
    pub carried: Vec<u64>,
    /// Operations in the order (sequence entry, repeat, operation, rank), if asked for.
    pub records: Vec<Record>,
    /// Events that were really processed; reuse lowers it and nothing else.
    pub events: u64,
}

impl Outcome {
    /// The rank that ends last; the first of several.
    pub fn critical(&self) -> Stamp {
        self.ends.iter().fold(Stamp::default(), |latest, &end| latest.max(end))
    }
}

/// Sums over the instances of one collective.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectiveTotals {
    /// Instances.
    pub count: u64,
    /// Σ (last end − last arrival), picoseconds.
    pub busy: u64,
    /// Σ (last arrival − first arrival), picoseconds.
    pub skew: u64,
    /// Σ over the ranks of (last arrival − own arrival), picoseconds.
    pub waited: u64,
    /// Σ over the ranks of (own end − own arrival), picoseconds.
    pub spent: u64,
    /// Σ over the ranks of the part of that during which they computed beside it, picoseconds.
    pub hidden: u64,
}

/// One operation of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    /// Entry of the sequence.
    pub entry: u32,
    /// Which repetition.
    pub repeat: u32,
    /// Which operation of the template.
    pub operation: u32,
    /// Rank.
    pub rank: u32,
    /// Start (of the kernel, after the launch gap), picoseconds.
    pub start: u64,
    /// End, picoseconds.
    pub end: u64,
}
