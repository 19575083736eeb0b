//! Expert kernels of one rank take longer; the others wait.

use crate::error::Result;

use super::hypothesis::Hypothesis;
use super::scenario::Scenario;

/// The hypothesis.
pub const HYPOTHESIS: Hypothesis = Hypothesis {
    id: "expert-imbalance",
    summary: "one rank holds the experts that most tokens want",
    measure: "sigmas of random routing, 1 is what chance gives",
    levels: &[1.0, 2.0, 4.0],
    continuous: true,
    apply,
    check: "log the experts' counts (SGLang: --expert-distribution-recorder-mode stat); compare expert kernels between ranks",
    check_minutes: 5,
    tells: "expert kernels of one rank take longer than the others'; only with expert parallelism",
    remedy: "balance experts (EPLB), or tensor parallelism for the experts",
    way_back: "take the flag out",
    risk: "balancing moves weights at run time",
    source: "balls into bins: the fullest of N ranks lies sqrt(2 ln N) sigmas above the mean; with tensor parallelism every rank holds a share of each expert",
    seen: |_| None,
};

fn apply(scenario: &mut Scenario, level: f64) -> Result<bool> {
    scenario.expert_overload += level;
    Ok(scenario.expert_overload > 0.0)
}
