//! One attempt of the graph search at given demands (`ncclTopoSearchRec`): rank after rank, channel after
//! channel, until its steps are used up.
//!
//! NCCL walks through equal situations again and again: other orders of the same ranks leave the same
//! bandwidth to the same ranks. What such a part of the walk does is remembered if it improved nothing: it
//! will improve nothing again, as the best only gets better, and take as many steps. So each situation is
//! walked through once, its steps are counted every time, and the graph is the one that NCCL finds.

use super::graph::Pattern;
use super::kinds::PathType;
use super::search::Search;
use super::search::TIME;
use super::search::TIME_SAME_CHANNELS;
use super::topology::LinkClass;
use super::topology::Topology;

/// Places for situations; a newer one takes the place of an older one.
const PLACES: usize = 1 << 13;

#[derive(Clone, Copy, PartialEq)]
enum Order {
    Pci,
    Replay,
    Free,
}

/// The paths of a topology as an attempt reads them.
pub(super) struct Descent {
    ranks: usize,
    /// Each path's edges, `[from * ranks + to]` into `edges` and `demands`.
    ranges: Vec<(u32, u32)>,
    edges: Vec<u32>,
    /// What a channel asks of each, in thousandths of a GB/s: NCCL keeps three decimals (`SUB_ROUND`).
    demands: Vec<i64>,
    /// Whether the path is near enough for this attempt.
    near: Vec<bool>,
    /// For each rank the others: widest path first, then shortest, then next in number.
    nearest_first: Vec<u32>,
    /// What each edge has, and has left.
    whole_mbps: Vec<i64>,
    left_mbps: Vec<i64>,
    /// What taking a path adds to `situation`, which stands for all that is taken.
    marks: Vec<u64>,
    situation: u64,
    /// Situations met and the steps that they took; None in the plain search.
    known: Option<Vec<(u64, u32)>>,
    attempts: u64,
    /// What each rank adds to a channel's mark, and what stands for its being first, second and last.
    rank_marks: Vec<[u64; 4]>,
    /// Per channel of `now`: up to which place its order has been read by the next one.
    read: Vec<usize>,
}

/// A channel that is being built.
struct Channel {
    order: Vec<u32>,
    met: Vec<bool>,
    /// Stands for the ranks met, whatever their order.
    mark: u64,
}

impl Channel {
    fn push(&mut self, rank: u32, mark: u64) {
        self.order.push(rank);
        self.met[rank as usize] = true;
        self.mark = self.mark.wrapping_add(mark);
    }

    fn pop(&mut self, rank: u32, mark: u64) {
        self.order.pop();
        self.met[rank as usize] = false;
        self.mark = self.mark.wrapping_sub(mark);
    }
}

impl Descent {
    /// Nothing taken. Without `remember` every situation is walked through.
    pub fn new(topology: &Topology, remember: bool) -> Descent {
        let ranks = topology.ranks.len();
        let (mut ranges, mut edges) = (Vec::with_capacity(ranks * ranks), Vec::new());
        for path in topology.paths.iter().flatten() {
            let first = edges.len() as u32;
            edges.extend(path.edges.iter().map(|edge| *edge as u32));
            ranges.push((first, edges.len() as u32));
        }
        let nearest_first = (0..ranks)
            .flat_map(|at| {
                let path = |rank: &u32| &topology.paths[at][*rank as usize];
                let mut others: Vec<u32> = (1..ranks).map(|step| ((at + step) % ranks) as u32).collect();
                others.sort_by(|a, b| path(b).gbps.total_cmp(&path(a).gbps).then(path(a).edges.len().cmp(&path(b).edges.len())));
                others
            })
            .collect();
        let whole_mbps: Vec<i64> = topology.edges.iter().map(|edge| milli(edge.gbps)).collect();
        Descent {
            ranks,
            demands: vec![0; edges.len()],
            near: vec![false; ranges.len()],
            marks: vec![0; ranges.len()],
            ranges,
            edges,
            nearest_first,
            left_mbps: whole_mbps.clone(),
            whole_mbps,
            situation: 0,
            rank_marks: (0..ranks as u64).map(|rank| [0, 1, 2, 3].map(|role| mixed((role + 2) << 32 | rank))).collect(),
            known: remember.then(|| vec![(0, 0); PLACES]),
            attempts: 0,
            read: Vec::new(),
        }
    }

    /// Sets what a channel of `gbps` asks for, on paths up to `farthest`.
    fn begin(&mut self, topology: &Topology, gbps: f64, farthest: PathType) {
        self.attempts += 1;
        self.left_mbps.clone_from(&self.whole_mbps);
        self.situation = mixed(self.attempts);
        // Peer writes through an Intel root complex travel in 64 B packets: 6/5 of the bandwidth.
        let (usual, slowed) = (milli(gbps), milli(gbps * 6.0 / 5.0));
        for (pair, path) in topology.paths.iter().flatten().enumerate() {
            self.near[pair] = path.kind <= farthest;
            let intel = path.through_intel && path.kind == PathType::Phb;
            let (first, last) = self.ranges[pair];
            let mut mark = 0u64;
            for place in first as usize..last as usize {
                let edge = self.edges[place] as usize;
                let demand = if intel && topology.edges[edge].class == LinkClass::Pci { slowed } else { usual };
                self.demands[place] = demand;
                mark = mark.wrapping_add(mixed(edge as u64).wrapping_mul(demand as u64));
            }
            // The links crossed so far are part of the situation.
            self.marks[pair] = mark.wrapping_add(mixed(1 << 40).wrapping_mul(u64::from(last - first)));
        }
    }

    fn fits(&self, pair: usize) -> bool {
        let (first, last) = self.ranges[pair];
        let (first, last) = (first as usize, last as usize);
        let mut hops = self.edges[first..last].iter().zip(&self.demands[first..last]);
        self.near[pair] && hops.all(|(&edge, &demand)| self.left_mbps[edge as usize] >= demand)
    }

    /// Takes the bandwidth of a path, or leaves all as it was (`ncclTopoFollowPath`); the links it crosses.
    fn take(&mut self, pair: usize) -> Option<u64> {
        // A path has each edge once, so that looking first and taking then is the same.
        if !self.fits(pair) {
            return None;
        }
        let (first, last) = self.ranges[pair];
        for place in first as usize..last as usize {
            self.left_mbps[self.edges[place] as usize] -= self.demands[place];
        }
        self.situation = self.situation.wrapping_add(self.marks[pair]);
        Some(u64::from(last - first))
    }

    fn give(&mut self, pair: usize) {
        let (first, last) = self.ranges[pair];
        for place in first as usize..last as usize {
            self.left_mbps[self.edges[place] as usize] += self.demands[place];
        }
        self.situation = self.situation.wrapping_sub(self.marks[pair]);
    }

    /// What decides how the walk goes on from a channel, but for the order between its second and last rank.
    fn key(&self, level: usize, channel: &Channel) -> u64 {
        let order = &channel.order;
        let role = |rank: u32, role: usize| self.rank_marks[rank as usize][role];
        let second = order.get(1).map_or(0, |second| role(*second, 2));
        let ends = role(order[0], 1) ^ second ^ role(order[order.len() - 1], 3);
        self.keyed(level, channel.mark ^ ends)
    }

    fn keyed(&self, level: usize, place: u64) -> u64 {
        mixed(self.situation.wrapping_add(place) ^ (level as u64) << 56).max(1)
    }

    /// The steps that the walk takes from there, where that is known.
    fn steps(&self, key: u64) -> Option<u32> {
        let (known, steps) = self.known.as_ref()?[(key >> 40) as usize % PLACES];
        (known == key).then_some(steps)
    }
}

impl Search<'_> {
    /// One search at the demands of `now`; true when it ended with the most channels allowed.
    pub(super) fn attempt(&mut self) -> bool {
        self.time = if self.now.same_channels { TIME_SAME_CHANNELS } else { TIME };
        self.now.channels.clear();
        self.now.hops = 0;
        self.descent.begin(self.topology, self.now.channel_gbps, self.now.type_intra);
        self.descent.read.clear();
        self.channel();
        self.time == -1
    }

    /// `ncclTopoSearchRec`: one more channel.
    fn channel(&mut self) {
        self.descent.read.push(0);
        if self.now.channels.is_empty() {
            self.start(0, Order::Pci);
        } else if let Some(first) = self.now.channels.last().and_then(|channel| channel.first()).copied() {
            self.start(first as usize, Order::Replay);
        }
        if !self.now.same_channels || self.now.channels.is_empty() {
            // What the channels before this one leave decides alone.
            let key = self.descent.keyed(self.now.channels.len(), 1);
            self.once(key, |search| {
                for rank in 0..search.descent.ranks {
                    search.start(rank, Order::Free);
                }
                true
            });
        }
        self.descent.read.pop();
    }

    fn start(&mut self, rank: usize, order: Order) {
        if self.time <= 0 {
            return;
        }
        let ranks = self.descent.ranks;
        let mut channel = Channel { order: Vec::with_capacity(ranks), met: vec![false; ranks], mark: 0 };
        channel.push(rank as u32, self.descent.rank_marks[rank][0]);
        self.extend(&mut channel, order);
    }

    /// `ncclTopoSearchRecGpu`: the next rank of a channel.
    fn extend(&mut self, channel: &mut Channel, order: Order) {
        if self.time <= 0 {
            return;
        }
        let length = channel.order.len();
        // The last few ranks are walked faster than they are looked up.
        let worthwhile = order == Order::Free && length + 2 <= self.descent.ranks;
        if !worthwhile || self.descent.known.is_none() {
            return self.walk(channel, order);
        }
        let level = self.now.channels.len();
        let key = self.descent.key(level, channel);
        self.once(key, |search| {
            let before = std::mem::take(&mut search.descent.read[level]);
            search.walk(channel, order);
            let read = search.descent.read[level];
            search.descent.read[level] = read.max(before);
            // The first two ranks and the last are part of the key.
            read <= 1 || length <= 3
        });
    }

    /// Takes a walk, or the steps that it is known to take. `walk` says whether the
    /// key has all that it has seen.
    fn once(&mut self, key: u64, walk: impl FnOnce(&mut Self) -> bool) {
        if self.time <= 0 {
            return;
        }
        if let Some(steps) = self.descent.steps(key) {
            self.time = (self.time - i64::from(steps)).max(0);
            return;
        }
        let (before, best) = (self.time, (self.best.count(), self.best.total_gbps(), self.best.hops));
        let told = walk(self);
        let improved = best != (self.best.count(), self.best.total_gbps(), self.best.hops);
        if told
            && self.time > 0
            && !improved
            && let (Some(known), Ok(steps)) = (&mut self.descent.known, u32::try_from(before - self.time))
        {
            known[(key >> 40) as usize % PLACES] = (key, steps);
        }
    }

    fn walk(&mut self, channel: &mut Channel, order: Order) {
        self.time -= 1;
        let ranks = self.descent.ranks;
        let length = channel.order.len();
        let at = channel.order[length - 1] as usize;
        if length == ranks {
            let pair = at * ranks + channel.order[0] as usize;
            if self.now.pattern != Pattern::Ring {
                self.complete(channel);
            } else if let Some(hops) = self.descent.take(pair) {
                self.now.hops += hops;
                self.complete(channel);
                self.now.hops -= hops;
                self.descent.give(pair);
            }
            return;
        }
        match order {
            Order::Pci => self.visit(channel, order, at, length),
            Order::Replay => {
                let level = self.now.channels.len() - 1;
                let previous = self.now.channels[level].get(length).copied();
                let read = &mut self.descent.read[level];
                *read = length.max(*read);
                if let Some(next) = previous {
                    self.visit(channel, order, at, next as usize);
                }
            }
            Order::Free => {
                for place in at * (ranks - 1)..(at + 1) * (ranks - 1) {
                    let next = self.descent.nearest_first[place] as usize;
                    if !channel.met[next] {
                        self.visit(channel, order, at, next);
                    }
                }
            }
        }
    }

    fn visit(&mut self, channel: &mut Channel, order: Order, at: usize, next: usize) {
        let pair = at * self.descent.ranks + next;
        if let Some(hops) = self.descent.take(pair) {
            self.now.hops += hops;
            let mark = self.descent.rank_marks[next][0];
            channel.push(next as u32, mark);
            self.extend(channel, order);
            channel.pop(next as u32, mark);
            self.now.hops -= hops;
            self.descent.give(pair);
        }
    }

    /// A channel is complete: keep the graph if it is better, and look for another channel.
    fn complete(&mut self, channel: &Channel) {
        if self.time <= 0 {
            return;
        }
        self.time -= 1;
        self.now.channels.push(channel.order.clone());
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
}

fn milli(gbps: f64) -> i64 {
    libm::round(gbps * 1000.0) as i64
}

/// A number that no other small number gives (SplitMix64's finisher).
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
