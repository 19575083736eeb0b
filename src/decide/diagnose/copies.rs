//! Rates of copies between GPUs and from the host, counted along their routes:
//! each link's rate divided by how often the concurrent copies use it.

use std::collections::BTreeMap;

use crate::machine::Direction;
use crate::machine::Endpoint;
use crate::machine::LinkId;
use crate::machine::Machine;
use crate::machine::PathType;
use crate::machine::PeerAccess;
use crate::machine::route::Access;

use super::forecast::Figures;
use super::kind::Kind;

/// What staging through host memory leaves of a copy's rate: both halves share the socket's memory and the copy
/// engines take turns. Assumed; p2pBandwidthLatencyTest without peer access shows 0.5 to 0.8 of it.
const STAGED_SHARE: f64 = 0.65;

/// A write through host memory, us, in p2pBandwidthLatencyTest without peer access.
/// Source: rtx6kpro pcie-bandwidth, "P2P disabled latency ~14 us".
const STAGED_US: f64 = 14.0;

/// Adds the kinds of links. `share` is what peer copies get of a link.
pub fn add_to(machine: &Machine, share: f64, figures: &mut Figures) {
    let host = host_gbps(machine);
    figures.insert(Kind::HostGbps, host);
    let pairs = pairs(machine);
    let (Some(near), Some(far)) = (pairs.iter().map(|pair| pair.2).min(), pairs.iter().map(|pair| pair.2).max()) else { return };
    let staged = machine.peer_access == PeerAccess::HostStaged;
    let slowest = |label: PathType, both: bool| {
        let of_label = pairs.iter().filter(|pair| pair.2 == label);
        let rate = |(a, b, _): &(usize, usize, PathType)| {
            let flows: &[(usize, usize)] = if both { &[(*a, *b), (*b, *a)] } else { &[(*a, *b)] };
            together_gbps(machine, flows) * share
        };
        let direct = of_label.map(rate).fold(f64::INFINITY, f64::min);
        if staged { STAGED_SHARE * host * if both { 1.3 } else { 1.0 } } else { direct }
    };
    figures.insert(Kind::P2pNearGbps, slowest(near, false));
    figures.insert(Kind::P2pFarGbps, slowest(far, false));
    figures.insert(Kind::P2pBothGbps, slowest(near, true));
    let latency = |label: PathType| {
        let first = pairs.iter().find(|pair| pair.2 == label);
        let direct = first.and_then(|pair| machine.write_latency(pair.0, Endpoint::Gpu(pair.1))).map_or(0.0, |time| time.us());
        if staged { STAGED_US } else { direct }
    };
    figures.insert(Kind::P2pNearUs, latency(near));
    figures.insert(Kind::P2pFarUs, latency(far));
    if let Some(flows) = crossing(machine) {
        let direct = together_gbps(machine, &flows) * share;
        figures.insert(Kind::P2pManyGbps, if staged { 2.0 * STAGED_SHARE * host } else { direct });
    }
}

/// All unordered pairs with what `nvidia-smi` shows between them.
fn pairs(machine: &Machine) -> Vec<(usize, usize, PathType)> {
    let count = machine.gpus.len();
    let label = |a: usize, b: usize| machine.route(Endpoint::Gpu(a), Endpoint::Gpu(b)).map(|route| (a, b, route.label));
    (0..count).flat_map(|a| (a + 1..count).filter_map(move |b| label(a, b))).collect()
}

/// Two GPUs of one root that write to two GPUs of other roots, of two if there are.
fn crossing(machine: &Machine) -> Option<Vec<(usize, usize)>> {
    let roots: Vec<_> = (0..machine.gpus.len()).map(|device| machine.root_of(device)).collect();
    let first = *roots.first()?;
    let sources: Vec<usize> = (0..roots.len()).filter(|device| roots[*device] == first).take(2).collect();
    let others: Vec<usize> = (0..roots.len()).filter(|device| roots[*device] != first).collect();
    let target = *others.first()?;
    let second = others.iter().find(|device| roots[**device] != roots[target]).or(others.get(1)).copied().unwrap_or(target);
    match sources[..] {
        [a, b] => Some(vec![(a, target), (b, second)]),
        _ => None,
    }
}

/// What concurrent copies reach together, GB/s.
fn together_gbps(machine: &Machine, flows: &[(usize, usize)]) -> f64 {
    let mut uses: BTreeMap<(LinkId, Direction), u32> = BTreeMap::new();
    let routes: Vec<Vec<(LinkId, Direction)>> = (flows.iter())
        .map(|(from, to)| machine.route(Endpoint::Gpu(*from), Endpoint::Gpu(*to)).map_or(Vec::new(), |route| route.hops))
        .collect();
    for hop in routes.iter().flatten() {
        *uses.entry(*hop).or_default() += 1;
    }
    let collapsed = machine.collapsed(flows);
    let rate = |(index, route): (usize, &Vec<(LinkId, Direction)>)| {
        let links = route.iter().map(|hop| {
            let whole = machine.link_rate(hop.0, hop.1, Access::Write).0 as f64 / 1e9;
            whole / f64::from(uses[hop])
        });
        let free = links.fold(f64::INFINITY, f64::min);
        let bound = collapsed.iter().filter(|(_, members)| members.contains(&index));
        bound.map(|(collapse, members)| collapse.write_gbps.value / members.len() as f64).fold(free, f64::min)
    };
    routes.iter().enumerate().map(rate).sum()
}

/// From pinned memory of its own socket to the slowest GPU.
fn host_gbps(machine: &Machine) -> f64 {
    let one = |device: usize| {
        let route = machine.route(Endpoint::Host(machine.socket_of(device)?), Endpoint::Gpu(device))?;
        let links = route.hops.iter().map(|hop| machine.link_rate(hop.0, hop.1, Access::Read).0 as f64 / 1e9);
        Some(links.fold(machine.fabric.host_memory_gbps.value, f64::min))
    };
    (0..machine.gpus.len()).filter_map(one).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(machine: &Machine) -> Figures {
        let mut figures = Figures::new();
        add_to(machine, 1.0, &mut figures);
        figures
    }

    /// Links of 45.7 GB/s: one copy gets all of one, both directions of a pair twice that. With redirection both
    /// directions share each direction of the uplink: half.
    #[test]
    fn redirection_halves_what_a_pair_reaches_both_ways() {
        let mut machine = Machine::load("8x-rtx-pro-6000-server").expect("built in");
        let figures = of(&machine);
        let link = figures[&Kind::P2pNearGbps];
        assert!((link - 45.7).abs() < 1e-6 && (figures[&Kind::P2pBothGbps] - 2.0 * link).abs() < 1e-6, "{figures:?}");
        machine.redirects_peers = true;
        let redirected = of(&machine);
        assert!((redirected[&Kind::P2pBothGbps] - link).abs() < 1e-6, "{redirected:?}");
        assert_eq!(redirected[&Kind::P2pNearGbps], link);
        assert!(redirected[&Kind::P2pNearUs] > figures[&Kind::P2pNearUs]);
    }
}
