//! Without a GPU every entry of the module says so in one line; with one, the
//! kernels are checked on it.
#![cfg(feature = "gpu")]

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
    })
}

#[test]
fn requests_survive_the_way_to_a_worker() {
    for request in [Request::Detect, check_request(), Request::Micro { ordinal: 0, skew_ranks: vec![2, 8] }, Request::Stop { ranks: 2 }] {
        let line = serde_json::to_string(&request).expect("written");
        assert!(!line.contains('\n'));
        let back: Request = serde_json::from_str(&line).expect("read");
        assert_eq!(serde_json::to_string(&back).expect("written again"), line);
    }
}

#[test]
fn without_a_gpu_each_request_is_one_clear_fault() {
    if device::driver_present() && device::count().is_ok() {
        eprintln!("SKIPPED: this machine has a GPU");
        return;
    }
    for request in [Request::Detect, check_request(), Request::Micro { ordinal: 0, skew_ranks: Vec::new() }, Request::Stop { ranks: 2 }] {
        let mut told = Vec::new();
        let fault = answer::answer(&request, &mut |a| told.push(a)).expect_err("there is no GPU");
        assert_eq!(fault.code, "gpu-none");
        assert!(fault.help.is_some());
        assert!(told.is_empty());
    }
}

#[test]
fn with_a_gpu_all_kernels_are_right() {
    if !device::driver_present() || device::count().is_err() {
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
