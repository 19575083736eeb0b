//! Rates and latencies of links: from measured matrices where there are any,
//! else from generation and width, else assumed; each says which.

use crate::import::cabling::Cabling;
use crate::import::cabling::Parent;
use crate::import::facts::Facts;
use crate::import::facts::Matrix;
use crate::import::facts::PciLink;
use crate::knob::Quantity;

/// Payload and overhead of the best packet: 256 / (256 + 24).
const PACKET_SHARE: f64 = 256.0 / 280.0;

/// GPUs whose rates differ by less share a class.
const SAME_RATE: f64 = 0.015;

/// A cross flow this much slower than its GPUs' links shows the limit of what lies between.
const SLOWER: f64 = 0.97;

/// One class of links.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// As machine files name it.
    pub medium: &'static str,
    /// PCIe generation, 0 where it does not apply.
    pub generation: u32,
    /// Lanes.
    pub width: u32,
    /// From the first end.
    pub forward: Quantity,
    /// To the first end.
    pub backward: Quantity,
    /// One packet, one way.
    pub latency: Quantity,
}

impl Class {
    fn new(medium: &'static str, link: PciLink, rate: Quantity, latency: (f64, f64, f64, &str)) -> Class {
        let (low, value, high, source) = latency;
        let latency = Quantity::between(low, value, high, source);
        Class { medium, generation: link.generation, width: link.width, forward: rate.clone(), backward: rate, latency }
    }

    /// NVLink of that many lanes.
    pub fn nvlink(width: u32, gbps: f64) -> Class {
        let rate = Quantity::between(0.8 * gbps, gbps, gbps, "datasheet: 25 GB/s a link and direction (NVLink 2 to 4)");
        Class::new("nvlink", PciLink { generation: 0, width }, rate, (100.0, 200.0, 350.0, "assumed: about 1 us for a remote read"))
    }
}

/// Rate of that many NVLinks, one direction.
pub fn nvlink_gbps(width: u32) -> f64 {
    25.0 * f64::from(width.clamp(1, 64))
}

/// The classes of a machine.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    classes: Vec<(String, Class)>,
    gpu_classes: Vec<usize>,
    /// Whether the matrices show that peers go through host memory.
    pub staged: bool,
    /// What is measured and what is assumed.
    pub notes: Vec<String>,
}

impl Rates {
    /// Works out all classes that `tree` needs.
    pub fn new(facts: &Facts, tree: &Cabling) -> Rates {
        let mut rates = Rates { staged: staged(facts), ..Rates::default() };
        if rates.staged {
            rates.notes.push(
                "Peer access changes nothing in the measured matrix, or NCCL's log shows SHM: data go through host memory.".to_owned(),
            );
        }
        let matrix = best_matrix(facts, tree.gpus.len()).filter(|_| !rates.staged);
        rates.add_gpus(facts, tree, matrix);
        rates.add_between(tree, matrix);
        rates.notes.push(
            "Latencies are ASSUMED to be those of other machines: the latency of p2pBandwidthLatencyTest is not one link's.".to_owned(),
        );
        rates
    }

    /// All classes with their names.
    pub fn classes(&self) -> impl Iterator<Item = (&str, &Class)> {
        self.classes.iter().map(|(name, class)| (name.as_str(), class))
    }

    /// The class of a GPU's link.
    pub fn gpu_class(&self, gpu: usize) -> &str {
        self.gpu_classes.get(gpu).map_or("gpu-link", |i| self.classes[*i].0.as_str())
    }

    fn add_gpus(&mut self, facts: &Facts, tree: &Cabling, matrix: Option<&Matrix>) {
        for (gpu, parent) in tree.gpus.iter().enumerate() {
            let link = link_of(facts, gpu);
            let measured = matrix.and_then(|m| outward(m, gpu).zip(inward(m, gpu)).map(|rates| (rates, m.title.as_str())));
            let latency = match parent {
                Parent::Switch(_) => (85.0, 110.0, 120.0, "of other machines: a GPU below a switch"),
                Parent::Root(_) => (145.0, 155.0, 165.0, "of other machines: a GPU on lanes of the processor"),
            };
            // NCCL's search goes by generation and width: a gap there would count as PCIe 3.0.
            let stated = if known(link) { link } else { measured.map_or(ASSUMED, |((out, into), _)| link_of_rate(out.max(into))) };
            let mut class = Class::new("pcie", stated, payload_rate(link), latency);
            if let Some(((out, into), title)) = measured {
                let source = format!("{title}: the best pair of this GPU");
                let around = |v: f64| Quantity::between(0.97 * v, v, 1.03 * v, &source);
                (class.forward, class.backward) = (around(out), around(into));
            }
            let near = |a: f64, b: f64| (a - b).abs() <= SAME_RATE * b;
            let known = self.classes.iter().position(|(_, c)| {
                near(c.forward.value, class.forward.value) && near(c.backward.value, class.backward.value) && c.latency == class.latency
            });
            let index = known.unwrap_or_else(|| {
                let number = self.classes.len();
                self.classes.push((if number == 0 { "gpu-link".to_owned() } else { format!("gpu-link{number}") }, class));
                number
            });
            self.gpu_classes.push(index);
        }
        let told = (0..tree.gpus.len()).all(|gpu| known(link_of(facts, gpu)));
        self.notes.push(match matrix {
            Some(matrix) if told => format!("Rates of GPU links are measured ({}).", matrix.title),
            Some(matrix) => format!(
                "Rates of GPU links are measured ({}); their generation and width, which NCCL goes by, are inferred from them.",
                matrix.title
            ),
            None if facts.pci.iter().any(|d| d.link.generation > 2) => {
                "Rates follow from generation and width of the links; none is measured.".to_owned()
            }
            None => "Rates are ASSUMED: PCIe generation 5, 16 lanes; give p2pBandwidthLatencyTest or lspci -vv.".to_owned(),
        });
    }

    /// Uplinks, host bridges and the fabric between sockets.
    fn add_between(&mut self, tree: &Cabling, matrix: Option<&Matrix>) {
        let best = self.classes.iter().map(|(_, c)| c.forward.value).fold(0.0, f64::max);
        let link = self.classes.first().map_or(PciLink::default(), |(_, c)| PciLink { generation: c.generation, width: c.width });
        let socket = |gpu: usize| tree.roots[root_of(tree, gpu)];
        let across = |a: usize, b: usize| socket(a) != socket(b);
        let switches = |a: usize, b: usize| root_of(tree, a) != root_of(tree, b) && !across(a, b);
        let uplink = match matrix.and_then(|m| slower(m, self, switches)) {
            Some((low, median, high, title)) => Quantity::between(low, median, high, &format!("{title}: pairs of different host bridges")),
            None => Quantity::between(0.9 * best, best, 1.05 * best, "assumed: as fast as a GPU's link"),
        };
        if !tree.switches.is_empty() && uplink.source.starts_with("assumed") {
            self.notes
                .push("Uplinks of switches are ASSUMED to be as fast as a GPU's link: no measured pair shows their limit.".to_owned());
        }
        let fabric = match matrix.and_then(|m| slower(m, self, across)) {
            Some((low, median, _, title)) => {
                Quantity::between(low, median, 2.0 * median, &format!("{title}: one flow across sockets; more may fit"))
            }
            None => Quantity::between(40.0, 82.0, 120.0, "of other machines: two EPYC 9005, several flows across sockets"),
        };
        let latency = (175.0, 195.0, 215.0, "of other machines: an uplink, the crossing of the processor included");
        let inner = (85.0, 110.0, 120.0, "of other machines: a hop between switches");
        let none = PciLink::default();
        let bridge =
            Quantity::between(60.0, 110.0, 345.0, "of other machines: 8 GPUs copy 73 below one root, no limit was seen on another");
        self.classes.push(("switch-root".to_owned(), Class::new("pcie", link, uplink.clone(), latency)));
        self.classes.push(("switch-switch".to_owned(), Class::new("pcie", link, uplink, inner)));
        self.classes.push((
            "root-socket".to_owned(),
            Class::new("internal", none, bridge, (0.0, 0.0, 40.0, "convention: counted in the links of the root")),
        ));
        self.classes.push((
            "socket-fabric".to_owned(),
            Class::new("socket-fabric", none, fabric, (40.0, 80.0, 115.0, "of other machines: two EPYC 9005")),
        ));
        if tree.sockets.len() > 1 {
            self.notes
                .push("What several flows across sockets get together is ASSUMED: one flow at a time was measured, or none.".to_owned());
        }
    }

    fn gpu_rate(&self, from: usize, to: usize) -> f64 {
        let class = |gpu: usize| self.gpu_classes.get(gpu).map(|i| &self.classes[*i].1);
        class(from).zip(class(to)).map_or(0.0, |(a, b)| a.forward.value.min(b.backward.value))
    }
}

fn root_of(tree: &Cabling, gpu: usize) -> usize {
    let mut at = tree.gpus[gpu];
    loop {
        match at {
            Parent::Root(root) => return root,
            Parent::Switch(switch) => at = tree.switches[switch],
        }
    }
}

/// Smallest, median and largest of the pairs that `between` picks, if they are
/// slower than their GPUs' links.
fn slower<'m>(matrix: &'m Matrix, rates: &Rates, between: impl Fn(usize, usize) -> bool) -> Option<(f64, f64, f64, &'m str)> {
    let count = matrix.cells.len().min(rates.gpu_classes.len());
    let mut found = Vec::new();
    let mut limited = 0;
    for a in 0..count {
        for b in (0..count).filter(|&b| b != a && between(a, b)) {
            if let Some(Some(value)) = matrix.cells[a].get(b) {
                found.push(*value);
                limited += usize::from(*value < SLOWER * rates.gpu_rate(a, b));
            }
        }
    }
    found.sort_by(f64::total_cmp);
    (limited * 2 > found.len()).then(|| (found[0], found[found.len() / 2], found[found.len() - 1], matrix.title.as_str()))
}

/// One way, peers on; writes before reads.
fn best_matrix(facts: &Facts, gpus: usize) -> Option<&Matrix> {
    let usable = |m: &&Matrix| {
        m.peer_access && !m.bidirectional && m.cells.len() == gpus && gpus > 1 && m.between().all(|v| (0.1..20_000.0).contains(&v))
    };
    let mut found: Vec<&Matrix> = facts.bandwidth.iter().filter(usable).collect();
    found.sort_by_key(|m| m.reads);
    found.first().copied()
}

fn outward(matrix: &Matrix, gpu: usize) -> Option<f64> {
    matrix.cells[gpu].iter().enumerate().filter(|(j, _)| *j != gpu).filter_map(|(_, v)| *v).max_by(f64::total_cmp)
}

fn inward(matrix: &Matrix, gpu: usize) -> Option<f64> {
    matrix.cells.iter().enumerate().filter(|(i, _)| *i != gpu).filter_map(|(_, row)| row.get(gpu).copied().flatten()).max_by(f64::total_cmp)
}

/// Whether turning peer access on changed nothing, or NCCL goes through SHM.
fn staged(facts: &Facts) -> bool {
    let median = |enabled: bool| {
        let matrix = facts.bandwidth.iter().find(|m| m.peer_access == enabled && !m.bidirectional)?;
        let mut values: Vec<f64> = matrix.between().collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let same = matches!((median(true), median(false)), (Some(on), Some(off)) if on > 0.0 && (on / off - 1.0).abs() < 0.05);
    let transports = &facts.nccl.transports;
    let shared = transports.values().filter(|t| t.starts_with("SHM")).count();
    same || (!transports.is_empty() && shared == transports.len())
}

/// Generation and width of a GPU's link: the best that is known, for idle links are slow.
fn link_of(facts: &Facts, gpu: usize) -> PciLink {
    let device = facts.gpus.get(gpu).and_then(|g| facts.pci.iter().find(|d| d.bus == g.bus));
    let Some(device) = device else { return PciLink::default() };
    let generation = device.link.generation.max(device.link_max.generation);
    // Lanes do not change when idle: those that are used count.
    let width = if device.link.width > 0 { device.link.width } else { device.link_max.width };
    if generation <= 2 { PciLink::default() } else { PciLink { generation, width } }
}

/// A link that no file tells.
const ASSUMED: PciLink = PciLink { generation: 5, width: 16 };

fn known(link: PciLink) -> bool {
    (3..=6).contains(&link.generation) && (1..=16).contains(&link.width)
}

/// GT/s of a lane: 8 in generation 3, doubling.
fn transfers(generation: u32) -> f64 {
    8.0 * f64::from(1u32 << generation.clamp(3, 6).saturating_sub(3))
}

/// 128b/130b, in generation 6 flits of about the same share.
fn raw_gbps(generation: u32, width: u32) -> f64 {
    transfers(generation) * f64::from(width) / 8.0 * 128.0 / 130.0 * PACKET_SHARE
}

/// The slowest generation with 16 lanes that carries a measured rate. Fewer lanes of a newer
/// one look the same; NCCL credits both alike.
fn link_of_rate(gbps: f64) -> PciLink {
    let generation = (3..=6).find(|generation| gbps <= 1.03 * raw_gbps(*generation, 16)).unwrap_or(6);
    PciLink { generation, width: 16 }
}

/// Payload that a link carries: transfers × lanes × coding × packets.
fn payload_rate(link: PciLink) -> Quantity {
    let known = known(link);
    let PciLink { generation, width } = if known { link } else { ASSUMED };
    let raw = raw_gbps(generation, width);
    let source = if known {
        format!("PCIe {generation}.0 x{width}: {} GT/s, 128b/130b, 256 of 280 bytes", transfers(generation))
    } else {
        "assumed: PCIe 5.0 x16".to_owned()
    };
    Quantity::between(0.9 * raw, 0.98 * raw, raw, &source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_5_link_of_16_lanes_carries_56_gigabytes() {
        // 32 × 16 / 8 × 128/130 × 256/280 = 57.6; 98 % of it is 56.5, as measured on Turin (56.57).
        let rate = payload_rate(PciLink { generation: 5, width: 16 });
        assert!((rate.value - 56.46).abs() < 0.01 && (rate.high - 57.61).abs() < 0.01, "{rate:?}");
        assert!(payload_rate(PciLink::default()).source.starts_with("assumed"));
    }

    #[test]
    fn a_rate_tells_the_generation() {
        let of = |gbps| link_of_rate(gbps).generation;
        // Turin measures 56.57, Genoa 54, PCIe 4.0 x16 about 26, 3.0 about 13; 1000 is no PCIe.
        assert_eq!([of(56.57), of(54.0), of(26.2), of(13.1), of(1000.0)], [5, 5, 4, 3, 6]);
    }
}
