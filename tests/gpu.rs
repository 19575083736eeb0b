//! Without a GPU every entry of the module says so in one line; with one, the
//! kernels are checked on it.
#![cfg(feature = "gpu")]

use std::io::Write;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use lanecast::gpu;
use lanecast::gpu::answer;
use lanecast::gpu::answer::Answer;
use lanecast::gpu::answer::Request;
use lanecast::gpu::check::CheckOptions;
use lanecast::gpu::device;
use lanecast::gpu::element::Element;

fn check_request() -> Request {
    Request::Check(CheckOptions {
        ranks: vec![2, 3],
        devices: usize::MAX,
        elements: vec![Element::Bf16, Element::F16],
        sizes: vec![2, 42, 14_336],
        implementations: Vec::new(),
        soak_calls: 96,
        soak_sizes: vec![42],
        calls: 0,
        seed: 3,
        host_bytes_max: 1 << 16,
        timeout_ms: 2000,
    })
}

fn requests() -> Vec<Request> {
    vec![
        Request::Detect,
        check_request(),
        Request::Micro { ordinal: 0 },
        Request::Skew { ranks: vec![2, 8] },
        Request::Green { ranks: 8 },
        Request::Flows { machine: "m".to_owned() },
        Request::Stop { ranks: 2 },
    ]
}

fn has_gpu() -> bool {
    device::driver_present() && device::count().is_ok()
}

#[test]
fn requests_survive_the_way_to_a_worker() {
    for request in requests() {
        let line = serde_json::to_string(&request).expect("written");
        assert!(!line.contains('\n'));
        let back: Request = serde_json::from_str(&line).expect("read");
        assert_eq!(serde_json::to_string(&back).expect("written again"), line);
    }
}

#[test]
fn without_a_gpu_each_request_is_one_clear_fault() {
    if has_gpu() {
        eprintln!("SKIPPED: this machine has a GPU");
        return;
    }
    for request in requests() {
        let mut told = Vec::new();
        let fault = answer::answer(&request, &mut |a| told.push(a)).expect_err("there is no GPU");
        assert_eq!(fault.code, "gpu-none");
        assert!(fault.help.is_some());
        assert!(told.is_empty());
    }
}

#[test]
fn with_a_gpu_all_kernels_are_right() {
    if !has_gpu() {
        eprintln!("SKIPPED: this machine has no GPU");
        return;
    }
    let mut rows = 0;
    answer::answer(&check_request(), &mut |a| {
        if let Answer::Check(row) = a {
            assert_eq!(row.wrong, 0, "{}", row.csv());
            rows += 1;
        }
    })
    .unwrap_or_else(|fault| panic!("{fault}"));
    assert!(rows > 100);
}

#[test]
fn with_a_gpu_a_rank_that_stops_is_reported_within_seconds() {
    if !has_gpu() {
        eprintln!("SKIPPED: this machine has no GPU");
        return;
    }
    for ranks in [2, 8] {
        let started = Instant::now();
        let fault = answer::answer(&Request::Stop { ranks }, &mut |_| ()).expect_err("a rank stopped");
        assert_eq!(fault.code, "gpu-stuck", "{fault}");
        assert!(fault.message.contains(&format!("waited for rank {}", ranks - 1)), "{fault}");
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    }
}

fn lanecast() -> Command {
    Command::new(env!("CARGO_BIN_EXE_lanecast"))
}

/// Whether it ended within ten seconds; ends it if not.
fn ends(mut child: Child) -> bool {
    for _ in 0..200 {
        if child.try_wait().expect("asked").is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

/// A Ctrl-C ends the parent; what it had open closes, and that ends its worker.
#[test]
fn a_worker_ends_with_its_parent() {
    let worker = || lanecast().arg(gpu::WORKER_COMMAND).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut idle = worker().expect("started");
    drop(idle.stdin.take());
    assert!(ends(idle), "a worker without a request");
    let mut asked = worker().expect("started");
    let line = serde_json::to_string(&Request::Check(match check_request() {
        Request::Check(options) => CheckOptions { soak_calls: 1 << 40, ..options },
        _ => unreachable!("made above"),
    }));
    writeln!(asked.stdin.as_mut().expect("piped"), "{}", line.expect("written")).expect("sent");
    drop(asked.stdin.take());
    assert!(ends(asked), "a worker with a request");
}

#[test]
fn what_a_worker_cannot_read_is_a_fault_of_its_own() {
    let mut worker = lanecast().arg(gpu::WORKER_COMMAND).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("started");
    // Kept open: its end would end the worker.
    let mut stdin = worker.stdin.take().expect("piped");
    writeln!(stdin, "{{\"Unknown\":1}}").expect("sent");
    let ran = worker.wait_with_output().expect("ended");
    assert_eq!(ran.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ran.stdout).contains("gpu-worker"));
}

/// NCCL looks for its tuner among the symbols that a program exports.
#[test]
fn the_program_exports_its_tuner() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_lanecast")).expect("readable");
    let table = dynamic_names(&program).expect("an ELF file with dynamic names");
    assert!(table.split(|b| *b == 0).any(|name| name == b"ncclTunerPlugin_v4"));
}

/// The section `.dynstr` of a 64-bit little-endian ELF file.
fn dynamic_names(file: &[u8]) -> Option<&[u8]> {
    const DYNAMIC_SYMBOLS: u32 = 11;
    let long = |at: usize| Some(u64::from_le_bytes(file.get(at..at + 8)?.try_into().ok()?) as usize);
    let word = |at: usize| Some(u32::from_le_bytes(file.get(at..at + 4)?.try_into().ok()?));
    let (sections, count) = (long(0x28)?, usize::from(u16::from_le_bytes(file.get(0x3c..0x3e)?.try_into().ok()?)));
    let symbols = (0..count).map(|i| sections + i * 64).find(|at| word(at + 4) == Some(DYNAMIC_SYMBOLS))?;
    let names = sections + word(symbols + 40)? as usize * 64;
    let from = long(names + 24)?;
    file.get(from..from + long(names + 32)?)
}

/// What `detect` found on the machine of the measurements.
fn detected() -> gpu::detect::Detected {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/h200-measured/detect.json")).expect("readable");
    let mut found: gpu::detect::Detected = serde_json::from_str(&text).expect("a machine");
    // The NCCL that came with it, 2.28.9, lets no ranks share a GPU, and forecasts say so.
    found.nccl = Some("2.31.2".to_owned());
    found
}

#[test]
fn a_machine_file_made_here_answers_questions() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("machine.toml");
    let machine = gpu::machine(&detected(), &[], &[], "found-here", 8).expect("a machine");
    std::fs::write(&path, machine.to_toml()).expect("written");
    let shared = ["--env", "NCCL_MULTI_RANK_GPU_ENABLE=1"];
    let ran = lanecast().args(["rank", "--format", "csv", "--machine"]).arg(&path).args(shared).output().expect("ran");
    assert_eq!(ran.status.code(), Some(0), "{}", String::from_utf8_lossy(&ran.stderr));
    let text = String::from_utf8(ran.stdout).expect("text");
    assert!(text.lines().any(|line| line.starts_with("nccl-few-channels,true,")), "{text}");
}
