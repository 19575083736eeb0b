//! Speed is as it should be, but nearly every draft is thrown away.

use crate::error::Result;

use super::hypothesis::Hypothesis;
use super::scenario::Scenario;

/// The hypothesis.
pub const HYPOTHESIS: Hypothesis = Hypothesis {
    id: "silent-corruption",
    summary: "results are silently wrong: drafts are hardly ever accepted",
    measure: "share of the acceptance that is left",
    levels: &[0.1],
    continuous: false,
    apply,
    check: "compare the greedy output of one prompt with and without the custom all-reduce; run a data check of peer access",
    check_minutes: 5,
    tells: "texts differ, or sums are wrong",
    remedy: "--disable-custom-all-reduce; if that cures it: an end barrier, or no peer access on this driver",
    way_back: "take the flag out",
    risk: "none",
    source: "club-3090 issue 922: 0 % acceptance with wrong sums; sjug/rtx6kpro: 0.06 without an end barrier",
    seen: |_| None,
};

fn apply(scenario: &mut Scenario, level: f64) -> Result<bool> {
    scenario.acceptance *= level;
    Ok(true)
}
