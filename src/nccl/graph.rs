//! What the topology search finds: orders of the ranks, one a channel, and the speed they are held to.

use super::kinds::PathType;

/// The shape that a search looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    /// NIC traffic spread between tree parent and child.
    BalancedTree,
    /// NIC traffic split.
    SplitTree,
    /// A plain tree.
    Tree,
    /// A ring.
    Ring,
}

impl Pattern {
    /// NCCL's number, as logs and graph files have it.
    pub fn number(self) -> u32 {
        match self {
            Pattern::BalancedTree => 1,
            Pattern::SplitTree => 2,
            Pattern::Tree => 3,
            Pattern::Ring => 4,
        }
    }

    /// From NCCL's number.
    pub fn from_number(number: u32) -> Option<Pattern> {
        [Pattern::BalancedTree, Pattern::SplitTree, Pattern::Tree, Pattern::Ring].into_iter().find(|pattern| pattern.number() == number)
    }
}

/// One graph (`ncclTopoGraph`), within one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    /// What was looked for, or what it was simplified to.
    pub pattern: Pattern,
    /// Ranks in order, one list a channel.
    pub channels: Vec<Vec<u32>>,
    /// What each channel is credited with, in GB/s (`bwIntra`).
    pub channel_gbps: f64,
    /// The farthest pair that may be neighbours (`typeIntra`); decides the latency row and LL128.
    pub type_intra: PathType,
    /// The same towards NICs; PIX on one node.
    pub type_inter: PathType,
    /// Whether all channels were searched with the same order.
    pub same_channels: bool,
    /// Links crossed by all channels together.
    pub hops: u64,
    /// Where it comes from.
    pub origin: Origin,
}

/// Where a [`Graph`] comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The search.
    Search,
    /// The search found nothing: ranks in plain order at 0.1 GB/s.
    Fallback,
    /// `NCCL_GRAPH_FILE`.
    File,
    /// The caller.
    Given,
}

impl Graph {
    /// `count` channels of the plain order at `channel_gbps`, for callers that know what a search gave.
    pub fn given(pattern: Pattern, ranks: u32, count: u32, channel_gbps: f64, type_intra: PathType) -> Graph {
        Graph {
            pattern,
            channels: vec![(0..ranks).collect(); count as usize],
            channel_gbps,
            type_intra,
            type_inter: PathType::Pix,
            same_channels: true,
            hops: 0,
            origin: Origin::Given,
        }
    }

    /// What NCCL falls back to (search.cc:1289-1311): one channel in plain order, 0.1 GB/s, SYS. [S]
    pub fn fallback(pattern: Pattern, ranks: u32) -> Graph {
        Graph { type_inter: PathType::Sys, origin: Origin::Fallback, ..Graph::given(pattern, ranks, 1, 0.1, PathType::Sys) }
    }

    /// Number of channels.
    pub fn count(&self) -> u32 {
        u32::try_from(self.channels.len()).unwrap_or(u32::MAX)
    }

    /// All channels together, in GB/s.
    pub fn total_gbps(&self) -> f64 {
        f64::from(self.count()) * self.channel_gbps
    }
}
