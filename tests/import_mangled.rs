//! No input makes a reader panic or hang: whatever is cut, replaced or
//! doubled, there is an outcome or a fault.

use std::io::Write;

use lanecast::import::ForeignKind;
use lanecast::import::read_bytes;
use lanecast::import::read_path;
use proptest::prelude::*;

/// One small file of each kind that is read from bytes.
const SAMPLES: &[(ForeignKind, &str)] = &[
    (ForeignKind::TopoMatrix, "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tPIX\t0-3\t0\nGPU1\tPIX\tX\t0-3\t0\n"),
    (
        ForeignKind::Lspci,
        "00:01.1 PCI bridge: AMD x\n\tBus: primary=00, secondary=01, subordinate=04\n\tCapabilities: [58] Express (v2) Root Port\n01:00.0 VGA compatible controller: NVIDIA Corporation GB202\n\t\tLnkSta:\tSpeed 32GT/s, Width x16\n\t\tACSCtl:\tSrcValid- ReqRedir+\n",
    ),
    (
        ForeignKind::NcclTopology,
        "<system version=\"1\"><cpu numaid=\"0\" vendor=\"AuthenticAMD\"><pci busid=\"0000:01:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"0\"/></pci></cpu></system>",
    ),
    (
        ForeignKind::NcclGraph,
        "<graphs version=\"1\"><graph id=\"0\" pattern=\"4\" nchannels=\"1\" speedintra=\"24\"><channel><gpu dev=\"0\"/></channel></graph></graphs>",
    ),
    (
        ForeignKind::P2pTest,
        "Unidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n   D\\D     0      1\n     0 1488.10  56.57\n     1  56.57 1416.77\n",
    ),
    (
        ForeignKind::NvbandwidthJson,
        "{\"nvbandwidth\":{\"testcases\":[{\"name\":\"device_to_device_memcpy_write_ce\",\"bandwidth_matrix\":[[\"N/A\",\"5.1\"],[\"5.2\",\"N/A\"]]}]}}",
    ),
    (
        ForeignKind::NvbandwidthText,
        "nvbandwidth Version: v0.8\nRunning device_to_device_memcpy_read_ce.\nmemcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)\n  0 1\n 0 N/A 40.0\n 1 41.0 N/A\n",
    ),
    (ForeignKind::P2pmark, "PCIe LINK SCORE: 0.86\n(54.30 GB/s avg / 63.0 GB/s theoretical)\n"),
    (ForeignKind::KernelCmdline, "BOOT_IMAGE=/vmlinuz root=x iommu=pt"),
    (ForeignKind::DriverParams, "RegistryDwords: \"ForceP2P=0x11\"\n"),
    (
        ForeignKind::NcclTestsText,
        "# nThread 1 nGpus 2\n#  Rank  0 Group  0 Pid 1 on x\n#  Rank  1 Group  0 Pid 1 on x\n 43008 21504 bfloat16 sum -1 29.51 1.46 1.46 0 28.70 1.50 1.50 0\n",
    ),
    (
        ForeignKind::NcclTestsJson,
        "{\"args\":[\"all_reduce_perf\"],\"env\":[\"A=b\"],\"nccl_version\":22902,\"config\":{\"nthreads\":1,\"ngpus\":2},\"results\":[{\"size\":43008,\"type\":\"half\",\"out_of_place\":{\"time\":29.5}}]}",
    ),
    (
        ForeignKind::RcclTestsJson,
        "{\"algBw\":1.4,\"busBw\":2.5,\"gpus\":8,\"inPlace\":1,\"name\":\"AllReduce\",\"size\":43008,\"time\":29.5,\"type\":\"bfloat16\"}\n",
    ),
    (
        ForeignKind::Inspector,
        "{\"header\":{\"n_ranks\":8},\"metadata\":{},\"coll_perf\":{\"coll\":\"AllReduce\",\"coll_msg_size_bytes\":43008,\"coll_exec_time_us\":30}}\n",
    ),
    (
        ForeignKind::NcclLog,
        "x [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\nx [0] NCCL INFO AllReduce: 43008 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}\nx NCCL INFO Pattern 4, crossNic 0, nChannels 2, bw 24.0/24.0, type PHB/PIX\n",
    ),
    (ForeignKind::Crossover, "crossover world_size=4\nsize 8 KB: custom 6.4 us, nccl 13.9 us\n"),
    (ForeignKind::AiConfigurator, "framework,version,nccl_dtype,num_gpus,message_size,latency\nNCCL,2.29,half,2,256,0.00634\n"),
    (
        ForeignKind::Kineto,
        "{\"traceEvents\":[{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"ts\":1.5,\"dur\":2,\"args\":{\"stream\":7,\"device\":0,\"correlation\":3,\"In msg nelems\":5,\"dtype\":\"Half\"}}]}",
    ),
    (
        ForeignKind::NsysTrace,
        "Start (ns),Duration (ns),CorrId,Bytes (MB),Device,Strm,Name\n1000,2500,7,,X (1),7,\"void k<a, b>()\"\n2000,100,8,0.004,X (1),7,[CUDA memcpy]\n",
    ),
    (
        ForeignKind::NsysSummary,
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),Name\n70.0,7000,7,1000,990,900,1200,k\n",
    ),
    (
        ForeignKind::Serving,
        "{\"num_prompts\":8,\"completed\":8,\"total_output_tokens\":80,\"output_throughput\":107.0,\"mean_itl_ms\":20.1,\"mean_tpot_ms\":9,\"spec_decode_acceptance_length\":2.1,\"spec_decode_per_position_acceptance_rates\":[0.7]}",
    ),
];

/// What readers must survive, put in the place of a number or anywhere else.
const NASTY: &[&str] = &[
    "-1",
    "99999999999999999999999",
    "1e308",
    "-1e308",
    "NaN",
    "nan",
    "inf",
    "-0",
    "0",
    "0x",
    "\0",
    "\"",
    "\"\"",
    "\\",
    "\\u",
    "<",
    "&a;",
    "{",
    "[",
    "}",
    "]",
    ",",
    "\u{feff}",
    "\u{1b}[",
    "é",
    "\r",
    "\n\n",
    "# ",
    "9223372036854775807",
    "18446744073709551615",
    "4294967296",
    "1.7976931348623157e309",
];

fn survives(kind: ForeignKind, bytes: &[u8]) {
    // What counts is that both return; the outcome is checked where it is made.
    let _ = read_bytes("mangled", bytes, Some(kind));
    let _ = read_bytes("mangled", bytes, None);
}

/// An outcome's trace can be written too, or refused.
fn finishes(kind: ForeignKind, bytes: &[u8]) {
    if let Ok(outcome) = read_bytes("mangled", bytes, Some(kind)) {
        if let Some(mut trace) = outcome.trace {
            trace.finish();
            let _ = trace.records(None);
        }
        let _ = lanecast::import::machine::machine(&outcome.facts, &lanecast::import::machine::Wish::default());
    }
}

#[test]
fn every_sample_is_read_and_recognised() {
    for (kind, text) in SAMPLES {
        read_bytes("sample", text.as_bytes(), Some(*kind)).unwrap_or_else(|fault| panic!("{}: {fault}", kind.name()));
        read_bytes("sample", text.as_bytes(), None).unwrap_or_else(|fault| panic!("{} is not recognised: {fault}", kind.name()));
    }
    let covered = SAMPLES.len() + 2; // a folder (sysfs) and SQLite have tests of their own
    assert_eq!(covered, ForeignKind::ALL.len());
}

#[test]
fn every_cut_is_survived() {
    for (kind, text) in SAMPLES {
        for cut in 0..text.len() {
            survives(*kind, &text.as_bytes()[..cut]);
        }
    }
}

#[test]
fn every_number_may_be_anything() {
    for (kind, text) in SAMPLES {
        let bytes = text.as_bytes();
        for start in 0..bytes.len() {
            if !bytes[start].is_ascii_digit() || (start > 0 && bytes[start - 1].is_ascii_digit()) {
                continue;
            }
            let end = (start..bytes.len()).find(|&i| !bytes[i].is_ascii_digit() && bytes[i] != b'.').unwrap_or(bytes.len());
            for nasty in NASTY {
                let mangled = [&bytes[..start], nasty.as_bytes(), &bytes[end..]].concat();
                survives(*kind, &mangled);
                finishes(*kind, &mangled);
            }
        }
    }
}

#[test]
fn foreign_encodings_are_refused() {
    for (kind, text) in SAMPLES {
        let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        for bytes in [utf16.clone(), [&b"\xff\xfe"[..], &utf16].concat(), [&b"\xfe\xff\0"[..], &utf16].concat()] {
            let fault = read_bytes("utf16", &bytes, Some(*kind)).map(|_| ()).expect_err(kind.name());
            assert_eq!(fault.code, "not-utf8", "{}", kind.name());
        }
    }
}

#[test]
fn every_kind_refuses_every_other() {
    for (kind, _) in SAMPLES {
        for (other, text) in SAMPLES {
            if kind != other {
                survives(*kind, text.as_bytes());
            }
        }
    }
}

#[test]
fn deep_and_long_inputs_end() {
    let deep = [
        "{\"a\":".repeat(200_000),
        "[".repeat(200_000),
        "{\"traceEvents\":[".repeat(50_000),
        "<a>".repeat(200_000),
        "<system version=\"1\"><cpu>".to_owned() + &"<pci busid=\"1:1.0\">".repeat(5_000),
    ];
    let long = [
        "x".repeat(8 << 20),
        "GPU0 ".repeat(1 << 20),
        "1,".repeat(4 << 20),
        format!("{{\"traceEvents\":[{{\"name\":\"{}\"}}]}}", "y".repeat(8 << 20)),
    ];
    for text in deep.iter().chain(&long) {
        for (kind, _) in SAMPLES {
            let _ = read_bytes("large", text.as_bytes(), Some(*kind));
        }
        let _ = read_bytes("large", text.as_bytes(), None);
    }
}

#[test]
fn bombs_are_refused_by_every_kind() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..96 {
        encoder.write_all(&vec![b' '; 1 << 20]).expect("memory");
    }
    let bomb = encoder.finish().expect("memory");
    for (kind, _) in SAMPLES {
        assert!(read_bytes("bomb.gz", &bomb, Some(*kind)).is_err(), "{}", kind.name());
    }
}

#[test]
fn missing_and_odd_paths_are_faults() {
    let folder = tempfile::tempdir().expect("a folder");
    assert!(read_path(&folder.path().join("none"), None).is_err());
    assert!(read_path(folder.path(), Some(ForeignKind::Kineto)).is_err());
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "").expect("writes");
    for (kind, _) in SAMPLES {
        assert!(read_path(&empty, Some(*kind)).is_err(), "{}", kind.name());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn mangled_bytes_are_survived(which in 0..SAMPLES.len(), edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), nasty in 0..NASTY.len(), at: prop::sample::Index) {
        let (kind, text) = SAMPLES[which];
        let mut bytes = text.as_bytes().to_vec();
        for (place, byte) in edits {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        survives(kind, &bytes);
        let at = at.index(bytes.len());
        bytes.splice(at..at, NASTY[nasty].bytes());
        survives(kind, &bytes);
        finishes(kind, &bytes);
    }

    #[test]
    fn spliced_files_are_survived(a in 0..SAMPLES.len(), b in 0..SAMPLES.len(), cut: prop::sample::Index, from: prop::sample::Index) {
        let (kind, first) = SAMPLES[a];
        let second = SAMPLES[b].1.as_bytes();
        let bytes = [&first.as_bytes()[..cut.index(first.len())], &second[from.index(second.len())..]].concat();
        survives(kind, &bytes);
    }

    #[test]
    fn any_bytes_are_survived(bytes: Vec<u8>, which in 0..SAMPLES.len()) {
        survives(SAMPLES[which].0, &bytes);
    }
}
