//! Orders the strategies for one pass.

use std::collections::BTreeMap;

use rayon::prelude::*;

use crate::case::Answer;
use crate::case::LaunchMode;
use crate::case::Policy;
use crate::case::Question;
use crate::case::answer;
use crate::case::chain;
use crate::error::Fault;
use crate::error::Result;
use crate::plan::Plan;
use crate::simulate::Options;
use crate::strategy::Context;
use crate::strategy::Logical;
use crate::strategy::Lowering;
use crate::strategy::Searches;
use crate::strategy::Strategy;
use crate::units::Time;

use super::evidence::Evidence;
use super::evidence::communication_margin_ms;

/// Tokens of the prefill chunk that `prefill_change_pct` speaks of.
pub const PREFILL_TOKENS: u64 = 2048;

/// What is to be ranked.
pub struct Request<'a> {
    /// Machine, model, workload, partition, launch.
    pub question: Question<'a>,
    /// The strategies, in any order.
    pub strategies: Vec<&'static Strategy>,
    /// What savings are counted against.
    pub baseline: &'static Strategy,
    /// Variables that are set whatever the strategy.
    pub environment: BTreeMap<String, String>,
    /// NCCL's searches, shared by all that is simulated for this request.
    pub searches: Searches,
}

/// One strategy's forecast, or why there is none.
pub struct Row {
    /// Which.
    pub strategy: &'static Strategy,
    /// What its forecast rests on.
    pub evidence: Evidence,
    /// The forecast, or the reason why it cannot run.
    pub outcome: std::result::Result<Forecast, String>,
}

/// One strategy's figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// The pass.
    pub pass: Time,
    /// Mean of the layers' all-reduces.
    pub allreduce: Time,
    /// How many.
    pub allreduce_count: u64,
    /// Bytes of each.
    pub allreduce_bytes: u64,
    /// Time after the last arrival, all collectives.
    pub communication: Time,
    /// Waiting for the last arrival.
    pub skew: Time,
    /// Compute kernels.
    pub compute: Time,
    /// Gaps and launches.
    pub launch: Time,
    /// Half of a 90 % interval of the pass's communication, ms.
    pub margin_ms: f64,
    /// Baseline's pass − this pass, ms.
    pub saving_ms: f64,
    /// Change of a prefill chunk's time, percent.
    pub prefill_change_pct: f64,
    /// Tokens per second if every pass yields one token a sequence.
    pub tokens_per_s: f64,
}

/// All rows: feasible ones by pass, then infeasible ones by name.
pub struct Ranking {
    /// In order.
    pub rows: Vec<Row>,
    /// The baseline's own forecast.
    pub baseline: Forecast,
    /// The plan that was simulated.
    pub plan: Plan,
    /// Bytes of a prefill chunk's all-reduces.
    pub prefill_bytes: u64,
}

/// Ranks.
///
/// # Errors
/// Bad workloads and splits, a baseline that cannot run, and everything that
/// simulating can meet; a strategy that a gate refuses is a row, not an error.
pub fn rank(request: &Request<'_>) -> Result<Ranking> {
    let question = &request.question;
    let plan = question.plan()?;
    let prefill = Prefill::of(question, &request.searches)?;
    let mut wanted = request.strategies.clone();
    if !wanted.iter().any(|strategy| strategy.id == request.baseline.id) {
        wanted.push(request.baseline);
    }
    let evaluated: Vec<(Row, Option<Lowering>)> =
        wanted.par_iter().map(|&strategy| evaluate(request, &prefill, strategy)).collect::<Result<_>>()?;
    let (rows, lowered): (Vec<Row>, Vec<Option<Lowering>>) = evaluated.into_iter().unzip();
    let chunks = prefill.communication(request, &lowered)?;
    let evaluated: Vec<(Row, Option<Time>)> = rows.into_iter().zip(chunks).collect();
    let base = evaluated.iter().find(|(row, _)| row.strategy.id == request.baseline.id);
    let Some((Row { outcome: Ok(base), .. }, Some(base_prefill))) = base else {
        let reason = base.and_then(|(row, _)| row.outcome.as_ref().err()).cloned().unwrap_or_default();
        return Err(Fault::new("rank-baseline-infeasible", format!("the baseline {} cannot run here: {reason}", request.baseline.id))
            .help("choose another with --baseline"));
    };
    let (base, base_prefill) = (*base, *base_prefill);
    let mut rows: Vec<Row> = evaluated
        .into_iter()
        .map(|(mut row, chunk)| {
            if let (Ok(forecast), Some(chunk)) = (&mut row.outcome, chunk) {
                forecast.saving_ms = base.pass.ms() - forecast.pass.ms();
                forecast.prefill_change_pct = (chunk.ms() - base_prefill.ms()) / prefill.pass_with(base_prefill).ms() * 100.0;
            }
            row
        })
        .collect();
    rows.sort_by_key(|row| match &row.outcome {
        Ok(forecast) => (0, forecast.pass, row.strategy.id),
        Err(_) => (1, Time::ZERO, row.strategy.id),
    });
    Ok(Ranking { rows, baseline: base, plan, prefill_bytes: prefill.bytes })
}

/// Forecast of one strategy and how it lowers a prefill chunk's all-reduce.
fn evaluate(request: &Request<'_>, prefill: &Prefill, strategy: &'static Strategy) -> Result<(Row, Option<Lowering>)> {
    let question = &request.question;
    let machine = question.machine;
    let mut context = Context::new(machine, question.partition.tp as usize);
    context.environment.clone_from(&request.environment);
    context.searches = request.searches.clone();
    let evidence = machine.gpu_kind(0).map_or(Evidence::Assumed, |kind| Evidence::of(strategy, kind));
    if let Some(reason) = strategy.refusal(&context) {
        return Ok((Row { strategy, evidence, outcome: Err(reason) }, None));
    }
    if (strategy.partition)(question.partition.tp) != crate::plan::Partition::tensor(question.partition.tp) {
        let reason = "it splits the model in another way, which passes do not simulate yet".to_owned();
        return Ok((Row { strategy, evidence, outcome: Err(reason) }, None));
    }
    // The graph inside a plan is not made to be shared by threads; building it costs microseconds.
    let plan = question.plan()?;
    let answer = answer(question, &plan, &Policy::single(strategy), &context, Options::default())?;
    let forecast = forecast(&answer, question, communication_margin_ms(&answer, machine, strategy));
    let chunk = prefill.lowering(&context, strategy)?;
    Ok((Row { strategy, evidence, outcome: Ok(forecast) }, Some(chunk)))
}

fn forecast(answer: &Answer, question: &Question<'_>, margin_ms: f64) -> Forecast {
    let per_s = question.workload.batch as f64 * 1e3 / answer.pass.ms().max(1e-9);
    Forecast {
        pass: answer.pass,
        allreduce: answer.allreduce.mean,
        allreduce_count: answer.allreduce.count,
        allreduce_bytes: answer.allreduce.bytes,
        communication: answer.communication,
        skew: answer.skew,
        compute: answer.compute,
        launch: answer.launch,
        margin_ms,
        saving_ms: 0.0,
        prefill_change_pct: 0.0,
        tokens_per_s: per_s,
    }
}

/// A chunk of prefill: its compute, and how many all-reduces of which size.
struct Prefill {
    compute: Time,
    count: u64,
    bytes: u64,
}

impl Prefill {
    fn of(question: &Question<'_>, searches: &Searches) -> Result<Prefill> {
        let mut workload = question.workload;
        workload.phase = crate::model::Phase::Prefill;
        workload.batch = 1;
        workload.tokens = PREFILL_TOKENS;
        let asked = Question {
            workload,
            launch: LaunchMode::Graph,
            machine: question.machine,
            model: question.model,
            partition: question.partition,
        };
        let plan = asked.plan()?;
        let free = Strategy::find("free-communication")?;
        let mut context = Context::new(question.machine, question.partition.tp as usize);
        context.searches = searches.clone();
        let answer = answer(&asked, &plan, &Policy::single(free), &context, Options::default())?;
        let layers = |role: crate::plan::Role| role.is_layer_allreduce();
        let allreduces: Vec<u64> =
            plan.expand(0).iter().filter_map(|p| p.action.collective()).filter(|c| layers(c.role)).map(|c| c.bytes).collect();
        Ok(Prefill { compute: answer.pass, count: allreduces.len() as u64, bytes: allreduces.iter().copied().max().unwrap_or(0) })
    }

    /// The chunk's all-reduce under a strategy; without blocks when there is nothing to do.
    fn lowering(&self, context: &Context<'_>, strategy: &'static Strategy) -> Result<Lowering> {
        if self.bytes == 0 || context.ranks < 2 {
            return Ok(Lowering::custom(crate::collective::Schedule::new(context.ranks, 0)));
        }
        (strategy.lower)(context, strategy, Logical::AllReduce, self.bytes)
    }

    /// All of the chunk's all-reduces under each strategy that can run; equal schedules are simulated once.
    fn communication(&self, request: &Request<'_>, lowered: &[Option<Lowering>]) -> Result<Vec<Option<Time>>> {
        let machine = request.question.machine;
        let mut distinct: Vec<&Lowering> = Vec::new();
        let places: Vec<Option<usize>> = (lowered.iter())
            .map(|lowering| {
                let lowering = lowering.as_ref()?;
                Some(distinct.iter().position(|known| *known == lowering).unwrap_or_else(|| {
                    distinct.push(lowering);
                    distinct.len() - 1
                }))
            })
            .collect();
        let times: Vec<Time> = (distinct.par_iter())
            .map(|lowering| {
                if lowering.schedule.blocks.is_empty() {
                    return Ok(Time::ZERO);
                }
                let routes = request.searches.routes(machine);
                let outcome = chain::run_over(machine, routes, lowering, (chain::ChainLaunch::Graph, 1), Options::default())?;
                Ok(Time(outcome.critical().time).times(self.count))
            })
            .collect::<Result<_>>()?;
        Ok(places.into_iter().map(|place| place.map(|place| times[place])).collect())
    }

    fn pass_with(&self, communication: Time) -> Time {
        self.compute + communication
    }
}
