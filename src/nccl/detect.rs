//! Reading off a machine what NCCL would detect: vertices, PCIe speeds, NVLinks and sockets, in its
//! bandwidth classes ([S] topo.cc, topo.h).

use std::collections::BTreeMap;

use crate::error::Fault;
use crate::error::Result;
use crate::machine::CpuVendor;
use crate::machine::Machine;
use crate::machine::Medium;
use crate::machine::NodeKind;

use super::environment::Environment;
use super::tables;
use super::topology::Edge;
use super::topology::LinkClass;
use super::topology::Vertex;
use super::version::Version;

pub(super) fn check_devices(machine: &Machine, devices: &[u32], version: Version, environment: &Environment) -> Result<bool> {
    if devices.is_empty() {
        return Err(Fault::new("nccl-devices", "a communicator needs at least one GPU"));
    }
    if let Some(device) = devices.iter().find(|device| **device as usize >= machine.gpus.len()) {
        return Err(Fault::new("nccl-devices", format!("{} has no GPU {device}: it has {}", machine.id, machine.gpus.len())));
    }
    let mut sorted = devices.to_vec();
    sorted.sort_unstable();
    let shared = sorted.windows(2).any(|pair| pair[0] == pair[1]);
    if shared && !version.since(30) {
        return Err(Fault::new("nccl-devices", format!("NCCL {version} stops with \"Duplicate GPU detected\" when ranks share a GPU"))
            .help("several ranks on one GPU need NCCL 2.30 and NCCL_MULTI_RANK_GPU_ENABLE=1"));
    }
    if shared && !environment.multi_rank_gpu {
        return Err(Fault::new("nccl-devices", "Multiple Ranks are using the same GPU/Partition")
            .help("set NCCL_MULTI_RANK_GPU_ENABLE=1, and cap NCCL_MAX_NCHANNELS so that all ranks' blocks fit the GPU"));
    }
    Ok(shared)
}

/// The graph while it is read off a machine.
pub(super) struct Builder<'a> {
    machine: &'a Machine,
    version: Version,
    /// As [`super::topology::Topology::vertices`].
    pub(super) vertices: Vec<Vertex>,
    /// As [`super::topology::Topology::edges`].
    pub(super) edges: Vec<Edge>,
    /// Machine node to vertex; root ports share their socket's.
    pub(super) place: BTreeMap<usize, usize>,
}

impl Builder<'_> {
    /// An empty graph of a machine.
    pub(super) fn new(machine: &Machine, version: Version) -> Builder<'_> {
        Builder { machine, version, vertices: Vec::new(), edges: Vec::new(), place: BTreeMap::new() }
    }

    pub(super) fn add_vertices(&mut self, devices: &[u32]) {
        for (node, content) in self.machine.nodes.iter().enumerate() {
            let vertex = match content.kind {
                NodeKind::Gpu { .. } => {
                    if !devices.iter().any(|device| self.machine.gpus[*device as usize].0 == node) {
                        continue;
                    }
                    Vertex::Gpu
                }
                NodeKind::Switch { .. } => Vertex::Switch,
                NodeKind::Socket { .. } => Vertex::Cpu,
                NodeKind::RootPort => continue,
            };
            self.vertices.push(vertex);
            self.place.insert(node, self.vertices.len() - 1);
        }
        for (node, content) in self.machine.nodes.iter().enumerate() {
            if content.kind != NodeKind::RootPort {
                continue;
            }
            let vertex = match self.socket_of(node) {
                Some(socket) => socket,
                None => {
                    self.vertices.push(Vertex::Cpu);
                    self.vertices.len() - 1
                }
            };
            self.place.insert(node, vertex);
        }
    }

    /// The nearest socket of a root port, over links that are not PCIe.
    fn socket_of(&self, root: usize) -> Option<usize> {
        let mut seen = vec![root];
        let mut next = 0;
        while let Some(at) = seen.get(next).copied() {
            next += 1;
            if matches!(self.machine.nodes[at].kind, NodeKind::Socket { .. }) {
                return self.place.get(&at).copied();
            }
            for link in &self.machine.links {
                let other = if link.a.0 == at { link.b.0 } else { link.a.0 };
                let touches = link.a.0 == at || link.b.0 == at;
                let inside = matches!(self.machine.nodes[other].kind, NodeKind::Socket { .. } | NodeKind::RootPort);
                if touches && inside && !seen.contains(&other) {
                    seen.push(other);
                }
            }
        }
        None
    }

    pub(super) fn join(&mut self, a: usize, b: usize, gbps: f64, class: LinkClass) {
        self.edges.push(Edge { from: a, to: b, gbps, class });
        self.edges.push(Edge { from: b, to: a, gbps, class });
    }

    pub(super) fn add_links(&mut self) {
        let machine = self.machine;
        let widest = machine.links.iter().map(|link| pci_gbps(link.generation, link.width)).fold(0.0, f64::max);
        for link in &machine.links {
            let (Some(a), Some(b)) = (self.place.get(&link.a.0).copied(), self.place.get(&link.b.0).copied()) else { continue };
            let outside = |v: usize| self.vertices[v] != Vertex::Cpu;
            if a == b || (!outside(a) && !outside(b)) {
                continue;
            }
            if link.medium == Medium::Nvlink {
                let gbps = self.nvlink_gbps(link.width, link.forward_gbps.value);
                self.join(a, b, gbps, LinkClass::Nvlink);
                continue;
            }
            let stated = pci_gbps(link.generation, link.width);
            let gbps = if stated > 0.0 { stated } else { widest.max(pci_gbps(3, 16)) };
            self.join(a, b, gbps, LinkClass::Pci);
        }
        let cpus: Vec<usize> = (0..self.vertices.len()).filter(|v| self.vertices[*v] == Vertex::Cpu).collect();
        let gbps = self.socket_gbps();
        for (at, a) in cpus.iter().enumerate() {
            for b in &cpus[at + 1..] {
                self.join(*a, *b, gbps, LinkClass::Sys);
            }
        }
    }

    /// NVLinks are counted by the link's width; without one, by its rate over a link's own 25 or 50 GB/s.
    fn nvlink_gbps(&self, width: u32, forward_gbps: f64) -> f64 {
        let highest = self.machine.kinds.values().map(|kind| kind.compute_capability.0 * 10 + kind.compute_capability.1).max().unwrap_or(0);
        let (name, raw) = match highest {
            100.. => ("SM100_NVLINK_BW", 50.0),
            90.. => ("SM90_NVLINK_BW", 25.0),
            86 => ("SM86_NVLINK_BW", 14.0),
            80.. => ("SM80_NVLINK_BW", 25.0),
            _ => ("SM70_NVLINK_BW", 25.0),
        };
        let count = if width > 0 { f64::from(width) } else { libm::round(forward_gbps / raw).max(1.0) };
        count * tables::class_gbps(name, self.version).unwrap_or(20.0)
    }

    fn socket(&self) -> Option<(CpuVendor, u32, u32)> {
        self.machine.nodes.iter().find_map(|node| match node.kind {
            NodeKind::Socket { vendor, family, model, .. } => Some((vendor, family, model)),
            _ => None,
        })
    }

    pub(super) fn vendor(&self) -> CpuVendor {
        self.socket().map_or(CpuVendor::Unknown, |socket| socket.0)
    }

    /// `ncclTopoGetInterCpuBw`. AMD counted as 5,000 GB/s before 2.19 and by Zen generation since 2.31
    /// (family 0x17 Zen 1 and 2, 0x19 Zen 3 and 4, 0x1A Zen 5). [S] classes, [D] families.
    fn socket_gbps(&self) -> f64 {
        let (vendor, family, model) = self.socket().unwrap_or((CpuVendor::Unknown, 0, 0));
        let loc = tables::class_gbps("LOC_BW", self.version);
        let class = |name: &str| tables::class_gbps(name, self.version);
        let gbps = match vendor {
            CpuVendor::Power => class("P9_BW"),
            CpuVendor::Arm => class("ARM_BW"),
            CpuVendor::Intel if model >= 0xCF => class("ERP_QPI_BW").or_else(|| class("SKL_QPI_BW")),
            CpuVendor::Intel if model >= 0x8F => class("SRP_QPI_BW").or_else(|| class("SKL_QPI_BW")),
            CpuVendor::Intel if model >= 0x55 => class("SKL_QPI_BW"),
            CpuVendor::Intel => class("BDW_QPI_BW"),
            CpuVendor::Amd if self.version.since(31) => match family {
                0x1A.. => class("AMD_ZEN5_BW"),
                0x19 => class("AMD_ZEN34_BW"),
                _ => class("AMD_ZEN12_BW"),
            },
            CpuVendor::Amd => class("AMD_BW"),
            CpuVendor::Unknown => None,
        };
        gbps.or(loc).unwrap_or(5000.0)
    }
}

/// [S] topo.cc:545-557: 100 Mb/s a lane of 15, 30, 60, 120, 240, 480 by generation, times width, over 80.
fn pci_gbps(generation: u32, width: u32) -> f64 {
    let speed = match generation {
        1 => 15.0,
        2 => 30.0,
        3 => 60.0,
        4 => 120.0,
        5 => 240.0,
        6 => 480.0,
        _ => return 0.0,
    };
    f64::from(if width == 0 { 16 } else { width }) * speed / 80.0
}
