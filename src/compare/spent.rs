//! What a rank's time goes to, and the path that decides when a pass ends.

use std::rc::Rc;

use crate::trace::record::Kind;

/// What a stretch of a rank's time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Portion {
    /// Kernels that compute.
    Compute,
    /// A collective from the last rank's arrival on.
    Transfer,
    /// Waiting for the rank that arrives last.
    Skew,
    /// Nothing runs: gaps between kernels, host launches.
    Launch,
    /// Copies, memsets, graphs shown as one block, and what is not known.
    Other,
}

impl Portion {
    /// All portions in order.
    pub const ALL: [Portion; 5] = [Portion::Compute, Portion::Transfer, Portion::Skew, Portion::Launch, Portion::Other];

    /// As files and reports name it.
    pub fn name(self) -> &'static str {
        match self {
            Portion::Compute => "compute",
            Portion::Transfer => "transfer",
            Portion::Skew => "skew",
            Portion::Launch => "launch gaps",
            Portion::Other => "other",
        }
    }

    /// What an operation's own time is, waiting aside.
    pub fn of(kind: Kind) -> Portion {
        match kind {
            Kind::Compute => Portion::Compute,
            Kind::Communication => Portion::Transfer,
            Kind::Skew => Portion::Skew,
            Kind::Launch | Kind::Host => Portion::Launch,
            Kind::Copy | Kind::Memset | Kind::Graph | Kind::Other => Portion::Other,
        }
    }
}

/// Picoseconds by [`Portion`].
pub type Spent = [u64; 5];

/// Adds `more` to `spent`.
pub fn add(spent: &mut Spent, more: &Spent) {
    for (sum, one) in spent.iter_mut().zip(more) {
        *sum += one;
    }
}

/// The critical path to a point of a rank: which rank's start it begins with,
/// and per slot the gap before and the operation itself.
#[derive(Clone, Debug, Default)]
pub struct Path {
    /// Start of the first operation on it.
    pub root: u64,
    /// (gap, own) per slot.
    pub slots: Vec<(u64, u64)>,
}

/// A rank's end of the path: a base that ranks share, and what came since.
#[derive(Clone, Debug, Default)]
pub struct Tip {
    base: Rc<Path>,
    since: Vec<(u32, u64, u64)>,
}

impl Tip {
    /// A path that begins at `root`.
    pub fn at(root: u64) -> Tip {
        Tip { base: Rc::new(Path { root, slots: Vec::new() }), since: Vec::new() }
    }

    /// Goes on by a gap and an operation.
    pub fn extend(&mut self, slot: u32, gap: u64, own: u64) {
        match self.since.last_mut() {
            Some(last) if last.0 == slot => (last.1, last.2) = (last.1 + gap, last.2 + own),
            _ => self.since.push((slot, gap, own)),
        }
    }

    /// The whole path.
    pub fn merged(&self) -> Path {
        let mut path = Path::clone(&self.base);
        for &(slot, gap, own) in &self.since {
            let slot = slot as usize;
            if path.slots.len() <= slot {
                path.slots.resize(slot + 1, (0, 0));
            }
            path.slots[slot].0 += gap;
            path.slots[slot].1 += own;
        }
        path
    }

    /// A path that goes on from one that several ranks share.
    pub fn from(base: &Rc<Path>) -> Tip {
        Tip { base: Rc::clone(base), since: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_keeps_what_led_to_it() {
        let mut first = Tip::at(7);
        first.extend(2, 1, 10);
        first.extend(2, 1, 10);
        let shared = Rc::new(first.merged());
        let mut second = Tip::from(&shared);
        second.extend(0, 0, 5);
        let path = second.merged();
        assert_eq!((path.root, path.slots), (7, vec![(0, 5), (0, 0), (2, 20)]));
    }
}
