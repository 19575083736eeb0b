//! MSCCL++'s packet kernels: all-pair in one hop of LL8, two hops of LL16.

use super::islands::Wires;
use super::one_shot::{Grid, add_block, shares};
use super::{Block, Buffer, Engine, Protocol, Schedule, StepBuilder};

const WARP: u32 = 32;

/// The ranks after `rank`, the next first.
fn peers(ranks: usize, rank: usize) -> Vec<usize> {
    (1..ranks).map(|k| (rank + k) % ranks).collect()
}

/// All-pair: in each block every peer has its own warps, which push the block's
/// part of the message to it as packets of 8 B; then all threads poll and sum.
pub fn all_pair(ranks: usize, bytes: u64, grid: Grid) -> Schedule {
    let mut schedule = Schedule::new(ranks, bytes);
    let teams = (grid.threads / WARP / u32::try_from(ranks - 1).unwrap_or(u32::MAX).max(1)).max(1);
    for (channel, (offset, share)) in (0..).zip(shares(bytes, grid.blocks)) {
        if share == 0 {
            break;
        }
        let wires = Wires::new(&mut schedule, Protocol::Packet8, 1, |rank| peers(ranks, rank));
        for rank in 0..ranks {
            for &peer in &peers(ranks, rank) {
                let mut builder = StepBuilder { schedule: &mut schedule, steps: Vec::new() };
                builder.user(&[], &[wires.one(rank, peer)], offset, share, true, false);
                let steps = builder.steps;
                let threads = teams * WARP;
                schedule.blocks.push(Block { rank, channel, threads, block_threads: grid.threads, engine: Engine::Threads, steps });
            }
            add_block(&mut schedule, rank, channel, grid, |block| {
                block.push(&wires.from(&peers(ranks, rank), rank), &[], offset, share, (true, Buffer::User), (true, Buffer::Scratch));
            });
        }
    }
    schedule.result = Buffer::Scratch;
    schedule
}

/// Two hops: the blocks of a rank are dealt to its peers and push their shards;
/// all blocks sum a part of the own shard and push it to all; each block takes
/// its peer's sums. `grid.blocks` is rounded up to a multiple of the peers.
pub fn two_hop(ranks: usize, bytes: u64, grid: Grid) -> Schedule {
    let mut schedule = Schedule::new(ranks, bytes);
    schedule.result = Buffer::Scratch;
    let others = u32::try_from(ranks - 1).unwrap_or(u32::MAX).max(1);
    let blocks = grid.blocks.max(1).div_ceil(others) * others;
    let per_peer = blocks / others;
    let shards = shares(bytes, others + 1);
    // A shard in as many parts as there are blocks: block b sums part b.
    let part = |shard: usize, block: u32| {
        let (start, length) = shards[shard];
        let (offset, bytes) = shares(length, blocks)[block as usize];
        (start + offset, bytes)
    };
    let wires: Vec<[Wires; 2]> =
        (0..blocks).map(|_| [0, 1].map(|_| Wires::new(&mut schedule, Protocol::Packet, 1, |rank| peers(ranks, rank)))).collect();
    for rank in 0..ranks {
        let peers = peers(ranks, rank);
        for block in 0..blocks {
            let peer = peers[(block / per_peer) as usize];
            // The parts that this block moves for its peer.
            let slot = block % per_peer;
            let moved = slot * others..(slot + 1) * others;
            add_block(&mut schedule, rank, block, grid, |steps| {
                for to in moved.clone() {
                    let (offset, bytes) = part(peer, to);
                    if bytes > 0 {
                        steps.user(&[], &[wires[to as usize][0].one(rank, peer)], offset, bytes, true, false);
                    }
                }
                let (offset, bytes) = part(rank, block);
                if bytes > 0 {
                    let [scatter, gather] = &wires[block as usize];
                    let (from, to) = (scatter.from(&peers, rank), gather.to(rank, &peers));
                    steps.push(&from, &to, offset, bytes, (true, Buffer::User), (true, Buffer::Scratch));
                }
                for from in moved {
                    let (offset, bytes) = part(peer, from);
                    if bytes > 0 {
                        let gather = wires[from as usize][1].one(peer, rank);
                        steps.push(&[gather], &[], offset, bytes, (false, Buffer::Scratch), (true, Buffer::Scratch));
                    }
                }
            });
        }
    }
    schedule
}
