//! All-reduce over islands with data that tell their own arrival:
//! reduce-scatter inside an island, exchange with the ranks of the same place
//! in the others, all-gather inside. One island makes it a two-shot.
//!
//! A thread depends on the same thread of other ranks alone: no barrier. Only
//! shards cross between islands.

use super::islands::{Islands, Wires};
use super::one_shot::{Grid, add_block, shares, trips};
use super::{Buffer, Protocol, Schedule, StepBuilder};

const USER: Buffer = Buffer::User;
const SCRATCH: Buffer = Buffer::Scratch;

/// The block `channel`'s part (offset, bytes) of each of `shards` shards.
pub(super) fn parts(bytes: u64, shards: usize, blocks: u32, channel: u32) -> Vec<(u64, u64)> {
    shares(bytes, u32::try_from(shards).unwrap_or(u32::MAX))
        .into_iter()
        .map(|(start, length)| shares(length, blocks).get(channel as usize).map_or((start, 0), |(offset, part)| (start + offset, *part)))
        .collect()
}

/// All-reduce of `bytes` over `islands`; each rank sends `bytes / size` to each
/// of its mates twice and to each of its counterparts once.
pub fn all_reduce(islands: &Islands, bytes: u64, grid: Grid, protocol: Protocol) -> Schedule {
    let mut schedule = Schedule::new(islands.ranks(), bytes);
    schedule.result = SCRATCH;
    for channel in 0..grid.blocks.max(1) {
        let parts = parts(bytes, islands.size(), grid.blocks.max(1), channel);
        // Regions hold a whole message: nobody waits for room.
        let most = parts.iter().map(|part| trips(*part, grid, protocol).count()).max().unwrap_or(0);
        if most == 0 {
            break;
        }
        let credits = u32::try_from(most).unwrap_or(u32::MAX);
        let scatter = Wires::new(&mut schedule, protocol, credits, |rank| islands.mates(rank));
        let across = Wires::new(&mut schedule, protocol, credits, |rank| islands.counterparts(rank));
        let gather = Wires::new(&mut schedule, protocol, credits, |rank| islands.mates(rank));
        let wires = [&scatter, &across, &gather];
        for rank in 0..islands.ranks() {
            let cut = |place: usize| trips(parts[place], grid, protocol).collect::<Vec<_>>();
            add_block(&mut schedule, rank, channel, grid, |block| rank_steps(block, islands, rank, wires, &cut));
        }
    }
    schedule
}

/// Two hops: every rank sums its shard, then tells all others.
pub fn two_shot(ranks: usize, bytes: u64, grid: Grid, protocol: Protocol) -> Schedule {
    all_reduce(&Islands::consecutive(ranks, ranks), bytes, grid, protocol)
}

fn rank_steps(
    block: &mut StepBuilder<'_>,
    islands: &Islands,
    rank: usize,
    [scatter, across, gather]: [&Wires; 3],
    cut: &dyn Fn(usize) -> Vec<(u64, u64)>,
) {
    let (mates, others) = (islands.mates(rank), islands.counterparts(rank));
    for &mate in &mates {
        for (offset, bytes) in cut(islands.place(mate)) {
            block.user(&[], &[scatter.one(rank, mate)], offset, bytes, true, false);
        }
    }
    let (from_mates, to_mates) = (scatter.from(&mates, rank), gather.to(rank, &mates));
    let (from_others, to_others) = (across.from(&others, rank), across.to(rank, &others));
    for (offset, bytes) in cut(islands.place(rank)) {
        if others.is_empty() {
            block.push(&from_mates, &to_mates, offset, bytes, (true, USER), (true, SCRATCH));
        } else {
            block.push(&from_mates, &to_others, offset, bytes, (true, USER), (true, SCRATCH));
            block.push(&from_others, &to_mates, offset, bytes, (true, SCRATCH), (true, SCRATCH));
        }
    }
    for &mate in &mates {
        for (offset, bytes) in cut(islands.place(mate)) {
            block.push(&[gather.one(mate, rank)], &[], offset, bytes, (false, SCRATCH), (true, SCRATCH));
        }
    }
}
