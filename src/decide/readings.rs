//! What a doctor measures besides what a diagnosis weighs: readings with their
//! spread, and what some of them should be.

use crate::import::facts::Facts;
use crate::import::facts::PciKind;

use super::detected::Checked;
use super::detected::Health;

/// A measured number; its name ends in its unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// For example `eager_launch_us`.
    pub name: String,
    /// Median.
    pub value: f64,
    /// Least.
    pub low: f64,
    /// Most.
    pub high: f64,
}

impl Reading {
    /// Rates are better the higher, times the lower.
    pub fn more_is_worse(name: &str) -> bool {
        !["_gbps", "_ghz"].iter().any(|unit| name.ends_with(unit))
    }

    /// Relative deviation: half of its own spread, or `scatter` where that is more. Launches from the host differ
    /// from one process to the next by more than within one.
    pub fn scatter(&self, scatter: f64) -> f64 {
        let scatter = if self.name.starts_with("eager_") { scatter.max(HOST_SCATTER) } else { scatter };
        let own = if self.value > 0.0 { (self.high - self.low) / 2.0 / self.value } else { 0.0 };
        if own.is_finite() { own.max(scatter) } else { scatter }
    }
}

/// Of launches: 3.47, 3.56 and 4.65 us were read on one H200 by three runs within a minute.
const HOST_SCATTER: f64 = 0.15;
/// Share of a link's raw rate that large copies reach on a healthy machine: 55 of 63 GB/s were seen on one H200
/// (`traces/h200-measured/flows.csv`), 56.5 between GPUs of one socket elsewhere.
const LINK_SHARE: f64 = 0.8;
/// An H200's host launches in 3.7 us, cards of the last ten years in 2.5 to 6; twice that is a slow host.
const LAUNCH_US: f64 = 12.0;
/// Below this share of the clock that the driver names, something holds it back.
const CLOCK_SHARE: f64 = 0.85;

/// GB/s of a link of that generation and width, after encoding.
fn link_gbps(generation: u32, width: u32) -> Option<f64> {
    let lane = match generation {
        3 => 0.985,
        4 => 1.969,
        5 => 3.938,
        6 => 7.563,
        _ => return None,
    };
    Some(lane * f64::from(width))
}

/// What the readings should be, where that is known. `clock_ghz` is the clock that the driver names.
pub fn checks(readings: &[Reading], facts: &Facts, clock_ghz: Option<f64>) -> Vec<Checked> {
    let value = |name: &str| readings.iter().find(|reading| reading.name == name).map(|reading| reading.value);
    let mut all = Vec::new();
    let link = facts.pci.iter().find(|device| device.kind == PciKind::Gpu).map(|gpu| gpu.link_max);
    let best = link.and_then(|link| Some((link_gbps(link.generation, link.width)?, link)));
    let copies: Vec<f64> = ["copy_host_to_gpu_gbps", "copy_gpu_to_host_gbps"].iter().filter_map(|name| value(name)).collect();
    let slowest = copies.iter().copied().fold(f64::INFINITY, f64::min);
    if let (Some((rate, link)), true) = (best, slowest.is_finite()) {
        let good = slowest >= LINK_SHARE * rate;
        all.push(Checked {
            what: "host copies",
            health: if good { Health::Good } else { Health::Bad },
            seen: format!("{slowest:.1} of {rate:.0} GB/s (Gen{} x{})", link.generation, link.width),
            remedy: if good { "" } else { "a link trained low, or host memory on a far socket: lspci -vv, numactl --cpunodebind" },
        });
    }
    if let Some(us) = value("eager_launch_us") {
        let good = us <= LAUNCH_US;
        all.push(Checked {
            what: "launch",
            health: if good { Health::Good } else { Health::Bad },
            seen: format!("{us:.1} us a kernel from one thread"),
            remedy: if good { "" } else { "the host is slow: frequency governor, virtual machine, profiler or debugger attached" },
        });
    }
    if let (Some(now), Some(named)) = (value("clock_ghz"), clock_ghz.filter(|named| *named > 0.0)) {
        let good = now >= CLOCK_SHARE * named;
        all.push(Checked {
            what: "clock",
            health: if good { Health::Good } else { Health::Bad },
            seen: format!("{now:.2} of {named:.2} GHz"),
            remedy: if good { "" } else { "nvidia-smi -q -d PERFORMANCE names what holds it back: power, heat, a set clock" },
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::detected;

    fn reading(name: &str, value: f64) -> Reading {
        Reading { name: name.to_owned(), value, low: value * 0.99, high: value * 1.01 }
    }

    /// Gen5 x16 is 63.0 GB/s; 55 is 87 % of it, 20 is not 80.
    #[test]
    fn readings_are_held_against_what_the_link_could_do() {
        let found = detected::read("d.json", include_str!("../../traces/h200-measured/detect.json")).expect("reads");
        let health = |gbps: f64, us: f64, ghz: f64| {
            let all = [reading("copy_host_to_gpu_gbps", gbps), reading("eager_launch_us", us), reading("clock_ghz", ghz)];
            checks(&all, &found.facts, Some(1.98)).iter().map(|check| check.health).collect::<Vec<_>>()
        };
        assert_eq!(health(55.0, 3.7, 1.98), [Health::Good; 3]);
        assert_eq!(health(20.0, 30.0, 1.2), [Health::Bad; 3]);
        assert!(checks(&[], &found.facts, None).is_empty());
    }

    #[test]
    fn units_say_which_way_is_worse() {
        assert!(Reading::more_is_worse("eager_launch_us") && !Reading::more_is_worse("copy_host_to_gpu_gbps"));
        assert!((reading("a_us", 10.0).scatter(0.001) - 0.01).abs() < 1e-12);
        assert_eq!(reading("eager_launch_us", 3.5).scatter(0.03), HOST_SCATTER);
    }
}
