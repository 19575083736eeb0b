//! NCCL's topology XML (`NCCL_TOPO_DUMP_FILE`), versions 1 and 2.

use crate::error::Fault;
use crate::error::Result;
use crate::import::facts;
use crate::import::facts::Cpu;
use crate::import::facts::Facts;
use crate::import::facts::Gpu;
use crate::import::facts::PciDevice;
use crate::import::facts::PciKind;
use crate::import::facts::PciLink;
use crate::import::formats::Format;
use crate::import::formats::Looks;
use crate::import::formats::Read;
use crate::import::outcome::Outcome;
use crate::import::xml;
use crate::import::xml::Element;
use crate::machine::CpuVendor;

/// NCCL topology XML.
pub(super) const FORMAT: Format = Format { kind: "nccl-topology", looks: Looks::Xml("<system"), read: Read::Text(read) };

const CODE: &str = "import-nccl-topology";

/// NCCL's `familyid`/`modelid` when it does not know them.
const UNKNOWN_ID: u32 = u32::MAX;

/// Reads the XML.
///
/// # Errors
/// `xml`; `import-nccl-topology` for other documents and unknown versions.
pub fn read(name: &str, text: &str) -> Result<Outcome> {
    let root = xml::read(name, text)?;
    if root.name != "system" {
        return Err(Fault::new(CODE, format!("{name}: the root element is <{}>", root.name)).help("expected <system version=\"1\">"));
    }
    let version = root.number("version");
    if !(1..=2).contains(&version) {
        return Err(
            Fault::new(CODE, format!("{name}: topology version {:?} is not known", root.get("version"))).help("expected version 1 or 2")
        );
    }
    let mut outcome = Outcome::default();
    let mut gpus: Vec<(u32, Gpu)> = Vec::new();
    for cpu in root.all("cpu") {
        let numa = cpu.number("numaid");
        outcome.facts.cpus.push(Cpu {
            numa,
            vendor: vendor(cpu),
            family: known(cpu.number("familyid")),
            model: known(cpu.number("modelid")),
        });
        for pci in cpu.all("pci") {
            take(name, pci, None, numa, &mut outcome, &mut gpus)?;
        }
    }
    if gpus.is_empty() {
        return Err(Fault::new(CODE, format!("{name} holds no <gpu>")).help("expected a dump by NCCL_TOPO_DUMP_FILE of a run with GPUs"));
    }
    gpus.sort_by_key(|(device, _)| *device);
    outcome.facts.gpus = gpus.into_iter().map(|(_, gpu)| gpu).collect();
    let switches = outcome.facts.pci.iter().filter(|d| d.kind == PciKind::SwitchUp).count();
    outcome.understood(format!(
        "{name}: {} GPUs, {switches} switches, {} processors (NCCL topology, version {version})",
        outcome.facts.gpus.len(),
        outcome.facts.cpus.len()
    ));
    Ok(outcome)
}

fn known(id: u32) -> u32 {
    if id == UNKNOWN_ID { 0 } else { id }
}

fn vendor(cpu: &Element) -> CpuVendor {
    match (cpu.get("arch"), cpu.get("vendor")) {
        (_, "AuthenticAMD") => CpuVendor::Amd,
        (_, "GenuineIntel") => CpuVendor::Intel,
        ("arm64", _) => CpuVendor::Arm,
        ("ppc64", _) => CpuVendor::Power,
        _ => CpuVendor::Unknown,
    }
}

fn take(name: &str, pci: &Element, parent: Option<&str>, numa: u32, outcome: &mut Outcome, gpus: &mut Vec<(u32, Gpu)>) -> Result<()> {
    let Some(bus) = facts::bus_id(pci.get("busid")) else {
        return Err(Fault::new(CODE, format!("{name}: `{}` is no bus id", pci.get("busid"))).help("expected busid=\"0000:03:00.0\""));
    };
    let link = PciLink { generation: facts::generation(pci.get("link_speed")), width: pci.number("link_width") };
    let kind = match pci.number("class") {
        0x06_0400 => PciKind::SwitchUp,
        0x03_0000 | 0x03_0200 => PciKind::Gpu,
        0x02_0000 | 0x02_0700 => PciKind::Nic,
        _ => PciKind::Other,
    };
    warn_idle(name, &bus, kind, link, outcome);
    outcome.facts.pci.push(PciDevice {
        bus: bus.clone(),
        parent: parent.map(str::to_owned),
        kind,
        name: format!("{}:{}", pci.get("vendor"), pci.get("device")),
        link,
        link_max: PciLink::default(),
        payload_bytes: None,
        acs_redirects: None,
        numa: Some(numa),
    });
    for child in &pci.children {
        match child.name.as_str() {
            "pci" => take(name, child, Some(&bus), numa, outcome, gpus)?,
            "gpu" => {
                gpus.push((child.number("dev"), Gpu { name: String::new(), bus: bus.clone(), numa: Some(numa) }));
                nvlinks(child, &bus, &mut outcome.facts);
            }
            "nic" => {}
            other => outcome.skipped(format!("{name}: <{other}> below {bus}")),
        }
    }
    Ok(())
}

fn nvlinks(gpu: &Element, bus: &str, facts: &mut Facts) {
    for link in gpu.all("nvlink") {
        // A switch has the class of a bridge; a GPU's link names its bus.
        let target =
            (link.number("tclass") == 0x03_0200 || link.number("tclass") == 0x03_0000).then(|| facts::bus_id(link.get("target"))).flatten();
        facts.nvlinks.push((bus.to_owned(), target, link.number("count")));
    }
}

/// GPUs slow their link down when idle, and NCCL then plans with 2.5 GT/s.
fn warn_idle(name: &str, bus: &str, kind: PciKind, link: PciLink, outcome: &mut Outcome) {
    if !matches!(kind, PciKind::Gpu | PciKind::SwitchUp) {
        return;
    }
    if link.width <= 1 || (link.generation > 0 && link.generation <= 2) {
        outcome.warn(format!(
            "{name}: the link of {bus} is written as generation {} x{}: dumped while idle, or downgraded; it is not used as a rate (run a copy while dumping)",
            link.generation, link.width
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"<system version="1">
      <cpu numaid="0" affinity="ff" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="17">
        <pci busid="0000:01:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
          <pci busid="0000:03:00.0" class="0x030200" link_speed="2.5 GT/s PCIe" link_width="16"><gpu dev="1" sm="120" rank="1" gdr="0"/></pci>
          <pci busid="0000:04:00.0" class="0x030200" link_speed="32.0 GT/s" link_width="16"><gpu dev="0" sm="120" rank="0" gdr="0">
            <nvlink target="0000:03:00.0" count="4" tclass="0x030200"/></gpu></pci>
        </pci>
      </cpu></system>"#;

    #[test]
    fn the_tree_is_read() {
        let outcome = read("topo.xml", TEXT).expect("reads");
        assert_eq!(outcome.facts.gpus.iter().map(|g| g.bus.as_str()).collect::<Vec<_>>(), ["0000:04:00.0", "0000:03:00.0"]);
        assert_eq!(outcome.facts.pci[1].parent.as_deref(), Some("0000:01:00.0"));
        assert_eq!(outcome.facts.cpus[0].vendor, CpuVendor::Amd);
        assert_eq!(outcome.facts.nvlinks, [("0000:04:00.0".into(), Some("0000:03:00.0".into()), 4)]);
        assert_eq!(outcome.warnings.len(), 1);
        assert!(outcome.warnings[0].contains("0000:03:00.0"));
    }

    #[test]
    fn others_are_refused() {
        for text in [
            "<graphs/>",
            "<system/>",
            "<system version=\"3\"/>",
            "<system version=\"1\"/>",
            "<system version=\"1\"><cpu><pci busid=\"x\"/></cpu></system>",
        ] {
            assert_eq!(read("t.xml", text).map(|_| ()).expect_err(text).code, CODE);
        }
    }
}
