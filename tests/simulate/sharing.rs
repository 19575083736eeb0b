//! Max-min fair sharing worked out by hand: the equations are in the comments.

use lanecast::simulate::Network;
use lanecast::simulate::fabric::{Collapse, Fabric};

use super::toy::BYTE_A_PS;

/// Runs flows (route, cap, bytes, start) to their ends.
fn ends(network: &Network, flows: &[(u32, u64, u64, u64)]) -> Vec<u64> {
    let mut fabric = Fabric::new(network);
    let bundles: Vec<u32> = flows.iter().map(|flow| fabric.bundle(flow.0, flow.1)).collect();
    let mut events: Vec<(u64, bool, u32)> = flows.iter().zip(0..).map(|(flow, slot)| (flow.3, true, slot)).collect();
    let mut ends = vec![0; flows.len()];
    let mut ended = Vec::new();
    while let Some(&now) = events.iter().map(|(time, _, _)| time).min() {
        let due: Vec<_> = events.extract_if(.., |event| event.0 == now).collect();
        for (_, starts, index) in due {
            if starts {
                fabric.start(bundles[index as usize], (index, 1), flows[index as usize].2, now);
            } else {
                fabric.finish(index, now, &mut ended);
                ended.drain(..).for_each(|slot| ends[slot as usize] = now);
            }
        }
        fabric.solve(now, |bundle, end| events.push((end, false, bundle)));
    }
    assert!(!fabric.is_busy());
    ends
}

const FREE: u64 = u64::MAX;

/// Two links, capacities 10 and 6 B/ps. A crosses both, B the first, C the second.
///   a + b ≤ 10, a + c ≤ 6: a = c = 3, b = 7.
/// A and C: 300 B / 3 = 100 ps. B: 700 B / 7 = 100 ps.
#[test]
fn three_flows_over_two_links() {
    let mut network = Network { capacity: vec![10 * BYTE_A_PS, 6 * BYTE_A_PS], ..Network::default() };
    let routes = [network.route(&[0, 1]), network.route(&[0]), network.route(&[1])];
    assert_eq!(ends(&network, &[(routes[0], FREE, 300, 0), (routes[1], FREE, 700, 0), (routes[2], FREE, 300, 0)]), [100; 3]);
}

/// One link of 10 B/ps; A alone from 0, B joins at 50 with the same route.
///   A: 10 × 50 = 500 B, then 5 B/ps: 250 B more by 100, when it ends with 750 B.
///   B: 5 × 50 = 250 B by 100, then 10 B/ps: 500 B more by 150.
#[test]
fn rates_change_in_the_middle_of_a_flow() {
    let mut network = Network { capacity: vec![10 * BYTE_A_PS], ..Network::default() };
    let route = network.route(&[0]);
    assert_eq!(ends(&network, &[(route, FREE, 750, 0), (route, FREE, 750, 50)]), [100, 150]);
}

/// One link of 12 B/ps, caps 2, 12, 12: the capped flow keeps 2, the others
/// share 10: 5 each. 100 B / 2 = 50 ps; 250 B / 5 = 50 ps. A fourth, alone on
/// its link, is not touched: 80 B / 8 = 10 ps.
#[test]
fn a_slow_source_leaves_the_rest_to_others() {
    let mut network = Network { capacity: vec![12 * BYTE_A_PS, 8 * BYTE_A_PS], ..Network::default() };
    let (shared, alone) = (network.route(&[0]), network.route(&[1]));
    let flows = [(shared, 2 * BYTE_A_PS, 100, 0), (shared, FREE, 250, 0), (shared, FREE, 250, 0), (alone, FREE, 80, 0)];
    assert_eq!(ends(&network, &flows), [50, 50, 50, 10]);
}

/// One link of 1 B/ps and three flows of 10 B: the rate of each is
/// ⌊10^12 / 3⌋ B/s, so that 10 B take 30.00…09 ps, which end at 31.
#[test]
fn ends_round_up() {
    let mut network = Network { capacity: vec![BYTE_A_PS], ..Network::default() };
    let route = network.route(&[0]);
    assert_eq!(ends(&network, &[(route, FREE, 10, 0); 3]), [31; 3]);
}

/// Links of 10 B/ps each; two sources that write for two roots collapse to
/// 4 B/ps together: 2 each. B comes at 50, when A has moved 500 of 600 B; both
/// get 2, A ends 100 / 2 = 50 ps later, at 100, B has 900 of its 1000 B left
/// and runs at 10 again: 90 ps more. C writes from A's source and meets nothing.
#[test]
fn writes_of_several_sources_for_several_roots_collapse() {
    let mut network = Network { capacity: vec![10 * BYTE_A_PS; 3], ..Network::default() };
    let routes = [network.route(&[0]), network.route(&[1]), network.route(&[2])];
    let known = vec![(routes[0], 7, 0), (routes[1], 9, 1), (routes[2], 7, 0)];
    network.collapses.push(Collapse { routes: known, sources_min: 2, roots_min: 2, rate: 4 * BYTE_A_PS });
    assert_eq!(ends(&network, &[(routes[0], FREE, 600, 0), (routes[1], FREE, 1000, 50)]), [100, 190]);
    assert_eq!(ends(&network, &[(routes[0], FREE, 600, 0), (routes[2], FREE, 1000, 50)]), [60, 150]);
}
