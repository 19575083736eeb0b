//! `lanecast simulate`: where the time of one pass goes.

use std::path::PathBuf;

use clap::Args;

use crate::case::Answer;
use crate::case::Policy;
use crate::case::answer;
use crate::case::records::trace;
use crate::cli::output::Output;
use crate::cli::question::QuestionArguments;
use crate::cli::session::Session;
use crate::error::Fault;
use crate::error::Result;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::render::write::write_file;
use crate::report::Report;
use crate::simulate::Options;
use crate::simulate::Part;
use crate::strategy::Context;
use crate::strategy::Strategy;
use crate::units::Bytes;

/// Say where the time of one pass goes; without arguments, the case's baseline
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    question: QuestionArguments,
    /// The strategy (`lanecast strategies`)
    #[arg(long, default_value = "nccl-16-channels")]
    strategy: String,
    /// Also write every operation of every rank as a trace (CSV)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Also write the pass for ui.perfetto.dev (JSON)
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// Simulate every block, also those that repeat exactly; the result is the same
    #[arg(long)]
    no_reuse: bool,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Simulates one pass.
///
/// # Errors
/// Bad input, a strategy that cannot run, files that cannot be written.
pub fn run(arguments: &Arguments, session: &Session) -> Result<Report> {
    let loaded = arguments.question.load()?;
    let strategy = Strategy::find(&arguments.strategy)?;
    let question = loaded.question().under(strategy);
    let mut context = Context::new(&loaded.machine, loaded.partition.ranks() as usize);
    context.environment.clone_from(&loaded.environment);
    if let Some(reason) = strategy.refusal(&context) {
        return Err(Fault::new("strategy-infeasible", format!("{} cannot run here: {reason}", strategy.id)));
    }
    let plan = question.plan()?;
    let records = arguments.trace.is_some() || arguments.perfetto.is_some();
    let options = Options { reuse: !arguments.no_reuse, records };
    let answer = answer(&question, &plan, &Policy::single(strategy), &context, options)?;
    let hash = plan.hash();
    if records {
        let text = trace(&answer, &question, strategy.id, hash)?;
        if let Some(path) = &arguments.trace {
            write_file(path, text.as_bytes())?;
        }
        if let Some(path) = &arguments.perfetto {
            let mut reader = crate::trace::record::Reader::open("trace", text.as_bytes())?;
            write_file(path, &crate::trace::perfetto::convert(&mut reader, Vec::new())?)?;
        }
    }
    let load = answer.expert_load().map(crate::report::rank::expert_line);
    session.detail(&format!("{} events", answer.outcome.events));
    let kinds = kinds(&answer);
    Ok(Report {
        title: "Where the time of one pass goes".to_owned(),
        sections: vec![
            Section {
                heading: "Pass".to_owned(),
                blocks: [loaded.headline(), summary(&answer, strategy)]
                    .into_iter()
                    .chain(load.map(|line| format!("Experts are whole on a rank; {line}")))
                    .map(Block::Text)
                    .chain([Block::Table(kinds.clone())])
                    .collect(),
            },
            Section { heading: "Critical path".to_owned(), blocks: vec![Block::Table(parts(&answer))] },
            Section { heading: "Links by load".to_owned(), blocks: vec![Block::Table(links(&answer))] },
        ],
        rows: kinds,
        exact: None,
        json: None,
        reproduce: session.reproduce().hash("plan", hash).input("machine", loaded.machine.to_toml().as_bytes()),
        passed: true,
    })
}

fn summary(answer: &Answer, strategy: &Strategy) -> String {
    let reduce = &answer.allreduce;
    format!(
        "{}: {} ms, of it {} ms communication, {} ms waiting for other ranks, {} ms compute, {} ms launch gaps. {} all-reduces of {} take {} us each after the last rank has come.",
        strategy.id,
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

fn kinds(answer: &Answer) -> Table {
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
    let mut order: Vec<usize> = (0..names.len()).filter(|&link| answer.outcome.carried[link] > 0).collect();
    order.sort_by_key(|&link| (std::cmp::Reverse(answer.outcome.carried[link]), link));
    for &link in order.iter().take(8) {
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
