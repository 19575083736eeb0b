//! Orders the strategies for one pass.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::PoisonError;

use rayon::prelude::*;

use crate::case::Answer;
use crate::case::ExpertLoad;
use crate::case::LaunchMode;
use crate::case::Policy;
use crate::case::Prices;
use crate::case::Question;
use crate::case::answer;
use crate::case::answer_at;
use crate::case::chain;
use crate::case::pieces::added_up;
use crate::case::roads::Roads;
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
    /// What software leaves it aside on this machine without an error, and how to see it.
    pub notes: Vec<String>,
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
    /// What the experts cost where whole ones are dealt to ranks.
    pub experts: Option<ExpertLoad>,
    /// Tokens per second if every pass yields one token a sequence.
    pub tokens_per_s: f64,
}

/// All rows: feasible ones by pass, then infeasible ones by name.
pub struct Ranking {
    /// In order.
    pub rows: Vec<Row>,
    /// What savings are counted against.
    pub baseline_id: &'static str,
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
    let prices = Prices::new(Roads::new(question.machine, request.searches.routes(question.machine)));
    let places: Vec<Mutex<Option<Result<(Row, Option<Chunk>)>>>> = wanted.iter().map(|_| Mutex::default()).collect();
    rayon::scope_fifo(|scope| {
        for index in searches_first(&wanted) {
            let (place, strategy, prices, prefill) = (&places[index], wanted[index], &prices, &prefill);
            scope.spawn_fifo(move |_| {
                let found = evaluate(request, prefill, strategy, prices);
                *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
            });
        }
    });
    let evaluated: Vec<(Row, Option<Chunk>)> =
        places.into_iter().filter_map(|place| place.into_inner().unwrap_or_else(PoisonError::into_inner)).collect::<Result<_>>()?;
    let (rows, chunks): (Vec<Row>, Vec<Option<Chunk>>) = evaluated.into_iter().unzip();
    let times = prefill.under(request, &chunks)?;
    let evaluated: Vec<(Row, Option<Time>)> = rows.into_iter().zip(times).collect();
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
                forecast.prefill_change_pct = (chunk.ms() / base_prefill.ms() - 1.0) * 100.0;
            }
            row
        })
        .collect();
    rows.sort_by_key(|row| match &row.outcome {
        Ok(forecast) => (0, forecast.pass, row.strategy.id),
        Err(_) => (1, Time::ZERO, row.strategy.id),
    });
    Ok(Ranking { rows, baseline_id: request.baseline.id, baseline: base, plan, prefill_bytes: prefill.bytes })
}

/// Indices of the strategies: first those of which each needs another search of
/// NCCL's, so that threads search side by side and none waits for another's.
fn searches_first(strategies: &[&'static Strategy]) -> Vec<usize> {
    let searched = |strategy: &Strategy| -> Vec<(&str, &str)> {
        strategy.environment.iter().copied().filter(|(name, _)| !crate::nccl::NOT_SEARCHED.contains(name)).collect()
    };
    let mut met = BTreeSet::new();
    let (mut first, mut others) = (Vec::new(), Vec::new());
    for (index, strategy) in strategies.iter().enumerate() {
        let list = if met.insert(searched(strategy)) { &mut first } else { &mut others };
        list.push(index);
    }
    first.append(&mut others);
    first
}

/// What is known of a prefill chunk under a strategy.
enum Chunk {
    /// Split as asked: how it lowers the all-reduce. Its compute is that of the others.
    AsAsked(Lowering),
    /// Split in its own way: its time.
    Whole(Time),
}

/// Forecast of one strategy, and its prefill chunk.
fn evaluate(request: &Request<'_>, prefill: &Prefill, strategy: &'static Strategy, prices: &Prices) -> Result<(Row, Option<Chunk>)> {
    let question = &request.question;
    let machine = question.machine;
    let mut context = Context::new(machine, question.partition.ranks() as usize);
    context.environment.clone_from(&request.environment);
    context.searches = request.searches.clone();
    let evidence = machine.gpu_kind(0).map_or(Evidence::Assumed, |kind| Evidence::of(strategy, kind));
    let row = |outcome| Row { strategy, evidence, notes: strategy.notes(&context), outcome };
    if let Some(reason) = strategy.refusal(&context) {
        return Ok((row(Err(reason)), None));
    }
    let split = question.under(strategy);
    let as_asked = split.partition == question.partition;
    // The graph inside a plan is not made to be shared by threads; building it costs microseconds.
    let plan = match split.plan() {
        Err(fault) if !as_asked => return Ok((row(Err(fault.message.clone())), None)),
        plan => plan?,
    };
    let answer = answer_at(&split, &plan, &Policy::single(strategy), &context, prices)?;
    let forecast = forecast(&answer, question, communication_margin_ms(&answer, machine, strategy));
    let chunk = if as_asked {
        Chunk::AsAsked(prefill.lowering(&context, strategy)?)
    } else {
        Chunk::Whole(whole_prefill(&split, &context, strategy)?)
    };
    Ok((row(Ok(forecast)), Some(chunk)))
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
        experts: answer.expert_load(),
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
        let asked = chunk_of(question);
        let plan = asked.plan()?;
        let free = Strategy::find("free-communication")?;
        let mut context = Context::new(question.machine, question.partition.ranks() as usize);
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

    /// The chunk under each strategy that can run: its compute and all of its
    /// all-reduces. Equal schedules are simulated once.
    fn under(&self, request: &Request<'_>, chunks: &[Option<Chunk>]) -> Result<Vec<Option<Time>>> {
        let machine = request.question.machine;
        let mut distinct: Vec<&Lowering> = Vec::new();
        for chunk in chunks {
            if let Some(Chunk::AsAsked(lowering)) = chunk
                && !distinct.contains(&lowering)
            {
                distinct.push(lowering);
            }
        }
        let times: Vec<Time> = (distinct.par_iter())
            .map(|lowering| {
                if lowering.schedule.blocks.is_empty() {
                    return Ok(self.compute);
                }
                let routes = request.searches.routes(machine);
                Ok(self.compute + chain::time_of_one(machine, routes, lowering)?.times(self.count))
            })
            .collect::<Result<_>>()?;
        let time = |chunk: &Chunk| match chunk {
            Chunk::Whole(time) => Some(*time),
            Chunk::AsAsked(lowering) => distinct.iter().position(|known| *known == lowering).map(|place| times[place]),
        };
        Ok(chunks.iter().map(|chunk| chunk.as_ref().and_then(time)).collect())
    }
}

/// The question of a prefill chunk.
fn chunk_of<'a>(question: &Question<'a>) -> Question<'a> {
    let mut workload = question.workload;
    workload.phase = crate::model::Phase::Prefill;
    // Halves that take turns are two prompts of half the length.
    workload.batch = u64::from(question.partition.micro_batches);
    workload.tokens = PREFILL_TOKENS / workload.batch.max(1);
    Question { workload, launch: LaunchMode::Graph, ..*question }
}

/// A chunk under a strategy that splits the model in its own way: its compute,
/// and each of its collectives as long as one alone takes. Where collectives run
/// beside computations, or stages wait for one another, the pass is simulated whole.
fn whole_prefill(split: &Question<'_>, context: &Context<'_>, strategy: &'static Strategy) -> Result<Time> {
    let asked = chunk_of(split);
    let plan = asked.plan()?;
    let under = Policy::single(strategy);
    if split.partition.micro_batches > 1 || split.partition.pp > 1 {
        return Ok(answer(&asked, &plan, &under, context, Options::default())?.pass);
    }
    added_up(&asked, &plan, &under, context)
}
