//! `lanecast simulate`: where the time of one pass goes.

use std::path::PathBuf;

use clap::Args;

use crate::case::Policy;
use crate::case::Question;
use crate::case::answer;
use crate::case::records::trace;
use crate::cli::output::Output;
use crate::cli::output::Pages;
use crate::cli::policy::PolicyArgument;
use crate::cli::question::QuestionArguments;
use crate::cli::session::Session;
use crate::decide::settings::policy_text;
use crate::error::Fault;
use crate::error::Result;
use crate::render::table::Column;
use crate::render::write::write_file;
use crate::report::Report;
use crate::simulate::Options;
use crate::strategy::Context;
use crate::strategy::Strategy;

/// Say where the time of one pass goes; without arguments, the case's baseline
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    question: QuestionArguments,
    /// The strategy (`lanecast strategies`)
    #[arg(long, default_value = "nccl-16-channels", conflicts_with = "policy")]
    strategy: String,
    /// Strategies by message size: 64K:nccl-ring-ll,nccl-default
    #[arg(long, value_name = "SIZE:ID,…,ID")]
    policy: Option<PolicyArgument>,
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
    pub(super) pages: Pages,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Simulates one pass.
///
/// # Errors
/// Bad input, a strategy that cannot run, files that cannot be written.
pub fn run(arguments: &Arguments, session: &Session) -> Result<Report> {
    let loaded = arguments.question.load(session)?;
    let policy = match &arguments.policy {
        Some(policy) => policy.policy()?,
        None => Policy::single(Strategy::find(&arguments.strategy)?),
    };
    let question = under(&loaded.question(), &policy)?;
    let mut context = Context::new(&loaded.machine, loaded.partition.ranks() as usize);
    context.environment.clone_from(&loaded.environment);
    for (_, strategy) in &policy.rows {
        if let Some(reason) = strategy.refusal(&context) {
            return Err(Fault::new("strategy-infeasible", format!("{} cannot run here: {reason}", strategy.id)));
        }
    }
    let plan = question.plan()?;
    let records = arguments.trace.is_some() || arguments.perfetto.is_some() || arguments.pages.wanted();
    let options = Options { reuse: !arguments.no_reuse, records };
    let answer = answer(&question, &plan, &policy, &context, options)?;
    let name = policy_text(&policy);
    let hash = plan.hash();
    let mut drawn = None;
    if records {
        let text = trace(&answer, &question, &name, hash)?;
        if let Some(path) = &arguments.trace {
            write_file(path, text.as_bytes())?;
        }
        if arguments.pages.wanted() {
            drawn = Some(crate::trace::record::Reader::open("trace", text.as_bytes())?.read_all()?);
        }
        if let Some(path) = &arguments.perfetto {
            let mut reader = crate::trace::record::Reader::open("trace", text.as_bytes())?;
            write_file(path, &crate::trace::perfetto::convert(&mut reader, Vec::new())?)?;
        }
    }
    session.detail(&format!("{} events", answer.outcome.events));
    let sections = crate::report::simulate::sections(&loaded.headline(), &answer, &name, &loaded.machine, drawn.as_deref());
    let mut rows = crate::report::simulate::kinds(&answer);
    rows.fill(Column::text("fits_memory", "fits memory"), loaded.fits_memory());
    Ok(Report {
        title: "Where the time of one pass goes".to_owned(),
        sections,
        rows,
        exact: None,
        json: None,
        reproduce: session.reproduce().hash("plan", hash).input("machine", loaded.machine.to_toml().as_bytes()),
        passed: true,
    })
}

/// A strategy that splits the model in its own way does so alone.
fn under<'a>(question: &Question<'a>, policy: &Policy) -> Result<Question<'a>> {
    if let [(_, strategy)] = policy.rows.as_slice() {
        return Ok(question.under(strategy));
    }
    for (_, strategy) in &policy.rows {
        if question.under(strategy).partition != question.partition {
            return Err(Fault::new("policy-splits", format!("{} splits the model in its own way, whatever the size", strategy.id))
                .help("simulate it alone with --strategy"));
        }
    }
    Ok(*question)
}
