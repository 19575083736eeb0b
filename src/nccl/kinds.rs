//! The names NCCL gives to what it chooses between.

/// What the ranks want done. `bytes` of a message is always the larger of a rank's send and receive
/// buffer, as in nccl-tests' first column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// Every rank gets the sum.
    AllReduce,
    /// Every rank gets all shards.
    AllGather,
    /// Every rank gets its shard of the sum.
    ReduceScatter,
    /// Grouped sends and receives; NCCL has no algorithm for it.
    AllToAll,
}

impl Collective {
    /// As NCCL's logs and the prefixes of `NCCL_ALGO` have it.
    pub fn name(self) -> &'static str {
        match self {
            Collective::AllReduce => "AllReduce",
            Collective::AllGather => "AllGather",
            Collective::ReduceScatter => "ReduceScatter",
            Collective::AllToAll => "SendRecv",
        }
    }
}

/// Ring or chain-shaped tree; what else NCCL has needs NVSwitch, a plugin or several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Reduce up and broadcast down; on one node a chain.
    Tree,
    /// Reduce-scatter and all-gather around a ring.
    Ring,
}

impl Algorithm {
    /// In NCCL's order, which decides ties.
    pub const ALL: [Algorithm; 2] = [Algorithm::Tree, Algorithm::Ring];

    pub(super) fn table_name(self) -> &'static str {
        match self {
            Algorithm::Tree => "TREE",
            Algorithm::Ring => "RING",
        }
    }

    /// As NCCL's logs have it.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Tree => "Tree",
            Algorithm::Ring => "Ring",
        }
    }
}

/// How data and its arrival are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// 4 B data and 4 B flag, twice, in each 16 B line.
    Ll,
    /// 120 B data and an 8 B flag in each 128 B line.
    Ll128,
    /// Raw data and a step counter.
    Simple,
}

impl Protocol {
    /// In NCCL's order, which decides ties.
    pub const ALL: [Protocol; 3] = [Protocol::Ll, Protocol::Ll128, Protocol::Simple];

    pub(super) fn table_name(self) -> &'static str {
        match self {
            Protocol::Ll => "LL",
            Protocol::Ll128 => "LL128",
            Protocol::Simple => "SIMPLE",
        }
    }

    /// As NCCL's logs have it.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Ll => "LL",
            Protocol::Ll128 => "LL128",
            Protocol::Simple => "Simple",
        }
    }

    /// Chunks are whole multiples of this many bytes of data (`ncclProtoGrainSize`).
    pub fn grain_bytes(self) -> u64 {
        match self {
            Protocol::Ll => 16,
            Protocol::Ll128 => 1920,
            Protocol::Simple => 512,
        }
    }
}

/// How far apart two GPUs are, nearest first. The numbers are those of NCCL 2.22 and later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathType {
    /// The same GPU.
    Loc,
    /// NVLink.
    Nvl,
    /// NVLink through another GPU.
    Nvb,
    /// Chip to chip.
    C2c,
    /// One PCIe switch.
    Pix,
    /// Several PCIe switches.
    Pxb,
    /// Chip to chip, then PCIe.
    P2c,
    /// Through another GPU's NIC.
    Pxn,
    /// Through a processor.
    Phb,
    /// Between processors.
    Sys,
    /// Network.
    Net,
    /// None.
    Dis,
}

impl PathType {
    /// In order.
    pub const ALL: [PathType; 12] = [
        PathType::Loc,
        PathType::Nvl,
        PathType::Nvb,
        PathType::C2c,
        PathType::Pix,
        PathType::Pxb,
        PathType::P2c,
        PathType::Pxn,
        PathType::Phb,
        PathType::Sys,
        PathType::Net,
        PathType::Dis,
    ];

    /// As NCCL's logs and graph files have it.
    pub fn name(self) -> &'static str {
        match self {
            PathType::Loc => "LOC",
            PathType::Nvl => "NVL",
            PathType::Nvb => "NVB",
            PathType::C2c => "C2C",
            PathType::Pix => "PIX",
            PathType::Pxb => "PXB",
            PathType::P2c => "P2C",
            PathType::Pxn => "PXN",
            PathType::Phb => "PHB",
            PathType::Sys => "SYS",
            PathType::Net => "NET",
            PathType::Dis => "DIS",
        }
    }

    /// From such a name, upper case.
    pub fn from_name(name: &str) -> Option<PathType> {
        PathType::ALL.into_iter().find(|path| path.name() == name)
    }
}
