//! Unfolding a plan for one rank, in canonical order, with stable ids.

use std::fmt;

use super::Block;
use super::BlockId;
use super::Plan;
use super::RankClass;
use super::block::Action;

/// Where in the pass a block stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Before the first layer.
    Embedding,
    /// The start of a pipeline stage.
    StageEntry(u32),
    /// A layer of the model.
    Layer(u32),
    /// The end of a pipeline stage.
    StageExit(u32),
    /// After the last layer.
    Head,
    /// A draft step.
    Draft(u32),
}

impl Place {
    /// The place `by` repetitions later.
    pub fn plus(self, by: u32) -> Place {
        match self {
            Place::Layer(layer) => Place::Layer(layer + by),
            Place::Draft(step) => Place::Draft(step + by),
            other => other,
        }
    }

    /// The layer, if it is one.
    pub fn layer(self) -> Option<u32> {
        match self {
            Place::Layer(layer) => Some(layer),
            _ => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Embedding => f.write_str("EMB"),
            Place::StageEntry(stage) => write!(f, "IN{stage}"),
            Place::Layer(layer) => write!(f, "L{layer:03}"),
            Place::StageExit(stage) => write!(f, "OUT{stage}"),
            Place::Head => f.write_str("HEAD"),
            Place::Draft(step) => write!(f, "D{step:02}"),
        }
    }
}

/// Names one operation of one rank; independent of listing order and executor.
/// Shown as `L012.attn_allreduce.r3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId {
    /// Where in the pass.
    pub place: Place,
    /// Name within the block.
    pub name: &'static str,
    /// The rank.
    pub rank: u32,
}

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.r{}", self.place, self.name, self.rank)
    }
}

/// One operation of the unfolded plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned<'a> {
    /// Its id.
    pub id: OpId,
    /// What it does.
    pub action: &'a Action,
    /// The template it comes from.
    pub block: BlockId,
    /// Positions in the rank's list that must be done before, ascending, each
    /// below this operation's own.
    pub needs: Vec<u32>,
}

impl Plan {
    /// A template.
    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.0 as usize]
    }

    /// The class of a rank; `None` beyond the last rank.
    pub fn class_of(&self, rank: u32) -> Option<&RankClass> {
        self.classes.iter().find(|class| class.ranks.binary_search(&rank).is_ok())
    }

    /// All operations of one rank in canonical order; empty beyond the last rank.
    pub fn expand(&self, rank: u32) -> Vec<Planned<'_>> {
        let runs = self.class_of(rank).map_or(&[][..], |class| &class.runs);
        let mut list: Vec<Planned> = Vec::new();
        let mut ends: Vec<u32> = Vec::new();
        for run in runs {
            let block = self.block(run.block);
            for repeat in 0..run.repeats {
                let base = list.len() as u32;
                let before = std::mem::take(&mut ends);
                for (index, slot) in block.slots().iter().enumerate() {
                    let action = block.action(slot);
                    let id = OpId { place: run.place.plus(repeat), name: action.name(), rank };
                    let needs = if slot.needs.is_empty() { before.clone() } else { slot.needs.iter().map(|n| n + base).collect() };
                    list.push(Planned { id, action, block: run.block, needs });
                    if slot.last {
                        ends.push(base + index as u32);
                    }
                }
            }
        }
        list
    }
}
