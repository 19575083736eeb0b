//! Levels: 1 is Simple, 2 is LL, 3 is LL128.

use crate::error::Result;
use crate::import::facts::Facts;

use super::hypothesis::Hypothesis;
use super::scenario::Scenario;

/// The hypothesis.
pub const HYPOTHESIS: Hypothesis = Hypothesis {
    id: "wrong-protocol",
    summary: "a variable forces a protocol that does not fit the size",
    measure: "",
    levels: &[1.0, 2.0, 3.0],
    continuous: false,
    apply,
    check: r#"tr "\0" "\n" < /proc/PID/environ | grep NCCL_; NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING shows the protocol of each size"#,
    check_minutes: 1,
    tells: "NCCL_PROTO (or a nccl.conf, or a tuner plugin) that names one protocol",
    remedy: "unset NCCL_PROTO and restart",
    way_back: "set it again",
    risk: "none",
    source: "NCCL's own choice changes with the size; forcing LL halves the bandwidth of large messages (LL carries 4 bytes of data in 8)",
    seen,
};

fn apply(scenario: &mut Scenario, level: f64) -> Result<bool> {
    if scenario.environment.contains_key("NCCL_PROTO") {
        return Ok(false);
    }
    let name = if level < 1.5 {
        "Simple"
    } else if level < 2.5 {
        "LL"
    } else {
        "LL128"
    };
    scenario.environment.insert("NCCL_PROTO".to_owned(), name.to_owned());
    Ok(true)
}

fn seen(facts: &Facts) -> Option<(bool, String)> {
    facts.nccl.environment.get("NCCL_PROTO").map(|value| (true, format!("NCCL's log: NCCL_PROTO={value}")))
}
