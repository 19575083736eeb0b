//! The search for rings and trees (`ncclTopoCompute`), within one node.
//!
//! [S] ladders (search.cc:1051-1063), duplication (1036-1049), score (455-466), Intel's 6/5 through the root
//! complex (84-92), the fall-back (1289-1311). [D] the order in which speeds, path types and equal channels
//! are tried is written from knowledge of that file. Time is counted in steps as NCCL does, so that results
//! do not depend on the host. One attempt at given demands is in [`super::descent`].

use crate::machine::CpuVendor;

use super::descent::Descent;
use super::graph::Graph;
use super::graph::Origin;
use super::graph::Pattern;
use super::kinds::PathType;
use super::tables;
use super::topology::LinkClass;
use super::topology::Topology;
use super::version::Version;

const TIME_GLOBAL: i64 = 1 << 19;
/// Steps of an attempt whose channels are to have the same order.
pub(super) const TIME_SAME_CHANNELS: i64 = 1 << 8;
/// Steps of any other.
pub(super) const TIME: i64 = 1 << 14;

/// Finds a graph of between `channels.0` and `channels.1` channels, or falls back.
pub fn search(topology: &Topology, pattern: Pattern, channels: (u32, u32), version: Version) -> Graph {
    search_by(topology, pattern, channels, version, true)
}

/// The same with or without the memory of what has been searched; the graph is the same.
fn search_by(topology: &Topology, pattern: Pattern, channels: (u32, u32), version: Version, remember: bool) -> Graph {
    let ranks = topology.ranks.len();
    if ranks < 2 {
        return Graph::given(pattern, ranks as u32, channels.0.max(1), 0.1, PathType::Loc);
    }
    let ladder = tables::ladder_gbps(topology.compute_capability.0, version);
    let empty = Graph { channels: Vec::new(), origin: Origin::Search, ..Graph::given(pattern, 0, 0, 0.0, PathType::Loc) };
    let mut search = Search {
        topology,
        descent: Descent::new(topology, remember),
        least: channels.0,
        most: channels.1,
        now: empty.clone(),
        best: empty,
        time: 0,
    };
    search.run(&ladder);
    let best = search.best;
    if best.channels.is_empty() {
        return Graph { pattern, ..Graph::fallback(pattern, ranks as u32) };
    }
    best
}

/// Where the search stands.
pub(super) struct Search<'a> {
    pub topology: &'a Topology,
    /// The attempt that is being made.
    pub descent: Descent,
    pub least: u32,
    pub most: u32,
    /// Being built.
    pub now: Graph,
    /// The best so far.
    pub best: Graph,
    pub time: i64,
}

impl Search<'_> {
    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        let ranks = self.topology.ranks.len();
        (0..ranks).flat_map(move |a| (0..ranks).filter(move |b| *b != a).map(move |b| (a, b)))
    }

    /// The widest path between two GPUs, and the links of one: ranks of one GPU count for nothing (search.cc:20-53).
    fn ceilings(&self) -> (f64, f64) {
        let paths = &self.topology.paths;
        let far = |(a, b): &(usize, usize)| paths[*a][*b].kind > PathType::Loc;
        let widest = self.pairs().filter(far).map(|(a, b)| paths[a][b].gbps).fold(0.0, f64::max);
        let mut total = 0.0f64;
        for rank in &self.topology.ranks {
            let of = |class| self.topology.edges.iter().filter(move |edge| edge.from == *rank && edge.class == class).map(|edge| edge.gbps);
            total = total.max(of(LinkClass::Pci).fold(0.0, f64::max)).max(of(LinkClass::Nvlink).sum());
        }
        (widest, total)
    }

    fn run(&mut self, ladder: &[f64]) {
        let last = ladder.len().saturating_sub(1);
        let ranks = self.topology.ranks.len() as f64;
        let (widest, links_total) = self.ceilings();
        let total = if self.now.pattern == Pattern::Ring { links_total } else { links_total * ranks / (ranks - 1.0) };
        let paths = &self.topology.paths;
        let nearest = self.pairs().map(|(a, b)| paths[a][b].kind).min().unwrap_or(PathType::Loc);
        let farthest = self.pairs().map(|(a, b)| paths[a][b].kind).max().unwrap_or(PathType::Sys).min(PathType::Sys);
        let mut at = 0;
        while at < last && (ladder[at] > widest || ladder[at] * f64::from(self.least) > total) {
            at += 1;
        }
        self.now.type_intra = nearest;
        self.first_pass(ladder, at, nearest, farthest, links_total);
        if self.best.channels.is_empty() {
            return;
        }
        self.duplicate();
        self.second_pass(ladder);
    }

    /// Lowers the demands until something is found, and as long as twice the channels could be better.
    fn first_pass(&mut self, ladder: &[f64], mut at: usize, nearest: PathType, farthest: PathType, links_total: f64) {
        let pattern = self.now.pattern;
        let mut global = TIME_GLOBAL;
        loop {
            self.now.channel_gbps = ladder[at];
            global -= if self.now.same_channels { TIME_SAME_CHANNELS } else { TIME };
            let optimal = self.attempt();
            if !self.best.channels.is_empty() && (optimal || self.best.total_gbps() >= links_total) {
                return;
            }
            let amd_far = self.topology.vendor == CpuVendor::Amd && self.now.type_intra == PathType::Sys;
            if self.now.same_channels && !amd_far {
                self.now.same_channels = false;
                continue;
            }
            self.now.same_channels = true;
            global += self.time.max(0);
            if global < 0 && !self.best.channels.is_empty() {
                return;
            }
            if self.topology.compute_capability.0 >= 90 && self.now.pattern == Pattern::BalancedTree {
                self.now.pattern = Pattern::Tree;
                continue;
            }
            self.now.pattern = pattern;
            let next = PathType::ALL.into_iter().find(|path| *path > self.now.type_intra).filter(|path| *path <= farthest);
            if let Some(next) = next
                && (self.best.channels.is_empty() || self.now.type_intra < self.best.type_intra)
            {
                self.now.type_intra = next;
                continue;
            }
            self.now.type_intra = nearest;
            let worthwhile = at + 1 < ladder.len() && (self.best.channels.is_empty() || ladder[at + 1] / self.best.channel_gbps > 0.49);
            if !worthwhile {
                return;
            }
            at += 1;
        }
    }

    /// `ncclTopoDupChannels`.
    fn duplicate(&mut self) {
        let count = self.best.count();
        let gbps = self.best.channel_gbps;
        if gbps < 25.0 || (self.topology.compute_capability.0 > 80 && gbps < 50.0 && count > 4) {
            return;
        }
        let doubled = (count * 2).min(self.most.max(count));
        let copies: Vec<Vec<u32>> = self.best.channels.iter().take((doubled - count) as usize).cloned().collect();
        self.best.channels.extend(copies);
        self.best.channel_gbps /= f64::from(doubled.div_ceil(count));
    }

    /// Tries to raise the speed of what was found, with as many channels.
    fn second_pass(&mut self, ladder: &[f64]) {
        self.now = Graph { channels: Vec::new(), hops: 0, ..self.best.clone() };
        self.least = self.best.count();
        let mut at = ladder.iter().position(|speed| *speed <= self.best.channel_gbps).unwrap_or(ladder.len().saturating_sub(1));
        let Some(initial) = ladder.get(at).copied() else { return };
        self.now.channel_gbps = initial;
        while at > 0 {
            // Trees go on only from a speed that was found, and to twice the first at most.
            let found = self.now.channel_gbps == self.best.channel_gbps && self.now.channel_gbps < 2.0 * initial;
            if self.now.pattern != Pattern::Ring && !found {
                return;
            }
            at -= 1;
            self.now.channel_gbps = ladder[at];
            self.attempt();
            if self.time == 0 {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::environment::Environment;
    use super::super::topology::Edge;
    use super::super::topology::Path;
    use super::super::topology::Vertex;
    use super::*;
    use crate::machine::Machine;
    use crate::machine::PeerAccess;

    const NEW: Version = Version::NEWEST_READ;

    fn both(topology: &Topology) -> [Graph; 2] {
        [true, false].map(|remember| search_by(topology, Pattern::Ring, (1, NEW.channels_max() / 2), NEW, remember))
    }

    #[test]
    fn what_is_remembered_changes_nothing_on_any_machine() {
        for id in Machine::ids() {
            let machine = Machine::load(id).expect("it is embedded");
            let devices: Vec<u32> = (0..machine.gpus.len() as u32).collect();
            for level in [None, Some(PathType::Sys), Some(PathType::Loc)] {
                let environment = Environment { p2p_level: level, ..Environment::default() };
                let topology = Topology::new(&machine, &devices, NEW, &environment).expect("it has these devices");
                let [ring, plain] = both(&topology);
                assert_eq!(ring, plain, "{id}");
                let most = (ring.count(), ring.count());
                let tree = |remember| search_by(&topology, Pattern::BalancedTree, most, NEW, remember);
                assert_eq!(tree(true), tree(false), "{id}");
            }
        }
    }

    /// Any ranks, edges and paths: the search asks for no more than that.
    fn topologies() -> impl Strategy<Value = Topology> {
        let speeds = prop::sample::select(vec![6.0, 12.0, 20.0, 24.0, 40.0, 48.0, 60.0]);
        let edges = prop::collection::vec((speeds, any::<bool>()), 6..24);
        (2_usize..7, edges, any::<u64>(), any::<bool>(), 1_usize..4).prop_map(|(ranks, edges, seed, regular, longest)| {
            let edges: Vec<Edge> = (edges.into_iter().enumerate())
                .map(|(at, (gbps, pci))| Edge { from: at % ranks, to: 0, gbps, class: if pci { LinkClass::Pci } else { LinkClass::Sys } })
                .collect();
            let kinds = [PathType::Pix, PathType::Pxb, PathType::Phb, PathType::Sys];
            let path = |a: usize, b: usize| {
                let mut dice = seed.wrapping_add((a * 64 + b) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let mut roll = |sides: usize| {
                    dice = dice.rotate_left(23).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                    (dice >> 33) as usize % sides
                };
                // A regular machine has an edge out of, and one into, each rank.
                let mut way = vec![a % edges.len()];
                way.extend((0..roll(longest + 1)).map(|_| roll(edges.len())));
                if regular {
                    way = vec![a % edges.len(), (ranks + b) % edges.len()];
                }
                way.sort_unstable();
                way.dedup();
                let gbps = way.iter().map(|edge| edges[*edge].gbps).fold(f64::INFINITY, f64::min);
                Path { edges: way, gbps, kind: kinds[roll(4)], through_intel: roll(2) == 0 }
            };
            let paths: Vec<Vec<Path>> = (0..ranks).map(|a| (0..ranks).map(|b| path(a, b)).collect()).collect();
            Topology {
                vertices: vec![Vertex::Gpu; ranks],
                ranks: (0..ranks).collect(),
                devices: (0..ranks as u32).collect(),
                distances: Vec::new(),
                paths,
                edges,
                vendor: if seed.is_multiple_of(2) { CpuVendor::Amd } else { CpuVendor::Intel },
                compute_capability: (120, 120),
                peer_access: PeerAccess::Direct,
            }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn what_is_remembered_changes_nothing(topology in topologies()) {
            let [ring, plain] = both(&topology);
            prop_assert_eq!(ring, plain);
        }
    }
}
