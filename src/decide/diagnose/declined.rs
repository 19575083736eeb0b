//! NCCL runs in its place.

use crate::error::Result;
use crate::strategy::Executor;
use crate::strategy::Strategy;

use super::hypothesis::Hypothesis;
use super::scenario::Scenario;

/// The hypothesis.
pub const HYPOTHESIS: Hypothesis = Hypothesis {
    id: "kernel-declined",
    summary: "the custom all-reduce or fused kernel was silently declined",
    measure: "",
    levels: &[1.0],
    continuous: false,
    apply,
    check: r#"grep -iE "custom.?all.?reduce|fusion|allreduce" SERVER_LOG; profile one pass and read the names of the all-reduce kernels"#,
    check_minutes: 3,
    tells: r#""disabled", "not supported for world size", or ncclDevKernel where another kernel was meant"#,
    remedy: "meet the gate that the log names (world size, NVLink, capability, buffer size), or stop counting on it",
    way_back: "take the flag out",
    risk: "a kernel whose gate is lifted by force may compute wrong sums: run a data check",
    source: r#"vLLM on 8x RTX PRO 6000: "Flashinfer allreduce fusion is not supported for world size 8"; custom all-reduce refuses more than 2 PCIe GPUs"#,
    seen: |_| None,
};

fn apply(scenario: &mut Scenario, level: f64) -> Result<bool> {
    if scenario.strategy.executor == Executor::Nccl || level <= 0.0 {
        return Ok(false);
    }
    scenario.strategy = Strategy::find("nccl-default")?;
    Ok(true)
}
