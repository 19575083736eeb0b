//! Max-min fair rates of the flows that compete.

use super::fabric::Fabric;
use super::fabric::mark_changed;

impl Fabric {
    /// Solves each component of over-asked links that a dirty link is part of.
    pub(super) fn share(&mut self, now: u64) {
        while let Some(link) = self.dirty.pop() {
            if !self.links[link as usize].dirty {
                continue;
            }
            self.gather(link);
            self.fill();
            self.apply(now);
        }
    }

    /// Collects what hangs together with a link. A link that has all that it is
    /// asked for binds nobody, so components end there.
    fn gather(&mut self, link: u32) {
        self.component_links.clear();
        self.component_bundles.clear();
        self.component_links.push(link);
        self.links[link as usize].seen = true;
        let mut next = 0;
        while let Some(&link) = self.component_links.get(next) {
            next += 1;
            for place in 0..self.links[link as usize].active.len() {
                let bundle = self.links[link as usize].active[place];
                let at = &mut self.bundles[bundle as usize];
                if at.seen {
                    continue;
                }
                at.seen = true;
                self.component_bundles.push(bundle);
                for &hop in &self.bounds[at.bounds.0 as usize..at.bounds.1 as usize] {
                    let link = &mut self.links[hop as usize];
                    if !link.seen && (link.dirty || link.over) {
                        link.seen = true;
                        self.component_links.push(hop);
                    }
                }
            }
        }
    }

    /// Progressive filling: all flows rise together; a flow stops at its cap or
    /// when one of its links is full.
    fn fill(&mut self) {
        for &link in &self.component_links {
            let link = &mut self.links[link as usize];
            link.free = link.capacity;
            link.open = link.flows;
        }
        let mut open = self.component_bundles.len();
        let mut least_cap = 0;
        while open > 0 {
            // Of several links with the same share the first settles its flows.
            let share_of = |&index: &u32| {
                let link = &self.links[index as usize];
                (link.open > 0).then(|| (link.free / link.open, index))
            };
            let (share, narrowest) = self.component_links.iter().filter_map(share_of).min().unwrap_or((u64::MAX, u32::MAX));
            // Flows with a cap below the bottleneck's share come first.
            if least_cap <= share {
                let before = open;
                (open, least_cap) = self.settle_capped(open, share);
                if open < before {
                    continue;
                }
            }
            let Some(link) = self.links.get(narrowest as usize) else { return };
            for place in 0..link.active.len() {
                let bundle = self.links[narrowest as usize].active[place];
                if !self.bundles[bundle as usize].settled {
                    self.settle(bundle, share);
                    open -= 1;
                }
            }
        }
    }

    /// Settles all with a cap of at most `share`; how many stay open, and the
    /// least of their caps.
    fn settle_capped(&mut self, mut open: usize, share: u64) -> (usize, u64) {
        let mut least_cap = u64::MAX;
        for place in 0..self.component_bundles.len() {
            let bundle = self.component_bundles[place];
            let at = &self.bundles[bundle as usize];
            if at.settled {
                continue;
            }
            if at.cap <= share {
                self.settle(bundle, at.cap);
                open -= 1;
            } else {
                least_cap = least_cap.min(at.cap);
            }
        }
        (open, least_cap)
    }

    fn settle(&mut self, bundle: u32, rate: u64) {
        let at = &mut self.bundles[bundle as usize];
        at.settled = true;
        // What is left of a full link for one more flow may be less than a byte a second.
        at.level = rate.max(1);
        let count = at.count;
        for &hop in &self.bounds[at.bounds.0 as usize..at.bounds.1 as usize] {
            let link = &mut self.links[hop as usize];
            if link.seen {
                link.free -= rate * count;
                link.open -= count;
            }
        }
    }

    fn apply(&mut self, now: u64) {
        for &bundle in &self.component_bundles {
            let at = &mut self.bundles[bundle as usize];
            (at.seen, at.settled) = (false, false);
            if at.rate != at.level {
                at.serve_until(now);
                at.rate = at.level;
                mark_changed(&mut self.changed, at, bundle);
            }
        }
        debug_assert!(self.holds(), "no link carries more than its capacity");
        for &link in &self.component_links {
            let link = &mut self.links[link as usize];
            (link.seen, link.dirty) = (false, false);
        }
    }

    /// Whether each link of the component carries at most its capacity; a link
    /// with less than a byte a second for each flow is let off.
    fn holds(&self) -> bool {
        let link = |&index: &u32| &self.links[index as usize];
        let starved = self.component_links.iter().map(link).any(|link| link.capacity < link.flows);
        let fits = |&index: &u32| self.used(index as usize) <= u128::from(self.links[index as usize].capacity);
        starved || self.component_links.iter().all(fits)
    }
}
