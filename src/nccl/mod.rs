//! What NCCL itself decides, by version 2.18 to 2.31: transports, graphs, algorithm, protocol, channels,
//! threads, parts and chunks.
//!
//! | file | what it decides |
//! |---|---|
//! | [`environment`], `filter` | what the `NCCL_*` variables ask for |
//! | [`topology`], `detect` | the machine in NCCL's bandwidth classes and path types |
//! | [`transport`] | peer-to-peer, host memory or network for each pair |
//! | [`search`], `descent`, [`graph`] | rings and trees, or the fall-back; graph files |
//! | [`tuner`], [`tables`] | what NCCL believes each algorithm and protocol takes |
//! | [`launch`] | channels, threads, parts, chunks and buffers of a message |
//! | [`explain`], [`log`] | what a variable changes; text as `NCCL_DEBUG=INFO` prints it |
//!
//! Facts marked [S] were read in NCCL's source (v2.30.7 unless a version is named), those marked [D] are
//! derived and were not run. Only one node is modelled, and of the algorithms Ring and Tree: NVLS needs
//! NVSwitch, CollNet a plugin, PAT one GPU a node.

mod descent;
mod detect;
pub mod environment;
pub mod explain;
mod filter;
pub mod graph;
pub mod graph_file;
mod kinds;
pub mod launch;
pub mod log;
pub mod search;
mod send_receive;
pub mod tables;
pub mod topology;
pub mod transport;
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
pub use send_receive::SendReceive;
pub use topology::Topology;
pub use transport::Connection;
pub use transport::Placement;
pub use transport::Reason;
pub use transport::Transport;
pub use version::Version;

use crate::error::Result;
use crate::machine::Machine;

/// Variables that decide by message size and have no part in search and transports.
pub const NOT_SEARCHED: [&str; 10] = [
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_NTHREADS",
    "NCCL_LL128_NTHREADS",
    "NCCL_THREAD_THRESHOLDS",
    "NCCL_BUFFSIZE",
    "NCCL_LL_BUFFSIZE",
    "NCCL_LL128_BUFFSIZE",
];

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
    /// How each directed pair is connected; empty when made from graphs alone.
    pub connections: Vec<Connection>,
    /// The GPU of each rank.
    pub devices: Vec<u32>,
    /// What NCCL would warn of.
    pub warnings: Vec<String>,
}

/// What a [`Communicator`] is made of.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The GPU of each rank.
    pub devices: &'a [u32],
    /// NCCL's version.
    pub version: Version,
    /// What the variables ask for.
    pub environment: &'a Environment,
    /// Whether ranks share a process.
    pub placement: Placement,
    /// Name and text of the file that `NCCL_GRAPH_FILE` names.
    pub graph_file: Option<(&'a str, &'a str)>,
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
        let mut warnings = environment.warnings.clone();
        for graph in [&ring, &tree] {
            if graph.origin == Origin::Fallback {
                warnings.push(format!("Could not find a path for pattern {}, falling back to simple order", graph.pattern.number()));
            }
        }
        if version > Version::NEWEST_READ {
            warnings.push(format!("NCCL {version} is newer than the tables: those of {} are used", Version::NEWEST_READ));
        }
        Communicator {
            version,
            environment,
            ranks,
            compute_capability,
            ring,
            tree,
            graph_channels,
            searched_channels,
            connections: Vec::new(),
            devices: (0..ranks).collect(),
            warnings,
        }
    }

    /// What NCCL makes of ranks on a machine: detects, searches (ring from 1 to half of the channels that a
    /// kernel can have, tree with as many as the ring; init.cc:1173-1178) and connects.
    ///
    /// # Errors
    /// `nccl-devices` for GPUs that are not there or shared where NCCL refuses it, `nccl-graph-file` for a
    /// file that cannot be read.
    pub fn new(setup: &Setup) -> Result<Communicator> {
        let Setup { machine, devices, version, environment, .. } = *setup;
        let topology = Topology::new(machine, devices, version, environment)?;
        let ranks = devices.len() as u32;
        let loaded = match setup.graph_file {
            Some((name, text)) => graph_file::read(name, text, devices)?,
            None => graph_file::Graphs::default(),
        };
        let most = version.channels_max() / 2;
        let ring = loaded.ring.unwrap_or_else(|| search::search(&topology, Pattern::Ring, (1, most), version));
        let same = (ring.count(), ring.count());
        let tree = loaded.tree.unwrap_or_else(|| search::search(&topology, Pattern::BalancedTree, same, version));
        let connections = transport::connections(&topology, setup.placement, version, environment);
        let mut communicator = Communicator::from_graphs(version, environment.clone(), ranks, topology.compute_capability, ring, tree);
        communicator.devices = devices.to_vec();
        if connections.iter().any(|connection| connection.transport == Transport::Net) {
            communicator.warnings.push(
                "some pairs have neither peer access nor shared memory and would go over the network, which is not modelled".to_owned(),
            );
        }
        communicator.connections = connections;
        Ok(communicator)
    }

    /// The same graphs and connections under other variables. Only variables that
    /// neither search nor transports look at may differ: see [`NOT_SEARCHED`].
    pub fn under(&self, environment: Environment) -> Communicator {
        let mut warnings = environment.warnings.clone();
        warnings.extend(self.warnings.iter().skip(self.environment.warnings.len()).cloned());
        Communicator { environment, warnings, ..self.clone() }
    }

    /// The ranks of a channel's ring, from rank 0 on; channels beyond the graph's repeat its.
    pub fn ring_of(&self, channel: u32) -> Vec<u32> {
        let mut ring = self.chain(&self.ring, channel);
        let first = ring.iter().position(|rank| *rank == 0).unwrap_or(0);
        ring.rotate_left(first);
        ring
    }

    /// The ranks of a channel's tree, which on one node is a chain, from the root on (connect.cc). [S]
    pub fn chain_of(&self, channel: u32) -> Vec<u32> {
        self.chain(&self.tree, channel)
    }

    fn chain(&self, graph: &Graph, channel: u32) -> Vec<u32> {
        graph.channels.get((channel % self.graph_channels.max(1)) as usize).cloned().unwrap_or_default()
    }

    /// The graph that an algorithm runs on.
    pub fn graph(&self, algorithm: Algorithm) -> &Graph {
        match algorithm {
            Algorithm::Ring => &self.ring,
            Algorithm::Tree => &self.tree,
        }
    }
}
