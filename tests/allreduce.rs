//! All-reduces by size on the built-in machines: what crosses what, and where.

use std::collections::BTreeMap;

use lanecast::case::chain::ChainLaunch;
use lanecast::decide::allreduce::Grid;
use lanecast::decide::allreduce::Request;
use lanecast::decide::allreduce::grid;
use lanecast::machine::Cabling;
use lanecast::machine::Machine;
use lanecast::strategy::Strategy;

const SIZES: [u64; 6] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

fn request<'a>(machine: &'a Machine, ranks: usize, ids: &[&str]) -> Request<'a> {
    Request {
        machine,
        ranks,
        environment: BTreeMap::new(),
        launch: ChainLaunch::Graph,
        sizes: SIZES.to_vec(),
        strategies: ids.iter().map(|id| Strategy::find(id).expect("known")).collect(),
        against: Strategy::find("nccl-default").expect("known"),
    }
}

/// The first size above which the strategy is slower than NCCL.
fn crossing(grid: &Grid, id: &str) -> u64 {
    let line = grid.lines.iter().find(|line| line.strategy.id == id).expect("can run");
    line.crossings.iter().find(|crossing| !crossing.faster_above).expect("crosses").bytes
}

/// On one chip four ranks read three peers each over links of their own; eight
/// ranks read seven, and half of those reads share the way between the sockets:
/// the one-shot loses against NCCL at a smaller size.
#[test]
fn the_one_shot_crosses_earlier_with_eight_ranks_across_sockets() {
    let chip = Machine::load("4x-rtx-pro-6000-one-chip").expect("built in");
    let sockets = Machine::load("8x-rtx-pro-6000-server").expect("built in");
    let at = |machine: &Machine, ranks: usize, id: &str| {
        let asked = request(machine, ranks, &["nccl-default", id]);
        crossing(&grid(&asked).expect("simulates"), id)
    };
    for id in ["one-shot-pull", "one-shot-push"] {
        let (near, far) = (at(&chip, 4, id), at(&sockets, 8, id));
        assert!(far * 2 < near, "{id}: {far} B with eight, {near} B with four");
    }
    // By mechanism: the same eight GPUs below one switch cross later again.
    let switched = sockets.recable(Cabling::OneSwitch).expect("eight fit");
    assert!(at(&switched, 8, "one-shot-pull") > at(&sockets, 8, "one-shot-pull"));
}

#[test]
fn the_policy_beats_each_strategy_and_nothing_goes_below_the_floor() {
    let machine = Machine::load("8x-rtx-pro-6000-switchtec3").expect("built in");
    let ids = ["nccl-default", "nccl-ring-ll", "one-shot-pull", "one-shot-push", "two-shot", "hierarchical", "nccl-symmetric"];
    let asked = request(&machine, 8, &ids);
    let grid = grid(&asked).expect("simulates");
    assert_eq!(grid.refused.iter().map(|(strategy, _)| strategy.id).collect::<Vec<_>>(), ["nccl-symmetric"]);
    for (size, bytes) in SIZES.iter().enumerate() {
        let chosen = grid.policy.iter().find(|row| *bytes <= row.up_to).expect("the last row takes the rest").strategy;
        let latency = |id: &str| grid.lines.iter().find(|line| line.strategy.id == id).expect("can run").latency[size];
        for line in &grid.lines {
            assert!(latency(chosen.id) <= line.latency[size], "{} at {bytes} B", line.strategy.id);
            assert!(line.latency[size] > grid.floors[size].total(), "{} at {bytes} B is below the floor", line.strategy.id);
        }
    }
    assert!(grid.policy.len() > 1, "small and large messages want different strategies here");
    assert!(grid.policy_gain().expect("lines").1 > 0.0);
    assert_eq!(grid.policy.last().expect("rows").up_to, u64::MAX);
}

/// A port that carries 45.7 GB/s moves
/// 2 × 7/8 × 1 MiB = 1,835,008 B in 40.2 us.
#[test]
fn the_floor_by_hand() {
    let machine = Machine::load("8x-rtx-pro-6000-server").expect("built in");
    let floor = lanecast::decide::allreduce::floor(&machine, 8, 1 << 20);
    assert!((floor.wire.us() / 40.15 - 1.0).abs() < 0.01, "{}", floor.wire.us());
    assert!(floor.launch.us() < 5.0 && floor.distance.us() < 3.0);
    assert_eq!(lanecast::decide::allreduce::floor(&machine, 1, 1 << 20).wire.0, 0);
}
