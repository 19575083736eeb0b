//! What each constant's interval does to each strategy's pass.
//!
//! A constant is set to the low and to the high end of its interval, one at a
//! time, and what follows is simulated again: the distinct collectives of the
//! pass (each once, from a common start) and the pass's kernels. Between the
//! ends the effect is taken as linear in the constant's normal score, and the
//! effects of several constants as a sum. NCCL's decisions (graph, protocol,
//! channels) stay what they are at the best estimates.

use rayon::prelude::*;

use crate::case::Case;
use crate::case::Knob;
use crate::case::chain;
use crate::case::groups::Message;
use crate::case::pieces::pieces;
use crate::error::Result;
use crate::machine::Machine;
use crate::plan::Plan;
use crate::simulate::Program;
use crate::strategy::Context;
use crate::strategy::Lowering;
use crate::strategy::Searches;
use crate::strategy::Strategy;

/// Longer collectives are taken as so many of this length.
const SIMULATED_MOST: u64 = 8 << 20;

/// A constant that has an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// Its path.
    pub path: String,
    /// Best estimate, low and high end.
    pub interval: [f64; 3],
    /// Its unit.
    pub unit: &'static str,
    /// Where it comes from.
    pub source: String,
}

/// Milliseconds that a constant adds at the low and at the high end of its interval.
pub type Ends = [f64; 2];

/// What the constants do to one strategy's pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// All collectives of the pass, from a common start, ms.
    pub communication_ms: f64,
    /// Per constant, on the collectives.
    pub communication: Vec<Ends>,
    /// Per constant, on the kernels and gaps.
    pub kernels: Vec<Ends>,
}

impl Spread {
    /// Standard deviation of ln(communication) from the constants.
    pub fn sigma(&self) -> f64 {
        let half = |ends: &Ends| (ends[1] - ends[0]) / 2.0 / super::normal::Z90 / self.communication_ms.max(1e-9);
        libm::sqrt(self.communication.iter().map(|ends| half(ends) * half(ends)).sum())
    }
}

/// Every constant of the case with an interval that a pass depends on.
pub fn constants(case: &Case) -> Vec<Constant> {
    let own = case.machine.gpus.iter().filter_map(|gpu| match &case.machine.nodes[gpu.0].kind {
        crate::machine::NodeKind::Gpu { kind } => Some(format!("kinds.{kind}.")),
        _ => None,
    });
    let own: std::collections::BTreeSet<String> = own.collect();
    let matters = |knob: &Knob<'_>| {
        let of_other_kind = knob.path.starts_with("kinds.") && !own.iter().any(|prefix| knob.path.starts_with(prefix.as_str()));
        knob.quantity.low < knob.quantity.high && !of_other_kind && !knob.path.starts_with("speculation.")
    };
    (case.knobs().into_iter().filter(matters))
        .map(|knob| Constant {
            interval: [knob.quantity.value, knob.quantity.low, knob.quantity.high],
            unit: knob.spec.unit,
            source: knob.quantity.source.clone(),
            path: knob.path,
        })
        .collect()
}

/// A strategy's collectives: indices into the distinct lowerings, with weights.
struct Use {
    weights: Vec<(usize, f64)>,
    fuses_norm: bool,
}

/// Distinct lowerings, and which strategy uses them how often.
struct Lowered {
    distinct: Vec<Lowering>,
    nominal: Vec<Program>,
    base_ms: Vec<f64>,
    uses: Vec<Use>,
}

/// Spreads of the strategies, all of which can run with the case's own partition.
///
/// # Errors
/// What simulating can meet.
pub fn spreads(case: &Case, searches: &Searches, strategies: &[&'static Strategy], constants: &[Constant]) -> Result<Vec<Spread>> {
    let lowered = lower(case, searches, strategies)?;
    let nominal = kernels(case)?;
    let ends: Vec<(usize, usize)> = (0..constants.len()).flat_map(|at| [(at, 1), (at, 2)]).collect();
    let changed: Vec<(Vec<f64>, [f64; 2])> = (ends.par_iter())
        .map(|&(at, end)| {
            let mut case = case.clone();
            case.set(&constants[at].path, constants[at].interval[end])?;
            let path = constants[at].path.as_str();
            let collectives = if is_of_kernels(path) { vec![0.0; lowered.distinct.len()] } else { moved(&case.machine, &lowered)? };
            let kernels = if is_of_communication(path) { nominal } else { kernels(&case)? };
            Ok((collectives, [kernels[0] - nominal[0], kernels[1] - nominal[1]]))
        })
        .collect::<Result<_>>()?;
    let spread = |user: &Use| {
        let sum = |times: &[f64]| user.weights.iter().map(|(index, weight)| times[*index] * weight).sum::<f64>();
        let (low, high) = (|at: usize| &changed[2 * at], |at: usize| &changed[2 * at + 1]);
        let norms = usize::from(user.fuses_norm);
        Spread {
            communication_ms: sum(&lowered.base_ms),
            communication: (0..constants.len()).map(|at| [sum(&low(at).0), sum(&high(at).0)]).collect(),
            kernels: (0..constants.len()).map(|at| [low(at).1[norms], high(at).1[norms]]).collect(),
        }
    };
    Ok(lowered.uses.iter().map(spread).collect())
}

/// Constants that no collective depends on.
fn is_of_kernels(path: &str) -> bool {
    path.starts_with("workload.") || path.contains(".kernels.")
}

/// Constants that no compute kernel depends on.
fn is_of_communication(path: &str) -> bool {
    path.contains(".protocol.") || ["links.", "fabric.", "collapses."].iter().any(|prefix| path.starts_with(prefix))
}

/// Kernels and gaps of the pass, ms: norms apart, and done by the all-reduces.
fn kernels(case: &Case) -> Result<[f64; 2]> {
    let question = case.question();
    let plan = question.plan()?;
    let context = Context::new(&case.machine, case.partition.ranks() as usize);
    Ok([pieces(&question, &plan, &context, false)?.pass.kernels.ms(), pieces(&question, &plan, &context, true)?.pass.kernels.ms()])
}

/// Change of each distinct collective on a changed machine, ms.
fn moved(machine: &Machine, lowered: &Lowered) -> Result<Vec<f64>> {
    let one = |(lowering, (nominal, base)): (&Lowering, (&Program, &f64))| {
        let program = chain::program(machine, lowering, chain::ChainLaunch::Graph, 1)?;
        Ok(if program == *nominal { 0.0 } else { run(&program)? - base })
    };
    lowered.distinct.iter().zip(lowered.nominal.iter().zip(&lowered.base_ms)).map(one).collect()
}

fn run(program: &Program) -> Result<f64> {
    Ok(chain::time(program)?.ms())
}

fn lower(case: &Case, searches: &Searches, strategies: &[&'static Strategy]) -> Result<Lowered> {
    let question = case.question();
    let plan: Plan = question.plan()?;
    let mut context = Context::new(&case.machine, case.partition.ranks() as usize);
    context.environment.clone_from(&case.environment);
    context.searches = searches.clone();
    context.row_bytes = question.row_bytes();
    let apart = pieces(&question, &plan, &context, false)?.pass;
    let mut lowered = Lowered { distinct: Vec::new(), nominal: Vec::new(), base_ms: Vec::new(), uses: Vec::new() };
    for strategy in strategies {
        let mut weights = Vec::new();
        for (&Message { logical, bytes, .. }, &count) in &apart.collectives {
            // What is too long to simulate for each end of each constant grows with its bytes.
            let size = bytes.min(SIMULATED_MOST);
            let lowering = (strategy.lower)(&context, strategy, logical, size)?;
            if !lowering.schedule.blocks.is_empty() {
                weights.push((lowered.index(&case.machine, lowering)?, count as f64 * bytes as f64 / size.max(1) as f64));
            }
        }
        lowered.uses.push(Use { weights, fuses_norm: strategy.fuses_norm });
    }
    Ok(lowered)
}

impl Lowered {
    /// Where an equal lowering stands; a new one is added and simulated.
    fn index(&mut self, machine: &Machine, lowering: Lowering) -> Result<usize> {
        if let Some(known) = self.distinct.iter().position(|known| *known == lowering) {
            return Ok(known);
        }
        let program = chain::program(machine, &lowering, chain::ChainLaunch::Graph, 1)?;
        self.base_ms.push(run(&program)?);
        self.nominal.push(program);
        self.distinct.push(lowering);
        Ok(self.distinct.len() - 1)
    }
}

/// What the constants do to one collective, as a spread without kernels.
///
/// # Errors
/// What pricing and simulating can meet.
pub fn of_lowering(case: &Case, lowering: &Lowering, constants: &[Constant]) -> Result<Spread> {
    let nominal = chain::program(&case.machine, lowering, chain::ChainLaunch::Graph, 1)?;
    let base = run(&nominal)?;
    let end = |constant: &Constant, end: usize| -> Result<f64> {
        let machine = case.with(&constant.path, constant.interval[end])?.machine;
        let program = chain::program(&machine, lowering, chain::ChainLaunch::Graph, 1)?;
        Ok(if program == nominal { 0.0 } else { run(&program)? - base })
    };
    let communication: Vec<Ends> = constants.iter().map(|one| Ok([end(one, 1)?, end(one, 2)?])).collect::<Result<_>>()?;
    Ok(Spread { communication_ms: base, kernels: vec![[0.0; 2]; constants.len()], communication })
}
