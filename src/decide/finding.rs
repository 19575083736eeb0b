//! What the observations allow: bounds on one all-reduce, what the baseline
//! spends, and how much of an observed pass no strategy explains.

use crate::case::LaunchMode;
use crate::case::Policy;
use crate::case::Question;
use crate::case::answer;
use crate::error::Result;
use crate::model::Workload;
use crate::simulate::Options;
use crate::strategy::Context;
use crate::strategy::Strategy;
use crate::units::Time;

use super::rank::Request;

/// What people have measured on their server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observed {
    /// One verify pass, ms.
    pub verify_ms: Option<f64>,
    /// Plain decoding of one sequence, tokens per second.
    pub decode_tps: Option<f64>,
}

/// An upper bound on one all-reduce, from the plain step.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// What is taken off the step before dividing.
    pub assumption: &'static str,
    /// Milliseconds taken off.
    pub without_ms: f64,
    /// The bound in microseconds; negative when the step is shorter than what is taken off.
    pub allreduce_us: f64,
}

/// The plain step, and what it says about one all-reduce.
#[derive(Clone, Debug, PartialEq)]
pub struct PlainStep {
    /// Observed, ms.
    pub observed_ms: f64,
    /// Simulated under the baseline, ms.
    pub simulated_ms: f64,
    /// The layers' all-reduces in it.
    pub allreduces: u64,
    /// Simulated mean of one of them, us.
    pub allreduce_us: f64,
    /// Free compute; weights alone; all kernels.
    pub bounds: Vec<Bound>,
}

/// What is left of an observed pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Verify {
    /// Whether a pass was observed at all; else the forecast stands in.
    pub is_observed: bool,
    /// Observed, ms.
    pub observed_ms: f64,
    /// Simulated under the baseline, ms.
    pub simulated_ms: f64,
    /// The same, every kernel launched by the engine from the host, ms.
    pub eager_ms: f64,
    /// With communication that takes no time, ms.
    pub floor_ms: f64,
    /// Kernels launched in one pass.
    pub launches: u64,
}

/// Everything that the observations say.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The plain step, if one was observed.
    pub plain: Option<PlainStep>,
    /// The pass.
    pub verify: Verify,
}

/// Simulates what the observations are to be held against.
///
/// # Errors
/// As simulating.
pub fn find(request: &Request<'_>, observed: &Observed, pass: Time) -> Result<Finding> {
    let question = &request.question;
    let eager = passes(request, question.workload, LaunchMode::Eager, request.baseline)?;
    let free = passes(request, question.workload, question.launch, Strategy::find("free-communication")?)?;
    let verify = Verify {
        is_observed: observed.verify_ms.is_some(),
        observed_ms: observed.verify_ms.unwrap_or(pass.ms()),
        simulated_ms: pass.ms(),
        eager_ms: eager.pass.ms(),
        floor_ms: free.pass.ms(),
        launches: launches(&eager),
    };
    let plain = observed.decode_tps.map(|tps| plain_step(request, tps)).transpose()?;
    Ok(Finding { plain, verify })
}

fn plain_step(request: &Request<'_>, decode_tps: f64) -> Result<PlainStep> {
    let mut workload = request.question.workload;
    workload.phase = crate::model::Phase::Decode;
    workload.tokens = 1;
    workload.batch = 1;
    let step = passes(request, workload, LaunchMode::Graph, request.baseline)?;
    let free = passes(request, workload, LaunchMode::Graph, Strategy::find("free-communication")?)?;
    let observed_ms = 1e3 / decode_tps;
    let count = step.allreduce.count.max(1);
    let memory_gbps = request.question.machine.gpu_kind(0).map_or(1.0, |kind| kind.chip.memory_gbps.value);
    let weights_ms = weight_bytes(&step) as f64 / memory_gbps / 1e6;
    let bound = |assumption: &'static str, without_ms: f64| Bound {
        assumption,
        without_ms,
        allreduce_us: (observed_ms - without_ms) * 1e3 / count as f64,
    };
    Ok(PlainStep {
        observed_ms,
        simulated_ms: step.pass.ms(),
        allreduces: step.allreduce.count,
        allreduce_us: step.allreduce.mean.us(),
        bounds: vec![
            bound("all compute is free", 0.0),
            bound("the weights are read at full memory bandwidth and nothing else takes time", weights_ms),
            bound("all kernels take what is modelled", free.pass.ms()),
        ],
    })
}

fn passes(request: &Request<'_>, workload: Workload, launch: LaunchMode, strategy: &'static Strategy) -> Result<crate::case::Answer> {
    let asked = &request.question;
    let question = Question { workload, launch, machine: asked.machine, model: asked.model, partition: asked.partition };
    let plan = question.plan()?;
    let mut context = Context::new(asked.machine, asked.partition.tp as usize);
    context.environment.clone_from(&request.environment);
    context.searches = request.searches.clone();
    answer(&question, &plan, &Policy::single(strategy), &context, Options::default())
}

/// Bytes of weights and cache that one rank reads in a pass.
fn weight_bytes(answer: &crate::case::Answer) -> u64 {
    let program = &answer.assembled.program;
    (program.sequence.iter())
        .filter(|run| run.members & 1 == 1)
        .map(|run| {
            let operations = program.templates[run.template as usize].operations.iter();
            let read = |(operation, label): (&crate::simulate::Operation, &crate::case::assemble::Label)| match operation {
                crate::simulate::Operation::Compute { .. } => label.bytes,
                crate::simulate::Operation::Collective { .. } => 0,
            };
            operations.zip(&answer.assembled.labels[run.template as usize]).map(read).sum::<u64>() * u64::from(run.repeats)
        })
        .sum()
}

/// Kernels that one rank launches in a pass.
fn launches(answer: &crate::case::Answer) -> u64 {
    let program = &answer.assembled.program;
    (program.sequence.iter())
        .filter(|run| run.members & 1 == 1)
        .map(|run| {
            let count = |operation: &crate::simulate::Operation| match operation {
                crate::simulate::Operation::Compute { launches, .. } => u64::from(*launches),
                crate::simulate::Operation::Collective { collective, .. } => u64::from(program.collectives[*collective as usize].launches),
            };
            program.templates[run.template as usize].operations.iter().map(count).sum::<u64>() * u64::from(run.repeats)
        })
        .sum()
}
