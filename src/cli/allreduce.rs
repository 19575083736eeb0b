//! `lanecast allreduce`: latency of one all-reduce by size and strategy.

use std::path::PathBuf;

use clap::Args;

use crate::case::chain;
use crate::cli::arguments::Size;
use crate::cli::output::Output;
use crate::cli::output::Pages;
use crate::cli::question::strategies;
use crate::cli::session::Session;
use crate::error::Result;
use crate::machine::Machine;
use crate::report::Report;
use crate::report::allreduce::AllReduces;
use crate::report::allreduce::Latency;
use crate::report::allreduce::report;
use crate::simulate::Options;
use crate::strategy::Context;
use crate::strategy::Logical;
use crate::strategy::Strategy;
use crate::trace::observation;
use crate::trace::observation::Observation;

/// Operations of the chain; as the benchmarks that the model is held against.
const CHAIN: u32 = 50;

/// Measurements that come with the program.
const BUILT_IN: [(&str, &str); 2] = [
    ("rtx-pro-6000-allreduce.csv", include_str!("../../traces/observations/rtx-pro-6000-allreduce.csv")),
    ("h200-nccl-graph.csv", include_str!("../../traces/observations/h200-nccl-graph.csv")),
];

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
    /// Measurements to draw beside the forecasts of --html; by default those that are built in
    #[arg(long, value_name = "FILE")]
    measured: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) pages: Pages,
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
    let mut latencies = Vec::new();
    for strategy in strategies(arguments.strategies.as_deref())? {
        if strategy.id == "free-communication" || strategy.refusal(&context).is_some() {
            continue;
        }
        let us = arguments.sizes.iter().map(|size| latency_us(&machine, &context, strategy, size.0.0)).collect::<Result<Vec<f64>>>()?;
        latencies.push(Latency { strategy: strategy.id, us });
    }
    let sizes: Vec<u64> = arguments.sizes.iter().map(|size| size.0.0).collect();
    let measured = if arguments.pages.wanted() { measured(arguments, &machine.id)? } else { Vec::new() };
    let question = AllReduces { machine: &machine, ranks: arguments.ranks, sizes: &sizes, latencies: &latencies, chain: CHAIN };
    let reproduce = session.reproduce().input("machine", machine.to_toml().as_bytes());
    Ok(report(&question, &measured, reproduce, arguments.pages.wanted()))
}

/// Measurements of the machine: those of `--measured`, else those that are built in.
fn measured(arguments: &Arguments, machine: &str) -> Result<Vec<Observation>> {
    let mut rows = Vec::new();
    for file in &arguments.measured {
        rows.extend(observation::read_file(file)?);
    }
    if arguments.measured.is_empty() {
        for (name, text) in BUILT_IN {
            rows.extend(observation::read_bytes(name, text.as_bytes())?);
        }
    }
    rows.retain(|row| row.machine == machine && row.ranks as usize == arguments.ranks);
    Ok(rows)
}

fn latency_us(machine: &Machine, context: &Context<'_>, strategy: &'static Strategy, bytes: u64) -> Result<f64> {
    let lowering = (strategy.lower)(context, strategy, Logical::AllReduce, bytes)?;
    let outcome = chain::run(machine, &lowering, chain::ChainLaunch::Graph, CHAIN, Options::default())?;
    Ok(outcome.critical().time as f64 / f64::from(CHAIN) / 1e6)
}
