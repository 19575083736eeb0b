//! `lspci -vv`: the PCI tree with link speeds, payloads and Access Control
//! Services. Run as root, or the capabilities are missing.

use std::collections::BTreeMap;

use crate::error::Fault;
use crate::error::Result;
use crate::import::facts;
use crate::import::facts::Cpu;
use crate::import::facts::Gpu;
use crate::import::facts::PciDevice;
use crate::import::facts::PciKind;
use crate::import::facts::PciLink;
use crate::import::formats::Format;
use crate::import::formats::Looks;
use crate::import::formats::Read;
use crate::import::outcome::Outcome;
use crate::import::pci_tree;
use crate::import::processor;

/// `lspci -vv`.
pub(super) const FORMAT: Format = Format { kind: "lspci", looks: Looks::Text(detect), read: Read::Text(read) };

/// Whether `head` looks like it.
pub fn detect(head: &str) -> bool {
    head.lines().take(400).any(|l| heading(l).is_some())
        && (head.contains("Control: ") || head.contains("Capabilities:") || head.contains("Bus: primary="))
}

/// Reads the tree.
///
/// # Errors
/// `import-lspci` where no device is found.
pub fn read(name: &str, text: &str) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    // Domain and secondary bus → the bridge above it.
    let mut bridges: BTreeMap<(String, u32), String> = BTreeMap::new();
    let mut devices: Vec<PciDevice> = Vec::new();
    let mut denied = false;
    let mut in_dev_ctl = false;
    for line in text.lines() {
        if let Some((bus, description)) = heading(line) {
            devices.push(device(bus, description));
            continue;
        }
        let Some(current) = devices.last_mut() else { continue };
        let line = line.trim();
        denied |= line.contains("<access denied>");
        if let Some(rest) = line.strip_prefix("Bus: primary=") {
            let secondary = rest.split("secondary=").nth(1).and_then(|s| u32::from_str_radix(s.split(',').next()?, 16).ok());
            if let Some(secondary) = secondary {
                bridges.insert((domain(&current.bus).to_owned(), secondary), current.bus.clone());
            }
        }
        in_dev_ctl = line.starts_with("DevCtl:") || (in_dev_ctl && !line.contains("Cap:") && !line.contains("Sta:"));
        detail(line, in_dev_ctl, current);
    }
    if devices.is_empty() {
        return Err(Fault::new("import-lspci", format!("{name} lists no device")).help("expected the output of `sudo lspci -vv`"));
    }
    for device in &mut devices {
        let bus = device.bus.split(':').nth(1).and_then(|b| u32::from_str_radix(b, 16).ok());
        device.parent = bus.and_then(|b| bridges.get(&(domain(&device.bus).to_owned(), b)).cloned()).filter(|p| *p != device.bus);
    }
    // Without root there are no capabilities: the depth tells what a bridge is.
    for (bus, kind) in pci_tree::kinds_by_depth(devices.iter()) {
        devices.iter_mut().filter(|d| d.bus == bus).for_each(|d| d.kind = kind);
    }
    report(name, &devices, denied, &mut outcome);
    outcome.facts.cpus = processors(&devices);
    outcome.facts.gpus =
        devices.iter().filter(|d| d.kind == PciKind::Gpu).map(|d| Gpu { name: d.name.clone(), bus: d.bus.clone(), numa: d.numa }).collect();
    outcome.facts.pci = devices;
    Ok(outcome)
}

/// One processor for each NUMA node that a device names, by the words of the
/// host bridges; those of the ports say as much.
fn processors(devices: &[PciDevice]) -> Vec<Cpu> {
    let told = devices.iter().filter(|d| d.parent.is_none() && d.kind != PciKind::Gpu).filter_map(|d| processor::of_bridge(&d.name));
    // The one that tells its generation before one that does not.
    let Some(best) = told.max_by_key(|p| (p.family > 6 || p.model > 0, p.family, p.model)) else { return Vec::new() };
    let mut nodes: Vec<u32> = devices.iter().filter_map(|d| d.numa).collect();
    nodes.push(0);
    nodes.sort_unstable();
    nodes.dedup();
    nodes.into_iter().map(|numa| Cpu { numa, vendor: best.vendor, family: best.family, model: best.model }).collect()
}

fn report(name: &str, devices: &[PciDevice], denied: bool, outcome: &mut Outcome) {
    let count = |kind: PciKind| devices.iter().filter(|d| d.kind == kind).count();
    outcome.understood(format!(
        "{name}: {} GPUs, {} switches, {} root ports (lspci)",
        count(PciKind::Gpu),
        count(PciKind::SwitchUp),
        count(PciKind::RootPort)
    ));
    let others = count(PciKind::Other) + count(PciKind::Nic);
    if others > 0 {
        outcome.skipped(format!("{name}: {others} other devices"));
    }
    if denied {
        outcome.warn(format!("{name}: capabilities are missing (<access denied>): run `sudo lspci -vv`"));
    }
    let redirecting = devices.iter().filter(|d| d.acs_redirects == Some(true) && d.kind != PciKind::Gpu).count();
    if redirecting > 0 {
        outcome.warn(format!(
            "{name}: Access Control Services redirect peer traffic at {redirecting} ports: pairs behind one switch go through the processor and lose up to half their bandwidth"
        ));
    }
    for device in devices.iter().filter(|d| d.kind == PciKind::Gpu) {
        if device.link_max.width > device.link.width && device.link.width > 0 {
            outcome.warn(format!("{name}: {} runs x{} of x{}", device.bus, device.link.width, device.link_max.width));
        }
    }
}

fn domain(bus: &str) -> &str {
    bus.split(':').next().unwrap_or("")
}

/// `0000:03:00.0 VGA compatible controller: NVIDIA …` as address and the rest.
fn heading(line: &str) -> Option<(String, &str)> {
    let (address, rest) = line.split_once(' ')?;
    if !address.contains('.') || !address.starts_with(|c: char| c.is_ascii_hexdigit()) || !rest.contains(": ") && !rest.contains(" [") {
        return None;
    }
    Some((facts::bus_id(address)?, rest))
}

fn device(bus: String, description: &str) -> PciDevice {
    let (class, name) = description.split_once(": ").unwrap_or((description, ""));
    let nvidia = name.contains("NVIDIA");
    let kind = match class {
        c if c.contains("PCI bridge") => PciKind::Bridge,
        c if (c.contains("3D controller") || c.contains("VGA compatible")) && nvidia => PciKind::Gpu,
        c if c.contains("Ethernet") || c.contains("Infiniband") || c.contains("Network controller") => PciKind::Nic,
        _ => PciKind::Other,
    };
    PciDevice {
        bus,
        parent: None,
        kind,
        name: name.split(" (rev").next().unwrap_or(name).trim().to_owned(),
        link: PciLink::default(),
        link_max: PciLink::default(),
        payload_bytes: None,
        acs_redirects: None,
        numa: None,
    }
}

fn detail(line: &str, in_dev_ctl: bool, device: &mut PciDevice) {
    if line.contains("Express (v") || line.contains("] Express ") {
        device.kind = match device.kind {
            PciKind::Bridge if line.contains("Root Port") => PciKind::RootPort,
            PciKind::Bridge if line.contains("Upstream Port") => PciKind::SwitchUp,
            PciKind::Bridge if line.contains("Downstream Port") => PciKind::SwitchDown,
            kind => kind,
        };
    } else if let Some(rest) = line.strip_prefix("NUMA node:") {
        device.numa = rest.trim().parse().ok();
    } else if line.starts_with("LnkCap:") {
        device.link_max = link(line);
    } else if line.starts_with("LnkSta:") {
        device.link = link(line);
    } else if line.starts_with("ACSCtl:") {
        device.acs_redirects = Some(["ReqRedir+", "CmpltRedir+", "UpstreamFwd+"].iter().any(|flag| line.contains(flag)));
    } else if in_dev_ctl && line.contains("MaxPayload ") {
        device.payload_bytes = line.split("MaxPayload ").nth(1).and_then(|t| t.split_whitespace().next()?.parse().ok());
    }
}

/// `LnkSta: Speed 32GT/s (ok), Width x16 (ok)`.
fn link(line: &str) -> PciLink {
    let speed = line.split("Speed ").nth(1).unwrap_or("");
    let width = line.split("Width x").nth(1).unwrap_or("");
    let digits: String = width.chars().take_while(char::is_ascii_digit).collect();
    PciLink { generation: facts::generation(speed), width: digits.parse().unwrap_or(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00:01.1 PCI bridge: AMD Turin GPP Bridge (prog-if 00 [Normal decode])\n\tNUMA node: 0\n\tBus: primary=00, secondary=01, subordinate=04, sec-latency=0\n\
        \tCapabilities: [58] Express (v2) Root Port (Slot+), MSI 00\n\t\tDevCap:\tMaxPayload 512 bytes\n\t\tDevCtl:\tCorrErr+\n\t\t\tMaxPayload 256 bytes, MaxReadReq 512 bytes\n\
        01:00.0 PCI bridge: PMC-Sierra Switchtec (prog-if 00)\n\tBus: primary=01, secondary=02, subordinate=04\n\tCapabilities: [40] Express (v2) Upstream Port, MSI 00\n\
        02:00.0 PCI bridge: PMC-Sierra Switchtec (prog-if 00)\n\tBus: primary=02, secondary=03, subordinate=03\n\tCapabilities: [40] Express (v2) Downstream Port (Slot+)\n\
        \t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-\n\
        03:00.0 VGA compatible controller: NVIDIA Corporation Device 2bb5 (rev a1)\n\tControl: I/O- Mem+\n\tCapabilities: [60] Express (v2) Legacy Endpoint, MSI 00\n\
        \t\tDevCtl:\tCorrErr+\n\t\t\tMaxPayload 256 bytes, MaxReadReq 4096 bytes\n\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM L1\n\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x8 (downgraded)\n\
        03:00.1 Audio device: NVIDIA Corporation Device 22e8 (rev a1)\n";

    #[test]
    fn the_tree_is_read() {
        assert!(detect(TEXT));
        let outcome = read("lspci.txt", TEXT).expect("reads");
        let pci = &outcome.facts.pci;
        let kinds: Vec<PciKind> = pci.iter().map(|d| d.kind).collect();
        assert_eq!(kinds, [PciKind::RootPort, PciKind::SwitchUp, PciKind::SwitchDown, PciKind::Gpu, PciKind::Other]);
        assert_eq!(pci[3].parent.as_deref(), Some("0000:02:00.0"));
        assert_eq!(pci[1].parent.as_deref(), Some("0000:00:01.1"));
        assert_eq!((pci[3].link_max, pci[3].link), (PciLink { generation: 5, width: 16 }, PciLink { generation: 1, width: 8 }));
        assert_eq!((pci[3].payload_bytes, pci[2].acs_redirects), (Some(256), Some(true)));
        assert!(outcome.warnings.iter().any(|w| w.contains("Access Control")));
        assert!(outcome.warnings.iter().any(|w| w.contains("x8 of x16")));
    }

    #[test]
    fn depth_tells_bridges_where_capabilities_are_hidden() {
        let plain: String = TEXT.lines().filter(|l| !l.contains("Express")).map(|l| format!("{l}\n")).collect();
        let outcome = read("lspci.txt", &plain).expect("reads");
        let kinds: Vec<PciKind> = outcome.facts.pci.iter().map(|d| d.kind).collect();
        assert_eq!(kinds[..4], [PciKind::RootPort, PciKind::SwitchUp, PciKind::SwitchDown, PciKind::Gpu]);
        let cpu = &outcome.facts.cpus[0];
        assert_eq!((cpu.vendor, cpu.family), (crate::machine::CpuVendor::Amd, 0x1A));
    }

    #[test]
    fn nothing_is_refused() {
        assert_eq!(read("l", "hello: world").map(|_| ()).expect_err("no device").code, "import-lspci");
    }
}
