//! What a comparison says, in microseconds of the mean rank and pass.

use std::collections::BTreeMap;

use crate::compare::Input;
use crate::compare::belong;
use crate::compare::causes;
use crate::compare::causes::Cause;
use crate::compare::join::Joiner;
use crate::compare::names::Names;
use crate::compare::spent::Portion;
use crate::compare::spent::Spent;
use crate::compare::totals::Settled;
use crate::compare::totals::Totals;
use crate::trace::links::LinkLoad;
use crate::trace::record::Header;
use crate::trace::record::Kind;

/// Microseconds by [`Portion`].
pub type Micros = [f64; 5];

/// Something that has a time in both traces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Name of the operation, the kind, the rank or the layer.
    pub name: String,
    /// Layer, where the line is of one.
    pub layer: Option<u32>,
    /// Operations, all ranks and passes.
    pub count: [u64; 2],
    /// Time in both, by portion.
    pub spent: [Micros; 2],
    /// Time on the critical path, gaps before it included; NaN where the
    /// traces name operations differently.
    pub path: [f64; 2],
}

impl Line {
    /// Time in one trace.
    pub fn us(&self, side: usize) -> f64 {
        self.spent[side].iter().sum()
    }

    /// By how much the second takes longer.
    pub fn difference_us(&self) -> f64 {
        self.us(1) - self.us(0)
    }

    /// The same of one portion.
    pub fn portion_us(&self, portion: Portion) -> f64 {
        self.spent[1][portion as usize] - self.spent[0][portion as usize]
    }
}

/// One kind of collective in both traces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LedgerLine {
    /// Its name.
    pub name: String,
    /// Data of each.
    pub bytes: u64,
    /// How often in a pass on a rank.
    pub count: [f64; 2],
    /// Start to end, waiting included, a pass.
    pub duration_us: [f64; 2],
    /// Of it waiting for the last rank.
    pub skew_us: [f64; 2],
    /// Of it after the last arrival.
    pub transfer_us: [f64; 2],
    /// Who carried it out.
    pub source: [String; 2],
}

/// An operation that only one trace has.
#[derive(Clone, Debug, PartialEq)]
pub struct Unmatched {
    /// Which trace, 0 or 1.
    pub side: usize,
    /// How-manyth pass.
    pub pass: u32,
    /// Its id, rank included.
    pub op: String,
    /// What it is summed under.
    pub name: String,
    /// Its time, gap and waiting included.
    pub us: f64,
}

/// One of the largest single differences.
#[derive(Clone, Debug, PartialEq)]
pub struct Single {
    /// How-manyth pass.
    pub pass: u32,
    /// Id, rank included.
    pub op: String,
    /// Time in both, by portion.
    pub spent: [Micros; 2],
}

/// One trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// What it is called.
    pub name: String,
    /// Its `#` lines.
    pub header: Header,
    /// Rows.
    pub rows: u64,
    /// Ranks.
    pub ranks: usize,
    /// Passes.
    pub passes: u64,
    /// Mean pass, first start to last end.
    pub pass_us: f64,
    /// Of the mean rank, by portion; they add up to the pass.
    pub spent: Micros,
    /// Of the critical path, by portion; they add up to the pass.
    pub path: Micros,
    /// Operations under others of the same rank: counted once.
    pub overlap_us: f64,
}

/// Everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// The traces.
    pub sides: [Summary; 2],
    /// Were operations joined by order?
    pub by_order: bool,
    /// Matched operations by name, then what lies around them.
    pub operations: Vec<Line>,
    /// By kind of operation.
    pub kinds: Vec<Line>,
    /// By layer.
    pub layers: Vec<Line>,
    /// By rank, of that rank.
    pub ranks: Vec<Line>,
    /// Collectives.
    pub ledger: Vec<LedgerLine>,
    /// What only one trace has.
    pub unmatched: Vec<Unmatched>,
    /// Largest single differences.
    pub largest: Vec<Single>,
    /// What explains most of the difference, largest first.
    pub causes: Vec<Cause>,
    /// The simulator's parts of the critical path, where both traces have them.
    pub parts: Vec<(String, [f64; 2])>,
    /// Links of the machine, where both traces name them.
    pub links: Vec<[LinkLoad; 2]>,
}

impl Comparison {
    /// By how much the second pass takes longer.
    pub fn difference_us(&self) -> f64 {
        self.sides[1].pass_us - self.sides[0].pass_us
    }

    /// Share of a difference in that of the passes, percent; `None` where the passes are equal.
    pub fn share_pct(&self, us: f64) -> Option<f64> {
        let all = self.difference_us();
        (all.abs() > 5e-7).then(|| us / all * 100.0)
    }
}

/// Picoseconds of all ranks and passes into microseconds of one.
fn micros(spent: &Spent, count: u64) -> Micros {
    spent.map(|ps| ps as f64 / 1e6 / count.max(1) as f64)
}

/// Puts the sums of both sides together.
pub fn build(
    inputs: [Input; 2],
    headers: [Header; 2],
    totals: [Totals; 2],
    joiner: &Joiner,
    rest: &[Vec<Settled>; 2],
    names: &Names,
    by_order: bool,
) -> Comparison {
    let divisors = [totals[0].rank_passes, totals[1].rank_passes];
    let mut around = Around { names, totals: &totals, divisors, by_order };
    let lines = around.lines(joiner, rest);
    let mut comparison = Comparison {
        by_order,
        operations: group(&lines, |line| (line.name.clone(), None)),
        kinds: around.kinds(joiner),
        layers: group(&lines, |line| (line.layer.map_or(String::new(), |layer| format!("layer {layer}")), line.layer)),
        ranks: around.ranks(),
        ledger: ledger(&totals, divisors),
        unmatched: around.unmatched(rest),
        largest: around.largest(joiner),
        parts: belong::parts(&headers),
        links: belong::linked(&headers),
        ..Comparison::default()
    };
    comparison.layers.retain(|line| line.layer.is_some());
    comparison.sides = around.summaries(inputs, headers);
    comparison.causes = causes::find(&comparison, &lines, &around.late());
    comparison
}

/// What turns numbers back into names.
struct Around<'a> {
    names: &'a Names,
    totals: &'a [Totals; 2],
    divisors: [u64; 2],
    by_order: bool,
}

impl Around<'_> {
    /// One line a slot with matched operations, then what lies around operations.
    fn lines(&mut self, joiner: &Joiner, rest: &[Vec<Settled>; 2]) -> Vec<Line> {
        let mut lines = Vec::new();
        for slot in 0..self.names.slots() {
            let pair = joiner.pairs.get(slot).copied().unwrap_or_default();
            let known = self.names.slot_of(slot as u32);
            let is_edge = slot < 2;
            let spent = [0, 1].map(|side: usize| {
                let edge = self.totals[side].slots.get(slot).filter(|_| is_edge).map_or([0; 5], |total| total.spent);
                micros(if is_edge { &edge } else { &pair.spent[side] }, self.divisors[side])
            });
            let path = [0, 1].map(|side: usize| if self.by_order && !is_edge { f64::NAN } else { self.path_us(side, slot) });
            let line = Line { name: known.name.clone(), layer: known.layer, count: [pair.count; 2], spent, path };
            if pair.count > 0 || line.us(0) + line.us(1) > 0.0 {
                lines.push(line);
            }
        }
        for (side, rest) in rest.iter().enumerate() {
            let mut line = Line { name: format!("only in {}", ["A", "B"][side]), ..Line::default() };
            for op in rest {
                line.count[side] += 1;
                let us = micros(&op.spent, self.divisors[side]);
                for (sum, us) in line.spent[side].iter_mut().zip(us) {
                    *sum += us;
                }
            }
            if !rest.is_empty() {
                lines.push(line);
            }
        }
        lines
    }

    fn path_us(&self, side: usize, slot: usize) -> f64 {
        let total = self.totals[side].slots.get(slot).copied().unwrap_or_default();
        (total.path.0 + total.path.1) as f64 / 1e6 / self.totals[side].passes.max(1) as f64
    }

    fn kinds(&self, joiner: &Joiner) -> Vec<Line> {
        let mut kinds: BTreeMap<Kind, Line> = BTreeMap::new();
        for (slot, pair) in joiner.pairs.iter().enumerate().filter(|(_, pair)| pair.count > 0) {
            let kind = self.names.slot_of(slot as u32).kind;
            let line = kinds.entry(kind).or_insert_with(|| Line { name: kind.name().to_owned(), ..Line::default() });
            for side in 0..2 {
                line.count[side] += pair.count;
                let us = micros(&pair.spent[side], self.divisors[side]);
                line.spent[side].iter_mut().zip(us).for_each(|(sum, us)| *sum += us);
            }
        }
        for side in 0..2 {
            for slot in 0..self.totals[side].slots.len() {
                if let Some(line) = kinds.get_mut(&self.names.slot_of(slot as u32).kind) {
                    line.path[side] += self.path_us(side, slot);
                }
            }
        }
        kinds.into_values().collect()
    }

    fn ranks(&self) -> Vec<Line> {
        let mut ranks: BTreeMap<u32, Line> = BTreeMap::new();
        for (side, totals) in self.totals.iter().enumerate() {
            for (rank, total) in &totals.ranks {
                let line = ranks.entry(*rank).or_insert_with(|| Line { name: format!("rank {rank}"), ..Line::default() });
                line.count[side] = total.count;
                line.spent[side] = micros(&total.spent, totals.passes);
                line.path[side] = f64::NAN;
            }
        }
        ranks.into_values().collect()
    }

    /// Per rank: what others waited for it, what it was itself held up by, where it was latest.
    fn late(&self) -> Vec<causes::Late> {
        let ranks: std::collections::BTreeSet<u32> = self.totals.iter().flat_map(|totals| totals.ranks.keys().copied()).collect();
        let of = |side: usize, rank: u32| self.totals[side].ranks.get(&rank).copied().unwrap_or_default();
        ranks
            .into_iter()
            .map(|rank| {
                let caused = [0, 1].map(|side: usize| of(side, rank).caused as f64 / 1e6 / self.divisors[side].max(1) as f64);
                let own = [0, 1].map(|side: usize| micros(&of(side, rank).spent, self.totals[side].passes));
                let latest = of(1, rank).latest.map(|(by, key)| (by as f64 / 1e6, self.names.text(key, rank)));
                causes::Late { rank, caused, own, latest }
            })
            .collect()
    }

    fn unmatched(&self, rest: &[Vec<Settled>; 2]) -> Vec<Unmatched> {
        let one = |side: usize, op: &Settled| Unmatched {
            side,
            pass: op.pass,
            op: self.names.text(op.key, op.rank),
            name: self.names.slot_of(op.slot).name.clone(),
            us: op.spent.iter().sum::<u64>() as f64 / 1e6,
        };
        let of = |side: usize| rest[side].iter().map(move |op| one(side, op));
        of(0).chain(of(1)).collect()
    }

    fn largest(&self, joiner: &Joiner) -> Vec<Single> {
        (joiner.largest.iter())
            .map(|pair| Single {
                pass: pair.ops[0].pass,
                op: self.names.text(pair.ops[0].key, pair.ops[0].rank),
                spent: [micros(&pair.ops[0].spent, 1), micros(&pair.ops[1].spent, 1)],
            })
            .collect()
    }

    fn summaries(&self, inputs: [Input; 2], headers: [Header; 2]) -> [Summary; 2] {
        let mut summaries: [Summary; 2] = Default::default();
        for (side, ((input, header), summary)) in inputs.into_iter().zip(headers).zip(&mut summaries).enumerate() {
            let totals = &self.totals[side];
            let mut spent = Spent::default();
            totals.ranks.values().for_each(|rank| super::spent::add(&mut spent, &rank.spent));
            let mut path = Spent::default();
            for (slot, total) in totals.slots.iter().enumerate() {
                path[Portion::Launch as usize] += total.path.0;
                path[Portion::of(self.names.slot_of(slot as u32).kind) as usize] += total.path.1;
            }
            *summary = Summary {
                name: input.name,
                header,
                rows: totals.rows,
                ranks: totals.ranks.len(),
                passes: totals.passes,
                pass_us: totals.span as f64 / 1e6 / totals.passes.max(1) as f64,
                spent: micros(&spent, totals.rank_passes),
                path: micros(&path, totals.passes),
                overlap_us: totals.overlap as f64 / 1e6 / totals.rank_passes.max(1) as f64,
            };
        }
        summaries
    }
}

/// Lines of one key added up, in the order of first meeting.
fn group(lines: &[Line], key: impl Fn(&Line) -> (String, Option<u32>)) -> Vec<Line> {
    let mut groups: Vec<Line> = Vec::new();
    let mut places: BTreeMap<(String, Option<u32>), usize> = BTreeMap::new();
    for line in lines {
        let (name, layer) = key(line);
        let place = *places.entry((name.clone(), layer)).or_insert(groups.len());
        if place == groups.len() {
            groups.push(Line { name, layer, ..Line::default() });
        }
        let sum = &mut groups[place];
        for side in 0..2 {
            sum.count[side] += line.count[side];
            sum.path[side] += line.path[side];
            sum.spent[side].iter_mut().zip(line.spent[side]).for_each(|(sum, us)| *sum += us);
        }
    }
    groups
}

fn ledger(totals: &[Totals; 2], divisors: [u64; 2]) -> Vec<LedgerLine> {
    let mut lines: BTreeMap<(String, u64), LedgerLine> = BTreeMap::new();
    for (side, totals) in totals.iter().enumerate() {
        let divisor = divisors[side].max(1) as f64;
        for ((name, bytes), ledger) in &totals.ledger {
            let line = lines.entry((name.clone(), *bytes)).or_insert_with(|| LedgerLine {
                name: name.clone(),
                bytes: *bytes,
                ..LedgerLine::default()
            });
            line.count[side] = ledger.count as f64 / divisor;
            line.duration_us[side] = ledger.duration as f64 / 1e6 / divisor;
            line.skew_us[side] = ledger.skew as f64 / 1e6 / divisor;
            line.transfer_us[side] = ledger.transfer as f64 / 1e6 / divisor;
            line.source[side].clone_from(&ledger.source);
        }
    }
    lines.into_values().collect()
}
