//! A pass as a timeline, a row a rank: what each does when, and how long it
//! waits for the rank that arrives last.

use std::collections::BTreeMap;

use crate::compare::Portion;
use crate::render::bars::Row;
use crate::render::bars::Rows;
use crate::render::bars::Span;
use crate::render::bars::row_chart;
use crate::render::chart::Axis;
use crate::render::chart::Chart;
use crate::render::chart::Point;
use crate::render::chart::Series;
use crate::render::chart::line_chart;
use crate::render::drawing::both;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::trace::record::Kind;
use crate::trace::record::Record;

/// Stretches of the whole pass that one row shows; finer ones go to what fills most of the stretch.
const STRETCHES: usize = 240;
/// Ranks that are drawn.
const RANKS_MAX: usize = 16;

/// A stretch of one rank, microseconds from the start of the pass.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stretch {
    start: f64,
    end: f64,
    portion: Portion,
}

/// A pass taken apart for drawing.
pub struct Timeline {
    ranks: BTreeMap<u32, Vec<Stretch>>,
    /// Per collective: last arrival, spread of the arrivals, microseconds.
    spreads: Vec<(f64, f64)>,
    /// Per layer: from its first start to its last end.
    layers: BTreeMap<u32, (f64, f64)>,
    /// Waiting per layer, all ranks.
    waiting: BTreeMap<u32, f64>,
    end: f64,
}

impl Timeline {
    /// From the records of one pass; `None` without any.
    pub fn new(records: &[Record]) -> Option<Timeline> {
        let origin = records.iter().map(|record| record.start).min()?;
        let us = |time: crate::units::Time| time.saturating_sub(origin).us();
        let mut arrivals: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for record in records.iter().filter(|record| record.kind == Kind::Communication) {
            let at = us(record.start);
            let known = arrivals.entry(collective(record)).or_insert((at, at));
            *known = (known.0.min(at), known.1.max(at));
        }
        let mut timeline = Timeline { ranks: BTreeMap::new(), spreads: Vec::new(), layers: BTreeMap::new(), waiting: BTreeMap::new(), end: 0.0 };
        for record in records {
            let (start, end) = (us(record.start), us(record.end));
            timeline.end = timeline.end.max(end);
            let row = timeline.ranks.entry(record.rank).or_default();
            let last = arrivals.get(collective(record)).filter(|_| record.kind == Kind::Communication).map_or(start, |(_, last)| last.min(end));
            if last > start {
                row.push(Stretch { start, end: last, portion: Portion::Skew });
            }
            row.push(Stretch { start: last, end, portion: Portion::of(record.kind) });
            if let Some(layer) = record.layer {
                let known = timeline.layers.entry(layer).or_insert((start, end));
                *known = (known.0.min(start), known.1.max(end));
                *timeline.waiting.entry(layer).or_default() += last - start;
            }
        }
        timeline.spreads = arrivals.into_values().map(|(first, last)| (last, last - first)).collect();
        timeline.spreads.sort_by(|a, b| a.0.total_cmp(&b.0));
        Some(timeline)
    }

    /// The layer on which the ranks wait longest.
    pub fn most_waiting(&self) -> Option<u32> {
        self.waiting.iter().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(a.0))).map(|(layer, _)| *layer)
    }

    /// The whole pass, one layer from close by, and the spread of the arrivals.
    pub fn blocks(&self, layer: Option<u32>) -> Vec<Block> {
        let mut blocks = vec![both("The whole pass, a row a rank", |width| row_chart(&self.rows(0.0, self.end, "whole pass, ms", 1e3, STRETCHES), width))];
        if self.ranks.len() > RANKS_MAX {
            blocks.push(Block::Text(format!("The first {RANKS_MAX} of {} ranks.", self.ranks.len())));
        }
        let window = layer.and_then(|layer| Some((layer, *self.layers.get(&layer)?)));
        if let Some((layer, (start, end))) = window {
            let margin = (end - start) * 0.02;
            let (start, end) = ((start - margin).max(0.0), end + margin);
            let axis = format!("layer {layer}, us from the start of the pass");
            blocks.push(both(&format!("Layer {layer}, a row a rank"), |width| row_chart(&self.rows(start, end, &axis, 1.0, usize::MAX), width)));
        }
        if self.spreads.iter().any(|(_, spread)| *spread > 0.0) {
            let worst = self.spreads.iter().map(|(_, spread)| *spread).fold(0.0, f64::max);
            let mean = self.spreads.iter().map(|(_, spread)| *spread).sum::<f64>() / self.spreads.len().max(1) as f64;
            blocks.push(Block::Text(format!(
                "From the first rank's arrival to the last one's at each of {} collectives: {} us on average, {} us at most.",
                self.spreads.len(),
                Number::new(mean, 2),
                Number::new(worst, 2)
            )));
            blocks.push(both("Spread of the ranks' arrivals at each collective", |width| line_chart(&self.spread_chart(), width)));
        }
        blocks
    }

    fn spread_chart(&self) -> Chart {
        let points = self.spreads.iter().map(|(at, spread)| Point { x: at / 1e3, y: *spread, interval: None }).collect();
        Chart {
            title: String::new(),
            x: Axis { label: "in the pass, ms".to_owned(), log: false },
            y: Axis { label: "spread of arrivals, us".to_owned(), log: false },
            series: vec![Series { name: "each collective".to_owned(), points, joined: true, marked: self.spreads.len() < 200 }],
            named: 0,
            marks: Vec::new(),
        }
    }

    /// What lies between two times, in units of `unit` microseconds.
    fn rows(&self, from: f64, to: f64, axis: &str, unit: f64, stretches: usize) -> Rows {
        let cut = |row: &[Stretch]| -> Vec<Stretch> {
            let inside = row.iter().filter(|one| one.end > from && one.start < to);
            inside.map(|one| Stretch { start: one.start.max(from), end: one.end.min(to), ..*one }).collect()
        };
        let rows = (self.ranks.iter().take(RANKS_MAX))
            .map(|(rank, row)| {
                let row = if stretches == usize::MAX { cut(row) } else { coarse(&cut(row), from, to, stretches) };
                let span = |one: &Stretch| Span { start: one.start / unit, end: one.end / unit, kind: one.portion as usize };
                Row { label: format!("rank {rank}"), spans: row.iter().map(span).collect(), ..Row::default() }
            })
            .collect();
        let kinds = vec!["compute".to_owned(), "collective".to_owned(), "waiting for the last rank".to_owned(), "launch".to_owned(), "other".to_owned()];
        let used = self.ranks.values().flatten().map(|one| one.portion as usize).max().unwrap_or(0).max(2);
        Rows {
            title: String::new(),
            axis: axis.to_owned(),
            kinds: kinds.into_iter().take(used + 1).collect(),
            rows,
            range: Some((from / unit, to / unit)),
        }
    }
}

/// What the ranks' records of one collective share: the id without the rank.
fn collective(record: &Record) -> &str {
    match record.op.rsplit_once(".r") {
        Some((stem, rank)) if rank.parse() == Ok(record.rank) => stem,
        _ => &record.op,
    }
}

/// Equal stretches, each what fills most of it; equal neighbours become one.
fn coarse(row: &[Stretch], from: f64, to: f64, count: usize) -> Vec<Stretch> {
    let length = (to - from) / count.max(1) as f64;
    if length <= 0.0 {
        return Vec::new();
    }
    let mut filled = vec![[0.0f64; 5]; count];
    for one in row {
        let place = |at: f64| (((at - from) / length) as usize).min(count - 1);
        for (at, parts) in filled.iter_mut().enumerate().take(place(one.end) + 1).skip(place(one.start)) {
            let (low, high) = (from + at as f64 * length, from + (at + 1) as f64 * length);
            parts[one.portion as usize] += (one.end.min(high) - one.start.max(low)).max(0.0);
        }
    }
    let mut merged: Vec<Stretch> = Vec::new();
    for (at, parts) in filled.iter().enumerate() {
        let most = Portion::ALL.into_iter().max_by(|a, b| parts[*a as usize].total_cmp(&parts[*b as usize])).filter(|most| parts[*most as usize] > 0.0);
        let Some(portion) = most else { continue };
        let (start, end) = (from + at as f64 * length, from + (at + 1) as f64 * length);
        match merged.last_mut() {
            Some(last) if last.portion == portion && (start - last.end).abs() < length * 0.01 => last.end = end,
            _ => merged.push(Stretch { start, end, portion }),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Time;

    fn record(rank: u32, name: &str, kind: Kind, start: u64, end: u64) -> Record {
        let op = format!("L000.{name}.r{rank}");
        let (start, end) = (Time(start * 1_000_000), Time(end * 1_000_000));
        Record { pass: 0, rank, op, name: name.to_owned(), kind, layer: Some(0), start, end, bytes: 0, detail: String::new() }
    }

    #[test]
    fn waiting_is_told_from_the_collective() {
        let records = [
            record(0, "q", Kind::Compute, 10, 14),
            record(1, "q", Kind::Compute, 10, 17),
            record(0, "ar", Kind::Communication, 14, 30),
            record(1, "ar", Kind::Communication, 17, 30),
        ];
        let timeline = Timeline::new(&records).expect("records");
        let stretch = |start, end, portion| Stretch { start, end, portion };
        let expected = [stretch(0.0, 4.0, Portion::Compute), stretch(4.0, 7.0, Portion::Skew), stretch(7.0, 20.0, Portion::Transfer)];
        assert_eq!(timeline.ranks[&0], expected);
        assert_eq!((timeline.spreads.clone(), timeline.end), (vec![(7.0, 3.0)], 20.0));
        assert_eq!(timeline.most_waiting(), Some(0));
        assert_eq!(timeline.blocks(Some(0)).len(), 4);
        assert!(Timeline::new(&[]).is_none());
    }

    #[test]
    fn a_coarse_row_shows_what_fills_most() {
        let row = [Stretch { start: 0.0, end: 1.0, portion: Portion::Compute }, Stretch { start: 1.0, end: 9.0, portion: Portion::Transfer }];
        let coarse = coarse(&row, 0.0, 10.0, 5);
        let shown: Vec<(f64, f64)> = coarse.iter().map(|one| (one.start, one.end)).collect();
        // 0 to 2 is half compute, half transfer: the later of equals; 8 to 10 is half empty.
        assert_eq!(shown, [(0.0, 10.0)]);
    }
}
