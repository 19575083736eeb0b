//! Ring all-gather and reduce-scatter as NCCL runs them.

use super::{Block, Engine, KernelShape, Schedule, StepBuilder};

/// Ring all-gather: the user buffer of `bytes` holds `ranks` shards, each rank
/// starts with its own and ends with all.
pub fn ring_all_gather(order: &[usize], bytes: u64, shape: &KernelShape) -> Schedule {
    ring(order, bytes, shape, |ranks, position, step| {
        // Position p first sends its own shard, then hands on what comes.
        let shard = (position + ranks - step) % ranks;
        (shard, step > 0, step + 1 < ranks, step == 0, step > 0)
    })
}

/// Ring reduce-scatter: each rank ends with the sum of its own shard.
pub fn ring_reduce_scatter(order: &[usize], bytes: u64, shape: &KernelShape) -> Schedule {
    ring(order, bytes, shape, |ranks, position, step| {
        let shard = (position + ranks - 1 - step) % ranks;
        (shard, step > 0, step + 1 < ranks, true, step + 1 == ranks)
    })
}

/// One pass around the ring. `role(ranks, position, step)` gives the shard's
/// position and whether the step receives, sends, adds own bytes, stores.
fn ring(
    order: &[usize],
    bytes: u64,
    shape: &KernelShape,
    role: impl Fn(usize, usize, usize) -> (usize, bool, bool, bool, bool),
) -> Schedule {
    let ranks = order.len();
    let mut schedule = Schedule::new(ranks, bytes);
    let shard_bytes = bytes.div_ceil(ranks as u64).div_ceil(16) * 16;
    for part in &shape.parts {
        let outgoing: Vec<u32> = (0..ranks)
            .map(|position| schedule.connect(order[position], order[(position + 1) % ranks], shape.protocol, shape.credits()))
            .collect();
        for position in 0..ranks {
            let incoming = outgoing[(position + ranks - 1) % ranks];
            let loops = part.bytes.div_ceil(part.chunk_bytes.max(1)).min(1 << 10) as usize;
            let mut builder = StepBuilder { schedule: &mut schedule, steps: Vec::with_capacity(loops * ranks * shape.slices(0).count()) };
            let mut done = 0;
            while done < part.bytes {
                let chunk = part.chunk_bytes.min(part.bytes - done);
                for step in 0..ranks {
                    let (shard, receive, send, own, store) = role(ranks, position, step);
                    // Shards belong to ranks, not to places in the ring.
                    let start = order[shard] as u64 * shard_bytes + part.offset + done;
                    let end = (start + chunk).min(bytes).min((order[shard] as u64 + 1) * shard_bytes);
                    let mut offset = start.min(end);
                    for slice in shape.slices(end - offset) {
                        let receive: &[u32] = if receive { &[incoming] } else { &[] };
                        let send: &[u32] = if send { &outgoing[position..=position] } else { &[] };
                        builder.user(receive, send, offset, slice, own, store);
                        offset += slice;
                    }
                }
                done += chunk;
            }
            let steps = builder.steps;
            schedule.blocks.push(Block {
                rank: order[position],
                channel: part.channel,
                threads: shape.threads,
                block_threads: shape.block_threads,
                engine: Engine::Threads,
                steps,
            });
        }
    }
    schedule
}
