//! Decisions: what to try, in which order, and what is really slow.
//!
//! [`rank`] orders the strategies for one pass, [`finding`] says in words what
//! the observations allow, [`evidence`] how much a forecast rests on, [`sweep`]
//! simulates many cases, [`optimize`] finds the best of many with few,
//! [`speculate`] whether speculative decoding pays, [`uncertain`] how sure a
//! ranking is and what would make it surer.

pub mod allreduce;
pub mod evidence;
pub mod finding;
pub mod optimize;
pub mod rank;
pub mod sweep;
pub mod speculate;
pub mod uncertain;
pub mod variables;
