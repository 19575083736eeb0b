//! The machine as NCCL sees it: bandwidth classes instead of measured rates, and the path between each
//! two ranks.
//!
//! [S] PCIe is width × speed / 80 GB/s (topo.cc:545-557), sockets are joined by a class of their vendor and
//! model (topo.h), path types follow paths.cc:84-94, pairs without peer access are led through the
//! receiver's processor. [D] Root ports do not show in NCCL's graph; a link between virtual switches has the
//! speed of their other links. Not modelled: NICs, NVLink through a third GPU, C2C.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use crate::error::Fault;
use crate::error::Result;
use crate::machine::CpuVendor;
use crate::machine::Machine;
use crate::machine::Medium;
use crate::machine::NodeKind;
use crate::machine::PeerAccess;

use super::environment::Environment;
use super::kinds::PathType;
use super::tables;
use super::version::Version;

/// What kind of link NCCL takes it for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkClass {
    /// A rank and its GPU.
    Loc,
    /// NVLink.
    Nvlink,
    /// PCIe.
    Pci,
    /// Between processors.
    Sys,
}

/// What a vertex is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vertex {
    /// A rank that shares its GPU.
    Rank,
    /// A GPU, which is a rank where it holds just one.
    Gpu,
    /// A PCIe switch.
    Switch,
    /// A processor.
    Cpu,
}

/// A directed edge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edge {
    /// From.
    pub from: usize,
    /// To.
    pub to: usize,
    /// What NCCL credits it with.
    pub gbps: f64,
    /// What it is.
    pub class: LinkClass,
}

/// The way from one rank to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// Indices of edges.
    pub edges: Vec<usize>,
    /// The narrowest edge.
    pub gbps: f64,
    /// The farthest hop.
    pub kind: PathType,
    /// Whether an Intel processor is on it.
    pub through_intel: bool,
}

/// NCCL's view of a set of ranks on a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// What each vertex is.
    pub vertices: Vec<Vertex>,
    /// All edges, both directions.
    pub edges: Vec<Edge>,
    /// The vertex of each rank.
    pub ranks: Vec<usize>,
    /// The GPU of each rank.
    pub devices: Vec<u32>,
    /// `paths[a][b]` from rank a to rank b as transports take it.
    pub paths: Vec<Vec<Path>>,
    /// The same before peer access is asked for: the distance that `NCCL_P2P_LEVEL` is compared with.
    pub distances: Vec<Vec<PathType>>,
    /// The processor of the first socket.
    pub vendor: CpuVendor,
    /// Lowest and highest compute capability, as 120 for 12.0.
    pub compute_capability: (u32, u32),
    /// Whether GPUs reach each other's memory.
    pub peer_access: PeerAccess,
}

impl Topology {
    /// Reads off a machine what NCCL would detect for ranks on `devices`.
    ///
    /// # Errors
    /// `nccl-devices` when a device is not there, there are none, or two ranks share one where NCCL refuses it.
    pub fn new(machine: &Machine, devices: &[u32], version: Version, environment: &Environment) -> Result<Topology> {
        let shared = check_devices(machine, devices, version, environment)?;
        let mut builder = Builder { machine, version, vertices: Vec::new(), edges: Vec::new(), place: BTreeMap::new() };
        builder.add_vertices(devices);
        builder.add_links();
        let mut ranks = Vec::new();
        let mut capability = (u32::MAX, 0);
        for device in devices {
            let node = machine.gpus[*device as usize];
            let gpu = builder.place.get(&node.0).copied().unwrap_or(0);
            if let NodeKind::Gpu { kind } = &machine.nodes[node.0].kind
                && let Some(kind) = machine.kinds.get(kind)
            {
                let number = kind.compute_capability.0 * 10 + kind.compute_capability.1;
                capability = (capability.0.min(number), capability.1.max(number));
            }
            if shared {
                builder.vertices.push(Vertex::Rank);
                let rank = builder.vertices.len() - 1;
                let gbps = tables::class_gbps("LOC_BW", version).unwrap_or(5000.0);
                builder.join(rank, gpu, gbps, LinkClass::Loc);
                ranks.push(rank);
            } else {
                ranks.push(gpu);
            }
        }
        let vendor = builder.vendor();
        let mut topology = Topology {
            vertices: builder.vertices,
            edges: builder.edges,
            ranks,
            devices: devices.to_vec(),
            paths: Vec::new(),
            distances: Vec::new(),
            vendor,
            compute_capability: capability,
            peer_access: machine.peer_access,
        };
        topology.find_paths(environment);
        Ok(topology)
    }

    fn find_paths(&mut self, environment: &Environment) {
        let trees: Vec<Vec<Option<Path>>> = (0..self.vertices.len()).map(|start| self.paths_from(start)).collect();
        let none = || Path { edges: Vec::new(), gbps: 0.0, kind: PathType::Dis, through_intel: false };
        let direct = |a: usize, b: usize| trees[a][b].clone().unwrap_or_else(none);
        self.distances = self.ranks.iter().map(|a| self.ranks.iter().map(|b| direct(*a, *b).kind).collect()).collect();
        let mut paths = Vec::new();
        for (a, from) in self.ranks.iter().enumerate() {
            let mut row = Vec::new();
            for (b, to) in self.ranks.iter().enumerate() {
                let straight = direct(*from, *to);
                if self.peer(a, b, environment) {
                    row.push(straight);
                } else if environment.shm_disable {
                    row.push(Path { kind: PathType::Net, ..straight });
                } else {
                    let cpu = (0..self.vertices.len())
                        .filter(|v| self.vertices[*v] == Vertex::Cpu)
                        .min_by_key(|v| trees[*to][*v].as_ref().map_or(usize::MAX, |path| path.edges.len()));
                    row.push(match cpu {
                        Some(cpu) => {
                            let (mut up, down) = (direct(*from, cpu), direct(cpu, *to));
                            up.edges.extend(down.edges);
                            Path {
                                gbps: up.gbps.min(down.gbps),
                                kind: up.kind.max(down.kind),
                                through_intel: self.vendor == CpuVendor::Intel,
                                edges: up.edges,
                            }
                        }
                        None => straight,
                    });
                }
            }
            paths.push(row);
        }
        self.paths = paths;
    }

    /// Whether rank `a` reaches the memory of rank `b` (`ncclTopoCheckP2p`).
    pub fn peer(&self, a: usize, b: usize, environment: &Environment) -> bool {
        let distance = self.distances[a][b];
        if distance == PathType::Loc {
            return true;
        }
        self.peer_access != PeerAccess::HostStaged && distance <= self.p2p_level(environment)
    }

    /// The farthest pair for which peer access is used: PXB, except that AMD with at most two GPUs goes to SYS.
    pub fn p2p_level(&self, environment: &Environment) -> PathType {
        let mut gpus = self.devices.clone();
        gpus.sort_unstable();
        gpus.dedup();
        let default = if self.vendor == CpuVendor::Amd && gpus.len() <= 2 { PathType::Sys } else { PathType::Pxb };
        environment.p2p_level.unwrap_or(default)
    }

    /// Shortest paths from one vertex, the widest of those of equal length (`ncclTopoSetPaths`).
    fn paths_from(&self, start: usize) -> Vec<Option<Path>> {
        let intel = self.vendor == CpuVendor::Intel;
        let mut found: Vec<Option<Path>> = vec![None; self.vertices.len()];
        found[start] = Some(Path { edges: Vec::new(), gbps: 1e6, kind: PathType::Loc, through_intel: false });
        let mut queue = VecDeque::from([start]);
        while let Some(at) = queue.pop_front() {
            let Some(path) = found[at].clone() else { continue };
            for (index, edge) in self.edges.iter().enumerate().filter(|(_, edge)| edge.from == at) {
                // Nothing is routed through a GPU, except from and to its own ranks.
                if at != start && self.vertices[at] == Vertex::Gpu && edge.class != LinkClass::Loc && !self.starts_on(&path) {
                    continue;
                }
                let gbps = path.gbps.min(edge.gbps);
                let better = match &found[edge.to] {
                    None => true,
                    Some(old) => old.edges.len() > path.edges.len() && old.gbps < gbps,
                };
                if !better {
                    continue;
                }
                if found[edge.to].is_none() {
                    queue.push_back(edge.to);
                }
                let mut edges = path.edges.clone();
                edges.push(index);
                let through_intel = path.through_intel || (intel && self.vertices[edge.to] == Vertex::Cpu);
                found[edge.to] = Some(Path { edges, gbps, kind: path.kind.max(self.hop(edge)), through_intel });
            }
        }
        found
    }

    fn starts_on(&self, path: &Path) -> bool {
        path.edges.len() == 1 && self.edges[path.edges[0]].class == LinkClass::Loc
    }

    fn hop(&self, edge: &Edge) -> PathType {
        let (from, to) = (self.vertices[edge.from], self.vertices[edge.to]);
        match edge.class {
            LinkClass::Loc => PathType::Loc,
            LinkClass::Nvlink => PathType::Nvl,
            LinkClass::Sys => PathType::Sys,
            LinkClass::Pci if from == Vertex::Cpu || to == Vertex::Cpu => PathType::Phb,
            LinkClass::Pci if from == Vertex::Switch && to == Vertex::Switch => PathType::Pxb,
            LinkClass::Pci => PathType::Pix,
        }
    }
}

fn check_devices(machine: &Machine, devices: &[u32], version: Version, environment: &Environment) -> Result<bool> {
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

struct Builder<'a> {
    machine: &'a Machine,
    version: Version,
    vertices: Vec<Vertex>,
    edges: Vec<Edge>,
    /// Machine node to vertex; root ports share their socket's.
    place: BTreeMap<usize, usize>,
}

impl Builder<'_> {
    fn add_vertices(&mut self, devices: &[u32]) {
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

    fn join(&mut self, a: usize, b: usize, gbps: f64, class: LinkClass) {
        self.edges.push(Edge { from: a, to: b, gbps, class });
        self.edges.push(Edge { from: b, to: a, gbps, class });
    }

    fn add_links(&mut self) {
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

    fn vendor(&self) -> CpuVendor {
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
