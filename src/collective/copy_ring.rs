//! Ring all-reduce whose copies the copy engines make: a copy to the next rank,
//! an adding kernel when it has come, and so on; the last half only copies.

use super::one_shot::shares;
use super::{Block, Buffer, Engine, Protocol, Schedule, StepBuilder};

/// Threads of the adding kernel's blocks.
const THREADS: u32 = 512;

/// All-reduce of `bytes` in place around `order`: `2 (n - 1)` copies of a chunk
/// for each rank, and `n - 1` adding kernels.
pub fn all_reduce(order: &[usize], bytes: u64) -> Schedule {
    let ranks = order.len();
    let mut schedule = Schedule::new(ranks, bytes);
    let chunks = shares(bytes, u32::try_from(ranks).unwrap_or(u32::MAX));
    let credits = u32::try_from(2 * ranks).unwrap_or(u32::MAX);
    let out: Vec<u32> =
        (0..ranks).map(|place| schedule.connect(order[place], order[(place + 1) % ranks], Protocol::Simple, credits)).collect();
    for place in 0..ranks {
        let before = (place + ranks - 1) % ranks;
        let mut builder = StepBuilder { schedule: &mut schedule, steps: Vec::new() };
        for step in 0..2 * ranks - 2 {
            let adds = step < ranks - 1;
            let sent = |place: usize| chunks[(place + 2 * ranks - step) % ranks];
            let (offset, bytes) = sent(place);
            if bytes > 0 {
                builder.user(&[], &[out[place]], offset, bytes, true, false);
            }
            let (offset, bytes) = sent(before);
            if bytes > 0 {
                builder.push(&[out[before]], &[], offset, bytes, (adds, Buffer::User), (true, Buffer::User));
            }
        }
        let steps = builder.steps;
        let (rank, engine) = (order[place], Engine::CopyEngine);
        schedule.blocks.push(Block { rank, channel: 0, threads: THREADS, block_threads: THREADS, engine, steps });
    }
    schedule
}
