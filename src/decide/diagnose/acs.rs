//! A switch may not forward between its own ports: packets go over the root port.

use crate::error::Result;
use crate::import::facts::Facts;
use crate::machine::NodeKind;

use super::hypothesis::Hypothesis;
use super::scenario::Scenario;

/// The hypothesis.
pub const HYPOTHESIS: Hypothesis = Hypothesis {
    id: "acs",
    summary: "Access Control Services send peer traffic up to the root port",
    measure: "",
    levels: &[1.0],
    continuous: false,
    apply,
    check: r#"sudo lspci -vv | grep -E "^[0-9a-f]|ACSCtl" (root ports and switch downstream ports)"#,
    check_minutes: 2,
    tells: "`ReqRedir+` or `CmpltRedir+` at a port above GPUs",
    remedy: "setpci -s PORT ECAP_ACS+6.w=0000 for root ports and switch downstream ports, or switch ACS off in the BIOS",
    way_back: "setpci the old value back, or reboot",
    risk: "devices can then reach each other's memory: not for machines that pass GPUs to guests",
    source: "rtx6kpro asus-esc8000a: 50 against 103 GB/s both ways below one switch",
    seen,
};

fn apply(scenario: &mut Scenario, level: f64) -> Result<bool> {
    let redirects = scenario.machine.redirects_peers || level <= 0.0;
    scenario.machine.redirects_peers = true;
    let has_switch = scenario.machine.nodes.iter().any(|node| matches!(node.kind, NodeKind::Switch { .. }));
    Ok(!redirects && has_switch)
}

fn seen(facts: &Facts) -> Option<(bool, String)> {
    let ports: Vec<bool> = facts.pci.iter().filter_map(|device| device.acs_redirects).collect();
    let redirecting = ports.iter().filter(|redirects| **redirects).count();
    (!ports.is_empty()).then(|| (redirecting > 0, format!("lspci: {redirecting} of {} ports redirect", ports.len())))
}
