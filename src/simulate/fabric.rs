//! Directed links shared max-min fairly by flows.
//!
//! A flow has a route, bytes and a cap (the rate at which its source can feed
//! it). As long as the caps on every link of a flow fit, each flow runs at its
//! cap and nothing else is touched. Only a link that is asked for more than it
//! has makes its component of flows be solved, once an instant. Work is kept in
//! units of 10^-12 bytes, so that rate × time is exact; ends round up.

/// A directed link's capacity, and the routes over links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// Bytes per second of each directed link.
    pub capacity: Vec<u64>,
    /// Links of all routes, one after another.
    pub hops: Vec<u32>,
    /// Range of `hops` of each route.
    pub routes: Vec<(u32, u32)>,
    /// Patterns of posted writes that collapse.
    pub collapses: Vec<Collapse>,
}

/// Posted writes that leave a switch from several sources for several roots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collapse {
    /// Routes that count, with their source and their root.
    pub routes: Vec<(u32, u32, u32)>,
    /// Distinct sources that must write at once.
    pub sources_min: usize,
    /// Distinct roots that they must leave for.
    pub roots_min: usize,
    /// What all of them together are left with, bytes per second.
    pub rate: u64,
}

impl Network {
    /// Adds a route over directed links and returns its index.
    pub fn route(&mut self, links: &[u32]) -> u32 {
        let start = super::timed::index32(self.hops.len());
        self.hops.extend_from_slice(links);
        self.routes.push((start, super::timed::index32(self.hops.len())));
        super::timed::index32(self.routes.len() - 1)
    }

    /// The links of a route.
    pub fn links(&self, route: u32) -> &[u32] {
        let (start, end) = self.routes[route as usize];
        &self.hops[start as usize..end as usize]
    }
}

/// A flow under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Its route.
    pub route: u32,
    /// Bytes per second that its source can feed.
    pub cap: u64,
    /// Bytes per second that it gets.
    pub rate: u64,
    /// Work left at `since`, in 10^-12 bytes.
    pub left: u128,
    /// When `left` was true.
    pub since: u64,
    /// When it will end at `rate`.
    pub end: u64,
    /// Bytes in all.
    pub bytes: u64,
    /// Whether it is under way.
    pub active: bool,
}

/// The state of the links. Slots of flows are given by the caller and never
/// depend on the order of insertion.
#[derive(Clone, Debug, Default)]
pub struct Fabric {
    /// Flows by slot.
    pub flows: Vec<Flow>,
    /// Bytes that each link has carried, for reports.
    pub carried: Vec<u64>,
    /// Sum of caps per link.
    asked: Vec<u64>,
    /// Slots of the flows on each link, in order.
    on_link: Vec<Vec<u32>>,
    /// Whether rates must be solved at the end of the instant.
    dirty: bool,
    /// Active flows per collapse pattern.
    collapsing: Vec<Vec<u32>>,
    scratch: Scratch,
}

#[derive(Clone, Debug, Default)]
struct Scratch {
    free: Vec<u64>,
    open: Vec<u32>,
    shared: Vec<u32>,
    changed: Vec<u32>,
}

const PICO: u128 = 1_000_000_000_000;

impl Fabric {
    /// Links at rest, room for `slots` flows.
    pub fn new(network: &Network, slots: usize) -> Fabric {
        let links = network.capacity.len();
        Fabric {
            flows: vec![Flow::default(); slots],
            carried: vec![0; links],
            asked: vec![0; links],
            on_link: vec![Vec::new(); links],
            dirty: false,
            collapsing: vec![Vec::new(); network.collapses.len()],
            scratch: Scratch { free: vec![0; links], ..Scratch::default() },
        }
    }

    /// Starts a flow of `bytes` in `slot` at `now`; its end is known after [`Fabric::solve`].
    pub fn start(&mut self, network: &Network, slot: u32, route: u32, bytes: u64, cap: u64, now: u64) {
        let links = network.links(route);
        let narrowest = links.iter().map(|&link| network.capacity[link as usize]).min().unwrap_or(u64::MAX);
        let cap = cap.min(narrowest).max(1);
        self.flows[slot as usize] =
            Flow { route, cap, rate: cap, left: u128::from(bytes) * PICO, since: now, end: u64::MAX, bytes, active: true };
        for &link in links {
            let link = link as usize;
            self.asked[link] += cap;
            self.dirty |= self.asked[link] > network.capacity[link];
            let place = self.on_link[link].partition_point(|&other| other < slot);
            self.on_link[link].insert(place, slot);
        }
        for (pattern, active) in network.collapses.iter().zip(&mut self.collapsing) {
            if pattern.routes.iter().any(|&(known, _, _)| known == route) {
                let place = active.partition_point(|&other| other < slot);
                active.insert(place, slot);
                self.dirty = true;
            }
        }
        let flow = &mut self.flows[slot as usize];
        flow.end = end_of(flow);
        self.scratch.changed.push(slot);
    }

    /// Ends the flow in `slot`.
    pub fn finish(&mut self, network: &Network, slot: u32) {
        let flow = self.flows[slot as usize];
        self.flows[slot as usize].active = false;
        for &link in network.links(flow.route) {
            let link = link as usize;
            self.dirty |= self.asked[link] > network.capacity[link];
            self.asked[link] -= flow.cap;
            self.carried[link] += flow.bytes;
            if let Ok(place) = self.on_link[link].binary_search(&slot) {
                self.on_link[link].remove(place);
            }
        }
        for active in &mut self.collapsing {
            if let Ok(place) = active.binary_search(&slot) {
                active.remove(place);
                self.dirty = true;
            }
        }
    }

    /// Solves rates if any link is asked for too much, and reports each flow
    /// whose end changed since the last call.
    pub fn solve(&mut self, network: &Network, now: u64, mut changed: impl FnMut(u32, u64)) {
        if self.dirty {
            self.dirty = false;
            self.share(network, now);
        }
        let mut list = std::mem::take(&mut self.scratch.changed);
        list.sort_unstable();
        list.dedup();
        for &slot in &list {
            let flow = &self.flows[slot as usize];
            if flow.active {
                changed(slot, flow.end);
            }
        }
        list.clear();
        self.scratch.changed = list;
    }

    /// Progressive filling: all flows rise together; a flow stops at its cap or
    /// when one of its links is full.
    fn share(&mut self, network: &Network, now: u64) {
        let mut open = std::mem::take(&mut self.scratch.open);
        open.clear();
        open.extend((0..super::timed::index32(self.flows.len())).filter(|&slot| self.flows[slot as usize].active));
        let limits = self.collapse_limits(network);
        self.scratch.free.copy_from_slice(&network.capacity);
        let mut free_of_pattern: Vec<u64> = limits.iter().map(|limit| limit.unwrap_or(u64::MAX)).collect();
        let mut level: Vec<(u32, u64)> = Vec::with_capacity(open.len());
        while !open.is_empty() {
            let bottleneck = self.narrowest(network, &open, &free_of_pattern);
            // Flows with a cap below the bottleneck's share are settled first.
            let capped: Vec<u32> = open.iter().copied().filter(|&slot| self.flows[slot as usize].cap <= bottleneck.share).collect();
            let settled = if capped.is_empty() { bottleneck.flows } else { capped };
            for &slot in &settled {
                let flow = &self.flows[slot as usize];
                let rate = flow.cap.min(bottleneck.share);
                for &link in network.links(flow.route) {
                    self.scratch.free[link as usize] -= rate.min(self.scratch.free[link as usize]);
                }
                for (active, free) in self.collapsing.iter().zip(&mut free_of_pattern) {
                    if active.binary_search(&slot).is_ok() {
                        *free -= rate.min(*free);
                    }
                }
                level.push((slot, rate.max(1)));
            }
            open.retain(|slot| settled.binary_search(slot).is_err());
        }
        self.scratch.open = open;
        level.sort_unstable();
        for (slot, rate) in level {
            self.set_rate(slot, rate, now);
        }
    }

    fn set_rate(&mut self, slot: u32, rate: u64, now: u64) {
        let flow = &mut self.flows[slot as usize];
        if flow.rate == rate {
            return;
        }
        let moved = u128::from(flow.rate) * u128::from(now - flow.since);
        flow.left = flow.left.saturating_sub(moved);
        flow.since = now;
        flow.rate = rate;
        flow.end = end_of(flow);
        self.scratch.changed.push(slot);
    }

    /// The link (or collapse pattern) with the smallest share among open flows.
    fn narrowest(&mut self, network: &Network, open: &[u32], free_of_pattern: &[u64]) -> Bottleneck {
        let mut best = Bottleneck { share: u64::MAX, flows: open.to_vec() };
        let mut links = std::mem::take(&mut self.scratch.shared);
        links.clear();
        links.extend(open.iter().flat_map(|&slot| network.links(self.flows[slot as usize].route)));
        links.sort_unstable();
        links.dedup();
        let is_open = |slot: &u32| open.binary_search(slot).is_ok();
        for &link in &links {
            let link = link as usize;
            let users = self.on_link[link].iter().filter(|slot| is_open(slot)).count() as u64;
            let share = self.scratch.free[link] / users.max(1);
            if users > 0 && share < best.share {
                best = Bottleneck { share, flows: self.on_link[link].iter().copied().filter(|slot| is_open(slot)).collect() };
            }
        }
        self.scratch.shared = links;
        for (active, &free) in self.collapsing.iter().zip(free_of_pattern) {
            let users: Vec<u32> = active.iter().copied().filter(|slot| is_open(slot)).collect();
            if free != u64::MAX && !users.is_empty() && free / (users.len() as u64) < best.share {
                best = Bottleneck { share: free / users.len() as u64, flows: users };
            }
        }
        best
    }

    /// The rate that each collapse pattern leaves, if its trigger is met.
    fn collapse_limits(&self, network: &Network) -> Vec<Option<u64>> {
        let count = |values: &mut Vec<u32>| {
            values.sort_unstable();
            values.dedup();
            values.len()
        };
        (network.collapses.iter().zip(&self.collapsing))
            .map(|(pattern, active)| {
                let known = |slot: &u32| pattern.routes.iter().find(|(route, _, _)| *route == self.flows[*slot as usize].route);
                let mut sources: Vec<u32> = active.iter().filter_map(known).map(|(_, source, _)| *source).collect();
                let mut roots: Vec<u32> = active.iter().filter_map(known).map(|(_, _, root)| *root).collect();
                (count(&mut sources) >= pattern.sources_min && count(&mut roots) >= pattern.roots_min).then_some(pattern.rate)
            })
            .collect()
    }
}

struct Bottleneck {
    share: u64,
    flows: Vec<u32>,
}

fn end_of(flow: &Flow) -> u64 {
    let ps = match u64::try_from(flow.left) {
        Ok(left) => left.div_ceil(flow.rate),
        Err(_) => u64::try_from(flow.left.div_ceil(u128::from(flow.rate))).expect("simulated time fits 213 days"),
    };
    flow.since + ps
}
