//! Blocks that repeat are simulated until they repeat exactly.
//!
//! When the last rank leaves a repetition of a template, the whole relative
//! state (clocks, parts, blocks, messages, flows, events) is compared with that
//! after all earlier repetitions. Where it is the same, what follows must be the
//! same too, and the clock is moved by whole periods. The result is equal to
//! the last bit with and without; a property test holds us to that.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::engine::{Engine, START_OF_STEP};
use super::outcome::CollectiveTotals;
use super::program::Operation;
use super::stamp::{PARTS, Stamp};
use super::state::Phase;

/// Earlier repetitions' fingerprints.
#[derive(Default)]
pub(super) struct Reuse {
    /// Ranks that have left each repetition.
    crossings: BTreeMap<(u32, u32), u32>,
    seen: BTreeMap<Vec<u64>, Boundary>,
    /// The sequence entry that `seen` belongs to.
    entry: Option<u32>,
}

/// What had been accumulated at a boundary.
struct Boundary {
    repeat: u32,
    reference: Stamp,
    totals: Vec<CollectiveTotals>,
    carried: Vec<u64>,
    records: usize,
    launched: u64,
}

impl Reuse {
    /// Counts a rank out of a repetition; true when it was the last.
    pub fn crossed(&mut self, left: (u32, u32), members: u32) -> bool {
        let count = self.crossings.entry(left).or_default();
        *count += 1;
        if *count < members {
            return false;
        }
        self.crossings.remove(&left);
        true
    }

    /// Looks for an earlier repetition with the same relative state, and skips.
    pub fn at_boundary(&mut self, engine: &mut Engine<'_>, entry: u32, repeat: u32) {
        if self.entry != Some(entry) {
            self.entry = Some(entry);
            self.seen.clear();
        }
        let Some(scope) = Scope::of(engine, entry, repeat) else { return };
        let fingerprint = scope.fingerprint(engine);
        let here = scope.boundary(engine);
        let Some(earlier) = self.seen.get(&fingerprint) else {
            self.seen.insert(fingerprint, here);
            return;
        };
        let period = repeat - earlier.repeat;
        let count = (scope.repeats - 1 - scope.furthest) / period;
        if count == 0 {
            return;
        }
        scope.skip(engine, earlier, &here, count, period);
        let crossings = std::mem::take(&mut self.crossings);
        let moved = |((e, r), n)| if e == entry { ((e, r + count * period), n) } else { ((e, r), n) };
        self.crossings = crossings.into_iter().map(moved).collect();
        self.seen.clear();
    }
}

/// The part of the state that a repeated template touches.
struct Scope {
    repeat: u32,
    repeats: u32,
    /// The furthest repetition that any member has reached.
    furthest: u32,
    members: Vec<usize>,
    /// Collectives of the template, each once.
    collectives: Vec<usize>,
    reference: Stamp,
}

impl Scope {
    /// None when some state outside the template is in motion.
    fn of(engine: &Engine<'_>, entry: u32, repeat: u32) -> Option<Scope> {
        let run = engine.program.sequence[entry as usize];
        let members: Vec<usize> = (0..engine.program.ranks).filter(|&rank| run.members >> rank & 1 == 1).collect();
        let at = |rank: &usize| &engine.state.ranks[*rank];
        if members.iter().any(|rank| at(rank).finished || at(rank).entry != entry) {
            return None;
        }
        let furthest = members.iter().map(|rank| at(rank).repeat).max()?;
        let mut collectives: Vec<usize> = (engine.program.templates[run.template as usize].operations.iter())
            .filter_map(|operation| match operation {
                Operation::Collective { collective } => Some(*collective as usize),
                Operation::Compute { .. } => None,
            })
            .collect();
        collectives.sort_unstable();
        collectives.dedup();
        let outside = |block: usize| {
            engine.state.blocks[block].phase != Phase::Idle && !collectives.contains(&(engine.state.collective_of[block] as usize))
        };
        if (0..engine.state.blocks.len()).any(outside) {
            return None;
        }
        let reference = at(members.first()?).ready;
        Some(Scope { repeat, repeats: run.repeats, furthest, members, collectives, reference })
    }

    fn boundary(&self, engine: &Engine<'_>) -> Boundary {
        Boundary {
            repeat: self.repeat,
            reference: self.reference,
            totals: engine.state.totals.clone(),
            carried: engine.state.fabric.carried.clone(),
            records: engine.records.as_ref().map_or(0, Vec::len),
            launched: engine.state.ranks[self.members[0]].launched,
        }
    }

    /// Everything that decides what follows, relative to the reference.
    fn fingerprint(&self, engine: &Engine<'_>) -> Vec<u64> {
        let mut print = Print { words: Vec::new(), reference: self.reference };
        let state = &engine.state;
        print.time(state.now);
        for &rank in &self.members {
            let at = &state.ranks[rank];
            print.words.extend([u64::from(at.repeat - self.repeat), u64::from(at.operation), u64::from(at.blocks_left)]);
            print.stamp(&at.ready);
            if at.blocks_left > 0 {
                print.stamp(&at.end);
                print.time(at.started);
            }
            let issued = engine.program.launch.issued(engine.program.ranks, rank, at.launched, 1);
            print.words.push(if issued == 0 { 0 } else { issued.wrapping_sub(self.reference.time) });
        }
        for &collective in &self.collectives {
            self.print_collective(engine, collective, &mut print);
        }
        for instance in &state.instances {
            print.words.extend([
                u64::from(instance.repeat.wrapping_sub(self.repeat)),
                u64::from(instance.operation),
                instance.arrivals.len() as u64,
            ]);
            for time in instance.arrivals.iter().chain(&instance.ends) {
                print.time(*time);
            }
        }
        let mut events: Vec<(u64, u64)> = engine.heap.iter().map(|Reverse(event)| *event).collect();
        events.sort_unstable();
        for (time, key) in events {
            // Ends that have been overtaken by a change of rate do nothing.
            let flow = (key < START_OF_STEP).then(|| state.fabric.flows[key as usize]);
            if flow.is_none_or(|flow| flow.active && flow.end == time) {
                print.time(time);
                print.words.push(key);
            }
        }
        print.words
    }

    fn print_collective(&self, engine: &Engine<'_>, collective: usize, print: &mut Print) {
        let state = &engine.state;
        let timed = &engine.program.collectives[collective];
        let layout = state.layouts[collective];
        for local in 0..timed.blocks.len() {
            let block = &state.blocks[layout.block as usize + local];
            print.words.extend([block.phase as u64, if block.phase == Phase::Idle { 0 } else { u64::from(block.step) }]);
            if block.phase != Phase::Idle {
                print.stamp(&block.ready);
            }
            if matches!(block.phase, Phase::Armed | Phase::Running) {
                print.stamp(&block.start);
            }
        }
        for (local, timed) in timed.connections.iter().enumerate() {
            let at = &state.connections[layout.connection as usize + local];
            let none = u64::MAX;
            print.words.extend([at.sent - at.received, at.sent - at.freed, at.sent.min(u64::from(timed.credits))]);
            // Slots are used in turn and flows are settled in their order.
            print.words.extend([
                at.sent % u64::from(timed.credits),
                at.receiver.map_or(none, u64::from),
                at.sender.map_or(none, u64::from),
            ]);
            for place in 0..timed.credits.min(u32::try_from(at.sent).unwrap_or(u32::MAX)) {
                self.print_slot(engine, (layout.slot + timed.slot + place) as usize, print);
            }
        }
    }

    fn print_slot(&self, engine: &Engine<'_>, slot: usize, print: &mut Print) {
        let at = &engine.state.slots[slot];
        print.stamp(&at.first);
        print.stamp(&at.sent);
        print.stamp(&at.freed);
        for stamp in [at.done, at.flowed, at.last, at.fetched] {
            match stamp {
                Some(stamp) => print.stamp(&stamp),
                None => print.words.push(u64::MAX),
            }
        }
        for flow_slot in [slot, slot + engine.state.slots.len()] {
            let flow = &engine.state.fabric.flows[flow_slot];
            print.words.push(u64::from(flow.active));
            if flow.active {
                print.words.extend([flow.cap, flow.rate, flow.left as u64, (flow.left >> 64) as u64]);
                print.time(flow.since);
                print.time(flow.end);
            }
        }
    }

    /// Moves the state `count` periods on.
    fn skip(&self, engine: &mut Engine<'_>, earlier: &Boundary, here: &Boundary, count: u32, period: u32) {
        let count64 = u64::from(count);
        let mut step = Stamp { time: here.reference.time - earlier.reference.time, parts: [0; PARTS] };
        for (part, (later, sooner)) in step.parts.iter_mut().zip(here.reference.parts.iter().zip(earlier.reference.parts)) {
            *part = later - sooner;
        }
        let launched = (here.launched - earlier.launched) * count64;
        let ahead = step.time * count64;
        let state = &mut engine.state;
        state.now += ahead;
        for &rank in &self.members {
            let at = &mut state.ranks[rank];
            at.repeat += count * period;
            at.ready = at.ready.shifted(&step, count64);
            at.end = at.end.shifted(&step, count64);
            at.started += ahead;
            at.launched += launched;
        }
        for &collective in &self.collectives {
            self.shift_collective(engine, collective, &step, count64);
        }
        let state = &mut engine.state;
        for instance in &mut state.instances {
            instance.repeat += count * period;
            for time in instance.arrivals.iter_mut().chain(&mut instance.ends) {
                *time += ahead;
            }
        }
        let grow = |total: &mut u64, then: u64, now: u64| *total += (now - then) * count64;
        for (total, (then, now)) in state.totals.iter_mut().zip(earlier.totals.iter().zip(&here.totals)) {
            grow(&mut total.count, then.count, now.count);
            grow(&mut total.busy, then.busy, now.busy);
            grow(&mut total.skew, then.skew, now.skew);
            grow(&mut total.waited, then.waited, now.waited);
            grow(&mut total.spent, then.spent, now.spent);
        }
        for (total, (then, now)) in state.fabric.carried.iter_mut().zip(earlier.carried.iter().zip(&here.carried)) {
            grow(total, *then, *now);
        }
        engine.heap = engine.heap.drain().map(|Reverse((time, key))| Reverse((time + ahead, key))).collect();
        if let Some(records) = &mut engine.records {
            let once = records[earlier.records..here.records].to_vec();
            for nth in 1..=count {
                records.extend(once.iter().map(|record| {
                    let mut record = *record;
                    record.repeat += nth * period;
                    record.start += step.time * u64::from(nth);
                    record.end += step.time * u64::from(nth);
                    record
                }));
            }
        }
    }

    fn shift_collective(&self, engine: &mut Engine<'_>, collective: usize, step: &Stamp, count: u64) {
        let timed = &engine.program.collectives[collective];
        let state = &mut engine.state;
        let layout = state.layouts[collective];
        for block in &mut state.blocks[layout.block as usize..layout.block as usize + timed.blocks.len()] {
            block.ready = block.ready.shifted(step, count);
            block.start = block.start.shifted(step, count);
        }
        let slots: u32 = timed.connections.iter().map(|c| c.credits).sum();
        let all = state.slots.len();
        for slot in layout.slot as usize..(layout.slot + slots) as usize {
            let at = &mut state.slots[slot];
            for stamp in [&mut at.first, &mut at.sent, &mut at.freed, &mut at.fetching] {
                *stamp = stamp.shifted(step, count);
            }
            for stamp in [&mut at.done, &mut at.flowed, &mut at.last, &mut at.fetched].into_iter().flatten() {
                *stamp = stamp.shifted(step, count);
            }
            for flow_slot in [slot, slot + all] {
                let flow = &mut state.fabric.flows[flow_slot];
                if flow.active {
                    flow.since += step.time * count;
                    flow.end += step.time * count;
                }
            }
        }
    }
}

struct Print {
    words: Vec<u64>,
    reference: Stamp,
}

impl Print {
    fn time(&mut self, time: u64) {
        self.words.push(time.wrapping_sub(self.reference.time));
    }

    fn stamp(&mut self, stamp: &Stamp) {
        self.time(stamp.time);
        self.words.extend(stamp.parts.iter().zip(self.reference.parts).map(|(part, reference)| part.wrapping_sub(reference)));
    }
}
