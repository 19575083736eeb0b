//! The links that a program runs on, and the routes over them.

use super::timed::index32;

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
        let start = index32(self.hops.len());
        self.hops.extend_from_slice(links);
        self.routes.push((start, index32(self.hops.len())));
        index32(self.routes.len() - 1)
    }

    /// The links of a route.
    pub fn links(&self, route: u32) -> &[u32] {
        let (start, end) = self.routes[route as usize];
        &self.hops[start as usize..end as usize]
    }
}
