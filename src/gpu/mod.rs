//! Real GPUs: finding libraries, measuring, and all-reduce kernels of our own.
//!
//! The parent process never loads CUDA. It finds the libraries ([`library`])
//! and starts workers ([`worker`]), this program again with the environment
//! they need; a worker answers one request ([`answer`]) and ends.
//!
//! | files | what they are |
//! |---|---|
//! | [`library`], [`worker`], [`answer`] | libraries, processes, requests |
//! | [`device`], [`memory`], [`compile`], [`kernel`], [`arguments`] | the driver, buffers, NVRTC, sources |
//! | [`group`], [`green`], [`graph`], [`implementation`], [`copy_ring`], [`fused`], [`all_to_all`] | ranks, graphs, collectives |
//! | [`check`], [`reference`] | kernels against double precision |
//! | [`nccl`], [`tuner`], [`settings`], [`nccl_series`] | NCCL: calls, forced choices, configurations, series |
//! | [`measure`], [`threads`], [`collectives`], [`bench`], [`micro`], [`skew`], [`flows`] | measurements |
//! | [`run`] | whole passes of a model: compute kernels, graphs, checks, timing |
//! | [`detect`](mod@detect), [`pci`], [`machine`](mod@machine) | the machine and its file |
//! | [`parts`], [`calibrate`](mod@calibrate), [`observation`] | parts of a calibration, their run, rows |
//!
//! Invariant: this is the only module with `unsafe`, and no other module knows
//! CUDA. Only [`run`], the executor of whole passes, knows plans; none knows
//! strategies.

#![allow(unsafe_code)]

pub mod all_to_all;
pub mod answer;
pub mod arguments;
pub mod bench;
pub mod calibrate;
pub mod check;
pub mod collectives;
pub mod compile;
pub mod copy_ring;
pub mod detect;
pub mod device;
pub mod element;
pub mod fault;
pub mod flows;
pub mod fused;
pub mod graph;
pub mod green;
pub mod group;
pub mod implementation;
pub mod kernel;
pub mod library;
pub mod machine;
pub mod measure;
pub mod memory;
pub mod micro;
pub mod nccl;
pub mod nccl_series;
pub mod observation;
pub mod parts;
pub mod pci;
pub mod queues;
pub mod reference;
pub mod run;
pub mod settings;
pub mod skew;
pub mod threads;
pub mod tuner;
pub mod worker;

use std::time::Duration;

use crate::error::{Fault, Result};
use crate::gpu::answer::Answer;
use crate::gpu::answer::Request;
use crate::gpu::detect::Detected;

pub use calibrate::calibrate;
pub use machine::machine;
pub use worker::COMMAND as WORKER_COMMAND;
pub use worker::worker_main;

/// How long a worker may say nothing.
pub(crate) const SILENCE: Duration = Duration::from_secs(90);

/// What this machine is, found by a worker.
///
/// # Errors
/// `gpu-none` without a driver or GPU, and what the worker meets.
pub fn detect() -> Result<Detected> {
    let mut found = None;
    worker::ask(&Request::Detect, &[], SILENCE, &mut |answer| {
        if let Answer::Detected(machine) = answer {
            found = Some(*machine);
        }
    })?;
    found.ok_or_else(|| Fault::new("gpu-worker", "the worker found nothing"))
}
