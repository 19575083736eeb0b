//! From facts to a tree: which GPU hangs from which switch, host bridge and
//! socket. From the PCI tree where a file has it, else from nvidia-smi's
//! labels, which are less: they hide virtual switches and fabrics between switches.

use std::collections::BTreeMap;

use crate::import::facts::Facts;
use crate::import::facts::Label;
use crate::import::facts::Labels;
use crate::import::facts::PciDevice;
use crate::import::facts::PciKind;

/// What something hangs from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Parent {
    /// A host bridge, by its index.
    Root(usize),
    /// A switch, by its index.
    Switch(usize),
}

/// A tree of PCIe as a machine file has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cabling {
    /// NUMA nodes, ascending.
    pub sockets: Vec<u32>,
    /// Host bridges: index of the socket.
    pub roots: Vec<usize>,
    /// Switches: what each hangs from; a switch stands before those below it.
    pub switches: Vec<Parent>,
    /// GPUs in device order: what each hangs from.
    pub gpus: Vec<Parent>,
    /// How it was found, for the machine's notes.
    pub evidence: &'static str,
}

/// The best tree that the facts allow, `None` where nothing tells the number of GPUs.
pub fn cabling(facts: &Facts) -> Option<Cabling> {
    let tree = from_pci(facts);
    if tree.is_some() {
        return tree;
    }
    if let Some(labels) = &facts.labels {
        let numa: Vec<Option<u32>> = facts.gpus.iter().map(|g| g.numa).collect();
        return Some(from_labels(labels, &numa));
    }
    let of_matrix = facts.bandwidth.iter().map(|m| m.cells.len()).max().unwrap_or(0);
    let gpus = of_matrix.max(facts.gpus.len());
    (gpus > 0).then(|| Cabling {
        sockets: vec![0],
        roots: (0..gpus).map(|_| 0).collect(),
        gpus: (0..gpus).map(Parent::Root).collect(),
        evidence: "the cabling is ASSUMED: no file tells it; every GPU has its own lanes of one processor",
        ..Cabling::default()
    })
}

/// From bridges and their buses.
fn from_pci(facts: &Facts) -> Option<Cabling> {
    let by_bus: BTreeMap<&str, &PciDevice> = facts.pci.iter().map(|d| (d.bus.as_str(), d)).collect();
    let mut gpus: Vec<&PciDevice> = facts.gpus.iter().filter_map(|g| by_bus.get(g.bus.as_str()).copied()).collect();
    if gpus.is_empty() {
        gpus = facts.pci.iter().filter(|d| d.kind == PciKind::Gpu).collect();
    }
    if gpus.is_empty() {
        return None;
    }
    let mut tree = Cabling { evidence: "the cabling is that of the PCI tree", ..Cabling::default() };
    let numa_of = |d: &PciDevice| d.numa.unwrap_or(0);
    tree.sockets = gpus.iter().map(|g| numa_of(g)).collect();
    tree.sockets.sort_unstable();
    tree.sockets.dedup();
    let mut roots: BTreeMap<String, usize> = BTreeMap::new();
    let mut switches: BTreeMap<&str, usize> = BTreeMap::new();
    for gpu in gpus {
        // From the GPU upwards; a loop in a mangled file ends here.
        let mut chain = Vec::new();
        let mut at = gpu;
        while let Some(up) = at.parent.as_deref().and_then(|p| by_bus.get(p)).filter(|_| chain.len() < 64) {
            chain.push(*up);
            at = up;
        }
        let bridge = host_bridge(at);
        let socket = tree.sockets.iter().position(|s| *s == numa_of(gpu)).unwrap_or(0);
        let root = *roots.entry(bridge).or_insert_with(|| {
            tree.roots.push(socket);
            tree.roots.len() - 1
        });
        let mut parent = Parent::Root(root);
        for device in chain.iter().rev().filter(|d| d.kind == PciKind::SwitchUp) {
            let switch = *switches.entry(device.bus.as_str()).or_insert_with(|| {
                tree.switches.push(parent);
                tree.switches.len() - 1
            });
            parent = Parent::Switch(switch);
        }
        tree.gpus.push(parent);
    }
    Some(tree)
}

/// What tells host bridges apart: the bus of a root port. A file that starts
/// at the device itself (NCCL's) has one bridge for each of them.
fn host_bridge(top: &PciDevice) -> String {
    match (top.kind, top.bus.rsplit_once(':')) {
        (PciKind::RootPort | PciKind::Bridge, Some((bus, _))) => bus.to_owned(),
        _ => top.bus.clone(),
    }
}

/// From labels: nearest first, what is joined by a label or a nearer one is one group.
fn from_labels(labels: &Labels, numa: &[Option<u32>]) -> Cabling {
    let count = labels.cells.len();
    let all: Vec<usize> = (0..count).collect();
    let mut tree = Cabling {
        gpus: vec![Parent::Root(0); count],
        evidence: "the cabling is inferred from the labels of nvidia-smi",
        ..Cabling::default()
    };
    for (index, socket) in groups(labels, &all, Label::Node, numa).into_iter().enumerate() {
        let known = socket.iter().find_map(|g| numa.get(*g).copied().flatten());
        let number = known.filter(|n| !tree.sockets.contains(n)).unwrap_or_else(|| free(&tree.sockets, index as u32));
        tree.sockets.push(number);
        for bridge in groups(labels, &socket, Label::Phb, &[]) {
            tree.roots.push(index);
            let root = Parent::Root(tree.roots.len() - 1);
            for group in groups(labels, &bridge, Label::Pxb, &[]) {
                place(labels, &group, root, &mut tree);
            }
        }
    }
    tree
}

fn free(taken: &[u32], from: u32) -> u32 {
    (from..).find(|n| !taken.contains(n)).unwrap_or(from)
}

/// Puts a group that shares switches below `root`.
fn place(labels: &Labels, group: &[usize], root: Parent, tree: &mut Cabling) {
    if let [gpu] = group {
        tree.gpus[*gpu] = root;
        return;
    }
    let leaves = groups(labels, group, Label::Pix, &[]);
    let mut parent = root;
    if leaves.len() > 1 {
        tree.switches.push(root);
        parent = Parent::Switch(tree.switches.len() - 1);
    }
    for leaf in leaves {
        tree.switches.push(parent);
        let switch = Parent::Switch(tree.switches.len() - 1);
        leaf.iter().for_each(|gpu| tree.gpus[*gpu] = switch);
    }
}

/// `members` in groups joined by labels up to `most`, in the order of their
/// first. NVLink hides the PCIe label: such pairs join only by equal NUMA nodes.
fn groups(labels: &Labels, members: &[usize], most: Label, numa: &[Option<u32>]) -> Vec<Vec<usize>> {
    let mut group: Vec<usize> = (0..members.len()).collect();
    for (i, &a) in members.iter().enumerate() {
        for (j, &b) in members.iter().enumerate().take(i) {
            let label = labels.cells[a][b];
            let same_node = numa.get(a).copied().flatten().is_some_and(|n| numa.get(b).copied().flatten() == Some(n));
            let joined = match label {
                Label::Nvlink(_) => most == Label::Node && (same_node || numa.iter().all(Option::is_none)),
                label => label <= most,
            };
            if joined && group[i] != group[j] {
                let (from, to) = (group[i].max(group[j]), group[i].min(group[j]));
                group.iter_mut().filter(|g| **g == from).for_each(|g| *g = to);
            }
        }
    }
    let mut found: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (i, &member) in members.iter().enumerate() {
        found.entry(group[i]).or_default().push(member);
    }
    found.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Labels {
        Labels { cells: text.lines().map(|l| l.split_whitespace().map(|c| Label::from_cell(c).expect("a label")).collect()).collect() }
    }

    #[test]
    fn two_switches_of_one_socket_have_two_bridges() {
        let tree = from_labels(&labels("X PIX NODE SYS\nPIX X NODE SYS\nNODE NODE X SYS\nSYS SYS SYS X"), &[]);
        assert_eq!(tree.sockets, [0, 1]);
        assert_eq!(tree.roots, [0, 0, 1]);
        assert_eq!(tree.switches, [Parent::Root(0)]);
        assert_eq!(tree.gpus, [Parent::Switch(0), Parent::Switch(0), Parent::Root(1), Parent::Root(2)]);
    }

    #[test]
    fn nested_switches_are_nested() {
        let tree = from_labels(&labels("X PIX PXB\nPIX X PXB\nPXB PXB X"), &[Some(3), Some(3), Some(3)]);
        assert_eq!((tree.sockets.as_slice(), tree.roots.as_slice()), (&[3][..], &[0][..]));
        assert_eq!(tree.switches, [Parent::Root(0), Parent::Switch(0), Parent::Switch(0)]);
        assert_eq!(tree.gpus, [Parent::Switch(1), Parent::Switch(1), Parent::Switch(2)]);
    }

    #[test]
    fn loops_in_the_tree_end() {
        let device = |bus: &str, parent: &str, kind| PciDevice {
            bus: bus.into(),
            parent: Some(parent.into()),
            kind,
            name: String::new(),
            link: Default::default(),
            link_max: Default::default(),
            payload_bytes: None,
            acs_redirects: None,
            numa: None,
        };
        let pci = vec![device("a", "b", PciKind::SwitchUp), device("b", "a", PciKind::SwitchUp), device("g", "a", PciKind::Gpu)];
        assert_eq!(cabling(&Facts { pci, ..Facts::default() }).expect("a tree").gpus.len(), 1);
        assert!(cabling(&Facts::default()).is_none());
    }
}
