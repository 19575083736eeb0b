//! A thread block's way through one step: arm, begin, end.

use super::engine::{Engine, START_OF_STEP, event};
use super::layout::{Leg, NO_BUNDLE};
use super::stamp::Part;
use super::stamp::Stamp;
use super::state::{Fetching, Phase};
use super::timed::index32;

impl Engine<'_> {
    /// A block is ready for its step: from now on it looks for credits and arrivals.
    pub(super) fn await_step(&mut self, block: usize) {
        let state = &mut self.state.blocks[block];
        let step = &self.layout.steps[state.step as usize];
        state.phase = Phase::Waiting;
        state.start = state.done.after(Part::Step, step.cost.entry);
        // Legs are those received, then those sent.
        state.leg = step.receive.0;
        self.pending.push(index32(block));
    }

    /// Finds out when the block's step can start, if all that it needs is known.
    pub(super) fn arm_step(&mut self, block: usize) {
        let state = &mut self.state.blocks[block];
        let step = &self.layout.steps[state.step as usize];
        while state.leg < step.send.1 {
            let index = self.layout.legs[state.leg as usize].connection as usize;
            let (fixed, at) = (&self.layout.connections[index], &mut self.state.connections[index]);
            if state.leg >= step.receive.1 {
                if at.in_flight == fixed.credits {
                    at.sender = Some(index32(block));
                    return;
                }
                let slot = &self.state.slots[(fixed.slot + at.sends) as usize];
                if slot.freed.time > state.start.time {
                    state.start = slot.freed;
                }
            } else if !fixed.pulled {
                let slot = &self.state.slots[(fixed.slot + at.receives) as usize];
                if at.in_flight == 0 || !(fixed.cuts_through || slot.arrived) {
                    at.receiver = Some(index32(block));
                    return;
                }
                if !fixed.cuts_through {
                    if slot.last.time + fixed.poll > state.start.time {
                        state.start = slot.last.after(Part::Poll, fixed.poll);
                    }
                } else if slot.sent.time + slot.first + fixed.latency + fixed.poll > state.start.time {
                    let first = slot.sent.after(Part::Work, slot.first).after(Part::Latency, fixed.latency);
                    state.start = first.after(Part::Poll, fixed.poll);
                }
            }
            state.leg += 1;
        }
        state.phase = Phase::Armed;
        self.heap.push(event(state.start.time, START_OF_STEP + block as u64));
    }

    /// The step starts: its messages and reads are under way from now on.
    pub(super) fn begin_step(&mut self, block: usize) {
        let state = &mut self.state.blocks[block];
        let step = self.layout.steps[state.step as usize];
        let (start, count) = (state.start, self.layout.blocks[block].count);
        state.phase = Phase::Running;
        state.done = start.after(Part::Work, step.cost.work);
        state.leg = step.receive.0;
        for leg in step.send.0..step.send.1 {
            let leg = self.layout.legs[leg as usize];
            self.open_slot(&leg, count, start, (step.cost.first, step.cost.work));
            self.wake_receiver(leg.connection as usize);
        }
        for leg in step.receive.0..step.receive.1 {
            let leg = self.layout.legs[leg as usize];
            let fixed = &self.layout.connections[leg.connection as usize];
            if fixed.pulled {
                let slot = self.open_slot(&leg, count, start, (0, 0));
                self.leave(slot, start);
            } else if fixed.fetch.is_some() {
                let slot = (fixed.slot + self.state.connections[leg.connection as usize].receives) as usize;
                let fetching = &mut self.state.fetches[slot];
                fetching.started = start;
                fetching.ended = (leg.bundle == NO_BUNDLE).then_some(start);
                if leg.bundle != NO_BUNDLE {
                    // Fetches follow the messages in the numbers of flows.
                    let bytes = leg.wire * fixed.fetch_times;
                    self.fabric.start(leg.bundle, (index32(slot + self.state.slots.len()), count), bytes, start.time);
                }
            }
        }
        self.end_step(block);
    }

    /// Takes the next message slot of a connection and sets its flow going.
    fn open_slot(&mut self, leg: &Leg, count: u32, start: Stamp, (first, work): (u64, u64)) -> usize {
        let index = leg.connection as usize;
        let (fixed, at) = (&self.layout.connections[index], &mut self.state.connections[index]);
        let slot = (fixed.slot + at.sends) as usize;
        at.sends = if at.sends + 1 == fixed.credits { 0 } else { at.sends + 1 };
        at.in_flight += 1;
        at.bytes_sent += leg.wire;
        let place = &mut self.state.slots[slot];
        place.sent = start;
        (place.first, place.work) = (first, work);
        (place.left, place.arrived) = (false, false);
        place.flowed = (leg.bundle == NO_BUNDLE).then_some(0);
        if leg.bundle != NO_BUNDLE {
            self.fabric.start(leg.bundle, (index32(slot), count), leg.wire, start.time);
        }
        slot
    }

    /// Flows of a bundle end, unless its rate has changed since the event was made.
    pub(super) fn end_flows(&mut self, bundle: u32) {
        let mut ended = std::mem::take(&mut self.ended);
        self.fabric.finish(bundle, self.state.now, &mut ended);
        for flow in ended.drain(..) {
            let (slot, slots) = (flow as usize, self.state.slots.len());
            if slot < slots {
                let place = &mut self.state.slots[slot];
                place.flowed = Some(self.state.now - place.sent.time);
                if place.left {
                    self.settle(slot);
                }
            } else {
                let fetching = &mut self.state.fetches[slot - slots];
                fetching.ended = Some(fetching.started.until(Part::Wire, self.state.now));
                self.wake_receiver(self.layout.connection_of[slot - slots] as usize);
            }
        }
        self.ended = ended;
    }

    /// The message has left its sender's threads.
    fn leave(&mut self, slot: usize, when: Stamp) {
        let place = &mut self.state.slots[slot];
        place.left = true;
        place.last = when;
        if place.flowed.is_some() {
            self.settle(slot);
        }
    }

    /// Once a message has left its sender and the links, its arrival is known.
    fn settle(&mut self, slot: usize) {
        let place = &mut self.state.slots[slot];
        let index = self.layout.connection_of[slot] as usize;
        let elapsed = place.flowed.unwrap_or(0);
        if place.sent.time + elapsed > place.last.time {
            // What the source's own pace explains is work, the rest is bandwidth.
            let work = place.work.min(elapsed);
            place.last = place.sent.after(Part::Work, work).after(Part::Wire, elapsed - work);
        }
        place.last = place.last.after(Part::Latency, self.layout.connections[index].latency);
        place.arrived = true;
        self.wake_receiver(index);
    }

    fn wake_receiver(&mut self, index: usize) {
        if let Some(block) = self.state.connections[index].receiver.take() {
            self.pending.push(block);
        }
    }

    /// Ends the step if the ends of all its arrivals are known.
    pub(super) fn end_step(&mut self, block: usize) {
        let state = &mut self.state.blocks[block];
        let step = &self.layout.steps[state.step as usize];
        while state.leg < step.receive.1 {
            let index = self.layout.legs[state.leg as usize].connection as usize;
            let (fixed, at) = (&self.layout.connections[index], &mut self.state.connections[index]);
            let number = (fixed.slot + at.receives) as usize;
            let slot = &self.state.slots[number];
            let fetching = fixed.fetch.and_then(|latency| Some((latency, self.state.fetches.get(number)?)));
            if !slot.arrived || fetching.is_some_and(|(_, fetching)| fetching.ended.is_none()) {
                at.receiver = Some(index32(block));
                return;
            }
            if slot.last.time + fixed.poll + step.cost.tail > state.done.time {
                state.done = slot.last.after(Part::Poll, fixed.poll).after(Part::Work, step.cost.tail);
            }
            if let Some((latency, Fetching { ended: Some(ended), .. })) = fetching
                && ended.time + latency > state.done.time
            {
                state.done = ended.after(Part::Latency, latency);
            }
            state.leg += 1;
        }
        self.complete(block);
    }

    fn complete(&mut self, block: usize) {
        let state = &mut self.state.blocks[block];
        let step = self.layout.steps[state.step as usize];
        let done = state.done;
        let ready = done.after(Part::Step, step.cost.exit);
        state.done = ready;
        state.step += 1;
        let last = state.step == self.layout.blocks[block].steps.1;
        for leg in step.receive.0..step.receive.1 {
            let leg = self.layout.legs[leg as usize];
            let index = leg.connection as usize;
            let (fixed, at) = (&self.layout.connections[index], &mut self.state.connections[index]);
            self.state.slots[(fixed.slot + at.receives) as usize].freed = ready.after(Part::Credit, fixed.credit);
            at.receives = if at.receives + 1 == fixed.credits { 0 } else { at.receives + 1 };
            at.in_flight -= 1;
            at.bytes_received += leg.wire;
            if let Some(sender) = at.sender.take() {
                self.pending.push(sender);
            }
        }
        let released = done.after(Part::Fence, step.cost.fence);
        for leg in step.send.0..step.send.1 {
            let index = self.layout.legs[leg as usize].connection as usize;
            let (fixed, at) = (&self.layout.connections[index], &self.state.connections[index]);
            let sent = if at.sends == 0 { fixed.credits - 1 } else { at.sends - 1 };
            self.leave((fixed.slot + sent) as usize, released);
        }
        if last {
            self.block_ended(block);
        } else {
            self.await_step(block);
        }
    }
}
