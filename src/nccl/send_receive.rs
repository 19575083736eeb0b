//! All-to-all: grouped sends and receives, each pair on its own channels.
//!
//! [D] written from knowledge of paths.cc (channels) and enqueue.cc (parts): two channels a peer over PCIe,
//! LL up to 16 KiB, else Simple in chunks of 128 KiB (512 KiB over NVLink).

use super::Communicator;
use super::kinds::PathType;
use super::kinds::Protocol;
use super::launch::Force;
use super::launch::STEPS;

/// How each pair's message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendReceive {
    /// LL or Simple.
    pub protocol: Protocol,
    /// Channels that one pair's message is cut over.
    pub channels_per_peer: u32,
    /// Channels of the kernel.
    pub channels: u32,
    /// Bytes of one channel of a pair.
    pub part_bytes: u64,
    /// Bytes of one step.
    pub chunk_bytes: u64,
}

impl Communicator {
    /// What NCCL does with an all-to-all in which every pair exchanges `pair_bytes`.
    pub fn send_receive(&self, pair_bytes: u64) -> SendReceive {
        let channels = self.channels_under(&Force::default()).next_power_of_two().min(self.version.channels_max());
        let per_peer = 2u32.min(channels);
        let ranks = self.ranks.max(1);
        let (mut low, mut high) = (per_peer, per_peer);
        while low * ranks > channels && low > 1 {
            low /= 2;
        }
        while high * ranks > channels * 4 && high > 1 {
            high /= 2;
        }
        let protocol = if pair_bytes <= 16_384 { Protocol::Ll } else { Protocol::Simple };
        let buffer = self.buffer_bytes(protocol, &Force::default());
        let step_bytes = match protocol {
            Protocol::Ll => buffer / STEPS / 2,
            _ => (buffer / STEPS).min(if self.ring.type_intra <= PathType::Nvb { 512 << 10 } else { 128 << 10 }),
        };
        let mut count = low.max(1);
        while pair_bytes.div_ceil(u64::from(count)) > step_bytes.saturating_mul(32) && count * 2 <= high {
            count *= 2;
        }
        let part_bytes = pair_bytes.div_ceil(u64::from(count)).next_multiple_of((step_bytes / 8).max(1)).min(pair_bytes);
        SendReceive { protocol, channels_per_peer: count, channels, part_bytes, chunk_bytes: step_bytes }
    }
}
