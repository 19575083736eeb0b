//! What each strategy takes for each message: bounds of all, times of those
//! that are asked for.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::case::groups::Groups;
use crate::case::groups::Message;
use crate::case::offers::Offer;
use crate::case::offers::Offers;
use crate::case::pieces::follows;
use crate::error::Fault;
use crate::error::Result;
use crate::machine::Machine;
use crate::plan::Partition;
use crate::strategy::Context;
use crate::strategy::Executor;
use crate::strategy::Kernel;
use crate::strategy::Lowering;
use crate::strategy::Searches;
use crate::strategy::Strategy;
use crate::units::Time;

use super::world::World;

/// Who carries a message: the strategy itself, or NCCL in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deal {
    carrier: &'static str,
    /// Of NCCL; kernels of one's own know none.
    channels: u32,
    partition: Partition,
    message: Message,
    offer: Offer,
    /// Whether NCCL with nothing set stands in.
    pub stands_in: bool,
}

type Key = (Partition, u32, &'static str, Message);

/// Deals made so far on one machine.
pub struct Market<'a> {
    machine: &'a Machine,
    environment: &'a BTreeMap<String, String>,
    /// Of a token's activations.
    row_bytes: u64,
    searches: Searches,
    offers: Offers<'a>,
    contexts: Vec<(Partition, u32, Rc<Context<'a>>)>,
    /// Whether a strategy other than NCCL has a kernel of its own for a message.
    own: BTreeMap<(Partition, &'static str, Message), std::result::Result<bool, String>>,
    deals: BTreeMap<Key, std::result::Result<Deal, String>>,
}

impl<'a> Market<'a> {
    /// Nothing lowered yet.
    pub fn new(machine: &'a Machine, environment: &'a BTreeMap<String, String>, row_bytes: u64) -> Market<'a> {
        let searches = Searches::default();
        let offers = Offers::new(machine, searches.routes(machine));
        Market { machine, environment, row_bytes, searches, offers, contexts: Vec::new(), own: BTreeMap::new(), deals: BTreeMap::new() }
    }

    /// The ranks of a split under so many channels.
    pub fn context(&mut self, partition: Partition, channels: u32) -> Rc<Context<'a>> {
        if let Some((.., known)) = self.contexts.iter().find(|(split, count, _)| (*split, *count) == (partition, channels)) {
            return Rc::clone(known);
        }
        let mut context = Context::new(self.machine, partition.ranks() as usize);
        context.environment = World::environment(channels, self.environment);
        context.searches = self.searches.clone();
        let context = Rc::new(context);
        self.contexts.push((partition, channels, Rc::clone(&context)));
        context
    }

    fn lower(&mut self, partition: Partition, channels: u32, strategy: &Strategy, message: Message) -> Result<Lowering> {
        let context = self.context(partition, channels);
        Groups::new(&context, partition, self.row_bytes)?.message(strategy, message)
    }

    /// How a strategy would carry a message, or why it cannot.
    pub fn deal(
        &mut self,
        partition: Partition,
        channels: u32,
        strategy: &'static Strategy,
        message: Message,
    ) -> std::result::Result<Deal, String> {
        let (carrier, channels, stands_in) = if strategy.executor == Executor::Nccl {
            (strategy, channels, false)
        } else if self.is_own(partition, strategy, message)? {
            (strategy, 0, false)
        } else {
            (follows(strategy, Kernel::Nccl).map_err(|fault| words(&fault))?, channels, true)
        };
        let key = (partition, channels, carrier.id, message);
        if let Some(known) = self.deals.get(&key) {
            return known.clone().map(|deal| Deal { stands_in, ..deal });
        }
        let deal = self.make(partition, channels, carrier, message).map_err(|fault| words(&fault));
        self.deals.insert(key, deal.clone());
        deal.map(|deal| Deal { stands_in, ..deal })
    }

    /// NCCL's variables do not change whether a kernel of one's own serves a message, nor which.
    fn is_own(&mut self, partition: Partition, strategy: &'static Strategy, message: Message) -> std::result::Result<bool, String> {
        let key = (partition, strategy.id, message);
        if let Some(known) = self.own.get(&key) {
            return known.clone();
        }
        let kernel =
            self.lower(partition, 0, strategy, message).map(|lowering| lowering.kernel != Kernel::Nccl).map_err(|fault| words(&fault));
        self.own.insert(key, kernel.clone());
        kernel
    }

    fn make(&mut self, partition: Partition, channels: u32, carrier: &'static Strategy, message: Message) -> Result<Deal> {
        let lowering = self.lower(partition, channels, carrier, message)?;
        let offer = self.offers.add(&lowering)?;
        Ok(Deal { carrier: carrier.id, channels, partition, message, offer, stands_in: false })
    }

    /// At most [`Market::time`].
    pub fn least(&self, deal: &Deal) -> Time {
        self.offers.least(deal.offer)
    }

    /// The time, where it has been simulated.
    pub fn known(&self, deal: &Deal) -> Option<Time> {
        self.offers.known(deal.offer)
    }

    /// What the message takes alone.
    ///
    /// # Errors
    /// What simulating can meet.
    pub fn time(&mut self, deal: &Deal) -> Result<Time> {
        let carrier = Strategy::find(deal.carrier)?;
        let context = self.context(deal.partition, deal.channels);
        let row_bytes = self.row_bytes;
        self.offers.time(deal.offer, &context, || Groups::new(&context, deal.partition, row_bytes)?.message(carrier, deal.message))
    }

    /// Collectives that were simulated, and how many there are that differ.
    pub fn counts(&self) -> (u64, u64) {
        (self.offers.simulated, self.offers.count())
    }
}

fn words(fault: &Fault) -> String {
    fault.message.clone()
}
