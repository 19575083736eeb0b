//! What each kind of step costs its thread block.

use crate::collective::Block;
use crate::collective::Buffer;
use crate::collective::Protocol;
use crate::collective::Schedule;
use crate::collective::Step;
use crate::cost::protocol;
use crate::cost::protocol::Slice;
use crate::cost::protocol::Trip;
use crate::simulate::StepCost;
use crate::strategy::Kernel;
use crate::units::Bytes;
use crate::units::Rate;
use crate::units::Time;

use super::Pricer;

impl Pricer<'_> {
    /// LL and LL128 steps: trips, between an entry and an exit.
    pub(super) fn line_step(&self, schedule: &Schedule, block: usize, index: usize, protocol_used: Protocol) -> StepCost {
        let block = &schedule.blocks[block];
        let step = &block.steps[index];
        let constants = self.constants(block.rank);
        let threads = u64::from(block.threads);
        let peers = u64::from(step.receive.len.max(step.send.len).max(1));
        // Who takes a sentinel's place puts the mark for "empty" back.
        let clears = u64::from(protocol_used == Protocol::Sentinel && step.receive.len > 0);
        let nccl = self.lowering.kernel == Kernel::Nccl;
        let others = if nccl { self.blocks_beside(block.rank) } else { 0 };
        let misses = nccl && self.exceeds_l2(schedule, block.rank) && (step.own || step.store);
        let trip = Trip {
            threads,
            beside_permille: self.at_once_permille(schedule, block),
            others,
            misses,
            operations: operations(step) + clears,
        };
        let ((work, last), entry, exit) = if protocol_used == Protocol::Ll128 {
            (trip.ll128(constants, step.bytes), constants.ll128_entry_ns.value, constants.ll128_exit_ns.value)
        } else {
            let costs = trip.ll(constants, as_lines(step.bytes, protocol_used));
            // Only NCCL's kernels have primitives to enter and to leave.
            let (entry, exit) = if nccl { (constants.ll_entry_ns.value, constants.ll_exit_ns.value) } else { (0.0, 0.0) };
            (costs, entry, exit)
        };
        // Who sends waits for a credit behind a barrier, who has received gives one behind another.
        let barrier = if nccl { constants.barrier_warp_ns.value * (threads / 32) as f64 } else { 0.0 };
        let entry = if step.send.len > 0 { entry + barrier } else { 0.0 };
        let exit = if step.receive.len > 0 { exit + barrier } else { 0.0 };
        let trips = as_lines(step.bytes, protocol_used).div_ceil(threads * 8).max(1);
        // Lines in host memory are read over PCIe, a round trip for each trip.
        let polled = schedule.receives(step).iter().any(|&c| self.staged(schedule, c as usize));
        let far = if polled { self.host_read(block.rank).times(trips - 1) } else { Time::ZERO };
        let work = protocol::for_peers(constants, work, peers) + far;
        let last = protocol::for_peers(constants, last, peers);
        let first = if step.send.len > 0 { last.min(work) } else { Time::ZERO };
        StepCost { entry: Time::from_ns(entry).0, first: first.0, work: work.0, tail: last.0, exit: Time::from_ns(exit).0, fence: 0 }
    }

    /// Threads of the block's other roles.
    fn threads_beside(&self, block: &Block) -> u64 {
        self.threads.get(&(block.rank, block.channel)).copied().unwrap_or(0).saturating_sub(u64::from(block.threads))
    }

    /// For how much of its time a block's role works beside another of the
    /// block, as a mean over its steps: a chunk comes back down a chain after as
    /// many hops up and down as there are further ranks, on average; only chunks
    /// beyond those meet.
    fn at_once_permille(&self, schedule: &Schedule, block: &Block) -> u64 {
        if self.threads_beside(block) == 0 {
            return 0;
        }
        let (steps, lag) = (block.steps.len() as u64, schedule.ranks as u64 - 1);
        1000 * steps.saturating_sub(lag) / steps.max(1)
    }

    /// Other blocks of the collective on the GPU of `rank`.
    fn blocks_beside(&self, rank: usize) -> u64 {
        self.blocks[self.device(rank)].saturating_sub(1)
    }

    /// Whether the data of the ranks on the GPU of `rank` do not stay in its L2.
    fn exceeds_l2(&self, schedule: &Schedule, rank: usize) -> bool {
        let kind = self.kinds[self.device(rank)];
        let ranks = schedule.ranks.min(self.machine.ranks_per_gpu.max(1) as usize) as u64;
        (ranks * schedule.user_bytes) as f64 > kind.kernels.l2_usable.value * kind.l2_bytes as f64
    }

    /// Plain data of a custom kernel, packs of 16 B: after a barrier of the
    /// block the threads store or load them; stores are fenced and flagged.
    pub(super) fn packs_step(&self, schedule: &Schedule, block: usize, index: usize, protocol_used: Protocol) -> StepCost {
        let block = &schedule.blocks[block];
        let step = &block.steps[index];
        let constants = self.constants(block.rank);
        let own = |list: &[u32]| list.iter().any(|&c| schedule.connections[c as usize].source == schedule.connections[c as usize].target);
        if own(schedule.receives(step)) {
            // What the block itself has written: nothing to look for.
            return StepCost::default();
        }
        // Eight bits: the group's largest value, then the conversion.
        let converts = if protocol_used == Protocol::Fp8 { 2 } else { 0 };
        let trip = Trip { threads: u64::from(block.threads), operations: operations(step) + converts, ..Trip::default() };
        let peers = u64::from(step.receive.len.max(step.send.len).max(1));
        let work = protocol::for_peers(constants, trip.ll(constants, as_lines(step.bytes, protocol_used)).0, peers);
        let half = Time::from_ns(constants.barrier_ns.value / 2.0);
        let entry = if step.receive.len > 0 { half } else { Time::ZERO };
        let tells = step.send.len > 0 && step.bytes > 0 && !own(schedule.sends(step));
        let fence = if tells { Time::from_ns(constants.fence_ns.value) + half } else { Time::ZERO };
        StepCost { entry: entry.0, first: work.0, work: work.0, tail: work.0, exit: 0, fence: fence.0 }
    }

    /// A copy engine's copy, or the kernel that adds what one has brought.
    pub(super) fn copy_engine_step(&self, rank: usize, step: &Step) -> StepCost {
        let kind = self.kinds[self.device(rank)];
        if step.send.len > 0 {
            return StepCost { entry: Time::from_ns(kind.protocol.copy_engine_ns.value).0, ..StepCost::default() };
        }
        if !step.own {
            return StepCost::default();
        }
        // As wide as the GPU: two loads and a store at the rate of its L2.
        let add = Rate::from_gbps(kind.chip.l2_gbps.value).time_for(Bytes(3 * step.bytes));
        let begin = Time::from_ns(kind.launch.graph_gap_ns.value + kind.protocol.custom_kernel_ns.value);
        let end = Time::from_ns(kind.protocol.kernel_end_ns.value);
        StepCost { work: (begin + add + end).0, tail: (begin + add + end).0, ..StepCost::default() }
    }

    /// A step without messages: own bytes from one buffer to the other.
    pub(super) fn local_step(&self, block: &Block, step: &Step) -> StepCost {
        let trip = Trip { threads: u64::from(block.threads), operations: operations(step), ..Trip::default() };
        let work = trip.ll(self.constants(block.rank), as_lines(step.bytes, Protocol::Simple)).0;
        StepCost { work: work.0, ..StepCost::default() }
    }

    pub(super) fn simple_step(&self, schedule: &Schedule, block: usize, index: usize) -> StepCost {
        let block = &schedule.blocks[block];
        let step = &block.steps[index];
        let constants = self.constants(block.rank);
        let threads = u64::from(block.threads);
        // A role that works alone has the whole port, also the part of the one beside it.
        let beside = self.threads_beside(block);
        let slice = Slice {
            threads,
            sharing: threads + beside - beside * self.at_once_permille(schedule, block) / 1000,
            others: self.blocks_beside(block.rank),
            bytes: step.bytes,
            operations: operations(step),
        };
        let (entry, copy, exit) = protocol::simple_slice(constants, slice);
        // Of a slice that only sends or only receives, one side has nothing to
        // wait for, no counter to fetch and none to post.
        let sides = u64::from(step.receive.len > 0) + u64::from(step.send.len > 0);
        let entry = Time(entry.0 * sides / 2);
        let fence = if step.bytes > 0 && step.send.len > 0 { Time::from_ns(constants.simple_fence_ns.value) } else { Time::ZERO };
        // The barrier that follows the wait comes after the arrival: it is work.
        let work = entry + copy;
        StepCost { entry: 0, first: work.0, work: work.0, tail: work.0, exit: exit.0, fence: fence.0 }
    }

    /// Whether the barrier's arrival must follow stores that peers will read.
    pub(super) fn publishes(&self, schedule: &Schedule, block: usize, index: usize) -> bool {
        let (before, after) = schedule.blocks[block].steps.split_at(index);
        let is_arrival = |step: &Step| step.bytes == 0 && step.send.len > 0;
        let since = before.iter().rposition(is_arrival).map_or(0, |at| at + 1);
        let stored = |buffer: Buffer| before[since..].iter().any(|step| step.store && step.bytes > 0 && step.target == buffer);
        let read = |step: &Step| {
            let pulls = schedule.receives(step).iter().any(|&c| schedule.connections[c as usize].protocol == Protocol::Read);
            pulls && stored(step.source)
        };
        // Data pushed without flags of their own must be there before the barrier's.
        let bulk = |c: &u32| !schedule.connections[*c as usize].protocol.cuts_through();
        let pushed = before[since..].iter().any(|step| step.bytes > 0 && schedule.sends(step).iter().any(bulk));
        pushed || after.iter().any(read)
    }
}

/// Memory operations of a thread on one trip.
fn operations(step: &Step) -> u64 {
    u64::from(step.own) + u64::from(step.store) + u64::from(step.receive.len > 0) + u64::from(step.send.len > 0)
}

/// Bytes of LL that take a block as many memory operations.
pub(super) fn as_lines(bytes: u64, used: Protocol) -> u64 {
    match used {
        Protocol::Ll | Protocol::Ll128 => bytes,
        other => (bytes * 8).div_ceil(other.thread_bytes()),
    }
}
