//! Collectives under many strategies, of which few are simulated: each has a
//! bound from below as soon as it is lowered, and its time when it is asked for.

use std::collections::BTreeMap;
use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::sync::Arc;

use crate::error::Result;
use crate::machine::Machine;
use crate::machine::Routes;
use crate::strategy::Context;
use crate::strategy::Kernel;
use crate::strategy::Lowering;
use crate::units::Time;

use super::bound::least;
use super::pieces::simulated_time;
use super::pricing::price;
use super::roads::Roads;

/// Which of the lowered collectives; equal ones are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offer(usize);

/// What is known of one.
struct Known {
    least: Time,
    time: Option<Time>,
}

/// Collectives lowered on one machine.
pub struct Offers<'a> {
    machine: &'a Machine,
    roads: Roads,
    gap: Time,
    /// By two hashes of the lowering: schedules themselves would fill the memory.
    found: BTreeMap<[u64; 2], Offer>,
    known: Vec<Known>,
    /// How many were simulated.
    pub simulated: u64,
}

impl<'a> Offers<'a> {
    /// None yet.
    pub fn new(machine: &'a Machine, routes: Arc<Routes>) -> Offers<'a> {
        let gap = machine.gpu_kind(0).map_or(Time::ZERO, |kind| Time::from_ns(kind.launch.graph_gap_ns.value));
        Offers { machine, roads: Roads::new(machine, routes), gap, found: BTreeMap::new(), known: Vec::new(), simulated: 0 }
    }

    /// One more, or the one that is equal.
    ///
    /// # Errors
    /// What pricing can meet.
    pub fn add(&mut self, lowering: &Lowering) -> Result<Offer> {
        let hash = [0u8, 1].map(|salt| {
            let mut hasher = DefaultHasher::new();
            (salt, lowering).hash(&mut hasher);
            hasher.finish()
        });
        if let Some(&known) = self.found.get(&hash) {
            return Ok(known);
        }
        let known = if lowering.schedule.blocks.is_empty() || lowering.kernel == Kernel::None {
            Known { least: Time::ZERO, time: None }
        } else {
            let timed = price(self.machine, &mut self.roads, lowering)?;
            let bound = Time(least(&timed, &self.roads.network));
            Known { least: bound + self.gap.times(u64::from(timed.launches)), time: None }
        };
        let offer = Offer(self.known.len());
        self.known.push(known);
        self.found.insert(hash, offer);
        Ok(offer)
    }

    /// How many differ.
    pub fn count(&self) -> u64 {
        self.known.len() as u64
    }

    /// At most [`Offers::time`].
    pub fn least(&self, offer: Offer) -> Time {
        self.known[offer.0].time.unwrap_or(self.known[offer.0].least)
    }

    /// Its time, if it has been simulated.
    pub fn known(&self, offer: Offer) -> Option<Time> {
        self.known[offer.0].time
    }

    /// What it takes alone, all ranks starting together, the gap before its kernel included;
    /// `lower` makes the lowering again.
    ///
    /// # Errors
    /// What lowering and simulating can meet.
    pub fn time(&mut self, offer: Offer, context: &Context<'_>, lower: impl FnOnce() -> Result<Lowering>) -> Result<Time> {
        if let Some(time) = self.known[offer.0].time {
            return Ok(time);
        }
        let time = simulated_time(context, &lower()?)?;
        self.known[offer.0].time = Some(time);
        self.simulated += 1;
        Ok(time)
    }
}
