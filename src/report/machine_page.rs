//! A machine drawn: sockets at the top, GPUs at the bottom, links coloured by load.

use crate::machine::Machine;
use crate::machine::NodeKind;
use crate::render::drawing::both;
use crate::render::graph::Edge;
use crate::render::graph::Graph;
use crate::render::graph::Node;
use crate::render::graph::graph_chart;
use crate::render::page::Block;

/// How much of what a directed link (`from > to`) can carry is used, 0 to 1.
pub struct LinkUse {
    /// `from > to`.
    pub name: String,
    /// Share.
    pub share: f64,
}

/// The drawing.
pub fn drawing(machine: &Machine, uses: &[LinkUse]) -> Block {
    let graph = graph(machine, uses);
    let words = format!("The links of {}: {} nodes, {} links, coloured by load", machine.id, graph.nodes.len(), graph.edges.len());
    both(&words, |width| graph_chart(&graph, width))
}

fn graph(machine: &Machine, uses: &[LinkUse]) -> Graph {
    let depth = depths(machine);
    let bottom = depth.iter().copied().max().unwrap_or(0);
    let x = places(machine, &depth);
    let is_gpu = |node: usize| matches!(machine.nodes[node].kind, NodeKind::Gpu { .. });
    let nodes = (machine.nodes.iter().enumerate())
        .map(|(at, node)| Node { label: node.id.clone(), layer: if is_gpu(at) { bottom } else { depth[at] }, x: x[at] })
        .collect();
    let share = |from: usize, to: usize| {
        let name = format!("{} > {}", machine.nodes[from].id, machine.nodes[to].id);
        uses.iter().find(|link| link.name == name).map(|link| link.share)
    };
    let edges = (machine.links.iter())
        .map(|link| Edge { from: link.a.0, to: link.b.0, load: [share(link.a.0, link.b.0), share(link.b.0, link.a.0)] })
        .collect();
    Graph { nodes, edges }
}

/// Links from the nearest socket, or from the nodes that are no GPU where there is no socket.
fn depths(machine: &Machine) -> Vec<usize> {
    let is = |socket: bool, node: usize| match machine.nodes[node].kind {
        NodeKind::Socket { .. } => true,
        NodeKind::Gpu { .. } => false,
        _ => !socket,
    };
    let has_socket = (0..machine.nodes.len()).any(|node| is(true, node));
    let mut depth: Vec<Option<usize>> = (0..machine.nodes.len()).map(|node| is(has_socket, node).then_some(0)).collect();
    for round in 0..machine.nodes.len() {
        for link in &machine.links {
            for (near, far) in [(link.a.0, link.b.0), (link.b.0, link.a.0)] {
                if depth[near] == Some(round) && depth[far].is_none() {
                    depth[far] = Some(round + 1);
                }
            }
        }
    }
    depth.into_iter().map(|depth| depth.unwrap_or(0)).collect()
}

/// From the left, 0 to 1: leaves side by side below their parents, parents over their middle.
fn places(machine: &Machine, depth: &[usize]) -> Vec<f64> {
    let children = |node: usize| -> Vec<usize> {
        let ends = machine.links.iter().flat_map(|link| [(link.a.0, link.b.0), (link.b.0, link.a.0)]);
        ends.filter(|(near, far)| *near == node && depth[*far] == depth[node] + 1).map(|(_, far)| far).collect()
    };
    let mut order: Vec<usize> = Vec::new();
    let mut stack: Vec<usize> = (0..machine.nodes.len()).filter(|&node| depth[node] == 0).rev().collect();
    let mut seen = vec![false; machine.nodes.len()];
    while let Some(node) = stack.pop() {
        if std::mem::replace(&mut seen[node], true) {
            continue;
        }
        order.push(node);
        stack.extend(children(node).into_iter().rev().filter(|&child| !seen[child]));
    }
    let leaves: Vec<usize> = order.iter().copied().filter(|&node| children(node).is_empty()).collect();
    let mut x = vec![0.5; machine.nodes.len()];
    for (at, &leaf) in leaves.iter().enumerate() {
        x[leaf] = (at as f64 + 0.5) / leaves.len().max(1) as f64;
    }
    let mut upwards = order;
    upwards.sort_by_key(|&node| std::cmp::Reverse(depth[node]));
    for node in upwards {
        let below = children(node);
        if !below.is_empty() {
            x[node] = below.iter().map(|&child| x[child]).sum::<f64>() / below.len() as f64;
        }
    }
    apart(&mut x, depth);
    x
}

/// Nodes of a layer that would lie on one another move to its free places, left to right.
fn apart(x: &mut [f64], depth: &[usize]) {
    for layer in 0..=depth.iter().copied().max().unwrap_or(0) {
        let mut nodes: Vec<usize> = (0..x.len()).filter(|&node| depth[node] == layer).collect();
        nodes.sort_by(|&a, &b| x[a].total_cmp(&x[b]).then(a.cmp(&b)));
        let closest = 0.5 / nodes.len().max(1) as f64;
        if nodes.windows(2).any(|pair| x[pair[1]] - x[pair[0]] < 1e-6) {
            let middle = nodes.iter().map(|&node| x[node]).sum::<f64>() / nodes.len() as f64;
            for (at, &node) in nodes.iter().enumerate() {
                x[node] = middle + (at as f64 - (nodes.len() - 1) as f64 / 2.0) * closest;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_is_drawn_without_overlap() {
        for id in Machine::ids() {
            let machine = Machine::load(id).expect("built in");
            let graph = graph(&machine, &[]);
            assert_eq!((graph.nodes.len(), graph.edges.len()), (machine.nodes.len(), machine.links.len()), "{id}");
            for (at, node) in graph.nodes.iter().enumerate() {
                let same = |other: &Node| other.layer == node.layer && (other.x - node.x).abs() < 1e-6;
                assert!(!graph.nodes[at + 1..].iter().any(same), "{id}: {} lies on another", node.label);
            }
        }
    }

    #[test]
    fn loads_find_their_direction() {
        let machine = Machine::load("8x-rtx-pro-6000-server").expect("built in");
        let uses = [LinkUse { name: "switch0 > gpu0".to_owned(), share: 0.5 }];
        let graph = graph(&machine, &uses);
        let loaded: Vec<&Edge> = graph.edges.iter().filter(|edge| edge.load != [None, None]).collect();
        assert_eq!(loaded.len(), 1);
        let (from, to) = (&graph.nodes[loaded[0].from].label, &graph.nodes[loaded[0].to].label);
        assert!(if loaded[0].load[0].is_some() {
            (from.as_str(), to.as_str()) == ("switch0", "gpu0")
        } else {
            (from.as_str(), to.as_str()) == ("gpu0", "switch0")
        });
    }
}
