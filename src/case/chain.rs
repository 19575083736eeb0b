//! A chain of dependent collectives, as benchmarks time them.

use std::sync::Arc;

use crate::error::Fault;
use crate::error::Result;
use crate::machine::Machine;
use crate::machine::Routes;
use crate::simulate::Launch;
use crate::simulate::Operation;
use crate::simulate::Options;
use crate::simulate::Outcome;
use crate::simulate::Program;
use crate::simulate::Template;
use crate::simulate::loops::Loops;
use crate::simulate::program::Run;
use crate::simulate::simulate;
use crate::strategy::Lowering;
use crate::units::Time;

use super::pricing::price;
use super::roads::Roads;

/// How the chain's kernels are launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainLaunch {
    /// One replayed graph.
    Graph,
    /// One host thread launches for all ranks in turn.
    EagerSingleThread,
    /// A host thread a rank.
    EagerThreadPerRank,
    /// A loop of a framework, a process a rank.
    Framework,
}

/// Simulates `count` dependent collectives and returns the outcome.
///
/// # Errors
/// What pricing and simulating can meet: too few GPUs, no route, deadlock.
pub fn run(machine: &Machine, lowering: &Lowering, launch: ChainLaunch, count: u32, options: Options) -> Result<Outcome> {
    run_over(machine, Arc::new(Routes::of(machine)), lowering, (launch, count), options)
}

/// The same where the machine's routes are known.
///
/// # Errors
/// As [`run`].
pub fn run_over(
    machine: &Machine,
    routes: Arc<Routes>,
    lowering: &Lowering,
    (launch, count): (ChainLaunch, u32),
    options: Options,
) -> Result<Outcome> {
    simulate(&program_over(machine, routes, lowering, (launch, count))?, options)
}

/// The program of such a chain.
///
/// # Errors
/// What pricing can meet.
pub fn program(machine: &Machine, lowering: &Lowering, launch: ChainLaunch, count: u32) -> Result<Program> {
    program_over(machine, Arc::new(Routes::of(machine)), lowering, (launch, count))
}

fn program_over(machine: &Machine, routes: Arc<Routes>, lowering: &Lowering, (launch, count): (ChainLaunch, u32)) -> Result<Program> {
    let ranks = lowering.schedule.ranks;
    if ranks > 64 {
        return Err(Fault::new("ranks-too-many", format!("{ranks} ranks, but at most 64 can be simulated")));
    }
    let mut roads = Roads::new(machine, routes);
    let timed = price(machine, &mut roads, lowering)?;
    let kind = machine.gpu_kind(0).ok_or_else(|| Fault::new("machine-no-kind", "device 0 has no kind"))?;
    Ok(Program {
        ranks,
        templates: vec![Template { operations: vec![Operation::Collective { collective: 0, beside: 0 }] }],
        sequence: vec![Run { template: 0, repeats: count, members: u64::MAX >> (64 - ranks) }],
        collectives: vec![Arc::new(timed)],
        network: roads.network,
        launch: launch_of(&kind.launch, launch, u64::from(machine.ranks_per_gpu.max(1)).min(ranks as u64)),
    })
}

/// Loops of a long collective that are simulated: as many that these many steps
/// of each block for each rank have passed before the pipeline counts as full.
const FILL_STEPS: usize = 6;

/// One collective from a common start, the gap before its kernel included. Of a
/// long one two numbers of loops are simulated, and the line through them is followed.
///
/// # Errors
/// As [`run`].
pub fn time_of_one(machine: &Machine, routes: Arc<Routes>, lowering: &Lowering) -> Result<Time> {
    let whole = program_over(machine, routes, lowering, (ChainLaunch::Graph, 1))?;
    let timed = Arc::clone(&whole.collectives[0]);
    let Some(loops) = Loops::of(&timed) else { return time(&whole) };
    let few = (FILL_STEPS * timed.ranks).div_ceil(loops.steps()).max(3);
    if loops.count() < 4 * few {
        return time(&whole);
    }
    let with = |kept: usize| time(&Program { collectives: vec![Arc::new(loops.shortened(kept))], ..whole.clone() });
    let (some, twice) = (with(few)?, with(2 * few)?);
    let more = u128::from(twice.saturating_sub(some).0) * (loops.count() - 2 * few) as u128 / few as u128;
    Ok(twice + Time(u64::try_from(more).unwrap_or(u64::MAX / 4)))
}

/// From the start to the last rank's end.
///
/// # Errors
/// What simulating can meet.
pub fn time(program: &Program) -> Result<Time> {
    Ok(Time(simulate(program, Options::default())?.critical().time))
}

/// The simulator's launch mode from a GPU kind's constants, with so many ranks on a GPU.
pub fn launch_of(constants: &crate::machine::LaunchConstants, launch: ChainLaunch, sharing: u64) -> Launch {
    let gap = Time::from_ns(constants.graph_gap_ns.value).0;
    let queued = Time::from_ns(constants.eager_gap_ns.value).0;
    // One queue takes its next launch while a kernel runs; several take turns.
    let round = if sharing > 1 { Time::from_ns(constants.eager_turn_ns.value * sharing as f64).0 } else { 0 };
    let eager = |issue: f64, shared_thread: bool| Launch::Eager { gap: queued, round, issue: Time::from_ns(issue).0, shared_thread };
    match launch {
        ChainLaunch::Graph => Launch::Graph { gap },
        ChainLaunch::EagerSingleThread => eager(constants.eager_ns.value, true),
        ChainLaunch::EagerThreadPerRank => eager(constants.eager_ns.value, false),
        ChainLaunch::Framework => eager(constants.framework_ns.value, false),
    }
}
