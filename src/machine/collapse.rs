//! Which concurrent writes trigger a [`Collapse`].

use std::collections::BTreeSet;

use crate::machine::*;

impl Machine {
    /// For each collapse that these concurrent posted writes (source and target
    /// device) trigger: the collapse and the positions of the writes in it.
    /// They share [`Collapse::write_gbps`].
    pub fn collapsed<'a>(&'a self, writes: &[(usize, usize)]) -> Vec<(&'a Collapse, Vec<usize>)> {
        let mut found = Vec::new();
        for collapse in &self.collapses {
            let (mut sources, mut roots, mut members) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
            for (position, (source, target)) in writes.iter().enumerate() {
                let (from, to) = (self.root_of(*source), self.root_of(*target));
                if from != to && self.is_below(*source, &collapse.at) {
                    sources.insert(*source);
                    roots.insert(to);
                    members.push(position);
                }
            }
            if sources.len() >= collapse.sources_min as usize && roots.len() >= collapse.roots_min as usize && !members.is_empty() {
                found.push((collapse, members));
            }
        }
        found
    }

    /// The host bridge that a device hangs from.
    pub fn root_of(&self, device: usize) -> Option<NodeId> {
        let chain = self.ancestors(*self.gpus.get(device)?);
        chain.into_iter().find(|node| matches!(self.nodes[node.0].kind, NodeKind::RootPort))
    }

    /// Whether a device hangs from the switch or chip of that name.
    fn is_below(&self, device: usize, at: &str) -> bool {
        let Some(gpu) = self.gpus.get(device) else { return false };
        self.ancestors(*gpu).into_iter().any(|node| match &self.nodes[node.0] {
            Node { id, kind: NodeKind::Switch { chip } } => id == at || chip.as_deref() == Some(at),
            _ => false,
        })
    }
}
