//! Ways through a machine: routes, path types as NCCL and `nvidia-smi` name
//! them, latencies and rates along them.
//!
//! A route is where packets physically go; a path type is what the operating
//! system shows. They differ where a switch chip forwards between its virtual
//! switches: such pairs are `NODE` to `nvidia-smi` though no packet reaches the
//! processor.

use std::collections::VecDeque;
use std::fmt;

use crate::machine::*;
use crate::units::Rate;
use crate::units::Time;

/// Where a transfer starts or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// Memory of a GPU, by device index (into [`Machine::gpus`]).
    Gpu(usize),
    /// Host memory of a socket, by its position among the sockets.
    Host(usize),
}

/// Along a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From [`Link::a`] to [`Link::b`].
    Forward,
    /// From [`Link::b`] to [`Link::a`].
    Backward,
}

/// How bytes are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// The sender stores: posted writes.
    Write,
    /// The receiver loads: completions.
    Read,
}

/// How far apart two ends are, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathType {
    /// The same end.
    Loc,
    /// NVLink.
    Nvl,
    /// Through one PCIe switch.
    Pix,
    /// Through several PCIe switches.
    Pxb,
    /// Through one host bridge of a processor.
    Phb,
    /// Through two host bridges of one processor; NCCL says PHB.
    Node,
    /// Through the fabric between sockets.
    Sys,
}

impl PathType {
    /// As NCCL tells them apart: it has no `NODE`.
    #[must_use]
    pub fn nccl(self) -> PathType {
        if self == PathType::Node { PathType::Phb } else { self }
    }
}

impl fmt::Display for PathType {
    /// As `nvidia-smi topo -m` prints it (without the number of NVLinks).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            PathType::Loc => "X",
            PathType::Nvl => "NV",
            PathType::Pix => "PIX",
            PathType::Pxb => "PXB",
            PathType::Phb => "PHB",
            PathType::Node => "NODE",
            PathType::Sys => "SYS",
        })
    }
}

/// The way from one end to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Links in the order of travel; empty within one end.
    pub hops: Vec<(LinkId, Direction)>,
    /// One packet, one way: the sum of the links' latencies.
    pub latency: Time,
    /// As NCCL names it: never [`PathType::Node`].
    pub path: PathType,
    /// As `nvidia-smi topo -m` names it.
    pub label: PathType,
}

impl Machine {
    /// The node of an end, if there is such an end.
    pub fn endpoint(&self, end: Endpoint) -> Option<NodeId> {
        match end {
            Endpoint::Gpu(device) => self.gpus.get(device).copied(),
            Endpoint::Host(socket) => self.sockets().nth(socket),
        }
    }

    /// Sockets in the order of the file.
    pub fn sockets(&self) -> impl Iterator<Item = NodeId> + '_ {
        let is_socket = |(_, node): &(usize, &Node)| matches!(node.kind, NodeKind::Socket { .. });
        self.nodes.iter().enumerate().filter(is_socket).map(|(index, _)| NodeId(index))
    }

    /// The socket (position among the sockets) that a GPU hangs from.
    pub fn socket_of(&self, device: usize) -> Option<usize> {
        let top = *self.ancestors(*self.gpus.get(device)?).last()?;
        self.sockets().position(|socket| socket == top)
    }

    /// The way with the fewest links, over NVLink where there is one; ties go
    /// to the node that is first in the file. None if there is no way or no
    /// such end.
    pub fn route(&self, from: Endpoint, to: Endpoint) -> Option<Route> {
        let (source, target) = (self.endpoint(from)?, self.endpoint(to)?);
        let nvlink = self.shortest(source, target, |medium| medium == Medium::Nvlink);
        let over_nvlink = nvlink.is_some() && source != target;
        let pcie = |from, to| self.shortest(from, to, |medium| medium != Medium::Nvlink);
        let over_root = self.redirecting_root(from, to).filter(|_| nvlink.is_none());
        let hops = match over_root {
            Some(root) => [pcie(source, root)?, pcie(root, target)?].concat(),
            None => nvlink.or_else(|| pcie(source, target))?,
        };
        let latency = hops.iter().map(|(link, _)| Time::from_ns(self.links[link.0].latency_ns.value)).sum();
        let label = if over_nvlink { PathType::Nvl } else { way_label(self, &self.ancestors(source), &self.ancestors(target)) };
        Some(Route { hops, latency, path: label.nccl(), label })
    }

    /// The root port over which packets of two GPUs below it are sent, where switches may not forward them.
    fn redirecting_root(&self, from: Endpoint, to: Endpoint) -> Option<NodeId> {
        let (Endpoint::Gpu(a), Endpoint::Gpu(b)) = (from, to) else { return None };
        let root = self.root_of(a)?;
        (self.redirects_peers && a != b && self.root_of(b) == Some(root)).then_some(root)
    }

    /// What `nvidia-smi topo -m` shows between two GPUs, e.g. `PIX` or `NV4`.
    pub fn smi_label(&self, from: usize, to: usize) -> Option<String> {
        let route = self.route(Endpoint::Gpu(from), Endpoint::Gpu(to))?;
        match (route.label, route.hops.first()) {
            (PathType::Nvl, Some((link, _))) => Some(format!("NV{}", self.links[link.0].width)),
            (label, _) => Some(label.to_string()),
        }
    }

    /// From a thread's load to the data: there and back, the reader's issue and
    /// the target's memory included.
    pub fn read_latency(&self, reader: usize, target: Endpoint) -> Option<Time> {
        self.read_over(reader, target, self.route(Endpoint::Gpu(reader), target)?.latency)
    }

    /// A load's round trip over a way whose latency is known.
    pub(crate) fn read_over(&self, reader: usize, target: Endpoint, way: Time) -> Option<Time> {
        let served = match target {
            Endpoint::Gpu(device) => self.gpu_kind(device)?.chip.serve_ns.value,
            Endpoint::Host(_) => self.fabric.host_memory_latency_ns.value,
        };
        let issued = self.gpu_kind(reader)?.chip.issue_ns.value;
        Some(Time::from_ns(issued) + way.times(2) + Time::from_ns(served))
    }

    /// From a thread's store to its arrival at the target's memory.
    pub fn write_latency(&self, writer: usize, target: Endpoint) -> Option<Time> {
        self.write_over(writer, self.route(Endpoint::Gpu(writer), target)?.latency)
    }

    /// A store's way over one whose latency is known.
    pub(crate) fn write_over(&self, writer: usize, way: Time) -> Option<Time> {
        Some(Time::from_ns(self.gpu_kind(writer)?.chip.issue_ns.value) + way)
    }

    /// Whether the driver keeps peers' data in system memory for the loads of custom kernels.
    pub fn stages_loads(&self) -> bool {
        self.peer_access == PeerAccess::DriverStaged
    }

    /// The kind of a device.
    pub fn gpu_kind(&self, device: usize) -> Option<&GpuKind> {
        match &self.nodes[self.gpus.get(device)?.0].kind {
            NodeKind::Gpu { kind } => self.kinds.get(kind),
            _ => None,
        }
    }

    /// What a link carries in the direction in which the data flow: payload of packets of full size.
    pub fn link_rate(&self, link: LinkId, direction: Direction, access: Access) -> Rate {
        let link = &self.links[link.0];
        let gbps = match direction {
            Direction::Forward => link.forward_gbps.value,
            Direction::Backward => link.backward_gbps.value,
        };
        match access {
            Access::Write => Rate::from_gbps(gbps),
            Access::Read => Rate::from_gbps(gbps * link.read_factor.value),
        }
    }

    /// What packets of `payload` bytes leave of a link's rate, 1 at the largest payload.
    pub fn packet_efficiency(&self, payload: f64) -> f64 {
        let (largest, overhead) = (self.fabric.max_payload_bytes.value, self.fabric.packet_overhead_bytes.value);
        let payload = payload.clamp(1.0, largest);
        (payload / (payload + overhead)) / (largest / (largest + overhead))
    }

    /// Whether a link belongs to the trees of PCIe below sockets.
    pub(crate) fn in_pcie_tree(&self, link: &Link) -> bool {
        let is_root = |id: NodeId| matches!(self.nodes[id.0].kind, NodeKind::RootPort);
        link.medium == Medium::Pcie || (link.medium == Medium::Internal && (is_root(link.a) || is_root(link.b)))
    }

    /// A node, what it hangs from, and so on up to its socket.
    pub fn ancestors(&self, node: NodeId) -> Vec<NodeId> {
        self.chain_of(&self.parents(), node)
    }

    /// What each node hangs from.
    pub(crate) fn parents(&self) -> Vec<Option<NodeId>> {
        // Downward from every socket: each node of a tree is met once.
        let mut parent: Vec<Option<NodeId>> = vec![None; self.nodes.len()];
        let mut queue: VecDeque<NodeId> = self.sockets().collect();
        let mut met = vec![false; self.nodes.len()];
        while let Some(at) = queue.pop_front() {
            met[at.0] = true;
            for (_, next, _) in self.neighbours(at, |link| self.in_pcie_tree(link)) {
                if !met[next.0] && parent[next.0].is_none() {
                    parent[next.0] = Some(at);
                    queue.push_back(next);
                }
            }
        }
        parent
    }

    /// The same as [`Machine::ancestors`] where the parents are known.
    pub(crate) fn chain_of(&self, parent: &[Option<NodeId>], node: NodeId) -> Vec<NodeId> {
        let mut chain = vec![node];
        while let Some(up) = parent[chain[chain.len() - 1].0] {
            chain.push(up);
        }
        chain
    }

    /// Links at a node that `keep` wants, by the other end's place in the file.
    fn neighbours(&self, at: NodeId, keep: impl Fn(&Link) -> bool) -> Vec<(LinkId, NodeId, Direction)> {
        let mut found = Vec::new();
        for (index, link) in self.links.iter().enumerate() {
            if link.a == at && keep(link) {
                found.push((LinkId(index), link.b, Direction::Forward));
            } else if link.b == at && keep(link) {
                found.push((LinkId(index), link.a, Direction::Backward));
            }
        }
        found.sort_by_key(|(link, node, _)| (*node, *link));
        found
    }

    /// Breadth first, so that the result does not depend on numbers that fits change.
    fn shortest(&self, from: NodeId, to: NodeId, keep: impl Fn(Medium) -> bool) -> Option<Vec<(LinkId, Direction)>> {
        let mut reached: Reached = vec![None; self.nodes.len()];
        let mut queue = VecDeque::from([from]);
        while let Some(at) = queue.pop_front() {
            if at == to {
                break;
            }
            // Nothing passes through a GPU.
            if at != from && matches!(self.nodes[at.0].kind, NodeKind::Gpu { .. }) {
                continue;
            }
            for (link, next, direction) in self.neighbours(at, |link| keep(link.medium)) {
                if next != from && reached[next.0].is_none() {
                    reached[next.0] = Some((at, link, direction));
                    queue.push_back(next);
                }
            }
        }
        hops(&reached, from, to)
    }
}

/// How each node is first reached from another.
pub(crate) type Reached = Vec<Option<(NodeId, LinkId, Direction)>>;

/// The way back from `to`, turned around.
pub(crate) fn hops(reached: &Reached, from: NodeId, to: NodeId) -> Option<Vec<(LinkId, Direction)>> {
    let mut hops = Vec::new();
    let mut at = to;
    while at != from {
        let (previous, link, direction) = reached[at.0]?;
        hops.push((link, direction));
        at = previous;
    }
    hops.reverse();
    Some(hops)
}

/// By the lowest common ancestor of two ends with what is above them, as the
/// operating system sees the trees.
pub(crate) fn way_label(machine: &Machine, ours: &[NodeId], theirs: &[NodeId]) -> PathType {
    if ours.first() == theirs.first() {
        return PathType::Loc;
    }
    let Some((up, meet)) = ours.iter().enumerate().find(|(_, node)| theirs.contains(node)) else {
        return PathType::Sys;
    };
    let down = theirs.iter().position(|node| node == meet).unwrap_or(0);
    match machine.nodes[meet.0].kind {
        NodeKind::Switch { .. } if up <= 1 && down <= 1 => PathType::Pix,
        NodeKind::Switch { .. } => PathType::Pxb,
        NodeKind::RootPort => PathType::Phb,
        // One end is the host itself: its own bridge is the only one between.
        NodeKind::Socket { .. } if up == 0 || down == 0 => PathType::Phb,
        NodeKind::Socket { .. } => PathType::Node,
        NodeKind::Gpu { .. } => PathType::Loc,
    }
}
