//! The first GPU stands for the one that is slow.

use crate::error::Result;
use crate::import::facts::Facts;
use crate::import::facts::PciKind;
use crate::machine::Medium;

use super::hypothesis::Hypothesis;
use super::scenario::Scenario;

/// The hypothesis.
pub const HYPOTHESIS: Hypothesis = Hypothesis {
    id: "link-trained-low",
    summary: "one GPU's link has trained below its generation or width",
    measure: "share of the rate that is left",
    levels: &[0.5, 0.25, 0.125, 0.0625],
    continuous: false,
    apply,
    check: "under load: nvidia-smi --query-gpu=index,pcie.link.gen.current,pcie.link.width.current,pcie.link.gen.max,pcie.link.width.max --format=csv",
    check_minutes: 1,
    tells: "a GPU whose current generation or width is below the maximum while it works",
    remedy: "reseat the card, cable or riser; set the slot's generation in the BIOS; look at dmesg for AER errors; try another cable",
    way_back: "nothing to undo",
    risk: "none but the time that the server is down",
    source: "half a rate for each generation or halving of the width (PCIe base specification)",
    seen,
};

fn apply(scenario: &mut Scenario, level: f64) -> Result<bool> {
    let Some(gpu) = scenario.machine.gpus.first().copied() else { return Ok(false) };
    let mut found = false;
    for link in scenario.machine.links.iter_mut().filter(|link| link.medium == Medium::Pcie && (link.a == gpu || link.b == gpu)) {
        link.class = "trained-low".to_owned();
        found = true;
    }
    if found {
        for number in ["forward_gbps", "backward_gbps"] {
            scenario.scale(&format!("links.trained-low.{number}"), level)?;
        }
    }
    Ok(found)
}

fn seen(facts: &Facts) -> Option<(bool, String)> {
    let low = |device: &&crate::import::facts::PciDevice| {
        device.kind == PciKind::Gpu && device.link.width > 0 && device.link.width < device.link_max.width
    };
    let known = facts.pci.iter().filter(|device| device.kind == PciKind::Gpu && device.link.width > 0 && device.link_max.width > 0).count();
    let narrow: Vec<String> = facts.pci.iter().filter(low).map(|device| format!("{} x{}", device.bus, device.link.width)).collect();
    // Generations say nothing: an idle link runs slower.
    match (known, narrow.is_empty()) {
        (0, _) | (_, true) => None,
        _ => Some((true, format!("lspci: narrower than they could be: {}", narrow.join(", ")))),
    }
}
