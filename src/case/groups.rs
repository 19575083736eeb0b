//! Which ranks a plan's collective is lowered for: a stage, or the pairs that
//! hand one stage's result to the next.

use std::collections::BTreeMap;

use crate::error::Fault;
use crate::error::Result;
use crate::plan::Partition;
use crate::plan::RankClass;
use crate::strategy::Context;
use crate::strategy::Logical;
use crate::strategy::Lowering;
use crate::strategy::Strategy;

/// A collective of a stage's ranks, or what a stage hands to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Message {
    /// What it does.
    pub logical: Logical,
    /// As [`crate::plan::Collective`] counts them.
    pub bytes: u64,
    /// Which stage's.
    pub stage: u32,
}

/// The groups of a partition, each with its own communicators.
pub struct Groups<'a> {
    whole: &'a Context<'a>,
    partition: Partition,
    row_bytes: u64,
    known: BTreeMap<Vec<usize>, Context<'a>>,
}

impl<'a> Groups<'a> {
    /// Those of a partition; `whole` has all of its ranks. A token's activations have `row_bytes`.
    ///
    /// # Errors
    /// `partition-ranks` when the context has another number of them.
    pub fn new(whole: &'a Context<'a>, partition: Partition, row_bytes: u64) -> Result<Groups<'a>> {
        if whole.ranks as u64 != u64::from(partition.ranks()) {
            let (tp, pp) = (partition.tp, partition.pp);
            return Err(Fault::new("partition-ranks", format!("TP {tp} × PP {pp} does not split {} ranks", whole.ranks)));
        }
        Ok(Groups { whole, partition, row_bytes, known: BTreeMap::new() })
    }

    /// How a strategy carries a message out.
    ///
    /// # Errors
    /// What lowering can meet.
    pub fn message(&mut self, strategy: &Strategy, message: Message) -> Result<Lowering> {
        if message.logical == Logical::SendReceive {
            return self.hand_over(strategy, message);
        }
        let seats = self.partition.stage_ranks(message.stage).map(|rank| rank as usize).collect();
        self.lower(seats, strategy, message.logical, message.bytes)
    }

    /// Every rank of a stage sends to its counterpart in the next one, all at once.
    fn hand_over(&mut self, strategy: &Strategy, message: Message) -> Result<Lowering> {
        let tp = self.partition.tp as usize;
        let mut all: Option<Lowering> = None;
        for rank in self.partition.stage_ranks(message.stage) {
            let rank = rank as usize;
            let pair = self.lower(vec![rank, rank + tp], strategy, message.logical, message.bytes)?;
            all = Some(match all {
                Some(before) => before.beside(pair),
                None => pair,
            });
        }
        all.ok_or_else(|| Fault::new("partition-ranks", "a stage has no ranks"))
    }

    /// Among some of the ranks, numbered as the whole numbers them.
    fn lower(&mut self, seats: Vec<usize>, strategy: &Strategy, logical: Logical, bytes: u64) -> Result<Lowering> {
        // Kernels that normalise deal their blocks by tokens; the others share the caller's communicators.
        if seats.len() == self.whole.ranks && !strategy.fuses_norm {
            return (strategy.lower)(self.whole, strategy, logical, bytes);
        }
        let (whole, row_bytes) = (self.whole, self.row_bytes);
        let context = self.known.entry(seats.clone()).or_insert_with(|| {
            let members = seats.iter().filter_map(|&seat| whole.members.get(seat).copied()).collect();
            whole.among(members).with_rows(row_bytes)
        });
        Ok((strategy.lower)(context, strategy, logical, bytes)?.among(&seats, whole.ranks))
    }
}

/// Classes by stage: those of one stage go through the same blocks in step.
pub fn stages(classes: &[RankClass]) -> Vec<Vec<&RankClass>> {
    let mut stages: BTreeMap<u32, Vec<&RankClass>> = BTreeMap::new();
    for class in classes {
        stages.entry(class.stage).or_default().push(class);
    }
    stages.into_values().collect()
}

/// Bit `r` for each rank of the classes.
pub fn members(classes: &[&RankClass]) -> u64 {
    classes.iter().flat_map(|class| &class.ranks).fold(0, |set, rank| set | 1 << rank)
}
