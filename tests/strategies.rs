//! Every strategy on every machine: what it lowers to is right, its gates say
//! why, its page is fresh, and the order of times follows from the mechanism.

use lanecast::case::chain;
use lanecast::case::chain::ChainLaunch;
use lanecast::collective::numeric::run;
use lanecast::collective::{Protocol, Schedule};
use lanecast::machine::{Machine, PeerAccess};
use lanecast::simulate::Options;
use lanecast::strategy::{Context, Kernel, Logical, Strategy, all, page};

fn machine(id: &str) -> Machine {
    Machine::load(id).expect("a machine of the library")
}

fn machines() -> impl Iterator<Item = Machine> {
    Machine::ids().map(machine)
}

fn find(id: &str) -> &'static Strategy {
    Strategy::find(id).expect("known")
}

fn ranks_of(machine: &Machine) -> usize {
    machine.gpus.len() * machine.ranks_per_gpu as usize
}

fn inputs(schedule: &Schedule) -> Vec<Vec<i64>> {
    (0..schedule.ranks as i64).map(|rank| (0..schedule.user_bytes as i64).map(|i| rank * 1009 + i * 7 % 251).collect()).collect()
}

/// Microseconds of one collective of a chain of 4 in a graph.
fn time_us(machine: &Machine, id: &str, ranks: usize, bytes: u64) -> f64 {
    let context = Context::new(machine, ranks);
    let strategy = find(id);
    let lowering = (strategy.lower)(&context, strategy, Logical::AllReduce, bytes).expect("lowers");
    let outcome = chain::run(machine, &lowering, ChainLaunch::Graph, 4, Options::default()).expect("runs");
    outcome.critical().time as f64 / 4.0 / 1e6
}

#[test]
fn every_strategy_sums_on_every_machine() {
    for mut machine in machines() {
        let ranks = ranks_of(&machine);
        let shared = machine.ranks_per_gpu > 1;
        if shared {
            // Older ones refuse ranks on one GPU.
            machine.versions.nccl = Some("2.31.0".to_owned());
        }
        // Groups below the whole only where cabling differs inside: the default machine.
        if ranks < 2 {
            continue;
        }
        let groups: &[usize] = if machine.id == "8x-rtx-pro-6000-server" { &[2, 4, 6, 8] } else { &[ranks] };
        for &group in groups {
            let mut context = Context::new(&machine, group);
            if shared {
                context.environment.insert("NCCL_MULTI_RANK_GPU_ENABLE".to_owned(), "1".to_owned());
            }
            for strategy in all().filter(|strategy| strategy.refusal(&context).is_none()) {
                let lowering = (strategy.lower)(&context, strategy, Logical::AllReduce, 1040)
                    .unwrap_or_else(|fault| panic!("{} on {group} of {}: {fault}", strategy.id, machine.id));
                if lowering.kernel == Kernel::None {
                    continue;
                }
                let data = inputs(&lowering.schedule);
                let sum: Vec<i64> = (0..1040).map(|i| data.iter().map(|rank| rank[i]).sum()).collect();
                let results =
                    run(&lowering.schedule, &data, 3).unwrap_or_else(|fault| panic!("{} on {}: {fault}", strategy.id, machine.id));
                assert!(results.iter().all(|result| *result == sum), "{} on {group} of {}", strategy.id, machine.id);
            }
        }
    }
}

#[test]
fn every_strategy_lowers_whatever_it_is_asked_and_it_can_be_timed() {
    let machine = machine("8x-rtx-pro-6000-server");
    let context = Context::new(&machine, 8);
    for strategy in all().filter(|strategy| strategy.refusal(&context).is_none()) {
        for logical in [Logical::AllReduce, Logical::AllGather, Logical::ReduceScatter, Logical::AllToAll] {
            let lowering = (strategy.lower)(&context, strategy, logical, 43_008)
                .unwrap_or_else(|fault| panic!("{} {logical:?}: {fault}", strategy.id));
            let outcome = chain::run(&machine, &lowering, ChainLaunch::Graph, 3, Options::default())
                .unwrap_or_else(|fault| panic!("{} {logical:?}: {fault}", strategy.id));
            assert_eq!(outcome.critical().time > 0, lowering.kernel != Kernel::None, "{} {logical:?}", strategy.id);
        }
    }
}

/// From rank 1 to rank 5 of eight, as from stage to stage.
#[test]
fn a_message_between_stages_is_lowered_among_the_machine_s_ranks() {
    let machine = machine("8x-rtx-pro-6000-turin-direct");
    let mut context = Context::group(&machine, vec![1, 5]);
    assert_eq!(context.devices(), [1, 5]);
    let strategy = find("tp4-pp2");
    let lowering = (strategy.lower)(&context, strategy, Logical::SendReceive, 9000).expect("lowers").among(&[1, 5], 8);
    let data = inputs(&lowering.schedule);
    let results = run(&lowering.schedule, &data, 1).expect("runs");
    for rank in 0..8 {
        assert_eq!(results[rank], data[if rank == 5 { 1 } else { rank }], "rank {rank}");
    }
    // Two GPUs of an AMD machine are NCCL's exception: peer to peer even across sockets.
    assert!(!lowering.staged(1, 5));
    context.environment.insert("NCCL_P2P_DISABLE".to_owned(), "1".to_owned());
    let over_host = (strategy.lower)(&context, strategy, Logical::SendReceive, 9000).expect("lowers").among(&[1, 5], 8);
    assert!(over_host.staged(1, 5) && !over_host.staged(0, 5));
    let time = |lowering| chain::run(&machine, lowering, ChainLaunch::Graph, 2, Options::default()).expect("runs").critical().time;
    assert!(time(&lowering) < time(&over_host));
}

#[test]
fn partitions_hold_the_ranks_they_are_given() {
    for strategy in all() {
        let partition = (strategy.partition)(8);
        partition.check(61).expect("possible");
        assert_eq!(partition.ranks(), 8, "{}", strategy.id);
    }
    assert_eq!((find("tp4-pp2").partition)(8).tp, 4);
    assert!((find("expert-parallel").partition)(8).own_tokens());
}

fn refusal(id: &str, machine: &Machine, ranks: usize) -> String {
    find(id).refusal(&Context::new(machine, ranks)).unwrap_or_default()
}

#[test]
fn gates_name_the_reason() {
    let server = machine("8x-rtx-pro-6000-server");
    let sixteen = machine("16x-rtx-pro-6000-switchtec4");
    let staged = machine("4x-rtx-5090-direct");
    assert_eq!(staged.peer_access, PeerAccess::HostStaged);
    assert!(refusal("nccl-symmetric", &server, 8).contains("NCCL 2.29.2"));
    assert_eq!(refusal("nccl-symmetric", &machine("8x-rtx-pro-6000-switchtec2"), 8), "");
    assert_eq!(refusal("nccl-newer", &server, 8), "");
    for id in ["one-shot-push", "mscclpp-allpair", "two-shot-push"] {
        assert!(refusal(id, &sixteen, 16).contains("at most 8 peers"), "{id}");
        assert_eq!(refusal(id, &server, 8), "", "{id}");
        assert!(refusal(id, &staged, 4).contains("no peer access"), "{id}");
    }
    assert_eq!(refusal("hierarchical", &sixteen, 16), "");
    assert_eq!(refusal("host-staged", &staged, 4), "");
    assert!(refusal("hierarchical", &machine("7x-rtx-pro-6000-turin-direct"), 7).contains("islands"));
    assert!(refusal("flashinfer-pcie-ipc", &machine("7x-rtx-pro-6000-turin-direct"), 7).contains("[2, 4, 8] ranks"));
    assert!(refusal("driver-direct-p2p", &server, 8).contains("nothing to switch"));
    let mut by_driver = server.clone();
    by_driver.peer_access = PeerAccess::DriverStaged;
    assert_eq!(refusal("driver-direct-p2p", &by_driver, 8), "");
    assert!(refusal("one-shot-pull", &by_driver, 8).contains("ForceP2P"));
    let mut old = server.clone();
    old.versions.flashinfer = Some("0.6.14".to_owned());
    assert!(refusal("flashinfer-pcie-ipc", &old, 8).contains("FlashInfer 0.6.14"));
}

/// The engine's own gate is no refusal: the strategy can be had by a patch, and
/// whoever is told of it must be told that the engine leaves it aside.
#[test]
fn what_engines_decline_in_silence_is_said() {
    let (pcie, nvlink) = (machine("8x-rtx-pro-6000-server"), machine("8x-h200"));
    let one_shot = find("one-shot-push");
    let notes = one_shot.notes(&Context::new(&pcie, 8));
    assert!(notes.iter().any(|note| note.contains("vLLM's and SGLang's custom all-reduce switches itself off")), "{notes:?}");
    assert!(one_shot.notes(&Context::new(&pcie, 2)).is_empty());
    assert!(one_shot.notes(&Context::new(&nvlink, 8)).is_empty());
}

#[test]
fn islands_are_found_below_switches_and_sockets() {
    let shape = |id: &str, ranks: usize| {
        let machine = machine(id);
        Context::new(&machine, ranks).islands().map(|islands| (islands.count(), islands.size()))
    };
    assert_eq!(shape("2x4-a800-islands", 8), Some((2, 4)));
    assert_eq!(shape("16x-rtx-pro-6000-switchtec4", 16), Some((4, 4)));
    assert_eq!(shape("8x-rtx-pro-6000-server", 8), Some((2, 4)));
    assert_eq!(shape("8x-rtx-pro-6000-server", 4), None);
    // One chip, one socket, two virtual switches that meet in the processor.
    assert_eq!(shape("4x-rtx-pro-6000-one-chip", 4), Some((2, 2)));
    assert_eq!(shape("8x-rtx-pro-6000-server", 7), None);
    // Ranks that share a GPU are dealt to halves so that kernels can be measured.
    assert_eq!(shape("h200-shared", 8), Some((2, 4)));
}

/// Physics, not figures: fewer bytes over the boundary, fewer hops, host memory
/// against peers, kernels that a graph has to start.
#[test]
fn times_follow_the_mechanism() {
    let islands = machine("2x4-a800-islands");
    let large = 1 << 20;
    let (tree, flat) = (time_us(&islands, "hierarchical", 8, large), time_us(&islands, "one-shot-push", 8, large));
    assert!(tree < flat, "islands {tree} us, one-shot {flat} us: a quarter of the bytes against sixteen messages over the boundary");
    let chip = machine("4x-rtx-pro-6000-one-chip");
    let (one, two) = (time_us(&chip, "one-shot-push", 4, 2048), time_us(&chip, "two-shot-push", 4, 2048));
    assert!(one < two, "small messages: one hop {one} us, two hops {two} us");
    let (peers, host) = (time_us(&chip, "two-shot-push", 4, 43_008), time_us(&chip, "host-staged", 4, 43_008));
    assert!(peers < host, "peers {peers} us, host memory {host} us");
    let copies = time_us(&chip, "copy-engine-ring", 4, 43_008);
    assert!(copies > 3.0 * peers, "copy engines {copies} us for six copies one after another");
    let (full, half) = (time_us(&chip, "two-shot", 4, 2 << 20), time_us(&chip, "compressed-fp8", 4, 2 << 20));
    assert!(half < full, "2 MiB: 16 bits {full} us, 8 bits {half} us");
    let server = machine("8x-rtx-pro-6000-turin-direct");
    let (fallen, healthy) = (time_us(&server, "nccl-default", 8, 43_008), time_us(&server, "nccl-graph-file", 8, 43_008));
    assert!(healthy < fallen, "with a graph {healthy} us, fallen back {fallen} us");
}

/// MSCCL++ and FlashInfer put on the wire what their protocols say.
#[test]
fn lowerings_use_their_protocols() {
    let machine = machine("8x-rtx-pro-6000-turin-direct");
    let context = Context::new(&machine, 8);
    let protocols = |id: &str, bytes: u64| {
        let strategy = find(id);
        let lowering = (strategy.lower)(&context, strategy, Logical::AllReduce, bytes).expect("lowers");
        let mut used: Vec<Protocol> = lowering.schedule.connections.iter().map(|connection| connection.protocol).collect();
        used.sort_unstable();
        used.dedup();
        used
    };
    assert_eq!(protocols("mscclpp-allpair", 14_336), [Protocol::Packet8]);
    assert_eq!(protocols("mscclpp-packet", 43_008), [Protocol::Packet]);
    assert_eq!(protocols("flashinfer-pcie-ipc", 14_336), [Protocol::Sentinel]);
    assert_eq!(protocols("flashinfer-pcie-ipc", 43_008), [Protocol::Simple, Protocol::Flag]);
    assert_eq!(protocols("nccl-default", 43_008), [Protocol::Simple]);
    assert_eq!(protocols("nccl-graph-file", 43_008), [Protocol::Ll]);
}

#[test]
fn the_page_is_fresh() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/strategies.md");
    let fresh = page::page();
    if std::env::var_os("LANECAST_BLESS").is_some() {
        std::fs::write(path, &fresh).expect("writable");
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(written == fresh, "docs/strategies.md is stale: LANECAST_BLESS=1 cargo test --test strategies");
}
