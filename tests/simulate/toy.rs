//! A toy that prices every step and connection alike, and schedules for it.

use std::sync::Arc;

use lanecast::collective::one_shot::Grid;
use lanecast::collective::{Block, Buffer, Engine, KernelShape, Part as Share, Protocol, Schedule, Step, one_shot, ring, tree};
use lanecast::simulate::program::Run;
use lanecast::simulate::timed::{Fetch, Pricing};
use lanecast::simulate::{Launch, Network, Operation, Options, Outcome, Program, StepCost, Template, Timed, TimedConnection, simulate};

/// Bytes per second that make a byte a picosecond.
pub const BYTE_A_PS: u64 = 1_000_000_000_000;

/// Prices everything alike.
#[derive(Clone)]
pub struct Toy {
    pub ranks: usize,
    pub routes: Vec<u32>,
    pub cost: StepCost,
    pub connection: TimedConnection,
    pub start: u64,
    pub finish: u64,
}

impl Toy {
    /// Every rank has a link up and a link down; those of the two halves meet
    /// over a trunk each way.
    pub fn new(ranks: usize, rates: [u64; 3]) -> (Network, Toy) {
        let mut network = Network::default();
        for _ in 0..ranks {
            network.capacity.extend([rates[0], rates[1]]);
        }
        network.capacity.extend([rates[2]; 2]);
        let half = |rank: usize| rank * 2 / ranks;
        let mut routes = Vec::new();
        for (source, target) in (0..ranks * ranks).map(|pair| (pair / ranks, pair % ranks)) {
            let mut links = vec![2 * source as u32];
            if half(source) != half(target) {
                links.push((2 * ranks + half(source)) as u32);
            }
            links.push(2 * target as u32 + 1);
            routes.push(network.route(if source == target { &[] } else { &links }));
        }
        let (cost, connection) = (StepCost::default(), TimedConnection::default());
        (network, Toy { ranks, routes, cost, connection, start: 0, finish: 0 })
    }

    pub fn route_of(&self, source: usize, target: usize) -> u32 {
        self.routes[source * self.ranks + target]
    }
}

impl Pricing for Toy {
    fn step(&self, schedule: &Schedule, block: usize, step: usize) -> StepCost {
        let bytes = schedule.blocks[block].steps[step].bytes;
        let trips = bytes.div_ceil(256).clamp(1, 1000);
        StepCost { work: self.cost.work * trips, ..self.cost }
    }

    fn connection(&mut self, schedule: &Schedule, connection: usize) -> TimedConnection {
        let c = &schedule.connections[connection];
        let route = self.route_of(c.source, c.target);
        let pulled = c.protocol == Protocol::Read;
        let fetch = if pulled { None } else { self.connection.fetch.map(|fetch| Fetch { route, ..fetch }) };
        TimedConnection { credits: c.credits, cuts_through: c.protocol.cuts_through(), pulled, route, fetch, ..self.connection }
    }

    fn wire(&self, schedule: &Schedule, connection: usize, bytes: u64) -> u64 {
        schedule.connections[connection].protocol.wire_bytes(bytes)
    }

    fn pull_rate(&self, _: &Schedule, _: usize, _: usize, peers: usize) -> u64 {
        40_000_000_000 / peers as u64
    }

    fn alike(&self, schedule: &Schedule, block: usize, one: usize, other: usize) -> bool {
        let steps = &schedule.blocks[block].steps;
        let lists = |step: usize| (schedule.receives(&steps[step]), schedule.sends(&steps[step]));
        steps[one].bytes == steps[other].bytes && lists(one) == lists(other)
    }

    fn start(&self, _: &Schedule, rank: usize) -> u64 {
        self.start * (1 + rank as u64 % 3)
    }

    fn finish(&self, _: &Schedule) -> u64 {
        self.finish
    }
}

pub fn shape(protocol: Protocol, channels: u32, bytes: u64) -> KernelShape {
    let share = bytes.div_ceil(u64::from(channels)).div_ceil(16) * 16;
    let parts = (0..channels).map(|channel| {
        let offset = (u64::from(channel) * share).min(bytes);
        Share { channel, offset, bytes: share.min(bytes - offset), chunk_bytes: 1024 }
    });
    let (slice_steps, chunk_steps) = if protocol == Protocol::Simple { (2, 4) } else { (1, 1) };
    let threads = 32;
    KernelShape {
        protocol,
        threads,
        broadcast_threads: threads,
        block_threads: 2 * threads,
        slice_steps,
        chunk_steps,
        slice_bytes_min: 256,
        parts: parts.collect(),
    }
}

pub const KINDS: usize = 7;

pub fn schedule(kind: usize, ranks: usize, bytes: u64) -> Schedule {
    let order: Vec<usize> = (0..ranks).rev().collect();
    let grid = Grid { blocks: 2, threads: 32 };
    match kind {
        0 => ring::all_reduce(&order, bytes, &shape(Protocol::Ll, 1, bytes)),
        1 => ring::all_reduce(&order, bytes, &shape(Protocol::Simple, 2, bytes)),
        2 => tree::all_reduce(&order, bytes, &shape(Protocol::Ll, 2, bytes)),
        3 => tree::all_reduce(&order, bytes, &shape(Protocol::Simple, 1, bytes)),
        4 => one_shot::push(ranks, bytes, grid, Protocol::Packet),
        5 => one_shot::pull(ranks, bytes, grid, true),
        _ => one_shot::two_shot_pull(ranks, bytes, grid),
    }
}

/// One template of all collectives in turn, each after `compute`, `repeats` times.
pub fn program(schedules: &[Schedule], network: Network, toy: &mut Toy, compute: Vec<u64>, repeats: u32, launch: Launch) -> Program {
    let mut operations = Vec::new();
    for collective in 0..schedules.len() as u32 {
        operations.push(Operation::Compute { ps: compute.clone(), launches: 2 });
        operations.push(Operation::Collective { collective, beside: 0 });
    }
    let collectives = schedules.iter().map(|schedule| Arc::new(Timed::new(schedule, toy, 1))).collect();
    let sequence = vec![Run { template: 0, repeats, members: (1 << toy.ranks) - 1 }];
    Program { ranks: toy.ranks, templates: vec![Template { operations }], sequence, collectives, network, launch }
}

pub const PLAIN: Options = Options { reuse: false, records: false };

pub fn run(program: &Program) -> Outcome {
    simulate(program, PLAIN).expect("it ends")
}

/// Messages of `bytes` from rank 0 to rank 1 over one block each.
pub fn one_message(protocol: Protocol, bytes: u64, messages: usize, credits: u32) -> Schedule {
    let mut schedule = Schedule::new(2, bytes);
    let connection = schedule.connect(0, 1, protocol, credits);
    for rank in 0..2 {
        let mut steps = Vec::new();
        for _ in 0..messages {
            let list = schedule.list(&[connection]);
            let none = schedule.list(&[]);
            let (receive, send) = if rank == 0 { (none, list) } else { (list, none) };
            let user = Buffer::User;
            let step = Step { receive, send, offset: 0, bytes, own: rank == 0, store: rank == 1, source: user, target: user };
            steps.push(step);
        }
        let engine = Engine::Threads;
        schedule.blocks.push(Block { rank, channel: 0, threads: 32, block_threads: 32, engine, steps });
    }
    schedule
}

/// One collective, once, from a replayed graph without gaps.
pub fn once(schedule: &Schedule, network: Network, toy: &mut Toy) -> Program {
    let mut program = program(std::slice::from_ref(schedule), network, toy, vec![0], 1, Launch::Graph { gap: 0 });
    program.templates[0].operations.remove(0);
    program
}

/// Links of 1 B/ps; 256 B are one trip of 100 ps of work.
pub fn slow_pair() -> (Network, Toy) {
    let (network, mut toy) = Toy::new(2, [BYTE_A_PS; 3]);
    toy.cost = StepCost { entry: 10, first: 30, work: 100, tail: 40, exit: 5, fence: 7 };
    toy.connection = TimedConnection { latency: 1000, poll: 20, credit: 600, ..TimedConnection::default() };
    (network, toy)
}
