//! `lanecast optimize`: the best policy for a machine and a workload.

use clap::Args;

use crate::case::Case;
use crate::case::LaunchMode;
use crate::case::too_large;
use crate::cli::arguments::Assignment;
use crate::cli::output::Output;
use crate::cli::question::environment;
use crate::cli::question::strategies;
use crate::cli::question::warn_of_variables;
use crate::cli::session::Session;
use crate::cli::speculate::DraftArgument;
use crate::cli::speculate::drafter;
use crate::cli::speculate::rates;
use crate::decide::optimize;
use crate::decide::optimize::Request;
use crate::error::Fault;
use crate::error::Result;
use crate::machine::Machine;
use crate::model::Model;
use crate::model::Phase;
use crate::model::Workload;
use crate::plan::Partition;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::render::table::Column;
use crate::report::Report;
use crate::report::optimize::Asked;
use crate::report::optimize::rows;
use crate::report::optimize::sections;
use crate::strategy::Effort;

/// Most drafts of a cycle.
const DRAFTS_MAX: u64 = 32;

/// Find the best strategies by size, channels, drafts and split with few simulations
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
    /// Who drafts
    #[arg(long, value_enum, default_value = "auto")]
    draft: DraftArgument,
    /// Numbers of drafts a cycle to choose from; 0 is plain decoding
    #[arg(long, value_delimiter = ',', default_value = "0,1,2,3,4,5")]
    drafts: Vec<u64>,
    /// Chance of each draft (one number), or the share of cycles in which each position is accepted; by default that of `speculate`
    #[arg(long, value_name = "RATES")]
    acceptance: Option<String>,
    /// Splits to choose from as TPxPPxEP; by default all of the machine's ranks that the model allows
    #[arg(long, value_delimiter = ',', value_name = "TPxPPxEP")]
    partitions: Vec<String>,
    /// Only these strategies, separated by commas; by default all that can be tried
    #[arg(long)]
    strategies: Option<String>,
    /// NCCL's channels to choose from; 0 is its own choice
    #[arg(long, value_delimiter = ',', default_value = "0,1,2,4,8,16,32")]
    channels: Vec<u32>,
    /// Changes one number (`lanecast explain knobs`): `--set fabric.host_memory_latency_ns=600`
    #[arg(long, value_name = "PATH=NUMBER")]
    set: Vec<Assignment>,
    /// A variable that is set for NCCL anyway: `--env NCCL_P2P_LEVEL=SYS`
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Simulate every collective of every strategy, to check the search
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
    let case = case(arguments)?;
    if let Some(unknown) = case.model.unknown_architecture() {
        session.warn(&unknown);
    }
    let mut choices = strategies(arguments.strategies.as_deref())?;
    if arguments.strategies.is_none() {
        choices.retain(|strategy| strategy.effort != Effort::None);
    }
    if let Some(drafts) = arguments.drafts.iter().find(|drafts| **drafts > DRAFTS_MAX) {
        return Err(Fault::new("optimize-bad-value", format!("{drafts} drafts a cycle")).help(format!("expected at most {DRAFTS_MAX}")));
    }
    if let Some(channels) = arguments.channels.iter().find(|channels| **channels > 64) {
        return Err(Fault::new("optimize-bad-value", format!("{channels} channels")).help("NCCL has at most 64; 0 is its own choice"));
    }
    let request = Request {
        case: &case,
        drafter: drafter(arguments.draft, &case)?,
        acceptance: rates(arguments.acceptance.as_deref(), &case.speculation)?,
        drafts: arguments.drafts.clone(),
        partitions: partitions(&arguments.partitions, case.partition.tp)?,
        strategies: choices,
        channels: arguments.channels.clone(),
    };
    warn_of_variables(&case.environment, &case.machine, session)?;
    let found = optimize::optimize(&request, arguments.exhaustive)?;
    let mut rows = rows(&found);
    let memory = too_large(&case.machine, &case.model, found.best.partition.ranks());
    rows.fill(Column::text("fits_memory", "fits memory"), memory.is_none());
    let asked = Asked {
        machine: &arguments.machine,
        model: &arguments.model,
        set: arguments.set.iter().map(|set| format!("{}={}", set.name, set.value)).collect(),
        environment: &arguments.env,
    };
    let mut sections = sections(&request, &found, &asked);
    if let Some((weights, memory)) = memory {
        let gb = |bytes: u64| Number::new(bytes as f64 / 1e9, 0).digits();
        let words =
            format!("It does not fit: {} GB of weights a GPU of {} GB; this is what it would take if it did.", gb(weights), gb(memory));
        sections[0].blocks.insert(1, Block::Text(words));
    }
    Ok(Report {
        title: "The best policy".to_owned(),
        sections,
        rows,
        exact: None,
        json: None,
        reproduce: session.reproduce().input("machine", case.machine.to_toml().as_bytes()),
        passed: true,
    })
}

/// The machine and the model with `--set` applied, on all of the machine's ranks.
fn case(arguments: &Arguments) -> Result<Case> {
    let (machine, model) = (Machine::load(&arguments.machine)?, Model::load(&arguments.model)?);
    let ranks = (machine.gpus.len() as u32).saturating_mul(machine.ranks_per_gpu);
    let mut workload = Workload::new(Phase::Decode, 1, arguments.context);
    workload.batch = arguments.batch;
    workload.check()?;
    let mut case = Case::new(machine, model, workload, Partition::tensor(ranks), LaunchMode::Graph);
    case.environment = environment(&arguments.env)?;
    for assignment in &arguments.set {
        if ["partition.", "workload.tokens", "speculation.draft_steps"].iter().any(|chosen| assignment.name.starts_with(chosen)) {
            return Err(Fault::new("optimize-bad-value", format!("{} is what is to be found", assignment.name))
                .help("narrow the choice with --partitions or --drafts"));
        }
        case.set(&assignment.name, assignment.value)?;
    }
    Ok(case)
}

fn partitions(listed: &[String], ranks: u32) -> Result<Vec<Partition>> {
    let of = |tp, pp, ep| Partition { pp, ep, ..Partition::tensor(tp) };
    if listed.is_empty() {
        let mut all: Vec<Partition> = Vec::new();
        for pp in (1..=ranks).filter(|pp| ranks.is_multiple_of(*pp)) {
            for partition in [of(ranks / pp, pp, 1), of(ranks / pp, pp, ranks / pp)] {
                if !all.contains(&partition) {
                    all.push(partition);
                }
            }
        }
        return Ok(all);
    }
    (listed.iter())
        .map(|text| {
            let parts: Option<Vec<u32>> = text.split('x').map(|part| part.parse().ok().filter(|part| (1..=64).contains(part))).collect();
            match parts.as_deref() {
                Some(&[tp, pp, ep]) => Ok(of(tp, pp, ep)),
                _ => Err(Fault::new("optimize-bad-value", format!("`{text}` is no split")).help("write TPxPPxEP, such as 8x1x1")),
            }
        })
        .collect()
}
