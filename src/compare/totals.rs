//! Sums of one trace: by slot, by rank, by collective.

use std::collections::BTreeMap;

use crate::compare::names::Key;
use crate::compare::spent::Spent;
use crate::compare::spent::add;

/// One operation of one rank, its time told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// How-manyth pass of the trace.
    pub pass: u32,
    /// Rank.
    pub rank: u32,
    /// Id without the rank.
    pub key: Key,
    /// What it is summed under.
    pub slot: u32,
    /// How-manyth of its rank and pass.
    pub place: u32,
    /// Time by portion, the gap before it as launch.
    pub spent: Spent,
}

/// Sums of the operations of one slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotTotal {
    /// Operations, all ranks.
    pub count: u64,
    /// Their time.
    pub spent: Spent,
    /// Gap before and time of those on the critical path.
    pub path: (u64, u64),
}

/// Sums of one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankTotal {
    /// Operations.
    pub count: u64,
    /// Their time, start and end of the pass included.
    pub spent: Spent,
    /// What other ranks waited while this one was the last to arrive.
    pub caused: u64,
    /// The collective at which it was latest, and by how much behind the one before it.
    pub latest: Option<(u64, Key)>,
}

/// One kind of collective.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Operations, all ranks.
    pub count: u64,
    /// From start to end, all ranks: waiting included.
    pub duration: u64,
    /// Of it waiting for the last rank.
    pub skew: u64,
    /// Of it from the last arrival on.
    pub transfer: u64,
    /// Who carried it out: the kernel's name, with what the trace says of it.
    pub source: String,
}

/// All sums of one trace.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// By slot.
    pub slots: Vec<SlotTotal>,
    /// By rank.
    pub ranks: BTreeMap<u32, RankTotal>,
    /// By (name, bytes).
    pub ledger: BTreeMap<(String, u64), Ledger>,
    /// Rows.
    pub rows: u64,
    /// Passes that were finished.
    pub passes: u64,
    /// From the first start to the last end, all passes.
    pub span: u64,
    /// Time of operations that lies under others of the same rank.
    pub overlap: u64,
    /// (passes, rank) pairs that did anything: what sums over ranks are divided by.
    pub rank_passes: u64,
}

impl Totals {
    /// Adds an operation to its slot and rank.
    pub fn add(&mut self, settled: &Settled) {
        let slot = self.slot(settled.slot);
        slot.count += 1;
        add(&mut slot.spent, &settled.spent);
        let rank = self.ranks.entry(settled.rank).or_default();
        rank.count += 1;
        add(&mut rank.spent, &settled.spent);
    }

    /// The sums of a slot, made when new.
    pub fn slot(&mut self, slot: u32) -> &mut SlotTotal {
        let slot = slot as usize;
        if self.slots.len() <= slot {
            self.slots.resize(slot + 1, SlotTotal::default());
        }
        &mut self.slots[slot]
    }
}
