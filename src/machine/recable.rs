//! The same GPUs on other cabling, so that cabling is one knob.
//!
//! The numbers of the new links are those of an embedded machine that is
//! cabled so; nothing is invented here.

use std::fmt;
use std::str::FromStr;

use crate::error::Fault;
use crate::error::Result;
use crate::knob::Quantity;
use crate::machine::*;

/// Ways to cable GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cabling {
    /// Each GPU on lanes of its processor; two processors above four GPUs.
    Direct,
    /// All GPUs below one switch.
    OneSwitch,
    /// Two switches of one processor, half of the GPUs each.
    TwoSwitches,
    /// A root switch of two partitions above leaves of two GPUs.
    ThreeSwitchTree,
}

impl Cabling {
    /// All of them, in the order of lists.
    pub const ALL: [Cabling; 4] = [Cabling::Direct, Cabling::OneSwitch, Cabling::TwoSwitches, Cabling::ThreeSwitchTree];

    /// The embedded machine that is cabled so.
    fn donor(self) -> &'static str {
        match self {
            Cabling::Direct => "7x-rtx-pro-6000-turin-direct",
            Cabling::OneSwitch | Cabling::TwoSwitches => "8x-rtx-pro-6000-switchtec2",
            Cabling::ThreeSwitchTree => "8x-rtx-pro-6000-switchtec3",
        }
    }

    /// GPUs for which there are lanes: 144 of the largest switch, 160 of two processors.
    fn most_gpus(self) -> usize {
        match self {
            Cabling::Direct => 10,
            Cabling::OneSwitch | Cabling::ThreeSwitchTree => 8,
            Cabling::TwoSwitches => 16,
        }
    }
}

impl fmt::Display for Cabling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Cabling::Direct => "direct",
            Cabling::OneSwitch => "one-switch",
            Cabling::TwoSwitches => "two-switches",
            Cabling::ThreeSwitchTree => "three-switch-tree",
        })
    }
}

impl FromStr for Cabling {
    type Err = Box<Fault>;

    fn from_str(text: &str) -> Result<Cabling> {
        Cabling::ALL.into_iter().find(|cabling| cabling.to_string() == text).ok_or_else(|| {
            let known: Vec<String> = Cabling::ALL.iter().map(Cabling::to_string).collect();
            Fault::new("cabling-unknown", format!("no cabling is called `{text}`")).help(format!("known: {}", known.join(", ")))
        })
    }
}

/// Nodes and links under construction; links are named by class.
#[derive(Default)]
struct Draft {
    nodes: Vec<Node>,
    links: Vec<(NodeId, NodeId, &'static str)>,
}

impl Draft {
    fn node(&mut self, id: String, kind: NodeKind) -> NodeId {
        self.nodes.push(Node { id, kind });
        NodeId(self.nodes.len() - 1)
    }

    fn join(&mut self, a: NodeId, b: NodeId, class: &'static str) {
        self.links.push((a, b, class));
    }
}

impl Machine {
    /// The same GPUs, software and packets on other cabling. Faults of the old
    /// cabling (collapses) are left behind; peer access stays.
    ///
    /// # Errors
    /// `machine-recable` where GPUs share a device or use NVLink, or where
    /// there are no lanes for so many.
    pub fn recable(&self, cabling: Cabling) -> Result<Machine> {
        let refuse = |why: String| Err(Fault::new("machine-recable", format!("{} cannot be cabled as {cabling}: {why}", self.id)));
        if self.ranks_per_gpu > 1 {
            return refuse("its ranks share one GPU".to_owned());
        }
        if self.links.iter().any(|link| link.medium == Medium::Nvlink) {
            return refuse("its GPUs talk over NVLink".to_owned());
        }
        if self.gpus.len() > cabling.most_gpus() {
            return refuse(format!("there are lanes for {} GPUs, not {}", cabling.most_gpus(), self.gpus.len()));
        }
        let donor = Machine::load(cabling.donor())?;
        let draft = self.draft(cabling, &donor);
        let generation = self.gpu_generation();
        let link = |&(a, b, class): &(NodeId, NodeId, &str)| {
            let like = donor.links.iter().find(|link| link.class == class)?;
            Some(slower(Link { a, b, ..like.clone() }, generation))
        };
        let is_gpu = |node: &Node| matches!(node.kind, NodeKind::Gpu { .. });
        let id = format!("{}-as-{cabling}", self.id);
        Ok(Machine {
            id: if id.len() <= 64 { id } else { format!("as-{cabling}") },
            name: format!("{}, cabled as {cabling}", self.name),
            notes: vec![format!("What-if: the GPUs of {} on the links of {}.", self.id, donor.id)],
            links: draft.links.iter().filter_map(link).collect(),
            gpus: draft.nodes.iter().enumerate().filter(|(_, node)| is_gpu(node)).map(|(index, _)| NodeId(index)).collect(),
            nodes: draft.nodes,
            collapses: Vec::new(),
            ..self.clone()
        })
    }

    fn draft(&self, cabling: Cabling, donor: &Machine) -> Draft {
        let count = self.gpus.len();
        let mut draft = Draft::default();
        let processors = if cabling == Cabling::Direct && count > 4 { 2 } else { 1 };
        // The processors stay what they are; only a machine without any takes the donor's.
        let own = self.sockets().next().map(|socket| self.nodes[socket.0].kind.clone());
        let template = own.or_else(|| donor.sockets().next().map(|socket| donor.nodes[socket.0].kind.clone()));
        let sockets: Vec<NodeId> = (0..processors)
            .map(|index| {
                let kind = match template {
                    Some(NodeKind::Socket { vendor, family, model, .. }) => NodeKind::Socket { numa: index, vendor, family, model },
                    _ => NodeKind::Socket { numa: index, vendor: CpuVendor::Unknown, family: 0, model: 0 },
                };
                draft.node(format!("cpu{index}"), kind)
            })
            .collect();
        // Nodes in the order of files: sockets, roots, switches, GPUs.
        let (upper, leaf_class): (Vec<NodeId>, _) = match cabling {
            Cabling::Direct => (draft.roots(count, &sockets, count.div_ceil(sockets.len())), "gpu-root"),
            Cabling::OneSwitch | Cabling::TwoSwitches => {
                let switches = if cabling == Cabling::OneSwitch || count < 2 { 1 } else { 2 };
                let roots = draft.roots(switches, &sockets, switches);
                (draft.below("switch", &roots, 1, "switch-root"), "gpu-switch")
            }
            Cabling::ThreeSwitchTree => (draft.tree(count, &sockets), "gpu-switch"),
        };
        let share = count.div_ceil(upper.len());
        for (device, node) in self.gpus.iter().enumerate() {
            let gpu = draft.node(self.nodes[node.0].id.clone(), self.nodes[node.0].kind.clone());
            draft.join(gpu, upper[device / share], leaf_class);
        }
        if let [first, second] = *sockets {
            draft.join(first, second, "socket-fabric");
        }
        draft
    }

    /// Of the GPUs' PCIe links, the slowest.
    fn gpu_generation(&self) -> u32 {
        let of_gpu = |link: &&Link| link.medium == Medium::Pcie && self.gpus.iter().any(|gpu| *gpu == link.a || *gpu == link.b);
        self.links.iter().filter(of_gpu).map(|link| link.generation).filter(|generation| *generation > 0).min().unwrap_or(5)
    }
}

impl Draft {
    /// Root ports, `share` a socket.
    fn roots(&mut self, count: usize, sockets: &[NodeId], share: usize) -> Vec<NodeId> {
        let roots: Vec<NodeId> = (0..count).map(|index| self.node(format!("root{index}"), NodeKind::RootPort)).collect();
        for (index, root) in roots.iter().enumerate() {
            self.join(*root, sockets[index / share.max(1)], "root-socket");
        }
        roots
    }

    /// `each` switches below each of `above`.
    fn below(&mut self, name: &str, above: &[NodeId], each: usize, class: &'static str) -> Vec<NodeId> {
        let count = above.len() * each;
        let switches: Vec<NodeId> = (0..count).map(|index| self.node(format!("{name}{index}"), NodeKind::Switch { chip: None })).collect();
        for (index, switch) in switches.iter().enumerate() {
            self.join(*switch, above[index / each], class);
        }
        switches
    }

    /// Two partitions of a root switch, two leaf switches of two partitions.
    fn tree(&mut self, count: usize, sockets: &[NodeId]) -> Vec<NodeId> {
        let halves = if count > 4 { 2 } else { 1 };
        let roots = self.roots(halves, sockets, halves);
        let spines = self.below("spine", &roots, 1, "spine-root");
        let leaves = self.below("leaf", &spines, 2, "leaf-spine");
        self.join_partitions("spine", &spines, "spine-internal");
        for (chip, pair) in leaves.chunks(2).enumerate() {
            self.join_partitions(&format!("leaf-chip{chip}"), pair, "leaf-internal");
        }
        leaves
    }

    /// Virtual switches of one chip.
    fn join_partitions(&mut self, chip: &str, partitions: &[NodeId], class: &'static str) {
        for node in partitions {
            self.nodes[node.0].kind = NodeKind::Switch { chip: Some(chip.to_owned()) };
        }
        if let [first, second] = *partitions {
            self.join(first, second, class);
        }
    }
}

/// Each PCIe generation below that of the donor halves the rate.
fn slower(mut link: Link, generation: u32) -> Link {
    if link.medium != Medium::Pcie || link.generation <= generation {
        return link;
    }
    let factor = libm::pow(0.5, f64::from(link.generation - generation));
    for rate in [&mut link.forward_gbps, &mut link.backward_gbps] {
        let source = format!("assumed: generation {generation} instead of {}; {}", link.generation, rate.source);
        *rate = Quantity::between(rate.low * factor, rate.value * factor, rate.high * factor, &source);
    }
    link.generation = generation;
    link
}
