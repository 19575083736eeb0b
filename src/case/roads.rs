//! A machine's links and routes in the simulator's integers.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Fault;
use crate::error::Result;
use crate::machine::Endpoint;
use crate::machine::LinkId;
use crate::machine::Machine;
use crate::machine::Medium;
use crate::machine::NodeKind;
use crate::machine::Routes;
use crate::machine::route::Access;
use crate::machine::route::Direction;
use crate::simulate::Network;
use crate::simulate::fabric::Collapse;
use crate::units::Rate;

/// Whether a source has other targets at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// One target, or one after the other.
    Alone,
    /// Several at once. Posted writes keep their order, so that one for a busy
    /// target holds up those behind it for idle ones, and the ports into GPUs,
    /// as the links between sockets, are idle for part of the time.
    Crossing,
}

/// What the names of links that stand for a share of another end in.
pub const CROSSING: &str = ", crossing";

/// The network under construction, and the routes that it has.
#[derive(Clone, Debug)]
pub struct Roads {
    /// What the simulator takes.
    pub network: Network,
    /// Names of the directed links, for reports.
    pub names: Arc<Vec<String>>,
    /// The machine's ways.
    pub routes: Arc<Routes>,
    known: BTreeMap<(Endpoint, Endpoint, Order), u32>,
    /// What crossing flows get of each directed link, as links of their own.
    crossings: usize,
    gpu_memory: usize,
    host_memory: usize,
    host_reads: usize,
}

impl Roads {
    /// All links of a machine, two directions each; then each GPU's memory, each
    /// socket's, and what each GPU's threads can read from host memory.
    /// `routes` are those of the machine, or of one that is cabled alike.
    pub fn new(machine: &Machine, routes: Arc<Routes>) -> Roads {
        let mut network = Network::default();
        let mut names = Vec::new();
        for (index, link) in machine.links.iter().enumerate() {
            let (a, b) = (&machine.nodes[link.a.0].id, &machine.nodes[link.b.0].id);
            for (direction, from, to) in [(Direction::Forward, a, b), (Direction::Backward, b, a)] {
                network.capacity.push(machine.link_rate(LinkId(index), direction, Access::Write).0);
                names.push(format!("{from} > {to}"));
            }
        }
        let gpu_memory = network.capacity.len();
        for device in 0..machine.gpus.len() {
            let rate = machine.gpu_kind(device).map_or(Rate(1), |kind| Rate::from_gbps(kind.chip.l2_gbps.value));
            network.capacity.push(rate.0);
            names.push(format!("{} memory", machine.nodes[machine.gpus[device].0].id));
        }
        let host_memory = network.capacity.len();
        for socket in machine.sockets() {
            network.capacity.push(Rate::from_gbps(machine.fabric.host_memory_gbps.value).0);
            names.push(format!("{} memory", machine.nodes[socket.0].id));
        }
        let host_reads = network.capacity.len();
        for gpu in &machine.gpus {
            network.capacity.push(Rate::from_gbps(machine.fabric.host_read_gbps.value).0);
            names.push(format!("{} host reads", machine.nodes[gpu.0].id));
        }
        // All of them, so that no link's number depends on what was asked first.
        let crossings = network.capacity.len();
        for index in 0..2 * machine.links.len() {
            let share = machine.fabric.crossing_share.value * network.capacity[index] as f64;
            network.capacity.push((share as u64).max(1));
            names.push(format!("{}{CROSSING}", names[index]));
        }
        network.collapses = (machine.collapses.iter())
            .map(|c| Collapse {
                routes: Vec::new(),
                sources_min: c.sources_min as usize,
                roots_min: c.roots_min as usize,
                rate: Rate::from_gbps(c.write_gbps.value).0,
            })
            .collect();
        Roads { network, names: Arc::new(names), routes, known: BTreeMap::new(), crossings, gpu_memory, host_memory, host_reads }
    }

    /// The route from one end to another, added when it is new.
    ///
    /// # Errors
    /// `machine-no-route` when the machine has no way between them.
    pub fn route(&mut self, machine: &Machine, from: Endpoint, to: Endpoint, order: Order) -> Result<u32> {
        if let Some(&route) = self.known.get(&(from, to, order)) {
            return Ok(route);
        }
        let routes = Arc::clone(&self.routes);
        let way = routes.way(from, to).ok_or_else(|| {
            Fault::new("machine-no-route", format!("machine {} has no way from {from:?} to {to:?}", machine.id))
                .help("join the two ends by links, or use fewer ranks")
        })?;
        let mut links: Vec<u32> =
            (way.hops.iter()).map(|(link, direction)| (2 * link.0 + usize::from(*direction == Direction::Backward)) as u32).collect();
        match (from, to) {
            // What stays on a GPU goes through its L2 and memory.
            (Endpoint::Gpu(a), Endpoint::Gpu(b)) if a == b => links.push((self.gpu_memory + a) as u32),
            (Endpoint::Host(socket), _) | (_, Endpoint::Host(socket)) => links.push((self.host_memory + socket) as u32),
            _ => {}
        }
        if let (Endpoint::Host(_), Endpoint::Gpu(device)) = (from, to) {
            links.push((self.host_reads + device) as u32);
        }
        if let (Endpoint::Gpu(_), Endpoint::Gpu(_), Order::Crossing) = (from, to, order) {
            self.add_crossings(machine, &mut links, &way.hops);
        }
        let route = self.network.route(&links);
        self.known.insert((from, to, order), route);
        if let (Endpoint::Gpu(source), Endpoint::Gpu(target)) = (from, to) {
            self.note_collapses(machine, route, source, target);
        }
        Ok(route)
    }

    /// Adds what crossing flows get of the port into the target and of links between sockets.
    fn add_crossings(&self, machine: &Machine, links: &mut Vec<u32>, hops: &[(LinkId, Direction)]) {
        for (place, (link, _)) in hops.iter().enumerate() {
            if place + 1 < hops.len() && machine.links[link.0].medium != Medium::SocketFabric {
                continue;
            }
            links.push((self.crossings + links[place] as usize) as u32);
        }
    }

    /// Notes which collapse patterns a write along this route is part of.
    fn note_collapses(&mut self, machine: &Machine, route: u32, source: usize, target: usize) {
        if machine.collapses.is_empty() {
            return;
        }
        let (sources, targets) = (self.routes.above(source), self.routes.above(target));
        let root = targets.iter().find(|node| matches!(machine.nodes[node.0].kind, NodeKind::RootPort));
        let Some(root) = root else { return };
        for (known, pattern) in machine.collapses.iter().zip(&mut self.network.collapses) {
            let inside = |nodes: &[crate::machine::NodeId]| {
                nodes.iter().any(|node| {
                    let node = &machine.nodes[node.0];
                    let chip = matches!(&node.kind, NodeKind::Switch { chip: Some(chip) } if *chip == known.at);
                    node.id == known.at || chip
                })
            };
            if inside(sources) && !inside(targets) {
                pattern.routes.push((route, source as u32, root.0 as u32));
            }
        }
    }
}
