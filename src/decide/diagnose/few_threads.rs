//! Large messages starve; small ones change little.

use crate::error::Result;
use crate::import::facts::Facts;

use super::hypothesis::Hypothesis;
use super::scenario::Scenario;

/// The hypothesis.
pub const HYPOTHESIS: Hypothesis = Hypothesis {
    id: "few-threads",
    summary: "a variable leaves NCCL few threads or small buffers",
    measure: "threads a channel",
    levels: &[64.0],
    continuous: false,
    apply,
    check: r#"tr "\0" "\n" < /proc/PID/environ | grep NCCL_"#,
    check_minutes: 1,
    tells: "NCCL_NTHREADS, NCCL_BUFFSIZE or NCCL_MAX_NCHANNELS that somebody set",
    remedy: "unset them and restart",
    way_back: "set them again",
    risk: "none",
    source: "the four variables of the built-in case; NVIDIA/nccl 1530 was cured by a larger NCCL_BUFFSIZE",
    seen,
};

fn apply(scenario: &mut Scenario, level: f64) -> Result<bool> {
    if scenario.environment.contains_key("NCCL_NTHREADS") {
        return Ok(false);
    }
    scenario.environment.insert("NCCL_NTHREADS".to_owned(), format!("{level:.0}"));
    Ok(true)
}

fn seen(facts: &Facts) -> Option<(bool, String)> {
    let set = |name: &&str| facts.nccl.environment.contains_key(*name);
    let names: Vec<&str> = ["NCCL_NTHREADS", "NCCL_BUFFSIZE"].into_iter().filter(set).collect();
    (!names.is_empty()).then(|| (true, format!("NCCL's log: {} is set", names.join(", "))))
}
