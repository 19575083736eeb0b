//! Lists of GPUs that tools print beside their results: names and buses.

use crate::import::facts;
use crate::import::facts::Gpu;

/// Devices beyond this are no GPUs.
const DEVICES_MAX: usize = 256;

/// `Device 0: NVIDIA H200 (00000000:03:00)` or `0: NVIDIA H200`: the device's number and what it is.
pub fn numbered(line: &str) -> Option<(usize, Gpu)> {
    let line = line.trim();
    let (number, rest) = line.strip_prefix("Device ").unwrap_or(line).split_once(": ")?;
    let number = number.parse().ok().filter(|n| *n < DEVICES_MAX)?;
    let (name, bus) = match rest.rsplit_once(" (") {
        Some((name, bus)) => (name, facts::bus_id(bus.trim_end_matches(')'))),
        None => (rest, None),
    };
    Some((number, gpu(name, bus)))
}

/// `#  Rank  0 Group  0 Pid  1 on box device  0 [0000:03:00] NVIDIA RTX PRO 6000` of nccl-tests.
pub fn of_rank(line: &str) -> Option<(usize, Gpu)> {
    let line = line.trim_start_matches(['#', ' ']);
    let (_, rest) = line.strip_prefix("Rank ")?.split_once(" device ")?;
    let (number, rest) = rest.trim_start().split_once(" [")?;
    let (bus, name) = rest.split_once("] ")?;
    Some((number.trim().parse().ok().filter(|n| *n < DEVICES_MAX)?, gpu(name, facts::bus_id(bus))))
}

fn gpu(name: &str, bus: Option<String>) -> Gpu {
    let name = name.trim().chars().filter(|c| !c.is_control()).take(100).collect();
    Gpu { name, bus: bus.unwrap_or_default(), numa: None }
}

/// In device order; devices that are not listed stay empty.
pub fn in_order(found: impl Iterator<Item = (usize, Gpu)>) -> Vec<Gpu> {
    let mut gpus: Vec<Gpu> = Vec::new();
    for (number, gpu) in found {
        if gpus.len() <= number {
            gpus.resize_with(number + 1, Gpu::default);
        }
        // Of several hosts, the first one's.
        if gpus[number] == Gpu::default() {
            gpus[number] = gpu;
        }
    }
    gpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_give_names_and_buses() {
        let lines = ["Device 1: NVIDIA H200 (00000000:1B:00)", "0: NVIDIA L40S", "Device x: y", "99999: z", "Running a: b"];
        let gpus = in_order(lines.iter().filter_map(|line| numbered(line)));
        assert_eq!(
            gpus.iter().map(|g| (g.name.as_str(), g.bus.as_str())).collect::<Vec<_>>(),
            [("NVIDIA L40S", ""), ("NVIDIA H200", "0000:1b:00.0")]
        );
        let (number, gpu) = of_rank("#  Rank  3 Group  0 Pid   7 on box device  2 [0000:c1:00] NVIDIA RTX PRO 6000").expect("a rank");
        assert_eq!((number, gpu.name.as_str(), gpu.bus.as_str()), (2, "NVIDIA RTX PRO 6000", "0000:c1:00.0"));
        assert!(of_rank("#  Rank  0 Group 0 Pid 1 on x").is_none());
    }
}
