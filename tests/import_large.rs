//! Large traces are read in little memory. The input is made while it is
//! read; speed is printed, not asserted (docs/performance.md has figures).
//!
//! The tests of this file run one at a time, so that peaks do not add up:
//! those at full size are ignored, and `-- --ignored` runs them alone.

#[path = "../examples/made/mod.rs"]
mod made;

use std::io::BufReader;

use lanecast::import::kineto;
use lanecast::import::nsys_csv;
use lanecast::import::outcome::Outcome;
use made::Made;

/// Of 200 MB at most this much may be used at once.
const MEMORY_KIB: u64 = 100 << 10;

/// Largest memory of this process so far.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?.trim().trim_end_matches(" kB").parse().ok()
}

fn check(what: &str, bytes: u64, read: impl FnOnce(u64) -> Outcome) {
    let started = std::time::Instant::now();
    let mut trace = read(bytes).trace.expect("a trace");
    let seconds = started.elapsed().as_secs_f64();
    trace.finish();
    let mut records = 0u64;
    let events = trace.events.len();
    trace
        .for_each(None, &mut |_| {
            records += 1;
            Ok(())
        })
        .expect("a short span");
    assert_eq!(records, events as u64);
    println!("{what}: {events} events, {:.0} MB/s, peak {:?} KiB", bytes as f64 / 1e6 / seconds, peak_kib());
    if let Some(peak) = peak_kib() {
        assert!(peak < MEMORY_KIB, "{what}: {peak} KiB");
    }
}

fn both(bytes: u64) {
    check("Kineto JSON", bytes, |bytes| kineto::read("made", Made::kineto(bytes)).expect("reads"));
    check("nsys CSV", bytes, |bytes| nsys_csv::read("made", BufReader::new(Made::nsys(bytes))).expect("reads"));
}

#[test]
fn large_traces_take_little_memory() {
    both(20_000_000);
}

/// As above at full size: `cargo test --release --test import_large -- --ignored --nocapture`.
#[test]
#[ignore = "200 MB of each"]
fn two_hundred_megabytes_take_at_most_a_hundred() {
    both(200_000_000);
}
