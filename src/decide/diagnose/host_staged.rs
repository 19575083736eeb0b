//! No peer access at all: NCCL goes through host memory, custom kernels are not used.

use crate::error::Result;
use crate::import::facts::Facts;
use crate::machine::PeerAccess;

use super::hypothesis::Hypothesis;
use super::scenario::Scenario;

/// The hypothesis.
pub const HYPOTHESIS: Hypothesis = Hypothesis {
    id: "host-staged",
    summary: "peer access is off: everything goes through host memory",
    measure: "",
    levels: &[1.0],
    continuous: false,
    apply,
    check: "nvidia-smi topo -p2p rw; env | grep NCCL_P2P; NCCL_DEBUG=INFO and look for `via SHM` between GPUs of one switch",
    check_minutes: 2,
    tells: "anything but OK between GPUs, NCCL_P2P_DISABLE=1, or `via SHM`",
    remedy: "unset NCCL_P2P_DISABLE; switch off ACS and the translating IOMMU; load the driver with peer access; prove it with a data check",
    way_back: "set NCCL_P2P_DISABLE=1 again",
    risk: "peer access that loses data hangs or corrupts: run a data check first",
    source: "rtx6kpro nccl-tuning: 90 against 70 tok/s at one request (users put P2P off as a stop-gap: NVIDIA/nccl 2079)",
    seen,
};

fn apply(scenario: &mut Scenario, level: f64) -> Result<bool> {
    if scenario.machine.peer_access == PeerAccess::HostStaged || level <= 0.0 {
        return Ok(false);
    }
    scenario.machine.peer_access = PeerAccess::HostStaged;
    scenario.environment.insert("NCCL_P2P_DISABLE".to_owned(), "1".to_owned());
    Ok(true)
}

fn seen(facts: &Facts) -> Option<(bool, String)> {
    let direct = facts.nccl.transports.values().filter(|via| via.starts_with("P2P")).count();
    let all = facts.nccl.transports.len();
    match (all, direct) {
        (0, _) => None,
        (_, 0) => Some((true, "NCCL's log: no pair goes over P2P".to_owned())),
        _ => Some((false, format!("NCCL's log: {direct} of {all} connections go over P2P"))),
    }
}
