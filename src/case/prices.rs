//! Collectives priced for a machine, kept for other questions about it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Result;
use crate::machine::Machine;
use crate::plan::Kind;
use crate::plan::Partition;
use crate::simulate::Timed;
use crate::simulate::apart::Probe;
use crate::strategy::Context;
use crate::strategy::Kernel;
use crate::strategy::Lowering;
use crate::strategy::Strategy;

use super::pricing::price;
use super::roads::Roads;

/// Steps of all kept collectives together; one step has some 100 B.
const STEPS_MAX: usize = 300_000;

/// A collective with its costs.
#[derive(Clone)]
pub struct Priced {
    /// For the simulator.
    pub timed: Arc<Timed>,
    /// The courses it has taken.
    pub probe: Arc<Probe>,
}

/// What a lowering follows from on one machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    strategy: &'static str,
    kind: Kind,
    bytes: u64,
    stage: u32,
    partition: Partition,
    members: Vec<usize>,
    row_bytes: u64,
    environment: BTreeMap<String, String>,
    nccl: Option<crate::nccl::Version>,
}

impl Asked {
    /// For the ranks, variables and versions of a context, and a token's bytes.
    pub fn of(context: &Context<'_>, partition: Partition, row_bytes: u64) -> Asked {
        Asked {
            strategy: "",
            kind: Kind::AllReduce,
            bytes: 0,
            stage: 0,
            partition,
            members: context.members.clone(),
            row_bytes,
            environment: context.environment.clone(),
            nccl: context.nccl,
        }
    }

    /// A stage's collective under a strategy.
    #[must_use]
    pub fn with(&self, strategy: &Strategy, kind: Kind, bytes: u64, stage: u32) -> Asked {
        Asked { strategy: strategy.id, kind, bytes, stage, ..self.clone() }
    }
}

/// What tells most lowerings apart: bytes, and how many connections, blocks and steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Outline {
    bytes: u64,
    connections: usize,
    blocks: usize,
    steps: usize,
}

impl Outline {
    fn of(lowering: &Lowering) -> Outline {
        let schedule = &lowering.schedule;
        Outline {
            bytes: schedule.user_bytes,
            connections: schedule.connections.len(),
            blocks: schedule.blocks.len(),
            steps: schedule.blocks.iter().map(|block| block.steps.len()).sum(),
        }
    }
}

/// For one machine with its numbers; make new ones for another.
pub struct Prices {
    /// Links and the routes that have been asked for.
    pub roads: Roads,
    asked: BTreeMap<Asked, Priced>,
    /// By what is quickly compared: other variables often lower to the same schedule.
    priced: BTreeMap<Outline, Vec<(Lowering, Priced)>>,
    steps: usize,
}

impl Prices {
    /// Nothing asked yet.
    pub fn new(roads: Roads) -> Prices {
        Prices { roads, asked: BTreeMap::new(), priced: BTreeMap::new(), steps: 0 }
    }

    /// A collective, lowered and priced once; `lower` is what `asked` says.
    ///
    /// # Errors
    /// What lowering and pricing can meet.
    pub fn of(&mut self, machine: &Machine, asked: Asked, lower: impl FnOnce() -> Result<Lowering>) -> Result<Priced> {
        if let Some(known) = self.asked.get(&asked) {
            return Ok(known.clone());
        }
        let lowering = lower()?;
        let outline = Outline::of(&lowering);
        let alike = self.priced.get(&outline).into_iter().flatten();
        let priced = match alike.into_iter().find(|(known, _)| *known == lowering) {
            Some((_, priced)) => priced.clone(),
            None => self.price(machine, outline, lowering)?,
        };
        self.asked.insert(asked, priced.clone());
        Ok(priced)
    }

    fn price(&mut self, machine: &Machine, outline: Outline, lowering: Lowering) -> Result<Priced> {
        let mut timed = price(machine, &mut self.roads, &lowering)?;
        if lowering.kernel == Kernel::None {
            timed.launches = 0;
        }
        self.steps += timed.steps.len();
        if self.steps > STEPS_MAX {
            self.steps = timed.steps.len();
            self.asked.clear();
            self.priced.clear();
        }
        let timed = Arc::new(timed);
        let probe = Arc::new(Probe::new(Arc::clone(&timed), self.roads.network.clone()));
        let priced = Priced { timed, probe };
        self.priced.entry(outline).or_default().push((lowering, priced.clone()));
        Ok(priced)
    }
}
