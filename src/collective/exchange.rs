//! What does not sum over all: all-gather and reduce-scatter in one hop,
//! all-to-all, and messages from rank to rank as NCCL groups them.

use std::collections::BTreeMap;

use super::islands::Wires;
use super::one_shot::{Grid, add_block, shares, trips};
use super::{Block, Buffer, Engine, Protocol, Schedule, Step, StepBuilder};

const USER: Buffer = Buffer::User;
const SCRATCH: Buffer = Buffer::Scratch;

fn peers(ranks: usize, rank: usize) -> Vec<usize> {
    (1..ranks).map(|k| (rank + k) % ranks).collect()
}

/// What each block does in a direct exchange: its part of every rank's shard.
fn direct(
    mut schedule: Schedule,
    shard: u64,
    grid: Grid,
    protocol: Protocol,
    fill: impl Fn(&mut StepBuilder<'_>, usize, &Wires, &[(u64, u64)]),
) -> Schedule {
    for (channel, part) in (0..).zip(shares(shard, grid.blocks.max(1))) {
        let cut: Vec<(u64, u64)> = trips(part, grid, protocol).collect();
        if cut.is_empty() {
            break;
        }
        let ranks = schedule.ranks;
        let credits = u32::try_from(cut.len()).unwrap_or(u32::MAX);
        let wires = Wires::new(&mut schedule, protocol, credits, |rank| peers(ranks, rank));
        for rank in 0..ranks {
            add_block(&mut schedule, rank, channel, grid, |block| fill(block, rank, &wires, &cut));
        }
    }
    schedule
}

/// Bytes from one rank's shard to the next: a multiple of 16.
fn stride(bytes: u64, ranks: usize) -> u64 {
    bytes.div_ceil(ranks as u64).next_multiple_of(16)
}

/// A trip of shard `of`, cut off at the buffer's end.
fn within(of: usize, (offset, length): (u64, u64), stride: u64, bytes: u64) -> (u64, u64) {
    let start = (of as u64 * stride + offset).min(bytes);
    (start, length.min(bytes - start))
}

/// All-gather in one hop, in place: every rank stores its shard of `bytes` into
/// all others' memory.
pub fn all_gather(ranks: usize, bytes: u64, grid: Grid, protocol: Protocol) -> Schedule {
    let stride = stride(bytes, ranks);
    direct(Schedule::new(ranks, bytes), stride, grid, protocol, |block, rank, wires, cut| {
        let others = peers(ranks, rank);
        for &trip in cut {
            let (offset, bytes) = within(rank, trip, stride, bytes);
            if bytes > 0 {
                block.user(&[], &wires.to(rank, &others), offset, bytes, true, false);
            }
        }
        for &peer in &others {
            for &trip in cut {
                let (offset, bytes) = within(peer, trip, stride, bytes);
                if bytes > 0 {
                    block.user(&[wires.one(peer, rank)], &[], offset, bytes, false, true);
                }
            }
        }
    })
}

/// Reduce-scatter in one hop, in place: every rank stores each other's shard
/// into its memory, then sums its own.
pub fn reduce_scatter(ranks: usize, bytes: u64, grid: Grid, protocol: Protocol) -> Schedule {
    let stride = stride(bytes, ranks);
    direct(Schedule::new(ranks, bytes), stride, grid, protocol, |block, rank, wires, cut| {
        let others = peers(ranks, rank);
        for &peer in &others {
            for &trip in cut {
                let (offset, bytes) = within(peer, trip, stride, bytes);
                if bytes > 0 {
                    block.user(&[], &[wires.one(rank, peer)], offset, bytes, true, false);
                }
            }
        }
        for &trip in cut {
            let (offset, bytes) = within(rank, trip, stride, bytes);
            if bytes > 0 {
                block.user(&wires.from(&others, rank), &[], offset, bytes, true, true);
            }
        }
    })
}

/// All-to-all in one hop, out of place: row `p` of each rank's buffer of `ranks`
/// rows goes to row `rank` of rank `p`. Rows of `row_bytes` start at multiples
/// of 16.
pub fn all_to_all(ranks: usize, row_bytes: u64, grid: Grid, protocol: Protocol) -> Schedule {
    let stride = row_bytes.next_multiple_of(16);
    let mut schedule = Schedule::new(ranks, stride * ranks as u64);
    schedule.result = SCRATCH;
    direct(schedule, row_bytes, grid, protocol, |block, rank, wires, cut| {
        for peer in (0..ranks).map(|k| (rank + k) % ranks) {
            for &(offset, bytes) in cut {
                let offset = peer as u64 * stride + offset;
                if peer == rank {
                    block.push(&[], &[], offset, bytes, (true, USER), (true, SCRATCH));
                } else {
                    block.user(&[], &[wires.one(rank, peer)], offset, bytes, true, false);
                }
            }
        }
        for peer in peers(ranks, rank) {
            for &(offset, bytes) in cut {
                let offset = peer as u64 * stride + offset;
                block.push(&[wires.one(peer, rank)], &[], offset, bytes, (false, USER), (true, SCRATCH));
            }
        }
    })
}

/// A message from one rank's buffer to another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Sender.
    pub from: usize,
    /// Receiver; the same as the sender for a copy.
    pub to: usize,
    /// First byte in the sender's buffer.
    pub from_offset: u64,
    /// First byte in the receiver's output.
    pub to_offset: u64,
    /// Bytes.
    pub bytes: u64,
}

/// How NCCL runs grouped sends and receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    /// LL or Simple.
    pub protocol: Protocol,
    /// Channels of the kernel.
    pub count: u32,
    /// Most channels that one message is cut over.
    pub per_peer: u32,
    /// Most bytes of one channel of a message.
    pub part_bytes: u64,
    /// Bytes of one primitive.
    pub chunk_bytes: u64,
    /// Threads of each role, send and receive.
    pub threads: u32,
}

/// Grouped sends and receives into [`Buffer::Scratch`], or in place. Rank `r`
/// sends to `r + 1` first and receives from `r - 1`, and so on; a channel's
/// senders and receivers go through their messages in that order.
pub fn grouped(ranks: usize, user_bytes: u64, target: Buffer, messages: &[Message], channels: &Channels) -> Schedule {
    let mut schedule = Schedule::new(ranks, user_bytes);
    schedule.result = target;
    // Steps of the roles, by (rank, channel, whether it receives).
    let mut roles: BTreeMap<(usize, u32, bool), Vec<Step>> = BTreeMap::new();
    let distance = |message: &Message| (message.to + ranks - message.from) % ranks;
    let mut order: Vec<&Message> = messages.iter().filter(|message| message.bytes > 0).collect();
    order.sort_by_key(|message| (distance(message), message.from));
    for message in order {
        let parts = u32::try_from(message.bytes.div_ceil(channels.part_bytes.max(1))).unwrap_or(1).min(channels.per_peer.max(1));
        let round = u32::try_from(distance(message)).unwrap_or(0);
        for (part, (start, length)) in (0..).zip(shares(message.bytes, parts)) {
            let channel = (round * channels.per_peer.max(1) + part) % channels.count.max(1);
            let connection =
                (message.from != message.to).then(|| schedule.connect(message.from, message.to, channels.protocol, super::BUFFER_STEPS));
            let mut builder = StepBuilder { schedule: &mut schedule, steps: Vec::new() };
            let chunk = channels.chunk_bytes.max(1);
            let chunks = (0..length.div_ceil(chunk)).map(|i| (start + i * chunk, chunk.min(length - i * chunk)));
            for (offset, bytes) in chunks.clone() {
                match connection {
                    Some(connection) => builder.user(&[], &[connection], message.from_offset + offset, bytes, true, false),
                    None => builder.push(&[], &[], message.from_offset + offset, bytes, (true, USER), (true, target)),
                }
            }
            roles.entry((message.from, channel, false)).or_default().append(&mut builder.steps);
            if let Some(connection) = connection {
                for (offset, bytes) in chunks {
                    builder.push(&[connection], &[], message.to_offset + offset, bytes, (false, USER), (true, target));
                }
                roles.entry((message.to, channel, true)).or_default().append(&mut builder.steps);
            }
        }
    }
    for ((rank, channel, _), steps) in roles {
        let (threads, block_threads) = (channels.threads, 2 * channels.threads);
        schedule.blocks.push(Block { rank, channel, threads, block_threads, engine: Engine::Threads, steps });
    }
    schedule
}

/// All-to-all of rows as [`all_to_all`], the way NCCL groups it.
pub fn grouped_all_to_all(ranks: usize, row_bytes: u64, channels: &Channels) -> Schedule {
    let stride = row_bytes.next_multiple_of(16);
    let message =
        |from: usize, to: usize| Message { from, to, from_offset: to as u64 * stride, to_offset: from as u64 * stride, bytes: row_bytes };
    let messages: Vec<Message> = (0..ranks).flat_map(|from| (0..ranks).map(move |to| message(from, to))).collect();
    grouped(ranks, stride * ranks as u64, SCRATCH, &messages, channels)
}
