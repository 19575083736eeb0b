//! What files say about a machine, before it is one: labels, matrices, the PCI
//! tree, settings. Several files merge; a machine is made of the sum.

use std::collections::BTreeMap;

use crate::import::nccl_facts::NcclFacts;
use crate::machine::CpuVendor;
use crate::machine::Versions;

/// Facts about one machine from one or more files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// GPUs in device order, as far as files list them.
    pub gpus: Vec<Gpu>,
    /// What `nvidia-smi topo -m` shows between them.
    pub labels: Option<Labels>,
    /// Measured bandwidths.
    pub bandwidth: Vec<Matrix>,
    /// Measured latencies.
    pub latency: Vec<Matrix>,
    /// Bridges, switches, GPUs and network cards.
    pub pci: Vec<PciDevice>,
    /// Processors by NUMA node.
    pub cpus: Vec<Cpu>,
    /// Pairs of GPUs with their number of NVLinks; the second is `None` for a switch.
    pub nvlinks: Vec<(String, Option<String>, u32)>,
    /// What the kernel does with device addresses.
    pub iommu: Option<Iommu>,
    /// Options of the kernel's command line that bear on PCIe.
    pub kernel_options: Vec<String>,
    /// Options of the NVIDIA driver that were set.
    pub driver_options: BTreeMap<String, String>,
    /// Whether the driver was told to let peers reach BAR1 directly.
    pub force_p2p: Option<bool>,
    /// Versions of the software.
    pub versions: Versions,
    /// What NCCL found and chose.
    pub nccl: NcclFacts,
    /// Single figures of merit: name, value, unit.
    pub scores: Vec<(String, f64, &'static str)>,
}

/// One GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// As the driver names it; empty when not known.
    pub name: String,
    /// `0000:03:00.0`; empty when not known.
    pub bus: String,
    /// NUMA node, when known.
    pub numa: Option<u32>,
}

/// Square matrix of labels, GPUs only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// `cells[a][b]` as nvidia-smi prints it: `X`, `PIX`, `NV4`, ….
    pub cells: Vec<Vec<Label>>,
}

/// How far apart two GPUs are, as nvidia-smi says; nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Label {
    /// The same GPU.
    Same,
    /// That many NVLinks.
    Nvlink(u32),
    /// One PCIe switch.
    Pix,
    /// Several PCIe switches.
    Pxb,
    /// One host bridge.
    Phb,
    /// Several host bridges of one NUMA node.
    Node,
    /// The fabric between NUMA nodes.
    Sys,
}

impl Label {
    /// From a cell of the table.
    pub fn from_cell(cell: &str) -> Option<Label> {
        match cell {
            "X" => Some(Label::Same),
            "PIX" | "PSB" => Some(Label::Pix),
            "PXB" => Some(Label::Pxb),
            "PHB" => Some(Label::Phb),
            "NODE" => Some(Label::Node),
            "SYS" | "SOC" => Some(Label::Sys),
            _ => cell.strip_prefix("NV")?.parse().ok().map(Label::Nvlink),
        }
    }

    /// As the table shows it.
    pub fn cell(self) -> String {
        match self {
            Label::Same => "X".to_owned(),
            Label::Nvlink(count) => format!("NV{count}"),
            Label::Pix => "PIX".to_owned(),
            Label::Pxb => "PXB".to_owned(),
            Label::Phb => "PHB".to_owned(),
            Label::Node => "NODE".to_owned(),
            Label::Sys => "SYS".to_owned(),
        }
    }
}

/// Measured numbers between GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// The title in the file.
    pub title: String,
    /// Whether peer access was on.
    pub peer_access: bool,
    /// Both directions at once.
    pub bidirectional: bool,
    /// Whether copies read from the peer (otherwise they write to it).
    pub reads: bool,
    /// `cells[from][to]`, GB/s or microseconds; `None` where the file has no number.
    pub cells: Vec<Vec<Option<f64>>>,
}

impl Matrix {
    /// Numbers off the diagonal, in the file's order.
    pub fn between(&self) -> impl Iterator<Item = f64> + '_ {
        self.cells
            .iter()
            .enumerate()
            .flat_map(|(i, row)| row.iter().enumerate().filter(move |(j, _)| *j != i).filter_map(|(_, cell)| *cell))
    }
}

/// One processor (or NUMA node of it).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// NUMA node.
    pub numa: u32,
    /// Who made it.
    pub vendor: CpuVendor,
    /// CPUID family, 0 when not known.
    pub family: u32,
    /// CPUID model, 0 when not known.
    pub model: u32,
}

/// What a PCI function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PciKind {
    /// A port of the processor.
    RootPort,
    /// The port of a switch towards the processor.
    SwitchUp,
    /// A port of a switch towards a device.
    SwitchDown,
    /// A bridge whose kind the file does not tell.
    Bridge,
    /// A GPU.
    Gpu,
    /// A network card.
    Nic,
    /// Anything else.
    Other,
}

/// A PCIe link's generation and width; 0 when not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PciLink {
    /// 1 to 7.
    pub generation: u32,
    /// Lanes.
    pub width: u32,
}

/// One function of the PCI tree.
#[derive(Clone, Debug, PartialEq)]
pub struct PciDevice {
    /// `0000:03:00.0`.
    pub bus: String,
    /// The bridge it hangs from; `None` at the processor.
    pub parent: Option<String>,
    /// What it is.
    pub kind: PciKind,
    /// As the file names it; may be empty.
    pub name: String,
    /// Its link now: GPUs slow theirs down when idle.
    pub link: PciLink,
    /// What its link could do.
    pub link_max: PciLink,
    /// Payload that packets carry, when known.
    pub payload_bytes: Option<u32>,
    /// Whether Access Control Services send peer traffic up to the root.
    pub acs_redirects: Option<bool>,
    /// NUMA node, when known.
    pub numa: Option<u32>,
}

/// What the kernel does with device addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Iommu {
    /// Switched off.
    Off,
    /// On, devices keep physical addresses.
    PassThrough,
    /// On, every device address is translated.
    Translated,
}

impl Facts {
    /// Takes over what `other` knows; what is known already stays.
    pub fn merge(&mut self, mut other: Facts) {
        other.reorder_as(&self.gpus);
        if self.gpus.len() < other.gpus.len() {
            self.gpus.resize_with(other.gpus.len(), Gpu::default);
        }
        for (mine, theirs) in self.gpus.iter_mut().zip(other.gpus) {
            if mine.name.is_empty() {
                mine.name = theirs.name;
            }
            if mine.bus.is_empty() {
                mine.bus = theirs.bus;
            }
            mine.numa = mine.numa.or(theirs.numa);
        }
        self.labels = self.labels.take().or(other.labels);
        self.bandwidth.extend(other.bandwidth);
        self.latency.extend(other.latency);
        self.merge_pci(other.pci);
        for cpu in other.cpus {
            match self.cpus.iter_mut().find(|c| c.numa == cpu.numa) {
                Some(known) if known.vendor == CpuVendor::Unknown || (known.vendor == cpu.vendor && known.model == 0) => *known = cpu,
                Some(_) => {}
                None => self.cpus.push(cpu),
            }
        }
        if self.nvlinks.is_empty() {
            self.nvlinks = other.nvlinks;
        }
        self.iommu = self.iommu.or(other.iommu);
        self.kernel_options.extend(other.kernel_options);
        for (key, value) in other.driver_options {
            self.driver_options.entry(key).or_insert(value);
        }
        self.force_p2p = self.force_p2p.or(other.force_p2p);
        let versions = &mut self.versions;
        versions.driver = versions.driver.take().or(other.versions.driver);
        versions.cuda = versions.cuda.take().or(other.versions.cuda);
        versions.nccl = versions.nccl.take().or(other.versions.nccl);
        versions.flashinfer = versions.flashinfer.take().or(other.versions.flashinfer);
        versions.engine = versions.engine.take().or(other.versions.engine);
        self.nccl.merge(other.nccl);
        self.scores.extend(other.scores);
    }

    fn merge_pci(&mut self, others: Vec<PciDevice>) {
        for other in others {
            let Some(mine) = self.pci.iter_mut().find(|d| d.bus == other.bus) else {
                self.pci.push(other);
                continue;
            };
            mine.parent = mine.parent.take().or(other.parent);
            if matches!(mine.kind, PciKind::Bridge | PciKind::Other) {
                mine.kind = other.kind;
            }
            if mine.name.is_empty() {
                mine.name = other.name;
            }
            if mine.link_max.generation == 0 {
                mine.link_max = other.link_max;
            }
            if mine.link.generation < other.link.generation {
                mine.link = other.link;
            }
            mine.payload_bytes = mine.payload_bytes.or(other.payload_bytes);
            mine.acs_redirects = mine.acs_redirects.or(other.acs_redirects);
            mine.numa = mine.numa.or(other.numa);
        }
    }
}

/// `3:00.0`, `03:00.0`, `00000000:03:00.0` as `0000:03:00.0`; `None` if it is no address.
pub fn bus_id(text: &str) -> Option<String> {
    let lower = text.trim().to_ascii_lowercase();
    let (rest, function) = lower.rsplit_once('.').unwrap_or((&lower, "0"));
    let parts: Vec<&str> = rest.split(':').collect();
    let hex = |t: &str, most: u64| u64::from_str_radix(t, 16).ok().filter(|v| *v <= most && !t.starts_with('+'));
    let (domain, bus, device) = match parts[..] {
        [domain, bus, device] => (hex(domain, 0xffff_ffff)?, hex(bus, 0xff)?, hex(device, 0x1f)?),
        [bus, device] => (0, hex(bus, 0xff)?, hex(device, 0x1f)?),
        _ => return None,
    };
    Some(format!("{domain:04x}:{bus:02x}:{device:02x}.{:x}", hex(function, 7)?))
}

/// `32.0 GT/s PCIe`, `32GT/s` as a generation, 0 when not known.
pub fn generation(text: &str) -> u32 {
    let digits: String = text.trim().chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    match digits.parse::<f64>().map(|gt| libm::round(gt) as u32) {
        Ok(2 | 3) => 1,
        Ok(5) => 2,
        Ok(8) => 3,
        Ok(16) => 4,
        Ok(32) => 5,
        Ok(64) => 6,
        Ok(128) => 7,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_normalised() {
        assert_eq!(bus_id("00000000:C1:00.0").as_deref(), Some("0000:c1:00.0"));
        assert_eq!(bus_id("03:00.1").as_deref(), Some("0000:03:00.1"));
        assert_eq!(bus_id("[0x03]"), None);
        assert_eq!(bus_id("1:2:3:4"), None);
        assert_eq!(bus_id("+1:00.0"), None);
    }

    #[test]
    fn speeds_are_generations() {
        let of = |t| generation(t);
        assert_eq!((of("2.5 GT/s"), of("32.0 GT/s PCIe"), of("16GT/s"), of("Unknown")), (1, 5, 4, 0));
    }

    #[test]
    fn merging_keeps_what_is_known() {
        let mut facts = Facts { gpus: vec![Gpu { name: "A".into(), ..Gpu::default() }], ..Facts::default() };
        let other = Gpu { name: "B".into(), bus: "0000:03:00.0".into(), numa: Some(1) };
        facts.merge(Facts { gpus: vec![other.clone(), other], iommu: Some(Iommu::Off), ..Facts::default() });
        assert_eq!((facts.gpus[0].name.as_str(), facts.gpus[0].bus.as_str()), ("A", "0000:03:00.0"));
        assert_eq!((facts.gpus.len(), facts.iommu), (2, Some(Iommu::Off)));
    }
}
