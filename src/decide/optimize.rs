//! The best policy for a machine and a workload: strategy for each size,
//! channels, drafts and how the model is split, with few of the grid's passes
//! simulated.
//!
//! 1. With communication that takes no time a pass of so many drafts, split so,
//!    is as short as it can be: that bounds its tokens per second.
//! 2. Of strategies and channels that lower an all-reduce to one schedule only
//!    one is kept; one all-reduce alone tells about how long the pass takes.
//! 3. Passes are simulated in the order of what they promise, as long as their
//!    promise is not worse than the best found by more than [`SLACK`].

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::case::Policy;
use crate::case::Prices;
use crate::case::Question;
use crate::case::answer_at;
use crate::case::prices::Asked;
use crate::case::prices::Priced;
use crate::case::roads::Roads;
use crate::error::Fault;
use crate::error::Result;
use crate::machine::Machine;
use crate::model::Model;
use crate::model::Phase;
use crate::model::Workload;
use crate::plan::Kind;
use crate::plan::Partition;
use crate::plan::Plan;
use crate::strategy::Context;
use crate::strategy::Executor;
use crate::strategy::Logical;
use crate::strategy::Searches;
use crate::strategy::Strategy;
use crate::units::Time;

use super::rank::PREFILL_TOKENS;

/// How far a promise may be off: ranks that come late shorten a collective, and
/// a fused kernel takes norms along.
pub const SLACK: f64 = 0.15;

/// What is asked.
pub struct Request<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The model.
    pub model: &'a Model,
    /// Sequences.
    pub batch: u64,
    /// Cached positions of each.
    pub context: u64,
    /// Numbers of drafts to choose from.
    pub drafts: Vec<u64>,
    /// Chance that a draft is accepted.
    pub acceptance: f64,
    /// Ways to split the model to choose from.
    pub partitions: Vec<Partition>,
    /// Strategies to choose from.
    pub strategies: Vec<&'static Strategy>,
    /// NCCL's channels to choose from; 0 is its own choice.
    pub channels: Vec<u32>,
    /// Variables that are set anyway.
    pub environment: BTreeMap<String, String>,
}

/// One of the grid.
#[derive(Clone, Copy)]
pub struct Candidate {
    /// Drafts of a sequence in a pass.
    pub drafts: u64,
    /// How the model is split.
    pub partition: Partition,
    /// How it communicates.
    pub strategy: &'static Strategy,
    /// NCCL's channels; 0 is its own choice.
    pub channels: u32,
}

/// One that was simulated.
#[derive(Clone, Copy)]
pub struct Tried {
    /// Which.
    pub candidate: Candidate,
    /// The pass.
    pub pass: Time,
    /// Of all sequences.
    pub tokens_per_s: f64,
    /// Bytes of the layers' all-reduces.
    pub bytes: u64,
}

/// The answer.
pub struct Found {
    /// All that were simulated, the best first.
    pub tried: Vec<Tried>,
    /// What to take for the all-reduces of a prefill chunk: bytes, strategy, channels, time of one.
    pub prefill: Option<(u64, &'static Strategy, u32, Time)>,
    /// How many the grid has.
    pub grid: u64,
    /// Passes simulated, those of free communication included.
    pub passes: u64,
    /// Single all-reduces simulated.
    pub singles: u64,
    /// Why parts of the grid cannot run.
    pub refused: BTreeMap<String, u64>,
}

/// Searches; `exhaustive` simulates every pass of the grid instead.
///
/// # Errors
/// `optimize-nothing-feasible` when nothing can run, and what the machine or the variables refuse.
pub fn optimize(request: &Request<'_>, exhaustive: bool) -> Result<Found> {
    let mut search = Search::new(request);
    let mut shapes = Vec::new();
    for &drafts in &request.drafts {
        for &partition in &request.partitions {
            if let Some(shape) = search.shape(drafts, partition)? {
                shapes.push(shape);
            }
        }
    }
    // What promises most first, so that the rest is seldom looked at.
    shapes.sort_by(|a, b| b.bound.total_cmp(&a.bound).then(a.drafts.cmp(&b.drafts)).then(a.partition.cmp(&b.partition)));
    let mut tried: Vec<Tried> = Vec::new();
    for shape in &shapes {
        let best = |tried: &[Tried]| tried.iter().map(|tried| tried.tokens_per_s).fold(0.0, f64::max);
        if !exhaustive && shape.bound * (1.0 + SLACK) <= best(&tried) {
            continue;
        }
        let mut first: BTreeMap<&str, f64> = BTreeMap::new();
        for (promise, candidate) in search.candidates(shape, exhaustive)? {
            // What a strategy gave with other channels tells what more channels can give.
            let known = first.get(candidate.strategy.id).map(|tokens| (*tokens, slack_of_channels(candidate.strategy)));
            let (promise, slack) = known.filter(|(tokens, _)| *tokens < promise).unwrap_or((promise, SLACK));
            if exhaustive || promise * (1.0 + slack) > best(&tried) {
                let done = search.simulate(shape, candidate)?;
                first.entry(candidate.strategy.id).or_insert(done.map_or(0.0, |done| done.tokens_per_s));
                tried.extend(done);
            }
        }
    }
    let order = |t: &Tried| (t.pass, t.candidate.strategy.id, t.candidate.channels);
    tried.sort_by(|a, b| b.tokens_per_s.total_cmp(&a.tokens_per_s).then_with(|| order(a).cmp(&order(b))));
    let Some(best) = tried.first() else {
        let reasons: Vec<&str> = search.refused.keys().map(String::as_str).collect();
        return Err(Fault::new("optimize-nothing-feasible", format!("nothing of the grid can run: {}", reasons.join("; "))));
    };
    let prefill = search.prefill(best.candidate.partition)?;
    let choices = (request.strategies.len() * request.channels.len()) as u64;
    let grid = (request.drafts.len() * request.partitions.len()) as u64 * choices;
    Ok(Found { tried, prefill, grid, passes: search.passes, singles: search.singles, refused: search.refused })
}

/// How far channels can move a pass: that of a kernel of its own only where NCCL
/// does the rest, embedding and logits.
fn slack_of_channels(strategy: &Strategy) -> f64 {
    if strategy.executor == Executor::Nccl { SLACK } else { SLACK / 10.0 }
}

/// A number of drafts and a split, with the pass that communication cannot shorten.
struct Shape {
    drafts: u64,
    partition: Partition,
    plan: Plan,
    floor: Time,
    /// Tokens per second of the floor.
    bound: f64,
    /// The layers' all-reduces.
    count: u64,
    bytes: u64,
}

struct Search<'a> {
    request: &'a Request<'a>,
    searches: Searches,
    prices: Prices,
    passes: u64,
    singles: u64,
    refused: BTreeMap<String, u64>,
}

impl<'a> Search<'a> {
    fn new(request: &'a Request<'a>) -> Search<'a> {
        let searches = Searches::default();
        let prices = Prices::new(Roads::new(request.machine, searches.routes(request.machine)));
        Search { request, searches, prices, passes: 0, singles: 0, refused: BTreeMap::new() }
    }

    fn question(&self, drafts: u64, partition: Partition) -> Question<'a> {
        let phase = if drafts == 0 { Phase::Decode } else { Phase::Verify };
        let mut workload = Workload::new(phase, drafts + 1, self.request.context);
        workload.batch = self.request.batch;
        let (machine, model) = (self.request.machine, self.request.model);
        Question { machine, model, workload, partition, launch: crate::case::LaunchMode::Graph }
    }

    fn context(&self, partition: Partition, channels: u32) -> Context<'a> {
        let mut context = Context::new(self.request.machine, partition.ranks() as usize);
        context.environment.clone_from(&self.request.environment);
        context.searches = self.searches.clone();
        context.row_bytes = self.request.model.hidden * 2;
        if channels > 0 {
            for name in ["NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"] {
                context.environment.insert(name.to_owned(), channels.to_string());
            }
        }
        context
    }

    /// An all-reduce of all ranks.
    fn price(&mut self, context: &Context<'_>, strategy: &'static Strategy, partition: Partition, bytes: u64) -> Result<Priced> {
        let asked = Asked::of(context, partition, context.row_bytes).with(strategy, Kind::AllReduce, bytes, 0);
        self.prices.of(self.request.machine, asked, || (strategy.lower)(context, strategy, Logical::AllReduce, bytes))
    }

    fn refuse(&mut self, reason: &str, count: usize) {
        *self.refused.entry(reason.to_owned()).or_default() += count as u64;
    }

    fn tokens_per_s(&self, drafts: u64, pass: Time) -> f64 {
        let chance = self.request.acceptance;
        let tokens: f64 = (0..=drafts).scan(1.0, |all, _| Some(std::mem::replace(all, *all * chance))).sum();
        self.request.batch as f64 * tokens * 1e3 / pass.ms().max(1e-9)
    }

    /// None where the model cannot be split so, or the pass needs what is not modelled.
    fn shape(&mut self, drafts: u64, partition: Partition) -> Result<Option<Shape>> {
        let question = self.question(drafts, partition);
        question.workload.check()?;
        let free = Policy::single(Strategy::find("free-communication")?);
        let context = self.context(partition, 0);
        let done = question.plan().and_then(|plan| {
            let answer = answer_at(&question, &plan, &free, &context, &mut self.prices)?;
            Ok((plan, answer))
        });
        self.passes += 1;
        match done {
            Ok((plan, answer)) => {
                let (count, bytes) = (answer.allreduce.count, answer.allreduce.bytes);
                let (count, bytes) = if count > 0 { (count, bytes) } else { layers(&plan) };
                let bound = self.tokens_per_s(drafts, answer.pass);
                Ok(Some(Shape { drafts, partition, plan, floor: answer.pass, bound, count, bytes }))
            }
            Err(fault) => {
                let choices = self.request.strategies.len() * self.request.channels.len();
                self.refuse(&fault.message, choices);
                Ok(None)
            }
        }
    }

    /// Strategies and channels that differ, with the tokens per second that they promise, most first.
    fn candidates(&mut self, shape: &Shape, all: bool) -> Result<Vec<(f64, Candidate)>> {
        let mut found: Vec<(f64, Candidate)> = Vec::new();
        let mut seen = Vec::new();
        for &strategy in &self.request.strategies {
            for &channels in &self.request.channels {
                let context = self.context(shape.partition, channels);
                if !splits_so(strategy, shape.partition) {
                    self.refuse("the strategy splits the model in its own way", 1);
                    continue;
                }
                if let Some(reason) = strategy.refusal(&context) {
                    self.refuse(&reason, 1);
                    continue;
                }
                let candidate = Candidate { drafts: shape.drafts, partition: shape.partition, strategy, channels };
                if all || shape.partition.pp > 1 || shape.partition.ep > 1 {
                    // Other collectives count as well: the promise is that of the floor.
                    found.push((shape.bound, candidate));
                    continue;
                }
                let priced = match self.price(&context, strategy, shape.partition, shape.bytes) {
                    Ok(priced) => priced,
                    Err(fault) => {
                        self.refuse(&fault.message, 1);
                        continue;
                    }
                };
                // The same schedule, and the same of what comes with it, need not be looked at twice.
                let twin = seen.iter().any(|(probe, fuses)| Arc::ptr_eq(probe, &priced.probe) && *fuses == strategy.fuses_norm);
                if twin && strategy.executor == Executor::Nccl {
                    continue;
                }
                let alone = priced.probe.alone().unwrap_or(0);
                self.singles += u64::from(!twin);
                seen.push((priced.probe, strategy.fuses_norm));
                found.push((self.tokens_per_s(shape.drafts, shape.floor + Time(alone).times(shape.count)), candidate));
            }
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        Ok(found)
    }

    fn simulate(&mut self, shape: &Shape, candidate: Candidate) -> Result<Option<Tried>> {
        let question = self.question(shape.drafts, shape.partition);
        let context = self.context(shape.partition, candidate.channels);
        self.passes += 1;
        match answer_at(&question, &shape.plan, &Policy::single(candidate.strategy), &context, &mut self.prices) {
            Ok(answer) => Ok(Some(Tried {
                candidate,
                pass: answer.pass,
                tokens_per_s: self.tokens_per_s(shape.drafts, answer.pass),
                bytes: answer.allreduce.bytes,
            })),
            Err(fault) => {
                self.refuse(&fault.message, 1);
                Ok(None)
            }
        }
    }

    /// The fastest for the all-reduces of a prefill chunk, which are larger.
    fn prefill(&mut self, partition: Partition) -> Result<Option<(u64, &'static Strategy, u32, Time)>> {
        let mut question = self.question(0, partition);
        question.workload = Workload::new(Phase::Prefill, PREFILL_TOKENS, self.request.context);
        let bytes = layers(&question.plan()?).1;
        let mut best: Option<(Time, &'static Strategy, u32)> = None;
        for &strategy in &self.request.strategies {
            for &channels in &self.request.channels {
                let context = self.context(partition, channels);
                if bytes == 0
                    || partition.pp > 1
                    || !splits_so(strategy, partition)
                    || strategy.executor == Executor::ModelledOnly
                    || strategy.refusal(&context).is_some()
                {
                    continue;
                }
                let Ok(priced) = self.price(&context, strategy, partition, bytes) else { continue };
                let Some(alone) = priced.probe.alone() else { continue };
                self.singles += 1;
                if best.is_none_or(|(time, _, _)| Time(alone) < time) {
                    best = Some((Time(alone), strategy, channels));
                }
            }
        }
        Ok(best.map(|(time, strategy, channels)| (bytes, strategy, channels, time)))
    }
}

/// Whether a strategy runs under a split: most leave it open, some bring their own.
fn splits_so(strategy: &Strategy, partition: Partition) -> bool {
    let own = (strategy.partition)(partition.ranks());
    own == Partition::tensor(partition.ranks()) || own == partition
}

/// How many all-reduces a plan's layers have, and of how many bytes.
fn layers(plan: &Plan) -> (u64, u64) {
    let actions = plan.expand(0);
    let all: Vec<u64> = (actions.iter())
        .filter_map(|placed| placed.action.collective())
        .filter(|collective| collective.role.is_layer_allreduce())
        .map(|collective| collective.bytes)
        .collect();
    (all.len() as u64, all.iter().copied().max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(machine: &str, tp: u32, batch: u64, exhaustive: bool) -> (Tried, u64, u64) {
        let machine = Machine::load(machine).expect("it is embedded");
        let model = Model::load("kimi-k2.5").expect("it is embedded");
        let names = ["nccl-default", "nccl-ring-ll", "nccl-tree-ll", "one-shot-push", "two-shot", "flashinfer-pcie-ipc"];
        let request = Request {
            machine: &machine,
            model: &model,
            batch,
            context: 128,
            drafts: vec![0, 2],
            acceptance: 0.7,
            partitions: vec![Partition::tensor(tp)],
            strategies: names.map(|name| Strategy::find(name).expect("known")).to_vec(),
            channels: vec![0, 1, 4],
            environment: BTreeMap::new(),
        };
        let found = optimize(&request, exhaustive).expect("something runs");
        (found.tried[0], found.passes, found.grid)
    }

    #[test]
    fn it_finds_the_best_of_small_grids_with_fewer_passes() {
        for (machine, tp, batch) in [("8x-rtx-pro-6000-server", 8, 1), ("4x-rtx-pro-6000-one-chip", 4, 16)] {
            let (found, passes, grid) = best(machine, tp, batch, false);
            let (wanted, _, _) = best(machine, tp, batch, true);
            assert_eq!((found.pass, found.tokens_per_s), (wanted.pass, wanted.tokens_per_s), "{machine}");
            assert!(passes * 2 < grid, "{passes} of {grid}");
        }
    }
}
