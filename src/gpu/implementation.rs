//! The all-reduces of our own: their names, kernels, regions and grids.

use crate::gpu::arguments::BLOCKS_MAX;
use crate::gpu::arguments::THREADS_MAX;
use crate::gpu::element::Element;
use crate::gpu::kernel::Variant;

/// One way to sum a buffer over all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Implementation {
    /// One hop, data and flag in one 16-byte store.
    OneShotPushLl,
    /// One hop, plain stores, one fence and flag a block and peer.
    OneShotPush,
    /// One hop, reads of the peers' memory.
    OneShotPull,
    /// Two hops, plain stores and flags.
    TwoShot,
    /// Two hops, reads.
    TwoShotPull,
    /// Two hops, data and flag in one store.
    TwoShotLl,
    /// 2 (n - 1) hops to the next rank, data and flag in one store.
    RingLl,
    /// One hop, 8-byte packets, a warp a peer, after MSCCL++.
    PacketAllPair,
    /// One hop, trip by trip, after NCCL's symmetric-memory kernel.
    SymmetricLl,
    /// Inside islands, across, inside; data and flag in one store.
    HierarchicalLl,
    /// Two hops over pinned host memory.
    HostStaged,
    /// The ring kernel with its slots in pinned host memory, as NCCL's
    /// shared-memory transport has them.
    HostRingLl,
    /// A ring of copy-engine copies and adding kernels, ordered by the graph.
    CopyEngineRing,
}

/// How a kernel is launched on each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Grid {
    /// Thread blocks of one rank.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
}

impl Implementation {
    /// All of them.
    pub const ALL: [Implementation; 13] = [
        Implementation::OneShotPushLl,
        Implementation::OneShotPush,
        Implementation::OneShotPull,
        Implementation::TwoShot,
        Implementation::TwoShotPull,
        Implementation::TwoShotLl,
        Implementation::RingLl,
        Implementation::PacketAllPair,
        Implementation::SymmetricLl,
        Implementation::HierarchicalLl,
        Implementation::HostStaged,
        Implementation::HostRingLl,
        Implementation::CopyEngineRing,
    ];

    /// Implementation, algorithm and protocol as observations name them.
    pub fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Implementation::OneShotPushLl => ("one_shot_push", "", "ll"),
            Implementation::OneShotPush => ("one_shot_push", "", "simple"),
            Implementation::OneShotPull => ("one_shot_pull", "", "simple"),
            Implementation::TwoShot => ("two_shot", "", "simple"),
            Implementation::TwoShotPull => ("two_shot_pull", "", "simple"),
            Implementation::TwoShotLl => ("two_shot", "", "ll"),
            Implementation::RingLl => ("ring", "ring", "ll"),
            Implementation::PacketAllPair => ("mscclpp_allpair", "", "ll8"),
            Implementation::SymmetricLl => ("symmetric", "", "ll"),
            Implementation::HierarchicalLl => ("hierarchical", "", "ll"),
            Implementation::HostStaged => ("host_staged", "", "simple"),
            Implementation::HostRingLl => ("host_staged", "ring", "ll"),
            Implementation::CopyEngineRing => ("copy_engine_ring", "ring", "simple"),
        }
    }

    /// The kernel's name.
    pub fn kernel(self) -> &'static str {
        match self {
            Implementation::OneShotPushLl => "one_shot_push_ll",
            Implementation::OneShotPush => "one_shot_push",
            Implementation::OneShotPull => "one_shot_pull",
            Implementation::TwoShot => "two_shot",
            Implementation::TwoShotPull => "two_shot_pull",
            Implementation::TwoShotLl | Implementation::HierarchicalLl => "hierarchical_ll",
            Implementation::RingLl | Implementation::HostRingLl => "ring_ll",
            Implementation::PacketAllPair => "packet_all_pair",
            Implementation::SymmetricLl => "symmetric_ll",
            Implementation::HostStaged => "host_staged",
            Implementation::CopyEngineRing => "accumulate",
        }
    }

    /// What its kernel is compiled for.
    pub fn variant(self, ranks: u32, element: Element) -> Variant {
        let mut variant = Variant::new(ranks, element);
        if self == Implementation::HierarchicalLl {
            variant.macros.push(("GROUP", island(ranks)));
        }
        variant
    }

    /// Whether its regions lie in pinned host memory.
    pub fn through_host(self) -> bool {
        matches!(self, Implementation::HostStaged | Implementation::HostRingLl)
    }

    /// Whether the peers' memory must be reachable from kernels.
    pub fn needs_peers(self) -> bool {
        !self.through_host() && self != Implementation::CopyEngineRing
    }

    /// Roundings to the element type on the way of one addend, at most: sums
    /// that travel are rounded.
    pub fn roundings(self, ranks: u32) -> u32 {
        match self {
            Implementation::RingLl | Implementation::HostRingLl | Implementation::CopyEngineRing => ranks - 1,
            Implementation::HierarchicalLl => 2,
            _ => 1,
        }
    }

    /// Items of work of a call: lines, packs or packets, for the grid.
    fn items(self, bytes: u64, ranks: u32) -> u64 {
        let shards = u64::from(ranks);
        match self {
            Implementation::OneShotPushLl | Implementation::SymmetricLl => bytes.div_ceil(8),
            Implementation::OneShotPush | Implementation::OneShotPull => bytes.div_ceil(16),
            Implementation::PacketAllPair => bytes.div_ceil(4),
            Implementation::TwoShotLl | Implementation::RingLl | Implementation::HostRingLl => bytes.div_ceil(8 * shards),
            Implementation::HierarchicalLl => bytes.div_ceil(8 * u64::from(island(ranks))),
            Implementation::TwoShot | Implementation::TwoShotPull | Implementation::HostStaged => bytes.div_ceil(16 * shards),
            Implementation::CopyEngineRing => bytes.div_ceil(16 * shards),
        }
    }

    /// A sensible grid: one item a thread while blocks last, warps enough to
    /// serve every peer.
    pub fn grid(self, bytes: u64, ranks: u32, blocks_max: u32) -> Grid {
        let items = self.items(bytes, ranks);
        let blocks_max = blocks_max.clamp(1, BLOCKS_MAX);
        let warps_min = if self == Implementation::PacketAllPair { ranks - 1 } else { 1 };
        let threads_min = (warps_min * 32).max(128);
        let per_block = items.div_ceil(u64::from(blocks_max)).max(1);
        let threads = u32::try_from(per_block.next_multiple_of(32)).unwrap_or(THREADS_MAX).clamp(threads_min, THREADS_MAX);
        let blocks = u32::try_from(items.div_ceil(u64::from(threads))).unwrap_or(blocks_max).clamp(1, blocks_max);
        Grid { blocks, threads }
    }
}

/// Ranks of an island when the machine names none: the largest divisor of
/// `ranks` not above its square root's partner, so 8 → 4, 6 → 3, 4 → 2, and a
/// prime number is one island.
pub fn island(ranks: u32) -> u32 {
    (1..=ranks / 2).rev().find(|g| ranks.is_multiple_of(*g) && *g > 1).unwrap_or(ranks)
}

/// Bytes of one half of a rank's region of lines, for messages of `bytes`.
/// One-shot kernels need `ranks` slots a line (16 bytes for 8 of data), the
/// others at most 2.5; the slack covers rounding to blocks and shards.
pub fn lines_half_bytes(bytes: u64, ranks: u32) -> u64 {
    ((u64::from(ranks) + 1) * bytes.div_ceil(8) + 4096) * 16
}

/// Bytes of one half of a region of plain data.
pub fn packs_half_bytes(bytes: u64, ranks: u32) -> u64 {
    ((u64::from(ranks) + 1) * bytes.div_ceil(16) + 8 * u64::from(ranks)) * 16
}

/// Bytes of one half of a rank's ring slots in host memory: 2 (n - 1) steps of
/// a chunk, that is less than two slots a line.
pub fn host_lines_half_bytes(bytes: u64) -> u64 {
    (2 * bytes.div_ceil(8) + 4096) * 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn islands_divide_the_ranks() {
        let expected = [(2, 2), (3, 3), (4, 2), (6, 3), (8, 4), (16, 8)];
        for (ranks, size) in expected {
            assert_eq!(island(ranks), size, "{ranks} ranks");
        }
    }

    #[test]
    fn grids_stay_within_their_limits() {
        for implementation in Implementation::ALL {
            for ranks in [2, 3, 4, 6, 8, 16] {
                for bytes in [2, 42, 14_336, 43_008, 8 << 20] {
                    let grid = implementation.grid(bytes, ranks, 16);
                    assert!((1..=16).contains(&grid.blocks) && grid.threads <= THREADS_MAX && grid.threads.is_multiple_of(32));
                    assert!(implementation != Implementation::PacketAllPair || grid.threads >= 32 * (ranks - 1));
                }
            }
        }
        // 43,008 B are 5,376 lines; 16 blocks of 336 lines need 352 threads.
        assert_eq!(Implementation::OneShotPushLl.grid(43_008, 8, 16), Grid { blocks: 16, threads: 352 });
    }

    /// The slots that each kernel addresses, by the formulas in its source,
    /// against the size of the regions.
    #[test]
    fn regions_hold_what_kernels_address() {
        for ranks in [2_u64, 3, 4, 6, 8, 16] {
            for elements in [1_u64, 3, 21, 7168, 21_504, 524_288] {
                let bytes = elements * 2;
                let half = lines_half_bytes(bytes, ranks as u32);
                let lines = elements.div_ceil(4);
                let one_shot = ranks * lines * 16;
                let group = u64::from(island(ranks as u32));
                let islands = (2 * group + ranks / group) * lines.div_ceil(group) * 16;
                let two_shot = (2 * ranks + 1) * lines.div_ceil(ranks) * 16;
                for blocks in [1_u64, 5, 16, 64] {
                    let chunk = lines.div_ceil(blocks).div_ceil(ranks);
                    let ring = (2 * ranks - 2) * blocks * chunk * 16;
                    assert!(ring <= half, "ring of {ranks} ranks, {elements} elements, {blocks} blocks");
                    assert!(ring <= host_lines_half_bytes(bytes), "host ring of {ranks}, {elements}, {blocks}");
                }
                assert!(one_shot.max(islands).max(two_shot) <= half, "{ranks} ranks, {elements} elements");
                let packs = elements.div_ceil(8);
                let used = (ranks * packs).max(2 * ranks * packs.div_ceil(ranks)).max(ranks * packs + packs) * 16;
                assert!(used <= packs_half_bytes(bytes, ranks as u32), "{ranks} ranks, {elements} elements");
            }
        }
    }
}
