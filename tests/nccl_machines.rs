//! What NCCL makes of whole machines: graphs, channels, transports, choices, logs and graph files.

use std::collections::BTreeMap;

use lanecast::knob::Quantity;
use lanecast::machine::ChipConstants;
use lanecast::machine::CpuVendor;
use lanecast::machine::FabricConstants;
use lanecast::machine::GpuKind;
use lanecast::machine::KernelConstants;
use lanecast::machine::LaunchConstants;
use lanecast::machine::Link;
use lanecast::machine::Machine;
use lanecast::machine::Medium;
use lanecast::machine::Node;
use lanecast::machine::NodeId;
use lanecast::machine::NodeKind;
use lanecast::machine::PeerAccess;
use lanecast::machine::ProtocolConstants;
use lanecast::machine::Versions;
use lanecast::nccl::Collective;
use lanecast::nccl::Communicator;
use lanecast::nccl::Environment;
use lanecast::nccl::Force;
use lanecast::nccl::Origin;
use lanecast::nccl::PathType;
use lanecast::nccl::Placement;
use lanecast::nccl::Protocol;
use lanecast::nccl::Setup;
use lanecast::nccl::Transport;
use lanecast::nccl::Version;
use lanecast::nccl::explain;
use lanecast::nccl::graph_file;
use lanecast::nccl::log;

/// `sockets` processors of a kind with `gpus` GPUs each, behind a switch for each `behind` GPUs (0: none).
struct Shape {
    vendor: CpuVendor,
    family: u32,
    model: u32,
    sockets: u32,
    gpus: u32,
    behind: u32,
    capability: (u32, u32),
    generation: u32,
}

const ONE_ROOT: Shape =
    Shape { vendor: CpuVendor::Amd, family: 0x1A, model: 2, sockets: 1, gpus: 8, behind: 0, capability: (12, 0), generation: 5 };
const TURIN: Shape = Shape { sockets: 2, gpus: 4, ..ONE_ROOT };

fn link(a: usize, b: usize, medium: Medium, generation: u32) -> Link {
    let number = |value| Quantity::exact(value, "test");
    Link {
        a: NodeId(a),
        b: NodeId(b),
        medium,
        class: "test".to_owned(),
        forward_gbps: number(50.0),
        backward_gbps: number(50.0),
        latency_ns: number(100.0),
        read_factor: number(1.0),
        generation,
        width: if generation > 0 { 16 } else { 0 },
    }
}

fn machine(shape: &Shape) -> Machine {
    let mut nodes = Vec::new();
    let mut links = Vec::new();
    let mut gpus = Vec::new();
    let mut sockets = Vec::new();
    for numa in 0..shape.sockets {
        let kind = NodeKind::Socket { numa, vendor: shape.vendor, family: shape.family, model: shape.model };
        nodes.push(Node { id: format!("socket{numa}"), kind });
        let socket = nodes.len() - 1;
        sockets.push(socket);
        let mut switch = 0;
        for gpu in 0..shape.gpus {
            if shape.behind == 0 || gpu % shape.behind == 0 {
                nodes.push(Node { id: format!("root{}", nodes.len()), kind: NodeKind::RootPort });
                let root = nodes.len() - 1;
                links.push(link(root, socket, Medium::Internal, 0));
                switch = root;
                if shape.behind > 0 {
                    nodes.push(Node { id: format!("switch{}", nodes.len()), kind: NodeKind::Switch { chip: None } });
                    switch = nodes.len() - 1;
                    links.push(link(switch, root, Medium::Pcie, shape.generation));
                }
            }
            nodes.push(Node { id: format!("gpu{}", gpus.len()), kind: NodeKind::Gpu { kind: "gpu".to_owned() } });
            let node = nodes.len() - 1;
            gpus.push(NodeId(node));
            links.push(link(node, switch, Medium::Pcie, shape.generation));
        }
    }
    if let [a, b] = sockets[..] {
        links.push(link(a, b, Medium::SocketFabric, 0));
    }
    let kind = GpuKind {
        name: "test".to_owned(),
        compute_capability: shape.capability,
        sms: 188,
        memory_bytes: 96 << 30,
        l2_bytes: 128 << 20,
        chip: ChipConstants::default(),
        launch: LaunchConstants::default(),
        kernels: KernelConstants::default(),
        protocol: ProtocolConstants::default(),
    };
    Machine {
        id: "test".to_owned(),
        name: "test".to_owned(),
        notes: Vec::new(),
        versions: Versions::default(),
        peer_access: PeerAccess::Direct,
        redirects_peers: false,
        ranks_per_gpu: 1,
        kinds: BTreeMap::from([("gpu".to_owned(), kind)]),
        nodes,
        links,
        gpus,
        fabric: FabricConstants::default(),
        collapses: Vec::new(),
    }
}

fn variables(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn made(machine: &Machine, devices: &[u32], version: Version, list: &[(&str, &str)]) -> lanecast::error::Result<Communicator> {
    let environment = Environment::parse(&variables(list), version)?;
    let placement = Placement::ProcessPerRank;
    Communicator::new(&Setup { machine, devices, version, environment: &environment, placement, graph_file: None })
}

fn all(shape: &Shape, minor: u32, patch: u32, list: &[(&str, &str)]) -> Communicator {
    let devices: Vec<u32> = (0..shape.sockets * shape.gpus).collect();
    made(&machine(shape), &devices, Version::new(2, minor, patch), list).expect("a communicator")
}

fn found(communicator: &Communicator) -> (u32, f64, PathType, u32) {
    let ring = &communicator.ring;
    (communicator.graph_channels, ring.channel_gbps, ring.type_intra, communicator.channels_under(&Force::default()))
}

#[test]
fn typical_machines_get_their_channels() {
    // Gen5 x16 is 48 GB/s. 1 x 45 is found first, then 2 x 24, which uses the link whole; not doubled below 25.
    assert_eq!(found(&all(&ONE_ROOT, 30, 7, &[])), (2, 24.0, PathType::Phb, 4));
    // Intel's 6/5: 48 / 1.2 = 40, doubled to 2 x 20.
    let intel = Shape { vendor: CpuVendor::Intel, family: 6, model: 0x8F, ..ONE_ROOT };
    assert_eq!(found(&all(&intel, 30, 7, &[])), (2, 20.0, PathType::Phb, 4));
    // Four GPUs behind each of two switches of one root: between switches the ring crosses the processor.
    let switched = Shape { behind: 4, ..ONE_ROOT };
    assert_eq!(found(&all(&switched, 30, 7, &[])), (2, 24.0, PathType::Phb, 4));
    // Gen4 x16 is 24 GB/s on Ampere's ladder: 1 x 20, then 2 x 12 uses the link whole.
    let gen4 = Shape { capability: (8, 0), generation: 4, ..ONE_ROOT };
    assert_eq!(found(&all(&gen4, 30, 7, &[])), (2, 12.0, PathType::Phb, 4));
}

#[test]
fn dual_socket_amd_with_blackwell_falls_back_before_2_31() {
    let before = all(&TURIN, 30, 7, &[]);
    assert_eq!(before.ring.origin, Origin::Fallback);
    assert_eq!(found(&before), (1, 0.1, PathType::Sys, 2));
    assert!(before.warnings.iter().any(|warning| warning == "Could not find a path for pattern 4, falling back to simple order"));
    let choice = before.choose(Collective::AllReduce, 4096, &Force::default()).expect("a choice");
    assert_eq!(choice.protocol, Protocol::Simple);
    // 2.31 takes Zen 5 for 32 GB/s: 1 x 30, doubled to 2 x 15.
    let after = all(&TURIN, 31, 0, &[]);
    assert_eq!((after.ring.count(), after.ring.channel_gbps, after.ring.type_intra), (2, 15.0, PathType::Sys));
    // The tree must have as many channels as the ring, and two of 18, the slowest step, exceed 32: it falls
    // back to one channel, and the ring is cut to as many.
    assert_eq!((after.tree.origin, found(&after)), (Origin::Fallback, (1, 15.0, PathType::Sys, 2)));
    assert_eq!(after.choose(Collective::AllReduce, 4096, &Force::default()).expect("a choice").protocol, Protocol::Ll);
    // Hopper's ladder goes down to 3, so that the same server with H100s has a graph: 15 of 16 GB/s.
    let hopper = all(&Shape { capability: (9, 0), ..TURIN }, 30, 7, &[]);
    assert_eq!((hopper.ring.origin, hopper.ring.type_intra), (Origin::Search, PathType::Sys));
    assert!(hopper.ring.total_gbps() <= 16.0 && hopper.ring.total_gbps() >= 15.0);
}

#[test]
fn choices_on_a_healthy_machine_by_size() {
    let communicator = all(&ONE_ROOT, 30, 7, &[]);
    for shift in 8..=24 {
        let choice = communicator.choose(Collective::AllReduce, 1 << shift, &Force::default()).expect("a choice");
        // Ring LL 20.6 + b / 13.71 against Ring Simple 88.2 + b / 27.43: they meet at 1.85 MB.
        let expected = if shift <= 20 { Protocol::Ll } else { Protocol::Simple };
        assert_eq!(choice.protocol, expected, "{} B", 1 << shift);
    }
}

#[test]
fn transports_and_their_reasons() {
    let kinds = |communicator: &Communicator| {
        let mut list: Vec<Transport> = communicator.connections.iter().map(|connection| connection.transport).collect();
        list.sort_unstable();
        list.dedup();
        list
    };
    assert_eq!(kinds(&all(&ONE_ROOT, 30, 7, &[])), [Transport::Shm]);
    assert_eq!(kinds(&all(&ONE_ROOT, 30, 7, &[("NCCL_P2P_LEVEL", "SYS")])), [Transport::P2pCumem]);
    let switched = Shape { behind: 4, ..ONE_ROOT };
    assert_eq!(kinds(&all(&switched, 22, 3, &[])), [Transport::P2pIpc, Transport::Shm]);
    assert_eq!(kinds(&all(&switched, 30, 7, &[("NCCL_P2P_DISABLE", "1")])), [Transport::Shm]);
    assert_eq!(kinds(&all(&switched, 30, 7, &[("NCCL_P2P_DISABLE", "1"), ("NCCL_SHM_DISABLE", "1")])), [Transport::Net]);
    // At most two GPUs on AMD: peer access whatever the distance.
    let two = made(&machine(&TURIN), &[0, 7], Version::new(2, 30, 7), &[]).expect("two");
    assert_eq!(kinds(&two), [Transport::P2pCumem]);
    let mut staged = machine(&switched);
    staged.peer_access = PeerAccess::HostStaged;
    let staged = made(&staged, &[0, 1], Version::new(2, 30, 7), &[("NCCL_P2P_LEVEL", "SYS")]).expect("two");
    assert_eq!(kinds(&staged), [Transport::Shm]);
}

#[test]
fn ranks_on_one_gpu() {
    let shape = Shape { vendor: CpuVendor::Intel, family: 6, model: 0x8F, sockets: 1, gpus: 1, capability: (9, 0), ..ONE_ROOT };
    let machine = machine(&shape);
    let devices = [0; 8];
    assert!(made(&machine, &devices, Version::new(2, 29, 7), &[("NCCL_MULTI_RANK_GPU_ENABLE", "1")]).is_err());
    assert!(made(&machine, &devices, Version::new(2, 31, 2), &[]).is_err());
    let list = [("NCCL_MULTI_RANK_GPU_ENABLE", "1"), ("NCCL_MAX_NCHANNELS", "4")];
    let communicator = made(&machine, &devices, Version::new(2, 31, 2), &list).expect("shared");
    assert_eq!(communicator.ring.type_intra, PathType::Loc);
    assert_eq!(communicator.channels_under(&Force::default()), 4);
    assert!(communicator.searched_channels > 32, "{}", communicator.searched_channels);
    assert!(communicator.ll128_by_default(lanecast::nccl::Algorithm::Ring));
    assert!(communicator.connections.iter().all(|connection| connection.transport == Transport::P2pCumem));
}

#[test]
fn rings_hold_every_rank_once() {
    for shape in [ONE_ROOT, TURIN, Shape { behind: 2, ..TURIN }, Shape { behind: 4, ..ONE_ROOT }] {
        for ranks in [2u32, 3, 4, 8] {
            let devices: Vec<u32> = (0..ranks).collect();
            let communicator = made(&machine(&shape), &devices, Version::new(2, 31, 0), &[]).expect("a communicator");
            for graph in [&communicator.ring, &communicator.tree] {
                for channel in &graph.channels {
                    let mut sorted = channel.clone();
                    sorted.sort_unstable();
                    assert_eq!(sorted, devices);
                }
            }
        }
    }
}

#[test]
fn graph_files_go_round_and_decide() {
    let communicator = all(&ONE_ROOT, 30, 7, &[]);
    let text = graph_file::write(&communicator).expect("text");
    let graphs = graph_file::read("graph.xml", &text, &communicator.devices).expect("graphs");
    let ring = graphs.ring.expect("ring");
    assert_eq!((ring.channels.clone(), ring.channel_gbps, ring.type_intra), (communicator.ring.channels.clone(), 24.0, PathType::Phb));
    // A file that says NVL switches the latency row and LL128 on.
    let hand_made = text.replace("typeintra=\"PHB\"", "typeintra=\"NVL\"");
    let environment = Environment::default();
    let devices: Vec<u32> = (0..8).collect();
    let setup = Setup {
        machine: &machine(&TURIN),
        devices: &devices,
        version: Version::new(2, 30, 7),
        environment: &environment,
        placement: Placement::ProcessPerRank,
        graph_file: Some(("graph.xml", &hand_made)),
    };
    let with_file = Communicator::new(&setup).expect("a communicator");
    assert_eq!(with_file.ring.origin, Origin::File);
    assert!(with_file.ll128_by_default(lanecast::nccl::Algorithm::Ring));
    // 6.6 + 14 * 0.6 + 43008 / 13714 = 18.1 µs.
    let choice = with_file.choose(Collective::AllReduce, 43_008, &Force::default()).expect("a choice");
    assert!((choice.estimated_us - 18.136).abs() < 0.01, "{}", choice.estimated_us);
    for bad in ["", "<graphs/>", "<graphs version=\"2\"></graphs>", &text.replace("dev=\"7\"", "dev=\"6\""), &text.replace("PHB", "ABC")] {
        assert_eq!(graph_file::read("graph.xml", bad, &devices).expect_err(bad).code, "nccl-graph-file");
    }
}

#[test]
fn the_log_says_what_was_decided() {
    let lines = log::initialisation(&all(&Shape { behind: 4, ..ONE_ROOT }, 30, 7, &[]));
    for line in [
        "NCCL INFO Pattern 4, crossNic 0, nChannels 2, bw 24.000000/24.000000, type PHB/PIX, sameChannels 1",
        "NCCL INFO Channel 00/04 : 0 1 2 3 4 5 6 7",
        "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
        "NCCL INFO Channel 00/0 : 3[3] -> 4[4] via SHM/direct/direct",
        "NCCL INFO Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1 [2] 1/-1/-1->0->-1 [3] 1/-1/-1->0->-1",
        "NCCL INFO threadThresholds 8/8/64 | 64/8/64",
    ] {
        assert!(lines.iter().any(|found| found == line), "{line}\nnot in\n{}", lines.join("\n"));
    }
    let lines = log::tuning(&all(&ONE_ROOT, 30, 7, &[]), Collective::AllReduce, 43_008).expect("lines");
    assert!(lines.last().expect("a line").contains("Algo RING proto LL channel{Lo..Hi}={0..0}"), "{lines:?}");
}

#[test]
fn the_four_variables_explained() {
    let list = [("NCCL_MIN_NCHANNELS", "1"), ("NCCL_MAX_NCHANNELS", "2"), ("NCCL_BUFFSIZE", "131072"), ("NCCL_NTHREADS", "64")];
    let test_machine = machine(&ONE_ROOT);
    let devices: Vec<u32> = (0..8).collect();
    let version = Version::new(2, 30, 7);
    let rebuild = |map: &BTreeMap<String, String>| {
        let environment = Environment::parse(map, version)?;
        let placement = Placement::ProcessPerRank;
        Communicator::new(&Setup {
            machine: &test_machine,
            devices: &devices,
            version,
            environment: &environment,
            placement,
            graph_file: None,
        })
    };
    let effects = |bytes| explain::explain(&BTreeMap::new(), &list, Collective::AllReduce, bytes, &rebuild).expect("effects");
    let small = effects(43_008);
    assert_eq!(small.len(), 5);
    // One channel carries 43,008 B anyway: only the threads change what this message does.
    assert!(small[0].differences.is_empty(), "{:?}", small[0].differences);
    assert_eq!(small[1].differences, ["channels of the communicator: 4 -> 2"]);
    assert!(small[2].differences.is_empty(), "{:?}", small[2].differences);
    // With 64 threads a channel is filled by 4,096 B: all four carry the message, in blocks of 96 threads.
    assert_eq!((small[3].after.channels, small[3].after.threads), (4, 96));
    assert_eq!((small[4].after.channels, small[4].after.threads), (2, 96));
    let large = effects(64 << 20);
    assert_eq!((large[1].before.channels, large[1].after.channels), (4, 2));
    assert_eq!((large[2].before.chunk_bytes, large[2].after.chunk_bytes), (2 << 20, 64 << 10));
    assert_eq!((large[3].before.threads, large[3].after.threads), (544, 96));
}
