//! Prices a schedule's steps and connections on a machine; [`steps`] the steps.

mod crossing;
mod steps;

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::collective::Engine;
use crate::collective::Protocol;
use crate::collective::Schedule;
use crate::cost::protocol;
use crate::cost::protocol::Trip;
use crate::error::Fault;
use crate::error::Result;
use crate::machine::Endpoint;
use crate::machine::GpuKind;
use crate::machine::Machine;
use crate::machine::ProtocolConstants;
use crate::simulate::StepCost;
use crate::simulate::Timed;
use crate::simulate::TimedConnection;
use crate::simulate::timed::Fetch;
use crate::simulate::timed::Pricing;
use crate::strategy::Kernel;
use crate::strategy::Lowering;
use crate::units::Bytes;
use crate::units::Rate;
use crate::units::Time;

use super::roads::Order;
use super::roads::Roads;

/// Bytes of a packed load of one thread.
const PACK_BYTES: u64 = 16;
/// A line in host memory is read twice: by a poll that comes too early, and by the one that finds it.
const POLLS_PER_LINE: u64 = 2;
/// Bytes that a warp's lines of LL fill before they leave as one packet.
const LL_PACKET_BYTES: f64 = 128.0;

/// Prices a lowered collective on a machine; rank `r` runs on device
/// `r / ranks_per_gpu`.
///
/// # Errors
/// Too many ranks for the machine, or no route between two of them.
pub fn price(machine: &Machine, roads: &mut Roads, lowering: &Lowering) -> Result<Timed> {
    let devices = lowering.schedule.ranks.div_ceil(machine.ranks_per_gpu.max(1) as usize);
    if devices > machine.gpus.len() {
        return Err(Fault::new(
            "machine-too-few-gpus",
            format!("{} ranks do not fit machine {} with {} GPUs", lowering.schedule.ranks, machine.id, machine.gpus.len()),
        )
        .help("use fewer ranks (--tp), or a machine with more GPUs"));
    }
    let kinds: Vec<&GpuKind> = (0..devices)
        .map(|device| machine.gpu_kind(device).ok_or_else(|| Fault::new("machine-no-kind", format!("device {device} has no kind"))))
        .collect::<Result<_>>()?;
    let mut threads: BTreeMap<(usize, u32), u64> = BTreeMap::new();
    for block in &lowering.schedule.blocks {
        *threads.entry((block.rank, block.channel)).or_default() += u64::from(block.threads);
    }
    let mut blocks = vec![0; devices];
    for (rank, _) in threads.keys() {
        blocks[rank / machine.ranks_per_gpu.max(1) as usize] += 1;
    }
    let crossing = crossing::crossing(&lowering.schedule, |rank| rank / machine.ranks_per_gpu.max(1) as usize);
    let sockets = (0..devices).map(|device| roads.routes.socket_of(device).unwrap_or(0)).collect();
    let mut pricer = Pricer { machine, kinds, lowering, roads, fault: None, threads, blocks, sockets, crossing, known: RefCell::default() };
    let timed = Timed::new(&lowering.schedule, &mut pricer, 1);
    match pricer.fault {
        Some(fault) => Err(fault),
        None => Ok(timed),
    }
}

struct Pricer<'a> {
    machine: &'a Machine,
    kinds: Vec<&'a GpuKind>,
    lowering: &'a Lowering,
    roads: &'a mut Roads,
    fault: Option<Box<Fault>>,
    /// Threads that move data, by rank and channel.
    threads: BTreeMap<(usize, u32), u64>,
    /// Blocks on each device.
    blocks: Vec<u64>,
    /// The socket of each device.
    sockets: Vec<usize>,
    /// Connections whose data share ports with those for other targets.
    crossing: Vec<bool>,
    /// Latencies that were asked for: a route is found once.
    known: RefCell<BTreeMap<(Way, usize, Endpoint), Time>>,
}

/// What a latency is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Read,
    Write,
}

impl<'a> Pricer<'a> {
    /// A load's round trip, or a store's way, from a device to an end; zero where there is no way.
    fn latency(&self, way: Way, device: usize, end: Endpoint) -> Time {
        *self.known.borrow_mut().entry((way, device, end)).or_insert_with(|| {
            let found = match way {
                Way::Read => self.roads.routes.read_latency(self.machine, device, end),
                Way::Write => self.roads.routes.write_latency(self.machine, device, end),
            };
            found.unwrap_or_default()
        })
    }

    fn device(&self, rank: usize) -> usize {
        rank / self.machine.ranks_per_gpu.max(1) as usize
    }

    fn constants(&self, rank: usize) -> &'a ProtocolConstants {
        &self.kinds[self.device(rank)].protocol
    }

    fn staged(&self, schedule: &Schedule, connection: usize) -> bool {
        let c = &schedule.connections[connection];
        self.lowering.staged(c.source, c.target) || (self.lowering.kernel == Kernel::Custom && self.machine.stages_loads())
    }

    /// A round trip of a load of `rank` from host memory of its own socket.
    fn host_read(&self, rank: usize) -> Time {
        self.far_host_read(rank, rank)
    }

    /// A round trip of a load of `rank` from host memory of the socket of `owner`.
    fn far_host_read(&self, rank: usize, owner: usize) -> Time {
        self.latency(Way::Read, self.device(rank), Endpoint::Host(self.socket(owner)))
    }

    /// Packed loads that a thread of NCCL's Simple has in flight: its loop's unrolling (device.h:535-538).
    fn unroll(&self, rank: usize) -> f64 {
        if self.kinds[self.device(rank)].compute_capability.0 >= 12 { 6.0 } else { 8.0 }
    }

    fn socket(&self, rank: usize) -> usize {
        self.sockets[self.device(rank)]
    }

    /// A round trip of a pull: from host memory on the source's side if staged.
    fn pull_trip(&self, schedule: &Schedule, connection: usize) -> Time {
        let c = &schedule.connections[connection];
        let (source, target) = (self.device(c.source), self.device(c.target));
        if self.staged(schedule, connection) {
            self.far_host_read(c.target, c.source)
        } else if source == target {
            Time::from_ns(self.constants(c.target).local_hop_ns.value).times(2)
        } else {
            self.latency(Way::Read, target, Endpoint::Gpu(source))
        }
    }

    /// From a line's arrival in host memory to `rank` seeing it: on average half
    /// of a poll that comes too early, then a whole one.
    fn host_poll(&self, rank: usize) -> Time {
        let read = self.host_read(rank);
        Time(read.0 + read.0 / 2)
    }

    fn route(&mut self, from: Endpoint, to: Endpoint) -> u32 {
        self.ordered_route(from, to, Order::Alone)
    }

    /// The route of a connection between two GPUs.
    fn peer_route(&mut self, connection: usize, source: usize, target: usize) -> u32 {
        let order = if self.crossing[connection] { Order::Crossing } else { Order::Alone };
        self.ordered_route(Endpoint::Gpu(source), Endpoint::Gpu(target), order)
    }

    fn ordered_route(&mut self, from: Endpoint, to: Endpoint, order: Order) -> u32 {
        match self.roads.route(self.machine, from, to, order) {
            Ok(route) => route,
            Err(fault) => {
                self.fault.get_or_insert(fault);
                0
            }
        }
    }
}

impl Pricing for Pricer<'_> {
    fn step(&self, schedule: &Schedule, block: usize, index: usize) -> StepCost {
        let step = &schedule.blocks[block].steps[index];
        let constants = self.constants(schedule.blocks[block].rank);
        let any = schedule.receives(step).first().or_else(|| schedule.sends(step).first());
        match any.map(|&c| schedule.connections[c as usize].protocol) {
            None => self.local_step(&schedule.blocks[block], step),
            _ if schedule.blocks[block].engine == Engine::CopyEngine => self.copy_engine_step(schedule.blocks[block].rank, step),
            Some(Protocol::Simple) if self.lowering.kernel == Kernel::Nccl => self.simple_step(schedule, block, index),
            Some(used @ (Protocol::Simple | Protocol::Fp8)) => self.packs_step(schedule, block, index, used),
            Some(used) if used.cuts_through() => self.line_step(schedule, block, index, used),
            Some(Protocol::Flag) => {
                // Half of a barrier is its arrival, half its wait; what peers will read is fenced.
                let half = Time::from_ns(constants.barrier_ns.value / 2.0).0;
                let fence = if self.publishes(schedule, block, index) { Time::from_ns(constants.fence_ns.value).0 } else { 0 };
                StepCost { entry: half, fence: if step.send.len > 0 { fence } else { 0 }, ..StepCost::default() }
            }
            // Read; the others were dealt with above.
            Some(_) => {
                let trips = step.bytes.div_ceil(u64::from(schedule.blocks[block].threads) * PACK_BYTES).max(1);
                let load = Trip { threads: 32, operations: 3, ..Trip::default() }.ll(constants, 8).0;
                let add = protocol::for_peers(constants, load, u64::from(step.receive.len));
                StepCost { tail: add.0, work: add.times(trips).0, ..StepCost::default() }
            }
        }
    }

    fn alike(&self, schedule: &Schedule, block: usize, one: usize, other: usize) -> bool {
        let steps = &schedule.blocks[block].steps;
        let (one, other) = (&steps[one], &steps[other]);
        let (receives, sends) = (schedule.receives(one), schedule.sends(one));
        // What a barrier costs depends on what stands before and after it.
        let barrier = |c: &u32| schedule.connections[*c as usize].protocol == Protocol::Flag;
        (one.bytes, one.own, one.store, one.source, one.target) == (other.bytes, other.own, other.store, other.source, other.target)
            && receives == schedule.receives(other)
            && sends == schedule.sends(other)
            && !receives.iter().chain(sends).any(barrier)
    }

    fn connection(&mut self, schedule: &Schedule, connection: usize) -> TimedConnection {
        let c = &schedule.connections[connection];
        let (source, target) = (self.device(c.source), self.device(c.target));
        let constants = self.constants(c.target);
        let seen = if c.protocol == Protocol::Flag { &constants.flag_poll_ns } else { &constants.poll_ns };
        let poll = Time::from_ns(seen.value);
        let mut timed = TimedConnection {
            credits: c.credits,
            cuts_through: c.protocol.cuts_through(),
            pulled: c.protocol == Protocol::Read,
            poll: poll.0,
            ..TimedConnection::default()
        };
        let local = Time::from_ns(constants.local_hop_ns.value);
        if self.staged(schedule, connection) && timed.pulled {
            timed.route = self.route(Endpoint::Host(self.socket(c.source)), Endpoint::Gpu(target));
            timed.latency = self.pull_trip(schedule, connection).0;
            timed.poll = 0;
        } else if c.source == c.target && !timed.cuts_through && c.protocol != Protocol::Flag {
            // Written for others to read: done when it has left, the fence is the next barrier's.
            let host = self.staged(schedule, connection);
            let memory = if host { Endpoint::Host(self.socket(c.source)) } else { Endpoint::Gpu(target) };
            timed.route = self.route(Endpoint::Gpu(source), memory);
            timed.poll = 0;
        } else if self.staged(schedule, connection) {
            let socket = self.socket(c.target);
            let read = self.host_read(c.target);
            timed.route = self.route(Endpoint::Gpu(source), Endpoint::Host(socket));
            timed.latency = self.latency(Way::Write, source, Endpoint::Host(socket)).0;
            timed.poll = self.host_poll(c.target).0;
            timed.credit = timed.latency;
            // Polls of lines are their own fetch. Data are read with as many packed loads of each thread in flight as the loop is unrolled.
            let threads = schedule.blocks.iter().find(|b| b.rank == c.target).map_or(512, |b| u64::from(b.threads));
            let loads = if self.lowering.kernel == Kernel::Nccl { self.unroll(c.target) } else { constants.reads_in_flight.value };
            let in_flight = (threads * PACK_BYTES) as f64 * loads;
            let rate = if timed.cuts_through { u64::MAX } else { (in_flight * 1e12 / (read.0.max(1) as f64)) as u64 };
            let times = if timed.cuts_through { POLLS_PER_LINE } else { 1 };
            // The first loads of a slice take a round trip; what a custom kernel has in flight is a trip's worth, its rate holds it.
            let trip = if timed.cuts_through || self.lowering.kernel != Kernel::Nccl { 0 } else { read.0 };
            timed.fetch = Some(Fetch { route: self.route(Endpoint::Host(socket), Endpoint::Gpu(target)), rate, latency: trip, times });
        } else if timed.pulled {
            timed.route = self.peer_route(connection, source, target);
            timed.latency = self.pull_trip(schedule, connection).0;
            timed.poll = 0;
        } else {
            timed.route = self.peer_route(connection, source, target);
            let far = self.latency(Way::Write, source, Endpoint::Gpu(target));
            timed.latency = if source == target { local.0 } else { far.0 };
            timed.credit = timed.latency;
        }
        timed
    }

    fn wire(&self, schedule: &Schedule, connection: usize, bytes: u64) -> u64 {
        let c = &schedule.connections[connection];
        let wire = c.protocol.wire_bytes(bytes);
        if self.device(c.source) == self.device(c.target) || !c.protocol.cuts_through() {
            return wire;
        }
        libm::ceil(wire as f64 / self.machine.packet_efficiency(LL_PACKET_BYTES)) as u64
    }

    fn pull_rate(&self, schedule: &Schedule, block: usize, connection: usize, _peers: usize) -> u64 {
        let c = &schedule.connections[connection];
        let constants = self.constants(c.target);
        let round_trip = self.pull_trip(schedule, connection);
        let in_flight = u64::from(schedule.blocks[block].threads) as f64 * PACK_BYTES as f64 * constants.reads_in_flight.value;
        (in_flight * 1e12 / (round_trip.0.max(1) as f64)) as u64
    }

    fn start(&self, schedule: &Schedule, rank: usize) -> u64 {
        if self.lowering.kernel == Kernel::None {
            return 0;
        }
        let constants = self.constants(rank);
        let threads = schedule.blocks.iter().filter(|b| b.rank == rank).map(|b| b.block_threads).max().unwrap_or(0);
        let late = match rank % self.machine.ranks_per_gpu.max(1) as usize {
            0 | 1 => 0.0,
            branch => constants.branch_skew_ns.value + constants.branch_step_ns.value * (branch - 2) as f64,
        };
        let ll = schedule.connections.iter().all(|c| c.protocol == Protocol::Ll);
        let start = match self.lowering.kernel {
            Kernel::Nccl => protocol::nccl_start(constants, ll, threads),
            Kernel::Custom | Kernel::None => Time::from_ns(constants.custom_kernel_ns.value),
        };
        (start + Time::from_ns(late)).0
    }

    fn finish(&self, schedule: &Schedule) -> u64 {
        if self.lowering.kernel == Kernel::None {
            return 0;
        }
        let kind = self.kinds[0];
        let fused = Rate::from_gbps(kind.chip.memory_gbps.value).time_for(Bytes(schedule.epilogue_bytes));
        (Time::from_ns(kind.protocol.kernel_end_ns.value) + fused).0
    }
}
