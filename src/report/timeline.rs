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
use crate::render::drawing::caption;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::trace::record::Kind;
use crate::trace::record::Record;

/// Ranks that are drawn.
const RANKS_MAX: usize = 16;

/// A stretch of one rank, microseconds from the start of the pass.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stretch {
    start: f64,
    end: f64,
    portion: Portion,
    layer: Option<u32>,
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
        let mut timeline =
            Timeline { ranks: BTreeMap::new(), spreads: Vec::new(), layers: BTreeMap::new(), waiting: BTreeMap::new(), end: 0.0 };
        for record in records {
            let (start, end) = (us(record.start), us(record.end));
            timeline.end = timeline.end.max(end);
            let row = timeline.ranks.entry(record.rank).or_default();
            let last =
                arrivals.get(collective(record)).filter(|_| record.kind == Kind::Communication).map_or(start, |(_, last)| last.min(end));
            if last > start {
                row.push(Stretch { start, end: last, portion: Portion::Skew, layer: record.layer });
            }
            row.push(Stretch { start: last, end, portion: Portion::of(record.kind), layer: record.layer });
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

    /// Each rank's sums, the whole pass, one layer from close by, and the spread of the arrivals.
    pub fn blocks(&self, layer: Option<u32>) -> Vec<Block> {
        let mut blocks = vec![
            caption(
                "The whole pass. Within each layer a rank's compute (with the gaps), its waiting and its collectives are put together.",
            ),
            both("The whole pass, a row a rank", |width| row_chart(&self.whole(), width)),
        ];
        if self.ranks.len() > RANKS_MAX {
            blocks.push(caption(&format!("The first {RANKS_MAX} of {} ranks.", self.ranks.len())));
        }
        let window = layer.and_then(|layer| Some((layer, *self.layers.get(&layer)?)));
        if let Some((layer, (start, end))) = window {
            let margin = (end - start) * 0.02;
            let (start, end) = ((start - margin).max(0.0), end + margin);
            let axis = format!("layer {layer}, us from the start of the pass");
            blocks.push(caption(&format!("Layer {layer} from close by, every operation in its place.")));
            blocks.push(both(&format!("Layer {layer}, a row a rank"), |width| row_chart(&self.window(start, end, &axis), width)));
        }
        blocks.extend(self.spread());
        blocks
    }

    /// How far apart the ranks arrive: in words, and drawn where it changes along the pass.
    fn spread(&self) -> Vec<Block> {
        let worst = self.spreads.iter().map(|(_, spread)| *spread).fold(0.0, f64::max);
        let mean = self.spreads.iter().map(|(_, spread)| *spread).sum::<f64>() / self.spreads.len().max(1) as f64;
        if worst <= 0.0 {
            return Vec::new();
        }
        let words = format!(
            "From the first rank's arrival to the last one's at each of {} collectives: {} us on average, {} us at most.",
            self.spreads.len(),
            Number::new(mean, 2),
            Number::new(worst, 2)
        );
        let mut blocks = vec![caption(&words)];
        if worst > 1.2 * mean {
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
            diagonal: false,
        }
    }

    /// Every stretch between two times.
    fn window(&self, from: f64, to: f64, axis: &str) -> Rows {
        let rows = (self.ranks.iter().take(RANKS_MAX))
            .map(|(rank, row)| {
                let inside = row.iter().filter(|one| one.end > from && one.start < to);
                let span = |one: &Stretch| Span { start: one.start.max(from), end: one.end.min(to), kind: one.portion as usize };
                Row { label: format!("rank {rank}"), spans: inside.map(span).collect(), ..Row::default() }
            })
            .collect();
        self.framed(rows, axis, (from, to))
    }

    /// The whole pass, a layer's portions put together.
    fn whole(&self) -> Rows {
        let rows = (self.ranks.iter().take(RANKS_MAX))
            .map(|(rank, row)| Row { label: format!("rank {rank}"), spans: by_layer(row), ..Row::default() })
            .collect();
        self.framed(rows, "whole pass, ms", (0.0, self.end / 1e3))
    }

    fn framed(&self, rows: Vec<Row>, axis: &str, range: (f64, f64)) -> Rows {
        let kinds = ["compute", "collective", "waiting for the last rank", "launch", "other"].map(str::to_owned);
        let used = self.ranks.values().flatten().map(|one| one.portion as usize).max().unwrap_or(0).max(2);
        Rows { title: String::new(), axis: axis.to_owned(), kinds: kinds.into_iter().take(used + 1).collect(), rows, range: Some(range) }
    }
}

/// Per layer of a row, milliseconds: compute and gaps, then waiting, then collectives.
fn by_layer(row: &[Stretch]) -> Vec<Span> {
    let mut spans = Vec::new();
    for group in row.chunk_by(|one, next| one.layer == next.layer) {
        let start = group.iter().map(|one| one.start).fold(f64::INFINITY, f64::min);
        let end = group.iter().map(|one| one.end).fold(0.0, f64::max);
        let sum = |portion: Portion| group.iter().filter(|one| one.portion == portion).map(|one| one.end - one.start).sum::<f64>();
        let (transfer, skew) = (sum(Portion::Transfer), sum(Portion::Skew));
        let rest = (end - start - transfer - skew).max(0.0);
        let mut at = start;
        for (portion, length) in [(Portion::Compute, rest), (Portion::Skew, skew), (Portion::Transfer, transfer)] {
            if length > 0.0 {
                spans.push(Span { start: at / 1e3, end: (at + length) / 1e3, kind: portion as usize });
                at += length;
            }
        }
    }
    spans
}

/// What the ranks' records of one collective share: the id without the rank.
fn collective(record: &Record) -> &str {
    match record.op.rsplit_once(".r") {
        Some((stem, rank)) if rank.parse() == Ok(record.rank) => stem,
        _ => &record.op,
    }
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
        let stretch = |start, end, portion| Stretch { start, end, portion, layer: Some(0) };
        let expected = [stretch(0.0, 4.0, Portion::Compute), stretch(4.0, 7.0, Portion::Skew), stretch(7.0, 20.0, Portion::Transfer)];
        assert_eq!(timeline.ranks[&0], expected);
        assert_eq!((timeline.spreads.clone(), timeline.end), (vec![(7.0, 3.0)], 20.0));
        assert_eq!(timeline.most_waiting(), Some(0));
        assert_eq!(timeline.blocks(Some(0)).len(), 5);
        assert!(Timeline::new(&[]).is_none());
    }

    #[test]
    fn a_layer_is_put_together() {
        let stretch = |start, end, portion| Stretch { start, end, portion, layer: Some(1) };
        let row =
            [stretch(1000.0, 3000.0, Portion::Compute), stretch(4000.0, 5000.0, Portion::Skew), stretch(5000.0, 9000.0, Portion::Transfer)];
        let spans: Vec<(f64, f64, usize)> = by_layer(&row).iter().map(|span| (span.start, span.end, span.kind)).collect();
        // 8 ms in all, 4 of transfer, 1 of waiting: 3 of compute with the gap.
        assert_eq!(spans, [(1.0, 4.0, 0), (4.0, 5.0, 2), (5.0, 9.0, 1)]);
    }
}
