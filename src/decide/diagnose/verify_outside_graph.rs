//! A verify shape that was not captured: every kernel is launched from the host.

use crate::case::LaunchMode;
use crate::error::Result;

use super::hypothesis::Hypothesis;
use super::scenario::Scenario;

/// The hypothesis.
pub const HYPOTHESIS: Hypothesis = Hypothesis {
    id: "verify-outside-graph",
    summary: "the verify pass runs outside the CUDA graph",
    measure: "host time of a kernel, us",
    levels: &[10.0, 20.0, 40.0],
    continuous: true,
    apply,
    check: r#"grep -iE "captur|cuda graph|enforce.eager|piecewise" SERVER_LOG; profile one verify pass and count cudaLaunchKernel against cudaGraphLaunch"#,
    check_minutes: 5,
    tells: "thousands of kernel launches a pass, or captured sizes that lack batch x (drafts + 1)",
    remedy: "capture graphs for the verify shape: raise the largest captured size to batch x (drafts + 1), ask for full graphs, update the engine",
    way_back: "take the flag out and restart",
    risk: "graphs take memory; capture may fail and the server then does not start",
    source: "Kimi-K2.6 with piecewise graphs: 25 tok/s, with full graphs 107 at 30k (sjug/rtx6kpro kimi-k26-mtp-long-ctx-wip); host time per kernel 10 to 40 us is the interval of framework_ns",
    seen: |_| None,
};

fn apply(scenario: &mut Scenario, level: f64) -> Result<bool> {
    scenario.verify_launch = LaunchMode::Eager;
    scenario.set_launch("framework_ns", 1e3 * level)?;
    Ok(true)
}
