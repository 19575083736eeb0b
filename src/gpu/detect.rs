//! What this machine is: GPUs, PCI tree, peer access as claimed and as proved,
//! versions and clocks. Runs in a worker.

use std::fs;
use std::path::Path;

use cudarc::driver::sys;
use cudarc::driver::sys::CUdevice_P2PAttribute as PeerAttribute;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::Clock;

use crate::error::Result;
use crate::gpu::bench::Bench;
use crate::gpu::bench::Word;
use crate::gpu::compile;
use crate::gpu::device;
use crate::gpu::fault::Explain;
use crate::gpu::implementation::Grid;
use crate::gpu::memory::HostBuffer;
use crate::gpu::nccl;
use crate::gpu::pci;
use crate::gpu::pci::PciNode;
use crate::gpu::pci::Redirection;

/// All that could be found.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Detected {
    /// Driver, e.g. `580.159.04`; empty where NVML does not say.
    pub driver: String,
    /// CUDA of the driver, e.g. `13.0`.
    pub cuda: String,
    /// NVRTC, e.g. `13.0`.
    pub nvrtc: Option<String>,
    /// NCCL, e.g. `2.31.2`.
    pub nccl: Option<String>,
    /// `uname -r` as /proc has it.
    pub kernel: String,
    /// Processors, in order of sockets.
    pub cpus: Vec<Cpu>,
    /// GPUs in the driver's order.
    pub gpus: Vec<Gpu>,
    /// Every ordered pair of GPUs.
    pub peers: Vec<Peer>,
    /// From the GPUs up to their roots.
    pub pci: Vec<PciNode>,
    /// Signs of redirected peer traffic.
    pub redirection: Redirection,
    /// `/proc/driver/nvidia/params` that bear on peer access.
    pub driver_options: Vec<String>,
    /// What could not be found, in sentences.
    pub notes: Vec<String>,
}

/// One processor.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Cpu {
    /// Physical package.
    pub socket: u32,
    /// `AuthenticAMD`, `GenuineIntel`, ….
    pub vendor: String,
    /// CPUID family.
    pub family: u32,
    /// CPUID model.
    pub model: u32,
    /// As the processor names itself.
    pub name: String,
}

/// One GPU.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Gpu {
    /// In the driver's order.
    pub ordinal: usize,
    /// As the driver names it.
    pub name: String,
    /// `0000:41:00.0`.
    pub pci_address: String,
    /// Major and minor.
    pub compute_capability: (u32, u32),
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of L2.
    pub l2_bytes: u64,
    /// Memory bus width in bits and clock in kHz, as the driver states them.
    pub memory_bus_bits: u32,
    /// See `memory_bus_bits`.
    pub memory_clock_khz: u32,
    /// Clock of the multiprocessors at most, kHz.
    pub clock_khz: u64,
    /// Clock now, under no load, MHz.
    pub clock_now_mhz: Option<u32>,
    /// PCIe generation and lanes now (idle links run slower) and at most.
    pub link: Option<Link>,
    /// Power limit, W.
    pub power_limit_w: Option<f64>,
    /// Copy engines.
    pub copy_engines: u32,
    /// Whether host memory that this GPU wrote came back right.
    pub host_proved: bool,
}

/// A GPU's PCIe link as NVML has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Link {
    /// Generation now.
    pub generation_now: u32,
    /// Generation at most, of device and slot.
    pub generation_max: u32,
    /// Lanes now.
    pub width_now: u32,
    /// Lanes at most.
    pub width_max: u32,
}

/// One ordered pair.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Peer {
    /// The GPU whose kernels access.
    pub from: usize,
    /// The GPU whose memory is accessed.
    pub to: usize,
    /// What the driver says.
    pub claimed: bool,
    /// Whether what `from` wrote was read right by `to`.
    pub write_proved: bool,
    /// Whether what `to` wrote was read right by `from`.
    pub read_proved: bool,
    /// Native atomics over the link.
    pub atomics: bool,
    /// The driver's relative rank, 0 the best.
    pub performance_rank: i32,
}

const WORDS: u64 = 1 << 18;

/// Looks at the machine from inside a worker.
///
/// # Errors
/// `gpu-none` without a driver or GPU.
pub fn detect_here() -> Result<Detected> {
    let cuda = device::driver_version()?;
    let count = device::count()?;
    let mut notes = Vec::new();
    let nvml = open_nvml(&mut notes);
    let benches = (0..count).map(Bench::open).collect::<Result<Vec<_>>>()?;
    let gpus = benches.iter().map(|b| gpu(b, nvml.as_ref())).collect::<Result<Vec<_>>>()?;
    let mut peers = Vec::new();
    for from in &benches {
        for to in benches.iter().filter(|to| to.context.ordinal() != from.context.ordinal()) {
            peers.push(peer(from, to)?);
        }
    }
    let addresses: Vec<String> = gpus.iter().map(|g| g.pci_address.clone()).collect();
    let (sysfs, procfs) = (Path::new("/sys"), Path::new("/proc"));
    let tree = pci::tree(sysfs, &addresses);
    if tree.is_empty() {
        notes.push("the PCI tree is not visible in /sys: a container or a virtual machine without it".to_owned());
    } else if tree.iter().all(|n| n.parent.is_none()) {
        notes.push("no bridge is visible above the GPUs: a virtual machine hides the real cabling".to_owned());
    }
    Ok(Detected {
        driver: nvml.as_ref().and_then(|n| n.sys_driver_version().ok()).unwrap_or_default(),
        cuda: format!("{}.{}", cuda / 1000, cuda % 1000 / 10),
        nvrtc: compile::version().map(|(major, minor)| format!("{major}.{minor}")),
        nccl: nccl::version().map(nccl::version_text),
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
        cpus: cpus(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
        redirection: pci::redirection(sysfs, procfs, &tree),
        driver_options: driver_options(&fs::read_to_string("/proc/driver/nvidia/params").unwrap_or_default()),
        gpus,
        peers,
        pci: tree,
        notes,
    })
}

fn open_nvml(notes: &mut Vec<String>) -> Option<Nvml> {
    // The driver's package has no name without the version.
    let opened = Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init();
    if let Err(error) = &opened {
        notes.push(format!("NVML cannot be opened, so clocks and links are not known: {error}"));
    }
    opened.ok()
}

fn gpu(bench: &Bench, nvml: Option<&Nvml>) -> Result<Gpu> {
    let context = &bench.context;
    let number = |which: Attribute| device::attribute(context, which).map(|n| u32::try_from(n).unwrap_or(0));
    let pci_address = pci_address(bench)?;
    let managed = nvml.and_then(|n| n.device_by_pci_bus_id(pci_address.as_str()).ok());
    let link = managed.as_ref().and_then(|d| {
        Some(Link {
            generation_now: d.current_pcie_link_gen().ok()?,
            generation_max: d.max_pcie_link_gen().ok()?,
            width_now: d.current_pcie_link_width().ok()?,
            width_max: d.max_pcie_link_width().ok()?,
        })
    });
    let architecture = device::architecture(context)?;
    Ok(Gpu {
        ordinal: context.ordinal(),
        name: context.name().explain("ask for the GPU's name")?,
        compute_capability: (architecture / 10, architecture % 10),
        multiprocessors: device::multiprocessors(context)?,
        memory_bytes: context.total_mem().explain("ask for the memory")? as u64,
        l2_bytes: u64::from(number(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?),
        memory_bus_bits: number(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?,
        memory_clock_khz: number(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?,
        clock_khz: device::clock_khz(context)?,
        clock_now_mhz: managed.as_ref().and_then(|d| d.clock_info(Clock::SM).ok()),
        power_limit_w: managed.as_ref().and_then(|d| d.enforced_power_limit().ok()).map(|mw| f64::from(mw) / 1000.0),
        copy_engines: number(Attribute::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT)?,
        host_proved: host_proved(bench)?,
        pci_address,
        link,
    })
}

fn pci_address(bench: &Bench) -> Result<String> {
    let mut name = [0_i8; 32];
    let device = bench.context.cu_device();
    // SAFETY: the buffer holds 32 bytes, as said.
    unsafe { sys::cuDeviceGetPCIBusId(name.as_mut_ptr().cast(), 32, device) }.explain("ask for the PCI address")?;
    let text: String = name.iter().take_while(|c| **c != 0).map(|c| char::from(*c as u8)).collect();
    Ok(text.to_lowercase())
}

const GRID: Grid = Grid { blocks: 16, threads: 256 };

fn write_pattern(bench: &Bench, at: u64, seed: u32) -> Result<()> {
    bench.launch(&bench.stream, "pattern", "write_pattern", GRID, &[Word::Long(at), Word::Long(WORDS), Word::Short(seed)])?;
    bench.context.synchronize().explain("wait for the device")
}

fn pattern_is(bench: &Bench, at: u64, seed: u32) -> Result<bool> {
    let wrong = bench.device(16)?;
    let words = [Word::Long(at), Word::Long(WORDS), Word::Short(seed), Word::Long(wrong.address())];
    bench.launch(&bench.stream, "pattern", "read_pattern", GRID, &words)?;
    bench.context.synchronize().explain("wait for the device")?;
    let mut count = [0_u32];
    wrong.read(0, &mut count)?;
    Ok(count[0] == 0)
}

fn host_proved(bench: &Bench) -> Result<bool> {
    let host = HostBuffer::zeros(&bench.context, WORDS as usize * 4)?;
    write_pattern(bench, host.address(), 0x5eed)?;
    // Read by the GPU and, for a word, by the host.
    Ok(pattern_is(bench, host.address(), 0x5eed)? && host.word(1) != 0)
}

/// Writes from one GPU into the other's memory and reads there; writes there
/// and reads from afar. The driver's word alone is not enough: some machines
/// claim access and corrupt or drop it.
fn peer(from: &Bench, to: &Bench) -> Result<Peer> {
    let attribute = |which: PeerAttribute| {
        let mut value = 0;
        // SAFETY: a valid place for an int and two valid devices.
        let status = unsafe { sys::cuDeviceGetP2PAttribute(&mut value, which, from.context.cu_device(), to.context.cu_device()) };
        status.explain("ask about peer access").map(|()| value)
    };
    let claimed = device::enable_peer(&from.context, &to.context)?;
    let mut peer = Peer {
        from: from.context.ordinal(),
        to: to.context.ordinal(),
        claimed,
        write_proved: false,
        read_proved: false,
        atomics: attribute(PeerAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)? != 0,
        performance_rank: attribute(PeerAttribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK)?,
    };
    if claimed {
        let memory = to.device(WORDS as usize * 4)?;
        let seed = 0x1000 + (peer.from * 64 + peer.to) as u32;
        write_pattern(from, memory.address(), seed)?;
        peer.write_proved = pattern_is(to, memory.address(), seed)?;
        write_pattern(to, memory.address(), !seed)?;
        peer.read_proved = pattern_is(from, memory.address(), !seed)?;
    }
    Ok(peer)
}

/// One entry a physical package of `/proc/cpuinfo`.
fn cpus(text: &str) -> Vec<Cpu> {
    let mut found: Vec<Cpu> = Vec::new();
    for block in text.split("\n\n") {
        let field = |name: &str| {
            let line = block.lines().find(|l| l.split(':').next().is_some_and(|k| k.trim() == name))?;
            line.split_once(':').map(|(_, v)| v.trim().to_owned())
        };
        let number = |name: &str| field(name).and_then(|t| t.parse().ok()).unwrap_or(0);
        let Some(vendor) = field("vendor_id") else { continue };
        let socket = number("physical id");
        if found.iter().all(|c| c.socket != socket) {
            found.push(Cpu {
                socket,
                vendor,
                family: number("cpu family"),
                model: number("model"),
                name: field("model name").unwrap_or_default(),
            });
        }
    }
    found
}

/// Options that change peer access, interrupts or registers.
fn driver_options(text: &str) -> Vec<String> {
    let bears = |line: &&str| {
        ["RegistryDwords", "GrdmaPciTopoCheckOverride", "EnableResizableBar", "PeerMappingOverride"].iter().any(|k| line.starts_with(k))
    };
    text.lines().filter(bears).map(|l| l.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_socket_is_one_processor() {
        let one =
            "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC 9575F\nphysical id\t: 0";
        let text = format!("{one}\n\n{}\n\n{}\n", one.replace(": 0\nvendor", ": 1\nvendor"), one.replace("id\t: 0", "id\t: 1"));
        let found = cpus(&text);
        assert_eq!(found.len(), 2);
        assert_eq!((found[1].socket, found[1].family, found[1].model), (1, 26, 2));
        assert!(cpus("").is_empty());
    }

    #[test]
    fn only_options_that_bear_on_peers_are_kept() {
        let text = "ResmanDebugLevel: 4294967295\nRegistryDwords: \"ForceP2P=0x11;RMForceP2PType=1\"\nEnableResizableBar: 0\n";
        assert_eq!(driver_options(text).len(), 2);
    }
}
