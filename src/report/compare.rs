//! Two traces side by side, in words, tables and drawings.

use crate::compare::Comparison;
use crate::compare::Line;
use crate::compare::Portion;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Cell;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::report::Report;
use crate::report::compare_page;
use crate::report::compare_rows;
use crate::report::compare_words;
use crate::report::compare_words::ms;
use crate::report::reproduce::Reproduce;
use crate::trace::record::Record;

/// Rows of the longer tables for people.
const SHOWN: usize = 12;

/// What must hold for the exit code 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tolerances {
    /// Largest difference of the passes, percent.
    pub pass_pct: Option<f64>,
    /// Largest difference of the mean of any kind of collective, percent.
    pub collective_pct: Option<f64>,
    /// Largest difference of a portion, percent of the pass.
    pub part_pct: Option<f64>,
    /// Most operations without counterpart.
    pub unmatched: Option<usize>,
}

/// One tolerance and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// What was checked.
    pub what: String,
    /// What it may be at most.
    pub limit: f64,
    /// What it is.
    pub value: f64,
}

impl Check {
    /// Is it within the limit? Rounding of the last bit does not count.
    pub fn held(&self) -> bool {
        self.value <= self.limit + 1e-9
    }
}

/// The report; drawings only where a page was asked for, with the records of a
/// pass of each trace (none where they are too many).
pub fn report(comparison: &Comparison, tolerances: &Tolerances, reproduce: Reproduce, drawn: Option<&[Vec<Record>; 2]>) -> Report {
    let drawings = drawn.is_some();
    let checks = checks(comparison, tolerances);
    let mut sections = vec![
        Section { heading: "Finding".to_owned(), blocks: finding(comparison) },
        Section { heading: "Where the difference is".to_owned(), blocks: vec![Block::Table(portions(comparison))] },
    ];
    if drawings {
        sections[1].blocks.extend(compare_page::portions(comparison));
    }
    if comparison.difference_us() != 0.0 || !comparison.largest.is_empty() || !comparison.unmatched.is_empty() {
        sections.extend(details(comparison, drawings));
    }
    if let Some(records) = drawn {
        sections.extend(compare_page::timelines(comparison, records));
    }
    sections.push(Section { heading: "Communication ledger".to_owned(), blocks: ledger(comparison) });
    if !comparison.unmatched.is_empty() {
        sections.push(Section { heading: "Only in one trace".to_owned(), blocks: unmatched(comparison) });
    }
    if !checks.is_empty() {
        sections.push(Section { heading: "Tolerances".to_owned(), blocks: vec![Block::List(checks.iter().map(check_words).collect())] });
    }
    Report {
        title: "Two traces side by side".to_owned(),
        sections,
        rows: compare_rows::table(comparison),
        exact: None,
        json: Some(compare_rows::json(comparison, &checks)),
        reproduce,
        passed: checks.iter().all(Check::held),
    }
}

fn checks(comparison: &Comparison, tolerances: &Tolerances) -> Vec<Check> {
    let [a, b] = &comparison.sides;
    let percent = |difference: f64, of: f64| if difference == 0.0 { 0.0 } else { difference.abs() / of.max(1e-9) * 100.0 };
    let mut checks = Vec::new();
    if let Some(limit) = tolerances.pass_pct {
        checks.push(Check { what: "the pass, %".to_owned(), limit, value: percent(b.pass_us - a.pass_us, a.pass_us) });
    }
    if let Some(limit) = tolerances.collective_pct {
        for line in comparison.ledger.iter().filter(|line| line.count.iter().all(|count| *count > 0.0)) {
            let mean = [0, 1].map(|side: usize| line.transfer_us[side] / line.count[side]);
            checks.push(Check {
                what: format!("{} after the last arrival, %", line.name),
                limit,
                value: percent(mean[1] - mean[0], mean[0]),
            });
        }
    }
    if let Some(limit) = tolerances.part_pct {
        for portion in Portion::ALL {
            let at = portion as usize;
            checks.push(Check {
                what: format!("{}, % of the pass", portion.name()),
                limit,
                value: percent(b.spent[at] - a.spent[at], a.pass_us),
            });
        }
    }
    if let Some(limit) = tolerances.unmatched {
        let value = comparison.unmatched.len() as f64;
        checks.push(Check { what: "operations without counterpart".to_owned(), limit: limit as f64, value });
    }
    checks
}

fn check_words(check: &Check) -> String {
    let verdict = if check.held() { "within" } else { "OUTSIDE" };
    format!("{}: {} is {verdict} {}", check.what, Number::new(check.value, 2), Number::new(check.limit, 2))
}

fn finding(comparison: &Comparison) -> Vec<Block> {
    let mut blocks = vec![Block::Table(sides(comparison)), Block::Text(compare_words::headline(comparison))];
    let causes: Vec<String> = comparison.causes.iter().map(|cause| compare_words::cause(cause, comparison)).collect();
    if !causes.is_empty() {
        blocks.push(Block::List(causes));
    }
    let notes = compare_words::notes(comparison);
    if !notes.is_empty() {
        blocks.push(Block::List(notes));
    }
    blocks
}

/// What is compared.
fn sides(comparison: &Comparison) -> Table {
    let keys = ["source", "strategy", "machine", "model", "tokens", "launch"];
    let mut columns = vec![Column::text("trace", "trace"), Column::text("file", "file")];
    columns.extend(keys.iter().map(|key| Column::text(key, key)));
    columns.extend(
        [("ranks", "ranks"), ("passes", "passes"), ("rows", "rows"), ("pass_ms", "pass, ms")].map(|(key, name)| Column::number(key, name)),
    );
    let mut table = Table::new(columns);
    for (letter, side) in ["A", "B"].iter().zip(&comparison.sides) {
        let mut row: Vec<Cell> = vec![(*letter).into(), side.name.as_str().into()];
        row.extend(keys.iter().map(|key| Cell::from(side.header.get(key).unwrap_or("-"))));
        row.extend([side.ranks as u64, side.passes, side.rows].map(|count| Cell::from(Number::integer(count))));
        row.push(ms(side.pass_us).into());
        table.row(row);
    }
    table
}

/// The portions of the mean rank and of the critical path, and the simulator's parts where both have them.
fn portions(comparison: &Comparison) -> Table {
    let mut table = Table::new(vec![
        Column::text("part", "part"),
        Column::number("a_ms", "A, ms"),
        Column::number("b_ms", "B, ms"),
        Column::number("difference_ms", "B − A, ms"),
        Column::number("share_pct", "share, %"),
        Column::number("path_a_ms", "critical path A, ms"),
        Column::number("path_b_ms", "B, ms"),
        Column::number("path_difference_ms", "B − A, ms"),
    ]);
    let [a, b] = &comparison.sides;
    let mut row = |name: &str, mean: [f64; 2], path: [f64; 2]| {
        let difference = mean[1] - mean[0];
        table.row(vec![
            name.into(),
            ms(mean[0]).into(),
            ms(mean[1]).into(),
            signed_ms(difference),
            Number::maybe(comparison.share_pct(difference), 1).into(),
            ms(path[0]).into(),
            ms(path[1]).into(),
            signed_ms(path[1] - path[0]),
        ]);
    };
    for portion in Portion::ALL {
        let at = portion as usize;
        if portion != Portion::Other || a.spent[at] + b.spent[at] > 0.0 {
            row(portion.name(), [a.spent[at], b.spent[at]], [a.path[at], b.path[at]]);
        }
    }
    row("pass", [a.pass_us, b.pass_us], [a.pass_us, b.pass_us]);
    table
}

/// A difference with its sign; nothing where it is zero to the last digit.
fn signed_ms(us: f64) -> Cell {
    Cell::Text(Number::new(us / 1e3, 4).signed())
}

fn details(comparison: &Comparison, drawings: bool) -> Vec<Section> {
    let mut sections = Vec::new();
    if !comparison.parts.is_empty() {
        sections.push(Section { heading: "Parts of the critical path".to_owned(), blocks: vec![Block::Table(parts(comparison))] });
    }
    let by_size = |lines: &[Line]| {
        let mut order: Vec<Line> = lines.iter().filter(|line| line.difference_us() != 0.0).cloned().collect();
        order.sort_by(|a, b| b.difference_us().abs().total_cmp(&a.difference_us().abs()));
        order
    };
    let named = [
        ("By operation", by_size(&comparison.operations)),
        ("By kind", comparison.kinds.clone()),
        ("By layer", by_size(&comparison.layers)),
        ("By rank", comparison.ranks.clone()),
    ];
    for (heading, lines) in named {
        if lines.is_empty() {
            continue;
        }
        let mut blocks = vec![Block::Table(lines_table(comparison, &lines))];
        if lines.len() > SHOWN {
            blocks.push(Block::Text(format!("{} smaller ones are left out; --format csv has all.", lines.len() - SHOWN)));
        }
        match heading {
            "By layer" if drawings => blocks.extend(compare_page::layers(comparison)),
            "By rank" if drawings => blocks.extend(compare_page::ranks(comparison)),
            _ => {}
        }
        sections.push(Section { heading: heading.to_owned(), blocks });
    }
    if !comparison.largest.is_empty() {
        sections.push(Section { heading: "Largest single differences".to_owned(), blocks: vec![Block::Table(largest(comparison))] });
    }
    sections
}

fn parts(comparison: &Comparison) -> Table {
    let mut table = Table::new(vec![
        Column::text("part", "spent on"),
        Column::number("a_ms", "A, ms"),
        Column::number("b_ms", "B, ms"),
        Column::number("difference_ms", "B − A, ms"),
        Column::number("share_pct", "share, %"),
    ]);
    for (name, [a, b]) in &comparison.parts {
        let share = Number::maybe(comparison.share_pct(b - a), 1);
        table.row(vec![name.as_str().into(), ms(*a).into(), ms(*b).into(), signed_ms(b - a), share.into()]);
    }
    table
}

/// Both times, the difference, its share, its split by portion, the critical path.
fn lines_table(comparison: &Comparison, lines: &[Line]) -> Table {
    let mut columns = vec![
        Column::text("name", "name"),
        Column::number("count", "operations"),
        Column::number("a_ms", "A, ms"),
        Column::number("b_ms", "B, ms"),
        Column::number("difference_ms", "B − A, ms"),
        Column::number("share_pct", "share, %"),
    ];
    columns.extend(Portion::ALL.map(|portion| Column::number(portion.name(), &format!("of it {}", portion.name()))));
    columns.push(Column::number("path_ms", "on the critical path"));
    // Portions in which nothing differs say nothing.
    let moved = |at: usize| lines.iter().any(|line| (line.spent[1][at] - line.spent[0][at]).abs() >= 5e-5);
    let kept: Vec<bool> = (0..5).map(moved).collect();
    let has_path = lines.iter().any(|line| line.path.iter().all(|us| us.is_finite()));
    let mut table =
        Table::new(columns.into_iter().enumerate().filter(|(at, _)| keep(*at, &kept, has_path)).map(|(_, column)| column).collect());
    for line in lines.iter().take(SHOWN) {
        let mut row: Vec<Cell> = vec![
            line.name.as_str().into(),
            Number::integer(line.count[0].max(line.count[1])).into(),
            ms(line.us(0)).into(),
            ms(line.us(1)).into(),
            signed_ms(line.difference_us()),
            Number::maybe(comparison.share_pct(line.difference_us()), 1).into(),
        ];
        row.extend(Portion::ALL.map(|portion| signed_ms(line.portion_us(portion))));
        row.push(if line.path.iter().all(|us| us.is_finite()) { signed_ms(line.path[1] - line.path[0]) } else { Cell::Empty });
        table.row(row.into_iter().enumerate().filter(|(at, _)| keep(*at, &kept, has_path)).map(|(_, cell)| cell).collect());
    }
    table
}

fn keep(at: usize, portions: &[bool], has_path: bool) -> bool {
    match at {
        0..6 => true,
        6..11 => portions[at - 6],
        _ => has_path,
    }
}

fn largest(comparison: &Comparison) -> Table {
    let mut table = Table::new(vec![
        Column::text("op", "operation"),
        Column::number("pass", "pass"),
        Column::number("a_us", "A, us"),
        Column::number("b_us", "B, us"),
        Column::text("mostly", "mostly"),
    ]);
    for single in &comparison.largest {
        let sum = |side: usize| single.spent[side].iter().sum::<f64>();
        let size = |portion: &Portion| (single.spent[1][*portion as usize] - single.spent[0][*portion as usize]).abs();
        let mostly = Portion::ALL.into_iter().max_by(|a, b| size(a).total_cmp(&size(b))).map_or("", Portion::name);
        let us = |us: f64| Cell::from(Number::new(us, 3));
        table.row(vec![single.op.as_str().into(), Number::integer(u64::from(single.pass)).into(), us(sum(0)), us(sum(1)), mostly.into()]);
    }
    table
}

fn ledger(comparison: &Comparison) -> Vec<Block> {
    let mut columns = vec![Column::text("collective", "collective"), Column::number("bytes", "bytes")];
    for (key, heading) in [
        ("count", "count"),
        ("kernel_ms", "start to end, ms"),
        ("skew_ms", "of it waiting, ms"),
        ("each_us", "each after the last arrival, us"),
    ] {
        columns.extend(["a", "b"].map(|side| Column::number(&format!("{side}_{key}"), &format!("{} {heading}", side.to_uppercase()))));
    }
    columns.extend(["a", "b"].map(|side| Column::text(&format!("{side}_source"), &format!("{} by", side.to_uppercase()))));
    let mut table = Table::new(columns);
    for line in &comparison.ledger {
        let mut row: Vec<Cell> = vec![line.name.as_str().into(), Number::integer(line.bytes).into()];
        let there = |side: usize, value: f64, decimals: usize| {
            Cell::from(if line.count[side] > 0.0 { Number::new(value, decimals) } else { Number::MISSING })
        };
        row.extend([0, 1].map(|side: usize| there(side, line.count[side], if line.count[side].fract() == 0.0 { 0 } else { 2 })));
        row.extend([0, 1].map(|side: usize| there(side, line.duration_us[side] / 1e3, 4)));
        row.extend([0, 1].map(|side: usize| there(side, line.skew_us[side] / 1e3, 4)));
        row.extend([0, 1].map(|side: usize| there(side, line.transfer_us[side] / line.count[side].max(1e-9), 3)));
        row.extend([0, 1].map(|side: usize| Cell::from(line.source[side].as_str())));
        table.row(row);
    }
    let note = "Of the mean rank and pass. A profiler that sums kernels counts start to end: waiting for the last rank is in it once for each rank that waits.";
    vec![Block::Table(table), Block::Text(note.to_owned())]
}

fn unmatched(comparison: &Comparison) -> Vec<Block> {
    let mut table = Table::new(vec![
        Column::text("trace", "trace"),
        Column::text("name", "name"),
        Column::number("count", "operations"),
        Column::number("us", "time of all, us"),
        Column::text("first", "the first"),
    ]);
    let mut groups: Vec<(usize, &str, u64, f64, &str)> = Vec::new();
    for one in &comparison.unmatched {
        match groups.iter_mut().find(|group| (group.0, group.1) == (one.side, one.name.as_str())) {
            Some(group) => (group.2, group.3) = (group.2 + 1, group.3 + one.us),
            None => groups.push((one.side, &one.name, 1, one.us, &one.op)),
        }
    }
    for (side, name, count, us, first) in groups {
        table.row(vec![["A", "B"][side].into(), name.into(), Number::integer(count).into(), Number::new(us, 3).into(), first.into()]);
    }
    vec![Block::Table(table), Block::Text("Each one stands in --format csv and json.".to_owned())]
}
