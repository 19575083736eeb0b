//! Latency of one all-reduce by size and strategy, with measured points and crossovers.

use crate::machine::Machine;
use crate::render::chart::Axis;
use crate::render::chart::Chart;
use crate::render::chart::Mark;
use crate::render::chart::Point;
use crate::render::chart::Series;
use crate::render::chart::line_chart;
use crate::render::drawing::both;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Cell;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::report::Report;
use crate::report::machine_page;
use crate::report::reproduce::Reproduce;
use crate::trace::observation::Algorithm;
use crate::trace::observation::Collective;
use crate::trace::observation::Implementation;
use crate::trace::observation::Observation;
use crate::trace::observation::Protocol;
use crate::trace::observation::Timing;
use crate::units::Bytes;

/// Lines in the chart: as many as colours that can be told apart.
const LINES: usize = 6;
/// Lines that are drawn first, as people know them.
const KNOWN: [&str; 2] = ["nccl-default", "nccl-ring-ll"];

/// One strategy's latencies.
pub struct Latency {
    /// Its id.
    pub strategy: &'static str,
    /// Microseconds, a size each.
    pub us: Vec<f64>,
}

/// What was asked and simulated.
pub struct AllReduces<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Ranks.
    pub ranks: usize,
    /// Message sizes in bytes.
    pub sizes: &'a [u64],
    /// A strategy each.
    pub latencies: &'a [Latency],
    /// Operations of the chain.
    pub chain: u32,
}

/// Between two sizes another strategy becomes the fastest.
#[derive(Clone, Debug, PartialEq)]
struct Crossover {
    bytes: f64,
    from: &'static str,
    to: &'static str,
}

/// The report; `measured` is drawn beside the forecasts.
pub fn report(asked: &AllReduces<'_>, measured: &[Observation], reproduce: Reproduce, drawings: bool) -> Report {
    let best = best(asked);
    let policy: Vec<String> = (asked.sizes.iter().zip(&best))
        .filter_map(|(size, best)| {
            best.map(|at| format!("{}: {}, {} us", Bytes(*size), asked.latencies[at.0].strategy, Number::new(at.1, 1).digits()))
        })
        .collect();
    let intro = format!("Per operation in a chain of {} in one CUDA graph.", asked.chain);
    let heading = format!("All-reduce of {} ranks on {}", asked.ranks, asked.machine.id);
    let mut sections = vec![Section { heading, blocks: vec![Block::Text(intro), Block::Table(shown(asked))] }];
    if drawings {
        sections[0].blocks.insert(1, chart(asked, measured, &best));
        sections[0].blocks.insert(2, Block::Text(chart_words(asked, measured)));
    }
    sections.push(Section { heading: "Fastest by size".to_owned(), blocks: vec![Block::List(policy)] });
    let crossovers = crossovers(asked, &best);
    if !crossovers.is_empty() {
        let lines = crossovers.iter().map(|c| format!("at about {}: {} gives way to {}", short(c.bytes), c.from, c.to));
        sections.push(Section { heading: "Crossovers".to_owned(), blocks: vec![Block::List(lines.collect())] });
    }
    if drawings {
        sections.push(Section { heading: "Machine".to_owned(), blocks: vec![Block::Text(asked.machine.name.clone()), machine_page::drawing(asked.machine, &[])] });
    }
    Report { title: "All-reduce by size".to_owned(), sections, rows: rows(asked), exact: None, json: None, reproduce, passed: true }
}

fn shown(asked: &AllReduces<'_>) -> Table {
    let size = |bytes: &u64| Column::number(&format!("b{bytes}"), &Bytes(*bytes).to_string());
    let mut table = Table::new(std::iter::once(Column::text("strategy", "strategy, us")).chain(asked.sizes.iter().map(size)).collect());
    for latency in asked.latencies {
        let mut line: Vec<Cell> = vec![latency.strategy.into()];
        line.extend(latency.us.iter().map(|us| Cell::from(Number::new(*us, 1))));
        table.row(line);
    }
    table
}

fn rows(asked: &AllReduces<'_>) -> Table {
    let mut rows = Table::new(vec![
        Column::text("strategy", "strategy"),
        Column::number("bytes", "bytes"),
        Column::number("latency_us", "latency, us"),
        Column::number("busbw_gbps", "bus bandwidth, GB/s"),
    ]);
    for latency in asked.latencies {
        for (bytes, us) in asked.sizes.iter().zip(&latency.us) {
            let busbw = 2.0 * (asked.ranks as f64 - 1.0) / asked.ranks as f64 * *bytes as f64 / us / 1e3;
            rows.row(vec![latency.strategy.into(), Number::integer(*bytes).into(), Number::new(*us, 3).into(), Number::new(busbw, 3).into()]);
        }
    }
    rows
}

/// The fastest at each size: its place and latency.
fn best(asked: &AllReduces<'_>) -> Vec<Option<(usize, f64)>> {
    let at = |size: usize| {
        let all = asked.latencies.iter().enumerate().map(|(place, latency)| (place, latency.us[size]));
        all.reduce(|best, next| if next.1 < best.1 { next } else { best })
    };
    (0..asked.sizes.len()).map(at).collect()
}

/// Where the fastest changes: between two sizes both latencies are taken as
/// straight lines over the logarithms.
fn crossovers(asked: &AllReduces<'_>, best: &[Option<(usize, f64)>]) -> Vec<Crossover> {
    let mut order: Vec<usize> = (0..asked.sizes.len()).collect();
    order.sort_by_key(|&size| asked.sizes[size]);
    let mut found = Vec::new();
    for pair in order.windows(2) {
        let (Some((from, _)), Some((to, _))) = (best[pair[0]], best[pair[1]]) else { continue };
        if from == to {
            continue;
        }
        let gap = |size: usize| libm::log(asked.latencies[to].us[size] / asked.latencies[from].us[size]);
        let (before, after) = (gap(pair[0]), gap(pair[1]));
        let share = if before - after > 1e-12 { (before / (before - after)).clamp(0.0, 1.0) } else { 0.5 };
        let (low, high) = (libm::log(asked.sizes[pair[0]] as f64), libm::log(asked.sizes[pair[1]] as f64));
        found.push(Crossover { bytes: libm::exp(low + share * (high - low)), from: asked.latencies[from].strategy, to: asked.latencies[to].strategy });
    }
    found
}

/// The strategies with a line: the known ones, then those that are fastest somewhere, then the fastest on the whole.
fn drawn(asked: &AllReduces<'_>, best: &[Option<(usize, f64)>]) -> Vec<usize> {
    let mut lines: Vec<usize> = Vec::new();
    let known = KNOWN.iter().filter_map(|id| asked.latencies.iter().position(|latency| latency.strategy == *id));
    let mut on_the_whole: Vec<usize> = (0..asked.latencies.len()).collect();
    let score = |place: usize| asked.latencies[place].us.iter().map(|us| libm::log(us.max(1e-9))).sum::<f64>();
    on_the_whole.sort_by(|a, b| score(*a).total_cmp(&score(*b)));
    for place in known.take(1).chain(best.iter().flatten().map(|(place, _)| *place)).chain(on_the_whole) {
        if lines.len() < LINES && !lines.contains(&place) {
            lines.push(place);
        }
    }
    lines
}

/// The strategy that a measurement is of, if a line can stand for it.
fn strategy_of(row: &Observation) -> Option<String> {
    if row.collective != Collective::AllReduce || row.timing != Timing::GraphChain || row.channels.is_some() || row.threads.is_some() {
        return None;
    }
    match (&row.implementation, &row.algorithm, &row.protocol) {
        (Implementation::Nccl, Algorithm::Auto, Protocol::Auto) => Some("nccl-default".to_owned()),
        (Implementation::Nccl, algorithm, protocol) => Some(format!("nccl-{}-{}", algorithm.name(), protocol.name())),
        (other, ..) => Some(other.name().replace('_', "-")),
    }
}

fn chart(asked: &AllReduces<'_>, measured: &[Observation], best: &[Option<(usize, f64)>]) -> Block {
    let lines = drawn(asked, best);
    let mut order: Vec<usize> = (0..asked.sizes.len()).collect();
    order.sort_by_key(|&size| asked.sizes[size]);
    let mut series: Vec<Series> = Vec::new();
    for &place in &lines {
        let latency = &asked.latencies[place];
        let points = order.iter().map(|&size| Point { x: asked.sizes[size] as f64, y: latency.us[size], interval: None }).collect();
        series.push(Series { name: latency.strategy.to_owned(), points, joined: true, marked: false });
    }
    let ends = (asked.sizes.iter().min().copied().unwrap_or(0), asked.sizes.iter().max().copied().unwrap_or(0));
    for &place in &lines {
        let of = measured.iter().filter(|row| strategy_of(row).as_deref() == Some(asked.latencies[place].strategy));
        let inside = of.filter(|row| (ends.0..=ends.1).contains(&row.bytes));
        let interval = |row: &Observation| row.low_us.zip(row.high_us);
        let points = inside.map(|row| Point { x: row.bytes as f64, y: row.latency_us, interval: interval(row) }).collect();
        series.push(Series { name: String::new(), points, joined: false, marked: true });
    }
    let marks = crossovers(asked, best).into_iter().map(|c| Mark { x: c.bytes, label: short(c.bytes) }).collect();
    let chart = Chart {
        title: String::new(),
        x: Axis { label: "message, bytes".to_owned(), log: true },
        y: Axis { label: "latency, us".to_owned(), log: true },
        series,
        named: lines.len(),
        marks,
        diagonal: false,
    };
    both("Latency against message size by strategy", |width| line_chart(&chart, width))
}

/// Two digits are enough to place a crossover.
fn short(bytes: f64) -> String {
    let (value, unit) = match bytes {
        b if b >= 1e6 => (b / 1e6, "MB"),
        b if b >= 1e3 => (b / 1e3, "kB"),
        b => (b, "B"),
    };
    format!("{} {unit}", Number::new(value, usize::from(value < 10.0)))
}

fn chart_words(asked: &AllReduces<'_>, measured: &[Observation]) -> String {
    let known = |row: &&Observation| strategy_of(row).is_some_and(|id| asked.latencies.iter().any(|latency| latency.strategy == id));
    let count = measured.iter().filter(known).count();
    let dots = match count {
        0 => "Nothing was measured of this machine with this many ranks.".to_owned(),
        _ => format!("Dots in a line's colour are measurements of that strategy ({count} of this machine and this many ranks)."),
    };
    format!("Lines are forecasts of the strategies that are fastest somewhere or on the whole; the table has all. Dashed: where the fastest changes. {dots}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crossovers_lie_where_the_lines_meet() {
        let machine = Machine::load("8x-h200").expect("built in");
        let latencies = [Latency { strategy: "nccl-default", us: vec![20.0, 40.0] }, Latency { strategy: "one-shot-pull", us: vec![10.0, 80.0] }];
        let asked = AllReduces { machine: &machine, ranks: 8, sizes: &[1024, 1 << 20], latencies: &latencies, chain: 50 };
        // ln 2 ahead at 1 KiB, ln 2 behind at 1 MiB: they meet half-way between, at 32 KiB.
        let found = crossovers(&asked, &best(&asked));
        assert_eq!((found[0].from, found[0].to), ("one-shot-pull", "nccl-default"));
        assert!((found[0].bytes - 32768.0).abs() < 1.0, "{}", found[0].bytes);
    }
}
