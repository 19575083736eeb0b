//! Everything on the GPUs takes longer, links do not.

use crate::error::Result;

use super::hypothesis::Hypothesis;
use super::scenario::Scenario;

/// The hypothesis.
pub const HYPOTHESIS: Hypothesis = Hypothesis {
    id: "clock-limit",
    summary: "a power or clock limit slows the GPUs",
    measure: "share of the clock that is left",
    levels: &[0.8, 0.6, 0.4],
    continuous: true,
    apply,
    check: "nvidia-smi -q -d CLOCK,PERFORMANCE,POWER while it decodes",
    check_minutes: 1,
    tells: "SM clock far below the maximum, or an active throttle reason (power cap, thermal)",
    remedy: "raise the power limit (nvidia-smi -pl), release locked clocks (nvidia-smi -rgc), cool it",
    way_back: "nvidia-smi -pl OLD",
    risk: "more heat and power: mind supply and cooling",
    source: "kernels' fixed times and L2 follow the SM clock; a card at its power cap lowers it. That reads slow down as much is assumed",
    seen: |_| None,
};

fn apply(scenario: &mut Scenario, level: f64) -> Result<bool> {
    scenario.scale_all("kinds.", &["ns", "ps"], 1.0 / level)?;
    scenario.scale_all("kinds.", &["TFLOPS"], level)?;
    let kinds: Vec<String> = scenario.machine.kinds.keys().cloned().collect();
    for kind in kinds {
        for number in ["chip.l2_gbps", "kernels.l2_gbps", "chip.memory_gbps"] {
            scenario.scale(&format!("kinds.{kind}.{number}"), level)?;
        }
        // The host's clock is its own.
        for number in ["eager_ns", "framework_ns"] {
            scenario.scale(&format!("kinds.{kind}.launch.{number}"), level)?;
        }
        scenario.scale(&format!("kinds.{kind}.protocol.copy_engine_ns"), level)?;
    }
    Ok(true)
}
