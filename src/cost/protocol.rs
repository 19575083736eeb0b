//! What the steps of the protocols cost a thread block, in picoseconds.
//!
//! The constants are a machine's; how they combine is the kernels' structure
//! (NCCL's prims_ll.h, prims_ll128.h, prims_simple.h):
//!
//! - LL: every thread moves 8 B a trip. A trip of one warp takes `ll_trip_ns`,
//!   most of it the way to L2 and back; each further warp of the block adds
//!   `ll_warp_ns`, its turn at the load and store units. Turns are as many as the
//!   thread's memory operations, of the way to L2 only `trip_operation_share`
//!   grows with them: loads and polls overlap. Where a tree's other
//!   role is at work as well, its warps take their turns in between; other
//!   blocks queue in L2.
//! - LL128: every warp moves 1,920 B a trip, with a vote and a second load.
//! - Simple: a slice is a barrier, a copy at the threads' rate, a barrier; then
//!   a fence and the counter, which another warp does while the block goes on.

use crate::machine::ProtocolConstants;
use crate::units::Time;

/// Threads of a warp.
const WARP: u64 = 32;

/// What the threads of a block do on one trip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trip {
    /// Threads that move data.
    pub threads: u64,
    /// For how much of its time, in thousandths, a tree's other role is at work on as many bytes beside this one.
    pub beside_permille: u64,
    /// Further blocks of the same kernel on the GPU.
    pub others: u64,
    /// Whether the buffers of the GPU's ranks exceed its L2.
    pub misses: bool,
    /// Memory operations a thread does: load of own data, poll, store of a line, store of the result.
    pub operations: u64,
}

/// Memory operations of the commonest primitives (receive-reduce-send and receive-copy-send).
const USUAL_OPERATIONS: f64 = 3.0;

impl Trip {
    /// Cost of a trip on which `threads` of the block's threads have something to move.
    fn of(self, constants: &ProtocolConstants, line: Line, threads: u64) -> Time {
        let warps = threads.div_ceil(WARP).max(1) as f64;
        let beside = self.beside_permille as f64 / 1000.0;
        let crowd = 1.0 + constants.crowd_share.value * self.others as f64;
        let (one_warp_ns, warp_ns, miss_ns) = match line {
            Line::Ll => (constants.ll_trip_ns.value, constants.ll_warp_ns.value, constants.l2_miss_ns.value),
            Line::Ll128 => (constants.ll128_trip_ns.value, constants.ll128_warp_ns.value, 0.0),
        };
        let operations = self.operations as f64 / USUAL_OPERATIONS;
        let share = constants.trip_operation_share.value;
        let turns = warps * (1.0 + beside) - 1.0;
        let ns = (one_warp_ns * (1.0 - share + share * operations) + warp_ns * turns * operations) * crowd;
        Time::from_ns(ns + if self.misses { miss_ns } else { 0.0 })
    }

    /// All LL trips for `bytes` of data, and what one warp takes for its part of one.
    pub fn ll(self, constants: &ProtocolConstants, bytes: u64) -> (Time, Time) {
        self.trips(constants, Line::Ll, bytes.div_ceil(8), 1)
    }

    /// All LL128 trips for `bytes` of data, and what one warp takes for its part of one.
    pub fn ll128(self, constants: &ProtocolConstants, bytes: u64) -> (Time, Time) {
        self.trips(constants, Line::Ll128, bytes.div_ceil(1920), WARP)
    }

    /// `pieces` over the block, each taken by `unit` threads. A warp's lines go on
    /// as soon as that warp has them: first and last line wait for one warp.
    fn trips(self, constants: &ProtocolConstants, line: Line, pieces: u64, unit: u64) -> (Time, Time) {
        let at_once = (self.threads / unit).max(1);
        let (full, rest) = (pieces / at_once, pieces % at_once);
        let whole = self.of(constants, line, self.threads);
        let partial = if rest > 0 { self.of(constants, line, rest * unit) } else { Time::ZERO };
        let work = whole.times(full) + partial;
        let warp = if pieces == 0 { Time::ZERO } else { self.of(constants, line, WARP) };
        (work, warp.min(work))
    }
}

/// Which constants a trip has.
#[derive(Clone, Copy)]
enum Line {
    Ll,
    Ll128,
}

/// What a slice of Simple is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// Threads that wait at the barriers.
    pub threads: u64,
    /// How many threads' worth of the multiprocessor's port to L2 the copy has.
    pub sharing: u64,
    /// Further blocks of the same kernel on the GPU.
    pub others: u64,
    /// Data.
    pub bytes: u64,
    /// Memory operations of a thread.
    pub operations: u64,
}

/// Entry, copy and exit of a slice of Simple; an empty one has no copy.
pub fn simple_slice(constants: &ProtocolConstants, slice: Slice) -> (Time, Time, Time) {
    let barrier = Time::from_ns(constants.barrier_warp_ns.value * (slice.threads / WARP) as f64);
    let entry = Time::from_ns(constants.simple_entry_ns.value) + barrier;
    let exit = Time::from_ns(constants.simple_exit_ns.value) + barrier;
    let crowd = 1.0 + constants.crowd_share.value * slice.others as f64;
    let moved = constants.simple_thread_gbps.value / crowd * slice.sharing as f64 * USUAL_OPERATIONS / slice.operations.max(1) as f64;
    let copy = crate::units::Rate::from_gbps(moved).time_for(crate::units::Bytes(slice.bytes));
    (entry, copy, exit)
}

/// `time`, grown by what `peers - 1` further peers add to a trip.
pub fn for_peers(constants: &ProtocolConstants, time: Time, peers: u64) -> Time {
    let factor = 1.0 + constants.peer_share.value * peers.saturating_sub(1) as f64;
    Time::from_ns(time.ns() * factor)
}

/// Threads from which on a block of LL128 or Simple starts later.
const WIDE_BLOCK: u32 = 512;

/// Prologue of NCCL's kernel with blocks of `block_threads`; `ll` for LL.
pub fn nccl_start(constants: &ProtocolConstants, ll: bool, block_threads: u32) -> Time {
    let wide = if block_threads > WIDE_BLOCK { constants.wide_block_ns.value } else { 0.0 };
    Time::from_ns(constants.nccl_kernel_ns.value + if ll { 0.0 } else { constants.indirect_kernel_ns.value + wide })
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Trip = Trip { threads: 512, beside_permille: 0, others: 0, misses: false, operations: 3 };

    /// 672 lines on 512 threads: one full trip and one of 160 threads (5 warps). Lines go on warp by warp.
    #[test]
    fn the_last_trip_may_be_partial() {
        let constants = ProtocolConstants::default();
        let (all, warp) = USUAL.ll(&constants, 5376);
        let (full, _) = USUAL.ll(&constants, 4096);
        let (five_warps, _) = Trip { threads: 160, ..USUAL }.ll(&constants, 1280);
        let (one_warp, _) = Trip { threads: 32, ..USUAL }.ll(&constants, 256);
        assert_eq!(all, full + five_warps);
        assert_eq!(warp, one_warp);
        assert_eq!(USUAL.ll(&constants, 0), (Time::ZERO, Time::ZERO));
    }

    /// A warp of 120 ns and 15 further ones of 20 ns each; with the other role half of the time at work 8 turns more.
    #[test]
    fn a_trip_grows_by_its_warps() {
        let mut constants = ProtocolConstants::default();
        (constants.ll_trip_ns.value, constants.ll_warp_ns.value) = (120.0, 20.0);
        assert_eq!(USUAL.ll(&constants, 4096).0, Time::from_ns(420.0));
        let both = Trip { beside_permille: 500, ..USUAL };
        assert_eq!(both.ll(&constants, 4096).0, Time::from_ns(580.0));
    }

    /// 64 KiB by 512 threads of 0.05 GB/s are 2.56 us; an empty slice has no copy, 31 blocks beside it slow it by 31 %.
    #[test]
    fn an_empty_slice_only_waits() {
        let mut constants = ProtocolConstants::default();
        constants.simple_thread_gbps.value = 0.05;
        (constants.simple_entry_ns.value, constants.crowd_share.value) = (900.0, 0.01);
        constants.barrier_warp_ns.value = 0.0;
        let slice = Slice { threads: 512, sharing: 512, others: 0, bytes: 65_536, operations: 3 };
        let (entry, copy, _) = simple_slice(&constants, slice);
        assert_eq!((entry, copy), (Time::from_ns(900.0), Time::from_ns(2560.0)));
        let (entry, copy, _) = simple_slice(&constants, Slice { bytes: 0, ..slice });
        assert_eq!((entry, copy), (Time::from_ns(900.0), Time::ZERO));
        let (_, copy, _) = simple_slice(&constants, Slice { others: 31, ..slice });
        assert!((copy.ns() / 2560.0 - 1.31).abs() < 1e-3, "{copy:?}");
    }
}
