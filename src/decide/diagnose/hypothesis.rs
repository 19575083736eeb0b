//! What every hypothesis states, and the list of them.

use crate::error::Result;
use crate::import::facts::Facts;

use super::scenario::Scenario;

/// One thing that can be wrong: data, and what it changes in a scenario.
pub struct Hypothesis {
    /// Kebab-case.
    pub id: &'static str,
    /// What is wrong, a clause.
    pub summary: &'static str,
    /// What a level is, with its unit; empty where there is only "so" and "not so".
    pub measure: &'static str,
    /// How bad it can be, from mild to severe where that has a meaning.
    pub levels: &'static [f64],
    /// Whether levels between two of the list exist.
    pub continuous: bool,
    /// Makes it so in a scenario; false where it cannot be here, or is so already.
    pub apply: fn(&mut Scenario, f64) -> Result<bool>,
    /// A command that tells directly.
    pub check: &'static str,
    /// Minutes that it takes.
    pub check_minutes: u32,
    /// What the command shows if the hypothesis holds.
    pub tells: &'static str,
    /// What to do then.
    pub remedy: &'static str,
    /// How to undo that.
    pub way_back: &'static str,
    /// What the remedy risks.
    pub risk: &'static str,
    /// Where its size comes from.
    pub source: &'static str,
    /// Whether files say that it is so (true) or not so (false), and which; None where they are silent.
    pub seen: fn(&Facts) -> Option<(bool, String)>,
}

/// All of them; their order is that in which they are put into a scenario, and settles ties.
pub const ALL: [&Hypothesis; 17] = [
    &super::verify_outside_graph::HYPOTHESIS,
    &super::host_staged::HYPOTHESIS,
    &super::driver_staged::HYPOTHESIS,
    &super::acs::HYPOTHESIS,
    &super::iommu::HYPOTHESIS,
    &super::link_trained_low::HYPOTHESIS,
    &super::one_channel::HYPOTHESIS,
    &super::posted_write_collapse::HYPOTHESIS,
    &super::wrong_protocol::HYPOTHESIS,
    &super::few_threads::HYPOTHESIS,
    &super::declined::HYPOTHESIS,
    &super::clock_limit::HYPOTHESIS,
    &super::slow_host::HYPOTHESIS,
    &super::straggler::HYPOTHESIS,
    &super::expert_imbalance::HYPOTHESIS,
    &super::corruption::HYPOTHESIS,
    &super::profiler_waiting::HYPOTHESIS,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hypothesis_says_all_that_it_must() {
        for one in ALL {
            assert!(!one.levels.is_empty() && one.check_minutes > 0, "{}", one.id);
            let words = [one.id, one.summary, one.check, one.tells, one.remedy, one.way_back, one.risk, one.source];
            assert!(words.iter().all(|text| !text.is_empty()), "{}", one.id);
            assert!(one.id.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{}", one.id);
        }
        let mut ids: Vec<&str> = ALL.iter().map(|one| one.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), ALL.len());
    }
}
