//! The event loop, and each rank's way through its operations.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::error::{Fault, Result};

use super::fabric::Fabric;
use super::layout::Layout;
use super::outcome::{Outcome, Record};
use super::program::{Operation, Options, Program};
use super::reuse::Reuse;
use super::stamp::{Part, Stamp};
use super::state::{Instance, Phase, RankState, State};
use super::timed::index32;

/// Ends of flows come before starts of steps at one instant.
pub(super) const START_OF_STEP: u64 = 1 << 32;
/// No run is longer than 53 days, so that sums of times stay far from overflow.
const TIME_MAX: u64 = 1 << 62;

/// Runs a program to its end.
///
/// # Errors
/// `simulation-deadlock` when a schedule cannot go on, naming who waits for
/// whom; `simulation-unbalanced` when messages are left over;
/// `simulation-shared-connection` when the order of messages is not defined;
/// `simulation-too-long` past 53 days.
pub fn simulate(program: &Program, options: Options) -> Result<Outcome> {
    let mut engine = Engine::new(program, options)?;
    engine.start()?;
    engine.finish()
}

/// An event of the heap: ordered by time, then by phase and id.
pub(super) fn event(time: u64, key: u64) -> Reverse<u128> {
    Reverse(u128::from(time) << 64 | u128::from(key))
}

pub(super) struct Engine<'a> {
    pub program: &'a Program,
    pub layout: Arc<Layout>,
    pub state: State,
    pub fabric: Fabric,
    /// Made by [`event`]: ends of flows by bundle, starts of steps by block.
    pub heap: BinaryHeap<Reverse<u128>>,
    /// Blocks to look at again within this instant.
    pub pending: Vec<u32>,
    /// Scratch: the slots of flows that end.
    pub ended: Vec<u32>,
    pub events: u64,
    pub records: Option<Vec<Record>>,
    pub reuse: Option<Reuse>,
    /// The sequence entry and repetition that all its members have just left.
    pub boundary: Option<(u32, u32)>,
}

/// What a run starts from: all parts of a program in their places, all links at rest.
#[derive(Clone)]
pub(super) struct Ground {
    layout: Arc<Layout>,
    fabric: Fabric,
}

impl Ground {
    /// Of a program.
    ///
    /// # Errors
    /// `simulation-shared-connection`, see [`Layout::new`].
    pub fn of(program: &Program) -> Result<Ground> {
        let mut fabric = Fabric::new(&program.network);
        let layout = Arc::new(Layout::new(program, &mut fabric)?);
        Ok(Ground { layout, fabric: fabric.narrowed() })
    }
}

impl Engine<'_> {
    /// All ranks before their first operation.
    pub fn new(program: &Program, options: Options) -> Result<Engine<'_>> {
        Ok(Engine::on(program, Ground::of(program)?, options))
    }

    /// The same on the program's ground.
    pub fn on(program: &Program, Ground { layout, fabric }: Ground, options: Options) -> Engine<'_> {
        Engine {
            program,
            state: State::new(program, &layout),
            heap: BinaryHeap::with_capacity(2 * (layout.blocks.len() + fabric.bundles.len())),
            pending: Vec::with_capacity(layout.blocks.len()),
            ended: Vec::new(),
            events: 0,
            records: options.records.then(Vec::new),
            reuse: options.reuse.then(Reuse::default),
            boundary: None,
            layout,
            fabric,
        }
    }

    /// Runs until nothing more happens.
    pub fn start(&mut self) -> Result<()> {
        for rank in 0..self.program.ranks {
            self.continue_rank(rank);
        }
        self.run()
    }

    fn run(&mut self) -> Result<()> {
        self.end_instant();
        while let Some(Reverse(event)) = self.heap.pop() {
            let (time, key) = ((event >> 64) as u64, event as u64);
            debug_assert!(time >= self.state.now, "time never goes back");
            if time > TIME_MAX {
                return Err(Fault::new("simulation-too-long", "the run takes more than 53 days of simulated time")
                    .help("look for a link rate or a message size that is off by orders of magnitude"));
            }
            self.state.now = time;
            self.events += 1;
            if key >= START_OF_STEP {
                self.begin_step((key - START_OF_STEP) as usize);
            } else {
                self.end_flows(key as u32);
            }
            self.look_again();
            if self.heap.peek().is_none_or(|Reverse(next)| (next >> 64) as u64 > time) {
                self.end_instant();
            }
        }
        Ok(())
    }

    /// Rates are solved once all events of the instant have been applied.
    fn end_instant(&mut self) {
        self.look_again();
        let heap = &mut self.heap;
        self.fabric.solve(self.state.now, |bundle, end| heap.push(event(end, u64::from(bundle))));
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
            let state = &mut self.state.ranks[rank];
            if state.open.is_some() && state.beside == 0 {
                return;
            }
            let Some(run) = program.sequence.get(state.entry as usize) else {
                state.finished = true;
                return;
            };
            if run.members >> rank & 1 == 0 || run.repeats == 0 {
                state.entry += 1;
                continue;
            }
            let operations = &program.templates[run.template as usize].operations;
            match operations.get(state.operation as usize) {
                None => self.leave_template(rank),
                Some(Operation::Compute { ps, launches }) => {
                    let ps = if ps.len() == 1 { ps[0] } else { ps[rank] };
                    let state = &self.state.ranks[rank];
                    let (start, end) = program.computed(rank, state.ready, state.launched, (ps, *launches));
                    self.end_operation(rank, start.time, end, *launches);
                    let state = &mut self.state.ranks[rank];
                    state.beside = state.beside.saturating_sub(1);
                }
                Some(Operation::Collective { collective, beside }) => {
                    if self.start_collective(rank, *collective) {
                        if *beside == 0 {
                            return;
                        }
                        let state = &mut self.state.ranks[rank];
                        (state.open, state.beside) = (Some(state.operation), *beside);
                        state.launched += u64::from(program.collectives[*collective as usize].launches);
                        state.operation += 1;
                    }
                }
            }
        }
    }

    /// When the first of `launches` kernels can start, all gaps counted.
    fn launch(&self, rank: usize, launches: u32) -> Stamp {
        let state = &self.state.ranks[rank];
        self.program.launch_from(rank, state.ready, state.launched, launches)
    }

    /// Starts a rank's blocks; false when none of them has anything to do.
    fn start_collective(&mut self, rank: usize, collective: u32) -> bool {
        let timed = &self.program.collectives[collective as usize];
        let blocks = timed.rank_blocks[rank]..timed.rank_blocks[rank + 1];
        if blocks.is_empty() {
            self.state.ranks[rank].operation += 1;
            return false;
        }
        let arrival = self.launch(rank, timed.launches);
        let ready = arrival.after(Part::Kernel, timed.start[rank]);
        let first = self.layout.collectives[collective as usize].blocks.0;
        let nth = &mut self.state.entered[rank * self.program.collectives.len() + collective as usize];
        let state = &mut self.state.ranks[rank];
        (state.collective, state.nth) = (collective, *nth);
        *nth += 1;
        state.blocks_left = 0;
        state.end = ready;
        state.started = arrival.time;
        for block in blocks {
            let block = (first + block) as usize;
            let (begin, end) = self.layout.blocks[block].steps;
            if begin < end {
                self.state.ranks[rank].blocks_left += 1;
                let state = &mut self.state.blocks[block];
                state.step = begin;
                state.done = ready;
                self.await_step(block);
            }
        }
        self.arrive(rank, arrival.time);
        let works = self.state.ranks[rank].blocks_left > 0;
        if !works {
            self.end_collective(rank);
        }
        works
    }

    /// A block has done its last step; the last of a rank's blocks ends the operation.
    pub(super) fn block_ended(&mut self, block: usize) {
        let state = &mut self.state.blocks[block];
        state.phase = Phase::Idle;
        let ready = state.done;
        let rank = self.layout.blocks[block].rank as usize;
        let state = &mut self.state.ranks[rank];
        state.end = state.end.max(ready);
        state.blocks_left -= 1;
        if state.blocks_left == 0 {
            self.end_collective(rank);
            self.continue_rank(rank);
        }
    }

    fn end_collective(&mut self, rank: usize) {
        let state = &self.state.ranks[rank];
        let timed = &self.program.collectives[state.collective as usize];
        let (started, end) = (state.started, state.end.after(Part::Kernel, timed.finish));
        self.leave_instance(rank, end.time);
        let state = &mut self.state.ranks[rank];
        let Some(operation) = state.open.take() else {
            return self.end_operation(rank, started, end, timed.launches);
        };
        self.state.totals[state.collective as usize].hidden += end.time.min(state.ready.time).saturating_sub(started);
        state.ready = state.ready.max(end);
        if let Some(records) = &mut self.records {
            let (entry, repeat) = (state.entry, state.repeat);
            records.push(Record { entry, repeat, operation, rank: index32(rank), start: started, end: end.time });
        }
    }

    fn instance_of(&self, rank: usize) -> Option<usize> {
        let at = &self.state.ranks[rank];
        self.state.instances.iter().position(|i| (i.collective, i.nth) == (at.collective, at.nth))
    }

    fn arrive(&mut self, rank: usize, time: u64) {
        let place = self.instance_of(rank).unwrap_or_else(|| {
            let RankState { collective, nth, .. } = self.state.ranks[rank];
            self.state.instances.push(Instance {
                collective,
                nth,
                arrived: 0,
                left: 0,
                first_arrival: time,
                last_arrival: time,
                last_end: 0,
                arrivals: 0,
                ends: 0,
            });
            self.state.instances.len() - 1
        });
        let instance = &mut self.state.instances[place];
        instance.arrived += 1;
        instance.first_arrival = instance.first_arrival.min(time);
        instance.last_arrival = instance.last_arrival.max(time);
        instance.arrivals += u128::from(time);
    }

    fn leave_instance(&mut self, rank: usize, time: u64) {
        let Some(place) = self.instance_of(rank) else { return };
        let instance = &mut self.state.instances[place];
        instance.left += 1;
        instance.last_end = instance.last_end.max(time);
        instance.ends += u128::from(time);
        let members = self.layout.collectives[instance.collective as usize].members.count_ones();
        if instance.left < members {
            return;
        }
        let instance = self.state.instances.remove(place);
        let total = &mut self.state.totals[instance.collective as usize];
        total.count += 1;
        total.busy += instance.last_end.saturating_sub(instance.last_arrival);
        total.skew += instance.last_arrival - instance.first_arrival;
        total.waited += (u128::from(instance.last_arrival) * u128::from(members) - instance.arrivals) as u64;
        total.spent += (instance.ends - instance.arrivals) as u64;
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

    /// A rank has done a repetition; the last of the members to do so makes a boundary.
    fn leave_template(&mut self, rank: usize) {
        let state = &mut self.state.ranks[rank];
        let left = (state.entry, state.repeat);
        let run = self.program.sequence[state.entry as usize];
        state.operation = 0;
        state.repeat += 1;
        if state.repeat == run.repeats {
            state.repeat = 0;
            state.entry += 1;
        }
        if self.reuse.is_some() {
            let mut members = (0..self.program.ranks).filter(|&rank| run.members >> rank & 1 == 1);
            if members.all(|rank| (self.state.ranks[rank].entry, self.state.ranks[rank].repeat) > left) {
                self.boundary = Some(left);
            }
        }
    }

    fn finish(self) -> Result<Outcome> {
        if self.state.ranks.iter().any(|rank| !rank.finished) {
            return Err(self.deadlock());
        }
        if let Some(fault) = self.unbalanced() {
            return Err(fault);
        }
        debug_assert!(!self.fabric.is_busy(), "no flow outlives its message");
        debug_assert!(self.state.ranks.iter().all(|rank| rank.ready.parts.iter().sum::<u64>() == rank.ready.time), "parts are the time");
        let mut records = self.records.unwrap_or_default();
        records.sort_unstable();
        Ok(Outcome {
            ends: self.state.ranks.iter().map(|rank| rank.ready).collect(),
            carried: self.fabric.carried(),
            totals: self.state.totals,
            records,
            events: self.events,
        })
    }
}
