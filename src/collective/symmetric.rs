//! NCCL's symmetric-memory kernel AllReduce_AGxLL_R: one hop of LL lines.

use super::islands::Wires;
use super::one_shot::{Grid, add_block, trips};
use super::{Buffer, Protocol, Schedule};

/// Trip by trip, dealt to the blocks in turn: each thread stores its 8 B as a
/// line to all ranks, its own included, polls all slots and sums.
///
/// No flow control: who has all lines of a trip knows that the slots of the
/// trip before are free.
pub fn all_reduce(ranks: usize, bytes: u64, grid: Grid) -> Schedule {
    let mut schedule = Schedule::new(ranks, bytes);
    schedule.result = Buffer::Scratch;
    let all: Vec<(u64, u64)> = trips((0, bytes), grid, Protocol::Ll).collect();
    for channel in 0..grid.blocks.max(1) {
        let mine: Vec<(u64, u64)> = all.iter().copied().skip(channel as usize).step_by(grid.blocks.max(1) as usize).collect();
        if mine.is_empty() {
            break;
        }
        let everyone = |rank: usize| (0..ranks).map(|k| (rank + k) % ranks).collect::<Vec<_>>();
        let wires = Wires::new(&mut schedule, Protocol::Ll, u32::try_from(mine.len()).unwrap_or(u32::MAX), everyone);
        for rank in 0..ranks {
            let (to, from) = (wires.to(rank, &everyone(rank)), wires.from(&everyone(rank), rank));
            add_block(&mut schedule, rank, channel, grid, |block| {
                for &(offset, bytes) in &mine {
                    block.user(&[], &to, offset, bytes, true, false);
                    block.push(&from, &[], offset, bytes, (false, Buffer::User), (true, Buffer::Scratch));
                }
            });
        }
    }
    schedule
}
