//! What the steps of the protocols cost a thread block, in picoseconds.
//!
//! The constants are a machine's; how they combine is the kernels' structure
//! (NCCL's prims_ll.h, prims_ll128.h, prims_simple.h):
//!
//! - LL: every thread moves 8 B a trip. A trip of one warp takes `ll_trip_ns`;
//!   more warps of the block share load and store units, so that a trip grows
//!   with their number to a power below one.
//! - LL128: every warp moves 1,920 B a trip, with a vote and a second load.
//! - Simple: a slice is a barrier, a copy at the threads' rate, a barrier; then
//!   a fence and the counter, which another warp does while the block goes on.

use crate::machine::ProtocolConstants;
use crate::units::Time;

/// Threads of a warp.
const WARP: u64 = 32;

/// One LL trip of a block of `threads`.
pub fn ll_trip(constants: &ProtocolConstants, threads: u64) -> Time {
    trip(constants.ll_trip_ns.value, constants.ll_trip_exponent.value, threads.div_ceil(WARP))
}

/// All LL trips for `bytes` of data, and the last of them.
pub fn ll_trips(constants: &ProtocolConstants, threads: u64, bytes: u64) -> (Time, Time) {
    let lines = bytes.div_ceil(8);
    let (full, rest) = (lines / threads, lines % threads);
    let whole = ll_trip(constants, threads);
    let partial = if rest > 0 { ll_trip(constants, rest) } else { Time::ZERO };
    let last = if rest > 0 { partial } else { whole };
    (whole.times(full) + partial, if lines == 0 { Time::ZERO } else { last })
}

/// All LL128 trips for `bytes` of data, and the last of them.
pub fn ll128_trips(constants: &ProtocolConstants, threads: u64, bytes: u64) -> (Time, Time) {
    let warps = (threads / WARP).max(1);
    let pieces = bytes.div_ceil(1920);
    let (full, rest) = (pieces / warps, pieces % warps);
    let of = |warps: u64| trip(constants.ll128_trip_ns.value, constants.ll128_trip_exponent.value, warps);
    let partial = if rest > 0 { of(rest) } else { Time::ZERO };
    let last = if rest > 0 { partial } else { of(warps) };
    (of(warps).times(full) + partial, if pieces == 0 { Time::ZERO } else { last })
}

fn trip(one_warp_ns: f64, exponent: f64, warps: u64) -> Time {
    Time::from_ns(one_warp_ns * libm::pow(warps.max(1) as f64, exponent))
}

/// A slice of Simple: entry, copy, exit.
pub fn simple_slice(constants: &ProtocolConstants, threads: u64, bytes: u64) -> (Time, Time, Time) {
    let barrier = Time::from_ns(constants.barrier_warp_ns.value * (threads / WARP) as f64);
    let entry = Time::from_ns(constants.simple_entry_ns.value) + barrier;
    let exit = Time::from_ns(constants.simple_exit_ns.value) + barrier;
    let copy = crate::units::Rate::from_gbps(constants.simple_thread_gbps.value * threads as f64).time_for(crate::units::Bytes(bytes));
    (entry, copy, exit)
}

/// `time`, grown by what `peers - 1` further peers add to a trip.
pub fn for_peers(constants: &ProtocolConstants, time: Time, peers: u64) -> Time {
    let factor = 1.0 + constants.peer_share.value * peers.saturating_sub(1) as f64;
    Time::from_ns(time.ns() * factor)
}

/// Prologue of a communication kernel.
pub fn kernel_start(constants: &ProtocolConstants, nccl: bool, block_threads: u32) -> Time {
    let base = if nccl { &constants.nccl_kernel_ns } else { &constants.custom_kernel_ns };
    let wide = if block_threads > 512 { constants.wide_block_ns.value } else { 0.0 };
    Time::from_ns(base.value + wide)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 672 lines on 512 threads: one full trip and one of 160 threads (5 warps).
    #[test]
    fn the_last_trip_may_be_partial() {
        let constants = ProtocolConstants::default();
        let (all, last) = ll_trips(&constants, 512, 5376);
        assert_eq!(all, ll_trip(&constants, 512) + ll_trip(&constants, 160));
        assert_eq!(last, ll_trip(&constants, 160));
        assert_eq!(ll_trips(&constants, 512, 0), (Time::ZERO, Time::ZERO));
    }

    /// 16 warps to the power 0.385 are 2.91 trips of one warp.
    #[test]
    fn a_trip_grows_slower_than_its_warps() {
        let constants = ProtocolConstants::default();
        let ratio = ll_trip(&constants, 512).ns() / ll_trip(&constants, 32).ns();
        assert!((ratio - 2.908).abs() < 0.01, "{ratio}");
    }
}
