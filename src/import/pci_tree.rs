//! The PCI tree where a file does not tell what its bridges are.

use std::collections::BTreeMap;

use crate::import::facts::PciDevice;
use crate::import::facts::PciKind;

/// No tree of bridges is deeper; loops in mangled files end here.
const DEPTH_MAX: usize = 64;

/// What each bridge of unknown kind is by its depth: ports of the processor,
/// then the upper and the lower ports of switches in turn.
pub fn kinds_by_depth<'a>(devices: impl Iterator<Item = &'a PciDevice>) -> BTreeMap<String, PciKind> {
    let by_bus: BTreeMap<&str, &PciDevice> = devices.map(|d| (d.bus.as_str(), d)).collect();
    let depth = |device: &PciDevice| {
        let mut at = device;
        let mut depth = 0;
        while let Some(up) = at.parent.as_deref().and_then(|p| by_bus.get(p)).filter(|_| depth < DEPTH_MAX) {
            depth += 1;
            at = up;
        }
        depth
    };
    let kind = |depth: usize| match depth {
        0 => PciKind::RootPort,
        odd if odd % 2 == 1 => PciKind::SwitchUp,
        _ => PciKind::SwitchDown,
    };
    by_bus.values().filter(|d| d.kind == PciKind::Bridge).map(|d| (d.bus.clone(), kind(depth(d)))).collect()
}
