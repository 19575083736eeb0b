//! A pass as pieces: kernels with their gaps, and collectives by kind and size.
//!
//! In a pass all ranks do the same work between two collectives, so that they
//! arrive nearly together: a pass is its kernels, the gaps before them, and
//! each distinct collective simulated once from a common start, times its
//! count. What that leaves out is the skew that one collective hands to the
//! next; a test holds the sum against the simulated pass. It is what makes
//! grids of hundreds of passes and thousands of samples cheap.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::error::Result;
use crate::plan::Place;
use crate::plan::Plan;
use crate::simulate::Operation;
use crate::simulate::Options;
use crate::simulate::Program;
use crate::simulate::Template;
use crate::simulate::program::Run;
use crate::strategy::Context;
use crate::strategy::Executor;
use crate::strategy::Kernel;
use crate::strategy::Logical;
use crate::strategy::Lowering;
use crate::strategy::Strategy;
use crate::units::Time;

use super::answer::answer;
use super::assemble::Assembled;
use super::assemble::assemble;
use super::chain;
use super::groups::Message;
use super::question::LaunchMode;
use super::question::Policy;
use super::question::Question;

/// Collectives above this are not simulated: the line through the times of half of it and of all of it is followed.
pub const SIMULATED_MOST: u64 = 8 << 20;

/// A stretch of a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Kernels of the slowest rank, with the gap before each.
    pub kernels: Time,
    /// How many kernels, collectives apart.
    pub launches: u64,
    /// Collectives by kind, bytes and stage: how many.
    pub collectives: BTreeMap<Message, u64>,
    /// How many of them are the layers' all-reduces.
    pub layer_allreduces: u64,
    /// Bytes of one of these.
    pub layer_bytes: u64,
}

/// A pass, and the draft steps behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    /// The target's pass.
    pub pass: Piece,
    /// The first draft step, which takes all tokens of the pass.
    pub first_draft: Piece,
    /// All later draft steps together.
    pub later_drafts: Piece,
}

impl Piece {
    /// The piece's time when `time` says what a collective takes, gap included.
    pub fn total(&self, mut time: impl FnMut(Message) -> Time) -> Time {
        self.kernels + self.collectives.iter().map(|(&message, &count)| time(message).times(count)).sum()
    }

    /// The time when every kernel is launched from the host, `issue` apart: never less than `total`.
    pub fn launched(&self, total: Time, issue: Time) -> Time {
        total.max(issue.times(self.launches + self.collectives.values().sum::<u64>()))
    }
}

/// Free communication whose all-reduces do the norm after them.
static FREE_FUSED: LazyLock<Option<Strategy>> = LazyLock::new(|| {
    let free = Strategy::find("free-communication").ok()?;
    Some(Strategy { fuses_norm: true, ..*free })
});

/// Splits a plan; with `fuses_norm` the norms after the layers' all-reduces are part of those.
///
/// # Errors
/// What assembling can meet.
pub fn pieces(question: &Question<'_>, plan: &Plan, context: &Context<'_>, fuses_norm: bool) -> Result<Pieces> {
    let free = match &*FREE_FUSED {
        Some(fused) if fuses_norm => fused,
        _ => Strategy::find("free-communication")?,
    };
    let graph = Question { launch: LaunchMode::Graph, ..*question };
    Ok(split(&assemble(&graph, plan, &Policy::single(free), context)?))
}

fn split(assembled: &Assembled) -> Pieces {
    let program = &assembled.program;
    let gap = program.launch.gap();
    let mut pieces = Pieces::default();
    for (run, place) in program.sequence.iter().zip(&assembled.places) {
        let piece = match place {
            Place::Draft(0) => &mut pieces.first_draft,
            Place::Draft(_) => &mut pieces.later_drafts,
            _ => &mut pieces.pass,
        };
        let repeats = u64::from(run.repeats);
        for operation in &program.templates[run.template as usize].operations {
            match operation {
                Operation::Compute { ps, launches } => {
                    let slowest = ps.iter().copied().max().unwrap_or(0) + gap * u64::from(*launches);
                    piece.kernels += Time(slowest).times(repeats);
                    piece.launches += u64::from(*launches) * repeats;
                }
                Operation::Collective { collective, .. } => {
                    let stage = assembled.stages[*collective as usize];
                    let collective = &assembled.collectives[*collective as usize];
                    let message = Message { logical: collective.kind.into(), bytes: collective.bytes, stage };
                    *piece.collectives.entry(message).or_default() += repeats;
                    if collective.role.is_layer_allreduce() {
                        piece.layer_allreduces += repeats;
                        piece.layer_bytes = piece.layer_bytes.max(collective.bytes);
                    }
                }
            }
        }
    }
    pieces
}

/// What one collective takes under a strategy, all ranks starting together, the gap before its kernel included.
///
/// # Errors
/// What lowering and pricing can meet.
pub fn collective_time(context: &Context<'_>, strategy: &Strategy, logical: Logical, bytes: u64) -> Result<Time> {
    simulated_time(context, &(strategy.lower)(context, strategy, logical, bytes)?)
}

/// The strategy that carries a message out of which one has made a kernel of this kind: itself, or
/// NCCL with nothing set where it has no kernel of its own.
///
/// # Errors
/// None; the name is known.
pub fn follows(strategy: &Strategy, kernel: Kernel) -> Result<&Strategy> {
    if strategy.executor != Executor::Nccl && kernel == Kernel::Nccl { Strategy::find("nccl-default") } else { Ok(strategy) }
}

/// What a lowered collective takes, the gap before its kernel included; nothing where nothing runs.
///
/// # Errors
/// What pricing and simulating can meet.
pub fn simulated_time(context: &Context<'_>, lowering: &Lowering) -> Result<Time> {
    if lowering.schedule.blocks.is_empty() {
        return Ok(Time::ZERO);
    }
    chain::time_of_one(context.machine, context.searches.routes(context.machine), lowering)
}

/// The time of what was assembled as the sum of its parts: kernels of the slowest rank, and each
/// collective as long as one alone takes.
///
/// # Errors
/// What simulating can meet.
pub fn summed(assembled: &Assembled) -> Result<Time> {
    let pieces = split(assembled);
    let mut total = [&pieces.pass, &pieces.first_draft, &pieces.later_drafts].iter().map(|piece| piece.kernels).sum();
    for (time, count) in alone(&assembled.program)? {
        total += time.times(count);
    }
    Ok(total)
}

/// What each collective of a program takes by itself, and how often it is there.
fn alone(program: &Program) -> Result<Vec<(Time, u64)>> {
    let mut counts = vec![0u64; program.collectives.len()];
    for run in &program.sequence {
        for operation in &program.templates[run.template as usize].operations {
            if let Operation::Collective { collective, .. } = operation {
                counts[*collective as usize] += u64::from(run.repeats);
            }
        }
    }
    let mut single = program.clone();
    single.sequence = vec![Run { template: 0, repeats: 1, members: u64::MAX >> (64 - program.ranks.clamp(1, 64)) }];
    (0..)
        .zip(counts)
        .map(|(collective, count)| {
            single.templates = vec![Template { operations: vec![Operation::Collective { collective, beside: 0 }] }];
            Ok((chain::time(&single)?, count))
        })
        .collect()
}

/// A pass of one stage under a policy: its compute, and each of its collectives
/// as long as one alone takes.
///
/// # Errors
/// What assembling and simulating can meet.
pub fn added_up(question: &Question<'_>, plan: &Plan, policy: &Policy, context: &Context<'_>) -> Result<Time> {
    let free = Policy::single(Strategy::find("free-communication")?);
    let mut total = answer(question, plan, &free, context, Options::default())?.pass;
    for (time, count) in alone(&assemble(question, plan, policy, context)?.program)? {
        total += time.times(count);
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::super::knobs::Case;
    use super::*;
    use crate::machine::Machine;
    use crate::model::Model;
    use crate::model::Workload;
    use crate::plan::Partition;

    /// Kernels, gaps and collectives from a common start against the simulated pass.
    #[test]
    fn pieces_add_up_to_the_pass() {
        let machine = Machine::load("8x-rtx-pro-6000-server").expect("built in");
        let model = Model::load("kimi-k2.5").expect("built in");
        let case = Case::new(machine, model, Workload::verify(3, 128), Partition::tensor(8), LaunchMode::Graph);
        let question = case.question();
        let plan = question.plan().expect("plans");
        let context = Context::new(&case.machine, 8);
        for id in ["nccl-16-channels", "nccl-few-channels", "one-shot-pull", "one-shot-push", "fused-one-shot", "mscclpp-packet"] {
            let strategy = Strategy::find(id).expect("known");
            let pass = answer(&question, &plan, &Policy::single(strategy), &context, Options::default()).expect("runs").pass;
            let parts = pieces(&question, &plan, &context, strategy.fuses_norm).expect("splits").pass;
            assert_eq!(parts.layer_allreduces, 122);
            let time = |message: Message| collective_time(&context, strategy, message.logical, message.bytes).expect("runs");
            let sum = parts.total(time);
            assert!((sum.ms() / pass.ms() - 1.0).abs() < 0.02, "{id}: {} against {}", sum.ms(), pass.ms());
        }
    }
}
