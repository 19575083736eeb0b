//! What NCCL says of itself in logs and dumps.

use std::collections::BTreeMap;

/// What NCCL found and chose.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NcclFacts {
    /// Ranks of the largest communicator.
    pub ranks: u32,
    /// Graphs that the search found.
    pub graphs: Vec<Graph>,
    /// How many channels collectives get.
    pub collective_channels: Option<u32>,
    /// (from rank, to rank) → `P2P/CUMEM`, `SHM/direct/direct`, ….
    pub transports: BTreeMap<(u32, u32), String>,
    /// Variables of NCCL's own that were set.
    pub environment: BTreeMap<String, String>,
    /// Choices for collectives of one size.
    pub choices: Vec<Choice>,
}

/// One graph of the search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// NCCL's number of the pattern.
    pub pattern: u32,
    /// Channels found.
    pub channels: u32,
    /// Bandwidth per channel that the search settled on.
    pub bandwidth_gbps: f64,
    /// Longest path inside the node: `PIX`, `PHB`, `SYS`.
    pub path: String,
    /// GPUs in order, one list a channel.
    pub order: Vec<Vec<u32>>,
}

impl Graph {
    /// The pattern in words.
    pub fn pattern_name(&self) -> &'static str {
        match self.pattern {
            1 => "balanced_tree",
            2 => "split_tree",
            3 => "tree",
            4 => "ring",
            5 => "nvls",
            6 => "collnet_direct",
            _ => "unknown",
        }
    }
}

/// What NCCL chose for one size.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Choice {
    /// `all_reduce`, ….
    pub collective: String,
    /// Message size.
    pub bytes: u64,
    /// `ring`, `tree`, ….
    pub algorithm: String,
    /// `ll`, `ll128`, `simple`.
    pub protocol: String,
    /// First and last channel, where the log says.
    pub channels: Option<(u32, u32)>,
}

impl NcclFacts {
    /// Takes over what `other` knows; what is known already stays.
    pub fn merge(&mut self, other: NcclFacts) {
        self.ranks = self.ranks.max(other.ranks);
        if self.graphs.is_empty() {
            self.graphs = other.graphs;
        }
        self.collective_channels = self.collective_channels.or(other.collective_channels);
        for (pair, transport) in other.transports {
            self.transports.entry(pair).or_insert(transport);
        }
        for (key, value) in other.environment {
            self.environment.entry(key).or_insert(value);
        }
        self.choices.extend(other.choices);
        self.choices.sort();
        self.choices.dedup();
    }
}
