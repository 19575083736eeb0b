//! All-reduces by size and strategy in words and tables.

use crate::decide::allreduce::CHAIN;
use crate::decide::allreduce::Grid;
use crate::decide::allreduce::Request;
use crate::decide::variables::Effect;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Cell;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::strategy::observed::name_of;
use crate::trace::observation::Collective;
use crate::trace::observation::Observation;
use crate::trace::observation::Timing;
use crate::units::Bytes;
use crate::units::Time;

/// The sections for people.
pub fn sections(request: &Request<'_>, grid: &Grid, how: &str, effects: &[Effect]) -> Vec<Section> {
    let mut sections = vec![
        Section {
            heading: format!("All-reduce of {} ranks on {}", request.ranks, request.machine.id),
            blocks: vec![
                Block::Text(format!(
                    "Microseconds per operation in a chain of {CHAIN}, {how}. The floor: an empty kernel, the longest way between two ranks, and 2 (n − 1) / n of the message through a GPU's own link."
                )),
                Block::Table(latencies(request, grid)),
            ],
        },
        Section { heading: "Fastest by size".to_owned(), blocks: policy(grid) },
    ];
    let crossings = crossings(request, grid);
    if !crossings.is_empty() {
        let heading = format!("Where the others cross {}", request.against.id);
        sections.push(Section { heading, blocks: vec![Block::List(crossings)] });
    }
    if !effects.is_empty() {
        sections.push(Section { heading: "What each variable changes".to_owned(), blocks: vec![Block::Table(effect_table(effects))] });
    }
    if !grid.refused.is_empty() {
        let lines = grid.refused.iter().map(|(strategy, reason)| format!("{}: {reason}", strategy.id)).collect();
        sections.push(Section { heading: "Cannot run here".to_owned(), blocks: vec![Block::List(lines)] });
    }
    sections
}

fn us(time: Time) -> Cell {
    Number::new(time.us(), 1).into()
}

fn latencies(request: &Request<'_>, grid: &Grid) -> Table {
    let size = |bytes: &u64| Column::number(&format!("b{bytes}"), &Bytes(*bytes).to_string());
    let mut table = Table::new(std::iter::once(Column::text("strategy", "strategy, us")).chain(request.sizes.iter().map(size)).collect());
    for line in &grid.lines {
        table.row(std::iter::once(line.strategy.id.into()).chain(line.latency.iter().map(|time| us(*time))).collect());
    }
    table.row(std::iter::once("(floor)".into()).chain(grid.floors.iter().map(|floor| us(floor.total()))).collect());
    table
}

fn policy(grid: &Grid) -> Vec<Block> {
    let row = |row: &crate::decide::allreduce::PolicyRow| match row.up_to {
        u64::MAX => format!("above: {}", row.strategy.id),
        bytes => format!("up to {}: {}", Bytes(bytes), row.strategy.id),
    };
    let mut blocks = vec![Block::List(grid.policy.iter().map(row).collect())];
    if let Some((best, percent)) = grid.policy_gain().filter(|_| grid.policy.len() > 1) {
        blocks.push(Block::Text(format!(
            "Over these sizes the policy takes {} % less time than {}, the best single strategy.",
            Number::new(percent, 1).digits(),
            best.id
        )));
    }
    blocks
}

fn crossings(request: &Request<'_>, grid: &Grid) -> Vec<String> {
    let base = request.against.id;
    let line = |line: &crate::decide::allreduce::Line| {
        let words = line.crossings.iter().map(|crossing| {
            let (below, above) = if crossing.faster_above { ("slower", "faster") } else { ("faster", "slower") };
            format!("{below} up to {}, then {above}", Bytes(crossing.bytes))
        });
        let words: Vec<String> = words.collect();
        (!words.is_empty()).then(|| format!("{}: {}", line.strategy.id, words.join("; ")))
    };
    grid.lines.iter().filter(|line| line.strategy.id != base).filter_map(line).collect()
}

fn effect_table(effects: &[Effect]) -> Table {
    let mut table = Table::new(vec![
        Column::text("variables", "variable"),
        Column::number("bytes", "bytes"),
        Column::number("before_us", "before, us"),
        Column::number("after_us", "after, us"),
        Column::text("decides", "what NCCL decides differently"),
    ]);
    for effect in effects {
        let number = |value: Option<f64>| Cell::from(Number::maybe(value, 1));
        let differs = if effect.differences.is_empty() { "nothing".to_owned() } else { effect.differences.join("; ") };
        table.row(vec![
            effect.variables.as_str().into(),
            Number::integer(effect.bytes).into(),
            number(effect.latency_us.map(|(before, _)| before)),
            number(effect.latency_us.map(|(_, after)| after)),
            differs.into(),
        ]);
    }
    table
}

/// The rows for CSV and JSON.
pub fn rows(request: &Request<'_>, grid: &Grid) -> Table {
    let mut rows = Table::new(vec![
        Column::text("strategy", "strategy"),
        Column::number("bytes", "bytes"),
        Column::number("latency_us", "latency, us"),
        Column::number("busbw_gbps", "bus bandwidth, GB/s"),
        Column::number("floor_us", "floor, us"),
    ]);
    let ranks = request.ranks as f64;
    for line in &grid.lines {
        for ((&bytes, latency), floor) in request.sizes.iter().zip(&line.latency).zip(&grid.floors) {
            let busbw = 2.0 * (ranks - 1.0) / ranks * bytes as f64 / latency.us().max(1e-9) / 1e3;
            rows.row(vec![
                line.strategy.id.into(),
                Number::integer(bytes).into(),
                Number::new(latency.us(), 3).into(),
                Number::new(busbw, 3).into(),
                Number::new(floor.total().us(), 3).into(),
            ]);
        }
    }
    rows
}

/// The forecasts in the format of observations, and the strategies that it has no columns for.
pub fn observations(request: &Request<'_>, grid: &Grid, timing: &Timing) -> (Vec<Observation>, Vec<&'static str>) {
    let (mut written, mut left) = (Vec::new(), Vec::new());
    for line in &grid.lines {
        let Some(name) = name_of(line.strategy) else {
            left.push(line.strategy.id);
            continue;
        };
        for (&bytes, latency) in request.sizes.iter().zip(&line.latency) {
            written.push(Observation {
                machine: request.machine.id.clone(),
                ranks: request.ranks as u32,
                implementation: name.implementation.clone(),
                algorithm: name.algorithm.clone(),
                protocol: name.protocol.clone(),
                channels: name.channels,
                threads: name.threads,
                buffer_bytes: name.buffer_bytes,
                timing: timing.clone(),
                bytes,
                dtype: "bf16".to_owned(),
                version: String::new(),
                collective: Collective::AllReduce,
                latency_us: latency.us(),
                low_us: None,
                high_us: None,
                source: format!("simulated {}", line.strategy.id),
            });
        }
    }
    (written, left)
}
