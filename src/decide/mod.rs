//! Decisions: what to try, in which order, and what is really slow.
//!
//! [`rank`] orders the strategies for one pass, [`finding`] says in words what
//! the observations allow, [`evidence`] how much a forecast rests on, [`sweep`]
//! simulates many cases, [`optimize`] finds the best of many with few,
//! [`speculate`] whether speculative decoding pays, [`uncertain`] how sure a
//! ranking is and what would make it surer. [`diagnose`] finds what fits all
//! observations at once, [`experiment`] what runs prove and which to make next,
//! [`scrub`] takes out what must not be published.

pub mod allreduce;
pub mod baseline;
pub mod detected;
pub mod diagnose;
pub mod evidence;
pub mod experiment;
pub mod finding;
pub mod optimize;
pub mod rank;
pub mod readings;
pub mod scrub;
pub mod settings;
pub mod speculate;
pub mod sweep;
pub mod uncertain;
pub mod variables;
