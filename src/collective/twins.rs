//! Channels that do the same at the same time.
//!
//! Channels of a kernel with equal parts of the message start together, share
//! their links evenly and end together: one stands for all of them.

use super::Block;
use super::Schedule;

/// For how many each block of a schedule stands: itself and its twins in other
/// channels, or none where another stands for it.
pub fn multiplicities(schedule: &Schedule) -> Vec<u32> {
    let mut channels: Vec<(u32, Vec<usize>)> = Vec::new();
    for (index, block) in schedule.blocks.iter().enumerate() {
        match channels.iter_mut().find(|(channel, _)| *channel == block.channel) {
            Some((_, blocks)) => blocks.push(index),
            None => channels.push((block.channel, vec![index])),
        }
    }
    for (_, blocks) in &mut channels {
        blocks.sort_by_key(|&block| schedule.blocks[block].rank);
    }
    let mut counts = vec![1; schedule.blocks.len()];
    if channels.len() < 2 || !apart(schedule) {
        return counts;
    }
    let mut first_of_kind: Vec<&[usize]> = Vec::new();
    for (_, blocks) in &channels {
        match first_of_kind.iter().find(|known| twins(schedule, known, blocks)) {
            Some(known) => {
                known.iter().for_each(|&block| counts[block] += 1);
                blocks.iter().for_each(|&block| counts[block] = 0);
            }
            None => first_of_kind.push(blocks),
        }
    }
    counts
}

/// Whether no connection joins two channels.
fn apart(schedule: &Schedule) -> bool {
    let none = u32::MAX;
    let mut channel_of: Vec<u32> = vec![none; schedule.connections.len()];
    for block in &schedule.blocks {
        for step in &block.steps {
            for list in [schedule.receives(step), schedule.sends(step)] {
                for &connection in list {
                    let known = &mut channel_of[connection as usize];
                    if *known != none && *known != block.channel {
                        return false;
                    }
                    *known = block.channel;
                }
            }
        }
    }
    true
}

/// Whether the blocks of two channels do the same over connections of their own.
fn twins(schedule: &Schedule, one: &[usize], other: &[usize]) -> bool {
    let mut matching: Vec<Option<u32>> = vec![None; schedule.connections.len()];
    let mut same_connections = |one: &[u32], other: &[u32]| {
        one.len() == other.len()
            && one.iter().zip(other).all(|(&one, &other)| {
                // The two are matched with each other and with no third.
                *matching[one as usize].get_or_insert(other) == other
                    && *matching[other as usize].get_or_insert(one) == one
                    && schedule.connections[one as usize] == schedule.connections[other as usize]
            })
    };
    one.len() == other.len()
        && one.iter().zip(other).all(|(&one, &other)| {
            let (one, other) = (&schedule.blocks[one], &schedule.blocks[other]);
            shape(one) == shape(other)
                && one.steps.iter().zip(&other.steps).all(|(one, other)| {
                    (one.bytes, one.own, one.store, one.source, one.target)
                        == (other.bytes, other.own, other.store, other.source, other.target)
                        && same_connections(schedule.receives(one), schedule.receives(other))
                        && same_connections(schedule.sends(one), schedule.sends(other))
                })
        })
}

fn shape(block: &Block) -> (usize, u32, u32, super::Engine, usize) {
    (block.rank, block.threads, block.block_threads, block.engine, block.steps.len())
}

#[cfg(test)]
mod tests {
    use super::super::KernelShape;
    use super::super::Part;
    use super::super::Protocol;
    use super::super::ring;
    use super::*;

    /// Parts of these sizes over a ring of four.
    fn ring_of(sizes: &[u64]) -> Schedule {
        let mut offset = 0;
        let parts = (0..).zip(sizes).map(|(channel, &bytes)| {
            offset += bytes;
            Part { channel, offset: offset - bytes, bytes, chunk_bytes: 1 << 20 }
        });
        let shape = KernelShape {
            protocol: Protocol::Ll,
            threads: 64,
            broadcast_threads: 64,
            block_threads: 64,
            slice_steps: 1,
            chunk_steps: 1,
            slice_bytes_min: 256,
            parts: parts.collect(),
        };
        ring::all_reduce(&[0, 1, 2, 3], sizes.iter().sum(), &shape)
    }

    #[test]
    fn equal_parts_are_twins() {
        let schedule = ring_of(&[4096, 4096, 4096, 1024]);
        let counts = multiplicities(&schedule);
        let of = |channel: u32| -> Vec<u32> {
            schedule.blocks.iter().zip(&counts).filter(|(block, _)| block.channel == channel).map(|(_, count)| *count).collect()
        };
        assert_eq!([of(0), of(1), of(2), of(3)], [vec![3; 4], vec![0; 4], vec![0; 4], vec![1; 4]]);
    }

    #[test]
    fn a_shared_connection_keeps_all() {
        let mut schedule = ring_of(&[4096, 4096]);
        let of_channel = |channel| schedule.blocks.iter().position(|block| block.channel == channel).expect("two channels");
        let (one, other) = (of_channel(0), of_channel(1));
        schedule.blocks[other].steps[0].send = schedule.blocks[one].steps[0].send;
        assert_eq!(multiplicities(&schedule), vec![1; 8]);
    }

    /// What differs in one step of one rank is not left out.
    #[test]
    fn a_channel_that_stores_less_is_no_twin() {
        let mut schedule = ring_of(&[4096, 4096, 4096]);
        let last = schedule.blocks.iter().rposition(|block| block.channel == 2).expect("three channels");
        let step = schedule.blocks[last].steps.last_mut().expect("steps");
        step.store = !step.store;
        let counts = multiplicities(&schedule);
        let sum = |channel| schedule.blocks.iter().zip(&counts).filter(|(block, _)| block.channel == channel).map(|(_, c)| c).sum::<u32>();
        assert_eq!([sum(0), sum(1), sum(2)], [8, 0, 4]);
    }
}
