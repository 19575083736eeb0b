//! The answer of the simulated executor to one question and policy.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::plan::Collective;
use crate::plan::Plan;
use crate::plan::Role;
use crate::simulate::CollectiveTotals;
use crate::simulate::Options;
use crate::simulate::Outcome;
use crate::simulate::apart;
use crate::simulate::simulate;
use crate::strategy::Context;
use crate::units::Time;

use super::assemble::Assembled;
use super::assemble::EXPERTS;
use super::assemble::assemble;
use super::assemble::assemble_at;
use super::prices::Prices;
use super::question::Policy;
use super::question::Question;

/// What a pass costs and where the time goes.
///
/// `communication + skew + compute + launch = pass`, as the mean rank of a stage
/// lives it; stages follow one another, so that their shares add up.
pub struct Answer {
    /// From the first kernel to the last rank's end.
    pub pass: Time,
    /// Between the last arrival and the end, summed over collectives.
    pub communication: Time,
    /// Waiting for the last arrival, summed over collectives.
    pub skew: Time,
    /// Compute kernels.
    pub compute: Time,
    /// Gaps and launches.
    pub launch: Time,
    /// The layers' all-reduces.
    pub allreduce: AllReduces,
    /// Everything the simulator returned.
    pub outcome: Outcome,
    /// What the program's parts stand for.
    pub assembled: Assembled,
}

/// The layers' all-reduces of a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllReduces {
    /// How many.
    pub count: u64,
    /// Bytes of each (of the largest, where they differ).
    pub bytes: u64,
    /// Mean of (end − last arrival).
    pub mean: Time,
    /// Sum of the same.
    pub total: Time,
}

/// One row of a breakdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Operations.
    pub count: u64,
    /// Their time on the mean rank.
    pub time: Time,
}

/// Simulates a question under a policy.
///
/// # Errors
/// What assembling and simulating can meet.
pub fn answer(question: &Question<'_>, plan: &Plan, policy: &Policy, context: &Context<'_>, options: Options) -> Result<Answer> {
    run(assemble(question, plan, policy, context)?, options)
}

/// Simulates what was assembled.
///
/// # Errors
/// What simulating can meet.
pub fn run(assembled: Assembled, options: Options) -> Result<Answer> {
    let outcome = simulate(&assembled.program, options)?;
    Ok(figures(assembled, outcome))
}

/// The same from collectives that other questions have met before, see [`apart`]:
/// equal to [`answer`] but for the number of events.
///
/// # Errors
/// As [`answer`].
pub fn answer_at(question: &Question<'_>, plan: &Plan, policy: &Policy, context: &Context<'_>, prices: &Prices) -> Result<Answer> {
    let (assembled, probes) = assemble_at(question, plan, policy, context, prices)?;
    let outcome = match apart::outcome(&assembled.program, &probes) {
        Some(outcome) => outcome,
        None => simulate(&assembled.program, Options::default())?,
    };
    Ok(figures(assembled, outcome))
}

fn figures(assembled: Assembled, outcome: Outcome) -> Answer {
    let ranks = u64::from(assembled.partition.tp);
    let pass = Time(outcome.critical().time);
    let (mut waited, mut spent) = (0, 0);
    let mut allreduce = AllReduces::default();
    for (total, collective) in outcome.totals.iter().zip(&assembled.collectives) {
        waited += waiting(total, collective);
        spent += working(total, collective, ranks);
        if collective.role.is_layer_allreduce() {
            allreduce.count += total.count;
            allreduce.bytes = allreduce.bytes.max(collective.bytes);
            allreduce.total += Time(total.busy);
        }
    }
    allreduce.mean = Time(allreduce.total.0 / allreduce.count.max(1));
    let compute = Time(compute_total(&assembled) / ranks);
    let skew = Time(waited / ranks);
    let communication = Time(spent / ranks);
    let launch = pass.saturating_sub(communication).saturating_sub(skew).saturating_sub(compute);
    Answer { pass, communication, skew, compute, launch, allreduce, outcome, assembled }
}

/// Picoseconds after the last arrival, summed over a stage's ranks.
fn working(total: &CollectiveTotals, collective: &Collective, ranks: u64) -> u64 {
    match collective.role {
        Role::StageSend => total.busy * ranks,
        // What ran beside computations costs nothing; a wait that did is no wait.
        _ => total.spent.saturating_sub(total.waited.max(total.hidden)),
    }
}

/// Picoseconds before the last arrival, summed over a stage's ranks. That a
/// stage waits for the one before is that one's time, not skew.
fn waiting(total: &CollectiveTotals, collective: &Collective) -> u64 {
    if collective.role == Role::StageSend { 0 } else { total.waited.saturating_sub(total.hidden) }
}

/// Picoseconds of compute kernels, summed over ranks.
fn compute_total(assembled: &Assembled) -> u64 {
    let mut total = 0;
    for_each_compute(assembled, |_, ps, _, _| total += ps);
    total
}

/// Calls `visit(label, picoseconds over all members, operations, entry)` for every compute operation of the program.
fn for_each_compute(assembled: &Assembled, mut visit: impl FnMut(&super::assemble::Label, u64, u64, usize)) {
    let program = &assembled.program;
    for (entry, run) in program.sequence.iter().enumerate() {
        let operations = &program.templates[run.template as usize].operations;
        for (operation, label) in operations.iter().zip(&assembled.labels[run.template as usize]) {
            let crate::simulate::Operation::Compute { ps, .. } = operation else { continue };
            let once: u64 = (0..program.ranks)
                .filter(|rank| run.members >> rank & 1 == 1)
                .map(|rank| if ps.len() == 1 { ps[0] } else { ps[rank] })
                .sum();
            visit(label, once * u64::from(run.repeats), u64::from(run.repeats), entry);
        }
    }
}

/// Time of the experts' kernels over a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertLoad {
    /// On the rank whose experts are wanted most: the others wait for it.
    pub fullest: Time,
    /// On the mean rank.
    pub mean: Time,
}

impl Answer {
    /// What the experts cost, where they are dealt out unevenly.
    pub fn expert_load(&self) -> Option<ExpertLoad> {
        let program = &self.assembled.program;
        let mut by_rank = vec![0u64; program.ranks];
        for run in &program.sequence {
            let operations = &program.templates[run.template as usize].operations;
            for (operation, label) in operations.iter().zip(&self.assembled.labels[run.template as usize]) {
                let crate::simulate::Operation::Compute { ps, .. } = operation else { continue };
                if label.kind == EXPERTS && ps.len() > 1 {
                    by_rank.iter_mut().zip(ps).for_each(|(sum, ps)| *sum += ps * u64::from(run.repeats));
                }
            }
        }
        let fullest = by_rank.iter().copied().max().filter(|most| *most > 0)?;
        Some(ExpertLoad { fullest: Time(fullest), mean: Time(by_rank.iter().sum::<u64>() / by_rank.len().max(1) as u64) })
    }

    /// Time by kind of operation, largest first; launch gaps and skew included.
    pub fn by_kind(&self) -> Vec<(&'static str, Share)> {
        let ranks = u64::from(self.assembled.partition.tp);
        let mut kinds: BTreeMap<&'static str, (u64, u64)> = BTreeMap::new();
        for_each_compute(&self.assembled, |label, ps, count, _| {
            let kind = kinds.entry(label.kind).or_default();
            kind.0 += count;
            kind.1 += ps;
        });
        for (total, collective) in self.outcome.totals.iter().zip(&self.assembled.collectives) {
            let name = if collective.role.is_layer_allreduce() { "all-reduce" } else { "other communication" };
            let kind = kinds.entry(name).or_default();
            kind.0 += total.count;
            kind.1 += working(total, collective, ranks);
        }
        let mut rows: Vec<(&'static str, Share)> =
            kinds.into_iter().map(|(name, (count, ps))| (name, Share { count, time: Time(ps / ranks) })).collect();
        rows.push(("launch gaps", Share { count: 0, time: self.launch }));
        rows.push(("waiting for other ranks", Share { count: 0, time: self.skew }));
        rows.sort_by_key(|(name, share)| (std::cmp::Reverse(share.time), *name));
        rows
    }
}
