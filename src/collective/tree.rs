//! Tree all-reduce of one node as NCCL runs it: a chain along the order, up to
//! the root and down again. Reduction and broadcast run at once in two groups
//! of warps of one block (runTreeSplit), except at the root.

use super::{Block, Engine, KernelShape, Schedule, StepBuilder};

/// Chain all-reduce of `bytes` in place. `order[0]` is the root; each rank's
/// child is the next in `order`.
pub fn all_reduce(order: &[usize], bytes: u64, shape: &KernelShape) -> Schedule {
    let ranks = order.len();
    let mut schedule = Schedule::new(ranks, bytes);
    for part in &shape.parts {
        let up: Vec<u32> = (1..ranks).map(|i| schedule.connect(order[i], order[i - 1], shape.protocol, shape.credits())).collect();
        let down: Vec<u32> = (1..ranks).map(|i| schedule.connect(order[i - 1], order[i], shape.protocol, shape.credits())).collect();
        for position in 0..ranks {
            let from_child = up.get(position).copied();
            let to_child = down.get(position).copied();
            let parent = position.checked_sub(1);
            let roles: Vec<(Vec<u32>, Vec<u32>, bool, bool, u32)> = match parent {
                // The root receives, reduces, stores and sends down in one primitive.
                None => vec![(
                    from_child.into_iter().collect(),
                    to_child.into_iter().collect(),
                    true,
                    true,
                    shape.threads + shape.broadcast_threads,
                )],
                Some(parent) => vec![
                    (from_child.into_iter().collect(), vec![up[parent]], true, false, shape.threads),
                    (vec![down[parent]], to_child.into_iter().collect(), false, true, shape.broadcast_threads),
                ],
            };
            for (receive, send, own, store, threads) in roles {
                let mut builder = StepBuilder { schedule: &mut schedule, steps: Vec::new() };
                chunks(&mut builder, part, shape, &receive, &send, (own, store));
                let steps = builder.steps;
                schedule.blocks.push(Block {
                    rank: order[position],
                    channel: part.channel,
                    threads,
                    block_threads: shape.block_threads,
                    engine: Engine::Threads,
                    steps,
                });
            }
        }
    }
    schedule
}

fn chunks(
    builder: &mut StepBuilder<'_>,
    part: &super::Part,
    shape: &KernelShape,
    receive: &[u32],
    send: &[u32],
    (own, store): (bool, bool),
) {
    let mut done = 0;
    while done < part.bytes {
        let bytes = part.chunk_bytes.min(part.bytes - done);
        let mut offset = part.offset + done;
        for slice in shape.slices(bytes) {
            builder.user(receive, send, offset, slice, own, store);
            offset += slice;
        }
        done += bytes;
    }
}
