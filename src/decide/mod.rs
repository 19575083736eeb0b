//! Decisions: what to try, in which order, and what is really slow.
//!
//! [`rank`] orders the strategies for one pass, [`finding`] says in words what
//! the observations allow, [`evidence`] how much a forecast rests on. [`diagnose`]
//! finds what fits all observations at once, [`experiment`] what runs prove and
//! which to make next, [`scrub`] takes out what must not be published.

pub mod allreduce;
pub mod baseline;
pub mod detected;
pub mod diagnose;
pub mod evidence;
pub mod experiment;
pub mod finding;
pub mod rank;
pub mod scrub;
pub mod variables;
