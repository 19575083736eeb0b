//! One question (machine, model, workload, policy, knobs) and its answer.
//!
//! [`question`] is what is asked; [`assemble`] turns plan, strategy and machine
//! into the simulator's program, [`groups`] says among
//! which ranks, [`turns`] lets two halves of a batch take turns; [`answer`] runs it. [`chain`] does the same
//! for a benchmark's chain of one collective. [`pricing`] and [`roads`] turn
//! constants and cabling into the simulator's integers.

pub mod answer;
pub mod assemble;
pub mod chain;
pub mod groups;
pub mod pricing;
pub mod question;
pub mod records;
pub mod roads;
pub mod turns;

pub use answer::Answer;
pub use answer::ExpertLoad;
pub use answer::answer;
pub use assemble::kind_of;
pub use question::LaunchMode;
pub use question::Policy;
pub use question::Question;
