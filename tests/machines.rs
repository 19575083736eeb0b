//! Embedded machines against what was measured on machines cabled so.
//!
//! `tests/fixtures/machines/flows.csv` says of each row whether a link's rate
//! was set by it or only checked.

use lanecast::machine::Access;
use lanecast::machine::Direction;
use lanecast::machine::Endpoint;
use lanecast::machine::LinkId;
use lanecast::machine::Machine;
use lanecast::machine::PathType;

fn load(id: &str) -> Machine {
    Machine::load(id).unwrap_or_else(|fault| panic!("{id}: {:?}", miette::Report::new(*fault)))
}

fn fixture(name: &str) -> String {
    let path = format!("{}/tests/fixtures/machines/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn embedded_machines_read_and_write() {
    for id in Machine::ids() {
        let machine = load(id);
        assert_eq!(machine.id, id);
        let text = machine.to_toml();
        let again = Machine::from_toml("written", &text).unwrap_or_else(|fault| panic!("{id}: {:?}", miette::Report::new(*fault)));
        assert_eq!(again, machine, "{id}");
        assert_eq!(again.to_toml(), text, "{id}");
    }
}

#[test]
fn every_number_has_a_source() {
    for id in Machine::ids() {
        for (path, spec, quantity) in load(id).knobs() {
            assert!(!quantity.source.is_empty(), "{id}: {path}");
            assert!(
                spec.bounds.contains(&quantity.value) && quantity.low <= quantity.value && quantity.value <= quantity.high,
                "{id}: {path}"
            );
        }
    }
}

/// The block `[name]` of the collection, as words.
fn matrix(name: &str) -> Vec<Vec<String>> {
    let text = fixture("topo-matrices.txt");
    let lines = text.lines().skip_while(|line| !line.starts_with(&format!("[{name}]"))).skip(1);
    lines.take_while(|line| !line.starts_with('[')).map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

fn labels(machine: &Machine) -> Vec<Vec<String>> {
    let row = |from| (0..machine.gpus.len()).map(|to| machine.smi_label(from, to).expect("joined")).collect();
    (0..machine.gpus.len()).map(row).collect()
}

#[test]
fn labels_are_those_of_nvidia_smi() {
    assert_eq!(labels(&load("4x-rtx-5090-direct")), matrix("A"));
    assert_eq!(labels(&load("8x-rtx-pro-6000-turin-direct")), matrix("B"));
    assert_eq!(labels(&load("8x-rtx-pro-6000-pex890")), matrix("C"));
    assert_eq!(labels(&load("8x-rtx-pro-6000-switchtec3")), matrix("D"));
    assert_eq!(labels(&load("8x-rtx-pro-6000-switchtec2")), matrix("E"));
    // [F]: both switches below one host bridge, as switches 2 and 3 of the machine with 16.
    let sixteen = labels(&load("16x-rtx-pro-6000-switchtec4"));
    let below_one: Vec<Vec<String>> = sixteen[8..].iter().map(|row| row[8..].to_vec()).collect();
    assert_eq!(below_one, matrix("F"));
    // [G]: labels of blocks, four GPUs a switch.
    for (block, row) in matrix("G").iter().enumerate() {
        for (other, label) in row[1..].iter().enumerate() {
            assert_eq!(&sixteen[4 * block][4 * other + 1], label, "SW{block} SW{other}");
        }
    }
    assert_eq!(load("8x-h200").smi_label(0, 7).as_deref(), Some("NV18"));
}

#[test]
fn nccl_knows_no_node() {
    let path = |id: &str, from, to| load(id).route(Endpoint::Gpu(from), Endpoint::Gpu(to)).expect("joined").path;
    assert_eq!(path("8x-rtx-pro-6000-switchtec3", 0, 0), PathType::Loc);
    assert_eq!(path("8x-rtx-pro-6000-switchtec3", 0, 1), PathType::Pix);
    assert_eq!(path("8x-rtx-pro-6000-switchtec3", 0, 3), PathType::Pxb);
    assert_eq!(path("8x-rtx-pro-6000-switchtec3", 0, 4), PathType::Phb);
    assert_eq!(path("8x-rtx-pro-6000-server", 0, 4), PathType::Sys);
    assert_eq!(path("8x-h200", 0, 4), PathType::Nvl);
}

/// Arrival to a poll that sees it and the step to the next store, of the
/// machine with 16 GPUs: 680 - 120 (issue) - 2 x 110 (links) = 340 ns.
const ARRIVAL_TO_POLL_NS: f64 = 340.0;

#[test]
fn flags_take_as_long_as_measured() {
    // rtx6kpro root-topology-comparison, one way. Set by: the mean 680 of the
    // same switch and 1070 across; checked: every pair within 9 %.
    let measured = [(0, 1, 633.0), (4, 5, 726.0), (8, 9, 727.0), (12, 13, 636.0), (0, 4, 1071.0), (1, 5, 1069.0), (2, 6, 1081.0)];
    let shared_root = [(3, 7, 1068.0), (8, 12, 1069.0), (9, 13, 1057.0), (10, 14, 1060.7), (11, 15, 1062.0)];
    let across = [(0, 8, 1083.0), (0, 12, 1039.0), (4, 8, 1116.0)];
    let machine = load("16x-rtx-pro-6000-switchtec4");
    for (from, to, ns) in measured.iter().chain(&shared_root).chain(&across) {
        let arrival = machine.write_latency(*from, Endpoint::Gpu(*to)).expect("joined").ns();
        let error = (arrival + ARRIVAL_TO_POLL_NS) / ns - 1.0;
        assert!(error.abs() < 0.09, "{from}-{to}: {} ns against {ns}", arrival + ARRIVAL_TO_POLL_NS);
    }
}

#[test]
fn reads_take_as_long_as_measured() {
    // Set by: 0.71 (PIX) and 1.16 us (NODE) of the switches, the means 0.89
    // and 1.05 us of the Turin machine. Checked: the extremes of each group.
    let expected = [
        ("8x-rtx-pro-6000-switchtec3", 0, 1, 0.71, 0.71, 0.02),
        ("8x-rtx-pro-6000-switchtec3", 0, 2, 0.71, 0.73, 0.02),
        ("8x-rtx-pro-6000-switchtec3", 0, 4, 1.14, 1.18, 0.02),
        ("7x-rtx-pro-6000-turin-direct", 0, 1, 0.84, 0.92, 0.02),
        ("7x-rtx-pro-6000-turin-direct", 4, 5, 0.91, 0.97, 0.03),
        ("7x-rtx-pro-6000-turin-direct", 0, 4, 0.97, 1.02, 0.04),
        ("7x-rtx-pro-6000-turin-direct", 4, 0, 1.06, 1.13, 0.02),
    ];
    for (id, from, to, low, high, tolerance) in expected {
        let us = load(id).read_latency(from, Endpoint::Gpu(to)).expect("joined").us();
        assert!((low * (1.0 - tolerance)..=high * (1.0 + tolerance)).contains(&us), "{id} {from}-{to}: {us} us");
    }
    // One H200's host memory: 1159.2 ns, by which its link was set.
    let us = load("h200-shared").read_latency(0, Endpoint::Host(0)).expect("joined").us();
    assert!((us - 1.159).abs() < 0.005, "{us}");
}

/// A flow: what it uses, each with its capacity's index.
type Flow = Vec<usize>;

/// Max-min fair rates by progressive filling: raise all flows alike until a
/// link is full, freeze its flows, go on.
fn max_min(capacities: &[f64], flows: &[Flow]) -> Vec<f64> {
    let mut rates = vec![None; flows.len()];
    while rates.iter().any(Option::is_none) {
        let mut tightest = (f64::INFINITY, 0);
        for (link, capacity) in capacities.iter().enumerate() {
            let over = |frozen: bool| flows.iter().zip(&rates).filter(move |(f, r)| r.is_some() == frozen && f.contains(&link));
            let free = over(false).count();
            if free > 0 {
                let left = capacity - over(true).filter_map(|(_, rate)| *rate).sum::<f64>();
                tightest = if left / (free as f64) < tightest.0 { (left / free as f64, link) } else { tightest };
            }
        }
        for (flow, rate) in flows.iter().zip(&mut rates) {
            if rate.is_none() && flow.contains(&tightest.1) {
                *rate = Some(tightest.0);
            }
        }
    }
    rates.into_iter().flatten().collect()
}

#[test]
fn max_min_fills_progressively() {
    // Link 0: 10, flows A, B. Link 1: 3, flows B, C. B = C = 1.5, A = 10 - 1.5.
    assert_eq!(max_min(&[10.0, 3.0], &[vec![0], vec![0, 1], vec![1]]), [8.5, 1.5, 1.5]);
}

/// What the cabling gives concurrent transfers from source to target, in GB/s.
fn total(machine: &Machine, transfers: &[(Endpoint, Endpoint)], access: Access) -> f64 {
    let side = |index: usize| if index.is_multiple_of(2) { Direction::Forward } else { Direction::Backward };
    let links = 2 * machine.links.len();
    let mut capacities: Vec<f64> = (0..links).map(|i| machine.link_rate(LinkId(i / 2), side(i), access).gbps()).collect();
    let mut flows: Vec<Flow> = Vec::new();
    for (from, to) in transfers {
        let route = machine.route(*from, *to).expect("joined");
        flows.push(route.hops.iter().map(|(link, direction)| 2 * link.0 + usize::from(*direction == Direction::Backward)).collect());
    }
    let device = |end: &Endpoint| if let Endpoint::Gpu(device) = end { Some(*device) } else { None };
    let writes: Vec<(usize, usize)> = transfers.iter().filter_map(|(a, b)| device(a).zip(device(b))).collect();
    if access == Access::Write && writes.len() == transfers.len() {
        for (collapse, members) in machine.collapsed(&writes) {
            capacities.push(collapse.write_gbps.value);
            members.iter().for_each(|member| flows[*member].push(capacities.len() - 1));
        }
    }
    max_min(&capacities, &flows).iter().sum()
}

fn transfers(machine: &Machine, access: &str, flows: &str) -> (Vec<(Endpoint, Endpoint)>, Access) {
    let device = |text: &str| Endpoint::Gpu(text.parse().expect("a device"));
    let host = |text: &str| {
        let Endpoint::Gpu(gpu) = device(text) else { panic!("a device") };
        Endpoint::Host(machine.socket_of(gpu).expect("joined"))
    };
    let count = machine.gpus.len();
    let everyone = (0..count * count).filter(|i| i / count != i % count).map(|i| (Endpoint::Gpu(i / count), Endpoint::Gpu(i % count)));
    let pair = |text: &str| text.split_once('>').map(|(a, b)| (device(a), device(b))).expect("a>b");
    match (access, flows) {
        ("write", "all") => (everyone.collect(), Access::Write),
        ("write", _) => (flows.split(';').map(pair).collect(), Access::Write),
        ("read", _) => (flows.split(';').map(pair).collect(), Access::Read),
        ("host-write", _) => (flows.split(';').map(|g| (device(g), host(g))).collect(), Access::Write),
        ("host-read", _) => (flows.split(';').map(|g| (host(g), device(g))).collect(), Access::Read),
        _ => panic!("{access}"),
    }
}

#[test]
fn concurrent_flows_share_links_as_measured() {
    let text = fixture("flows.csv");
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
    let (mut checked, mut wrong) = (Vec::new(), Vec::new());
    for record in reader.records() {
        let record = record.expect("a row");
        let machine = load(&record[0]);
        let (flows, access) = transfers(&machine, &record[1], &record[2]);
        let (got, measured) = (total(&machine, &flows, access), record[3].parse::<f64>().expect("a number"));
        let error_pct = (got / measured - 1.0) * 100.0;
        println!(
            "{:8.1} {measured:8.1} {error_pct:+7.1} % {:11} {} {}",
            got,
            &record[4],
            &record[0],
            &record[2].chars().take(40).collect::<String>()
        );
        match &record[4] {
            // Should a change of a machine explain such a row, the list must say so.
            "unexplained" if error_pct.abs() < 10.0 => wrong.push(format!("explained now: {record:?}")),
            "unexplained" => {}
            use_of => {
                let tolerance: f64 = record[5].parse().expect("a tolerance");
                if error_pct.abs() > tolerance {
                    wrong.push(format!("{got:.1} GB/s, {error_pct:+.1} %: {record:?}"));
                }
                if use_of == "check" {
                    checked.push(error_pct.abs());
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    checked.sort_by(f64::total_cmp);
    let median = checked[checked.len() / 2];
    assert!(checked.len() >= 30 && median < 5.0, "median error of {} rows not used: {median:.1} %", checked.len());
}
