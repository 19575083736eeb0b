//! One trace as it streams by: each rank's time told apart into compute,
//! transfer, skew, gaps; and the critical path.
//!
//! Rows may come rank by rank or operation by operation. A rank's rows wait in
//! a queue until the collective before them has seen all its ranks; only then
//! is known who was last. What waits is bounded.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::rc::Rc;

use crate::compare::names::Key;
use crate::compare::names::Names;
use crate::compare::pass::Op;
use crate::compare::pass::PassState;
use crate::compare::sequence::Sequence;
use crate::compare::sequence::sort_of;
use crate::compare::spent::Portion;
use crate::compare::spent::Spent;
use crate::compare::spent::Tip;
use crate::compare::totals::RankTotal;
use crate::compare::totals::Settled;
use crate::compare::totals::Totals;
use crate::error::Fault;
use crate::error::Result;
use crate::trace::record::Kind;
use crate::trace::row::Row;

/// Rows that may wait for ranks that come later in the file.
const WAITING_MAX: usize = 400_000;
/// Passes that may be open at once.
const OPEN_PASSES_MAX: usize = 64;
/// Ranks of a trace.
const RANKS_MAX: u32 = 4096;

/// The account of one trace.
pub struct Side {
    name: String,
    /// Ranks that the header promises, 0 when it does not.
    expected: usize,
    sequence: bool,
    open: BTreeMap<u32, PassState>,
    /// Pass number of the file → how-manyth.
    order: BTreeMap<u32, u32>,
    waiting: usize,
    ledger_of: HashMap<(u32, u64), (String, u64)>,
    /// The sums so far.
    pub totals: Totals,
    /// What was settled and not yet taken.
    pub settled: Vec<Settled>,
    /// Slots for what no operation takes.
    start_slot: u32,
    end_slot: u32,
}

impl Side {
    /// An empty account; `ranks` as the header has it, `sequence` when
    /// operations are known by their order and not by their names.
    pub fn new(name: &str, ranks: usize, sequence: bool, names: &mut Names) -> Side {
        Side {
            name: name.to_owned(),
            expected: ranks,
            sequence,
            open: BTreeMap::new(),
            order: BTreeMap::new(),
            waiting: 0,
            ledger_of: HashMap::new(),
            totals: Totals::default(),
            settled: Vec::new(),
            start_slot: names.slot("start of the pass", None, Kind::Launch),
            end_slot: names.slot("end of the pass", None, Kind::Skew),
        }
    }

    /// Takes a row of pass `only`, or of any.
    ///
    /// # Errors
    /// `compare-order` when too much would have to wait, or a pass comes back
    /// after it was left; `compare-ranks` above 4,096 ranks.
    pub fn push(&mut self, row: &Row<'_>, only: Option<u32>, names: &mut Names) -> Result<()> {
        if only.is_some_and(|only| only != row.pass) {
            return Ok(());
        }
        if row.rank >= RANKS_MAX {
            return Err(Fault::new(
                "compare-ranks",
                format!("{} has a rank {}, at most {RANKS_MAX} ranks are compared", self.name, row.rank),
            ));
        }
        let next = self.order.len() as u32;
        let pass = *self.order.entry(row.pass).or_insert(next);
        if pass == next {
            self.open.insert(pass, PassState::default());
            while self.open.len() > OPEN_PASSES_MAX {
                self.finish_first(names);
            }
        }
        self.totals.rows += 1;
        let (mut key, slot) = names.of(row);
        let Some(state) = self.open.get_mut(&pass) else {
            return Err(Fault::new(
                "compare-order",
                format!("{} comes back to pass {} after {OPEN_PASSES_MAX} others", self.name, row.pass),
            )
            .help("sort the rows by pass"));
        };
        if self.sequence {
            key = state.sequence(row.rank).key(row, names);
        }
        let op = Op {
            key,
            slot,
            kind: row.kind,
            start: row.start.0,
            end: row.end.0,
            bytes: row.bytes,
            busy: row.busy().map_or(u64::MAX, |busy| busy.0),
        };
        if row.kind == Kind::Communication {
            self.ledger_of.entry((slot, row.bytes)).or_insert_with(|| {
                // By order, names and the counting of bytes differ: the sort is what both have.
                let key = if self.sequence {
                    (sort_of(&format!("{} {}", row.op, row.name)).1.to_owned(), 0)
                } else {
                    (names.slot_of(slot).name.clone(), row.bytes)
                };
                let ledger = self.totals.ledger.entry(key.clone()).or_default();
                if ledger.source.is_empty() {
                    ledger.source = source_of(row);
                }
                key
            });
        }
        state.push(row.rank, op);
        self.waiting += 1;
        if self.waiting > WAITING_MAX {
            return Err(Fault::new("compare-order", format!("{}: more than {WAITING_MAX} rows wait for ranks that come later", self.name))
                .help("sort the rows of each pass by start, so that the ranks' rows lie side by side"));
        }
        self.advance(pass, row.rank, false);
        Ok(())
    }

    /// Finishes all passes.
    pub fn finish(&mut self, names: &mut Names) {
        while !self.open.is_empty() {
            self.finish_first(names);
        }
    }

    fn finish_first(&mut self, names: &mut Names) {
        let Some(pass) = self.open.keys().next().copied() else { return };
        let ranks: Vec<u32> = self.open[&pass].ranks.keys().copied().collect();
        for &rank in &ranks {
            self.advance(pass, rank, true);
        }
        while let Some(key) = self.open.get(&pass).and_then(PassState::next_to_force) {
            for rank in self.complete(pass, key) {
                self.advance(pass, rank, true);
            }
        }
        if let Some(mut state) = self.open.remove(&pass) {
            state.take_groups(&mut self.settled);
            self.close(&state, names);
        }
    }

    /// Takes a rank as far as it can go.
    fn advance(&mut self, pass: u32, rank: u32, all: bool) {
        let mut ranks = vec![rank];
        while let Some(rank) = ranks.pop() {
            loop {
                let expected = self.expected;
                let Some(state) = self.open.get_mut(&pass) else { return };
                let Some(op) = state.front(rank, all) else { break };
                if op.kind == Kind::Communication {
                    if state.arrive(rank, &op) == expected && expected > 0 {
                        let done = self.complete(pass, op.key);
                        ranks.extend(done.into_iter().filter(|&other| other != rank));
                        continue;
                    }
                    break;
                }
                let (gap, own, under) = state.take(rank, &op);
                self.waiting -= 1;
                let mut spent = Spent::default();
                spent[Portion::Launch as usize] = gap;
                spent[Portion::of(op.kind) as usize] += own;
                self.totals.overlap += under;
                self.settle(pass, rank, &op, spent);
            }
        }
    }

    /// A collective whose ranks have all come; returns them.
    fn complete(&mut self, pass: u32, key: Key) -> Vec<u32> {
        let Some(state) = self.open.get_mut(&pass) else { return Vec::new() };
        let arrivals = state.instances.remove(&key).unwrap_or_default();
        let Some(&(last, winner)) = arrivals.iter().max_by_key(|(at, rank)| (*at, std::cmp::Reverse(*rank))) else { return Vec::new() };
        let before = arrivals.iter().filter(|(_, rank)| *rank != winner).map(|(at, _)| *at).max();
        let path = state.path_at(winner, last);
        let path = Rc::new(path);
        let mut waited = 0;
        let ranks: Vec<u32> = arrivals.iter().map(|(_, rank)| *rank).collect();
        for &rank in &ranks {
            let Some(state) = self.open.get_mut(&pass) else { return ranks };
            let Some(op) = state.leave(rank) else { continue };
            let account = state.rank(rank);
            let from = account.frontier.max(op.start);
            let (gap, own) = (from - account.frontier, op.end.saturating_sub(from));
            let skew = own.min(last - from);
            let transfer = own - skew;
            if op.end > last {
                account.tip = Tip::from(&path);
                account.tip.extend(op.slot, 0, op.end - last);
            } else {
                account.tip.extend(op.slot, gap, own);
            }
            account.frontier = account.frontier.max(op.end);
            waited += skew;
            self.waiting -= 1;
            self.totals.overlap += (op.end - op.start).saturating_sub(own);
            let mut spent = Spent::default();
            spent[Portion::Launch as usize] = gap;
            spent[Portion::Skew as usize] = skew;
            spent[Portion::Transfer as usize] = transfer;
            self.book(&op, skew, transfer);
            self.settle(pass, rank, &op, spent);
        }
        let late = self.totals.ranks.entry(winner).or_default();
        late.caused += waited;
        note_latest(late, last - before.unwrap_or(last), key);
        ranks
    }

    fn book(&mut self, op: &Op, skew: u64, transfer: u64) {
        let ledger = self.ledger_of.get(&(op.slot, op.bytes)).and_then(|key| self.totals.ledger.get_mut(key));
        if let Some(ledger) = ledger {
            ledger.count += 1;
            ledger.duration += op.end - op.start;
            ledger.skew += skew;
            ledger.transfer += transfer;
        }
    }

    fn settle(&mut self, pass: u32, rank: u32, op: &Op, spent: Spent) {
        let Some(state) = self.open.get_mut(&pass) else { return };
        let account = state.rank(rank);
        let place = account.places;
        account.places += 1;
        let settled = Settled { pass, rank, key: op.key, slot: op.slot, place, spent };
        self.totals.add(&settled);
        if self.sequence {
            Sequence::settle(&mut account.group, settled, &mut self.settled);
        } else {
            self.settled.push(settled);
        }
    }

    /// Adds what lies before the first and after the last operation of each rank.
    fn close(&mut self, state: &PassState, _names: &mut Names) {
        let begun = || state.ranks.iter().filter(|(_, account)| account.begun);
        let Some(origin) = begun().map(|(_, account)| account.first).min() else { return };
        let end = begun().map(|(_, account)| account.frontier).max().unwrap_or(origin);
        self.totals.passes += 1;
        self.totals.span += end - origin;
        for (rank, account) in begun() {
            self.totals.rank_passes += 1;
            for (slot, portion, ps) in
                [(self.start_slot, Portion::Launch, account.first - origin), (self.end_slot, Portion::Skew, end - account.frontier)]
            {
                self.totals.slot(slot).spent[portion as usize] += ps;
                self.totals.ranks.entry(*rank).or_default().spent[portion as usize] += ps;
            }
        }
        let Some((_, critical)) = begun().max_by_key(|(rank, account)| (account.frontier, std::cmp::Reverse(**rank))) else { return };
        let path = critical.tip.merged();
        self.totals.slot(self.start_slot).path.0 += path.root - origin;
        for (slot, (gap, own)) in path.slots.iter().enumerate() {
            let total = self.totals.slot(slot as u32);
            (total.path.0, total.path.1) = (total.path.0 + gap, total.path.1 + own);
        }
    }
}

fn note_latest(rank: &mut RankTotal, by: u64, key: Key) {
    if by > rank.latest.map_or(0, |(most, _)| most) {
        rank.latest = Some((by, key));
    }
}

/// The kernel, and what its row says about it.
fn source_of(row: &Row<'_>) -> String {
    let words = ["library", "algorithm", "protocol", "channels"].iter().filter_map(|key| row.detail(key));
    let mut text: String = row.name.chars().take(80).collect();
    for word in words {
        text.push(' ');
        text.push_str(word);
    }
    text
}
