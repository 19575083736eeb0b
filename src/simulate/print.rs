//! The fingerprint of a run's relative state: all that decides what follows.

use super::engine::Engine;
use super::reuse::Scope;
use super::stamp::Stamp;
use super::state::Phase;

struct Print {
    words: Vec<u64>,
    reference: Stamp,
}

impl Scope {
    /// Everything that decides what follows, relative to the reference. Events
    /// are not part of it: each is the start of an armed block or the end of a
    /// bundle's next flow. Nor is the slot that a message lies in, only its turn.
    pub fn fingerprint(&self, engine: &Engine<'_>) -> Vec<u64> {
        let mut print = Print { words: Vec::new(), reference: self.reference };
        let state = &engine.state;
        print.time(state.now);
        for &rank in &self.members {
            let at = &state.ranks[rank];
            print.words.extend([u64::from(at.repeat - self.repeat), u64::from(at.operation), u64::from(at.blocks_left)]);
            print.words.extend([at.open.map_or(u64::MAX, u64::from), u64::from(at.beside)]);
            print.stamp(&at.ready);
            if at.blocks_left > 0 {
                print.stamp(&at.end);
                print.time(at.started);
            }
            let issued = engine.program.launch.issued(engine.program.ranks, rank, at.launched, 1, 1);
            print.words.push(if issued == 0 { 0 } else { issued.wrapping_sub(self.reference.time) });
        }
        for &collective in &self.collectives {
            self.print_collective(engine, collective, &mut print);
        }
        for instance in &state.instances {
            let one = u128::from(self.reference.time);
            print.words.extend([u64::from(instance.collective), u64::from(instance.arrived), u64::from(instance.left)]);
            // Which of the members' turns it is.
            for &rank in &self.members {
                let entered = state.entered[rank * engine.layout.collectives.len() + instance.collective as usize];
                print.words.push(entered.wrapping_sub(instance.nth));
            }
            for time in [instance.first_arrival, instance.last_arrival] {
                print.time(time);
            }
            if instance.left > 0 {
                print.time(instance.last_end);
            }
            print.words.push(instance.arrivals.wrapping_sub(one * u128::from(instance.arrived)) as u64);
            print.words.push(instance.ends.wrapping_sub(one * u128::from(instance.left)) as u64);
        }
        for (index, bundle) in engine.fabric.bundles.iter().enumerate() {
            if !bundle.flows.is_empty() {
                print.words.extend([index as u64, bundle.rate, bundle.count]);
                print.time(bundle.since);
                print.time(bundle.end);
            }
        }
        print.words
    }

    fn print_collective(&self, engine: &Engine<'_>, collective: usize, print: &mut Print) {
        let state = &engine.state;
        let range = engine.layout.collectives[collective];
        for block in &state.blocks[range.blocks.0 as usize..range.blocks.1 as usize] {
            print.words.push(block.phase as u64);
            if block.phase != Phase::Idle {
                print.words.extend([u64::from(block.step), u64::from(block.leg)]);
                print.stamp(&block.start);
                print.stamp(&block.done);
            }
        }
        let none = u64::MAX;
        for index in range.connections.0 as usize..range.connections.1 as usize {
            let (fixed, at) = (&engine.layout.connections[index], &state.connections[index]);
            print.words.extend([u64::from(at.in_flight), at.receiver.map_or(none, u64::from), at.sender.map_or(none, u64::from)]);
            for turn in 0..fixed.credits {
                let slot = (fixed.slot + (at.receives + turn) % fixed.credits) as usize;
                if turn < at.in_flight {
                    print_message(engine, slot, print);
                } else {
                    // A credit that is back delays nothing any more.
                    let freed = &state.slots[slot].freed;
                    print.words.push(u64::from(freed.time > state.now));
                    if freed.time > state.now {
                        print.stamp(freed);
                    }
                }
            }
        }
    }
}

fn print_message(engine: &Engine<'_>, slot: usize, print: &mut Print) {
    let at = &engine.state.slots[slot];
    print.stamp(&at.sent);
    print.words.extend([at.first, at.work, at.flowed.unwrap_or(u64::MAX), u64::from(at.left)]);
    if at.left {
        print.stamp(&at.last);
    }
    let mut flows = vec![slot];
    if let Some(fetching) = engine.state.fetches.get(slot) {
        flows.push(slot + engine.state.slots.len());
        print.stamp(&fetching.started);
        if let Some(ended) = &fetching.ended {
            print.stamp(ended);
        }
    }
    for flow in flows {
        print.flow(engine, flow);
    }
}

impl Print {
    fn time(&mut self, time: u64) {
        self.words.push(time.wrapping_sub(self.reference.time));
    }

    fn stamp(&mut self, stamp: &Stamp) {
        self.time(stamp.time);
        self.words.extend(stamp.parts.iter().zip(self.reference.parts).map(|(part, reference)| part.wrapping_sub(reference)));
    }

    /// Which bundle a flow runs in and how far it is from its end.
    fn flow(&mut self, engine: &Engine<'_>, flow: usize) {
        for (index, bundle) in engine.fabric.bundles.iter().enumerate() {
            if let Some(&(target, _, _)) = bundle.flows.iter().find(|&&(_, slot, _)| slot as usize == flow) {
                let left = target.wrapping_sub(bundle.served);
                self.words.extend([index as u64, left as u64, (left >> 64) as u64]);
            }
        }
    }
}
