//! The simulated executor: a [`Program`] in, an [`Outcome`] out.
//!
//! Integers only; this floor reads no clock, no file and no environment and
//! draws no random number.
//!
//! - [`program`]: what every rank does, operation by operation.
//! - [`timed`]: a collective's schedule with the cost of each step and the
//!   route of each connection.
//! - [`fabric`]: directed links shared max-min fairly by flows.
//! - [`stamp`]: a time together with what it was spent on.
//! - [`engine`]: the event loop. [`reuse`] skips blocks that repeat.
//!
//! **Order of events.** (time, phase, canonical id). Phases: ends of flows,
//! then starts of steps. The ids come from rank, block and connection, never
//! from the order in which anything was listed or pushed. All events of one
//! instant are applied before rates are solved.

pub mod engine;
pub mod fabric;
pub mod outcome;
pub mod program;
pub mod reuse;
pub mod stamp;
mod state;
mod step;
pub mod timed;

pub use engine::simulate;
pub use fabric::Network;
pub use outcome::{CollectiveTotals, Outcome, Record};
pub use program::{Launch, Operation, Options, Program, Template};
pub use stamp::{Part, Stamp};
pub use timed::{StepCost, Timed, TimedConnection};
