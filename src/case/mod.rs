//! One question (machine, model, workload, policy, knobs) and its answer.

pub mod chain;
pub mod pricing;
pub mod roads;
