//! Machines of detected trees, proved and unproved peers, and measurements.

use super::*;
use crate::gpu::detect::Cpu;
use crate::gpu::detect::Gpu;
use crate::gpu::detect::Peer;
use crate::gpu::pci::Redirection;

fn gpu(ordinal: usize, address: &str) -> Gpu {
    Gpu {
        ordinal,
        name: "NVIDIA Example 9000".to_owned(),
        pci_address: address.to_owned(),
        compute_capability: (12, 0),
        multiprocessors: 100,
        memory_bytes: 1 << 35,
        l2_bytes: 1 << 26,
        memory_bus_bits: 512,
        memory_clock_khz: 14_000_000,
        clock_khz: 2_000_000,
        clock_now_mhz: None,
        link: None,
        power_limit_w: None,
        copy_engines: 2,
        host_proved: true,
    }
}

fn bridge(address: &str, parent: Option<&str>, class: &str) -> PciNode {
    PciNode {
        address: address.to_owned(),
        parent: parent.map(str::to_owned),
        root: "pci0000:40".to_owned(),
        class: class.to_owned(),
        id: "0x1000:0xc030".to_owned(),
        speed_now_gts: Some(2.5),
        speed_max_gts: Some(32.0),
        width_now: Some(16),
        width_max: Some(16),
        numa: Some(1),
    }
}

fn detected(proved: bool) -> Detected {
    let peer = |from, to| Peer { from, to, claimed: true, write_proved: proved, read_proved: true, atomics: false, performance_rank: 0 };
    Detected {
        driver: "580.1".to_owned(),
        cuda: "13.0".to_owned(),
        nvrtc: None,
        nccl: None,
        kernel: String::new(),
        cpus: vec![Cpu { socket: 1, vendor: "AuthenticAMD".to_owned(), family: 26, model: 2, name: String::new() }],
        gpus: vec![gpu(0, "0000:43:00.0"), gpu(1, "0000:44:00.0")],
        peers: vec![peer(0, 1), peer(1, 0)],
        pci: vec![
            bridge("0000:40:01.1", None, "0x060400"),
            bridge("0000:41:00.0", Some("0000:40:01.1"), "0x060400"),
            bridge("0000:42:01.0", Some("0000:41:00.0"), "0x060400"),
            bridge("0000:43:00.0", Some("0000:42:01.0"), "0x030200"),
            bridge("0000:42:02.0", Some("0000:41:00.0"), "0x060400"),
            bridge("0000:44:00.0", Some("0000:42:02.0"), "0x030200"),
        ],
        redirection: Redirection::default(),
        driver_options: Vec::new(),
        notes: Vec::new(),
    }
}

#[test]
fn upstream_and_downstream_ports_are_one_switch() {
    let machine = machine(&detected(true), &[], &[], "found", 1).expect("a machine");
    let switches = machine.nodes.iter().filter(|n| matches!(n.kind, NodeKind::Switch { .. })).count();
    assert_eq!((machine.nodes.len(), switches, machine.gpus.len()), (5, 1, 2));
    assert_eq!(machine.peer_access, PeerAccess::Direct);
    // Two GPUs below one switch.
    assert_eq!(machine.smi_label(0, 1).as_deref(), Some("PIX"));
    assert_eq!(machine.links.iter().filter(|l| l.medium == Medium::Pcie && l.generation == 5 && l.width == 16).count(), 3);
}

#[test]
fn measurements_take_the_place_of_assumptions_and_wrong_data_is_told() {
    let flow = |flows: &str, rate| Flow {
        machine: String::new(),
        access: "copy".into(),
        flows: flows.into(),
        total_gbps: rate,
        source: String::new(),
    };
    let micro = [Micro { name: "fence_sys_ns".into(), value: 548.0, low: 547.0, high: 549.0 }];
    let machine = machine(&detected(false), &micro, &[flow("0>h", 54.6), flow("h>0", 54.5)], "found", 1).expect("a machine");
    assert_eq!(machine.peer_access, PeerAccess::HostStaged);
    assert!(machine.notes.iter().any(|n| n.contains("GPU 0 to GPU 1")));
    let first = machine.links.iter().find(|l| l.a == machine.gpus[0]).expect("its link");
    assert_eq!((first.forward_gbps.value, first.backward_gbps.value), (54.6, 54.5));
    assert_eq!(machine.kinds.values().next().map(|k| k.protocol.fence_ns.value), Some(548.0));
}

#[test]
fn the_start_skew_of_the_most_ranks_is_the_machine_s() {
    let skew = |name: &str, value| Micro { name: name.into(), value, low: -3.0, high: 2061.4 };
    let micro = [
        skew("start_skew_after_allreduce_r8_ns", 1733.2),
        skew("start_skew_after_allreduce_r4_ns", 394.0),
        skew("start_skew_first_r8_ns", 6753.0),
    ];
    let machine = machine(&detected(true), &micro, &[], "found", 4).expect("a machine");
    let late = machine.kinds.values().next().map(|k| k.protocol.branch_skew_ns.clone()).expect("a kind");
    assert_eq!((late.low, late.value, late.high), (0.0, 1733.0, 2061.0));
    assert!(late.source.contains("8 ranks"));
}
