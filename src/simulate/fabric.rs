//! Directed links shared max-min fairly by flows.
//!
//! A flow has a route, bytes and a cap (the rate at which its source can feed
//! it). Flows of equal route and cap always run at the same rate: they are one
//! [`Bundle`], which counts the bytes that each of its flows has been served
//! and ends a flow when that count reaches its target. As long as the caps on
//! every link fit, each flow runs at its cap and nothing else is touched; a
//! link that is asked for more than it has makes its component be solved, once
//! an instant (`share`). Work is kept in units of 10^-12 bytes, so that
//! rate × time is exact; ends round up.

use std::collections::BTreeMap;

use super::timed::index32;

pub use super::network::Collapse;
pub use super::network::Network;

pub(super) const PICO: u128 = 1_000_000_000_000;

/// A directed link, or a collapse pattern, which is one more link that all of
/// its flows cross and that has a capacity only while the pattern is met.
#[derive(Clone, Debug, Default)]
pub(super) struct Link {
    pub capacity: u64,
    /// Sum of the caps of its flows.
    pub asked: u128,
    /// Flows on it.
    pub flows: u64,
    /// Bundles that cross it, for `narrowed`.
    pub bundles: Vec<u32>,
    /// Those with flows, where the solver has to look at it; in no order that matters.
    pub active: Vec<u32>,
    /// Its flows must be solved at the end of the instant.
    pub dirty: bool,
    /// It is asked for more than it has.
    pub over: bool,
    /// Scratch of the solver: visited, capacity left, flows not yet settled.
    pub seen: bool,
    pub free: u64,
    pub open: u64,
}

/// Flows of one route and cap.
#[derive(Clone, Debug, Default)]
pub(super) struct Bundle {
    /// Bytes per second that the source of each flow can feed.
    pub cap: u64,
    /// Bytes per second that each flow gets.
    pub rate: u64,
    /// What each flow has been served since the bundle woke, in 10^-12 bytes.
    pub served: u128,
    /// When `served` was true.
    pub since: u64,
    /// When the next flow ends, as last told.
    pub end: u64,
    /// Target in terms of `served`, slot, and for how many flows it stands; the next to end is last.
    pub flows: Vec<(u128, u32, u32)>,
    /// Flows under way, all that they stand for.
    pub count: u64,
    /// Range of the fabric's `hops`.
    pub hops: (u32, u32),
    /// Range of the fabric's `bounds`.
    pub bounds: (u32, u32),
    /// Flows that its links know of.
    counted: u64,
    /// Bytes of all flows so far.
    pub carried: u64,
    /// In the list of bundles whose end is to be told.
    pub changed: bool,
    /// Scratch of the solver.
    pub seen: bool,
    pub settled: bool,
    pub level: u64,
}

/// Which collapse patterns a route is part of: source and root as indices of
/// the pattern's counters.
#[derive(Clone, Copy, Debug)]
struct Membership {
    pattern: u32,
    source: u32,
    root: u32,
}

/// How many bundles write, by source and by root.
#[derive(Clone, Debug, Default)]
struct Pattern {
    sources: Vec<u32>,
    roots: Vec<u32>,
    sources_active: usize,
    roots_active: usize,
}

/// The state of the links.
#[derive(Clone, Debug, Default)]
pub struct Fabric {
    pub(super) bundles: Vec<Bundle>,
    pub(super) links: Vec<Link>,
    /// Links of all bundles, one bundle after another.
    pub(super) hops: Vec<u32>,
    /// Of those the ones that the solver has to look at, see `narrowed`.
    pub(super) bounds: Vec<u32>,
    pub(super) dirty: Vec<u32>,
    pub(super) changed: Vec<u32>,
    /// Scratch of the solver: a component's links and bundles.
    pub(super) component_links: Vec<u32>,
    pub(super) component_bundles: Vec<u32>,
    known: BTreeMap<(u32, u64), u32>,
    memberships: Vec<Vec<Membership>>,
    patterns: Vec<Pattern>,
    pub(super) network: Network,
}

impl Fabric {
    /// Links at rest.
    pub fn new(network: &Network) -> Fabric {
        let real = network.capacity.iter().copied();
        let links = real.chain(network.collapses.iter().map(|_| u64::MAX));
        Fabric {
            links: links.map(|capacity| Link { capacity, ..Link::default() }).collect(),
            patterns: vec![Pattern::default(); network.collapses.len()],
            network: network.clone(),
            ..Fabric::default()
        }
    }

    /// The bundle of flows over `route` that their source feeds with at most
    /// `cap` bytes per second.
    pub fn bundle(&mut self, route: u32, cap: u64) -> u32 {
        let links = self.network.links(route);
        let narrowest = links.iter().map(|&link| self.network.capacity[link as usize]).min().unwrap_or(u64::MAX);
        let cap = cap.min(narrowest).max(1);
        if let Some(&known) = self.known.get(&(route, cap)) {
            return known;
        }
        let bundle = index32(self.bundles.len());
        let start = index32(self.hops.len());
        self.hops.extend_from_slice(links);
        let mut memberships = Vec::new();
        for (index, collapse) in self.network.collapses.iter().enumerate() {
            let Some(&(_, source, root)) = collapse.routes.iter().find(|(known, _, _)| *known == route) else { continue };
            let source = place_of(collapse.routes.iter().map(|r| r.1), source);
            let root = place_of(collapse.routes.iter().map(|r| r.2), root);
            let pattern = &mut self.patterns[index];
            pattern.sources.resize(collapse.routes.len(), 0);
            pattern.roots.resize(collapse.routes.len(), 0);
            memberships.push(Membership { pattern: index32(index), source, root });
            self.hops.push(index32(self.network.capacity.len() + index));
        }
        self.memberships.push(memberships);
        let first = index32(self.bounds.len());
        self.bounds.extend_from_slice(&self.hops[start as usize..]);
        for &hop in &self.hops[start as usize..] {
            self.links[hop as usize].bundles.push(bundle);
        }
        let (hops, bounds) = ((start, index32(self.hops.len())), (first, index32(self.bounds.len())));
        self.bundles.push(Bundle { cap, hops, bounds, ..Bundle::default() });
        self.known.insert((route, cap), bundle);
        bundle
    }

    /// Starts `count` flows of `bytes`, at least one, at `now`, which all do the
    /// same; `slot` is handed back at their end, which is told by the next [`Fabric::solve`].
    pub fn start(&mut self, bundle: u32, (slot, count): (u32, u32), bytes: u64, now: u64) {
        let at = &mut self.bundles[bundle as usize];
        if at.flows.is_empty() {
            (at.served, at.since, at.rate, at.end) = (0, now, at.cap, u64::MAX);
        } else {
            at.serve_until(now);
        }
        let flow = (at.served + u128::from(bytes) * PICO, slot, count);
        // Few flows, and most arrive in the order of their ends: search from the front.
        let place = at.flows.iter().position(|&other| other <= flow).unwrap_or(at.flows.len());
        at.flows.insert(place, flow);
        at.count += u64::from(count);
        at.carried += bytes * u64::from(count);
        mark_changed(&mut self.changed, at, bundle);
    }

    /// Ends the flows of a bundle that end at `now`, the time that was told;
    /// each one's slot is added to `ended`. Nothing happens where another end
    /// has been told since.
    pub fn finish(&mut self, bundle: u32, now: u64, ended: &mut Vec<u32>) {
        let at = &mut self.bundles[bundle as usize];
        if at.flows.is_empty() || at.end != now {
            return;
        }
        at.serve_until(now);
        while let Some(&(target, slot, count)) = at.flows.last()
            && target <= at.served
        {
            at.flows.pop();
            at.count -= u64::from(count);
            ended.push(slot);
        }
        mark_changed(&mut self.changed, at, bundle);
    }

    /// Solves the components in which a link is or was asked for too much, and
    /// tells each bundle whose next end is new.
    pub fn solve(&mut self, now: u64, mut tell: impl FnMut(u32, u64)) {
        for place in 0..self.changed.len() {
            self.count(self.changed[place]);
        }
        self.share(now);
        while let Some(bundle) = self.changed.pop() {
            let at = &mut self.bundles[bundle as usize];
            at.changed = false;
            let end = at.next_end();
            if end != at.end && !at.flows.is_empty() {
                tell(bundle, end);
            }
            at.end = end;
        }
    }

    /// Brings the links up to date with a bundle's flows, once an instant.
    fn count(&mut self, bundle: u32) {
        let at = &mut self.bundles[bundle as usize];
        let (before, after) = (at.counted, at.count);
        if before == after {
            return;
        }
        at.counted = after;
        let (cap, bounds) = (u128::from(at.cap), at.bounds);
        let (more, less) = (cap * u128::from(after), cap * u128::from(before));
        for &hop in &self.bounds[bounds.0 as usize..bounds.1 as usize] {
            let link = &mut self.links[hop as usize];
            link.asked = link.asked + more - less;
            link.flows = link.flows + after - before;
            mark_dirty(&mut self.dirty, link, hop);
            if before == 0 {
                link.active.push(bundle);
            } else if after == 0
                && let Some(place) = link.active.iter().position(|&other| other == bundle)
            {
                link.active.swap_remove(place);
            }
        }
        if before == 0 || after == 0 {
            self.count_in_patterns(bundle, before == 0);
        }
    }

    /// Bytes per second that flow over a link at this instant.
    pub fn used(&self, link: usize) -> u128 {
        let crosses = |bundle: &&Bundle| self.hops[bundle.hops.0 as usize..bundle.hops.1 as usize].contains(&index32(link));
        self.bundles.iter().filter(crosses).map(|bundle| u128::from(bundle.rate) * u128::from(bundle.count)).sum()
    }

    /// Bytes per second that each flow of a bundle gets.
    pub fn rate(&self, bundle: u32) -> u64 {
        self.bundles[bundle as usize].rate
    }

    /// Whether any flow is under way.
    pub fn is_busy(&self) -> bool {
        self.bundles.iter().any(|bundle| !bundle.flows.is_empty())
    }

    /// Bytes that each real link has been given to carry so far.
    pub fn carried(&self) -> Vec<u64> {
        let mut carried = vec![0; self.network.capacity.len()];
        for bundle in &self.bundles {
            for &hop in &self.hops[bundle.hops.0 as usize..bundle.hops.1 as usize] {
                if let Some(link) = carried.get_mut(hop as usize) {
                    *link += bundle.carried;
                }
            }
        }
        carried
    }

    /// A bundle wakes or falls asleep: patterns may be met or no longer met.
    fn count_in_patterns(&mut self, bundle: u32, wakes: bool) {
        for membership in &self.memberships[bundle as usize] {
            let index = membership.pattern as usize;
            let (pattern, collapse) = (&mut self.patterns[index], &self.network.collapses[index]);
            count_in(&mut pattern.sources[membership.source as usize], &mut pattern.sources_active, wakes);
            count_in(&mut pattern.roots[membership.root as usize], &mut pattern.roots_active, wakes);
            let met = pattern.sources_active >= collapse.sources_min && pattern.roots_active >= collapse.roots_min;
            let hop = self.network.capacity.len() + index;
            let link = &mut self.links[hop];
            link.capacity = if met { collapse.rate } else { u64::MAX };
            mark_dirty(&mut self.dirty, link, index32(hop));
        }
    }
}

impl Bundle {
    pub fn serve_until(&mut self, now: u64) {
        if now == self.since {
            return;
        }
        self.served += u128::from(self.rate) * u128::from(now - self.since);
        self.since = now;
    }

    fn next_end(&self) -> u64 {
        let Some(&(target, _, _)) = self.flows.last() else { return u64::MAX };
        let left = target.saturating_sub(self.served);
        let ps = match u64::try_from(left) {
            Ok(left) => left.div_ceil(self.rate),
            Err(_) => u64::try_from(left.div_ceil(u128::from(self.rate))).unwrap_or(u64::MAX),
        };
        // The largest time means that nothing has been told.
        self.since.saturating_add(ps).min(u64::MAX - 1)
    }
}

/// A change on a link matters to others when it is or was asked for too much.
fn mark_dirty(dirty: &mut Vec<u32>, link: &mut Link, index: u32) {
    let was_over = link.over;
    link.over = link.asked > u128::from(link.capacity);
    if (was_over || link.over) && !link.dirty {
        link.dirty = true;
        dirty.push(index);
    }
}

pub(super) fn mark_changed(changed: &mut Vec<u32>, bundle: &mut Bundle, index: u32) {
    if !bundle.changed {
        bundle.changed = true;
        changed.push(index);
    }
}

fn count_in(of: &mut u32, active: &mut usize, wakes: bool) {
    if wakes {
        *active += usize::from(*of == 0);
        *of += 1;
    } else {
        *of -= 1;
        *active -= usize::from(*of == 0);
    }
}

/// Where a value stands first among all.
fn place_of(mut all: impl Iterator<Item = u32>, value: u32) -> u32 {
    index32(all.position(|other| other == value).unwrap_or(0))
}
