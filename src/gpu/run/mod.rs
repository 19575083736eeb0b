//! The second executor: a plan in, a measured pass out.
//!
//! [`pass`] runs in a worker. It rebuilds the plan, deals the weights
//! ([`weights`]), opens the ranks ([`ranks`]), turns operations into launches
//! ([`lower`], [`launch`], [`scratch`]) and collectives into calls
//! ([`exchange`]), checks the numbers against double precision ([`check`],
//! [`reference`]) and times the pass ([`program`], [`execute`], [`timing`]).
//! [`record`] makes a trace of what came back.
//!
//! Invariant: the only part of `gpu` that knows plans and models; which
//! strategy it is, only the caller knows.

pub mod check;
mod check_feed;
pub mod exchange;
pub mod execute;
pub mod launch;
pub mod lower;
pub mod program;
pub mod ranks;
pub mod record;
pub mod reference;
pub mod scratch;
pub mod timing;
pub mod weights;

use std::time::Duration;

use crate::error::{Fault, Result};
use crate::gpu::answer::Answer;
use crate::gpu::answer::Request;
use crate::gpu::bench::Bench;
use crate::gpu::element::Element;
use crate::gpu::group::Group;
use crate::gpu::group::Options;
use crate::gpu::implementation::Implementation;
use crate::gpu::nccl;
use crate::gpu::nccl::Communicators;
use crate::gpu::observation::spread;
use crate::gpu::run::check::CheckRow;
use crate::gpu::run::exchange::Way;
use crate::gpu::run::execute::Runner;
use crate::gpu::run::program::Parts;
use crate::gpu::run::program::Step;
use crate::gpu::run::ranks::Functions;
use crate::gpu::run::ranks::Rank;
use crate::gpu::run::scratch::Shape;
use crate::gpu::run::timing::Boundaries;
use crate::gpu::run::timing::Chain;
use crate::gpu::run::timing::Spread;
use crate::gpu::run::weights::Layout;
use crate::gpu::worker;
use crate::model::Model;
use crate::model::Phase;
use crate::model::Workload;
use crate::plan::Partition;
use crate::plan::Plan;

/// What a worker is asked to run.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct PassOptions {
    /// A model's id or a config.json.
    pub model: String,
    /// Tokens of the one sequence.
    pub tokens: u64,
    /// Cached positions.
    pub context: u64,
    /// Tensor-parallel ranks.
    pub tp: u32,
    /// GPUs to spread them over.
    pub devices: usize,
    /// Largest message and its way, ascending.
    pub ways: Vec<(u64, Way)>,
    /// From the host, instead of one graph.
    pub eager: bool,
    /// Repetitions of the total.
    pub repeats: usize,
    /// Leave out chains and boundaries.
    pub total_only: bool,
    /// Blocks whose numbers are checked: none, the first of each kind and the last, or all.
    pub check: Checked,
    /// Names weights and cache.
    pub seed: u64,
}

/// How much of the pass is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Checked {
    /// Nothing.
    None,
    /// The embedding, the first layer of each kind, the last, the head.
    Kinds,
    /// Every layer.
    All,
}

/// A measured pass.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Measured {
    /// Totals in the order in which they were taken, microseconds.
    pub totals_us: Vec<f64>,
    /// Their median, least and most.
    pub total: Spread,
    /// Launched from the host: how long the slowest thread launched.
    pub host_us: Option<f64>,
    /// The total with experts chosen by fixed scores, against which operations are measured in the pass.
    #[serde(default)]
    pub fixed_us: Option<f64>,
    /// Operations by themselves.
    pub chains: Vec<Chain>,
    /// Blocks by event nodes.
    pub boundaries: Vec<Boundaries>,
    /// Numbers against double precision.
    pub checks: Vec<CheckRow>,
    /// Distinct experts of a layer, the mean over layers, if there are experts.
    pub distinct_experts: Option<f64>,
    /// A copy of 1 GiB on the device, bytes read and written, GB/s.
    pub copy_gbps: f64,
    /// Clock of the multiprocessors before and after, GHz.
    pub clock_ghz: (f64, f64),
    /// The GPU's name.
    pub gpu: String,
    /// NCCL's version, if it was used.
    pub nccl: Option<String>,
    /// Bytes of pools and caches of a rank.
    pub rank_bytes: u64,
}

/// Asks a worker for a pass.
///
/// # Errors
/// What the worker meets.
pub fn measure(options: &PassOptions, environment: &[(String, String)], progress: &mut dyn FnMut(&str)) -> Result<Measured> {
    let shared = nccl::SHARED_GPU_ENVIRONMENT.map(|(k, v)| (k.to_owned(), v.to_owned()));
    let all: Vec<(String, String)> = shared.into_iter().chain(environment.iter().cloned()).collect();
    let mut found = None;
    worker::ask(&Request::Pass(Box::new(options.clone())), &all, Duration::from_secs(300), &mut |answer| match answer {
        Answer::Pass(measured) => found = Some(*measured),
        Answer::Progress(text) => progress(&text),
        _ => {}
    })?;
    found.ok_or_else(|| Fault::new("gpu-worker", "the worker measured nothing"))
}

/// The plan of the options, as the simulator would get it.
///
/// # Errors
/// Unknown models and bad numbers.
pub fn plan_of(options: &PassOptions) -> Result<(Model, Plan)> {
    let model = Model::load(&options.model)?;
    let phase = if options.tokens == 1 { Phase::Decode } else { Phase::Verify };
    let workload = Workload::new(phase, options.tokens, options.context);
    let plan = Plan::build(&model, &workload, Partition::tensor(options.tp))?;
    Ok((model, plan))
}

/// Tokens that the kernels take at most: columns of one tensor-core product.
pub const ROWS_MAX: u64 = 8;

/// Pools are at least so large, several times any L2.
const POOL_BYTES: u64 = 768 << 20;

/// Most channels of NCCL where ranks share a GPU: 16 ranks × 8 blocks fit its multiprocessors.
const SHARED_CHANNELS: i32 = 8;

/// Sizes of a pass.
///
/// # Errors
/// `run-model` for what the kernels do not take.
pub fn shape_of(model: &Model, options: &PassOptions) -> Result<Shape> {
    if options.tokens > ROWS_MAX {
        return Err(Fault::new("run-model", format!("the kernels take up to {ROWS_MAX} tokens, not {}", options.tokens)));
    }
    let tp = u64::from(options.tp);
    Ok(Shape {
        rows: options.tokens,
        context: options.context,
        tp,
        hidden: model.hidden,
        vocabulary: model.vocab,
        share: model.vocab_share(tp),
    })
}

/// Whether there are kernels for all that a model does; needs no GPU.
///
/// # Errors
/// `run-model` with what is missing.
pub fn check_model(model: &Model, options: &PassOptions) -> Result<()> {
    let (_, plan) = plan_of(options)?;
    let shape = shape_of(model, options)?;
    scratch::wanted(model, &shape)?;
    Layout::deal(&plan.expand(0), model.hidden, shape.share * model.hidden, POOL_BYTES).map(|_| ())
}

/// Runs a pass here, in a worker.
///
/// # Errors
/// What the device, NCCL or the plan refuses.
pub fn pass(options: &PassOptions, tell: &mut dyn FnMut(Answer)) -> Result<()> {
    let (model, plan) = plan_of(options)?;
    let shape = shape_of(&model, options)?;
    let planned = plan.expand(0);
    let layout = Layout::deal(&planned, model.hidden, shape.share * model.hidden, POOL_BYTES)?;
    // Closed again: its streams would take queues that ranks need.
    let before_ghz = Bench::open(0)?.clock_ghz;
    let group = if options.tp > 1 { Some(open_group(options, &shape)?) } else { None };
    let ranks = (0..options.tp as usize)
        .map(|rank| Rank::open(group.as_ref(), rank, &model, &shape, &layout, options.seed))
        .collect::<Result<Vec<_>>>()?;
    let communicators = match &group {
        // Blocks of all ranks wait for each other: on a shared GPU they must all be resident.
        Some(group) => Some(Communicators::open(group, 0, if options.devices < ranks.len() { SHARED_CHANNELS } else { 0 })?),
        None => None,
    };
    tell(Answer::Progress("ranks opened".to_owned()));
    let parts = Parts {
        model: &model,
        shape,
        layout: &layout,
        ranks: &ranks,
        group: group.as_ref(),
        nccl: communicators.as_ref(),
        ways: &options.ways,
    };
    let mut functions = Functions::default();
    let mut program: Vec<Vec<Step>> = Vec::new();
    for rank in 0..options.tp {
        program.push(parts.steps(rank as usize, &plan.expand(rank), &mut functions)?);
    }
    let runner = Runner { ranks: &ranks, group: group.as_ref() };
    tell(Answer::Progress("kernels compiled".to_owned()));
    let (checks, distinct) = check::check(&runner, &parts, &plan, &program, options.check)?;
    tell(Answer::Progress("numbers checked".to_owned()));
    let mut measured = time(options, &runner, &plan, &program)?;
    measured.checks = checks;
    measured.distinct_experts = distinct;
    let bench = Bench::open(0)?;
    measured.copy_gbps = copy_gbps(&bench)?;
    measured.clock_ghz = (before_ghz, bench.clock_ghz);
    measured.gpu = bench.context.name().unwrap_or_default();
    measured.nccl = communicators.as_ref().and(nccl::version()).map(nccl::version_text);
    measured.rank_bytes = layout.sizes.iter().sum();
    tell(Answer::Pass(Box::new(measured)));
    Ok(())
}

fn open_group(options: &PassOptions, shape: &Shape) -> Result<Group> {
    let bytes = shape.rows * shape.hidden * 2;
    let host = options.ways.iter().any(|(_, way)| matches!(way, Way::Ours { implementation, .. } if implementation.through_host()));
    Group::open(Options {
        ranks: options.tp,
        devices: options.devices,
        element: Element::Bf16,
        bytes_max: bytes,
        host_bytes_max: if host { bytes } else { 0 },
        timeout_ms: 10_000,
        green: false,
    })
}

fn time(options: &PassOptions, runner: &Runner<'_>, plan: &Plan, program: &[Vec<Step>]) -> Result<Measured> {
    let mut measured = Measured {
        totals_us: Vec::new(),
        total: (0.0, 0.0, 0.0),
        host_us: None,
        fixed_us: None,
        chains: Vec::new(),
        boundaries: Vec::new(),
        checks: Vec::new(),
        distinct_experts: None,
        copy_gbps: 0.0,
        clock_ghz: (0.0, 0.0),
        gpu: String::new(),
        nccl: None,
        rank_bytes: 0,
    };
    if options.eager {
        let ring = |way: &Way| matches!(way, Way::Ours { implementation: Implementation::CopyEngineRing, .. });
        if options.ways.iter().any(|(_, way)| ring(way)) {
            return Err(Fault::new("run-model", "the ring of copies is ordered by events of one thread: it runs in a graph only"));
        }
        let mut host = Vec::new();
        for repeat in 0..options.repeats + 2 {
            let (total, launching) = runner.eager(program)?;
            if repeat >= 2 {
                measured.totals_us.push(total);
                host.push(launching);
            }
        }
        measured.host_us = Some(spread(&host).0);
    } else {
        measured.totals_us = timing::total(runner, program, options.repeats)?;
    }
    measured.total = spread(&measured.totals_us);
    if !options.total_only {
        measured.chains = timing::chains(runner, program, &groups(plan))?;
        if !options.eager {
            measured.fixed_us = Some(timing::in_pass(runner, program, &groups(plan), &mut measured.chains)?);
        }
        measured.boundaries = timing::boundaries(runner, program)?;
    }
    Ok(measured)
}

/// Operations of rank 0 by template and name, with their positions.
fn groups(plan: &Plan) -> Vec<(u32, &'static str, Vec<usize>)> {
    let mut groups: Vec<(u32, &'static str, Vec<usize>)> = Vec::new();
    for (index, planned) in plan.expand(0).iter().enumerate() {
        let (block, name) = (planned.block.0, planned.id.name);
        match groups.iter_mut().find(|g| g.0 == block && g.1 == name) {
            Some(group) => group.2.push(index),
            None => groups.push((block, name, vec![index])),
        }
    }
    groups
}

/// Bytes read and written by a copy of 1 GiB on the device, over its time.
fn copy_gbps(bench: &Bench) -> Result<f64> {
    const BYTES: usize = 1 << 30;
    let (from, to) = (bench.device(BYTES)?, bench.device(BYTES)?);
    let copy = || {
        // SAFETY: both buffers are that long and live until the stream is done.
        unsafe { cudarc::driver::result::memcpy_dtod_async(to.address(), from.address(), BYTES, bench.stream.cu_stream()) }
            .map_err(|error| Fault::new("gpu-driver", format!("cannot copy: {error:?}")))
    };
    let (us, _, _) = bench.time_us(7, &copy)?;
    bench.stream.synchronize().map_err(|error| Fault::new("gpu-driver", format!("cannot wait: {error:?}")))?;
    Ok(2.0 * BYTES as f64 / us / 1e3)
}
