//! Decisions: what to try, in which order, and what is really slow.
//!
//! [`rank`] orders the strategies for one pass, [`finding`] says in words what
//! the observations allow, [`evidence`] how much a forecast rests on.

pub mod allreduce;
pub mod evidence;
pub mod finding;
pub mod rank;
pub mod variables;
