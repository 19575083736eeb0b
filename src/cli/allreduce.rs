//! `lanecast allreduce`: latency of one all-reduce by size and strategy.

use clap::Args;

use crate::case::chain;
use crate::cli::arguments::Size;
use crate::cli::output::Output;
use crate::cli::question::strategies;
use crate::cli::session::Session;
use crate::error::Result;
use crate::machine::Machine;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Cell;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::report::Report;
use crate::simulate::Options;
use crate::strategy::Context;
use crate::strategy::Logical;
use crate::strategy::Strategy;

/// Operations of the chain; as the benchmarks that the model is held against.
const CHAIN: u32 = 50;

/// Latency of one all-reduce by size and strategy, without any model
#[derive(Args, Debug)]
pub struct Arguments {
    /// A built-in machine or a machine file
    #[arg(long, default_value = "8x-rtx-pro-6000-server")]
    machine: String,
    /// Ranks
    #[arg(long, default_value_t = 8)]
    ranks: usize,
    /// Message sizes, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "1K,4K,14336,43008,57344,128K,256K,1M,4M")]
    sizes: Vec<Size>,
    /// Only these strategies, separated by commas
    #[arg(long, value_name = "IDS")]
    strategies: Option<String>,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Simulates chains of all-reduces.
///
/// # Errors
/// Bad input.
pub fn run(arguments: &Arguments, session: &Session) -> Result<Report> {
    let machine = Machine::load(&arguments.machine)?;
    let context = Context::new(&machine, arguments.ranks);
    let mut shown =
        Table::new(std::iter::once(Column::text("strategy", "strategy, us")).chain(arguments.sizes.iter().map(size_column)).collect());
    let mut rows = Table::new(vec![
        Column::text("strategy", "strategy"),
        Column::number("bytes", "bytes"),
        Column::number("latency_us", "latency, us"),
        Column::number("busbw_gbps", "bus bandwidth, GB/s"),
    ]);
    let mut best: Vec<Option<(f64, &str)>> = vec![None; arguments.sizes.len()];
    for strategy in strategies(arguments.strategies.as_deref())? {
        if strategy.id == "free-communication" || strategy.refusal(&context).is_some() {
            continue;
        }
        let mut line: Vec<Cell> = vec![strategy.id.into()];
        for (size, best) in arguments.sizes.iter().zip(&mut best) {
            let us = latency_us(&machine, &context, strategy, size.0.0)?;
            let busbw = 2.0 * (arguments.ranks as f64 - 1.0) / arguments.ranks as f64 * size.0.0 as f64 / us / 1e3;
            line.push(Number::new(us, 1).into());
            rows.row(vec![strategy.id.into(), Number::integer(size.0.0).into(), Number::new(us, 3).into(), Number::new(busbw, 3).into()]);
            if best.is_none_or(|(known, _)| us < known) {
                *best = Some((us, strategy.id));
            }
        }
        shown.row(line);
    }
    let policy: Vec<String> = (arguments.sizes.iter().zip(&best))
        .filter_map(|(size, best)| best.map(|(us, id)| format!("{}: {id}, {} us", size.0, Number::new(us, 1).digits())))
        .collect();
    let sections = vec![
        Section {
            heading: format!("All-reduce of {} ranks on {}", arguments.ranks, machine.id),
            blocks: vec![Block::Text(format!("Per operation in a chain of {CHAIN} in one CUDA graph.")), Block::Table(shown)],
        },
        Section { heading: "Fastest by size".to_owned(), blocks: vec![Block::List(policy)] },
    ];
    let reproduce = session.reproduce().input("machine", machine.to_toml().as_bytes());
    Ok(Report { title: "All-reduce by size".to_owned(), sections, rows, exact: None, json: None, reproduce, passed: true })
}

fn size_column(size: &Size) -> Column {
    Column::number(&format!("b{}", size.0.0), &size.0.to_string())
}

fn latency_us(machine: &Machine, context: &Context<'_>, strategy: &'static Strategy, bytes: u64) -> Result<f64> {
    let lowering = (strategy.lower)(context, strategy, Logical::AllReduce, bytes)?;
    let outcome = chain::run(machine, &lowering, chain::ChainLaunch::Graph, CHAIN, Options::default())?;
    Ok(outcome.critical().time as f64 / f64::from(CHAIN) / 1e6)
}
