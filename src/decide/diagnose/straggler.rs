//! The others wait for it in every all-reduce.

use crate::error::Result;

use super::hypothesis::Hypothesis;
use super::scenario::Scenario;

/// The hypothesis.
pub const HYPOTHESIS: Hypothesis = Hypothesis {
    id: "straggling-rank",
    summary: "one rank computes slower than the others",
    measure: "times slower",
    levels: &[1.15, 1.4, 2.0, 3.0],
    continuous: true,
    apply,
    check: "nvidia-smi --query-gpu=index,clocks.sm,power.draw,temperature.gpu --format=csv -l 1 while it decodes; profile all ranks: the slow one spends least in all-reduces",
    check_minutes: 3,
    tells: "one GPU with a lower clock, or another process on it; the least all-reduce time on one rank",
    remedy: "cool or reseat that card, end other processes on it, equal power limits",
    way_back: "nothing to undo",
    risk: "none",
    source: "all ranks wait in each all-reduce for the last",
    seen: |_| None,
};

fn apply(scenario: &mut Scenario, level: f64) -> Result<bool> {
    scenario.slow_rank *= level;
    Ok(true)
}
