//! Machines: the graph of GPUs, switches, root ports and sockets, and what
//! travels along it.
//!
//! A [`Machine`] is data read from a TOML file. It knows its graph, routes and
//! path types ([`route`]); it knows no collective, no model and no cost.

pub(crate) mod check;
pub mod collapse;
pub mod constants;
pub mod kernel_constants;
pub mod knobs;
pub mod library;
pub mod protocol_constants;
pub(crate) mod raw;
pub mod read;
pub mod recable;
pub mod route;
pub mod routes;
#[cfg(test)]
mod tests;
pub mod write;

use std::collections::BTreeMap;

use crate::knob::Quantity;

pub use constants::ChipConstants;
pub use constants::FabricConstants;
pub use constants::LaunchConstants;
pub use constants::LinkConstants;
pub use kernel_constants::KernelConstants;
pub use protocol_constants::ProtocolConstants;
pub use recable::Cabling;
pub use route::Access;
pub use route::Direction;
pub use route::Endpoint;
pub use route::PathType;
pub use route::Route;
pub use routes::Routes;

/// One machine as its file describes it, checked: every index is in range, the
/// graph is connected where it is used, every number is within its bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Kebab-case id, e.g. `8x-rtx-pro-6000-server`.
    pub id: String,
    /// One line for lists.
    pub name: String,
    /// What is assumed and what is measured, in sentences.
    pub notes: Vec<String>,
    /// Versions of the software on it.
    pub versions: Versions,
    /// How a GPU reaches another's memory.
    pub peer_access: PeerAccess,
    /// Whether Access Control Services send peers' packets up to the root port and down again,
    /// though a switch could forward them.
    pub redirects_peers: bool,
    /// Ranks that share one GPU; 1 in a server.
    pub ranks_per_gpu: u32,
    /// Kinds of GPU by name.
    pub kinds: BTreeMap<String, GpuKind>,
    /// GPUs, switches, root ports and sockets.
    pub nodes: Vec<Node>,
    /// What joins them.
    pub links: Vec<Link>,
    /// The nodes that are GPUs, in device order: GPU `g` is node `gpus[g]`.
    pub gpus: Vec<NodeId>,
    /// PCIe packets and the host.
    pub fabric: FabricConstants,
    /// What is known to go wrong, with its trigger.
    pub collapses: Vec<Collapse>,
}

/// Index into [`Machine::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub usize);

/// Index into [`Machine::links`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub usize);

/// Versions of the software, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Versions {
    /// Driver, e.g. `595.58.03`.
    pub driver: Option<String>,
    /// CUDA, e.g. `13.0`.
    pub cuda: Option<String>,
    /// NCCL, e.g. `2.29.2`.
    pub nccl: Option<String>,
    /// FlashInfer, e.g. `0.4.1`.
    pub flashinfer: Option<String>,
    /// Serving engine and its version, e.g. `sglang 0.5.14`.
    pub engine: Option<String>,
}

/// How a GPU reaches another GPU's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeerAccess {
    /// Loads and stores go straight to the peer over PCIe.
    Direct,
    /// No peer access: data goes through host memory.
    HostStaged,
    /// The driver says yes, but stages peer loads in system memory (no ForceP2P).
    DriverStaged,
}

/// A vertex of the graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The id in the file, unique.
    pub id: String,
    /// What it is.
    pub kind: NodeKind,
}

/// What a [`Node`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A GPU of the named kind.
    Gpu {
        /// Key into [`Machine::kinds`].
        kind: String,
    },
    /// A PCIe switch, or one virtual switch of a chip.
    Switch {
        /// Virtual switches of the same chip carry the same name.
        chip: Option<String>,
    },
    /// A host bridge: the part of a processor (a quadrant of its I/O die) that
    /// owns root ports. Two GPUs below one are `PHB` to `nvidia-smi`, GPUs
    /// below two of one socket are `NODE`.
    RootPort,
    /// A processor with its memory.
    Socket {
        /// NUMA node.
        numa: u32,
        /// As NCCL names it.
        vendor: CpuVendor,
        /// Family and model as CPUID gives them, 0 when unknown.
        family: u32,
        /// See `family`.
        model: u32,
    },
}

/// Processor vendors that NCCL tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuVendor {
    /// AMD.
    Amd,
    /// Intel.
    Intel,
    /// Arm servers.
    Arm,
    /// IBM Power.
    Power,
    /// Not known.
    Unknown,
}

/// What joins two nodes: PCIe lanes, a fabric between sockets, or NVLink.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// The end nearer the GPU or the first in the file.
    pub a: NodeId,
    /// The other end.
    pub b: NodeId,
    /// What it is made of.
    pub medium: Medium,
    /// Links of one class have the same numbers and change together as one knob.
    pub class: String,
    /// From `a` to `b`, payload bytes at the best packet size.
    pub forward_gbps: Quantity,
    /// From `b` to `a`.
    pub backward_gbps: Quantity,
    /// One packet, one way, ports of both ends included.
    pub latency_ns: Quantity,
    /// What reads get of the rates, which are those of posted writes.
    pub read_factor: Quantity,
    /// PCIe generation, 0 where it does not apply.
    pub generation: u32,
    /// PCIe lanes, 0 where it does not apply.
    pub width: u32,
}

/// What a link is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Medium {
    /// PCI Express.
    Pcie,
    /// Between two sockets (xGMI, UPI).
    SocketFabric,
    /// NVLink.
    Nvlink,
    /// Inside one chip or processor (virtual switch to virtual switch, quadrant to memory).
    Internal,
}

/// One kind of GPU: what the datasheet says and what was fitted.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuKind {
    /// As the driver names it.
    pub name: String,
    /// Major and minor, e.g. `[12, 0]`.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Device memory.
    pub memory_bytes: u64,
    /// L2 cache.
    pub l2_bytes: u64,
    /// What datasheet and measurements say of the chip.
    #[serde(default)]
    pub chip: ChipConstants,
    /// What launches cost.
    #[serde(default)]
    pub launch: LaunchConstants,
    /// What compute kernels cost, per family.
    #[serde(default)]
    pub kernels: KernelConstants,
    /// What a thread block's protocol steps cost.
    #[serde(default)]
    pub protocol: ProtocolConstants,
}

/// Concurrent posted writes that collapse on some switches.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Collapse {
    /// Id of the switch (or the chip) whose GPUs are the sources.
    pub at: String,
    /// Distinct sources below it that must write at once.
    pub sources_min: u32,
    /// Distinct root ports that the writes must leave for.
    pub roots_min: u32,
    /// What all such writes together are left with.
    pub write_gbps: Quantity,
}
