//! A thread block's way through one step: arm, begin, end.

use std::cmp::Reverse;

use super::engine::{Engine, START_OF_STEP};
use super::stamp::{Part, Stamp};
use super::state::{Layout, Phase};
use super::timed::{Timed, TimedConnection, TimedStep, index32};

const PICO: u128 = 1_000_000_000_000;

/// A step with what it refers to.
#[derive(Clone, Copy)]
struct Context<'a> {
    timed: &'a Timed,
    step: &'a TimedStep,
    layout: Layout,
}

impl<'a> Context<'a> {
    fn receives(&self) -> &'a [u32] {
        &self.timed.lists[self.step.receive.0 as usize..self.step.receive.1 as usize]
    }

    fn sends(&self) -> &'a [u32] {
        &self.timed.lists[self.step.send.0 as usize..self.step.send.1 as usize]
    }

    /// The connection's costs and its index in the state.
    fn connection(&self, connection: u32) -> (&'a TimedConnection, usize) {
        (&self.timed.connections[connection as usize], (self.layout.connection + connection) as usize)
    }

    /// The slot of a connection's message in the state.
    fn slot(&self, connection: &TimedConnection, message: u64) -> usize {
        (self.layout.slot + connection.slot) as usize + (message % u64::from(connection.credits)) as usize
    }
}

impl<'a> Engine<'a> {
    fn context(&self, block: usize) -> Context<'a> {
        let collective = self.state.collective_of[block] as usize;
        let timed = &self.program.collectives[collective];
        Context { timed, step: &timed.steps[self.state.blocks[block].step as usize], layout: self.state.layouts[collective] }
    }

    /// Finds out when the block's step can start, if all that it needs is known.
    pub(super) fn arm_step(&mut self, block: usize) {
        let context = self.context(block);
        let mut start = self.state.blocks[block].ready.after(Part::Step, context.step.cost.entry);
        for &connection in context.sends() {
            let (timed, index) = context.connection(connection);
            let state = &mut self.state.connections[index];
            if state.sent >= state.freed + u64::from(timed.credits) {
                state.sender = Some(index32(block));
                return;
            }
            if state.sent >= u64::from(timed.credits) {
                start = start.max(self.state.slots[context.slot(timed, state.sent)].freed);
            }
        }
        for &connection in context.receives() {
            let (timed, index) = context.connection(connection);
            if timed.pulled {
                continue;
            }
            let state = &mut self.state.connections[index];
            let arrived = (state.received < state.sent).then(|| self.state.slots[context.slot(timed, state.received)]);
            let seen = arrived.and_then(|slot| if timed.cuts_through { Some(slot.first) } else { slot.last });
            let Some(arrival) = seen else {
                state.receiver = Some(index32(block));
                return;
            };
            start = start.max(arrival.after(Part::Poll, timed.poll));
        }
        let state = &mut self.state.blocks[block];
        state.phase = Phase::Armed;
        state.start = start;
        self.heap.push(Reverse((start.time, START_OF_STEP + block as u64)));
    }

    /// The step starts: its messages and reads are under way from now on.
    pub(super) fn begin_step(&mut self, block: usize) {
        let context = self.context(block);
        let start = self.state.blocks[block].start;
        self.state.blocks[block].phase = Phase::Running;
        let cost = context.step.cost;
        for &connection in context.sends() {
            let (timed, index) = context.connection(connection);
            let slot = self.open_slot(&context, timed, index);
            let first = start.after(Part::Work, cost.first).after(Part::Latency, timed.latency);
            let cap = if cost.work == 0 { u64::MAX } else { saturating_rate(context.step.wire, cost.work) };
            self.send(slot, start, cost.work, timed.route, context.step.wire, cap);
            self.state.slots[slot].first = first;
            self.wake_receiver(index);
        }
        for &connection in context.receives() {
            let (timed, index) = context.connection(connection);
            if timed.pulled {
                let slot = self.open_slot(&context, timed, index);
                self.state.slots[slot].done = Some(start);
                self.send(slot, start, 0, timed.route, context.step.wire, context.step.pull_rate);
                self.settle(slot);
            } else if let Some(fetch) = timed.fetch {
                let slot = context.slot(timed, self.state.connections[index].received);
                if context.step.fetch_wire == 0 {
                    self.state.slots[slot].fetched = Some(start);
                } else {
                    self.state.slots[slot].fetching = start;
                    let fetch_slot = index32(slot + self.state.slots.len());
                    let wire = context.step.fetch_wire;
                    self.state.fabric.start(&self.program.network, fetch_slot, fetch.route, wire, fetch.rate, start.time);
                }
            }
        }
        self.end_step(block);
    }

    /// Takes the next message slot of a connection.
    fn open_slot(&mut self, context: &Context<'a>, timed: &TimedConnection, index: usize) -> usize {
        let state = &mut self.state.connections[index];
        let slot = context.slot(timed, state.sent);
        state.sent += 1;
        let place = &mut self.state.slots[slot];
        (place.done, place.flowed, place.last, place.fetched) = (None, None, None, None);
        slot
    }

    fn send(&mut self, slot: usize, start: Stamp, work: u64, route: u32, wire: u64, cap: u64) {
        let place = &mut self.state.slots[slot];
        place.sent = start;
        place.work = work;
        if wire == 0 {
            place.flowed = Some(start);
        } else {
            self.state.fabric.start(&self.program.network, index32(slot), route, wire, cap, start.time);
        }
    }

    /// A flow's end, unless its rate has changed since the event was made.
    pub(super) fn end_flow(&mut self, flow_slot: u32) {
        let flow = self.state.fabric.flows[flow_slot as usize];
        if !flow.active || flow.end != self.state.now {
            return;
        }
        self.state.fabric.finish(&self.program.network, flow_slot);
        let slots = self.state.slots.len();
        if (flow_slot as usize) < slots {
            let place = &mut self.state.slots[flow_slot as usize];
            // What the source's own pace explains is work, the rest is bandwidth.
            let elapsed = self.state.now - place.sent.time;
            let work = place.work.min(elapsed);
            place.flowed = Some(place.sent.after(Part::Work, work).after(Part::Wire, elapsed - work));
            self.settle(flow_slot as usize);
        } else {
            let slot = flow_slot as usize - slots;
            let place = &mut self.state.slots[slot];
            place.fetched = Some(place.fetching.until(Part::Wire, self.state.now));
            self.wake_receiver(self.state.connection_of[slot] as usize);
        }
    }

    /// Once a message has left its sender and the links, its arrival is known.
    fn settle(&mut self, slot: usize) {
        let place = self.state.slots[slot];
        let (Some(done), Some(flowed)) = (place.done, place.flowed) else { return };
        let index = self.state.connection_of[slot] as usize;
        self.state.slots[slot].last = Some(done.max(flowed).after(Part::Latency, self.latency_of(index)));
        self.wake_receiver(index);
    }

    fn latency_of(&self, index: usize) -> u64 {
        let collective = self.state.layouts.partition_point(|layout| layout.connection as usize <= index) - 1;
        let local = index - self.state.layouts[collective].connection as usize;
        self.program.collectives[collective].connections[local].latency
    }

    fn wake_receiver(&mut self, index: usize) {
        if let Some(block) = self.state.connections[index].receiver.take() {
            self.pending.push(block);
        }
    }

    /// Ends the step if the ends of all its arrivals are known.
    pub(super) fn end_step(&mut self, block: usize) {
        let context = self.context(block);
        let cost = context.step.cost;
        let start = self.state.blocks[block].start;
        let mut done = start.after(Part::Work, cost.work);
        for &connection in context.receives() {
            let (timed, index) = context.connection(connection);
            let state = &mut self.state.connections[index];
            let slot = self.state.slots[context.slot(timed, state.received)];
            let fetched = if timed.fetch.is_some() { slot.fetched } else { Some(Stamp::default()) };
            let (Some(last), Some(fetched)) = (slot.last, fetched) else {
                state.receiver = Some(index32(block));
                return;
            };
            done = done.max(last.after(Part::Poll, timed.poll).after(Part::Work, cost.tail));
            if let Some(fetch) = timed.fetch {
                done = done.max(fetched.after(Part::Latency, fetch.latency));
            }
        }
        self.complete(&context, block, done);
    }

    fn complete(&mut self, context: &Context<'a>, block: usize, done: Stamp) {
        let cost = context.step.cost;
        let ready = done.after(Part::Step, cost.exit);
        for &connection in context.receives() {
            let (timed, index) = context.connection(connection);
            let state = &mut self.state.connections[index];
            let slot = context.slot(timed, state.received);
            self.state.slots[slot].freed = ready.after(Part::Credit, timed.credit);
            state.received += 1;
            state.freed += 1;
            if let Some(sender) = state.sender.take() {
                self.pending.push(sender);
            }
        }
        let released = done.after(Part::Fence, cost.fence);
        for &connection in context.sends() {
            let (timed, index) = context.connection(connection);
            let slot = context.slot(timed, self.state.connections[index].sent - 1);
            self.state.slots[slot].done = Some(released);
            self.settle(slot);
        }
        let state = &mut self.state.blocks[block];
        state.ready = ready;
        state.step += 1;
        let collective = self.state.collective_of[block] as usize;
        let local = block - self.state.layouts[collective].block as usize;
        if state.step == context.timed.blocks[local].steps.1 {
            self.block_ended(block);
        } else {
            state.phase = Phase::Waiting;
            self.pending.push(index32(block));
        }
    }
}

/// The rate that moves `bytes` in `ps`, rounded up so that the flow does not
/// outlast the work it stands for.
fn saturating_rate(bytes: u64, ps: u64) -> u64 {
    u64::try_from((u128::from(bytes) * PICO).div_ceil(u128::from(ps))).unwrap_or(u64::MAX)
}
