//! `lanecast optimize`: the best policy for a machine and a workload.

use std::collections::BTreeMap;

use clap::Args;

use crate::case::too_large;
use crate::cli::output::Output;
use crate::cli::question::environment;
use crate::cli::question::strategies;
use crate::cli::question::warn_of_variables;
use crate::cli::session::Session;
use crate::decide::optimize;
use crate::decide::optimize::Found;
use crate::decide::optimize::Request;
use crate::decide::optimize::Tried;
use crate::error::Fault;
use crate::error::Result;
use crate::machine::Machine;
use crate::model::Model;
use crate::plan::Partition;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::report::Report;
use crate::strategy::Effort;
use crate::units::Bytes;

/// Rows of the table.
const SHOWN: usize = 12;

/// Find the best strategy, channels, drafts and split with few simulations
#[derive(Args, Debug)]
pub struct Arguments {
    /// A machine's id or file
    #[arg(long, default_value = "8x-rtx-pro-6000-server")]
    machine: String,
    /// A model's id, config.json or folder
    #[arg(long, default_value = "kimi-k2.5")]
    model: String,
    /// Sequences
    #[arg(long, default_value_t = 1)]
    batch: u64,
    /// Cached positions of each sequence
    #[arg(long, default_value_t = 128)]
    context: u64,
    /// Numbers of draft tokens to choose from
    #[arg(long, value_delimiter = ',', default_value = "0,1,2,3,4,5")]
    drafts: Vec<u64>,
    /// Chance that a draft token is accepted
    #[arg(long, default_value_t = 0.7)]
    acceptance: f64,
    /// Splits to choose from as TPxPPxEP; by default all of the machine's ranks that the model allows
    #[arg(long, value_delimiter = ',', value_name = "TPxPPxEP")]
    partitions: Vec<String>,
    /// Only these strategies, separated by commas; by default all that can be tried
    #[arg(long)]
    strategies: Option<String>,
    /// NCCL's channels to choose from; 0 is its own choice
    #[arg(long, value_delimiter = ',', default_value = "0,1,2,4,8,16,32")]
    channels: Vec<u32>,
    /// A variable that is set for NCCL anyway: `--env NCCL_P2P_LEVEL=SYS`
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Simulate every pass of the grid, to check the search
    #[arg(long)]
    exhaustive: bool,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Optimizes.
///
/// # Errors
/// Bad arguments, or nothing that can run.
pub fn run(arguments: &Arguments, session: &Session) -> Result<Report> {
    let machine = Machine::load(&arguments.machine)?;
    let model = Model::load(&arguments.model)?;
    if let Some(unknown) = model.unknown_architecture() {
        session.warn(&unknown);
    }
    if !(0.0..=1.0).contains(&arguments.acceptance) {
        return Err(Fault::new("optimize-bad-value", "the acceptance is a chance from 0 to 1"));
    }
    let mut choices = strategies(arguments.strategies.as_deref())?;
    if arguments.strategies.is_none() {
        choices.retain(|strategy| strategy.effort != Effort::None);
    }
    let ranks = (machine.gpus.len() as u32).saturating_mul(machine.ranks_per_gpu);
    let request = Request {
        machine: &machine,
        model: &model,
        batch: arguments.batch,
        context: arguments.context,
        drafts: drafts(&arguments.drafts)?,
        acceptance: arguments.acceptance,
        partitions: partitions(&arguments.partitions, ranks)?,
        strategies: choices,
        channels: arguments.channels.clone(),
        environment: environment(&arguments.env)?,
    };
    warn_of_variables(&request.environment, &machine, session)?;
    let found = optimize::optimize(&request, arguments.exhaustive)?;
    let mut rows = table(&found);
    let memory = too_large(&machine, &model, found.tried[0].candidate.partition.ranks());
    let mut blocks = vec![Block::Text(summary(&found, &arguments.machine))];
    blocks.extend(settings(&found));
    let shown = rows.clone();
    rows.fill(Column::text("fits_memory", "fits memory"), memory.is_none());
    if let Some((weights, memory)) = memory {
        let gb = |bytes: u64| Number::new(bytes as f64 / 1e9, 0).digits();
        let words =
            format!("It does not fit: {} GB of weights a GPU of {} GB; this is what it would take if it did.", gb(weights), gb(memory));
        blocks.insert(1, Block::Text(words));
    }
    Ok(Report {
        title: "The best policy".to_owned(),
        sections: vec![
            Section { heading: "Policy".to_owned(), blocks },
            Section { heading: "What was simulated, best first".to_owned(), blocks: vec![Block::Table(shown)] },
        ],
        rows,
        exact: None,
        json: None,
        reproduce: session.reproduce().input("machine", machine.to_toml().as_bytes()),
        passed: true,
    })
}

/// More are no drafts: a tree of SGLang's has at most some hundreds.
const DRAFTS_MAX: u64 = 1024;

fn drafts(listed: &[u64]) -> Result<Vec<u64>> {
    match listed.iter().find(|drafts| **drafts > DRAFTS_MAX) {
        Some(many) => Err(Fault::new("optimize-bad-value", format!("{many} draft tokens in one pass are not possible"))
            .help(format!("expected 0 to {DRAFTS_MAX}: --drafts 0,1,2,3"))),
        None => Ok(listed.to_vec()),
    }
}

fn partitions(listed: &[String], ranks: u32) -> Result<Vec<Partition>> {
    let of = |tp, pp, ep| Partition { pp, ep, ..Partition::tensor(tp) };
    if listed.is_empty() {
        let divisors = (1..=ranks).filter(|pp| ranks.is_multiple_of(*pp));
        return Ok(divisors.flat_map(|pp| [(ranks / pp, pp, 1), (ranks / pp, pp, ranks / pp)]).map(|(t, p, e)| of(t, p, e)).fold(
            Vec::new(),
            |mut all, partition| {
                if !all.contains(&partition) {
                    all.push(partition);
                }
                all
            },
        ));
    }
    (listed.iter())
        .map(|text| {
            let parts: Vec<u32> = text.split('x').filter_map(|part| part.parse().ok()).filter(|part| *part > 0).collect();
            match *parts {
                [tp, pp, ep] if tp <= 64 && pp <= 64 && ep <= 64 => Ok(of(tp, pp, ep)),
                _ => Err(Fault::new("optimize-bad-value", format!("`{text}` is no split")).help("write TPxPPxEP, such as 8x1x1")),
            }
        })
        .collect()
}

fn channels(channels: u32) -> String {
    if channels == 0 { String::new() } else { format!(" with {channels} channels") }
}

fn summary(found: &Found, machine: &str) -> String {
    let Tried { candidate, pass, tokens_per_s, bytes } = found.tried[0];
    let split = candidate.partition;
    let prefill = match found.prefill {
        Some((bytes, strategy, count, time)) => format!(
            " Above that, {}{}: {} us for the {} of a prefill chunk.",
            strategy.id,
            channels(count),
            Number::new(time.us(), 1).digits(),
            Bytes(bytes)
        ),
        None => String::new(),
    };
    format!(
        "On {machine}: {} drafts, TP {} x PP {} x EP {}, up to {} {}{}: {} ms a pass, {} tokens/s.{prefill} \
         {} passes and {} single all-reduces were simulated for a grid of {}.",
        candidate.drafts,
        split.tp,
        split.pp,
        split.ep,
        Bytes(bytes),
        candidate.strategy.id,
        channels(candidate.channels),
        Number::new(pass.ms(), 3).digits(),
        Number::new(tokens_per_s, 1).digits(),
        found.passes,
        found.singles,
        found.grid
    )
}

/// What to set for the best.
fn settings(found: &Found) -> Vec<Block> {
    let best = found.tried[0].candidate;
    let settings = best.strategy.settings();
    let mut variables: BTreeMap<String, String> = settings.environment;
    if best.channels > 0 {
        for name in ["NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"] {
            variables.entry(name.to_owned()).or_insert_with(|| best.channels.to_string());
        }
    }
    let lines: Vec<String> = variables.iter().map(|(name, value)| format!("{name}={value}")).chain(settings.flags).collect();
    let mut blocks = Vec::new();
    if !lines.is_empty() {
        blocks.push(Block::Code(lines.join("\n") + "\n"));
    }
    if !settings.requires.is_empty() {
        blocks.push(Block::List(settings.requires));
    }
    blocks
}

fn table(found: &Found) -> Table {
    let mut table = Table::new(vec![
        Column::text("strategy", "strategy"),
        Column::number("channels", "channels"),
        Column::number("drafts", "drafts"),
        Column::text("split", "TP x PP x EP"),
        Column::number("pass_ms", "pass, ms"),
        Column::number("tokens_per_s", "tokens/s"),
    ]);
    for Tried { candidate, pass, tokens_per_s, .. } in found.tried.iter().take(SHOWN) {
        let split = candidate.partition;
        table.row(vec![
            candidate.strategy.id.into(),
            Number::integer(u64::from(candidate.channels)).into(),
            Number::integer(candidate.drafts).into(),
            format!("{} x {} x {}", split.tp, split.pp, split.ep).as_str().into(),
            Number::new(pass.ms(), 3).into(),
            Number::new(*tokens_per_s, 1).into(),
        ]);
    }
    table
}
