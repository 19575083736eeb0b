//! Addresses are translated on the way through the root complex: slower and later.

use crate::error::Result;
use crate::import::facts::Facts;
use crate::import::facts::Iommu;
use crate::machine::Machine;
use crate::machine::NodeKind;

use super::hypothesis::Hypothesis;
use super::scenario::Scenario;

/// A look-up in the translation cache. Assumed.
const LOOKUP_NS: f64 = 200.0;

/// Classes of links between the trees of PCIe and the sockets: what goes over them is translated.
fn root_classes(machine: &Machine) -> Vec<String> {
    let is_root = |id: crate::machine::NodeId| matches!(machine.nodes[id.0].kind, NodeKind::RootPort);
    let above = |link: &&crate::machine::Link| machine.in_pcie_tree(link) && (is_root(link.a) || is_root(link.b)) && link.generation > 0;
    let mut classes: Vec<String> = machine.links.iter().filter(above).map(|link| link.class.clone()).collect();
    classes.sort();
    classes.dedup();
    classes
}

/// The hypothesis.
pub const HYPOTHESIS: Hypothesis = Hypothesis {
    id: "translating-iommu",
    summary: "the IOMMU translates every device address",
    measure: "share of the rate that is left",
    levels: &[0.85, 0.7],
    continuous: true,
    apply,
    check: r#"cat /proc/cmdline | grep -o "iommu[^ ]*"; dmesg | grep -i "iommu.*domain type""#,
    check_minutes: 1,
    tells: "`Translated`, or no iommu=pt and no iommu=off on a kernel that translates by default",
    remedy: "add iommu=pt (or iommu=off) to the kernel's command line and reboot",
    way_back: "remove it and reboot",
    risk: "devices are then not kept apart: not for machines that pass GPUs to guests",
    source: "rtx6kpro collapse-report: iommu=on costs 15 %, NCCL hangs; look-up of 200 ns assumed",
    seen,
};

fn apply(scenario: &mut Scenario, level: f64) -> Result<bool> {
    for class in root_classes(&scenario.machine) {
        for number in ["forward_gbps", "backward_gbps"] {
            scenario.scale(&format!("links.{class}.{number}"), level)?;
        }
        // A look-up in the translation cache on each packet.
        let path = format!("links.{class}.latency_ns");
        let known = scenario.machine.knobs().into_iter().find(|knob| knob.0 == path).map_or(0.0, |knob| knob.2.value);
        scenario.machine.set(&path, known + LOOKUP_NS)?;
    }
    Ok(true)
}

fn seen(facts: &Facts) -> Option<(bool, String)> {
    facts.iommu.map(|iommu| (iommu == Iommu::Translated, format!("kernel settings: the IOMMU is {iommu:?}")))
}
