//! Where the time of one pass goes: in words, tables and drawings.

use crate::case::Answer;
use crate::case::loads::link_loads;
use crate::case::roads::CROSSING;
use crate::machine::Machine;
use crate::render::bars::Rows;
use crate::render::bars::row_chart;
use crate::render::bars::stacked;
use crate::render::drawing::both;
use crate::render::drawing::caption;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::report::machine_page;
use crate::report::machine_page::LinkUse;
use crate::report::timeline::Timeline;
use crate::simulate::Part;
use crate::trace::record::Record;
use crate::units::Bytes;

/// Links in the table.
const SHOWN: usize = 8;

/// The sections for people; drawings where `records` of the pass are given.
pub fn sections(headline: &str, answer: &Answer, strategy: &str, machine: &Machine, records: Option<&[Record]>) -> Vec<Section> {
    let mut pass = vec![Block::Text(headline.to_owned()), Block::Text(summary(answer, strategy))];
    let load = answer.expert_load().map(crate::report::rank::expert_line);
    pass.extend(load.map(|line| Block::Text(format!("Experts are whole on a rank; {line}"))));
    let mut sections = Vec::new();
    let Some(records) = records else {
        pass.push(Block::Table(kinds(answer)));
        sections.push(Section { heading: "Pass".to_owned(), blocks: pass });
        sections.push(Section { heading: "Critical path".to_owned(), blocks: vec![Block::Table(parts(answer))] });
        sections.push(Section { heading: "Links by load".to_owned(), blocks: vec![Block::Table(links(answer))] });
        return sections;
    };
    pass.push(bar(answer));
    pass.push(Block::Table(kinds(answer)));
    sections.push(Section { heading: "Pass".to_owned(), blocks: pass });
    if let Some(timeline) = Timeline::new(records) {
        sections.push(Section { heading: "Timeline".to_owned(), blocks: timeline.blocks(timeline.most_waiting()) });
    }
    sections.push(Section { heading: "Critical path".to_owned(), blocks: vec![Block::Table(parts(answer))] });
    let uses = uses(answer);
    let words = "Mean rate of each direction over the time that collectives take, as a share of what it can carry. Two lines a link: on the right of the way is what goes that way.";
    let blocks = vec![caption(words), machine_page::drawing(machine, &uses), Block::Table(links(answer))];
    sections.push(Section { heading: "Links by load".to_owned(), blocks });
    sections
}

/// The pass as one bar.
fn bar(answer: &Answer) -> Block {
    let names = ["compute", "communication", "waiting for other ranks", "launch gaps"];
    let mut row = stacked("pass", &[answer.compute.ms(), answer.communication.ms(), answer.skew.ms(), answer.launch.ms()]);
    row.note = format!("{} ms", Number::new(answer.pass.ms(), 2));
    let kinds = names.iter().map(|name| (*name).to_owned()).collect();
    let rows = Rows { title: String::new(), axis: "ms".to_owned(), kinds, rows: vec![row], range: None };
    both("The pass by what its time goes to", |width| row_chart(&rows, width))
}

/// Time that collectives take, the ranks' waiting aside, seconds.
fn communicating_s(answer: &Answer) -> f64 {
    answer.outcome.totals.iter().map(|total| total.busy as f64).sum::<f64>() / 1e12
}

/// How much of each link is used while collectives run.
fn uses(answer: &Answer) -> Vec<LinkUse> {
    let seconds = communicating_s(answer).max(1e-12);
    let carried = |name: &str| answer.assembled.links.iter().position(|known| known == name).map_or(0, |link| answer.outcome.carried[link]);
    (link_loads(&answer.assembled).into_iter())
        .map(|link| LinkUse { share: carried(&link.name) as f64 / 1e9 / seconds / link.gbps.max(1e-9), name: link.name })
        .collect()
}

fn summary(answer: &Answer, strategy: &str) -> String {
    let reduce = &answer.allreduce;
    format!(
        "{}: {} ms, of it {} ms communication, {} ms waiting for other ranks, {} ms compute, {} ms launch gaps. {} all-reduces of {} take {} us each after the last rank has come.",
        strategy,
        Number::new(answer.pass.ms(), 3).digits(),
        Number::new(answer.communication.ms(), 3).digits(),
        Number::new(answer.skew.ms(), 3).digits(),
        Number::new(answer.compute.ms(), 3).digits(),
        Number::new(answer.launch.ms(), 3).digits(),
        reduce.count,
        Bytes(reduce.bytes),
        Number::new(reduce.mean.us(), 2).digits()
    )
}

/// Time by kind of operation.
pub fn kinds(answer: &Answer) -> Table {
    let mut table = Table::new(vec![
        Column::text("kind", "kind"),
        Column::number("count", "operations"),
        Column::number("time_ms", "time, ms"),
        Column::number("share_pct", "share, %"),
    ]);
    for (kind, share) in answer.by_kind() {
        let percent = share.time.ms() / answer.pass.ms().max(1e-12) * 100.0;
        let count = Number::integer(share.count);
        table.row(vec![kind.into(), count.into(), Number::new(share.time.ms(), 3).into(), Number::new(percent, 1).into()]);
    }
    table
}

/// What the path to the last end was spent on.
fn parts(answer: &Answer) -> Table {
    let mut table = Table::new(vec![Column::text("part", "spent on"), Column::number("time_ms", "time, ms")]);
    let end = answer.outcome.critical();
    for part in Part::ALL {
        table.row(vec![part.name().into(), Number::new(end.parts[part as usize] as f64 / 1e9, 4).into()]);
    }
    table
}

/// The links that carried most, with their mean rate over the pass.
fn links(answer: &Answer) -> Table {
    let mut table = Table::new(vec![
        Column::text("link", "link"),
        Column::number("bytes", "bytes"),
        Column::number("mean_gbps", "mean, GB/s"),
        Column::number("capacity_gbps", "can carry, GB/s"),
    ]);
    let names = &answer.assembled.links;
    let capacity = &answer.assembled.program.network.capacity;
    let shown = |link: &usize| answer.outcome.carried[*link] > 0 && !names[*link].ends_with(CROSSING);
    let mut order: Vec<usize> = (0..names.len()).filter(shown).collect();
    order.sort_by_key(|&link| (std::cmp::Reverse(answer.outcome.carried[link]), link));
    for &link in order.iter().take(SHOWN) {
        let carried = answer.outcome.carried[link];
        let gbps = carried as f64 / answer.pass.us().max(1e-9) / 1e3;
        table.row(vec![
            names[link].as_str().into(),
            Number::integer(carried).into(),
            Number::new(gbps, 2).into(),
            Number::new(capacity[link] as f64 / 1e9, 1).into(),
        ]);
    }
    table
}
