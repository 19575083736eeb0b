//! Latency against message size, drawn: forecasts as lines, measurements as
//! points, sizes at which another strategy becomes the fastest.

use crate::decide::allreduce::Grid;
use crate::decide::allreduce::Line;
use crate::decide::allreduce::Request;
use crate::render::chart::Axis;
use crate::render::chart::Chart;
use crate::render::chart::Mark;
use crate::render::chart::Point;
use crate::render::chart::Series;
use crate::render::chart::line_chart;
use crate::render::drawing::both;
use crate::render::drawing::caption;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::report::machine_page;
use crate::strategy::observed::name_of;
use crate::trace::observation::Collective;
use crate::trace::observation::Observation;
use crate::trace::observation::Timing;

/// Lines in the chart: as many as colours that can be told apart.
const LINES: usize = 6;

/// Puts the chart before the first table, and the machine at the end.
pub fn add_drawings(sections: &mut Vec<Section>, request: &Request<'_>, grid: &Grid, measured: &[Observation], timing: &Timing) {
    let shown: Vec<&Observation> = measured.iter().filter(|row| belongs(row, request, timing)).collect();
    if let Some(first) = sections.first_mut() {
        let place = first.blocks.len().min(1);
        first.blocks.insert(place, chart(request, grid, &shown));
        first.blocks.insert(place + 1, caption(&chart_words(grid, &shown)));
    }
    let blocks = vec![caption(&request.machine.name), machine_page::drawing(request.machine, &[])];
    sections.push(Section { heading: "Machine".to_owned(), blocks });
}

/// Of this machine, with as many ranks, timed in the same way, at a size that the chart shows.
fn belongs(row: &Observation, request: &Request<'_>, timing: &Timing) -> bool {
    let inside = request.sizes.first().zip(request.sizes.last()).is_some_and(|(low, high)| (*low..=*high).contains(&row.bytes));
    let question = row.machine == request.machine.id && row.ranks as usize == request.ranks;
    inside && question && row.timing == *timing && row.collective == Collective::AllReduce
}

/// Whether a measurement is of a line's strategy.
fn is_of(row: &Observation, line: &Line) -> bool {
    name_of(line.strategy).is_some_and(|name| {
        let kernel = (&row.implementation, &row.algorithm, &row.protocol) == (&name.implementation, &name.algorithm, &name.protocol);
        kernel && (row.channels, row.threads, row.buffer_bytes) == (name.channels, name.threads, name.buffer_bytes)
    })
}

/// The strategies with a line: what the others are compared with, those of the
/// policy, then the fastest on the whole.
fn drawn<'g>(request: &Request<'_>, grid: &'g Grid) -> Vec<&'g Line> {
    let score = |line: &Line| line.latency.iter().map(|time| libm::log(time.us().max(1e-9))).sum::<f64>();
    let mut on_the_whole: Vec<&Line> = grid.lines.iter().collect();
    on_the_whole.sort_by(|a, b| score(a).total_cmp(&score(b)));
    let against = grid.lines.iter().filter(|line| line.strategy.id == request.against.id);
    let policy = grid.policy.iter().filter_map(|row| grid.lines.iter().find(|line| line.strategy.id == row.strategy.id));
    let mut lines: Vec<&Line> = Vec::new();
    for line in against.chain(policy).chain(on_the_whole) {
        if lines.len() < LINES && !lines.iter().any(|known| known.strategy.id == line.strategy.id) {
            lines.push(line);
        }
    }
    lines
}

fn chart(request: &Request<'_>, grid: &Grid, measured: &[&Observation]) -> Block {
    let lines = drawn(request, grid);
    let forecast = |line: &&Line| {
        let points = request.sizes.iter().zip(&line.latency).map(|(&bytes, time)| Point { x: bytes as f64, y: time.us(), interval: None });
        Series { name: line.strategy.id.to_owned(), points: points.collect(), joined: true, marked: false }
    };
    let dots = |line: &&Line| {
        let of = measured.iter().filter(|row| is_of(row, line));
        let point = |row: &&Observation| Point { x: row.bytes as f64, y: row.latency_us, interval: row.low_us.zip(row.high_us) };
        Series { name: String::new(), points: of.map(point).collect(), joined: false, marked: true }
    };
    let series: Vec<Series> = lines.iter().map(forecast).chain(lines.iter().map(dots)).collect();
    let changes = grid.policy.iter().filter(|row| row.up_to != u64::MAX).map(|row| row.up_to as f64);
    let chart = Chart {
        title: String::new(),
        x: Axis { label: "message, bytes".to_owned(), log: true },
        y: Axis { label: "latency, us".to_owned(), log: true },
        series,
        named: lines.len(),
        marks: changes.map(|bytes| Mark { x: bytes, label: short(bytes) }).collect(),
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

fn chart_words(grid: &Grid, measured: &[&Observation]) -> String {
    let count = measured.iter().filter(|row| grid.lines.iter().any(|line| is_of(row, line))).count();
    let dots = match count {
        0 => "Nothing that was measured on this machine with as many ranks and the same launch is of these strategies.".to_owned(),
        _ => format!(
            "Dots in a line's colour are measurements of that strategy ({count} of this machine, as many ranks and the same launch)."
        ),
    };
    format!(
        "Lines are forecasts: what the others are compared with, the strategies that are fastest at some size, and the next on the whole; the table has all. Dashed: where the fastest changes. {dots}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        assert_eq!([900.0, 1905.0, 16_232.0, 2.5e6].map(short), ["900 B", "1.9 kB", "16 kB", "2.5 MB"]);
    }
}
