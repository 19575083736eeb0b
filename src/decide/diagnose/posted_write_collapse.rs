//! Two sources below one switch that write to two root ports are left with a few GB/s.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::knob::Quantity;
use crate::machine::Collapse;
use crate::machine::NodeId;
use crate::machine::NodeKind;

use super::hypothesis::Hypothesis;
use super::scenario::Scenario;

/// The hypothesis.
pub const HYPOTHESIS: Hypothesis = Hypothesis {
    id: "posted-write-collapse",
    summary: "concurrent posted writes from one switch to several roots collapse",
    measure: "what is left for all of them, GB/s",
    levels: &[2.7, 8.0, 13.5],
    continuous: true,
    apply,
    check: "p2pmark, or simpleP2P from two GPUs of one switch to GPUs below two other roots at once",
    check_minutes: 3,
    tells: "each alone runs at full rate, both together at a few GB/s",
    remedy: "newer BIOS, driver and kernel; reads in place of writes (NCCL_P2P_READ_ENABLE=1); another cabling",
    way_back: "unset the variable",
    risk: "reads are slower than healthy writes",
    source: "rtx6kpro collapse-report: 2.7 GB/s on PEX890xx, 12.6 to 13.5 on PM50100",
    seen: |_| None,
};

fn apply(scenario: &mut Scenario, level: f64) -> Result<bool> {
    let Some(&gpu) = scenario.machine.gpus.first() else { return Ok(false) };
    let roots: BTreeSet<NodeId> = (0..scenario.machine.gpus.len()).filter_map(|device| scenario.machine.root_of(device)).collect();
    let chain = scenario.machine.ancestors(gpu);
    let switch = chain.iter().rev().map(|node| &scenario.machine.nodes[node.0]).find(|node| matches!(node.kind, NodeKind::Switch { .. }));
    let (Some(switch), true, true) = (switch, roots.len() > 1, scenario.machine.collapses.is_empty()) else { return Ok(false) };
    let collapse = Collapse {
        at: switch.id.clone(),
        sources_min: 2,
        // On a machine with one other root the pattern is two sources for that one.
        roots_min: 2.min(roots.len() as u32 - 1),
        write_gbps: Quantity::exact(level, "hypothesis"),
    };
    scenario.machine.collapses.push(collapse);
    Ok(true)
}
