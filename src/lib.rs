//! Lanecast forecasts what a forward pass of a large language model costs on
//! GPUs that talk over PCIe, ranks the communication strategies that could
//! make it faster, and reconciles forecasts with measurements.
//!
//! This list of modules is the map of the code, from the ground up. A file
//! imports only from floors below its own; `tests/floors.rs` checks it.
//!
//! | floor | modules | what they are |
//! |---|---|---|
//! | 1 | [`units`], [`error`], [`knob`] | integer time, bytes and rates; the one error type; numbers with a source |
//! | 2 | [`machine`], [`model`], [`collective`], [`trace`], [`render`] | the domain, each part on its own |
//! | 3 | [`plan`], [`nccl`], [`cost`] | what is to be done, what NCCL decides, what an operation costs |
//! | 4 | [`strategy`], [`simulate`], `gpu`, [`import`], [`compare`] | ways to communicate, the simulator and the real GPUs, readers, two traces side by side |
//! | 5 | [`case`] | one question and its answer |
//! | 6 | [`fit`] | constants against observations |
//! | 7 | [`decide`] | ranking, speculation, diagnosis, experiments, sweeps |
//! | 8 | [`report`] | results in words, tables and drawings |
//! | 9 | [`cli`] | arguments to requests to reports |

pub mod error;
pub mod knob;
pub mod units;

pub mod collective;
pub mod machine;
pub mod model;
pub mod render;
pub mod trace;

pub mod cost;
pub mod nccl;
pub mod plan;

pub mod compare;
#[cfg(feature = "gpu")]
pub mod gpu;
pub mod import;
pub mod simulate;
pub mod strategy;

pub mod case;
pub mod fit;

pub mod decide;

pub mod report;

pub mod cli;
