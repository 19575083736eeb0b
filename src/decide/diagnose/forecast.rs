//! What would be observed in a scenario: passes and collectives are simulated,
//! copies counted along their routes.

use std::collections::BTreeMap;

use crate::case::Answer;
use crate::case::LaunchMode;
use crate::case::Policy;
use crate::case::Question;
use crate::case::answer;
use crate::case::assemble::assemble;
use crate::case::chain;
use crate::error::Result;
use crate::machine::PeerAccess;
use crate::model::Phase;
use crate::model::Workload;
use crate::model::shape::FeedForward;
use crate::model::shape::Layer;
use crate::nccl;
use crate::simulate::Operation;
use crate::simulate::Options;
use crate::strategy::Context;
use crate::strategy::Executor;
use crate::strategy::Logical;
use crate::strategy::Strategy;
use crate::strategy::nccl_family::lower_on;

use super::copies;
use super::kind::Kind;
use super::memo::Memo;
use super::memo::Pass;
use super::scenario::Scenario;
use super::scenario::Setup;

/// What a draft step costs in layers of the target: one layer, a head, an embedding. Assumed.
const DRAFT_LAYERS: f64 = 1.5;

/// Acceptance of a draft that works, where nobody measured it. Public EAGLE-3 drafts show 0.3 to 0.8.
pub const USUAL_ACCEPTANCE: f64 = 0.5;

/// All-reduces of a small chain; one of a large.
const CHAIN: u32 = 10;

/// Forecast values by kind.
pub type Figures = BTreeMap<Kind, f64>;

/// Forecasts all kinds, all-reduces of `sizes` among them.
///
/// # Errors
/// Everything that simulating can meet.
pub fn forecast(setup: &Setup<'_>, scenario: &Scenario, sizes: &[u64], memo: &Memo) -> Result<Figures> {
    let mut figures = Figures::new();
    let passes = Passes { setup, scenario, memo };
    passes.add_to(&mut figures)?;
    copies::add_to(&scenario.machine, scenario.copy_share, &mut figures);
    for &bytes in sizes {
        figures.insert(Kind::AllreduceUs(bytes), memo.allreduce_us(scenario, bytes, || allreduce_us(setup, scenario, bytes))?);
    }
    Ok(figures)
}

/// Tokens of one cycle of speculation with `drafts` drafted tokens.
pub fn tokens_per_cycle(acceptance: f64, drafts: u64) -> f64 {
    let (mut sum, mut chance) = (1.0, 1.0);
    for _ in 0..drafts {
        chance *= acceptance;
        sum += chance;
    }
    sum
}

struct Passes<'a> {
    setup: &'a Setup<'a>,
    scenario: &'a Scenario,
    memo: &'a Memo,
}

impl Passes<'_> {
    fn add_to(&self, figures: &mut Figures) -> Result<()> {
        let (setup, scenario) = (self.setup, self.scenario);
        let plain = self.pass(Phase::Decode, 1, LaunchMode::Graph)?;
        let verify = self.pass(Phase::Verify, setup.tokens, scenario.verify_launch)?;
        let plain_ms = plain.pass.ms() + scenario.host_step_ms;
        let verify_ms = verify.pass.ms() + scenario.host_step_ms;
        let batch = setup.batch as f64;
        figures.insert(Kind::DecodeTps, batch * 1e3 / plain_ms);
        figures.insert(Kind::VerifyMs, verify_ms);
        let drafts = setup.tokens - 1;
        let layers = (plain.allreduces as f64 / 2.0).max(1.0);
        let cycle_ms = verify_ms + drafts as f64 * DRAFT_LAYERS * plain.pass.ms() / layers;
        let acceptance = USUAL_ACCEPTANCE * scenario.acceptance;
        figures.insert(Kind::Acceptance, acceptance);
        figures.insert(Kind::SpecTps, batch * 1e3 / cycle_ms * tokens_per_cycle(acceptance, drafts));
        figures.insert(Kind::PcieGbps, plain.sent_bytes as f64 / 1e6 / plain_ms);
        let (share, least, us) = self.profile(verify)?;
        figures.insert(Kind::AllreduceShare, share);
        figures.insert(Kind::LeastShare, least);
        figures.insert(Kind::ProfiledUs, us);
        Ok(())
    }

    /// Share of all-reduce kernels on the mean rank and on the busiest one, and their mean duration.
    fn profile(&self, verify: Pass) -> Result<(f64, f64, f64)> {
        let (pass, on_mean, on_least) = match self.scenario.profiled_launch_ns {
            // Ranks are launched at different times by hosts that the profiler slows: each waits inside its
            // all-reduces for the last, so all that is no computation looks like communication.
            Some(launch_ns) => {
                let mut scenario = self.scenario.clone();
                scenario.set_launch("framework_ns", launch_ns)?;
                let passes = Passes { setup: self.setup, scenario: &scenario, memo: self.memo };
                let slowed = passes.pass(Phase::Verify, self.setup.tokens, LaunchMode::Eager)?;
                let waiting = slowed.pass.saturating_sub(slowed.compute);
                (slowed, waiting, waiting)
            }
            None => (verify, verify.communication + verify.skew, verify.communication),
        };
        let whole = pass.pass.ms().max(1e-9);
        let us = on_mean.us() / pass.allreduces.max(1) as f64;
        Ok((on_mean.ms() / whole, on_least.ms() / whole, us))
    }

    fn pass(&self, phase: Phase, tokens: u64, launch: LaunchMode) -> Result<Pass> {
        self.memo.pass(self.scenario, tokens, launch, || self.simulated(phase, tokens, launch))
    }

    fn simulated(&self, phase: Phase, tokens: u64, launch: LaunchMode) -> Result<Pass> {
        let (setup, scenario) = (self.setup, self.scenario);
        let mut workload = Workload::new(phase, tokens, setup.context);
        workload.batch = setup.batch;
        let question = Question { machine: &scenario.machine, model: setup.model, workload, partition: setup.partition, launch };
        let plan = question.plan()?;
        let mut context = Context::new(&scenario.machine, setup.partition.tp as usize);
        context.environment.clone_from(&scenario.environment);
        let policy = Policy::single(strategy_in(scenario)?);
        let mut assembled = assemble(&question, &plan, &policy, &context)?;
        let ranks = assembled.program.ranks;
        let experts = 1.0 + scenario.expert_overload * overload(workload.rows(), setup, ranks);
        for (template, labels) in assembled.program.templates.iter_mut().zip(&assembled.labels) {
            for (operation, label) in template.operations.iter_mut().zip(labels) {
                let factor = scenario.slow_rank * if label.kind == "experts" { experts } else { 1.0 };
                if let (Operation::Compute { ps, .. }, true) = (operation, factor != 1.0) {
                    slow_first_rank(ps, ranks, factor);
                }
            }
        }
        let answer = answer::run(assembled, Options::default())?;
        Ok(Pass {
            pass: answer.pass,
            communication: answer.communication,
            skew: answer.skew,
            compute: answer.compute,
            allreduces: answer.allreduce.count,
            sent_bytes: self.sent_bytes(&answer),
        })
    }

    /// Bytes that the first GPU sends over its own link in a pass.
    fn sent_bytes(&self, answer: &Answer) -> u64 {
        let machine = &self.scenario.machine;
        let Some(gpu) = machine.gpus.first() else { return 0 };
        (machine.links.iter().enumerate())
            .filter_map(|(index, link)| match (link.a == *gpu, link.b == *gpu) {
                (true, _) => answer.outcome.carried.get(2 * index),
                (_, true) => answer.outcome.carried.get(2 * index + 1),
                _ => None,
            })
            .sum()
    }
}

/// One rank's kernels take longer; one duration for all becomes one a rank.
fn slow_first_rank(ps: &mut Vec<u64>, ranks: usize, factor: f64) {
    if let (1, Some(&all)) = (ps.len(), ps.first()) {
        *ps = vec![all; ranks];
    }
    if let Some(first) = ps.first_mut() {
        *first = (*first as f64 * factor) as u64;
    }
}

/// By how much, relative to the mean, one sigma above it is: tokens' experts fall on ranks as balls into bins,
/// of which the fullest of N lies sqrt(2 ln N) sigmas above the mean.
fn overload(rows: u64, setup: &Setup<'_>, ranks: usize) -> f64 {
    let chosen = experts_per_token(setup) * rows as f64;
    let mean = chosen / ranks.max(1) as f64;
    if mean <= 0.0 { 0.0 } else { libm::sqrt(2.0 * libm::log(ranks.max(1) as f64) / mean) }
}

fn experts_per_token(setup: &Setup<'_>) -> f64 {
    let of = |layer: &Layer| match &layer.feed_forward {
        FeedForward::Experts(experts) => Some(experts.top_k as f64),
        FeedForward::Dense(_) => None,
    };
    setup.model.kinds.iter().find_map(of).unwrap_or(0.0)
}

/// What really runs: kernels that need peers fall back to NCCL where the driver grants no access.
fn strategy_in(scenario: &Scenario) -> Result<&'static Strategy> {
    let lost = scenario.machine.peer_access == PeerAccess::HostStaged && scenario.strategy.executor != Executor::Nccl;
    if lost && scenario.strategy.id != "free-communication" { Strategy::find("nccl-default") } else { Ok(scenario.strategy) }
}

/// NCCL's own all-reduce under the server's variables, in a chain of one graph.
fn allreduce_us(setup: &Setup<'_>, scenario: &Scenario, bytes: u64) -> Result<f64> {
    let machine = &scenario.machine;
    let mut context = Context::new(machine, setup.partition.tp as usize);
    context.environment.clone_from(&scenario.environment);
    let variables: &[(&str, &str)] = if setup.strategy.executor == Executor::Nccl { setup.strategy.environment } else { &[] };
    let communicator = context.communicator(variables)?;
    let lowering = lower_on(&communicator, Logical::AllReduce, bytes, &nccl::Force::default())?;
    let count = if bytes > 1 << 20 { 1 } else { CHAIN };
    let outcome = chain::run(machine, &lowering, chain::ChainLaunch::Graph, count, Options::default())?;
    Ok(outcome.critical().time as f64 / f64::from(count) / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 + 0.5 + 0.25 = 1.75 tokens with two drafts.
    #[test]
    fn a_cycle_yields_the_root_and_accepted_drafts() {
        assert_eq!(tokens_per_cycle(0.5, 2), 1.75);
        assert_eq!(tokens_per_cycle(0.0, 2), 1.0);
        assert_eq!(tokens_per_cycle(0.9, 0), 1.0);
    }

    #[test]
    fn one_rank_is_slowed() {
        let mut ps = vec![10];
        slow_first_rank(&mut ps, 3, 1.5);
        assert_eq!(ps, [15, 10, 10]);
    }
}
