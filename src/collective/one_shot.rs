//! All-reduce in one or two exchanges among all ranks: one-shot push and pull,
//! two-shot, and the barriers that the pulling ones need.

use super::{Block, Buffer, Engine, Protocol, Schedule, StepBuilder};

/// Thread blocks of a custom kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Thread blocks a rank.
    pub blocks: u32,
    /// Threads a block.
    pub threads: u32,
}

/// Splits `bytes` over `blocks` in grains of 16 B; blocks without bytes get none.
pub fn shares(bytes: u64, blocks: u32) -> Vec<(u64, u64)> {
    let share = bytes.div_ceil(u64::from(blocks.max(1))).div_ceil(16) * 16;
    (0..u64::from(blocks)).map(|i| ((i * share).min(bytes), share.min(bytes.saturating_sub(i * share)))).collect()
}

/// Cuts a part (offset, bytes) into what a block's threads move at once.
pub(super) fn trips((offset, bytes): (u64, u64), grid: Grid, protocol: Protocol) -> impl Iterator<Item = (u64, u64)> {
    let trip = (u64::from(grid.threads) * protocol.thread_bytes()).max(1);
    (0..bytes.div_ceil(trip)).map(move |i| (offset + i * trip, trip.min(bytes - i * trip)))
}

/// All connections `[from][to]` among the ranks; the diagonal is unused.
pub(super) fn mesh(schedule: &mut Schedule, protocol: Protocol, credits: u32) -> Vec<Vec<u32>> {
    let ranks = schedule.ranks;
    (0..ranks)
        .map(|source| {
            (0..ranks).map(|target| if source == target { u32::MAX } else { schedule.connect(source, target, protocol, credits) }).collect()
        })
        .collect()
}

/// Row of the mesh from `rank` to its peers, the next rank first so that not
/// all ranks write to rank 0 at once.
pub(super) fn outgoing(mesh: &[Vec<u32>], rank: usize) -> Vec<u32> {
    (1..mesh.len()).map(|step| mesh[rank][(rank + step) % mesh.len()]).collect()
}

/// Column of the mesh towards `rank`.
pub(super) fn incoming(mesh: &[Vec<u32>], rank: usize) -> Vec<u32> {
    (1..mesh.len()).map(|step| mesh[(rank + mesh.len() - step) % mesh.len()][rank]).collect()
}

/// One thread block of a custom kernel, its steps put down by `fill`.
pub(super) fn add_block(schedule: &mut Schedule, rank: usize, channel: u32, grid: Grid, fill: impl FnOnce(&mut StepBuilder<'_>)) {
    let mut builder = StepBuilder { schedule, steps: Vec::new() };
    fill(&mut builder);
    let steps = builder.steps;
    schedule.blocks.push(Block { rank, channel, threads: grid.threads, block_threads: grid.threads, engine: Engine::Threads, steps });
}

/// One-shot push: each rank stores its bytes to all others as lines or packets,
/// polls what they stored, sums. No barrier: slots alternate between calls.
pub fn push(ranks: usize, bytes: u64, grid: Grid, protocol: Protocol) -> Schedule {
    let mut schedule = Schedule::new(ranks, bytes);
    for (channel, (offset, share)) in (0..).zip(shares(bytes, grid.blocks)) {
        if share == 0 && channel > 0 {
            break;
        }
        let mesh = mesh(&mut schedule, protocol, 2);
        for rank in 0..ranks {
            add_block(&mut schedule, rank, channel, grid, |block| {
                // One pass over the threads' lines at a time, as the kernel's loop does.
                for (offset, bytes) in trips((offset, share), grid, protocol) {
                    block.user(&[], &outgoing(&mesh, rank), offset, bytes, true, false);
                    block.user(&incoming(&mesh, rank), &[], offset, bytes, true, true);
                }
            });
        }
    }
    schedule
}

/// Who shares a token in a fused kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Bytes of a token's row.
    pub bytes: u64,
    /// Blocks that share it.
    pub split: u32,
    /// Threads of a block.
    pub threads: u32,
}

/// One-shot push whose blocks then normalise: each token's row is dealt to
/// `split` blocks, which exchange their sums of squares through flags in their
/// rank's own memory, and store the row a second time, scaled.
pub fn push_and_normalise(ranks: usize, bytes: u64, rows: Rows, protocol: Protocol) -> Schedule {
    let mut schedule = Schedule::new(ranks, bytes);
    let grid = Grid { blocks: rows.split, threads: rows.threads };
    for token in 0..bytes.div_ceil(rows.bytes.max(1)) {
        let start = token * rows.bytes;
        let parts = shares(rows.bytes.min(bytes - start), rows.split);
        // To the other blocks of the token, on each rank: from block, to block.
        let among = |schedule: &mut Schedule| -> Vec<Vec<Vec<u32>>> {
            let mut of = |rank: usize, from: u32, to: u32| {
                if from == to { u32::MAX } else { schedule.connect(rank, rank, Protocol::Flag, 2) }
            };
            (0..ranks).map(|rank| (0..rows.split).map(|from| (0..rows.split).map(|to| of(rank, from, to)).collect()).collect()).collect()
        };
        let sums = among(&mut schedule);
        for (nth, (offset, share)) in parts.into_iter().enumerate() {
            let channel = token as u32 * rows.split + nth as u32;
            let mesh = mesh(&mut schedule, protocol, 2);
            for (rank, sums) in sums.iter().enumerate() {
                add_block(&mut schedule, rank, channel, grid, |block| {
                    for (offset, bytes) in trips((start + offset, share), grid, protocol) {
                        block.user(&[], &outgoing(&mesh, rank), offset, bytes, true, false);
                        block.user(&incoming(&mesh, rank), &[], offset, bytes, true, true);
                    }
                    let others = || (0..sums.len()).filter(|other| *other != nth);
                    let told: Vec<u32> = others().map(|other| sums[nth][other]).collect();
                    let heard: Vec<u32> = others().map(|other| sums[other][nth]).collect();
                    if !told.is_empty() {
                        block.user(&[], &told, 0, 0, false, false);
                        block.user(&heard, &[], 0, 0, false, false);
                    }
                    block.push(&[], &[], start + offset, share, (true, Buffer::User), (true, Buffer::Scratch));
                });
            }
        }
    }
    schedule
}

/// One-shot push into buffers that are the same in each call: a barrier, which
/// says that the peers have read what the call before left there, then every
/// rank stores its bytes to all others, fences and flags them, and sums.
pub fn push_after_barrier(ranks: usize, bytes: u64, grid: Grid) -> Schedule {
    let mut schedule = Schedule::new(ranks, bytes);
    for (channel, (offset, share)) in (0..).zip(shares(bytes, grid.blocks)) {
        if share == 0 && channel > 0 {
            break;
        }
        let flags = mesh(&mut schedule, Protocol::Flag, 2);
        let data = mesh(&mut schedule, Protocol::Simple, 1);
        for rank in 0..ranks {
            add_block(&mut schedule, rank, channel, grid, |block| {
                barrier(block, &flags, rank);
                block.user(&[], &outgoing(&data, rank), offset, share, true, false);
                block.user(&incoming(&data, rank), &[], offset, share, true, true);
            });
        }
    }
    schedule
}

/// One-shot pull (vLLM's and SGLang's custom all-reduce, one stage): a barrier,
/// every rank reads all others' input and sums into its output, a barrier.
///
/// `end_barrier` may be left out only when inputs alternate between calls.
pub fn pull(ranks: usize, bytes: u64, grid: Grid, end_barrier: bool) -> Schedule {
    let mut schedule = Schedule::new(ranks, bytes);
    schedule.result = Buffer::Scratch;
    for (channel, (offset, share)) in (0..).zip(shares(bytes, grid.blocks)) {
        if share == 0 && channel > 0 {
            break;
        }
        let flags = mesh(&mut schedule, Protocol::Flag, 2);
        let reads = mesh(&mut schedule, Protocol::Read, 1);
        for rank in 0..ranks {
            add_block(&mut schedule, rank, channel, grid, |block| {
                barrier(block, &flags, rank);
                block.push(&incoming(&reads, rank), &[], offset, share, (true, Buffer::User), (true, Buffer::Scratch));
                if end_barrier {
                    barrier(block, &flags, rank);
                }
            });
        }
    }
    schedule
}

/// Two-shot pull: barrier, each rank sums its shard of all inputs, barrier with
/// a fence, each rank reads the other shards' sums, barrier.
pub fn two_shot_pull(ranks: usize, bytes: u64, grid: Grid) -> Schedule {
    let mut schedule = Schedule::new(ranks, bytes);
    schedule.result = Buffer::Scratch;
    let shards = shares(bytes, u32::try_from(ranks).unwrap_or(u32::MAX));
    for channel in 0..grid.blocks {
        let flags = mesh(&mut schedule, Protocol::Flag, 2);
        let reads = mesh(&mut schedule, Protocol::Read, 1);
        let share_of = |shard: usize| {
            let (start, length) = shards[shard];
            let (offset, share) = shares(length, grid.blocks)[channel as usize];
            (start + offset, share)
        };
        for rank in 0..ranks {
            add_block(&mut schedule, rank, channel, grid, |block| {
                barrier(block, &flags, rank);
                let (offset, share) = share_of(rank);
                block.push(&incoming(&reads, rank), &[], offset, share, (true, Buffer::User), (true, Buffer::Scratch));
                barrier(block, &flags, rank);
                for step in 1..ranks {
                    let peer = (rank + step) % ranks;
                    let (offset, share) = share_of(peer);
                    block.push(&[reads[peer][rank]], &[], offset, share, (false, Buffer::Scratch), (true, Buffer::Scratch));
                }
                barrier(block, &flags, rank);
            });
        }
    }
    schedule
}

/// Every rank tells every other that it has come, and waits for all.
pub(super) fn barrier(block: &mut StepBuilder<'_>, flags: &[Vec<u32>], rank: usize) {
    block.user(&[], &outgoing(flags, rank), 0, 0, false, false);
    block.user(&incoming(flags, rank), &[], 0, 0, false, false);
}
