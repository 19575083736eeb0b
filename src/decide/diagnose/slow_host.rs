//! Time passes between graphs; what is launched without one takes longer.

use crate::error::Result;

use super::hypothesis::Hypothesis;
use super::scenario::Scenario;

/// What scheduling a step takes on a usual host, hidden there. Assumed.
const STEP_MS: f64 = 1.0;

/// The hypothesis.
pub const HYPOTHESIS: Hypothesis = Hypothesis {
    id: "slow-host",
    summary: "the host is slow to launch and schedule",
    measure: "times slower than usual",
    levels: &[2.0, 4.0, 8.0, 16.0],
    continuous: true,
    apply,
    check: "top -H -p PID while it decodes; cpupower frequency-info; profile one step and look for gaps between graph launches",
    check_minutes: 3,
    tells: "a scheduler thread at 100 %, a powersave governor, gaps between graphs",
    remedy: "cpupower frequency-set -g performance; pin the workers to their socket; overlap scheduling; fewer log lines; a newer engine",
    way_back: "the old governor",
    risk: "none",
    source: "assumed: a step's scheduling takes about 1 ms, which a usual host hides behind the GPUs",
    seen: |_| None,
};

fn apply(scenario: &mut Scenario, level: f64) -> Result<bool> {
    let kinds: Vec<String> = scenario.machine.kinds.keys().cloned().collect();
    for kind in kinds {
        for number in ["eager_ns", "framework_ns"] {
            scenario.scale(&format!("kinds.{kind}.launch.{number}"), level)?;
        }
    }
    scenario.host_step_ms += STEP_MS * (level - 1.0);
    Ok(true)
}
