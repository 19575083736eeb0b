//! A machine file of what was detected and measured: the tree from sysfs, the
//! rates of flows, the latencies of micro-benchmarks. What could not be seen is
//! assumed and said so in the notes.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::gpu::detect::Detected;
use crate::gpu::observation::Flow;
use crate::gpu::observation::Micro;
use crate::gpu::pci::PciNode;
use crate::knob::Quantity;
use crate::machine::CpuVendor;
use crate::machine::FabricConstants;
use crate::machine::GpuKind;
use crate::machine::KernelConstants;
use crate::machine::LaunchConstants;
use crate::machine::Link;
use crate::machine::Machine;
use crate::machine::Medium;
use crate::machine::Node;
use crate::machine::NodeId;
use crate::machine::NodeKind;
use crate::machine::PeerAccess;
use crate::machine::ProtocolConstants;
use crate::machine::Versions;
use crate::machine::library;

/// What a measurement is called in a machine file.
const SOURCE: &str = "calibrate on this machine";

/// Makes a machine. `micro` and `flows` may be empty: then rates are those of
/// the links' generation and width.
///
/// # Errors
/// Those of reading a machine, were one of its numbers out of bounds.
pub fn machine(found: &Detected, micro: &[Micro], flows: &[Flow], id: &str, ranks_per_gpu: u32) -> Result<Machine> {
    let mut maker = Maker { found, micro, flows, nodes: Vec::new(), links: Vec::new(), places: BTreeMap::new() };
    let kinds = maker.kinds()?;
    maker.sockets_and_roots();
    let gpus = maker.gpus();
    let first = found.gpus.first().map_or("no GPU", |g| g.name.as_str());
    let machine = Machine {
        id: id.to_owned(),
        name: format!("{} x {first}, as detected", found.gpus.len()),
        notes: notes(found, micro.is_empty()),
        versions: Versions {
            driver: Some(found.driver.clone()).filter(|d| !d.is_empty()),
            cuda: Some(found.cuda.clone()),
            nccl: found.nccl.clone(),
            ..Versions::default()
        },
        peer_access: peer_access(found),
        redirects_peers: !found.redirection.acs_redirecting.is_empty(),
        ranks_per_gpu: ranks_per_gpu.max(1),
        kinds,
        nodes: maker.nodes,
        links: maker.links,
        gpus,
        fabric: FabricConstants::default(),
        collapses: Vec::new(),
    };
    // Through the reader: it checks the graph and the bounds.
    Machine::from_toml(&format!("{id}.toml"), &machine.to_toml())
}

struct Maker<'a> {
    found: &'a Detected,
    micro: &'a [Micro],
    flows: &'a [Flow],
    nodes: Vec<Node>,
    links: Vec<Link>,
    /// PCI address or root complex → node.
    places: BTreeMap<String, NodeId>,
}

impl Maker<'_> {
    fn add(&mut self, id: String, kind: NodeKind) -> NodeId {
        self.nodes.push(Node { id, kind });
        NodeId(self.nodes.len() - 1)
    }

    fn number(&self, name: &str) -> Option<&Micro> {
        self.micro.iter().find(|m| m.name == name)
    }

    /// One kind a name: the program's own where it has one, with this
    /// machine's launch and fence costs.
    fn kinds(&self) -> Result<BTreeMap<String, GpuKind>> {
        let known = library::kinds()?;
        let mut kinds = BTreeMap::new();
        for gpu in &self.found.gpus {
            let own = known.values().find(|k| k.name == gpu.name && k.sms == gpu.multiprocessors).cloned();
            let mut kind = own.unwrap_or_else(|| self.unknown_kind(gpu));
            let nanoseconds = |name: &str, scale: f64| {
                let m = self.number(name)?;
                (m.low > 0.0).then(|| Quantity::between(m.low * scale, m.value * scale, m.high * scale, SOURCE))
            };
            for (place, measured) in [
                (&mut kind.launch.eager_ns, nanoseconds("eager_launch_us", 1000.0)),
                (&mut kind.launch.graph_gap_ns, nanoseconds("graph_gap_us", 1000.0)),
                (&mut kind.protocol.fence_ns, nanoseconds("fence_sys_ns", 1.0)),
            ] {
                if let Some(quantity) = measured {
                    *place = quantity;
                }
            }
            if let Some(late) = self.late() {
                kind.protocol.branch_skew_ns = late;
            }
            kinds.insert(slug(&gpu.name), kind);
        }
        Ok(kinds)
    }

    /// How far apart ranks of one graph start on this GPU, first to last, with
    /// the most ranks that were measured: it grows with them.
    fn late(&self) -> Option<Quantity> {
        let named = self.micro.iter().filter_map(|m| Some((m.name.strip_prefix("start_skew_after_allreduce_r")?.strip_suffix("_ns")?, m)));
        let (ranks, row) = named.filter_map(|(n, m)| Some((n.parse::<u32>().ok()?, m))).max_by_key(|(n, _)| *n)?;
        let within = |ns: f64| libm::round(ns).clamp(0.0, 10_000.0);
        let source = format!("{SOURCE}: {ranks} ranks in one graph, after an all-reduce of 43,008 bytes");
        Some(Quantity::between(within(row.low), within(row.value), within(row.high), &source))
    }

    fn unknown_kind(&self, gpu: &crate::gpu::detect::Gpu) -> GpuKind {
        let mut chip = crate::machine::ChipConstants::default();
        // Double data rate: two transfers a clock.
        let gbps = f64::from(gpu.memory_clock_khz) * 2.0 * f64::from(gpu.memory_bus_bits) / 8.0 / 1e6;
        if (10.0..=20_000.0).contains(&gbps) {
            chip.memory_gbps =
                Quantity::between(gbps * 0.85, gbps * 0.92, gbps, "driver: memory clock x bus width, less refresh and turnaround");
        }
        GpuKind {
            name: gpu.name.clone(),
            compute_capability: gpu.compute_capability,
            sms: gpu.multiprocessors,
            memory_bytes: gpu.memory_bytes,
            l2_bytes: gpu.l2_bytes,
            chip,
            launch: LaunchConstants::default(),
            kernels: KernelConstants::default(),
            protocol: ProtocolConstants::default(),
        }
    }

    fn sockets_and_roots(&mut self) {
        let mut roots: BTreeMap<String, u32> = BTreeMap::new();
        for node in &self.found.pci {
            let numa = roots.entry(node.root.clone()).or_insert(0);
            *numa = node.numa.unwrap_or(*numa);
        }
        if roots.is_empty() {
            roots.insert("root".to_owned(), 0);
        }
        let mut sockets: BTreeMap<u32, NodeId> = BTreeMap::new();
        for numa in roots.values() {
            if !sockets.contains_key(numa) {
                let cpu = self.found.cpus.iter().find(|c| c.socket == *numa).or(self.found.cpus.first());
                let vendor = cpu.map_or(CpuVendor::Unknown, |c| match c.vendor.as_str() {
                    "AuthenticAMD" => CpuVendor::Amd,
                    "GenuineIntel" => CpuVendor::Intel,
                    _ => CpuVendor::Unknown,
                });
                let (family, model) = cpu.map_or((0, 0), |c| (c.family, c.model));
                let socket = self.add(format!("cpu{numa}"), NodeKind::Socket { numa: *numa, vendor, family, model });
                sockets.insert(*numa, socket);
            }
        }
        let all: Vec<NodeId> = sockets.values().copied().collect();
        for pair in all.windows(2) {
            self.link(pair[0], pair[1], Medium::SocketFabric, "sockets", (64.0, 64.0), 100.0, (0, 0), "assumed: a fabric between sockets");
        }
        for (index, (root, numa)) in roots.iter().enumerate() {
            let node = self.add(format!("root{index}"), NodeKind::RootPort);
            self.places.insert(root.clone(), node);
            self.link(
                node,
                sockets[numa],
                Medium::Internal,
                "root-socket",
                (64.0, 64.0),
                0.0,
                (0, 0),
                "assumed: no limit beyond the root's links",
            );
        }
    }

    /// The node that stands for a PCI function. A bridge below the root complex
    /// is a root port and belongs to its root; the next is a switch's upstream
    /// port, the next a downstream port of the same switch, and so on.
    fn place(&mut self, address: &str, depth_of: &BTreeMap<String, usize>) -> Option<NodeId> {
        if let Some(node) = self.places.get(address) {
            return Some(*node);
        }
        let pci = self.found.pci.iter().find(|n| n.address == address)?.clone();
        let depth = depth_of.get(address).copied().unwrap_or(0);
        let above = match &pci.parent {
            Some(parent) => self.place(parent, depth_of)?,
            None => *self.places.get(&pci.root)?,
        };
        let node = if depth % 2 == 1 {
            let node = self.add(format!("switch-{}", slug(address)), NodeKind::Switch { chip: None });
            let rate = nominal(&pci);
            self.link(
                node,
                above,
                Medium::Pcie,
                "switch-up",
                (rate, rate),
                LATENCY_NS,
                shape(&pci),
                "link's generation and width, 256 B packets",
            );
            node
        } else {
            above
        };
        self.places.insert(address.to_owned(), node);
        Some(node)
    }

    fn gpus(&mut self) -> Vec<NodeId> {
        let mut depth_of: BTreeMap<String, usize> = BTreeMap::new();
        for node in &self.found.pci {
            let above = node.parent.as_ref().and_then(|p| depth_of.get(p)).map_or(0, |d| d + 1);
            depth_of.insert(node.address.clone(), above);
        }
        let mut gpus = Vec::new();
        for gpu in &self.found.gpus {
            let pci = self.found.pci.iter().find(|n| n.address == gpu.pci_address).cloned();
            let parent = pci.as_ref().and_then(|p| p.parent.clone());
            let above = match parent {
                Some(parent) => self.place(&parent, &depth_of),
                None => pci.as_ref().and_then(|p| self.places.get(&p.root).copied()).or_else(|| self.places.values().next().copied()),
            };
            let node = self.add(format!("gpu{}", gpu.ordinal), NodeKind::Gpu { kind: slug(&gpu.name) });
            gpus.push(node);
            let Some(above) = above else { continue };
            let up = self.flow(&format!("{}>h", gpu.ordinal));
            let down = self.flow(&format!("h>{}", gpu.ordinal));
            let rate = pci.as_ref().map_or(DEFAULT_GBPS, nominal);
            let source = if up.is_some() { SOURCE } else { "link's generation and width, 256 B packets" };
            let direct = matches!(self.nodes[above.0].kind, NodeKind::RootPort);
            let read = self.number("host_read_latency_ns").filter(|_| direct).map(|m| m.value);
            // A read crosses the link twice; 120 ns to issue it and 150 in host memory are counted elsewhere.
            let latency = read.map_or(LATENCY_NS, |ns| ((ns - 270.0) / 2.0).max(50.0));
            let class = if direct { "gpu-root" } else { "gpu-switch" };
            let shape = pci.as_ref().map_or((0, 0), shape);
            self.link(node, above, Medium::Pcie, class, (up.unwrap_or(rate), down.unwrap_or(rate)), latency, shape, source);
        }
        gpus
    }

    /// What copy engines reached on a flow.
    fn flow(&self, flows: &str) -> Option<f64> {
        self.flows.iter().find(|f| f.access == "copy" && f.flows == flows).map(|f| f.total_gbps)
    }

    #[allow(clippy::too_many_arguments)]
    fn link(
        &mut self,
        a: NodeId,
        b: NodeId,
        medium: Medium,
        class: &str,
        gbps: (f64, f64),
        latency_ns: f64,
        shape: (u32, u32),
        source: &str,
    ) {
        let quantity = |value: f64| Quantity::between(value * 0.95, value, value * 1.05, source);
        self.links.push(Link {
            a,
            b,
            medium,
            // Links of one class share their numbers: one class a GPU where they were measured.
            class: if source == SOURCE { format!("{class}-{}", self.nodes[a.0].id) } else { class.to_owned() },
            forward_gbps: quantity(gbps.0),
            backward_gbps: quantity(gbps.1),
            latency_ns: quantity(latency_ns),
            read_factor: Quantity::between(0.9, 1.0, 1.05, "assumed: reads as fast as writes"),
            generation: shape.0,
            width: shape.1,
        });
    }
}

/// One PCIe hop where nothing was measured.
const LATENCY_NS: f64 = 110.0;
/// A Gen4 x16 link, where not even its width is known.
const DEFAULT_GBPS: f64 = 28.0;

/// Generation and width at most.
fn shape(pci: &PciNode) -> (u32, u32) {
    let generation = match pci.speed_max_gts.unwrap_or(0.0) as u32 {
        0 => 0,
        1..=2 => 1,
        3..=5 => 2,
        6..=8 => 3,
        9..=16 => 4,
        17..=32 => 5,
        _ => 6,
    };
    (generation, pci.width_max.unwrap_or(0))
}

/// Payload of 256-byte packets with 24 bytes of overhead on 128b/130b lanes.
fn nominal(pci: &PciNode) -> f64 {
    match (pci.speed_max_gts, pci.width_max) {
        (Some(speed), Some(width)) => speed * f64::from(width) / 8.0 * (128.0 / 130.0) * (256.0 / 280.0),
        _ => DEFAULT_GBPS,
    }
}

/// Direct where every pair was proved both ways; a lone GPU reaches itself.
fn peer_access(found: &Detected) -> PeerAccess {
    if found.peers.iter().all(|p| p.claimed && p.write_proved && p.read_proved) { PeerAccess::Direct } else { PeerAccess::HostStaged }
}

fn notes(found: &Detected, unmeasured: bool) -> Vec<String> {
    let mut notes = vec!["Made by detect; rates and latencies without the source \"calibrate\" are assumed.".to_owned()];
    notes.extend(found.notes.iter().cloned());
    if unmeasured {
        notes.push("Nothing was measured: run calibrate.".to_owned());
    }
    for peer in found.peers.iter().filter(|p| p.claimed && !(p.write_proved && p.read_proved)) {
        notes.push(format!("The driver claims access from GPU {} to GPU {}, but data came back wrong.", peer.from, peer.to));
    }
    if !found.redirection.acs_redirecting.is_empty() {
        notes.push(format!("Access Control Services redirect peer traffic at {}.", found.redirection.acs_redirecting.join(", ")));
    }
    notes
}

/// Letters, digits and dashes of a name: `NVIDIA H200` → `h200`.
fn slug(name: &str) -> String {
    let lower = name.to_lowercase().replace("nvidia ", "");
    let mapped: String = lower.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    mapped.split('-').filter(|p| !p.is_empty()).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests;
