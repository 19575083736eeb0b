//! From a choice to what the kernels do: channels, threads, who gets which bytes, chunks and slices.
//!
//! [S] enqueue.cc:2070-2115 (channels and threads by size), 576-760 (cells), 2223-2294 (chunks),
//! init.cc:810-828 (buffers), collectives.h:19-26 (steps). [D] Before 2.22 each collective was cut in
//! loops over all its channels, not in contiguous parts; the newer cut is used for those versions too.

use crate::error::Result;

use super::Communicator;
use super::kinds::Algorithm;
use super::kinds::Collective;
use super::kinds::Protocol;

/// Steps in a buffer (`NCCL_STEPS`).
pub const STEPS: u64 = 8;
/// Threads in a warp.
pub const WARP: u32 = 32;
/// Traffic for which a channel is worth its while (`MinTrafficPerChannel`).
const TRAFFIC_PER_CHANNEL: u128 = 32 * 1024;
/// `NCCL_MAX_NTHREADS`.
const THREADS_MAX: u32 = 640;

/// What a caller fixes in place of NCCL; all `None` leaves everything to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Force {
    /// As `NCCL_ALGO` with one name.
    pub algorithm: Option<Algorithm>,
    /// As `NCCL_PROTO` with one name.
    pub protocol: Option<Protocol>,
    /// As `NCCL_MIN_NCHANNELS`; goes before the environment's.
    pub channels_min: Option<u32>,
    /// As `NCCL_MAX_NCHANNELS`; goes before the environment's.
    pub channels_max: Option<u32>,
    /// As `NCCL_NTHREADS` (`NCCL_LL128_NTHREADS` for LL128), without its bounds.
    pub threads: Option<u32>,
    /// As the protocol's `NCCL_…BUFFSIZE`.
    pub buffer_bytes: Option<u64>,
}

/// What NCCL decides for one message size.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Which.
    pub algorithm: Algorithm,
    /// Which.
    pub protocol: Protocol,
    /// Channels that carry data: thread blocks of each rank.
    pub channels: u32,
    /// Threads of each block.
    pub threads: u32,
    /// What NCCL's model believes it takes.
    pub estimated_us: f64,
    /// The rest.
    pub launch: Launch,
}

/// Everything a schedule needs to know of one collective.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Which.
    pub algorithm: Algorithm,
    /// Which.
    pub protocol: Protocol,
    /// Threads of each block.
    pub threads: u32,
    /// What they do.
    pub roles: Roles,
    /// Who carries which bytes; for all-gather and reduce-scatter, bytes of every rank's shard.
    pub parts: Vec<Part>,
    /// Buffer of one channel towards one neighbour.
    pub buffer_bytes: u64,
    /// Steps in the buffer, which are the credits.
    pub steps: u32,
    /// Steps in a slice: after each slice the receiver is told.
    pub slice_steps: u32,
    /// Steps in a chunk.
    pub chunk_steps: u32,
    /// Bytes of data in one step.
    pub step_bytes: u64,
}

/// What the threads of a block do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// Threads that move data, in Tree those that reduce upwards.
    pub workers: u32,
    /// Threads of Tree that broadcast downwards at the same time.
    pub broadcast_workers: u32,
    /// Threads of Simple that only synchronise, of both groups.
    pub sync: u32,
}

/// One channel's contiguous share of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The channel.
    pub channel: u32,
    /// Where it begins.
    pub offset_bytes: u64,
    /// How much.
    pub bytes: u64,
    /// The largest chunk: what one primitive call moves.
    pub chunk_bytes: u64,
}

/// One turn of a ring all-reduce: each rank's chunk of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Where it begins in the message.
    pub offset_bytes: u64,
    /// What all ranks move together.
    pub bytes: u64,
    /// The chunk; the last rank's may be cut short by the end of the part.
    pub chunk_bytes: u64,
}

impl Launch {
    /// The slice of a chunk, for elements of 2 B: Simple cuts a ring's chunk in two, but not below a
    /// thirty-second of a slice's steps (prims_simple.h:183-184); other protocols do not cut. [S]
    pub fn slice_bytes(&self, chunk_bytes: u64) -> u64 {
        if self.protocol != Protocol::Simple {
            return chunk_bytes;
        }
        let slices = u64::from(self.chunk_steps / self.slice_steps.max(1)).max(1);
        let elements = (chunk_bytes / 2).div_ceil(16 * slices) * 16;
        (elements * 2).max(self.step_bytes * u64::from(self.slice_steps) / 32)
    }
}

impl Part {
    /// The turns of a ring all-reduce over `ranks` (all_reduce.h:14-83): each moves `ranks` chunks, the
    /// last turn in chunks of the rest over the ranks, rounded up to 16 B. [S]
    pub fn turns(self, ranks: u32) -> impl Iterator<Item = Turn> {
        let ranks = u64::from(ranks.max(1));
        let mut done = 0u64;
        std::iter::from_fn(move || {
            let rest = self.bytes.checked_sub(done).filter(|rest| *rest > 0)?;
            let full = self.chunk_bytes.max(1).saturating_mul(ranks);
            let chunk_bytes = if rest < full { rest.div_ceil(ranks).next_multiple_of(16) } else { self.chunk_bytes };
            let bytes = rest.min(full);
            let turn = Turn { offset_bytes: self.offset_bytes + done, bytes, chunk_bytes };
            done += bytes;
            Some(turn)
        })
    }
}

impl Communicator {
    /// What NCCL does with a message of `bytes` (nccl-tests' size), unless `force` says otherwise.
    ///
    /// # Errors
    /// `nccl-nothing-allowed` when environment and `force` leave no algorithm, or the collective is
    /// all-to-all, which has none ([`Communicator::send_receive`] describes it).
    pub fn choose(&self, collective: Collective, bytes: u64, force: &Force) -> Result<Choice> {
        if collective == Collective::AllToAll {
            return Err(crate::error::Fault::new("nccl-nothing-allowed", "all-to-all is grouped sends and receives, without an algorithm"));
        }
        let (algorithm, protocol, estimated_us) = self.pick(collective, bytes, force)?;
        let (channels, threads) = self.channels_and_threads(algorithm, protocol, bytes, force);
        let launch = self.launch(collective, algorithm, protocol, bytes, channels, threads, force);
        let channels = u32::try_from(launch.parts.len()).unwrap_or(u32::MAX);
        Ok(Choice { algorithm, protocol, channels, threads, estimated_us, launch })
    }

    /// Channels of the communicator under `force`: first cut to the maximum, then raised by copies.
    pub fn channels_under(&self, force: &Force) -> u32 {
        let limit = self.version.channels_max();
        let high = force.channels_max.or(self.environment.channels_max).unwrap_or(limit).clamp(1, limit);
        let low = force.channels_min.or(self.environment.channels_min).unwrap_or(1).min(limit);
        self.searched_channels.clamp(1, high).max(low)
    }

    /// Threads before the size is looked at (`maxThreads`, tuning.cc:243-257).
    pub fn threads_max(&self, algorithm: Algorithm, protocol: Protocol, force: &Force) -> u32 {
        let given = force.threads.or(if protocol == Protocol::Ll128 { self.environment.threads_ll128 } else { self.environment.threads });
        let default = match (algorithm, protocol) {
            (_, Protocol::Ll128) => 640,
            // PCI_BW, 12 GB/s: a PCIe 3.0 x16 link.
            (Algorithm::Ring, Protocol::Simple) if self.ring.channel_gbps * f64::from(self.graph_channels) <= 12.0 => 256,
            _ => 512,
        };
        given.unwrap_or(default).clamp(WARP, THREADS_MAX)
    }

    /// Bytes for which a thread more is worth its while (comm.h:49-51).
    pub fn thread_threshold(&self, algorithm: Algorithm, protocol: Protocol) -> u64 {
        let default = match (algorithm, protocol) {
            (Algorithm::Ring, Protocol::Ll) => 8 * u64::from(self.ranks),
            (_, Protocol::Simple) => 64,
            _ => 8,
        };
        self.environment.thread_threshold(algorithm, protocol).unwrap_or(default)
    }

    fn channels_and_threads(&self, algorithm: Algorithm, protocol: Protocol, bytes: u64, force: &Force) -> (u32, u32) {
        let mut channels = self.channels_under(force);
        let mut threads = self.threads_max(algorithm, protocol, force);
        let threshold = self.thread_threshold(algorithm, protocol);
        let wanted = |channels: u32, threads: u32| threshold.saturating_mul(u64::from(channels) * u64::from(threads));
        while bytes < wanted(channels, threads) && channels > 1 {
            channels -= 1;
        }
        while bytes < wanted(channels, threads) && threads.is_multiple_of(128) {
            threads /= 2;
        }
        if protocol == Protocol::Simple {
            threads += if algorithm == Algorithm::Ring { WARP } else { 4 * WARP };
        }
        threads = threads.max(3 * WARP) / WARP * WARP;
        if algorithm == Algorithm::Tree {
            threads = THREADS_MAX;
        }
        (channels, threads)
    }

    /// Buffer of one channel towards one neighbour, in bytes.
    pub fn buffer_bytes(&self, protocol: Protocol, force: &Force) -> u64 {
        let (given, default, least) = match protocol {
            Protocol::Ll => (self.environment.buffer_bytes_ll, 8 * 512 * 8 * 16, 8 * 32),
            Protocol::Ll128 => (self.environment.buffer_bytes_ll128, 120 * 640 * 8 * 8, 8 * 2048),
            Protocol::Simple => (self.environment.buffer_bytes, 1 << 22, 8 * 512),
        };
        force.buffer_bytes.or(given).unwrap_or(default).max(least)
    }

    #[allow(clippy::too_many_arguments)]
    fn launch(
        &self,
        collective: Collective,
        algorithm: Algorithm,
        protocol: Protocol,
        bytes: u64,
        channels: u32,
        threads: u32,
        force: &Force,
    ) -> Launch {
        let ranks = u64::from(self.ranks.max(1));
        let (counted, traffic_per_byte) = match collective {
            Collective::AllReduce => (bytes, 2),
            _ => (bytes.div_ceil(ranks), ranks),
        };
        let traffic_per_byte = traffic_per_byte * if protocol == Protocol::Ll { 4 } else { 1 };
        let staged = algorithm == Algorithm::Ring && protocol == Protocol::Simple;
        let (slice_steps, chunk_steps) = if staged { (2, 4) } else { (1, 1) };
        let buffer_bytes = self.buffer_bytes(protocol, force);
        let step_bytes = data_bytes(protocol, buffer_bytes / STEPS);
        let parts = split(counted, traffic_per_byte, channels)
            .into_iter()
            .map(|(channel, offset_bytes, bytes)| {
                let most = data_bytes(protocol, buffer_bytes / STEPS * u64::from(chunk_steps));
                let chunk_bytes = self.chunk_bytes(algorithm, protocol, bytes, most);
                Part { channel, offset_bytes, bytes, chunk_bytes }
            })
            .collect();
        let roles = roles(algorithm, protocol, threads);
        Launch { algorithm, protocol, threads, roles, parts, buffer_bytes, steps: STEPS as u32, slice_steps, chunk_steps, step_bytes }
    }

    /// The chunk of a part: whole grains, and smaller for Tree LL128 so that the chain is filled.
    fn chunk_bytes(&self, algorithm: Algorithm, protocol: Protocol, part_bytes: u64, most: u64) -> u64 {
        let mut chunk = most.max(protocol.grain_bytes());
        if algorithm == Algorithm::Tree && protocol == Protocol::Ll128 {
            let ranks = f64::from(self.ranks.max(1));
            let depth = 1.0 + 0.1 * ranks;
            for (turns, least) in [(64.0, 131_072), (16.0, 32_768)] {
                while ((part_bytes / chunk) as f64) < depth * turns / ranks && chunk > least {
                    chunk /= 2;
                }
            }
        }
        (chunk / protocol.grain_bytes()).max(1) * protocol.grain_bytes()
    }
}

/// Bytes of data in `wire` bytes of a buffer.
fn data_bytes(protocol: Protocol, wire: u64) -> u64 {
    match protocol {
        Protocol::Ll => wire / 2,
        Protocol::Ll128 => wire / 16 * 15,
        Protocol::Simple => wire,
    }
}

/// [S] all_reduce.h:156-164 for the halves of Tree; Simple keeps a warp for posting where a group has three
/// or more ("extra group", prims_simple.h).
fn roles(algorithm: Algorithm, protocol: Protocol, threads: u32) -> Roles {
    let warps = threads / WARP;
    match (algorithm, protocol) {
        (Algorithm::Ring, Protocol::Simple) => Roles { workers: threads - WARP, broadcast_workers: 0, sync: WARP },
        (Algorithm::Ring, _) => Roles { workers: threads, broadcast_workers: 0, sync: 0 },
        (Algorithm::Tree, Protocol::Simple) => {
            let half = threads / 2;
            let up = if half >= 256 { half + 64 } else { half };
            let sync = |group: u32| if group >= 3 * WARP { WARP } else { 0 };
            let down = threads - up;
            Roles { workers: up - sync(up), broadcast_workers: down - sync(down), sync: sync(up) + sync(down) }
        }
        (Algorithm::Tree, _) => {
            let up = warps * 7 / 10 * WARP;
            Roles { workers: up, broadcast_workers: threads - up, sync: 0 }
        }
    }
}

/// Cuts `bytes` in cells and gives each channel a contiguous run of them: (channel, offset, bytes).
fn split(bytes: u64, traffic_per_byte: u64, channels: u32) -> Vec<(u32, u64, u64)> {
    if bytes == 0 {
        return Vec::new();
    }
    let (total, per_byte, channels) = (u128::from(bytes), u128::from(traffic_per_byte.max(1)), u128::from(channels.max(1)));
    let cell = TRAFFIC_PER_CHANNEL.div_ceil(per_byte).next_multiple_of(16);
    let traffic = (total * per_byte).max(TRAFFIC_PER_CHANNEL);
    let traffic_per_channel = TRAFFIC_PER_CHANNEL.max(traffic / channels);
    let cells = total.div_ceil(cell);
    let mut each = cells.min(traffic_per_channel.div_ceil(cell * per_byte));
    let low = if channels == 1 { cells } else { each };
    let (mut middle, mut high) = ((cells - low) / each, (cells - low) % each);
    if 1 + middle + u128::from(high != 0) > channels {
        middle = channels - 2;
        each = (cells - low) / (middle + 1);
        high = each + (cells - low) % (middle + 1);
    }
    if high == 0 && middle != 0 {
        high = each;
        middle -= 1;
    }
    let shares = std::iter::once(low).chain(std::iter::repeat_n(each, middle as usize)).chain(std::iter::once(high));
    let mut parts = Vec::new();
    let mut offset = 0u128;
    for (channel, share) in shares.filter(|share| *share > 0).enumerate() {
        let size = (share * cell).min(total - offset);
        if size > 0 {
            parts.push((channel as u32, offset as u64, size as u64));
        }
        offset += size;
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_cover_the_message(bytes in 0u64..=u64::MAX, per_byte in 1u64..=512, channels in 1u32..=64, shift in 0u32..64) {
            let bytes = bytes >> shift;
            let parts = split(bytes, per_byte, channels);
            prop_assert!(parts.len() <= channels as usize);
            let mut end = 0u64;
            for (at, (channel, offset, size)) in parts.iter().enumerate() {
                prop_assert_eq!(*channel as usize, at);
                prop_assert_eq!(*offset, end);
                prop_assert!(*size > 0);
                end += size;
            }
            prop_assert_eq!(end, bytes);
        }

        #[test]
        fn turns_cover_the_part(bytes in 0u64..1 << 34, offset in 0u64..1 << 40, grains in 1u64..4096, ranks in 1u32..64) {
            let part = Part { channel: 0, offset_bytes: offset, bytes, chunk_bytes: grains * 16 };
            let mut end = offset;
            for turn in part.turns(ranks).take(100_000) {
                prop_assert_eq!(turn.offset_bytes, end);
                prop_assert!(turn.chunk_bytes * u64::from(ranks) >= turn.bytes);
                end += turn.bytes;
                if turn.bytes < part.chunk_bytes * u64::from(ranks) {
                    prop_assert_eq!(end, offset + bytes);
                }
            }
        }
    }

    #[test]
    fn threads_are_shared_out() {
        assert_eq!(roles(Algorithm::Ring, Protocol::Ll, 512), Roles { workers: 512, broadcast_workers: 0, sync: 0 });
        assert_eq!(roles(Algorithm::Ring, Protocol::Simple, 544), Roles { workers: 512, broadcast_workers: 0, sync: 32 });
        // 20 warps: 14 reduce, 6 broadcast.
        assert_eq!(roles(Algorithm::Tree, Protocol::Ll, 640), Roles { workers: 448, broadcast_workers: 192, sync: 0 });
        // 384 + 256, one warp of each synchronises.
        assert_eq!(roles(Algorithm::Tree, Protocol::Simple, 640), Roles { workers: 352, broadcast_workers: 224, sync: 64 });
    }
}
