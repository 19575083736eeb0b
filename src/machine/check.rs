//! What a machine's graph must satisfy, with errors at the place in its file.
//!
//! Ids are unique names; PCIe is a tree below root ports; each root port
//! belongs to one socket; every GPU reaches a socket and every socket each
//! other; collapses name switches.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use toml::Spanned;

use crate::error::Result;
use crate::machine::raw::RawMachine;
use crate::machine::read::Origin;
use crate::machine::*;

/// Checks an id: letters, digits, `-` and `_`, because knobs are dotted paths.
pub(crate) fn name(origin: Origin, id: &Spanned<String>, what: &str) -> Result<()> {
    let text = id.get_ref();
    if !text.is_empty() && text.len() <= 64 && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
        return Ok(());
    }
    let label = "expected 1 to 64 letters, digits, `-` and `_`";
    Err(origin.fault("machine-name", format!("`{text}` cannot name a {what}"), id.span(), label))
}

/// Node ids → index, in the order sockets, roots, switches, GPUs.
///
/// # Errors
/// `machine-name`, `machine-duplicate-id`.
pub(crate) fn ids<'a>(origin: Origin, raw: &'a RawMachine) -> Result<BTreeMap<&'a str, NodeId>> {
    name(origin, &raw.id, "machine")?;
    let sockets = raw.sockets.iter().map(|n| &n.id);
    let roots = raw.roots.iter().map(|n| &n.id);
    let switches = raw.switches.iter().map(|n| &n.id);
    let gpus = raw.gpus.iter().map(|n| &n.id);
    let mut ids = BTreeMap::new();
    for (index, id) in sockets.chain(roots).chain(switches).chain(gpus).enumerate() {
        name(origin, id, "node")?;
        if ids.insert(id.get_ref().as_str(), NodeId(index)).is_some() {
            let message = format!("two nodes are called `{}`", id.get_ref());
            return Err(origin.fault("machine-duplicate-id", message, id.span(), "the second one"));
        }
    }
    Ok(ids)
}

/// Checks the graph.
///
/// # Errors
/// `machine-no-gpu`, `machine-link-ends`, `machine-cycle`, `machine-unreachable`,
/// `machine-unknown-node`, `machine-duplicate-id`.
pub(crate) fn graph(origin: Origin, raw: &RawMachine, machine: &Machine) -> Result<()> {
    if machine.gpus.is_empty() {
        return Err(origin.fault("machine-no-gpu", "the machine has no GPU", raw.id.span(), "this machine"));
    }
    ends(origin, raw, machine)?;
    tree(origin, raw, machine)?;
    reach(origin, raw, machine)?;
    collapses(origin, raw, machine)
}

/// What a link of each medium may join.
fn ends(origin: Origin, raw: &RawMachine, machine: &Machine) -> Result<()> {
    for (link, place) in machine.links.iter().zip(&raw.links) {
        let kinds = (&machine.nodes[link.a.0].kind, &machine.nodes[link.b.0].kind);
        let is = |pair: (&NodeKind, &NodeKind)| {
            matches!(
                (link.medium, pair),
                (Medium::Pcie, (NodeKind::Gpu { .. } | NodeKind::Switch { .. }, NodeKind::Switch { .. } | NodeKind::RootPort))
                    | (Medium::SocketFabric, (NodeKind::Socket { .. }, NodeKind::Socket { .. }))
                    | (Medium::Nvlink, (NodeKind::Gpu { .. }, NodeKind::Gpu { .. } | NodeKind::Switch { .. }))
                    | (Medium::Internal, (NodeKind::Switch { .. }, NodeKind::Switch { .. }))
                    | (Medium::Internal, (NodeKind::RootPort, NodeKind::Socket { .. }))
            )
        };
        if link.a == link.b || !(is(kinds) || is((kinds.1, kinds.0))) {
            let message =
                format!("a {} link cannot join `{}` and `{}`", medium(link.medium), ends_of(machine, link).0, ends_of(machine, link).1);
            return Err(origin.fault("machine-link-ends", message, place.span(), "this link").help(
                "pcie joins GPUs, switches and roots; internal joins switches, or a root and its socket; socket-fabric joins sockets; \
                 nvlink joins GPUs, or GPUs and a switch",
            ));
        }
    }
    Ok(())
}

fn ends_of<'a>(machine: &'a Machine, link: &Link) -> (&'a str, &'a str) {
    (&machine.nodes[link.a.0].id, &machine.nodes[link.b.0].id)
}

/// As the file spells it.
pub(crate) fn medium(medium: Medium) -> &'static str {
    match medium {
        Medium::Pcie => "pcie",
        Medium::SocketFabric => "socket-fabric",
        Medium::Nvlink => "nvlink",
        Medium::Internal => "internal",
    }
}

/// PCIe links and those from roots to sockets make a forest with one socket a
/// tree, and a GPU is a leaf.
fn tree(origin: Origin, raw: &RawMachine, machine: &Machine) -> Result<()> {
    let mut group: Vec<usize> = (0..machine.nodes.len()).collect();
    let mut taken = BTreeSet::new();
    for (link, place) in machine.links.iter().zip(&raw.links) {
        if !machine.in_pcie_tree(link) {
            continue;
        }
        for end in [link.a, link.b] {
            if matches!(machine.nodes[end.0].kind, NodeKind::Gpu { .. }) && !taken.insert(end) {
                let message = format!("`{}` has two PCIe links", machine.nodes[end.0].id);
                return Err(origin.fault("machine-cycle", message, place.span(), "the second one"));
            }
        }
        let (a, b) = (group[link.a.0], group[link.b.0]);
        let root_twice = sockets_in(machine, &group, a) + sockets_in(machine, &group, b) > 1;
        if a == b || root_twice {
            let (from, to) = ends_of(machine, link);
            let message = format!("PCIe is not a tree: `{from}` and `{to}` are joined on another way too");
            return Err(origin
                .fault("machine-cycle", message, place.span(), "this link closes a cycle")
                .help("join sockets by socket-fabric, virtual switches of one chip by internal links"));
        }
        for entry in &mut group {
            if *entry == a {
                *entry = b;
            }
        }
    }
    Ok(())
}

fn sockets_in(machine: &Machine, group: &[usize], which: usize) -> usize {
    let member = |(index, node): &(usize, &Node)| group[*index] == which && matches!(node.kind, NodeKind::Socket { .. });
    machine.nodes.iter().enumerate().filter(member).count()
}

/// Everything in the tree hangs below a socket, and sockets reach each other.
fn reach(origin: Origin, raw: &RawMachine, machine: &Machine) -> Result<()> {
    let sockets = raw.sockets.iter().map(|n| &n.id);
    let roots = raw.roots.iter().map(|n| &n.id);
    let switches = raw.switches.iter().map(|n| &n.id);
    let gpus = raw.gpus.iter().map(|n| &n.id);
    for (index, id) in sockets.chain(roots).chain(switches).chain(gpus).enumerate() {
        let ok = match machine.nodes[index].kind {
            NodeKind::Socket { .. } => machine.route(Endpoint::Host(0), Endpoint::Host(index)).is_some(),
            NodeKind::Switch { .. } if !machine.links.iter().any(|l| l.medium == Medium::Pcie && (l.a.0 == index || l.b.0 == index)) => {
                machine.links.iter().any(|l| l.a.0 == index || l.b.0 == index)
            }
            _ => machine.ancestors(NodeId(index)).last().is_some_and(|n| matches!(machine.nodes[n.0].kind, NodeKind::Socket { .. })),
        };
        if !ok {
            let message = format!("`{}` cannot be reached", id.get_ref());
            return Err(origin
                .fault("machine-unreachable", message, id.span(), "no way to a socket")
                .help("join it: GPU or switch to a root by pcie, the root to its socket by an internal link, sockets by socket-fabric"));
        }
    }
    Ok(())
}

fn collapses(origin: Origin, raw: &RawMachine, machine: &Machine) -> Result<()> {
    let mut seen = BTreeSet::new();
    for collapse in &raw.collapses {
        let at = collapse.at.get_ref();
        let known = machine.nodes.iter().any(|node| match &node.kind {
            NodeKind::Switch { chip } => node.id == *at || chip.as_deref() == Some(at),
            _ => false,
        });
        name(origin, &collapse.at, "switch or chip")?;
        if !known {
            let message = format!("no switch or chip is called `{at}`");
            return Err(origin.fault("machine-unknown-node", message, collapse.at.span(), "the collapse is said to be here"));
        }
        if !seen.insert(at) {
            return Err(origin.fault("machine-duplicate-id", format!("two collapses at `{at}`"), collapse.at.span(), "the second one"));
        }
    }
    Ok(())
}
