//! `lanecast rank`: the strategies in order, and what the observations allow.

use clap::Args;

use crate::cli::arguments::Assignment;
use crate::cli::output::Output;
use crate::cli::output::Pages;
use crate::cli::question::QuestionArguments;
use crate::cli::question::observed_pair;
use crate::cli::question::strategies;
use crate::cli::session::Session;
use crate::decide::finding;
use crate::decide::finding::Observed;
use crate::decide::rank;
use crate::decide::rank::Request;
use crate::decide::uncertain;
use crate::decide::variables::Asked;
use crate::decide::variables::effects;
use crate::error::Result;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Column;
use crate::report::Report;
use crate::strategy::Strategy;

/// Rank the ways to a faster pass; without arguments, the case
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    question: QuestionArguments,
    /// Only these, separated by commas
    #[arg(long, value_name = "IDS")]
    strategies: Option<String>,
    /// What savings are counted against
    #[arg(long, default_value = "nccl-16-channels")]
    baseline: String,
    /// What was measured: verify_ms=30, decode_tps=82; the case's numbers by default where the question is the case
    #[arg(long, value_name = "NAME=NUMBER")]
    observed: Vec<Assignment>,
    /// Draw so many samples of all constants: intervals, chances, ties, what decides
    #[arg(long, value_name = "N")]
    samples: Option<usize>,
    /// The seed of the samples
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    pub(super) pages: Pages,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Ranks.
///
/// # Errors
/// Bad input, or a baseline that cannot run.
pub fn run(arguments: &Arguments, session: &Session) -> Result<Report> {
    let loaded = arguments.question.load(session)?;
    let request = Request {
        question: loaded.question(),
        strategies: strategies(arguments.strategies.as_deref())?,
        baseline: Strategy::find(&arguments.baseline)?,
        environment: loaded.environment.clone(),
        searches: crate::strategy::Searches::default(),
    };
    let observed = observed(arguments)?;
    let ranking = rank::rank(&request)?;
    let few = ranking.rows.iter().find(|row| row.strategy.id == "nccl-few-channels" && row.outcome.is_ok());
    let sizes = [(ranking.baseline.allreduce_bytes, true), (ranking.prefill_bytes, false)];
    let asked = Asked {
        machine: &loaded.machine,
        ranks: loaded.partition.ranks() as usize,
        environment: &loaded.environment,
        searches: &request.searches,
    };
    // Neither needs the other; both need the ranking.
    let (finding, variables) = rayon::join(
        || finding::find(&request, &observed, ranking.baseline.pass),
        || few.map(|row| effects(&asked, row.strategy, &sizes)).transpose(),
    );
    let (finding, variables) = (finding?, variables?.unwrap_or_default());
    for note in &loaded.model.not_modelled {
        session.detail(&format!("not modelled: {note}"));
    }
    let uncertainty =
        arguments.samples.map(|samples| uncertain::sample(&loaded, &ranking, &request.searches, samples, arguments.seed)).transpose()?;
    let mut sections = crate::report::rank::sections(&ranking, &finding, &variables, &loaded.headline());
    let mut rows = crate::report::rank::csv_table(&ranking);
    rows.fill(Column::text("fits_memory", "fits memory"), loaded.fits_memory());
    let mut reproduce = session.reproduce();
    if arguments.pages.wanted() {
        crate::report::rank_page::add_drawings(&mut sections, &ranking, request.baseline.id);
    }
    if let Some(uncertainty) = &uncertainty {
        // Behind finding and ranking.
        sections.insert(2, crate::report::uncertain::section(&ranking, uncertainty));
        crate::report::uncertain::add_columns(&mut rows, uncertainty);
        reproduce = reproduce.seed(uncertainty.seed);
    }
    let assumptions = loaded.assumptions();
    if !assumptions.is_empty() {
        let blocks = vec![Block::List(assumptions)];
        sections.insert(1.min(sections.len()), Section { heading: format!("What is assumed of {}", loaded.machine.id), blocks });
    }
    Ok(Report {
        title: "Ways to a faster pass".to_owned(),
        sections,
        rows,
        exact: None,
        json: Some(crate::report::rank::json(&ranking, uncertainty.as_ref(), loaded.fits_memory())),
        reproduce: reproduce.hash("plan", ranking.plan.hash()).input("machine", loaded.machine.to_toml().as_bytes()),
        passed: true,
    })
}

/// What the user observed; the case's own numbers when nothing of the case was changed.
fn observed(arguments: &Arguments) -> Result<Observed> {
    if arguments.observed.is_empty() && arguments.question.is_case() && arguments.question.tokens == 3 {
        return Ok(Observed { verify_ms: Some(30.0), decode_tps: Some(82.0) });
    }
    let pair = observed_pair(&arguments.observed)?;
    Ok(Observed { verify_ms: pair.verify_ms, decode_tps: pair.decode_tps })
}
