//! What several transfers at once move together: the fabric's rates while all
//! of them run; all pairs at once are timed to the end of the last.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::case::roads::Order;
use crate::case::roads::Roads;
use crate::error::Fault;
use crate::error::Result;
use crate::machine::Access as Direct;
use crate::machine::Direction;
use crate::machine::Endpoint;
use crate::machine::LinkId;
use crate::machine::Machine;
use crate::machine::Routes;
use crate::simulate::fabric::Fabric;
use crate::trace::flows::Access;
use crate::trace::flows::FlowObservation;
use crate::trace::flows::Flows;
use crate::trace::flows::HOST;

/// Bytes of a flow: long enough that rounding does not matter.
const FLOW_BYTES: u64 = 1 << 30;

/// The forecast of one row, in 10^9 bytes per second, all flows together.
///
/// # Errors
/// `flows-unknown-gpu` for GPUs that the machine does not have, and pairs without a way.
pub fn forecast(machine: &Machine, row: &FlowObservation) -> Result<f64> {
    let mut roads = Roads::new(machine, Arc::new(Routes::of(machine)));
    if row.access == Access::Read {
        // Completions carry the data; posted writes are what collapses.
        for index in 0..machine.links.len() {
            for (place, direction) in [(0, Direction::Forward), (1, Direction::Backward)] {
                roads.network.capacity[2 * index + place] = machine.link_rate(LinkId(index), direction, Direct::Read).0;
            }
        }
    }
    let pairs: Vec<(u32, u32)> = row.flows.pairs(machine.gpus.len() as u32).into_iter().collect();
    let mut routes = Vec::new();
    for &(source, target) in &pairs {
        let (from, to) = (end(machine, source, target)?, end(machine, target, source)?);
        let crosses = pairs.iter().any(|&(other, elsewhere)| other == source && elsewhere != target);
        routes.push(roads.route(machine, from, to, if crosses { Order::Crossing } else { Order::Alone })?);
    }
    if row.access == Access::Read {
        roads.network.collapses.clear();
    }
    let mut fabric = Fabric::new(&roads.network);
    let bundles: Vec<u32> = routes.iter().map(|&route| fabric.bundle(route, u64::MAX)).collect();
    for (slot, &bundle) in bundles.iter().enumerate() {
        fabric.start(bundle, (slot as u32, 1), FLOW_BYTES, 0);
    }
    if row.flows == Flows::All {
        // All pairs are timed together: all bytes until the last has arrived.
        let end = finish(&mut fabric);
        return Ok(bundles.len() as f64 * FLOW_BYTES as f64 * 1e3 / end as f64);
    }
    fabric.solve(0, |_, _| {});
    Ok(bundles.iter().map(|&bundle| fabric.rate(bundle) as f64 / 1e9).sum())
}

/// Runs all flows to their ends; when the last one ends, in picoseconds.
fn finish(fabric: &mut Fabric) -> u64 {
    let mut ends: BTreeSet<(u64, u32)> = BTreeSet::new();
    let mut now = 0;
    fabric.solve(now, |bundle, end| {
        ends.insert((end, bundle));
    });
    while let Some((end, bundle)) = ends.pop_first() {
        now = end;
        fabric.finish(bundle, now, &mut Vec::new());
        // One instant is applied whole before rates are solved.
        if ends.first().is_none_or(|(next, _)| *next > now) {
            fabric.solve(now, |bundle, end| {
                ends.insert((end, bundle));
            });
        }
    }
    now.max(1)
}

/// A flow's end: a GPU, or the host memory of the other end's socket.
fn end(machine: &Machine, gpu: u32, other: u32) -> Result<Endpoint> {
    if gpu == HOST {
        return Ok(Endpoint::Host(machine.socket_of(other as usize).unwrap_or(0)));
    }
    if (gpu as usize) < machine.gpus.len() {
        return Ok(Endpoint::Gpu(gpu as usize));
    }
    Err(Fault::new("flows-unknown-gpu", format!("{} has no GPU {gpu}", machine.id))
        .help(format!("its GPUs are 0 to {}", machine.gpus.len().saturating_sub(1))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::flows::read_bytes;

    fn totals(machine: &str, flows: &[&str]) -> Vec<f64> {
        let machine = Machine::load(machine).expect("a machine");
        let text: String = flows.iter().map(|flows| format!("{flows},1\n")).collect();
        let rows = read_bytes("f.csv", format!("access,flows,total_GBps\n{text}").as_bytes()).expect("rows");
        rows.iter().map(|row| forecast(&machine, row).expect("a forecast")).collect()
    }

    /// One writer's link is shared by all of its flows; two writers of one virtual switch collapse.
    #[test]
    fn links_are_shared_and_writes_collapse() {
        let found = totals("8x-rtx-pro-6000-pex890", &["write,0>4", "write,0>4;0>6", "write,0>4;1>6", "read,0>4;1>6"]);
        assert!((found[1] / found[0] - 1.0).abs() < 1e-6, "{found:?}");
        assert!(found[2] < 5.0 && found[3] > 30.0, "{found:?}");
    }

    #[test]
    fn unknown_gpus_are_refused() {
        let machine = Machine::load("4x-rtx-pro-6000-one-chip").expect("a machine");
        let rows = read_bytes("f.csv", b"flows,total_GBps\n0>7,1\n").expect("rows");
        assert_eq!(forecast(&machine, &rows[0]).expect_err("unknown").code, "flows-unknown-gpu");
    }
}
