//! What a profile shows in all-reduces holds waiting for ranks that the profiler delays.

use crate::error::Result;

use super::hypothesis::Hypothesis;
use super::scenario::Scenario;

/// The hypothesis.
pub const HYPOTHESIS: Hypothesis = Hypothesis {
    id: "profiler-counts-waiting",
    summary: "the profiler counts waiting as communication",
    measure: "host time of a kernel while profiling, us",
    levels: &[20.0, 40.0],
    continuous: true,
    apply,
    check: "profile all ranks with --cuda-graph-trace=node and take for each all-reduce the shortest of the ranks; or lanecast allreduce against nccl-tests",
    check_minutes: 10,
    tells: "all-reduce kernels of different length on different ranks, that end together",
    remedy: "read the shortest rank, or end minus last arrival; trust step times without a profiler",
    way_back: "nothing to undo",
    risk: "none",
    source: "a rank that waits spins inside the kernel; profilers show the kernel. Host time under a profiler is assumed",
    seen: |_| None,
};

fn apply(scenario: &mut Scenario, level: f64) -> Result<bool> {
    scenario.profiled_launch_ns = Some(1e3 * level);
    Ok(true)
}
