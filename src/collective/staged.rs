//! All-reduce over islands with plain data, fences and flags: what FlashInfer's
//! PCIe kernels call staged, and the two-shot with 8 bits on the wire.
//!
//! Staged in one-to-one passes, each rank writes to one mate and is written to
//! by one at a time, with a barrier of the island after each pass: for fabrics
//! on which concurrent writes collapse.

use super::hierarchical::parts;
use super::islands::{Islands, Wires};
use super::one_shot::{Grid, add_block};
use super::{Buffer, Protocol, Schedule, StepBuilder};

const USER: Buffer = Buffer::User;
const SCRATCH: Buffer = Buffer::Scratch;

/// How the phases inside an island are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staging {
    /// [`Protocol::Simple`], or [`Protocol::Fp8`].
    pub protocol: Protocol,
    /// One mate at a time, and a barrier of the island after each.
    pub one_to_one: bool,
}

/// All-reduce of `bytes`: shards to mates, sums across islands, sums to mates.
/// With several islands a last barrier of the island frees the staging memory.
pub fn all_reduce(islands: &Islands, bytes: u64, grid: Grid, staging: Staging) -> Schedule {
    let mut schedule = Schedule::new(islands.ranks(), bytes);
    schedule.result = SCRATCH;
    for channel in 0..grid.blocks.max(1) {
        let parts = parts(bytes, islands.size(), grid.blocks.max(1), channel);
        if parts.iter().all(|part| part.1 == 0) {
            break;
        }
        let scatter = Wires::new(&mut schedule, staging.protocol, 1, |rank| islands.mates(rank));
        let across = Wires::new(&mut schedule, staging.protocol, 1, |rank| islands.counterparts(rank));
        let gather = Wires::new(&mut schedule, staging.protocol, 1, |rank| islands.mates(rank));
        let flags = Wires::new(&mut schedule, Protocol::Flag, 2, |rank| islands.mates(rank));
        let wires = [&scatter, &across, &gather, &flags];
        for rank in 0..islands.ranks() {
            add_block(&mut schedule, rank, channel, grid, |block| rank_steps(block, islands, rank, wires, &parts, staging));
        }
    }
    schedule
}

fn rank_steps(
    block: &mut StepBuilder<'_>,
    islands: &Islands,
    rank: usize,
    [scatter, across, gather, flags]: [&Wires; 4],
    parts: &[(u64, u64)],
    staging: Staging,
) {
    let (mates, others) = (islands.mates(rank), islands.counterparts(rank));
    let (offset, bytes) = parts[islands.place(rank)];
    for &mate in &mates {
        let (offset, bytes) = parts[islands.place(mate)];
        if bytes > 0 {
            block.user(&[], &[scatter.one(rank, mate)], offset, bytes, true, false);
        }
        if staging.one_to_one {
            flags.barrier(block, rank, &mates);
        }
    }
    if bytes > 0 {
        block.push(&scatter.from(&mates, rank), &across.to(rank, &others), offset, bytes, (true, USER), (true, SCRATCH));
        if !others.is_empty() {
            block.push(&across.from(&others, rank), &[], offset, bytes, (true, SCRATCH), (true, SCRATCH));
        }
    }
    if staging.one_to_one {
        for &mate in &mates {
            if bytes > 0 {
                block.push(&[], &[gather.one(rank, mate)], offset, bytes, (true, SCRATCH), (false, SCRATCH));
            }
            flags.barrier(block, rank, &mates);
        }
    } else if bytes > 0 && !mates.is_empty() {
        block.push(&[], &gather.to(rank, &mates), offset, bytes, (true, SCRATCH), (false, SCRATCH));
    }
    for &mate in &mates {
        let (offset, bytes) = parts[islands.place(mate)];
        if bytes > 0 {
            block.push(&[gather.one(mate, rank)], &[], offset, bytes, (false, SCRATCH), (true, SCRATCH));
        }
    }
    if !others.is_empty() && !mates.is_empty() {
        flags.barrier(block, rank, &mates);
    }
}
