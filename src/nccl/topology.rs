//! The machine as NCCL sees it: bandwidth classes instead of measured rates, and the path between each
//! two ranks.
//!
//! [S] PCIe is width × speed / 80 GB/s (topo.cc:545-557), sockets are joined by a class of their vendor and
//! model (topo.h), path types follow paths.cc:84-94, pairs without peer access are led through the
//! receiver's processor. [D] Root ports do not show in NCCL's graph; a link between virtual switches has the
//! speed of their other links. Not modelled: NICs, NVLink through a third GPU, C2C.

use std::collections::VecDeque;

use crate::error::Result;
use crate::machine::CpuVendor;
use crate::machine::Machine;
use crate::machine::NodeKind;
use crate::machine::PeerAccess;

use super::detect::Builder;
use super::detect::check_devices;
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
        let mut builder = Builder::new(machine, version);
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
