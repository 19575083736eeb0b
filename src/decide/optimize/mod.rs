//! The best policy for a machine and a workload: a strategy for each size of
//! message, NCCL's channels, drafts, and how the model is split.
//!
//! A cycle's time is the sum that [`super::speculate`] forms: kernels, each
//! collective as long as one alone takes, the draft's steps and the host. In
//! that sum sizes are independent, so that the best strategy of each makes the
//! best policy, as far as one process can have them together ([`world`]). Few
//! collectives need to be simulated for that:
//!
//! 1. Free communication bounds what drafts and a split can give ([`shape`]).
//! 2. No collective is faster than its bytes on the links and its steps in a
//!    row ([`crate::case::bound`]): strategies are looked at in that order, up
//!    to the first whose bound is above the best time found.
//! 3. What cannot be better than the best so far is left out whole.
//!
//! What is left out has been shown not to be better: the policy found is the
//! best of all by that sum. It is then simulated whole.

mod market;
mod search;
mod shape;
mod world;

use std::collections::BTreeMap;

use crate::case::Case;
use crate::case::Policy;
use crate::decide::speculate::Drafter;
use crate::decide::speculate::acceptance;
use crate::decide::speculate::acceptance::Acceptance;
use crate::error::Fault;
use crate::error::Result;
use crate::plan::Partition;
use crate::strategy::Strategy;
use crate::units::Time;

use search::Search;
use world::World;

/// Strategies, channels, drafts and splits beyond this many of each are refused.
const CHOICES_MAX: usize = 256;

/// What is asked.
pub struct Request<'a> {
    /// Machine, model, batch, context, variables; tokens and split are replaced.
    pub case: &'a Case,
    /// Who drafts.
    pub drafter: Drafter,
    /// Chances of acceptance.
    pub acceptance: Acceptance,
    /// Numbers of drafts to choose from; 0 is plain decoding.
    pub drafts: Vec<u64>,
    /// Ways to split the model to choose from.
    pub partitions: Vec<Partition>,
    /// Strategies to choose from.
    pub strategies: Vec<&'static Strategy>,
    /// NCCL's channels to choose from; 0 is its own choice.
    pub channels: Vec<u32>,
}

/// A policy and what it gives.
#[derive(Clone)]
pub struct Choice {
    /// Drafts of a sequence in a cycle.
    pub drafts: u64,
    /// The cycle; None for plain decoding.
    pub cycle: Option<acceptance::Shape>,
    /// How the model is split.
    pub partition: Partition,
    /// NCCL's channels; 0 is its own choice.
    pub channels: u32,
    /// A strategy by size.
    pub policy: Policy,
    /// The verify pass or plain step.
    pub pass: Time,
    /// The draft's steps.
    pub draft: Time,
    /// Host time of a cycle that GPUs wait for, ms.
    pub host_ms: f64,
    /// Tokens of a sequence that a cycle yields.
    pub expected: f64,
    /// Of all sequences.
    pub tokens_per_s: f64,
    world: World,
    /// Bytes of the largest message.
    served: u64,
}

/// What came of a number of drafts and a split.
#[derive(Clone)]
pub enum Looked {
    /// Its best policy.
    Best(Choice),
    /// It gives at most so many tokens per second, which is less than another gives.
    AtMost(f64),
    /// It cannot run.
    Refused(String),
}

/// The best for the all-reduces of a prefill chunk.
#[derive(Clone, Copy)]
pub struct Prefill {
    /// Bytes of one.
    pub bytes: u64,
    /// Which; part of the policy.
    pub strategy: &'static Strategy,
    /// What one takes.
    pub time: Time,
}

/// The answer.
pub struct Found {
    /// The best; its policy has a row for a prefill chunk too.
    pub best: Choice,
    /// The pass of the best, simulated whole.
    pub simulated: Time,
    /// A plain step under the same policy and split, as the sum of its parts.
    pub plain: Time,
    /// For a prefill chunk, where it reduces anything.
    pub prefill: Option<Prefill>,
    /// All numbers of drafts and splits, the most promising first.
    pub looked: Vec<(u64, Partition, Looked)>,
    /// How many choices there are of drafts, split, channels and one strategy for all sizes.
    pub grid: u64,
    /// Collectives that were simulated.
    pub collectives: u64,
    /// Passes that were simulated.
    pub passes: u64,
    /// Whether nothing was left out.
    pub exhaustive: bool,
    /// Collectives that were lowered and differ.
    pub lowered: u64,
    /// Why strategies cannot run under splits that were looked at.
    pub refused: BTreeMap<(&'static str, Partition), String>,
}

/// Searches; `exhaustive` simulates every collective of every strategy instead.
///
/// # Errors
/// `optimize-nothing-feasible` when nothing can run; `optimize-bad-value` for no or too many
/// choices; what the machine or the variables refuse.
pub fn optimize(request: &Request<'_>, exhaustive: bool) -> Result<Found> {
    check(request)?;
    let mut search = Search::new(request, exhaustive);
    let mut looked: Vec<(u64, Partition, Looked)> = Vec::new();
    let mut shapes = Vec::new();
    for &drafts in &request.drafts {
        for &partition in &request.partitions {
            match search.shape(drafts, partition) {
                Ok(shape) => shapes.push(shape),
                Err(fault) => looked.push((drafts, partition, Looked::Refused(fault.message.clone()))),
            }
        }
    }
    // What promises most first, so that the rest is seldom looked at.
    shapes.sort_by(|a, b| b.tokens_per_s(b.floor()).total_cmp(&a.tokens_per_s(a.floor())));
    let mut best: Option<Choice> = None;
    for shape in &shapes {
        let incumbent = best.as_ref().filter(|_| !exhaustive).map_or(0.0, |best| best.tokens_per_s);
        let found = search.solve(shape, incumbent)?;
        if let Looked::Best(choice) = &found
            && best.as_ref().is_none_or(|best| choice.tokens_per_s > best.tokens_per_s)
        {
            best = Some(choice.clone());
        }
        looked.push((shape.drafts, shape.partition, found));
    }
    let Some(mut best) = best else { return Err(nothing(&looked)) };
    let prefill = search.prefill(&mut best)?;
    let simulated = search.simulate(&best)?;
    let plain = search.plain(&best)?;
    let order = |looked: &Looked| match looked {
        Looked::Best(choice) => (0, -choice.tokens_per_s),
        Looked::AtMost(tokens) => (1, -tokens),
        Looked::Refused(_) => (2, 0.0),
    };
    looked.sort_by(|(_, _, a), (_, _, b)| order(a).0.cmp(&order(b).0).then(order(a).1.total_cmp(&order(b).1)));
    let grid = [request.drafts.len(), request.partitions.len(), request.strategies.len(), request.channels.len()];
    let (collectives, lowered) = search.counts();
    let grid = grid.iter().map(|count| *count as u64).product();
    Ok(Found { best, simulated, plain, prefill, looked, grid, collectives, passes: 1, exhaustive, lowered, refused: search.refused })
}

fn check(request: &Request<'_>) -> Result<()> {
    let bad = |what: &str| Fault::new("optimize-bad-value", format!("{what}: expected 1 to {CHOICES_MAX} different ones to choose from"));
    let lists: [(&str, bool, usize); 4] = [
        ("drafts", has_twins(&request.drafts), request.drafts.len()),
        ("partitions", has_twins(&request.partitions), request.partitions.len()),
        ("channels", has_twins(&request.channels), request.channels.len()),
        ("strategies", has_twins(&request.strategies.iter().map(|s| s.id).collect::<Vec<_>>()), request.strategies.len()),
    ];
    for (name, twins, count) in lists {
        if twins || !(1..=CHOICES_MAX).contains(&count) {
            return Err(bad(name));
        }
    }
    Ok(())
}

fn has_twins<T: PartialEq>(list: &[T]) -> bool {
    list.iter().enumerate().any(|(at, one)| list[..at].contains(one))
}

fn nothing(looked: &[(u64, Partition, Looked)]) -> Box<Fault> {
    let mut reasons: Vec<&str> = Vec::new();
    for (_, _, looked) in looked {
        if let Looked::Refused(reason) = looked
            && !reasons.contains(&reason.as_str())
        {
            reasons.push(reason);
        }
    }
    Fault::new("optimize-nothing-feasible", format!("nothing of the grid can run: {}", reasons.join("; ")))
        .help("allow more strategies or splits")
}
