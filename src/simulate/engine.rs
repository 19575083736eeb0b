//! The event loop, and each rank's way through its operations.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::error::{Fault, Result};

use super::outcome::{Outcome, Record};
use super::program::{Operation, Options, Program};
use super::reuse::Reuse;
use super::stamp::{Part, Stamp};
use super::state::{Instance, Phase, State};
use super::timed::index32;

/// Ends of flows come before starts of steps at one instant.
pub(super) const START_OF_STEP: u64 = 1 << 32;

/// Runs a program to its end.
///
/// # Errors
/// `simulation-deadlock` when a schedule cannot go on, naming who waits for whom.
pub fn simulate(program: &Program, options: Options) -> Result<Outcome> {
    let mut engine = Engine {
        program,
        state: State::new(program),
        heap: BinaryHeap::new(),
        pending: Vec::new(),
        events: 0,
        records: options.records.then(Vec::new),
        reuse: options.reuse.then(Reuse::default),
        boundary: None,
    };
    for rank in 0..program.ranks {
        engine.continue_rank(rank);
    }
    engine.run();
    engine.finish()
}

pub(super) struct Engine<'a> {
    pub program: &'a Program,
    pub state: State,
    /// (time, phase and id): ends of flows by slot, starts of steps by block.
    pub heap: BinaryHeap<Reverse<(u64, u64)>>,
    /// Blocks to look at again within this instant.
    pub pending: Vec<u32>,
    pub events: u64,
    pub records: Option<Vec<Record>>,
    pub reuse: Option<Reuse>,
    /// The sequence entry and repetition that all its members have just left.
    pub boundary: Option<(u32, u32)>,
}

impl Engine<'_> {
    fn run(&mut self) {
        self.end_instant();
        while let Some(Reverse((time, key))) = self.heap.pop() {
            debug_assert!(time >= self.state.now, "time never goes back");
            self.state.now = time;
            self.events += 1;
            if key >= START_OF_STEP {
                self.begin_step((key - START_OF_STEP) as usize);
            } else {
                self.end_flow(key as u32);
            }
            self.look_again();
            if self.heap.peek().is_none_or(|Reverse((next, _))| *next > time) {
                self.end_instant();
            }
        }
    }

    /// Rates are solved once all events of the instant have been applied.
    fn end_instant(&mut self) {
        self.look_again();
        let heap = &mut self.heap;
        self.state.fabric.solve(&self.program.network, self.state.now, |slot, end| heap.push(Reverse((end, u64::from(slot)))));
        if let Some((entry, repeat)) = self.boundary.take()
            && let Some(mut reuse) = self.reuse.take()
        {
            reuse.at_boundary(self, entry, repeat);
            self.reuse = Some(reuse);
        }
    }

    fn look_again(&mut self) {
        while let Some(block) = self.pending.pop() {
            match self.state.blocks[block as usize].phase {
                Phase::Waiting => self.arm_step(block as usize),
                Phase::Running => self.end_step(block as usize),
                Phase::Idle | Phase::Armed => {}
            }
        }
    }

    /// Takes a rank through its computations up to its next collective.
    pub(super) fn continue_rank(&mut self, rank: usize) {
        let program = self.program;
        loop {
            let state = self.state.ranks[rank];
            let Some(run) = program.sequence.get(state.entry as usize) else {
                self.state.ranks[rank].finished = true;
                return;
            };
            let operations = &program.templates[run.template as usize].operations;
            if run.members >> rank & 1 == 0 || run.repeats == 0 {
                self.state.ranks[rank].entry += 1;
                continue;
            }
            let Some(operation) = operations.get(state.operation as usize) else {
                self.leave_block(rank, run.repeats, run.members.count_ones());
                continue;
            };
            match operation {
                Operation::Compute { ps, launches } => {
                    let ps = if ps.len() == 1 { ps[0] } else { ps[rank] };
                    let start = self.launch(rank, *launches);
                    let mut end = start.after(Part::Compute, ps);
                    if *launches > 1 {
                        let issued = program.launch.issued(program.ranks, rank, self.state.ranks[rank].launched, *launches);
                        end = end.until(Part::Launch, issued + ps / u64::from(*launches));
                    }
                    self.end_operation(rank, start.time, end, *launches);
                }
                Operation::Collective { collective } => {
                    if self.start_collective(rank, *collective) {
                        return;
                    }
                    self.state.ranks[rank].operation += 1;
                }
            }
        }
    }

    /// When the first of `launches` kernels can start.
    fn launch(&self, rank: usize, launches: u32) -> Stamp {
        let state = &self.state.ranks[rank];
        let launch = self.program.launch;
        let issued = launch.issued(self.program.ranks, rank, state.launched, launches.min(1));
        state.ready.after(Part::Launch, launch.gap() * u64::from(launches)).until(Part::Launch, issued)
    }

    /// Starts a rank's blocks; false when the rank has none in this collective.
    fn start_collective(&mut self, rank: usize, collective: u32) -> bool {
        let timed = &self.program.collectives[collective as usize];
        let blocks = timed.rank_blocks[rank]..timed.rank_blocks[rank + 1];
        if blocks.is_empty() {
            return false;
        }
        let arrival = self.launch(rank, timed.launches);
        let ready = arrival.after(Part::Kernel, timed.start[rank]);
        let first = self.state.layouts[collective as usize].block;
        let state = &mut self.state.ranks[rank];
        state.blocks_left = blocks.len() as u32;
        state.end = ready;
        state.started = arrival.time;
        for block in blocks {
            let (begin, end) = timed.blocks[block as usize].steps;
            let state = &mut self.state.blocks[(first + block) as usize];
            state.step = begin;
            state.ready = ready;
            if begin == end {
                self.block_ended((first + block) as usize);
            } else {
                state.phase = Phase::Waiting;
                self.pending.push(first + block);
            }
        }
        self.arrive(rank, collective, arrival.time);
        true
    }

    fn arrive(&mut self, rank: usize, collective: u32, time: u64) {
        let at = self.state.ranks[rank];
        let timed = &self.program.collectives[collective as usize];
        let known = |i: &Instance| (i.entry, i.repeat, i.operation) == (at.entry, at.repeat, at.operation);
        let place = self.state.instances.iter().position(known).unwrap_or_else(|| {
            let members = (0..timed.ranks).filter(|&r| timed.rank_blocks[r] < timed.rank_blocks[r + 1]).count();
            self.state.instances.push(Instance {
                entry: at.entry,
                repeat: at.repeat,
                operation: at.operation,
                collective,
                arrivals: Vec::with_capacity(members),
                ends: Vec::with_capacity(members),
                members,
            });
            self.state.instances.len() - 1
        });
        self.state.instances[place].arrivals.push(time);
    }

    /// A block has done its last step; the last of a rank's blocks ends the operation.
    pub(super) fn block_ended(&mut self, block: usize) {
        let state = &mut self.state.blocks[block];
        state.phase = Phase::Idle;
        let (ready, collective) = (state.ready, self.state.collective_of[block]);
        let timed = &self.program.collectives[collective as usize];
        let local = block - self.state.layouts[collective as usize].block as usize;
        let rank = timed.blocks[local].rank as usize;
        let state = &mut self.state.ranks[rank];
        state.end = state.end.max(ready);
        state.blocks_left -= 1;
        if state.blocks_left == 0 {
            let end = state.end.after(Part::Kernel, timed.finish);
            let started = state.started;
            self.leave_instance(rank, end.time);
            self.end_operation(rank, started, end, timed.launches);
            self.continue_rank(rank);
        }
    }

    fn leave_instance(&mut self, rank: usize, time: u64) {
        let at = self.state.ranks[rank];
        let known = |i: &Instance| (i.entry, i.repeat, i.operation) == (at.entry, at.repeat, at.operation);
        let Some(place) = self.state.instances.iter().position(known) else { return };
        let instance = &mut self.state.instances[place];
        instance.ends.push(time);
        if instance.ends.len() < instance.members {
            return;
        }
        let instance = self.state.instances.remove(place);
        let fold = |times: &[u64], pick: fn(u64, u64) -> u64| times.iter().copied().reduce(pick).unwrap_or(0);
        let (first, last) = (fold(&instance.arrivals, u64::min), fold(&instance.arrivals, u64::max));
        let end = fold(&instance.ends, u64::max);
        let total = &mut self.state.totals[instance.collective as usize];
        total.count += 1;
        total.busy += end.saturating_sub(last);
        total.skew += last - first;
        total.waited += instance.arrivals.iter().map(|arrival| last - arrival).sum::<u64>();
        total.spent += instance.ends.iter().sum::<u64>() - instance.arrivals.iter().sum::<u64>();
    }

    fn end_operation(&mut self, rank: usize, start: u64, end: Stamp, launches: u32) {
        let state = &mut self.state.ranks[rank];
        if let Some(records) = &mut self.records {
            let (entry, repeat, operation) = (state.entry, state.repeat, state.operation);
            records.push(Record { entry, repeat, operation, rank: index32(rank), start, end: end.time });
        }
        state.ready = end;
        state.launched += u64::from(launches);
        state.operation += 1;
    }

    fn leave_block(&mut self, rank: usize, repeats: u32, members: u32) {
        let state = &mut self.state.ranks[rank];
        let left = (state.entry, state.repeat);
        state.operation = 0;
        state.repeat += 1;
        if state.repeat == repeats {
            state.repeat = 0;
            state.entry += 1;
        }
        if let Some(reuse) = &mut self.reuse
            && reuse.crossed(left, members)
        {
            self.boundary = Some(left);
        }
    }

    fn finish(self) -> Result<Outcome> {
        if self.state.ranks.iter().any(|rank| !rank.finished) {
            return Err(self.deadlock());
        }
        debug_assert!(self.state.fabric.flows.iter().all(|flow| !flow.active), "no flow outlives its messages");
        let mut records = self.records.unwrap_or_default();
        records.sort_unstable();
        Ok(Outcome {
            ends: self.state.ranks.iter().map(|rank| rank.ready).collect(),
            totals: self.state.totals,
            carried: self.state.fabric.carried,
            records,
            events: self.events,
        })
    }

    /// Names, for each rank that cannot go on, the ranks that it waits for.
    fn deadlock(&self) -> Box<Fault> {
        let mut lines = Vec::new();
        for (block, state) in self.state.blocks.iter().enumerate() {
            if state.phase == Phase::Idle {
                continue;
            }
            let collective = self.state.collective_of[block] as usize;
            let timed = &self.program.collectives[collective];
            let layout = &self.state.layouts[collective];
            let local = block - layout.block as usize;
            let step = &timed.steps[state.step as usize];
            let waits = |connection: &&u32| {
                let c = &self.state.connections[(layout.connection + **connection) as usize];
                c.received >= c.sent
            };
            let sources: Vec<String> = (timed.lists[step.receive.0 as usize..step.receive.1 as usize].iter())
                .filter(waits)
                .map(|&c| timed.ends[c as usize].0.to_string())
                .collect();
            let reason = if sources.is_empty() { "credits".to_owned() } else { format!("rank {}", sources.join(", ")) };
            let at = state.step - timed.blocks[local].steps.0;
            lines.push(format!("rank {} waits for {reason} at step {at}", timed.blocks[local].rank));
        }
        if lines.is_empty() {
            lines.push("some ranks never reach a collective that others are in".to_owned());
        }
        Fault::new("simulation-deadlock", format!("the schedule cannot move: {}", lines.join("; ")))
            .help("every receive needs a send of its peer in the same order; check the schedule or graph file")
    }
}
