//! All-reduce in two hops over pinned host memory, for GPUs that cannot reach
//! each other: write the others' shards to the host once, read the own shard of
//! every peer, write its sum, read the other sums.
//!
//! A rank's region in host memory is its [`Buffer::Scratch`]; what it writes
//! there is a connection to itself. Flags lie there too: receivers poll them
//! over PCIe.

use super::hierarchical::parts;
use super::one_shot::{Grid, add_block, barrier, incoming, mesh};
use super::{Buffer, Protocol, Schedule, StepBuilder};

const USER: Buffer = Buffer::User;
const SCRATCH: Buffer = Buffer::Scratch;

/// Each rank writes `bytes` and reads `2 (ranks - 1) / ranks` of them.
pub fn two_shot(ranks: usize, bytes: u64, grid: Grid) -> Schedule {
    let mut schedule = Schedule::new(ranks, bytes);
    schedule.result = SCRATCH;
    for channel in 0..grid.blocks.max(1) {
        let parts = parts(bytes, ranks, grid.blocks.max(1), channel);
        if parts.iter().all(|part| part.1 == 0) {
            break;
        }
        let flags = mesh(&mut schedule, Protocol::Flag, 2);
        let reads = mesh(&mut schedule, Protocol::Read, 1);
        let credits = u32::try_from(ranks).unwrap_or(u32::MAX);
        let written: Vec<u32> = (0..ranks).map(|rank| schedule.connect(rank, rank, Protocol::Simple, credits)).collect();
        for rank in 0..ranks {
            add_block(&mut schedule, rank, channel, grid, |block| {
                let others: Vec<usize> = (1..ranks).map(|k| (rank + k) % ranks).filter(|&peer| parts[peer].1 > 0).collect();
                publish(block, written[rank], others.iter().map(|&peer| parts[peer]), USER);
                barrier(block, &flags, rank);
                let (offset, bytes) = parts[rank];
                if bytes > 0 {
                    // The own shard never leaves the GPU.
                    block.push(&[], &[], offset, bytes, (true, USER), (true, SCRATCH));
                    block.push(&incoming(&reads, rank), &[], offset, bytes, (true, SCRATCH), (true, SCRATCH));
                    publish(block, written[rank], [(offset, bytes)], SCRATCH);
                }
                barrier(block, &flags, rank);
                for &peer in &others {
                    let (offset, bytes) = parts[peer];
                    block.push(&[reads[peer][rank]], &[], offset, bytes, (false, SCRATCH), (true, SCRATCH));
                }
            });
        }
    }
    schedule
}

/// Writes parts of `source` to the rank's region in host memory.
fn publish(block: &mut StepBuilder<'_>, written: u32, parts: impl IntoIterator<Item = (u64, u64)> + Clone, source: Buffer) {
    for (offset, bytes) in parts.clone() {
        block.push(&[], &[written], offset, bytes, (true, source), (false, SCRATCH));
    }
    for (offset, bytes) in parts {
        block.push(&[written], &[], offset, bytes, (false, SCRATCH), (true, SCRATCH));
    }
}
