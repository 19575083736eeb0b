//! Prices a schedule's steps and connections on a machine.

use crate::collective::Block;
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
use crate::units::Time;

use super::roads::Roads;

/// Bytes of a packed load of one thread.
const PACK_BYTES: u64 = 16;
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
    let mut pricer = Pricer { machine, kinds, lowering, roads, fault: None };
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
}

impl<'a> Pricer<'a> {
    fn device(&self, rank: usize) -> usize {
        rank / self.machine.ranks_per_gpu.max(1) as usize
    }

    fn constants(&self, rank: usize) -> &'a ProtocolConstants {
        &self.kinds[self.device(rank)].protocol
    }

    fn staged(&self, schedule: &Schedule, connection: usize) -> bool {
        let c = &schedule.connections[connection];
        self.lowering.staged(c.source, c.target) && self.device(c.source) != self.device(c.target)
    }

    /// A round trip of a load of `rank` from host memory of its own socket.
    fn host_read(&self, rank: usize) -> Time {
        let device = self.device(rank);
        let socket = self.machine.socket_of(device).unwrap_or(0);
        self.machine.read_latency(device, Endpoint::Host(socket)).unwrap_or_default()
    }

    fn route(&mut self, from: Endpoint, to: Endpoint) -> u32 {
        match self.roads.route(self.machine, from, to) {
            Ok(route) => route,
            Err(fault) => {
                self.fault.get_or_insert(fault);
                0
            }
        }
    }

    /// LL and LL128 steps: trips, between an entry and an exit.
    fn line_step(&self, schedule: &Schedule, block: usize, index: usize, protocol_used: Protocol) -> StepCost {
        let block = &schedule.blocks[block];
        let step = &block.steps[index];
        let constants = self.constants(block.rank);
        let threads = u64::from(block.threads);
        let peers = u64::from(step.receive.len.max(step.send.len).max(1));
        let operations = u64::from(step.own) + u64::from(step.store) + u64::from(step.receive.len > 0) + u64::from(step.send.len > 0);
        let trip = Trip { threads, beside: self.threads_beside(schedule, block), operations };
        let ((work, last), entry, exit) = if protocol_used == Protocol::Ll128 {
            (trip.ll128(constants, step.bytes), constants.ll128_entry_ns.value, constants.ll128_exit_ns.value)
        } else {
            (trip.ll(constants, step.bytes), constants.ll_entry_ns.value, constants.ll_exit_ns.value)
        };
        let trips = step.bytes.div_ceil(threads * 8).max(1);
        // Lines in host memory are polled over PCIe: a round trip for each trip.
        let polled = schedule.receives(step).iter().any(|&c| self.staged(schedule, c as usize));
        let far = if polled { self.host_read(block.rank).times(trips - 1) } else { Time::ZERO };
        let work = protocol::for_peers(constants, work, peers) + far;
        let last = protocol::for_peers(constants, last, peers);
        let first = if step.send.len > 0 { last.min(work) } else { Time::ZERO };
        StepCost { entry: Time::from_ns(entry).0, first: first.0, work: work.0, tail: last.0, exit: Time::from_ns(exit).0, fence: 0 }
    }

    /// Threads of the block's other roles.
    fn threads_beside(&self, schedule: &Schedule, block: &Block) -> u64 {
        let same = |other: &&Block| (other.rank, other.channel) == (block.rank, block.channel);
        schedule.blocks.iter().filter(same).map(|b| u64::from(b.threads)).sum::<u64>() - u64::from(block.threads)
    }

    fn simple_step(&self, schedule: &Schedule, block: usize, index: usize) -> StepCost {
        let block = &schedule.blocks[block];
        let step = &block.steps[index];
        let constants = self.constants(block.rank);
        let (entry, copy, exit) = protocol::simple_slice(constants, u64::from(block.threads), step.bytes);
        let fence = if step.bytes > 0 && step.send.len > 0 { Time::from_ns(constants.fence_ns.value) } else { Time::ZERO };
        // The barrier that follows the wait comes after the arrival: it is work.
        let work = entry + copy;
        StepCost { entry: 0, first: work.0, work: work.0, tail: work.0, exit: exit.0, fence: fence.0 }
    }
}

impl Pricing for Pricer<'_> {
    fn step(&self, schedule: &Schedule, block: usize, index: usize) -> StepCost {
        let step = &schedule.blocks[block].steps[index];
        let constants = self.constants(schedule.blocks[block].rank);
        let any = schedule.receives(step).first().or_else(|| schedule.sends(step).first());
        match any.map(|&c| schedule.connections[c as usize].protocol) {
            None => StepCost::default(),
            _ if schedule.blocks[block].engine == Engine::CopyEngine => {
                StepCost { entry: Time::from_ns(constants.copy_engine_ns.value).0, ..StepCost::default() }
            }
            Some(used @ (Protocol::Ll | Protocol::Ll128 | Protocol::Packet)) => self.line_step(schedule, block, index, used),
            Some(Protocol::Simple) => self.simple_step(schedule, block, index),
            Some(Protocol::Flag) => {
                // Half of a barrier is its arrival, half its wait; data written before is fenced.
                let half = Time::from_ns(constants.barrier_ns.value / 2.0).0;
                let fence = if self.writes_before(schedule, block, index) { Time::from_ns(constants.fence_ns.value).0 } else { 0 };
                StepCost { entry: half, fence: if step.send.len > 0 { fence } else { 0 }, ..StepCost::default() }
            }
            Some(Protocol::Read) => {
                let trips = step.bytes.div_ceil(u64::from(schedule.blocks[block].threads) * PACK_BYTES).max(1);
                let load = Trip { threads: 32, beside: 0, operations: 3 }.ll(constants, 8).0;
                let add = protocol::for_peers(constants, load, u64::from(step.receive.len));
                StepCost { tail: add.0, work: add.times(trips).0, ..StepCost::default() }
            }
        }
    }

    fn connection(&mut self, schedule: &Schedule, connection: usize) -> TimedConnection {
        let c = &schedule.connections[connection];
        let (source, target) = (self.device(c.source), self.device(c.target));
        let constants = self.constants(c.target);
        let poll = Time::from_ns(constants.poll_ns.value);
        let mut timed = TimedConnection {
            credits: c.credits,
            cuts_through: c.protocol.cuts_through(),
            pulled: c.protocol == Protocol::Read,
            poll: poll.0,
            ..TimedConnection::default()
        };
        let local = Time::from_ns(constants.local_hop_ns.value);
        if self.staged(schedule, connection) {
            let socket = self.machine.socket_of(target).unwrap_or(0);
            let read = self.host_read(c.target);
            timed.route = self.route(Endpoint::Gpu(source), Endpoint::Host(socket));
            timed.latency = self.machine.write_latency(source, Endpoint::Host(socket)).unwrap_or_default().0;
            // On average a poll leaves half a round trip after the arrival and needs another to come back.
            timed.poll = read.0;
            timed.credit = timed.latency;
            // With one packed load of each thread in flight, a block reads this much.
            let threads = schedule.blocks.iter().find(|b| b.rank == c.target).map_or(512, |b| u64::from(b.threads));
            let in_flight = (threads * PACK_BYTES) as f64 * constants.reads_in_flight.value;
            let rate = in_flight * 1e12 / (read.0.max(1) as f64);
            timed.fetch = Some(Fetch { route: self.route(Endpoint::Host(socket), Endpoint::Gpu(target)), rate: rate as u64, latency: 0 });
        } else if timed.pulled {
            timed.route = self.route(Endpoint::Gpu(source), Endpoint::Gpu(target));
            let far = self.machine.read_latency(target, Endpoint::Gpu(source)).unwrap_or_default();
            timed.latency = if source == target { local.times(2).0 } else { far.0 };
            timed.poll = 0;
        } else {
            timed.route = self.route(Endpoint::Gpu(source), Endpoint::Gpu(target));
            let far = self.machine.write_latency(source, Endpoint::Gpu(target)).unwrap_or_default();
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
        let (source, target) = (self.device(c.source), self.device(c.target));
        let constants = self.constants(c.target);
        let round_trip = if source == target {
            Time::from_ns(2.0 * constants.local_hop_ns.value)
        } else {
            self.machine.read_latency(target, Endpoint::Gpu(source)).unwrap_or_default()
        };
        let in_flight = u64::from(schedule.blocks[block].threads) as f64 * PACK_BYTES as f64 * constants.reads_in_flight.value;
        (in_flight * 1e12 / (round_trip.0.max(1) as f64)) as u64
    }

    fn start(&self, schedule: &Schedule, rank: usize) -> u64 {
        let constants = self.constants(rank);
        let threads = schedule.blocks.iter().filter(|b| b.rank == rank).map(|b| b.block_threads).max().unwrap_or(0);
        let late = if self.machine.ranks_per_gpu > 1 && rank >= 2 { constants.branch_skew_ns.value } else { 0.0 };
        (protocol::kernel_start(constants, self.lowering.kernel == Kernel::Nccl, threads) + Time::from_ns(late)).0
    }

    fn finish(&self, schedule: &Schedule) -> u64 {
        let kind = self.kinds[0];
        let fused = crate::units::Rate::from_gbps(kind.chip.memory_gbps.value).time_for(crate::units::Bytes(schedule.epilogue_bytes));
        (Time::from_ns(kind.protocol.kernel_end_ns.value) + fused).0
    }
}

impl Pricer<'_> {
    /// Whether the block has stored anything since its last barrier's arrival.
    fn writes_before(&self, schedule: &Schedule, block: usize, index: usize) -> bool {
        let steps = &schedule.blocks[block].steps[..index];
        let is_arrival = |step: &&crate::collective::Step| step.bytes == 0 && step.send.len > 0;
        let since = steps.iter().rposition(|step| is_arrival(&step)).map_or(0, |at| at + 1);
        steps[since..].iter().any(|step| step.store && step.bytes > 0)
    }
}
