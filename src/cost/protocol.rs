//! What the steps of the protocols cost a thread block, in picoseconds.
//!
//! The constants are a machine's; how they combine is the kernels' structure
//! (NCCL's prims_ll.h, prims_ll128.h, prims_simple.h):
//!
//! - LL: every thread moves 8 B a trip. A trip of one warp takes `ll_trip_ns`;
//!   more warps of the block share load and store units, so that a trip grows
//!   with their number to a power below one. A tree's other role in the block
//!   counts for the time that both are at work, other blocks queue in L2.
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
    /// Threads of the same multiprocessor that move data beside them, as a mean over time (a tree's other role).
    pub beside: u64,
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
        let warps = (threads + self.beside).div_ceil(WARP).max(1) as f64;
        let crowd = 1.0 + constants.crowd_share.value * self.others as f64;
        let (one_warp_ns, exponent, miss_ns) = match line {
            Line::Ll => (constants.ll_trip_ns.value, constants.ll_trip_exponent.value, constants.l2_miss_ns.value),
            Line::Ll128 => (constants.ll128_trip_ns.value, constants.ll128_trip_exponent.value, 0.0),
        };
        let ns = one_warp_ns * libm::pow(warps, exponent) * self.operations as f64 / USUAL_OPERATIONS * crowd;
        Time::from_ns(ns + if self.misses { miss_ns } else { 0.0 })
    }

    /// All LL trips for `bytes` of data, and the last of them.
    pub fn ll(self, constants: &ProtocolConstants, bytes: u64) -> (Time, Time) {
        self.trips(constants, Line::Ll, bytes.div_ceil(8), 1)
    }

    /// All LL128 trips for `bytes` of data, and the last of them.
    pub fn ll128(self, constants: &ProtocolConstants, bytes: u64) -> (Time, Time) {
        self.trips(constants, Line::Ll128, bytes.div_ceil(1920), WARP)
    }

    /// `pieces` over the block, each taken by `unit` threads.
    fn trips(self, constants: &ProtocolConstants, line: Line, pieces: u64, unit: u64) -> (Time, Time) {
        let at_once = (self.threads / unit).max(1);
        let (full, rest) = (pieces / at_once, pieces % at_once);
        let whole = self.of(constants, line, self.threads);
        let partial = if rest > 0 { self.of(constants, line, rest * unit) } else { Time::ZERO };
        let last = if rest > 0 { partial } else { whole };
        (whole.times(full) + partial, if pieces == 0 { Time::ZERO } else { last })
    }
}

/// Which constants a trip has.
#[derive(Clone, Copy)]
enum Line {
    Ll,
    Ll128,
}

/// A slice of Simple with `operations` memory operations a thread: entry, copy, exit.
///
/// What copies is the multiprocessor's port to L2: `threads` wait at the
/// barriers, `sharing` is how many threads' worth of the port the copy has.
pub fn simple_slice(constants: &ProtocolConstants, threads: u64, sharing: u64, bytes: u64, operations: u64) -> (Time, Time, Time) {
    let barrier = Time::from_ns(constants.barrier_warp_ns.value * (threads / WARP) as f64);
    let entry = Time::from_ns(constants.simple_entry_ns.value) + barrier;
    let exit = Time::from_ns(constants.simple_exit_ns.value) + barrier;
    let moved = constants.simple_thread_gbps.value * sharing as f64 * USUAL_OPERATIONS / operations.max(1) as f64;
    let copy = crate::units::Rate::from_gbps(moved).time_for(crate::units::Bytes(bytes));
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

    const USUAL: Trip = Trip { threads: 512, beside: 0, others: 0, misses: false, operations: 3 };

    /// 672 lines on 512 threads: one full trip and one of 160 threads (5 warps).
    #[test]
    fn the_last_trip_may_be_partial() {
        let constants = ProtocolConstants::default();
        let (all, last) = USUAL.ll(&constants, 5376);
        let (full, _) = USUAL.ll(&constants, 4096);
        let (five_warps, _) = Trip { threads: 160, ..USUAL }.ll(&constants, 1280);
        assert_eq!(all, full + five_warps);
        assert_eq!(last, five_warps);
        assert_eq!(USUAL.ll(&constants, 0), (Time::ZERO, Time::ZERO));
    }

    /// 16 warps to the power 0.385 are 2.91 trips of one warp.
    #[test]
    fn a_trip_grows_slower_than_its_warps() {
        let mut constants = ProtocolConstants::default();
        constants.ll_trip_exponent.value = 0.385;
        let one = Trip { threads: 32, ..USUAL }.ll(&constants, 256).0;
        let ratio = USUAL.ll(&constants, 4096).0.ns() / one.ns();
        assert!((ratio - 2.908).abs() < 0.01, "{ratio}");
    }
}
