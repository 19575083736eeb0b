//! Whole commands and their parts on the case. `cargo bench --bench whole`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use lanecast::case::Case;
use lanecast::case::LaunchMode;
use lanecast::case::Question;
use lanecast::decide::optimize;
use lanecast::decide::rank::Request;
use lanecast::decide::rank::rank;
use lanecast::decide::speculate::Drafter;
use lanecast::decide::speculate::acceptance::Acceptance;
use lanecast::decide::sweep::Grid;
use lanecast::decide::sweep::Space;
use lanecast::decide::sweep::run::rows;
use lanecast::machine::Machine;
use lanecast::machine::Routes;
use lanecast::model::Draft;
use lanecast::model::Eagle3;
use lanecast::model::Model;
use lanecast::model::Phase;
use lanecast::model::Workload;
use lanecast::nccl;
use lanecast::plan::Partition;
use lanecast::simulate::Network;
use lanecast::simulate::fabric::Fabric;
use lanecast::strategy;
use lanecast::strategy::Effort;
use lanecast::strategy::Searches;
use lanecast::strategy::Strategy;

fn main() {
    divan::main();
}

fn machine() -> Machine {
    Machine::load("8x-rtx-pro-6000-server").expect("it is embedded")
}

fn model() -> Model {
    Model::load("kimi-k2.5").expect("it is embedded")
}

fn question<'a>(machine: &'a Machine, model: &'a Model) -> Question<'a> {
    let (workload, partition) = (Workload::verify(3, 128), Partition::tensor(8));
    Question { machine, model, workload, partition, launch: LaunchMode::Graph }
}

#[divan::bench]
fn load_machine() -> Machine {
    machine()
}

#[divan::bench]
fn load_model() -> Model {
    model()
}

#[divan::bench]
fn plan_of_the_case(bencher: divan::Bencher) {
    let (machine, model) = (machine(), model());
    bencher.bench_local(|| question(&machine, &model).plan().expect("a plan").hash());
}

#[divan::bench]
fn routes_of_a_machine(bencher: divan::Bencher) {
    let machine = machine();
    bencher.bench_local(|| Routes::of(&machine));
}

/// NCCL's graph searches, as a communicator makes them at its start.
#[divan::bench(sample_count = 20)]
fn nccl_searches(bencher: divan::Bencher) {
    let machine = machine();
    let environment = nccl::Environment::default();
    let devices: Vec<u32> = (0..8).collect();
    let setup = nccl::Setup {
        machine: &machine,
        devices: &devices,
        version: nccl::Version::NEWEST_READ,
        environment: &environment,
        placement: nccl::Placement::ProcessPerRank,
        graph_file: None,
    };
    bencher.bench_local(|| nccl::Communicator::new(&setup).expect("a communicator").graph_channels);
}

#[divan::bench(sample_count = 10, sample_size = 1)]
fn rank_the_case(bencher: divan::Bencher) {
    let (machine, model) = (machine(), model());
    bencher.bench_local(|| {
        let request = Request {
            question: question(&machine, &model),
            strategies: strategy::all().collect(),
            baseline: Strategy::find("nccl-16-channels").expect("known"),
            environment: BTreeMap::new(),
            searches: Searches::default(),
        };
        rank(&request).expect("a ranking").rows.len()
    });
}

/// The best policy of the case among all drafts, splits, channels and strategies.
#[divan::bench(sample_count = 5, sample_size = 1)]
fn optimize_the_case(bencher: divan::Bencher) {
    let mut workload = Workload::verify(1, 128);
    workload.phase = Phase::Decode;
    let case = Case::new(machine(), model(), workload, Partition::tensor(8), LaunchMode::Graph);
    bencher.bench_local(|| {
        let of = |(tp, pp, ep)| Partition { pp, ep, ..Partition::tensor(tp) };
        let request = optimize::Request {
            case: &case,
            drafter: Drafter::Model(Draft::Eagle3(Eagle3::for_model(&case.model))),
            acceptance: Acceptance::rate(&case.speculation),
            drafts: (0..=5).collect(),
            partitions: [(8, 1, 1), (8, 1, 8), (4, 2, 1), (4, 2, 4), (2, 4, 1), (2, 4, 2), (1, 8, 1)].map(of).to_vec(),
            strategies: strategy::all().filter(|strategy| strategy.effort != Effort::None).collect(),
            channels: vec![0, 1, 2, 4, 8, 16, 32],
        };
        optimize::optimize(&request, false).expect("a policy").collectives
    });
}

/// The first so many cases of the committed grid of ten thousand.
#[divan::bench(args = [100, 1_000], sample_count = 5, sample_size = 1)]
fn sweep_one_thread(bencher: divan::Bencher, cases: u64) {
    let text = include_str!("../validation/sweep-10000.toml");
    bencher.bench_local(|| {
        let space = Space::new(Grid::parse("grid", text).expect("a grid")).expect("a space");
        let mut bytes = 0;
        rows(&space, 0..cases, 1, |_, row| {
            bytes += row.len();
            Ok(())
        })
        .expect("rows");
        bytes
    });
}

/// Flows that compete for one link: each start changes the rates of all.
#[divan::bench(args = [8, 64])]
fn fabric_starts_and_ends(bencher: divan::Bencher, flows: u32) {
    let mut network = Network { capacity: vec![50_000_000_000; 65], ..Network::default() };
    let routes: Vec<u32> = (0..flows).map(|flow| network.route(&[0, 1 + flow])).collect();
    bencher.bench_local(|| {
        let mut fabric = Fabric::new(&network);
        let bundles: Vec<u32> = routes.iter().map(|&route| fabric.bundle(route, u64::MAX)).collect();
        let mut end = 0;
        for (slot, &bundle) in bundles.iter().enumerate() {
            fabric.start(bundle, (slot as u32, 1), 4096, slot as u64);
            fabric.solve(slot as u64, |_, time| end = time);
        }
        end
    });
}

#[divan::bench(args = [10], sample_count = 5, sample_size = 1)]
fn import_kineto_mb(bencher: divan::Bencher, megabytes: usize) {
    let mut text = String::from("{\"traceEvents\": [\n");
    let mut at = 0;
    while text.len() < megabytes << 20 {
        let _ = writeln!(
            text,
            "{{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"ncclDevKernel_AllReduce_Sum_bf16_RING_LL\", \"pid\": 0, \"tid\": 7, \"ts\": {at}.5, \"dur\": 20.25, \"args\": {{\"stream\": 7, \"correlation\": {at}, \"grid\": [2, 1, 1]}}}},"
        );
        at += 40;
    }
    text.push_str("{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"last\", \"pid\": 0, \"tid\": 7, \"ts\": 1.0, \"dur\": 1.0}\n]}\n");
    bencher
        .counter(divan::counter::BytesCount::new(text.len()))
        .bench_local(|| lanecast::import::kineto::read("made", text.as_bytes()).expect("reads").trace.map(|trace| trace.events.len()));
}
