//! Links that need no look.
//!
//! Links that the same bundles cross, as those one after another on the only
//! way to a GPU, are asked for the same at any time: the narrowest of them
//! binds before the others do.

use std::collections::BTreeMap;

use super::fabric::Fabric;
use super::timed::index32;

impl Fabric {
    /// The same links at rest, of which the solver looks only at those that can bind;
    /// to be taken once all bundles are known. All rates are the same as before.
    #[must_use]
    pub fn narrowed(mut self) -> Fabric {
        let mut narrowest: BTreeMap<&[u32], (u64, u32)> = BTreeMap::new();
        let real = self.network.capacity.len();
        for (index, link) in self.links[..real].iter().enumerate() {
            let known = narrowest.entry(&link.bundles).or_insert((u64::MAX, u32::MAX));
            *known = (*known).min((link.capacity, index32(index)));
        }
        let binding: Vec<bool> = (0..self.links.len())
            // A pattern has its capacity only at times.
            .map(|index| {
                index >= real || narrowest.get(self.links[index].bundles.as_slice()).is_some_and(|(_, kept)| *kept as usize == index)
            })
            .collect();
        let mut bounds = Vec::with_capacity(self.bounds.len());
        for bundle in &mut self.bundles {
            let first = index32(bounds.len());
            let links = &self.bounds[bundle.bounds.0 as usize..bundle.bounds.1 as usize];
            bounds.extend(links.iter().copied().filter(|link| binding[*link as usize]));
            bundle.bounds = (first, index32(bounds.len()));
        }
        self.bounds = bounds;
        self
    }
}
