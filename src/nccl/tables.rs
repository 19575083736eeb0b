//! The constants of NCCL's tuner and topology search, by version: `tuning.csv`, read once.
//!
//! Every value was read in NCCL's source [S]; a value holds from the version in
//! its row until a later row replaces it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::kinds::Algorithm;
use super::kinds::Protocol;
use super::version::Version;

/// The embedded file; see `NOTICE` for its origin and licence.
pub const TUNING_CSV: &str = include_str!("tuning.csv");

type Key = (String, String, String, String);

static TABLE: LazyLock<BTreeMap<Key, Vec<(Version, f64)>>> = LazyLock::new(|| read(TUNING_CSV));

fn read(text: &str) -> BTreeMap<Key, Vec<(Version, f64)>> {
    let mut table: BTreeMap<Key, Vec<(Version, f64)>> = BTreeMap::new();
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
    for record in reader.records().flatten() {
        let field = |at: usize| record.get(at).unwrap_or("").to_owned();
        let (Ok(version), Ok(value)) = (field(0).parse::<Version>(), field(5).parse::<f64>()) else { continue };
        let rows = table.entry((field(1), field(2), field(3), field(4))).or_default();
        rows.push((version, value));
        rows.sort_by_key(|row| row.0);
    }
    table
}

fn value(table: &str, row: &str, algorithm: &str, protocol: &str, version: Version) -> Option<f64> {
    let key = (table.to_owned(), row.to_owned(), algorithm.to_owned(), protocol.to_owned());
    TABLE.get(&key)?.iter().rev().find(|(since, _)| *since <= version).map(|row| row.1)
}

/// Index of the generation in NCCL's tables: by the lowest compute capability of the communicator.
fn generation(compute_capability: u32) -> &'static str {
    match compute_capability {
        100.. => "BLACKWELL",
        90.. => "HOPPER",
        80.. => "AMPERE",
        _ => "VOLTA",
    }
}

/// A row by GPU generation; before 2.25 there was no Blackwell row and Hopper's served.
fn by_generation(table: &str, algorithm: &str, protocol: &str, compute_capability: u32, version: Version) -> f64 {
    value(table, generation(compute_capability), algorithm, protocol, version)
        .or_else(|| value(table, "HOPPER", algorithm, protocol, version))
        .unwrap_or(0.0)
}

/// `baseLat`, in microseconds.
pub fn base_latency_us(algorithm: Algorithm, protocol: Protocol, version: Version) -> f64 {
    value("baseLat", "-", algorithm.table_name(), protocol.table_name(), version).unwrap_or(0.0)
}

/// `hwLat` of the NVLINK or the PCI row, in microseconds a step.
pub fn step_latency_us(nvlink: bool, algorithm: Algorithm, protocol: Protocol, version: Version) -> f64 {
    let row = if nvlink { "NVLINK" } else { "PCI" };
    value("hwLat", row, algorithm.table_name(), protocol.table_name(), version).unwrap_or(0.0)
}

/// `llMaxBws` on one node, in GB/s.
pub fn ll_max_gbps(compute_capability: u32, version: Version) -> f64 {
    by_generation("llMaxBws", "*", "LL", compute_capability, version)
}

/// `perChMaxRingLL128Bws` on one node, in GB/s a channel.
pub fn ring_ll128_channel_gbps(compute_capability: u32, version: Version) -> f64 {
    by_generation("perChMaxRingLL128Bws", "RING", "LL128", compute_capability, version)
}

/// `perChMaxTreeLL128Bws` on one node, in GB/s a channel.
pub fn tree_ll128_channel_gbps(compute_capability: u32, version: Version) -> f64 {
    by_generation("perChMaxTreeLL128Bws", "TREE", "LL128", compute_capability, version)
}

/// `perChMaxTreeBws` on one node, in GB/s a channel.
pub fn tree_channel_gbps(compute_capability: u32, version: Version) -> f64 {
    by_generation("perChMaxTreeBws", "TREE", "*", compute_capability, version)
}

/// Bus bandwidth that Ring LL is credited with, as a share of the graph's.
pub fn ring_ll_factor(all_reduce: bool, version: Version) -> f64 {
    let row = if all_reduce { "all_reduce" } else { "other" };
    value("ringLLbusBwFactor", row, "RING", "LL", version).unwrap_or(0.5)
}

/// `treeCorrectionFactor` of a message; 1 outside the table.
pub fn tree_correction(protocol: Protocol, bytes: u64, version: Version) -> f64 {
    // The table starts at 64 B and doubles; its keys are the exponents.
    let exponent = (bytes >> 6).checked_ilog2().unwrap_or(0) + 6;
    value("treeCorrectionFactor", &exponent.to_string(), "TREE", protocol.table_name(), version).unwrap_or(1.0)
}

/// A bandwidth class of `topo.h`, e.g. `AMD_BW`, in GB/s; none where the version has no such class.
pub fn class_gbps(name: &str, version: Version) -> Option<f64> {
    value("topoBw", name, "-", "-", version)
}

/// The candidate speeds of the search inside one node, in GB/s, descending.
pub fn ladder_gbps(compute_capability: u32, version: Version) -> Vec<f64> {
    let read = |table: &str| -> Vec<f64> { (0..).map_while(|at: u32| value(table, &at.to_string(), "-", "-", version)).collect() };
    let ladder = match compute_capability {
        100.. => read("sm100SpeedArrayIntra"),
        90.. => read("sm90SpeedArrayIntra"),
        _ => read("speedArrayIntra"),
    };
    // Before 2.25 newer GPUs used Hopper's ladder.
    if ladder.is_empty() { read("sm90SpeedArrayIntra") } else { ladder }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ladders_follow_the_versions() {
        assert_eq!(ladder_gbps(120, Version::new(2, 30, 7)), [90.0, 80.0, 70.0, 60.0, 50.0, 45.0, 40.0, 30.0, 24.0, 20.0, 19.0, 18.0]);
        assert_eq!(ladder_gbps(120, Version::new(2, 26, 2)).last(), Some(&19.0));
        assert_eq!(ladder_gbps(120, Version::new(2, 24, 3)), ladder_gbps(90, Version::new(2, 24, 3)));
        assert_eq!(ladder_gbps(90, Version::new(2, 18, 1)), [60.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0, 6.0, 3.0]);
        assert_eq!(ladder_gbps(89, Version::new(2, 30, 7)).len(), 13);
    }

    #[test]
    fn values_change_where_the_source_changed() {
        let at = |minor, patch| Version::new(2, minor, patch);
        assert_eq!(step_latency_us(false, Algorithm::Tree, Protocol::Simple, at(18, 6)), 6.0);
        assert_eq!(step_latency_us(false, Algorithm::Tree, Protocol::Simple, at(22, 3)), 28.0);
        assert_eq!(step_latency_us(false, Algorithm::Tree, Protocol::Simple, at(30, 7)), 4.0);
        assert_eq!(base_latency_us(Algorithm::Tree, Protocol::Simple, at(22, 3)), 0.0);
        assert_eq!(base_latency_us(Algorithm::Tree, Protocol::Simple, at(23, 4)), 8.4);
        assert_eq!(ring_ll_factor(true, at(20, 5)), 0.25);
        assert_eq!(ring_ll_factor(true, at(21, 5)), 0.5);
        assert_eq!(ring_ll128_channel_gbps(120, at(29, 2)), 34.5);
        assert_eq!(ring_ll128_channel_gbps(120, at(29, 7)), 40.0);
        assert_eq!(class_gbps("AMD_BW", at(18, 6)), None);
        assert_eq!(class_gbps("AMD_BW", at(30, 7)), Some(16.0));
        assert_eq!(class_gbps("AMD_ZEN5_BW", at(30, 7)), None);
        assert_eq!(class_gbps("AMD_ZEN5_BW", at(31, 2)), Some(32.0));
        assert_eq!(tree_correction(Protocol::Ll, 43008, at(30, 7)), 0.7);
        assert_eq!(tree_correction(Protocol::Ll, u64::MAX, at(30, 7)), 1.0);
        for protocol in Protocol::ALL {
            for algorithm in Algorithm::ALL {
                assert!(step_latency_us(false, algorithm, protocol, at(31, 0)) > 0.0);
                assert!(step_latency_us(true, algorithm, protocol, at(31, 0)) > 0.0);
            }
        }
    }
}
