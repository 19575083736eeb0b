//! Ring all-reduce as NCCL runs it (all_reduce.h): per loop over `ranks`
//! chunks one send, n − 2 receive-reduce-sends, one that also stores, n − 2
//! receive-copy-sends, one receive: 2n − 1 primitives, 2(n − 1) hops.

use super::{Block, Engine, KernelShape, Part, Schedule, StepBuilder};

/// Ring all-reduce of `bytes` in place; rank `i` sends to rank `i + 1` of `order`.
pub fn all_reduce(order: &[usize], bytes: u64, shape: &KernelShape) -> Schedule {
    let ranks = order.len();
    let mut schedule = Schedule::new(ranks, bytes);
    for part in &shape.parts {
        let outgoing: Vec<u32> = (0..ranks)
            .map(|position| schedule.connect(order[position], order[(position + 1) % ranks], shape.protocol, shape.credits()))
            .collect();
        for position in 0..ranks {
            let incoming = outgoing[(position + ranks - 1) % ranks];
            let mut builder = StepBuilder { schedule: &mut schedule, steps: Vec::new() };
            part_steps(&mut builder, part, shape, position, ranks, incoming, outgoing[position]);
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

/// The primitives of the rank at `position` for one channel's part.
fn part_steps(
    builder: &mut StepBuilder<'_>,
    part: &Part,
    shape: &KernelShape,
    position: usize,
    ranks: usize,
    incoming: u32,
    outgoing: u32,
) {
    let count = ranks as u64;
    let mut done = 0;
    while done < part.bytes {
        let left = part.bytes - done;
        // The last loop's chunks shrink to what is left, in grains of 16 B.
        let chunk = part.chunk_bytes.min(left.div_ceil(count).div_ceil(16) * 16);
        let region = |chunk_index: usize| {
            let offset = (chunk_index % ranks) as u64 * chunk;
            (part.offset + done + offset.min(left), chunk.min(left.saturating_sub(offset)))
        };
        let mut primitive = |chunk_index: usize, receive: bool, send: bool, own: bool, store: bool| {
            let (mut offset, bytes) = region(chunk_index);
            for slice in shape.slices(bytes) {
                let receive: &[u32] = if receive { &[incoming] } else { &[] };
                let send: &[u32] = if send { &[outgoing] } else { &[] };
                builder.user(receive, send, offset, slice, own, store);
                offset += slice;
            }
        };
        primitive(position + ranks - 1, false, true, true, false);
        for step in 2..ranks {
            primitive(position + ranks - step, true, true, true, false);
        }
        primitive(position, true, true, true, true);
        for step in 1..ranks - 1 {
            primitive(position + ranks - step, true, true, false, true);
        }
        primitive(position + 1, true, false, false, true);
        done += (chunk * count).min(left);
    }
}
