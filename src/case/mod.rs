//! One question (machine, model, workload, policy, knobs) and its answer.
//!
//! [`question`] is what is asked; [`assemble`] turns plan, strategy and machine
//! into the simulator's program, [`groups`] says among
//! which ranks, [`turns`] lets two halves of a batch take turns; [`answer`] runs it. [`chain`] does the same
//! for a benchmark's chain of one collective. [`pricing`] and [`roads`] turn
//! constants and cabling into the simulator's integers; [`prices`] keeps what was
//! priced, [`bound`] says what a collective takes at least, [`offers`] simulates those alone that are asked for, [`loads`] says what each collective takes over each link. [`pieces`] splits a pass into kernels and collectives, to be added up
//! without simulating it whole. [`knobs`] is the one registry of numbers: every
//! one of a case is read and changed by its path. [`tuner_rules`], [`engine`] and
//! [`exported`] say policy and plan in others' words.

pub mod answer;
pub mod assemble;
pub mod bound;
pub mod chain;
pub mod engine;
pub mod exported;
pub mod groups;
pub mod knobs;
pub mod loads;
pub mod offers;
pub mod pieces;
pub mod prices;
pub mod pricing;
pub mod question;
pub mod records;
pub mod roads;
pub mod speculation;
pub mod tuner_rules;
pub mod turns;
mod whole;

pub use answer::Answer;
pub use answer::ExpertLoad;
pub use answer::answer;
pub use answer::answer_at;
pub use assemble::kind_of;
pub use knobs::Case;
pub use knobs::Knob;
pub use prices::Prices;
pub use question::LaunchMode;
pub use question::Policy;
pub use question::Question;
pub use question::too_large;
pub use speculation::SpeculationConstants;
