//! What workers are asked and what they answer.

use crate::error::Result;
use crate::gpu::bench::Bench;
use crate::gpu::check;
use crate::gpu::check::CheckOptions;
use crate::gpu::collectives;
use crate::gpu::collectives::OursOptions;
use crate::gpu::detect;
use crate::gpu::detect::Detected;
use crate::gpu::flows;
use crate::gpu::micro;
use crate::gpu::nccl_series;
use crate::gpu::nccl_series::NcclOptions;
use crate::gpu::observation::Check;
use crate::gpu::observation::Choice;
use crate::gpu::observation::Flow;
use crate::gpu::observation::Micro;
use crate::gpu::observation::Observation;
use crate::gpu::run;
use crate::gpu::run::Measured;
use crate::gpu::run::PassOptions;
use crate::gpu::skew;

/// One piece of work for one worker.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum Request {
    /// What the machine is.
    Detect,
    /// Kernels against the reference.
    Check(CheckOptions),
    /// Micro-benchmarks of one GPU and its peers.
    Micro {
        /// Device.
        ordinal: usize,
    },
    /// How far apart these numbers of ranks start on GPU 0.
    Skew {
        /// Ranks that share it.
        ranks: Vec<u32>,
    },
    /// Our all-reduce with a green context a rank, and without.
    Green {
        /// Ranks.
        ranks: u32,
    },
    /// Concurrent copies.
    Flows {
        /// Machine id for the rows.
        machine: String,
    },
    /// All-reduces of our own.
    Ours(OursOptions),
    /// NCCL's, with the worker's environment, and ours beside it if asked.
    Nccl(NcclOptions),
    /// A pass of a model.
    Pass(Box<PassOptions>),
    /// A rank that stops: must come back as `gpu-stuck`.
    Stop {
        /// Ranks of the group.
        ranks: u32,
    },
}

/// One line of a worker.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum Answer {
    /// How far a pass is, for people who wait.
    Progress(String),
    /// What was left out, and why.
    Note(String),
    /// The machine.
    Detected(Box<Detected>),
    /// A kernel's check.
    Check(Check),
    /// A micro-benchmark.
    Micro(Micro),
    /// A rate.
    Flow(Flow),
    /// A latency.
    Observation(Observation),
    /// What NCCL chose.
    Choice(Choice),
    /// A measured pass.
    Pass(Box<Measured>),
    /// The end.
    Done,
    /// The end, with an error.
    Fault {
        /// Stable code.
        code: String,
        /// What is wrong.
        message: String,
        /// What to do.
        help: Option<String>,
    },
}

/// The codes of this module's faults, to give a worker's back unchanged.
pub fn known_code(code: &str) -> &'static str {
    const CODES: [&str; 11] = [
        "run-model",
        "gpu-none",
        "gpu-driver",
        "gpu-library",
        "gpu-compile",
        "gpu-nccl",
        "gpu-ranks",
        "gpu-message",
        "gpu-grid",
        "gpu-stuck",
        "io",
    ];
    CODES.into_iter().find(|known| *known == code).unwrap_or("gpu-worker")
}

/// Does the work, telling results as they come.
///
/// # Errors
/// What the work meets.
pub fn answer(request: &Request, tell: &mut dyn FnMut(Answer)) -> Result<()> {
    match request {
        Request::Detect => {
            let found = detect::detect_here()?;
            tell(Answer::Detected(Box::new(found)));
            Ok(())
        }
        Request::Check(options) => check::check_kernels(options, &mut |row| tell(Answer::Check(row))),
        Request::Micro { ordinal } => {
            let bench = Bench::open(*ordinal)?;
            micro::all(&bench, &mut |row| tell(Answer::Micro(row)))?;
            flows::peers_micro(&bench, &mut |row| tell(Answer::Micro(row)))
        }
        Request::Skew { ranks } => {
            let bench = Bench::open(0)?;
            for count in ranks {
                skew::start_skew(&bench, *count, &mut |row| tell(Answer::Micro(row)))?;
                collectives::chain_skew(*count, &mut |row| tell(Answer::Micro(row)))?;
            }
            Ok(())
        }
        Request::Green { ranks } => collectives::green_contexts(*ranks, &mut |row| tell(Answer::Micro(row))),
        Request::Flows { machine } => flows::flows(machine, &mut |row| tell(Answer::Flow(row))),
        Request::Ours(options) => collectives::ours(options, tell),
        Request::Nccl(options) => nccl_series::nccl(options, tell),
        Request::Pass(options) => run::pass(options, tell),
        Request::Stop { ranks } => collectives::stopped_rank(*ranks),
    }
}
