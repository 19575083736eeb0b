//! The least time that a collective can take: what no schedule of the links
//! can undercut, found without an event loop.
//!
//! Two bounds, the larger one counts. Each link carries its bytes one after
//! another. And each step follows the steps that it waits for, every flow being
//! as fast as its source and the narrowest link of its way let it be alone: the
//! rules are those of the event loop, in which sharing a link only delays a flow
//! and a delay never makes a later one start earlier.

use std::collections::VecDeque;

use crate::simulate::Leg;
use crate::simulate::Network;
use crate::simulate::Timed;
use crate::simulate::timed::TimedStep;

use super::loads::by_link;

/// Picoseconds of a second.
const PICO: u128 = 1_000_000_000_000;

/// From all ranks' arrival at once to the last one's end, in picoseconds: at most what
/// simulating takes.
pub fn least(timed: &Timed, network: &Network) -> u64 {
    let begins = (0..timed.ranks).filter(|&rank| timed.rank_blocks[rank] < timed.rank_blocks[rank + 1]);
    let Some(begin) = begins.map(|rank| timed.start[rank]).min() else { return 0 };
    let bytes = by_link(timed, network);
    let busiest = bytes.iter().zip(&network.capacity).map(|(&bytes, &rate)| span(bytes, rate)).max().unwrap_or(0);
    let longest = Paths::new(timed, network).longest().unwrap_or(0);
    (begin + busiest + timed.finish).max(longest)
}

/// Rounded down, as a bound from below has to be.
fn span(bytes: u64, rate: u64) -> u64 {
    u64::try_from(u128::from(bytes) * PICO / u128::from(rate.max(1))).unwrap_or(u64::MAX / 4)
}

/// A message that has been begun.
#[derive(Clone, Copy)]
struct Message {
    sent: u64,
    first: u64,
    /// When its bytes have left, the links' pace alone counted.
    flowed: u64,
    /// Its last byte's arrival, once known.
    arrived: Option<u64>,
}

/// A connection's messages in order.
#[derive(Clone, Default)]
struct Connection {
    messages: Vec<Message>,
    /// When the sender knows of each slot that is free again.
    freed: Vec<u64>,
    sender: Option<u32>,
    receiver: Option<u32>,
}

#[derive(Clone, Copy)]
struct Block {
    step: u32,
    /// The leg whose time is not known yet.
    leg: u32,
    running: bool,
    start: u64,
    done: u64,
}

/// The longest path through a collective's steps.
struct Paths<'a> {
    timed: &'a Timed,
    network: &'a Network,
    blocks: Vec<Block>,
    connections: Vec<Connection>,
    /// Blocks to look at again.
    pending: VecDeque<u32>,
}

impl Paths<'_> {
    fn new<'a>(timed: &'a Timed, network: &'a Network) -> Paths<'a> {
        let mut connections = vec![Connection::default(); timed.connections.len()];
        let mut blocks = Vec::with_capacity(timed.blocks.len());
        for (index, block) in (0u32..).zip(&timed.blocks) {
            let begin = timed.start[block.rank as usize];
            let entry = timed.steps.get(block.steps.0 as usize).map_or(0, |step| step.cost.entry);
            let leg = timed.steps.get(block.steps.0 as usize).map_or(0, |step| step.receive.0);
            blocks.push(Block { step: block.steps.0, leg, running: false, start: begin + entry, done: begin });
            for step in &timed.steps[block.steps.0 as usize..block.steps.1 as usize] {
                for leg in &timed.legs[step.receive.0 as usize..step.receive.1 as usize] {
                    connections[leg.connection as usize].receiver = Some(index);
                }
                for leg in &timed.legs[step.send.0 as usize..step.send.1 as usize] {
                    connections[leg.connection as usize].sender = Some(index);
                }
            }
        }
        let pending = (0..timed.blocks.len() as u32).collect();
        Paths { timed, network, blocks, connections, pending }
    }

    /// The last rank's end; None where blocks wait for one another for good.
    fn longest(mut self) -> Option<u64> {
        while let Some(block) = self.pending.pop_front() {
            self.advance(block as usize);
        }
        let done = (self.blocks.iter().zip(&self.timed.blocks)).map(|(state, block)| (state.step == block.steps.1).then_some(state.done));
        done.collect::<Option<Vec<u64>>>()?.into_iter().max().map(|done| done + self.timed.finish)
    }

    /// Takes a block as far as is known.
    fn advance(&mut self, index: usize) {
        let last = self.timed.blocks[index].steps.1;
        while self.blocks[index].step < last {
            let step = self.timed.steps[self.blocks[index].step as usize];
            if !self.blocks[index].running {
                if !self.armed(index, &step) {
                    return;
                }
                self.begin(index, &step);
            }
            if !self.arrived(index, &step) {
                return;
            }
            self.complete(index, &step);
        }
    }

    /// Whether all that the step's start rests on is known.
    fn armed(&mut self, index: usize, step: &TimedStep) -> bool {
        let state = &mut self.blocks[index];
        while state.leg < step.send.1 {
            let connection = self.timed.legs[state.leg as usize].connection as usize;
            let (fixed, at) = (&self.timed.connections[connection], &self.connections[connection]);
            if state.leg >= step.receive.1 {
                if let Some(used) = at.messages.len().checked_sub(fixed.credits as usize) {
                    let Some(&freed) = at.freed.get(used) else { return false };
                    state.start = state.start.max(freed);
                }
            } else if !fixed.pulled {
                let Some(message) = at.messages.get(at.freed.len()) else { return false };
                let seen = if fixed.cuts_through {
                    message.sent + message.first + fixed.latency
                } else {
                    let Some(arrived) = message.arrived else { return false };
                    arrived
                };
                state.start = state.start.max(seen + fixed.poll);
            }
            state.leg += 1;
        }
        true
    }

    fn begin(&mut self, index: usize, step: &TimedStep) {
        let state = &mut self.blocks[index];
        (state.running, state.leg) = (true, step.receive.0);
        state.done = state.start + step.cost.work;
        let start = state.start;
        for leg in &self.timed.legs[step.send.0 as usize..step.send.1 as usize] {
            let flowed = start + self.flow(leg, 1);
            let at = &mut self.connections[leg.connection as usize];
            at.messages.push(Message { sent: start, first: step.cost.first, flowed, arrived: None });
            self.pending.extend(at.receiver);
        }
        for leg in &self.timed.legs[step.receive.0 as usize..step.receive.1 as usize] {
            let fixed = &self.timed.connections[leg.connection as usize];
            if fixed.pulled {
                let flowed = start + self.flow(leg, 1);
                let arrived = Some(flowed + fixed.latency);
                self.connections[leg.connection as usize].messages.push(Message { sent: start, first: 0, flowed, arrived });
            }
        }
    }

    /// Whether the ends of all that the step receives are known.
    fn arrived(&mut self, index: usize, step: &TimedStep) -> bool {
        while self.blocks[index].leg < step.receive.1 {
            let state = self.blocks[index];
            let leg = self.timed.legs[state.leg as usize];
            let (fixed, at) = (&self.timed.connections[leg.connection as usize], &self.connections[leg.connection as usize]);
            let Some(arrived) = at.messages.get(at.freed.len()).and_then(|message| message.arrived) else { return false };
            let mut done = state.done.max(arrived + fixed.poll + step.cost.tail);
            if let (Some(fetch), false) = (fixed.fetch, fixed.pulled) {
                done = done.max(state.start + self.flow(&leg, fetch.times) + fetch.latency);
            }
            (self.blocks[index].done, self.blocks[index].leg) = (done, state.leg + 1);
        }
        true
    }

    fn complete(&mut self, index: usize, step: &TimedStep) {
        let done = self.blocks[index].done;
        for leg in &self.timed.legs[step.receive.0 as usize..step.receive.1 as usize] {
            let (fixed, at) = (&self.timed.connections[leg.connection as usize], &mut self.connections[leg.connection as usize]);
            at.freed.push(done + step.cost.exit + fixed.credit);
            self.pending.extend(at.sender);
        }
        for leg in &self.timed.legs[step.send.0 as usize..step.send.1 as usize] {
            let (fixed, at) = (&self.timed.connections[leg.connection as usize], &mut self.connections[leg.connection as usize]);
            if let Some(message) = at.messages.last_mut() {
                message.arrived = Some((done + step.cost.fence).max(message.flowed) + fixed.latency);
            }
            self.pending.extend(at.receiver);
        }
        let state = &mut self.blocks[index];
        (state.step, state.running, state.done) = (state.step + 1, false, done + step.cost.exit);
        state.start = state.done;
        if let Some(next) = self.timed.steps.get(state.step as usize) {
            (state.start, state.leg) = (state.done + next.cost.entry, next.receive.0);
        }
    }

    /// What moves a leg's bytes, so many times, alone on its way.
    fn flow(&self, leg: &Leg, times: u64) -> u64 {
        let Some(flow) = self.timed.flows.get(leg.flow as usize) else { return 0 };
        let narrowest = self.network.links(flow.route).iter().map(|&link| self.network.capacity[link as usize]).min();
        span(leg.wire.saturating_mul(times), flow.rate.min(narrowest.unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::chain;
    use crate::case::pricing::price;
    use crate::case::roads::Roads;
    use crate::machine::Machine;
    use crate::strategy;
    use crate::strategy::Context;
    use crate::strategy::Kernel;
    use crate::strategy::Logical;

    /// Never above what is simulated, over every strategy; and near it, or it would be of no use.
    #[test]
    fn no_collective_is_faster_than_its_bound() {
        let mut near = (0, 0);
        for (id, ranks) in [("8x-rtx-pro-6000-server", 8), ("4x-rtx-pro-6000-one-chip", 4), ("8x-rtx-pro-6000-turin-direct", 8)] {
            let machine = Machine::load(id).expect("built in");
            let context = Context::new(&machine, ranks);
            let routes = context.searches.routes(&machine);
            for strategy in strategy::all().filter(|strategy| strategy.refusal(&context).is_none()) {
                for (logical, bytes) in [(Logical::AllReduce, 14_336), (Logical::AllReduce, 262_144), (Logical::AllGather, 65_536)] {
                    let Ok(lowering) = (strategy.lower)(&context, strategy, logical, bytes) else { continue };
                    if lowering.kernel == Kernel::None {
                        continue;
                    }
                    let mut roads = Roads::new(&machine, routes.clone());
                    let timed = price(&machine, &mut roads, &lowering).expect("priced");
                    let bound = least(&timed, &roads.network);
                    let program = chain::program(&machine, &lowering, chain::ChainLaunch::Graph, 1).expect("a program");
                    let simulated = chain::time(&program).expect("runs").0 - program.launch.gap() * u64::from(timed.launches);
                    assert!(bound <= simulated, "{id} {} {logical:?} {bytes}: {bound} above {simulated}", strategy.id);
                    near = (near.0 + u32::from(bound * 10 >= simulated * 7), near.1 + 1);
                }
            }
        }
        assert!(near.0 * 4 > near.1 * 3, "only {} of {} bounds are within 30 %", near.0, near.1);
    }
}
