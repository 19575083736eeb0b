//! Which constants decide between the leader and the baseline, and which
//! measurement settles each.

use super::normal::Z90;
use super::spread::Constant;
use super::spread::Spread;

/// Shares below this are not listed.
const LEAST: f64 = 0.02;

/// One constant's part in what is not known about the saving.
#[derive(Clone, Debug, PartialEq)]
pub struct Share {
    /// Path, or what else is unknown.
    pub what: String,
    /// Share of the variance of the saving, 0 to 1.
    pub share: f64,
    /// The saving's change at the low and the high end, ms; None for residuals.
    pub ends_ms: Option<[f64; 2]>,
    /// Value with interval and unit, and where it comes from; empty for residuals.
    pub known: String,
    /// What to run.
    pub measurement: &'static str,
    /// About how long it takes.
    pub minutes: u32,
}

/// The contrast of two spreads, largest share first.
pub fn shares(constants: &[Constant], leader: &Spread, base: &Spread, residuals: &[(String, f64)]) -> Vec<Share> {
    let saving = |at: usize, end: usize| {
        base.communication[at][end] + base.kernels[at][end] - leader.communication[at][end] - leader.kernels[at][end]
    };
    let variance = |ends: [f64; 2]| {
        let half = (ends[1] - ends[0]) / 2.0 / Z90;
        half * half
    };
    let of_constants: Vec<f64> = (0..constants.len()).map(|at| variance([saving(at, 0), saving(at, 1)])).collect();
    let total: f64 = of_constants.iter().sum::<f64>() + residuals.iter().map(|(_, sigma)| sigma * sigma).sum::<f64>();
    let total = if total > 0.0 { total } else { 1.0 };
    let mut all: Vec<Share> = (constants.iter().enumerate())
        .map(|(at, constant)| {
            let (measurement, minutes) = measurement(&constant.path);
            let [value, low, high] = constant.interval;
            Share {
                what: constant.path.clone(),
                share: of_constants[at] / total,
                ends_ms: Some([saving(at, 0), saving(at, 1)]),
                known: format!("{value} ({low} to {high}) {}; {}", constant.unit, constant.source),
                measurement,
                minutes,
            }
        })
        .collect();
    all.extend(residuals.iter().map(|(what, sigma)| Share {
        what: what.clone(),
        share: sigma * sigma / total,
        ends_ms: None,
        known: String::new(),
        measurement: "lanecast run --strategy with it, or nccl-tests: all_reduce_perf -b 4K -e 1M -f 2 -g 8 -G 100; then lanecast validate",
        minutes: 5,
    }));
    all.retain(|share| share.share >= LEAST);
    all.sort_by(|a, b| b.share.total_cmp(&a.share).then(a.what.cmp(&b.what)));
    all
}

/// What settles a constant, and its minutes.
fn measurement(path: &str) -> (&'static str, u32) {
    let name = path.rsplit('.').next().unwrap_or("");
    let nccl = ["nccl_", "ll_", "ll128_", "simple_"].iter().any(|prefix| name.starts_with(prefix)) || name == "wide_block_ns";
    if path.starts_with("links.") || path.starts_with("collapses.") {
        ("p2pBandwidthLatencyTest, then lanecast import", 2)
    } else if path.starts_with("fabric.") {
        ("nvbandwidth -t host_to_device_memcpy_ce and nccl-tests with NCCL_P2P_DISABLE=1: all_reduce_perf -b 4K -e 1M -f 2 -g 8", 3)
    } else if path.contains(".protocol.") && nccl {
        ("nccl-tests: NCCL_PROTO=LL all_reduce_perf -b 4K -e 1M -f 2 -g 8 -G 100, then lanecast validate and fit", 3)
    } else if path.contains(".protocol.") || path.contains(".chip.issue") || path.contains(".chip.serve") {
        ("lanecast calibrate (flags, fences, barriers and copies of own kernels)", 2)
    } else if path.contains(".launch.") || path.contains(".kernels.") || path.contains(".chip.") {
        ("a profile of ten decode steps (torch.profiler or nsys), then lanecast compare", 10)
    } else if path.starts_with("workload.") {
        ("the expert ids of about 1,000 tokens, logged by the engine", 20)
    } else {
        ("lanecast calibrate", 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Savings of ±1 and ±2 ms: variances 1 : 4.
    #[test]
    fn shares_are_those_of_the_variance() {
        let constant = |path: &str| Constant { path: path.to_owned(), interval: [1.0, 0.0, 2.0], unit: "ns", source: String::new() };
        let spread = |one: f64, two: f64| Spread {
            communication_ms: 1.0,
            communication: vec![[-one, one], [-two, two]],
            kernels: vec![[0.0; 2]; 2],
        };
        let constants = [constant("links.x.latency_ns"), constant("kinds.k.protocol.ll_trip_ns")];
        let found = shares(&constants, &spread(0.0, 0.0), &spread(1.0, 2.0), &[]);
        assert_eq!(found[0].what, "kinds.k.protocol.ll_trip_ns");
        assert!((found[0].share - 0.8).abs() < 1e-12 && (found[1].share - 0.2).abs() < 1e-12);
        assert!(found[0].measurement.contains("NCCL_PROTO=LL") && found[1].measurement.contains("p2pBandwidthLatencyTest"));
        // A constant that moves both alike decides nothing.
        assert!(shares(&constants, &spread(1.0, 2.0), &spread(1.0, 2.0), &[]).is_empty());
    }
}
