//! Machines: the graph of GPUs, switches, root ports and sockets, and what
//! travels along it.
//!
//! A [`Machine`] is data read from a TOML file. It knows its graph, routes and
//! path types ([`route`]); it knows no collective, no model and no cost.

pub mod kernel_constants;
pub mod protocol_constants;

use std::collections::BTreeMap;

use crate::constants;
use crate::knob::Quantity;

pub use kernel_constants::KernelConstants;
pub use protocol_constants::ProtocolConstants;

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
    /// A root port or the quadrant of a processor that owns it.
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
    /// From `a` to `b`, payload bytes at the best packet size.
    pub forward_gbps: Quantity,
    /// From `b` to `a`.
    pub backward_gbps: Quantity,
    /// One packet, one way, ports of both ends included.
    pub latency_ns: Quantity,
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

constants! {
    /// PCIe packets and host memory of a machine.
    pub struct FabricConstants {
        /// Payload of a posted write or completion packet.
        max_payload_bytes: "bytes", 64.0..=4096.0, default 256.0 in 128.0..=512.0, "measurements/field/12: MaxPayload 256 everywhere";
        /// Header, sequence number, CRC and framing of one packet.
        packet_overhead_bytes: "bytes", 12.0..=40.0, default 24.0 in 20.0..=28.0, "Intel AN829: 20 to 28 bytes";
        /// Best rate of one socket's memory for device traffic, per direction.
        host_memory_gbps: "GBps", 1.0..=1000.0, default 114.0 in 73.0..=230.0, "measurements/field/17: 8 GPUs over two roots";
        /// From the root complex to memory and into the reader's packet.
        host_memory_latency_ns: "ns", 0.0..=5000.0, default 150.0 in 50.0..=400.0, "assumed: a DRAM access";
    }
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

constants! {
    /// Ceilings of a chip.
    pub struct ChipConstants {
        /// Device memory, reads.
        memory_gbps: "GBps", 10.0..=20000.0, default 1000.0 in 500.0..=2000.0, "assumed";
        /// L2 cache, reads that hit.
        l2_gbps: "GBps", 10.0..=100000.0, default 4000.0 in 2000.0..=8000.0, "assumed";
        /// Dense bf16 matrix products.
        bf16_tflops: "TFLOPS", 1.0..=20000.0, default 200.0 in 100.0..=400.0, "assumed";
        /// Dense fp8 matrix products.
        fp8_tflops: "TFLOPS", 1.0..=20000.0, default 400.0 in 200.0..=800.0, "assumed";
        /// Dense fp4 matrix products.
        fp4_tflops: "TFLOPS", 1.0..=40000.0, default 800.0 in 400.0..=1600.0, "assumed";
    }
}

constants! {
    /// What launches cost.
    pub struct LaunchConstants {
        /// Host time of one eager launch from one thread.
        eager_ns: "ns", 100.0..=100000.0, default 3730.0 in 2500.0..=6000.0, "measurements/h200/micro.csv eager_launch_us";
        /// From the end of a kernel to the start of the next in a replayed graph.
        graph_gap_ns: "ns", 0.0..=20000.0, default 1000.0 in 500.0..=2000.0, "assumed";
        /// Host time of one framework operation outside a graph (Python and dispatch).
        framework_ns: "ns", 0.0..=1e6, default 20000.0 in 10000.0..=40000.0, "measurements/rtx-pro-6000/allreduce.csv framework_loop";
    }
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
