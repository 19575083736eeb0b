//! All routes of a machine at once, for callers that ask for many. They follow
//! from the cabling alone: machines that differ in numbers share them.

use std::collections::VecDeque;

use crate::machine::route::Reached;
use crate::machine::route::hops;
use crate::machine::route::way_label;
use crate::machine::*;
use crate::units::Time;

/// The ways between all ends of a machine: its GPUs, then its sockets' memories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    gpus: usize,
    ends: usize,
    /// `[from * ends + to]`.
    ways: Vec<Option<Way>>,
    /// Each GPU and what it hangs from, up to its socket.
    above: Vec<Vec<NodeId>>,
    /// The socket of each GPU, by its position among the sockets.
    sockets: Vec<Option<usize>>,
}

/// The way from one end to another; see [`Machine::route`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// Links in the order of travel; empty within one end.
    pub hops: Vec<(LinkId, Direction)>,
    /// As `nvidia-smi topo -m` names it.
    pub label: PathType,
}

impl Routes {
    /// Finds every way.
    pub fn of(machine: &Machine) -> Routes {
        let ends: Vec<NodeId> = machine.gpus.iter().copied().chain(machine.sockets()).collect();
        let parents = machine.parents();
        let chains: Vec<Vec<NodeId>> = ends.iter().map(|end| machine.chain_of(&parents, *end)).collect();
        let mut beside: Vec<Vec<(NodeId, LinkId, Direction)>> = vec![Vec::new(); machine.nodes.len()];
        for (index, link) in machine.links.iter().enumerate() {
            beside[link.a.0].push((link.b, LinkId(index), Direction::Forward));
            if link.a != link.b {
                beside[link.b.0].push((link.a, LinkId(index), Direction::Backward));
            }
        }
        beside.iter_mut().for_each(|list| list.sort_unstable_by_key(|(node, link, _)| (*node, *link)));
        let mut ways = Vec::with_capacity(ends.len() * ends.len());
        for (from, &source) in ends.iter().enumerate() {
            let nvlink = reached(machine, &beside, source, |medium| medium == Medium::Nvlink);
            let others = reached(machine, &beside, source, |medium| medium != Medium::Nvlink);
            for (to, &target) in ends.iter().enumerate() {
                let over_nvlink = hops(&nvlink, source, target).filter(|_| source != target);
                ways.push(match over_nvlink {
                    Some(hops) => Some(Way { hops, label: PathType::Nvl }),
                    None => hops(&others, source, target).map(|hops| Way { hops, label: way_label(machine, &chains[from], &chains[to]) }),
                });
            }
        }
        let sockets: Vec<NodeId> = machine.sockets().collect();
        let gpus = machine.gpus.len();
        let socket = |chain: &Vec<NodeId>| sockets.iter().position(|socket| chain.last() == Some(socket));
        let sockets = chains[..gpus].iter().map(socket).collect();
        Routes { gpus, ends: ends.len(), ways, sockets, above: chains.into_iter().take(gpus).collect() }
    }

    fn index(&self, end: Endpoint) -> Option<usize> {
        let index = match end {
            Endpoint::Gpu(device) if device < self.gpus => device,
            Endpoint::Host(socket) => self.gpus + socket,
            Endpoint::Gpu(_) => return None,
        };
        (index < self.ends).then_some(index)
    }

    /// As [`Machine::route`], without the latency.
    pub fn way(&self, from: Endpoint, to: Endpoint) -> Option<&Way> {
        self.ways[self.index(from)? * self.ends + self.index(to)?].as_ref()
    }

    /// As [`Machine::socket_of`].
    pub fn socket_of(&self, device: usize) -> Option<usize> {
        self.sockets.get(device).copied().flatten()
    }

    /// A GPU and what it hangs from, as [`Machine::ancestors`]; empty for no such GPU.
    pub fn above(&self, device: usize) -> &[NodeId] {
        self.above.get(device).map_or(&[], Vec::as_slice)
    }

    /// One packet, one way, with a machine's numbers.
    fn latency(&self, machine: &Machine, from: Endpoint, to: Endpoint) -> Option<Time> {
        let way = self.way(from, to)?;
        Some(way.hops.iter().map(|(link, _)| Time::from_ns(machine.links[link.0].latency_ns.value)).sum())
    }

    /// As [`Machine::read_latency`].
    pub fn read_latency(&self, machine: &Machine, reader: usize, target: Endpoint) -> Option<Time> {
        machine.read_over(reader, target, self.latency(machine, Endpoint::Gpu(reader), target)?)
    }

    /// As [`Machine::write_latency`].
    pub fn write_latency(&self, machine: &Machine, writer: usize, target: Endpoint) -> Option<Time> {
        machine.write_over(writer, self.latency(machine, Endpoint::Gpu(writer), target)?)
    }
}

/// How each node is first reached, breadth first.
fn reached(machine: &Machine, beside: &[Vec<(NodeId, LinkId, Direction)>], from: NodeId, keep: impl Fn(Medium) -> bool) -> Reached {
    let mut reached: Reached = vec![None; machine.nodes.len()];
    let mut queue = VecDeque::from([from]);
    while let Some(at) = queue.pop_front() {
        // Nothing passes through a GPU.
        if at != from && matches!(machine.nodes[at.0].kind, NodeKind::Gpu { .. }) {
            continue;
        }
        for &(next, link, direction) in &beside[at.0] {
            if next != from && reached[next.0].is_none() && keep(machine.links[link.0].medium) {
                reached[next.0] = Some((at, link, direction));
                queue.push_back(next);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_at_once_is_the_same_as_one_by_one() {
        for id in Machine::ids() {
            let machine = Machine::load(id).expect("it is embedded");
            let routes = Routes::of(&machine);
            let gpus = machine.gpus.len();
            let ends = || (0..=gpus).map(Endpoint::Gpu).chain((0..4).map(Endpoint::Host));
            for (from, to) in ends().flat_map(|from| ends().map(move |to| (from, to))) {
                let route = machine.route(from, to);
                let way = routes.way(from, to);
                assert_eq!(way.map(|way| (&way.hops, way.label)), route.as_ref().map(|route| (&route.hops, route.label)), "{id}");
                if let Endpoint::Gpu(device) = from {
                    assert_eq!(routes.read_latency(&machine, device, to), machine.read_latency(device, to), "{id}");
                    assert_eq!(routes.write_latency(&machine, device, to), machine.write_latency(device, to), "{id}");
                }
            }
            for device in 0..gpus {
                assert_eq!(routes.socket_of(device), machine.socket_of(device), "{id}");
                assert_eq!(routes.above(device), machine.ancestors(machine.gpus[device]), "{id}");
            }
            assert_eq!((routes.socket_of(gpus), routes.above(gpus)), (None, [].as_slice()));
        }
    }
}
