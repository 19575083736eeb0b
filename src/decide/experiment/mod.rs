//! Experiments: what each run of a campaign proves, and which to make next.
//!
//! | file | what it holds |
//! |---|---|
//! | [`ledger`] | the TOML file of a campaign: factors and runs |
//! | [`append`] | a run put behind what is there, word for word kept |
//! | [`difference`] | what differs between two runs, moved things included |
//! | [`verdict`] | what all runs together say of each factor, and each run alone |
//! | [`expect`], [`propose`] | what the simulator expects of a factor, and the run that isolates or pays most |

pub mod append;
pub mod difference;
pub mod expect;
pub mod ledger;
pub mod propose;
pub mod verdict;

/// The campaign of the built-in case, up to the crash.
pub const CASE: &str = include_str!("case.toml");
