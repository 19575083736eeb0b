//! `lanecast sweep`: thousands of cases in one run.

use std::fs::File;
use std::io::BufReader;
use std::io::IsTerminal;
use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Instant;

use clap::Args;
use indicatif::ProgressBar;
use indicatif::ProgressStyle;

use crate::cli::output::Output;
use crate::cli::session::Session;
use crate::decide::sweep::Grid;
use crate::decide::sweep::Part;
use crate::decide::sweep::Space;
use crate::decide::sweep::run::rows;
use crate::decide::sweep::summary::Kept;
use crate::decide::sweep::summary::Summary;
use crate::error::Fault;
use crate::error::Result;
use crate::render::chart::Axis;
use crate::render::chart::Chart;
use crate::render::chart::Point;
use crate::render::chart::Series;
use crate::render::chart::line_chart;
use crate::render::drawing::WIDE;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::render::write::write_file;
use crate::report::Report;
use crate::report::fnv1a_64;

/// Larger files are refused unread.
const GRID_BYTES_MAX: u64 = 64 << 20;
/// More groups are drawn in one colour.
const GROUPS_DRAWN: usize = 6;
/// Between two lines about progress.
const LINE_SECONDS: u64 = 30;
/// Rows of a table of the summary.
const SHOWN: usize = 20;

/// One of so many equal parts of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shard {
    /// From 1.
    index: u64,
    count: u64,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Shard, String> {
        let parsed = text.split_once('/').and_then(|(index, count)| Some((index.parse().ok()?, count.parse().ok()?)));
        match parsed {
            Some((index, count)) if (1..=count).contains(&index) => Ok(Shard { index, count }),
            _ => Err("expected I/N with I from 1 to N, such as 2/8".to_owned()),
        }
    }
}

impl Shard {
    /// Its cases: contiguous, and together all.
    fn cases(self, all: u64) -> Range<u64> {
        let end = |index: u64| (u128::from(all) * u128::from(index) / u128::from(self.count)) as u64;
        end(self.index - 1)..end(self.index)
    }
}

/// Simulate every case of a grid, a list or random draws, and say which are best
#[derive(Args, Debug)]
pub struct Arguments {
    /// The sweep (TOML)
    grid: PathBuf,
    /// Where the rows go (CSV); FILE.part grows until all are there, and is gone on with after a kill
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Only one of N contiguous parts; the files of all, one after another, are the whole
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Threads; by default as many as there are cores
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Axes whose values make the groups of the summary, separated by commas; by default `strategy` or the first
    #[arg(long, value_name = "AXES")]
    group: Option<String>,
    /// Draw all cases and the best of them (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    #[arg(skip)]
    pub(super) report: Output,
}

/// Sweeps.
///
/// # Errors
/// Bad grids, with the place in the file; files that cannot be written.
pub fn run(arguments: &Arguments, session: &Session) -> Result<Report> {
    let name = arguments.grid.display().to_string();
    refuse_target(arguments)?;
    let text = read(&arguments.grid)?;
    let space = Space::new(Grid::parse(&name, &text)?)?;
    let group = group(arguments, &space)?;
    let shard = arguments.shard.unwrap_or(Shard { index: 1, count: 1 });
    let cases = shard.cases(space.grid.cases);
    let with_header = shard.index == 1;
    let header = if with_header { space.header() } else { String::new() };
    let inputs = format!("{}{}", text, space.inputs());
    let tag = format!("grid={:016x} program={:016x} shard={}/{}", fnv1a_64(inputs.as_bytes()), program()?, shard.index, shard.count);
    let mut part = Part::open(&arguments.output, &tag, &header, cases.start)?;
    if part.next > cases.start {
        session.note(&format!("going on after {} of {} rows", part.next - cases.start, cases.end - cases.start));
    }
    let threads = arguments.threads.map_or_else(rayon::current_num_threads, usize::from);
    let mut progress = Progress::new(session, cases.end - cases.start, part.next - cases.start);
    rows(&space, part.next..cases.end, threads, |_, row| {
        part.push(row)?;
        progress.one_more();
        Ok(())
    })?;
    progress.bar.finish_and_clear();
    part.finish()?;
    let file = File::open(&arguments.output).map_err(|error| Fault::io("read", &arguments.output, &error))?;
    let summary = Summary::read(BufReader::new(file), space.grid.axes.len(), &group, cases.end - cases.start, with_header)?;
    if let Some(path) = &arguments.plot {
        write_file(path, plot(&summary, &space).as_bytes())?;
    }
    let axes: Vec<&str> = space.grid.axes.iter().map(|axis| axis.name.as_str()).collect();
    let best: Vec<&Kept> = summary.best.values().collect();
    let by: Vec<&str> = group.iter().map(|axis| axes[*axis]).collect();
    let sections = vec![
        Section { heading: "Sweep".to_owned(), blocks: opening(&summary, arguments) },
        Section {
            heading: "No case has a shorter pass and more tokens per second".to_owned(),
            blocks: vec![Block::Table(table(&axes, &summary.front.iter().collect::<Vec<_>>()))],
        },
        Section { heading: format!("Most tokens per second for each {}", by.join(", ")), blocks: vec![Block::Table(table(&axes, &best))] },
    ];
    Ok(Report {
        title: "Sweep".to_owned(),
        sections,
        rows: table(&axes, &summary.front.iter().collect::<Vec<_>>()),
        exact: None,
        json: None,
        reproduce: session.reproduce().input("grid", inputs.as_bytes()),
        passed: true,
    })
}

/// Rows go to a plain file: not over a device or a folder.
fn refuse_target(arguments: &Arguments) -> Result<()> {
    let out = &arguments.output;
    if std::fs::symlink_metadata(out).is_ok_and(|known| !known.is_file()) {
        return Err(Fault::new("io", format!("cannot write {}: it is no plain file", out.display())).help("name a file for the rows"));
    }
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    let fault = |error: &std::io::Error| Fault::io("read", path, error);
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(GRID_BYTES_MAX + 1).read_to_end(&mut bytes)).map_err(|e| fault(&e))?;
    if bytes.len() as u64 > GRID_BYTES_MAX {
        return Err(Fault::new("sweep-bad-grid", format!("{} is larger than 64 MiB", path.display())));
    }
    String::from_utf8(bytes).map_err(|_| Fault::new("sweep-syntax", format!("{} is not text", path.display())))
}

/// The hash of this program's file: another build may simulate otherwise.
fn program() -> Result<u64> {
    let path = std::env::current_exe().map_err(|error| Fault::io("find", Path::new("the program's file"), &error))?;
    std::fs::read(&path).map(|bytes| fnv1a_64(&bytes)).map_err(|error| Fault::io("read", &path, &error))
}

fn group(arguments: &Arguments, space: &Space) -> Result<Vec<usize>> {
    let axes = &space.grid.axes;
    let place = |name: &str| axes.iter().position(|axis| axis.name == name);
    let Some(list) = &arguments.group else { return Ok(vec![place("strategy").unwrap_or(0)]) };
    (list.split(',').map(str::trim))
        .map(|name| {
            let known: Vec<&str> = axes.iter().map(|axis| axis.name.as_str()).collect();
            place(name).ok_or_else(|| {
                Fault::new("sweep-unknown-axis", format!("the sweep has no axis {name}")).help(format!("it has {}", known.join(", ")))
            })
        })
        .collect()
}

/// How far it is: a bar on terminals, a line now and then elsewhere, such as in the log of a job.
struct Progress<'a> {
    bar: ProgressBar,
    session: &'a Session,
    begun: Instant,
    told: Instant,
    /// Rows made by this run.
    made: u64,
    /// Whether nobody watches a bar.
    lines: bool,
}

impl<'a> Progress<'a> {
    fn new(session: &'a Session, cases: u64, done: u64) -> Progress<'a> {
        let bar = if session.quiet { ProgressBar::hidden() } else { ProgressBar::new(cases) };
        if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} cases, {per_sec}, {eta} left") {
            bar.set_style(style);
        }
        bar.set_position(done);
        bar.set_length(cases);
        bar.reset_eta();
        let lines = !session.quiet && !std::io::stderr().is_terminal();
        Progress { bar, session, begun: Instant::now(), told: Instant::now(), made: 0, lines }
    }

    fn one_more(&mut self) {
        self.made += 1;
        self.bar.inc(1);
        if self.lines && self.told.elapsed().as_secs() >= LINE_SECONDS {
            self.told = Instant::now();
            let (all, done) = (self.bar.length().unwrap_or(0), self.bar.position());
            self.session.note(&far(done, all, self.made, self.begun.elapsed().as_secs_f64()));
        }
    }
}

/// In words, and how long the rest takes at the pace of this run.
fn far(done: u64, all: u64, made: u64, seconds: f64) -> String {
    let left = seconds * all.saturating_sub(done) as f64 / made.max(1) as f64;
    let left = if left < 90.0 { format!("{left:.0} s") } else { format!("{:.0} min", left / 60.0) };
    format!("{} of {} cases, {left} left", Number::integer(done).grouped(), Number::integer(all).grouped())
}

/// How many there are, and why some cannot run.
fn opening(summary: &Summary, arguments: &Arguments) -> Vec<Block> {
    let text = format!(
        "{} cases, {} of them can run; the rows are in {}.",
        Number::integer(summary.rows).grouped(),
        Number::integer(summary.feasible).grouped(),
        arguments.output.display()
    );
    let mut reasons: Vec<(&String, &u64)> = summary.reasons.iter().collect();
    reasons.sort_by_key(|(reason, count)| (std::cmp::Reverse(**count), (*reason).clone()));
    let mut blocks = vec![Block::Text(text)];
    if !reasons.is_empty() {
        blocks.push(Block::List(reasons.iter().take(5).map(|(reason, count)| format!("{count} cannot run: {reason}")).collect()));
    }
    blocks
}

fn table(axes: &[&str], rows: &[&Kept]) -> Table {
    let names = std::iter::once("case").chain(axes.iter().copied());
    let mut columns: Vec<Column> = names.map(|name| Column::text(name, name)).collect();
    columns.push(Column::number("pass_ms", "pass, ms"));
    columns.push(Column::number("tokens_per_s", "tokens/s"));
    let mut table = Table::new(columns);
    // Evenly taken where there are too many; the first and the last always.
    let last = rows.len().saturating_sub(1);
    let shown = rows.len().min(SHOWN);
    for nth in 0..shown {
        let row = rows[nth * last / shown.saturating_sub(1).max(1)];
        let mut cells: Vec<_> = row.values.iter().map(|value| value.as_str().into()).collect();
        cells.push(Number::new(row.pass_ms, 3).into());
        cells.push(Number::new(row.tokens_per_s, 1).into());
        table.row(cells);
    }
    table
}

/// All cases, the best of each group, and the front.
fn plot(summary: &Summary, space: &Space) -> String {
    let point = |x: f64, y: f64| Point { x, y, interval: None };
    let kept = |kept: &Kept| point(kept.pass_ms, kept.tokens_per_s);
    let series = |name: &str, points: Vec<Point>, joined: bool| Series { name: name.to_owned(), points, joined, marked: !joined };
    let dots = |wanted: Option<&Vec<String>>| {
        let dots = summary.points.iter().filter(|dot| wanted.is_none_or(|group| dot.group == *group));
        dots.map(|dot| point(dot.pass_ms, dot.tokens_per_s)).collect::<Vec<Point>>()
    };
    // A colour a group, as long as they can be told apart.
    let mut all = if summary.best.len() <= GROUPS_DRAWN {
        summary.best.keys().map(|group| series(&group.join(", "), dots(Some(group)), false)).collect()
    } else {
        let best = summary.best.values().map(kept).collect();
        vec![series("cases", dots(None), false), series("most tokens per second of each group", best, false)]
    };
    all.push(series("shortest passes and most tokens", summary.front.iter().map(kept).collect(), true));
    let chart = Chart {
        title: format!("{}: {} cases", space.grid.name, summary.rows),
        x: Axis { label: "pass, ms".to_owned(), log: true },
        y: Axis { label: "tokens per second".to_owned(), log: true },
        named: all.len(),
        series: all,
        marks: Vec::new(),
        diagonal: false,
    };
    line_chart(&chart, WIDE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_the_pace_of_this_run() {
        // 100 rows in 10 s, 800 of them to go; what an earlier run made does not count.
        assert_eq!(far(1200, 2000, 100, 10.0), "1,200 of 2,000 cases, 80 s left");
        assert_eq!(far(10, 100_000, 10, 1.0), "10 of 100,000 cases, 167 min left");
    }

    #[test]
    fn shards_are_contiguous_and_together_all() {
        for (all, count) in [(10, 3), (2, 5), (10_000, 7), (0, 2)] {
            let ranges: Vec<Range<u64>> = (1..=count).map(|index| Shard { index, count }.cases(all)).collect();
            assert_eq!((ranges[0].start, ranges[ranges.len() - 1].end), (0, all));
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
        }
        for wrong in ["0/3", "4/3", "1", "a/b", "1/0", "-1/2"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }
}
