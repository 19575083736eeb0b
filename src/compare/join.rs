//! Operations of two traces meet: matched as soon as both have been seen, the
//! rest listed.

use std::collections::HashMap;

use crate::compare::names::Key;
use crate::compare::spent::Spent;
use crate::compare::spent::add;
use crate::compare::totals::Settled;
use crate::error::Fault;
use crate::error::Result;

/// Operations that may wait for their counterpart.
const WAITING_MAX: usize = 400_000;
/// Largest single differences that are kept.
const LARGEST: usize = 12;

/// Sums of the matched operations of a slot (the first trace's slot).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairTotal {
    /// Pairs.
    pub count: u64,
    /// Time in both.
    pub spent: [Spent; 2],
}

/// A pair whose times differ much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// In both traces.
    pub ops: [Settled; 2],
}

impl Pair {
    /// Picoseconds by which the second takes longer, gaps and waiting included.
    pub fn difference(&self) -> i128 {
        let sum = |op: &Settled| op.spent.iter().map(|&ps| i128::from(ps)).sum::<i128>();
        sum(&self.ops[1]) - sum(&self.ops[0])
    }
}

struct Waiting {
    side: usize,
    first: Settled,
    more: Vec<Settled>,
}

/// Matches operations.
#[derive(Default)]
pub struct Joiner {
    waiting: HashMap<(u32, Key, u32), Waiting>,
    count: usize,
    /// By slot of the first trace.
    pub pairs: Vec<PairTotal>,
    /// Largest differences first.
    pub largest: Vec<Pair>,
    /// (side, pass, rank) → matched operations, and one past the last place of one.
    matched: HashMap<(usize, u32, u32), (u32, u32)>,
}

impl Joiner {
    /// Takes an operation of a side (0 or 1).
    ///
    /// # Errors
    /// `compare-order` when too many wait.
    pub fn push(&mut self, side: usize, op: Settled) -> Result<()> {
        let key = (op.pass, op.key, op.rank);
        match self.waiting.get_mut(&key) {
            Some(known) if known.side != side => {
                let other = known.first;
                if known.more.is_empty() {
                    self.waiting.remove(&key);
                } else {
                    known.first = known.more.remove(0);
                }
                self.count -= 1;
                let ops = if side == 1 { [other, op] } else { [op, other] };
                self.pair(Pair { ops });
            }
            Some(known) => {
                known.more.push(op);
                self.count += 1;
            }
            None => {
                self.waiting.insert(key, Waiting { side, first: op, more: Vec::new() });
                self.count += 1;
            }
        }
        if self.count > WAITING_MAX {
            return Err(Fault::new("compare-order", format!("more than {WAITING_MAX} operations wait for their counterpart"))
                .help("sort both traces by pass and start, or compare one pass of each (--passes 0,0)"));
        }
        Ok(())
    }

    fn pair(&mut self, pair: Pair) {
        let slot = pair.ops[0].slot as usize;
        if self.pairs.len() <= slot {
            self.pairs.resize(slot + 1, PairTotal::default());
        }
        self.pairs[slot].count += 1;
        for (sum, op) in self.pairs[slot].spent.iter_mut().zip(&pair.ops) {
            add(sum, &op.spent);
        }
        for (side, op) in pair.ops.iter().enumerate() {
            let matched = self.matched.entry((side, op.pass, op.rank)).or_default();
            *matched = (matched.0 + 1, matched.1.max(op.place + 1));
        }
        let size = pair.difference().unsigned_abs();
        if size > 0 && (self.largest.len() < LARGEST || self.largest.last().is_some_and(|least| size > least.difference().unsigned_abs())) {
            let place = self.largest.partition_point(|known| known.difference().unsigned_abs() >= size);
            self.largest.insert(place, pair);
            self.largest.truncate(LARGEST);
        }
    }

    /// How many operations of a rank's pass were matched, and one past the last place of one.
    pub fn matched(&self, side: usize, pass: u32, rank: u32) -> (u32, u32) {
        self.matched.get(&(side, pass, rank)).copied().unwrap_or_default()
    }

    /// What found no counterpart, in the order (side, pass, place, rank).
    pub fn rest(&mut self) -> [Vec<Settled>; 2] {
        let mut rest = [Vec::new(), Vec::new()];
        for waiting in std::mem::take(&mut self.waiting).into_values() {
            rest[waiting.side].push(waiting.first);
            rest[waiting.side].extend(waiting.more);
        }
        self.count = 0;
        for side in &mut rest {
            side.sort_unstable_by_key(|op| (op.pass, op.place, op.rank, op.key));
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(number: u32, place: u32, ps: u64) -> Settled {
        Settled { pass: 0, rank: 0, key: Key { pattern: 0, number }, slot: 0, place, spent: [ps, 0, 0, 0, 0] }
    }

    #[test]
    fn equal_ids_meet_first_with_first() {
        let mut joiner = Joiner::default();
        for one in [op(1, 0, 10), op(1, 1, 20), op(2, 2, 5)] {
            joiner.push(0, one).expect("few");
        }
        for one in [op(1, 0, 11), op(1, 1, 20), op(3, 2, 7)] {
            joiner.push(1, one).expect("few");
        }
        assert_eq!(joiner.pairs[0], PairTotal { count: 2, spent: [[30, 0, 0, 0, 0], [31, 0, 0, 0, 0]] });
        assert_eq!(joiner.largest.len(), 1, "the second pair does not differ");
        assert_eq!(joiner.matched(0, 0, 0), (2, 2));
        assert_eq!(joiner.rest(), [vec![op(2, 2, 5)], vec![op(3, 2, 7)]]);
    }
}
