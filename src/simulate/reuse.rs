//! Blocks that repeat are simulated until they repeat exactly.
//!
//! When the last rank leaves a repetition of a template, the whole relative
//! state (clocks, parts, blocks, messages, flows; see `print`) is compared with
//! that after all earlier repetitions. Where it is the same, what follows must
//! be the same too, and the clock is moved by whole periods. The result is
//! equal to the last bit with and without; a property test holds us to that.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::engine::Engine;
use super::outcome::CollectiveTotals;
use super::program::Operation;
use super::stamp::{PARTS, Stamp};
use super::state::Phase;

/// Repetitions of one entry that are remembered. What has not come back by
/// then (ranks that drift apart, a host that runs ahead) hardly will.
const REMEMBERED_MAX: usize = 64;

/// Earlier repetitions' fingerprints.
#[derive(Default)]
pub(super) struct Reuse {
    seen: BTreeMap<Vec<u64>, Boundary>,
    /// The sequence entry that `seen` belongs to.
    entry: Option<u32>,
    /// Boundaries of the entry that found no earlier one.
    missed: usize,
}

/// What had been accumulated at a boundary.
struct Boundary {
    repeat: u32,
    reference: Stamp,
    totals: Vec<CollectiveTotals>,
    /// Bytes of each bundle, and sent and received on each connection.
    carried: Vec<u64>,
    bytes: Vec<(u64, u64)>,
    entered: Vec<u64>,
    records: usize,
    launched: Vec<u64>,
}

impl Reuse {
    /// Looks for an earlier repetition with the same relative state, and skips.
    pub fn at_boundary(&mut self, engine: &mut Engine<'_>, entry: u32, repeat: u32) {
        if self.entry != Some(entry) {
            self.entry = Some(entry);
            self.missed = 0;
            self.seen.clear();
        }
        if self.missed == REMEMBERED_MAX {
            return;
        }
        let Some(scope) = Scope::of(engine, entry, repeat) else { return };
        let fingerprint = scope.fingerprint(engine);
        let here = scope.boundary(engine);
        let Some(earlier) = self.seen.get(&fingerprint) else {
            self.seen.insert(fingerprint, here);
            self.missed += 1;
            return;
        };
        let period = repeat - earlier.repeat;
        let count = (scope.repeats - 1 - scope.furthest) / period;
        if count > 0 {
            scope.skip(engine, earlier, &here, count, period);
            // What is left is less than a period.
            self.missed = REMEMBERED_MAX;
            self.seen.clear();
        }
    }
}

/// The part of the state that a repeated template touches.
pub(super) struct Scope {
    pub repeat: u32,
    repeats: u32,
    /// The furthest repetition that any member has reached.
    furthest: u32,
    pub members: Vec<usize>,
    /// Collectives of the template, each once.
    pub collectives: Vec<usize>,
    pub reference: Stamp,
}

impl Scope {
    /// None when some state outside the template is in motion, or may be put
    /// in motion by it: then the template's own state does not decide what follows.
    fn of(engine: &Engine<'_>, entry: u32, repeat: u32) -> Option<Scope> {
        let run = engine.program.sequence[entry as usize];
        let ranks = 0..engine.program.ranks;
        let is_member = |rank: &usize| run.members >> *rank & 1 == 1;
        let at = |rank: &usize| &engine.state.ranks[*rank];
        if ranks.clone().any(|rank| if is_member(&rank) { at(&rank).entry != entry } else { !at(&rank).finished }) {
            return None;
        }
        let members: Vec<usize> = ranks.filter(is_member).collect();
        let furthest = members.iter().map(|rank| at(rank).repeat).max()?;
        let mut collectives: Vec<usize> = (engine.program.templates[run.template as usize].operations.iter())
            .filter_map(|operation| match operation {
                Operation::Collective { collective, .. } => Some(*collective as usize),
                Operation::Compute { .. } => None,
            })
            .collect();
        collectives.sort_unstable();
        collectives.dedup();
        if collectives.iter().any(|&collective| engine.layout.collectives[collective].members & !run.members != 0) {
            return None;
        }
        let outside = |block: usize| {
            let collective = engine.layout.blocks[block].collective as usize;
            engine.state.blocks[block].phase != Phase::Idle && collectives.binary_search(&collective).is_err()
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
            carried: engine.fabric.bundles.iter().map(|bundle| bundle.carried).collect(),
            bytes: engine.state.connections.iter().map(|c| (c.bytes_sent, c.bytes_received)).collect(),
            entered: engine.state.entered.clone(),
            records: engine.records.as_ref().map_or(0, Vec::len),
            launched: engine.state.ranks.iter().map(|rank| rank.launched).collect(),
        }
    }

    /// Moves the state `count` periods on.
    fn skip(&self, engine: &mut Engine<'_>, earlier: &Boundary, here: &Boundary, count: u32, period: u32) {
        let count64 = u64::from(count);
        let mut step = Stamp { time: here.reference.time - earlier.reference.time, parts: [0; PARTS] };
        for (part, (later, sooner)) in step.parts.iter_mut().zip(here.reference.parts.iter().zip(earlier.reference.parts)) {
            *part = later - sooner;
        }
        let ahead = step.time * count64;
        let grow = |total: &mut u64, then: u64, now: u64| *total += (now - then) * count64;
        let state = &mut engine.state;
        state.now += ahead;
        for &rank in &self.members {
            let at = &mut state.ranks[rank];
            at.repeat += count * period;
            at.ready = at.ready.shifted(&step, count64);
            at.end = at.end.shifted(&step, count64);
            at.started += ahead;
            grow(&mut at.launched, earlier.launched[rank], here.launched[rank]);
            // The rank is in a collective: how often it has come there grows with the rest.
            let entered = rank * engine.layout.collectives.len() + at.collective as usize;
            grow(&mut at.nth, earlier.entered[entered], here.entered[entered]);
        }
        for instance in &mut state.instances {
            let rank = engine.layout.collectives[instance.collective as usize].members.trailing_zeros() as usize;
            let entered = rank * engine.layout.collectives.len() + instance.collective as usize;
            grow(&mut instance.nth, earlier.entered[entered], here.entered[entered]);
            for time in [&mut instance.first_arrival, &mut instance.last_arrival, &mut instance.last_end] {
                *time += ahead;
            }
            instance.arrivals += u128::from(ahead) * u128::from(instance.arrived);
            instance.ends += u128::from(ahead) * u128::from(instance.left);
        }
        for (entered, (then, now)) in state.entered.iter_mut().zip(earlier.entered.iter().zip(&here.entered)) {
            grow(entered, *then, *now);
        }
        for (total, (then, now)) in state.totals.iter_mut().zip(earlier.totals.iter().zip(&here.totals)) {
            grow(&mut total.count, then.count, now.count);
            grow(&mut total.busy, then.busy, now.busy);
            grow(&mut total.skew, then.skew, now.skew);
            grow(&mut total.waited, then.waited, now.waited);
            grow(&mut total.spent, then.spent, now.spent);
            grow(&mut total.hidden, then.hidden, now.hidden);
        }
        for (at, (then, now)) in state.connections.iter_mut().zip(earlier.bytes.iter().zip(&here.bytes)) {
            grow(&mut at.bytes_sent, then.0, now.0);
            grow(&mut at.bytes_received, then.1, now.1);
        }
        for (bundle, (then, now)) in engine.fabric.bundles.iter_mut().zip(earlier.carried.iter().zip(&here.carried)) {
            grow(&mut bundle.carried, *then, *now);
            if !bundle.flows.is_empty() {
                bundle.since += ahead;
                bundle.end += ahead;
            }
        }
        self.shift_collectives(engine, &step, count64);
        engine.heap = engine.heap.drain().map(|Reverse(event)| Reverse(event + (u128::from(ahead) << 64))).collect();
        self.repeat_records(engine, earlier, here, count, (period, step.time));
    }

    fn shift_collectives(&self, engine: &mut Engine<'_>, step: &Stamp, count: u64) {
        let state = &mut engine.state;
        for &collective in &self.collectives {
            let range = engine.layout.collectives[collective];
            for block in &mut state.blocks[range.blocks.0 as usize..range.blocks.1 as usize] {
                block.start = block.start.shifted(step, count);
                block.done = block.done.shifted(step, count);
            }
            for connection in &engine.layout.connections[range.connections.0 as usize..range.connections.1 as usize] {
                for slot in connection.slot as usize..(connection.slot + connection.credits) as usize {
                    let at = &mut state.slots[slot];
                    for stamp in [&mut at.sent, &mut at.last, &mut at.freed] {
                        *stamp = stamp.shifted(step, count);
                    }
                    if let Some(fetching) = state.fetches.get_mut(slot) {
                        fetching.started = fetching.started.shifted(step, count);
                        fetching.ended = fetching.ended.map(|stamp| stamp.shifted(step, count));
                    }
                }
            }
        }
    }

    fn repeat_records(&self, engine: &mut Engine<'_>, earlier: &Boundary, here: &Boundary, count: u32, period: (u32, u64)) {
        let Some(records) = &mut engine.records else { return };
        let once = earlier.records..here.records;
        for nth in 1..=count {
            for place in once.clone() {
                let mut record = records[place];
                record.repeat += nth * period.0;
                record.start += period.1 * u64::from(nth);
                record.end += period.1 * u64::from(nth);
                records.push(record);
            }
        }
    }
}
