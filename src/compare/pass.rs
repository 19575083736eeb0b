//! One pass of one trace while its rows are read.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::collections::VecDeque;

use crate::compare::names::Key;
use crate::compare::sequence::Sequence;
use crate::compare::spent::Path;
use crate::compare::spent::Tip;
use crate::compare::totals::Settled;
use crate::trace::record::Kind;

/// Rows of a rank that wait so that small disorder can be put right.
const LAG: usize = 32;

/// A row without its texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// Id without the rank.
    pub key: Key,
    /// What it is summed under.
    pub slot: u32,
    /// What it is made of.
    pub kind: Kind,
    /// Picoseconds.
    pub start: u64,
    /// Picoseconds.
    pub end: u64,
    /// Bytes that it moves.
    pub bytes: u64,
    /// Kernels' own time within it; the rest is gaps.
    pub busy: u64,
}

/// One rank within a pass.
#[derive(Debug, Default)]
pub struct Account {
    queue: VecDeque<Op>,
    /// Latest end so far.
    pub frontier: u64,
    /// Start of the first operation.
    pub first: u64,
    /// Whether there was one.
    pub begun: bool,
    blocked: bool,
    /// How the rank came to where it is.
    pub tip: Tip,
    /// Operations so far.
    pub places: u32,
    sequence: Sequence,
    /// Operations that are joined as one; see [`Sequence`].
    pub group: Option<Settled>,
}

/// A pass that is open.
#[derive(Debug, Default)]
pub struct PassState {
    /// By rank.
    pub ranks: BTreeMap<u32, Account>,
    /// Collectives for which ranks wait: arrivals as (time, rank).
    pub instances: BTreeMap<Key, Vec<(u64, u32)>>,
    /// Operations of each collective that are in queues.
    queued: HashMap<Key, usize>,
}

impl PassState {
    /// A rank's account.
    pub fn rank(&mut self, rank: u32) -> &mut Account {
        self.ranks.entry(rank).or_default()
    }

    /// A rank's counter of operations.
    pub fn sequence(&mut self, rank: u32) -> &mut Sequence {
        &mut self.rank(rank).sequence
    }

    /// Adds a row behind those that start no later.
    pub fn push(&mut self, rank: u32, op: Op) {
        if op.kind == Kind::Communication {
            *self.queued.entry(op.key).or_default() += 1;
        }
        let account = self.rank(rank);
        // The one in front may be waited for by other ranks already: nothing goes before it.
        let least = usize::from(account.blocked);
        let mut place = account.queue.len();
        while place > least && account.queue[place - 1].start > op.start {
            place -= 1;
        }
        if place == account.queue.len() { account.queue.push_back(op) } else { account.queue.insert(place, op) }
    }

    /// The next operation of a rank, if it may be looked at.
    pub fn front(&mut self, rank: u32, all: bool) -> Option<Op> {
        let account = self.rank(rank);
        let op = *account.queue.front().filter(|_| all || account.queue.len() > LAG)?;
        if !account.begun {
            (account.begun, account.first, account.frontier) = (true, op.start, op.start);
            account.tip = Tip::at(op.start);
        }
        Some(op)
    }

    /// Takes the front of a rank's queue, which is no collective: the gaps
    /// before and within it, its own time, and what of it lies under others.
    pub fn take(&mut self, rank: u32, op: &Op) -> (u64, u64, u64) {
        let account = self.rank(rank);
        account.queue.pop_front();
        let from = account.frontier.max(op.start);
        let own = op.end.saturating_sub(from).min(op.busy);
        let gap = op.end.max(account.frontier) - account.frontier - own;
        account.tip.extend(op.slot, gap, own);
        let under = account.frontier.min(op.end).saturating_sub(op.start);
        account.frontier = account.frontier.max(op.end);
        (gap, own, under)
    }

    /// A rank stands before a collective; returns how many do.
    pub fn arrive(&mut self, rank: u32, op: &Op) -> usize {
        let account = self.ranks.entry(rank).or_default();
        let at = account.frontier.max(op.start);
        let arrivals = self.instances.entry(op.key).or_default();
        if !account.blocked {
            account.blocked = true;
            arrivals.push((at, rank));
        }
        arrivals.len()
    }

    /// The critical path to the arrival of a rank at the collective in front of it.
    pub fn path_at(&mut self, rank: u32, at: u64) -> Path {
        let account = self.rank(rank);
        let mut tip = account.tip.clone();
        if let Some(op) = account.queue.front() {
            tip.extend(op.slot, at - account.frontier, 0);
        }
        tip.merged()
    }

    /// Takes the collective in front of a rank.
    pub fn leave(&mut self, rank: u32) -> Option<Op> {
        let account = self.ranks.get_mut(&rank)?;
        account.blocked = false;
        let op = account.queue.pop_front()?;
        if let Some(count) = self.queued.get_mut(&op.key) {
            *count -= 1;
            if *count == 0 {
                self.queued.remove(&op.key);
            }
        }
        Some(op)
    }

    /// After the last row: the collective that goes on with the ranks it has.
    /// One that all its ranks have reached, else (ranks in different orders)
    /// the one that was reached first.
    pub fn next_to_force(&self) -> Option<Key> {
        let whole = self.instances.iter().find(|(key, arrivals)| self.queued.get(key) == Some(&arrivals.len()));
        let first = || self.instances.iter().min_by_key(|(key, arrivals)| (arrivals.iter().map(|(at, _)| *at).min(), **key));
        whole.or_else(first).map(|(key, _)| *key)
    }

    /// Hands over what was still being grouped.
    pub fn take_groups(&mut self, settled: &mut Vec<Settled>) {
        settled.extend(self.ranks.values_mut().filter_map(|account| account.group.take()));
    }
}
