//! The search for rings and trees (`ncclTopoCompute`), within one node.
//!
//! [S] ladders (search.cc:1051-1063), duplication (1036-1049), score (455-466), Intel's 6/5 through the root
//! complex (84-92), the fall-back (1289-1311). [D] the order in which speeds, path types and equal channels
//! are tried is written from knowledge of that file. Time is counted in steps as NCCL does, so that results
//! do not depend on the host.

use crate::machine::CpuVendor;

use super::graph::Graph;
use super::graph::Origin;
use super::graph::Pattern;
use super::kinds::PathType;
use super::tables;
use super::topology::LinkClass;
use super::topology::Path;
use super::topology::Topology;
use super::version::Version;

const TIME_GLOBAL: i64 = 1 << 19;
const TIME_SAME_CHANNELS: i64 = 1 << 8;
const TIME: i64 = 1 << 14;

/// Finds a graph of between `channels.0` and `channels.1` channels, or falls back.
pub fn search(topology: &Topology, pattern: Pattern, channels: (u32, u32), version: Version) -> Graph {
    let ranks = topology.ranks.len();
    if ranks < 2 {
        return Graph::given(pattern, ranks as u32, channels.0.max(1), 0.1, PathType::Loc);
    }
    let ladder = tables::ladder_gbps(topology.compute_capability.0, version);
    let mut search = Search::new(topology, pattern, channels);
    search.run(&ladder);
    let best = search.best;
    if best.channels.is_empty() {
        return Graph { pattern, ..Graph::fallback(pattern, ranks as u32) };
    }
    best
}

#[derive(Clone, Copy, PartialEq)]
enum Order {
    Pci,
    Replay,
    Free,
}

struct Search<'a> {
    topology: &'a Topology,
    /// What each edge has left, in thousandths of a GB/s: NCCL keeps three decimals (`SUB_ROUND`).
    left_mbps: Vec<i64>,
    /// What a channel asks of the edges of a path, and of one that an Intel root complex slows.
    demands: [Demand; 2],
    /// For each rank the others: widest path first, then shortest, then next in number.
    nearest_first: Vec<Vec<usize>>,
    least: u32,
    most: u32,
    /// Being built.
    now: Graph,
    /// The best so far.
    best: Graph,
    time: i64,
}

impl Search<'_> {
    fn new(topology: &Topology, pattern: Pattern, (least, most): (u32, u32)) -> Search<'_> {
        let empty = Graph { channels: Vec::new(), origin: Origin::Search, ..Graph::given(pattern, 0, 0, 0.0, PathType::Loc) };
        let left_mbps = whole(topology);
        let ranks = topology.ranks.len();
        let nearest_first = (0..ranks)
            .map(|at| {
                let path = |rank: &usize| &topology.paths[at][*rank];
                let mut others: Vec<usize> = (1..ranks).map(|step| (at + step) % ranks).collect();
                others.sort_by(|a, b| path(b).gbps.total_cmp(&path(a).gbps).then(path(a).edges.len().cmp(&path(b).edges.len())));
                others
            })
            .collect();
        Search {
            topology,
            left_mbps,
            demands: [Demand::default(); 2],
            nearest_first,
            least,
            most,
            now: empty.clone(),
            best: empty,
            time: 0,
        }
    }

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

    /// One search at the demands of `now`; true when it ended with the most channels allowed.
    fn attempt(&mut self) -> bool {
        self.time = if self.now.same_channels { TIME_SAME_CHANNELS } else { TIME };
        self.now.channels.clear();
        self.now.hops = 0;
        self.left_mbps = whole(self.topology);
        // Peer writes through an Intel root complex travel in 64 B packets: 6/5 of the bandwidth.
        let gbps = self.now.channel_gbps;
        let usual = Demand { pci: milli(gbps), other: milli(gbps) };
        self.demands = [usual, Demand { pci: milli(gbps * 6.0 / 5.0), ..usual }];
        self.channel();
        self.time == -1
    }

    /// `ncclTopoSearchRec`: one more channel.
    fn channel(&mut self) {
        if self.now.channels.is_empty() {
            self.start(0, Order::Pci);
        } else if let Some(first) = self.now.channels.last().and_then(|channel| channel.first()).copied() {
            self.start(first as usize, Order::Replay);
        }
        if !self.now.same_channels || self.now.channels.is_empty() {
            for rank in 0..self.topology.ranks.len() {
                self.start(rank, Order::Free);
            }
        }
    }

    fn start(&mut self, rank: usize, order: Order) {
        let mut channel = Vec::with_capacity(self.topology.ranks.len());
        channel.push(rank as u32);
        self.extend(&mut channel, order);
    }

    /// `ncclTopoSearchRecGpu`: the next rank of a channel.
    fn extend(&mut self, channel: &mut Vec<u32>, order: Order) {
        if self.time <= 0 {
            return;
        }
        self.time -= 1;
        let ranks = self.topology.ranks.len();
        let at = channel.last().map_or(0, |rank| *rank as usize);
        if channel.len() == ranks {
            let first = channel[0] as usize;
            if self.now.pattern != Pattern::Ring {
                self.complete(channel);
            } else if self.take(at, first) {
                self.complete(channel);
                self.give(at, first);
            }
            return;
        }
        match order {
            Order::Pci => self.visit(channel, order, at, channel.len()),
            Order::Replay => {
                let previous = self.now.channels.last().and_then(|last| last.get(channel.len())).copied();
                if let Some(next) = previous {
                    self.visit(channel, order, at, next as usize);
                }
            }
            Order::Free => {
                for place in 0..self.nearest_first[at].len() {
                    let next = self.nearest_first[at][place];
                    let reachable = self.topology.paths[at][next].kind <= self.now.type_intra;
                    if reachable && !channel.contains(&(next as u32)) {
                        self.visit(channel, order, at, next);
                    }
                }
            }
        }
    }

    fn visit(&mut self, channel: &mut Vec<u32>, order: Order, at: usize, next: usize) {
        if self.take(at, next) {
            channel.push(next as u32);
            self.extend(channel, order);
            channel.pop();
            self.give(at, next);
        }
    }

    /// A channel is complete: keep the graph if it is better, and look for another channel.
    fn complete(&mut self, channel: &[u32]) {
        if self.time <= 0 {
            return;
        }
        self.time -= 1;
        self.now.channels.push(channel.to_vec());
        let (count, best_count) = (self.now.count(), self.best.count());
        let (score, best_score) = (self.now.total_gbps(), self.best.total_gbps());
        let fewer_hops = score == best_score && self.now.pattern == self.best.pattern && self.now.hops < self.best.hops;
        if count >= self.least && (score > best_score || fewer_hops || best_count == 0) {
            self.best = self.now.clone();
            if count == self.most {
                self.time = -1;
            }
        }
        if count < self.most {
            self.channel();
        }
        self.now.channels.pop();
    }

    /// Takes the bandwidth of a path, or leaves all as it was (`ncclTopoFollowPath`).
    fn take(&mut self, from: usize, to: usize) -> bool {
        let topology = self.topology;
        let path = &topology.paths[from][to];
        if path.kind > self.now.type_intra {
            return false;
        }
        let demand = self.demand(path);
        // A path has each edge once, so that looking first and taking then is the same.
        if path.edges.iter().any(|&edge| self.left_mbps[edge] < demand.of(topology, edge)) {
            return false;
        }
        for &edge in &path.edges {
            self.left_mbps[edge] -= demand.of(topology, edge);
        }
        self.now.hops += path.edges.len() as u64;
        true
    }

    fn give(&mut self, from: usize, to: usize) {
        let topology = self.topology;
        let path = &topology.paths[from][to];
        let demand = self.demand(path);
        for &edge in &path.edges {
            self.left_mbps[edge] += demand.of(topology, edge);
        }
        self.now.hops -= path.edges.len() as u64;
    }

    fn demand(&self, path: &Path) -> Demand {
        self.demands[usize::from(path.through_intel && path.kind == PathType::Phb)]
    }
}

/// What one channel asks of the edges of a path, in thousandths of a GB/s.
#[derive(Clone, Copy, Default)]
struct Demand {
    pci: i64,
    other: i64,
}

impl Demand {
    fn of(self, topology: &Topology, edge: usize) -> i64 {
        if topology.edges[edge].class == LinkClass::Pci { self.pci } else { self.other }
    }
}

fn whole(topology: &Topology) -> Vec<i64> {
    topology.edges.iter().map(|edge| milli(edge.gbps)).collect()
}

fn milli(gbps: f64) -> i64 {
    libm::round(gbps * 1000.0) as i64
}
