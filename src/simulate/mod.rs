//! The simulated executor: a [`Program`] in, an [`Outcome`] out.
//!
//! Integers only; this floor reads no clock, no file and no environment and
//! draws no random number.
//!
//! - [`program`]: what every rank does, operation by operation.
//! - [`timed`]: a collective's schedule with the cost of each step and the
//!   route of each connection.
//! - [`network`]: directed links and routes. [`fabric`]: flows that share them
//!   max-min fairly.
//! - [`stamp`]: a time together with what it was spent on.
//! - [`engine`]: the event loop. [`reuse`] skips blocks that repeat, [`apart`]
//!   puts passes together from collectives that do not meet, [`loops`] leaves
//!   out loops of long ones.
//!
//! **Order of events.** (time, phase, canonical id). Phases: ends of flows,
//! then starts of steps. All events of one instant are applied before rates are
//! solved, and nothing that an event does depends on the others of its instant:
//! a step's start and end are known only when all that they rest on is, and are
//! then worked out in the order of the step's connections. Hence no result
//! depends on the order in which anything was listed, or on the slot that a
//! message happens to have; reuse relies on the latter.

pub mod apart;
mod deadlock;
pub mod engine;
pub mod fabric;
mod layout;
pub mod loops;
mod narrow;
pub mod network;
pub mod outcome;
mod print;
pub mod program;
pub mod reuse;
mod share;
pub mod stamp;
mod state;
mod step;
pub mod timed;

pub use engine::simulate;
pub use network::Network;
pub use outcome::{CollectiveTotals, Outcome, Record};
pub use program::{Launch, Operation, Options, Program, Template};
pub use stamp::{Part, Stamp};
pub use timed::{Leg, StepCost, Timed, TimedConnection};
