//! What NCCL itself decides, by version 2.18 to 2.31.

pub mod environment;
mod filter;
pub mod graph;
mod kinds;
pub mod launch;
pub mod tables;
pub mod tuner;
mod version;

pub use environment::Environment;
pub use filter::AlgorithmFilter;
pub use filter::ProtocolFilter;
pub use graph::Graph;
pub use graph::Origin;
pub use graph::Pattern;
pub use kinds::Algorithm;
pub use kinds::Collective;
pub use kinds::PathType;
pub use kinds::Protocol;
pub use launch::Choice;
pub use launch::Force;
pub use launch::Launch;
pub use launch::Part;
pub use launch::Roles;
pub use version::Version;

/// A communicator of one node, as NCCL has it after initialisation.
#[derive(Clone, Debug, PartialEq)]
pub struct Communicator {
    /// NCCL's version.
    pub version: Version,
    /// What the variables ask for.
    pub environment: Environment,
    /// How many ranks.
    pub ranks: u32,
    /// Lowest and highest, as 120 for 12.0.
    pub compute_capability: (u32, u32),
    /// What the ring search found.
    pub ring: Graph,
    /// What the tree search found.
    pub tree: Graph,
    /// Channels that both graphs have: the tuner counts with these.
    pub graph_channels: u32,
    /// Twice that, up to what kernels can have: before the environment's bounds.
    pub searched_channels: u32,
    /// What NCCL would warn of.
    pub warnings: Vec<String>,
}

impl Communicator {
    /// From what the searches gave. Both graphs are cut to the channels of the smaller (init.cc), and
    /// channels are doubled after that (connect.cc:459-460). [S]
    pub fn from_graphs(
        version: Version,
        environment: Environment,
        ranks: u32,
        compute_capability: (u32, u32),
        ring: Graph,
        tree: Graph,
    ) -> Communicator {
        let graph_channels = ring.count().min(tree.count()).max(1);
        let searched_channels = (2 * graph_channels).min(version.channels_max());
        let warnings = environment.warnings.clone();
        Communicator { version, environment, ranks, compute_capability, ring, tree, graph_channels, searched_channels, warnings }
    }

    /// The graph that an algorithm runs on.
    pub fn graph(&self, algorithm: Algorithm) -> &Graph {
        match algorithm {
            Algorithm::Ring => &self.ring,
            Algorithm::Tree => &self.tree,
        }
    }
}
