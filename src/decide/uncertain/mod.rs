//! A ranking with its uncertainty: intervals, chances, ties.
//!
//! One sample draws every constant within its interval, the error of each kind
//! of compute kernel and of each strategy's collectives from the residuals of
//! the matching group, and looks at all strategies under the same draw (common
//! random numbers). What a constant does was simulated once at either end of
//! its interval ([`spread`]); residuals count only as far as the constants do
//! not explain them. Half of the variance of a collective's residual is shared
//! by the strategies of its group, as their kernels are alike: assumed.
//!
//! The draws are made in one thread from the seed, so that no result depends on
//! the number of threads.

pub mod normal;
pub mod sensitivity;
pub mod spread;

use std::collections::BTreeMap;

use crate::case::Case;
use crate::decide::evidence::residual_group;
use crate::decide::rank::Forecast;
use crate::decide::rank::Ranking;
use crate::error::Fault;
use crate::error::Result;
use crate::fit::residuals;
use crate::fit::residuals::Residual;
use crate::strategy::Effort;
use crate::strategy::Searches;
use crate::strategy::Strategy;

use spread::Constant;
use spread::Spread;

/// Two strategies are tied unless one is faster in more than this share of the samples.
const SURE: f64 = 0.95;

/// Draws at most.
pub const SAMPLES_MOST: usize = 100_000;

/// What one strategy's samples say.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    /// 90 % of the pass, ms.
    pub pass_ms: [f64; 2],
    /// 90 % of the saving against the baseline, ms.
    pub saving_ms: [f64; 2],
    /// Share of samples in which it is the fastest that can be run.
    pub best: f64,
    /// Share of samples in which it is faster than the baseline.
    pub beats_baseline: f64,
    /// Whether the samples do not tell it from the one with the largest chance of being best.
    pub tied: bool,
    /// What its residual was taken from.
    pub residual: String,
}

/// All strategies that can run.
pub struct Uncertainty {
    /// By strategy id.
    pub rows: BTreeMap<&'static str, Interval>,
    /// The strategy with the largest chance of being best.
    pub leader: &'static str,
    /// Which constants decide, most first.
    pub decide: Vec<sensitivity::Share>,
    /// How many samples.
    pub samples: usize,
    /// Their seed.
    pub seed: u64,
}

/// A strategy with what its samples are made from.
struct Member<'a> {
    strategy: &'static Strategy,
    forecast: &'a Forecast,
    spread: Spread,
    residual: Residual,
    group: usize,
}

/// Parts of a pass whose kernels have residuals of their own, with their share of the compute time.
struct Kernels {
    parts: Vec<(f64, Residual)>,
}

/// Draws.
///
/// # Errors
/// `rank-samples` for a number of samples outside 20 to 100,000; what simulating can meet.
pub fn sample(case: &Case, ranking: &Ranking, searches: &Searches, samples: usize, seed: u64) -> Result<Uncertainty> {
    if !(20..=SAMPLES_MOST).contains(&samples) {
        return Err(Fault::new("rank-samples", format!("{samples} samples are too few or too many")).help("expected 20 to 100000"));
    }
    let constants = spread::constants(case);
    let (members, groups) = members(case, ranking, searches, &constants)?;
    let kernels = kernels(case)?;
    // Columns: constants, kernels' residuals, groups' residuals, strategies' own residuals.
    let columns = constants.len() + kernels.parts.len() + groups + members.len();
    let draws = normal::matrix(seed, samples, columns);
    let passes: Vec<Vec<f64>> = draws.iter().map(|draw| passes(&members, &kernels, groups, constants.len(), draw)).collect();
    let base = members.iter().position(|member| member.strategy.id == ranking.baseline_id).unwrap_or(0);
    let can_be_best: Vec<bool> = members.iter().map(|member| member.strategy.effort != Effort::None).collect();
    let wins = wins(&passes, &can_be_best);
    let leader = (0..members.len()).fold(base, |best, at| if wins[at] > wins[best] { at } else { best });
    let share = |test: &dyn Fn(&Vec<f64>) -> bool| passes.iter().filter(|pass| test(pass)).count() as f64 / samples as f64;
    let mut rows = BTreeMap::new();
    for (at, member) in members.iter().enumerate() {
        let behind = share(&|pass| pass[leader] < pass[at]);
        let interval = Interval {
            pass_ms: ninety(passes.iter().map(|pass| pass[at]).collect()),
            saving_ms: ninety(passes.iter().map(|pass| pass[base] - pass[at]).collect()),
            best: wins[at] as f64 / samples as f64,
            beats_baseline: share(&|pass| pass[at] < pass[base]),
            tied: can_be_best[at] && behind <= SURE,
            residual: member.residual.source.clone(),
        };
        rows.insert(member.strategy.id, interval);
    }
    let decide =
        sensitivity::shares(&constants, &members[leader].spread, &members[base].spread, &residual_sigmas(&members[leader], &members[base]));
    Ok(Uncertainty { rows, leader: members[leader].strategy.id, decide, samples, seed })
}

/// The strategies of the ranking that can run, and how many residual groups they form.
fn members<'a>(case: &Case, ranking: &'a Ranking, searches: &Searches, constants: &[Constant]) -> Result<(Vec<Member<'a>>, usize)> {
    let feasible: Vec<(&'static Strategy, &Forecast)> =
        ranking.rows.iter().filter_map(|row| row.outcome.as_ref().ok().map(|forecast| (row.strategy, forecast))).collect();
    let baseline = feasible.iter().find(|(strategy, _)| strategy.id == ranking.baseline_id).map(|(strategy, _)| *strategy);
    // Those that split the model in another way move as the baseline does, in proportion.
    let as_asked = |strategy: &'static Strategy| case.question().under(strategy).partition == case.partition;
    let simulated: Vec<&'static Strategy> =
        feasible.iter().map(|(strategy, _)| if as_asked(strategy) { *strategy } else { baseline.unwrap_or(strategy) }).collect();
    let spreads = spread::spreads(case, searches, &simulated, constants)?;
    let mut names: Vec<(&str, &str)> = Vec::new();
    let mut members = Vec::new();
    for ((strategy, forecast), spread) in feasible.into_iter().zip(spreads) {
        let name = residual_group(strategy);
        let group = names.iter().position(|known| *known == name).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        });
        let found = residuals::of_collective(residuals::committed(), &case.machine.id, case.partition.tp, name.0, name.1);
        let residual = if forecast.communication.0 == 0 { Residual::none() } else { found.beyond(spread.sigma()) };
        members.push(Member { strategy, forecast, spread, residual, group });
    }
    Ok((members, names.len()))
}

/// Residuals of compute kernels by kind, with the kind's share of the compute time.
fn kernels(case: &Case) -> Result<Kernels> {
    let question = case.question();
    let plan = question.plan()?;
    let context = crate::strategy::Context::new(&case.machine, case.partition.ranks() as usize);
    let free = crate::case::Policy::single(Strategy::find("free-communication")?);
    let answer = crate::case::answer(&question, &plan, &free, &context, crate::simulate::Options::default())?;
    let whole = answer.compute.ms().max(1e-9);
    let kind = case.machine.gpus.first().and_then(|gpu| match &case.machine.nodes[gpu.0].kind {
        crate::machine::NodeKind::Gpu { kind } => Some(kind.as_str()),
        _ => None,
    });
    let mut shares: BTreeMap<(&str, &str), f64> = BTreeMap::new();
    for (name, share) in answer.by_kind() {
        let group = match name {
            "experts" => ("experts", "above L2"),
            "attention" => ("mla_decode_module", ""),
            "projections" | "head" | "shared expert" | "router" => ("gemm", ""),
            // No table has these by themselves.
            _ => continue,
        };
        *shares.entry(group).or_default() += share.time.ms() / whole;
    }
    let residual = |(starts, ends)| residuals::of_kernel(residuals::committed(), kind.unwrap_or(""), starts, ends);
    Ok(Kernels { parts: shares.into_iter().map(|(group, share)| (share, residual(group))).collect() })
}

/// The pass of every strategy under one draw, ms.
fn passes(members: &[Member<'_>], kernels: &Kernels, groups: usize, constants: usize, draw: &[f64]) -> Vec<f64> {
    let (scores, rest) = draw.split_at(constants);
    let (of_kernels, rest) = rest.split_at(kernels.parts.len());
    let (of_groups, own) = rest.split_at(groups);
    let factor: f64 =
        kernels.parts.iter().zip(of_kernels).map(|((share, residual), z)| share * (libm::exp(residual.at(normal::below(*z))) - 1.0)).sum();
    let one = |(member, own): (&Member<'_>, &f64)| {
        let forecast = member.forecast;
        let relative = forecast.communication.ms() / member.spread.communication_ms.max(1e-9);
        let communication = (forecast.communication.ms() + relative * moved(&member.spread.communication, scores)).max(0.0);
        let shared = (of_groups[member.group] + own) / std::f64::consts::SQRT_2;
        let residual = libm::exp(member.residual.at(normal::below(shared)));
        let compute = (forecast.compute.ms() + moved(&member.spread.kernels, scores)).max(0.0) * (1.0 + factor);
        (forecast.skew + forecast.launch).ms() + compute + communication * residual
    };
    members.iter().zip(own).map(one).collect()
}

/// The sum of the constants' effects at their scores.
pub fn moved(effects: &[spread::Ends], scores: &[f64]) -> f64 {
    let one = |(ends, z): (&spread::Ends, &f64)| if *z < 0.0 { -z / normal::Z90 * ends[0] } else { z / normal::Z90 * ends[1] };
    effects.iter().zip(scores).map(one).sum()
}

/// How often each is the fastest; equal ones both win.
fn wins(passes: &[Vec<f64>], can_be_best: &[bool]) -> Vec<usize> {
    let mut wins = vec![0; can_be_best.len()];
    for pass in passes {
        let fastest = pass.iter().zip(can_be_best).filter(|(_, can)| **can).map(|(ms, _)| *ms).fold(f64::INFINITY, f64::min);
        for ((win, ms), can) in wins.iter_mut().zip(pass).zip(can_be_best) {
            *win += usize::from(*can && *ms <= fastest);
        }
    }
    wins
}

/// The 5th and 95th percentile.
fn ninety(mut values: Vec<f64>) -> [f64; 2] {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values[((values.len() - 1) as f64 * share + 0.5) as usize];
    [at(0.05), at(0.95)]
}

/// Standard deviations, ms, of what the residuals add to either side of the contrast.
fn residual_sigmas(leader: &Member<'_>, base: &Member<'_>) -> Vec<(String, f64)> {
    let of = |member: &Member<'_>| {
        let what = format!("what the model of {} leaves open ({})", member.strategy.id, member.residual.source);
        (what, member.residual.sigma() * member.forecast.communication.ms())
    };
    if leader.strategy.id == base.strategy.id { vec![of(base)] } else { vec![of(leader), of(base)] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_cut_five_percent_at_either_end() {
        assert_eq!(ninety((0..=100).map(f64::from).collect()), [5.0, 95.0]);
        assert_eq!(ninety(vec![3.0]), [3.0, 3.0]);
    }

    /// Equal ones both win; what cannot be run never does.
    #[test]
    fn the_fastest_that_can_run_wins() {
        let passes = vec![vec![1.0, 2.0, 0.5], vec![2.0, 2.0, 0.5], vec![3.0, 2.0, 0.5]];
        assert_eq!(wins(&passes, &[true, true, false]), [2, 2, 0]);
    }

    /// A score of −1.6449 is the low end.
    #[test]
    fn effects_are_linear_in_the_score() {
        assert!((moved(&[[-2.0, 4.0]], &[-normal::Z90]) + 2.0).abs() < 1e-12);
        assert!((moved(&[[-2.0, 4.0]], &[normal::Z90 / 2.0]) - 2.0).abs() < 1e-12);
    }
}
