//! Collectives priced for a machine, kept for other questions about it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use crate::error::Result;
use crate::machine::Machine;
use crate::plan::Kind;
use crate::plan::Partition;
use crate::simulate::Network;
use crate::simulate::Timed;
use crate::simulate::apart::Probe;
use crate::strategy::Context;
use crate::strategy::Kernel;
use crate::strategy::Lowering;
use crate::strategy::Strategy;

use super::pricing::price;
use super::roads::Roads;

/// Steps of all kept collectives together, as lowered and as simulated; one has some 100 B.
const STEPS_MAX: usize = 1_000_000;

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
    of: Arc<Circumstances>,
}

/// What all collectives of a question have in common.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Circumstances {
    partition: Partition,
    members: Vec<usize>,
    row_bytes: u64,
    environment: BTreeMap<String, String>,
    nccl: Option<crate::nccl::Version>,
}

impl Asked {
    /// For the ranks, variables and versions of a context, and a token's bytes.
    pub fn of(context: &Context<'_>, partition: Partition, row_bytes: u64) -> Asked {
        let of = Circumstances {
            partition,
            members: context.members.clone(),
            row_bytes,
            environment: context.environment.clone(),
            nccl: context.nccl,
        };
        Asked { strategy: "", kind: Kind::AllReduce, bytes: 0, stage: 0, of: Arc::new(of) }
    }

    /// A stage's collective under a strategy.
    #[must_use]
    pub fn with(&self, strategy: &Strategy, kind: Kind, bytes: u64, stage: u32) -> Asked {
        Asked { strategy: strategy.id, kind, bytes, stage, of: Arc::clone(&self.of) }
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

/// For one machine with its numbers; make new ones for another. Threads share
/// them: what one has priced, and the courses it has seen, the others need not.
pub struct Prices(Mutex<Known>);

struct Known {
    /// Links and the routes that have been asked for.
    roads: Roads,
    asked: BTreeMap<Asked, Priced>,
    /// By what is quickly compared: other variables often lower to the same schedule.
    priced: BTreeMap<Outline, Vec<(Lowering, Priced)>>,
    steps: usize,
}

impl Prices {
    /// Nothing asked yet.
    pub fn new(roads: Roads) -> Prices {
        Prices(Mutex::new(Known { roads, asked: BTreeMap::new(), priced: BTreeMap::new(), steps: 0 }))
    }

    /// A collective, lowered and priced once; `lower` is what `asked` says.
    ///
    /// # Errors
    /// What lowering and pricing can meet.
    pub fn of(&self, machine: &Machine, asked: Asked, lower: impl FnOnce() -> Result<Lowering>) -> Result<Priced> {
        if let Some(known) = self.known().asked.get(&asked) {
            return Ok(known.clone());
        }
        // Others go on while this is lowered; who is first prices it.
        let lowering = lower()?;
        let outline = Outline::of(&lowering);
        let mut known = self.known();
        let mut alike = known.priced.get(&outline).into_iter().flatten();
        let priced = match alike.find(|(other, _)| *other == lowering) {
            Some((_, priced)) => priced.clone(),
            None => known.price(machine, outline, lowering)?,
        };
        known.asked.insert(asked, priced.clone());
        Ok(priced)
    }

    /// The links, with the routes that have been asked for so far, and their names.
    pub fn network(&self) -> (Network, Arc<Vec<String>>) {
        let known = self.known();
        (known.roads.network.clone(), Arc::clone(&known.roads.names))
    }

    /// A panic of another thread leaves what is locked whole: entries are added complete.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn price(&mut self, machine: &Machine, outline: Outline, lowering: Lowering) -> Result<Priced> {
        let mut timed = price(machine, &mut self.roads, &lowering)?;
        if lowering.kernel == Kernel::None {
            timed.launches = 0;
        }
        let steps = outline.steps + timed.steps.len();
        self.steps += steps;
        if self.steps > STEPS_MAX {
            self.steps = steps;
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
