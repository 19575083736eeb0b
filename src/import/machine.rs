//! From facts to a machine: the tree, its rates as far as they were measured,
//! defaults for the rest, and notes on which is which.
//!
//! The machine is written as a file and read back, so that it has passed every
//! check a machine file passes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::error::Fault;
use crate::error::Result;
use crate::import::assumed;
use crate::import::cabling;
use crate::import::cabling::Cabling;
use crate::import::cabling::Parent;
use crate::import::facts::Cpu;
use crate::import::facts::Facts;
use crate::import::facts::Gpu;
use crate::import::facts::Iommu;
use crate::import::facts::Label;
use crate::import::facts::PciKind;
use crate::import::processor;
use crate::import::rates;
use crate::import::rates::Class;
use crate::import::rates::Rates;
use crate::machine::CpuVendor;
use crate::machine::Machine;
use crate::machine::library;

const CODE: &str = "import-machine";

/// Kinds of GPU by fragments of the driver's names; the first that fits counts.
const KINDS: &[(&str, &str)] = &[
    ("RTX PRO 6000", "rtx-pro-6000"),
    ("2bb1", "rtx-pro-6000"),
    ("2bb4", "rtx-pro-6000"),
    ("2bb5", "rtx-pro-6000"),
    ("5090", "rtx-5090"),
    ("2b85", "rtx-5090"),
    ("4090", "rtx-4090"),
    ("2684", "rtx-4090"),
    ("3090", "rtx-3090"),
    ("2204", "rtx-3090"),
    ("L40S", "l40s"),
    ("26b9", "l40s"),
    ("A800", "a800-pcie-80gb"),
    ("A100", "a100-pcie-80gb"),
    ("H200 NVL", "h200-nvl"),
    ("H200", "h200"),
    ("H100", "h100-pcie"),
];

/// The kind taken where no file names the GPUs.
pub(super) const KIND_ASSUMED: &str = "rtx-pro-6000";

/// What only the user can say.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// The machine's id; `imported` when empty.
    pub id: String,
    /// Kind of all GPUs, a key of the library.
    pub gpu: Option<String>,
    /// The processors, as [`processor::named`] knows them.
    pub cpu: Option<String>,
}

/// Makes a machine of what is known. The notes say what is assumed.
///
/// # Errors
/// `import-machine` where nothing tells the GPUs or the wished kind is unknown;
/// those of reading a machine.
pub fn machine(facts: &Facts, wish: &Wish) -> Result<Machine> {
    let Some(tree) = cabling::cabling(facts) else {
        return Err(Fault::new(CODE, "no file tells how many GPUs there are")
            .help("give the output of `nvidia-smi topo -m`, `sudo lspci -vv` or an NCCL topology dump"));
    };
    if tree.gpus.len() > 256 {
        return Err(Fault::new(CODE, format!("{} GPUs are more than one machine has", tree.gpus.len())));
    }
    let kinds = kinds(facts, wish, tree.gpus.len())?;
    let mut facts = facts.clone();
    if let Some(name) = &wish.cpu {
        let processor::Processor { vendor, family, model } = processor::named(name)?;
        facts.cpus = tree.sockets.iter().map(|numa| Cpu { numa: *numa, vendor, family, model }).collect();
    }
    let facts = &facts;
    let rates = Rates::new(facts, &tree);
    let id = if wish.id.is_empty() { "imported" } else { &wish.id };
    let mut notes = vec![format!("Imported: {}.", tree.evidence)];
    notes.extend(rates.notes.iter().cloned());
    notes.extend(assumed::notes(facts, &tree, wish.gpu.is_some()));
    notes.extend(remarks(facts));
    let text = toml(facts, &tree, &kinds, &rates, id, &notes);
    let mut machine = Machine::from_toml(&format!("{id}.toml"), &text)?;
    if let Some(difference) = difference(&machine, facts) {
        machine.notes.push(difference);
    }
    Ok(machine)
}

/// The kind of each GPU.
fn kinds(facts: &Facts, wish: &Wish, count: usize) -> Result<Vec<String>> {
    let known = library::kinds()?;
    if let Some(wished) = &wish.gpu {
        if !known.contains_key(wished) {
            let names: Vec<&str> = known.keys().map(String::as_str).collect();
            return Err(
                Fault::new(CODE, format!("no kind of GPU is called `{wished}`")).help(format!("expected one of {}", names.join(", ")))
            );
        }
        return Ok(vec![wished.clone(); count]);
    }
    let kind = |device: usize| facts.gpus.get(device).and_then(|gpu| kind_of(facts, gpu)).unwrap_or(KIND_ASSUMED);
    Ok((0..count).map(|device| kind(device).to_owned()).collect())
}

/// The kind that the driver's name or the PCI device tells.
pub(super) fn kind_of(facts: &Facts, gpu: &Gpu) -> Option<&'static str> {
    let pci = facts.pci.iter().find(|d| d.bus == gpu.bus).map_or("", |d| d.name.as_str());
    KINDS.iter().find(|(part, _)| names(&gpu.name, part) || names(pci, part)).map(|(_, kind)| *kind)
}

/// Whether `part` stands in `text` and no digit follows: an A1000 is no A100.
fn names(text: &str, part: &str) -> bool {
    text.match_indices(part).any(|(at, _)| !text[at + part.len()..].starts_with(|c: char| c.is_ascii_digit()))
}

/// What the settings mean for the machine, in sentences.
fn remarks(facts: &Facts) -> Vec<String> {
    let mut notes = Vec::new();
    match facts.iommu {
        Some(Iommu::Translated) => notes.push(
            "The IOMMU translates: peer traffic goes up to the root, which no rate here accounts for unless it was measured so.".to_owned(),
        ),
        Some(Iommu::PassThrough) => notes.push("The IOMMU passes through.".to_owned()),
        Some(Iommu::Off) => notes.push("The IOMMU is off.".to_owned()),
        None => {}
    }
    let redirecting = facts.pci.iter().filter(|d| d.acs_redirects == Some(true) && d.kind != PciKind::Gpu).count();
    if redirecting > 0 {
        notes.push(format!(
            "Access Control Services redirect peer traffic at {redirecting} ports: pairs of one switch go through the processor."
        ));
    }
    if facts.force_p2p == Some(false) {
        notes.push("The driver was not told ForceP2P: it may stage peer loads in host memory.".to_owned());
    }
    for (score, value, unit) in facts.scores.iter().take(20) {
        notes.push(format!("Measured: {score} = {value} {unit}."));
    }
    notes
}

/// Where the tree does not give back the labels that nvidia-smi shows.
fn difference(machine: &Machine, facts: &Facts) -> Option<String> {
    let labels = facts.labels.as_ref()?;
    let count = labels.cells.len().min(machine.gpus.len());
    let pairs: Vec<(usize, usize)> = (0..count).flat_map(|a| (0..a).map(move |b| (b, a))).collect();
    let wrong: Vec<String> = pairs
        .iter()
        .filter(|(a, b)| machine.smi_label(*a, *b).is_none_or(|l| l != labels.cells[*a][*b].cell()))
        .map(|(a, b)| format!("{a}-{b} {} for {}", machine.smi_label(*a, *b).unwrap_or_default(), labels.cells[*a][*b].cell()))
        .collect();
    (!wrong.is_empty()).then(|| format!("Not as nvidia-smi shows it, {} of {} pairs: {}.", wrong.len(), pairs.len(), wrong.join(", ")))
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.chars().filter(|c| !c.is_control()).collect()).to_string()
}

fn toml(facts: &Facts, tree: &Cabling, kinds: &[String], rates: &Rates, id: &str, notes: &[String]) -> String {
    let mut out = format!("format = 1\nid = {}\nname = {}\n", quoted(id), quoted(&format!("{} GPUs, imported", tree.gpus.len())));
    let notes: Vec<String> = notes.iter().map(|n| quoted(n)).collect();
    list(&mut out, "notes", &notes);
    // Writing to a String cannot fail, here and below.
    let _ = writeln!(out, "peer_access = \"{}\"", if rates.staged { "host-staged" } else { "direct" });
    let socket = |(i, numa): (usize, &u32)| {
        let cpu = facts.cpus.iter().find(|c| c.numa == *numa);
        let (vendor, family, model) = cpu.map_or((CpuVendor::Unknown, 0, 0), |c| (c.vendor, c.family, c.model));
        format!("{{ id = \"cpu{i}\", numa = {numa}, vendor = \"{}\", family = {family}, model = {model} }}", vendor_name(vendor))
    };
    list(&mut out, "sockets", &tree.sockets.iter().enumerate().map(socket).collect::<Vec<_>>());
    list(&mut out, "roots", &(0..tree.roots.len()).map(|i| format!("{{ id = \"root{i}\" }}")).collect::<Vec<_>>());
    let mut switches: Vec<String> = (0..tree.switches.len()).map(|i| format!("{{ id = \"switch{i}\" }}")).collect();
    let (nvlinks, nvswitch) = nvlinks(facts);
    if nvswitch {
        switches.push("{ id = \"nvswitch\" }".to_owned());
    }
    list(&mut out, "switches", &switches);
    let gpu = |(i, kind): (usize, &String)| format!("{{ id = \"gpu{i}\", kind = {} }}", quoted(kind));
    list(&mut out, "gpus", &kinds.iter().enumerate().map(gpu).collect::<Vec<_>>());
    let mut links = links(tree, rates);
    links.extend(nvlinks.iter().map(|(a, b, width)| link(&format!("gpu{a}"), b, &format!("nvlink{width}"))));
    list(&mut out, "links", &links);
    versions(&mut out, facts);
    if let Some(payload) =
        facts.pci.iter().filter(|d| d.kind == PciKind::Gpu).find_map(|d| d.payload_bytes).filter(|p| (64..=4096).contains(p))
    {
        let _ = writeln!(out, "\n[fabric]\nmax_payload_bytes = {{ value = {payload}, source = \"lspci: DevCtl\" }}");
    }
    let widths: BTreeMap<u32, f64> = nvlinks.iter().map(|(.., width)| (*width, rates::nvlink_gbps(*width))).collect();
    for (name, class) in rates.classes() {
        class_text(&mut out, name, class);
    }
    for (width, gbps) in widths {
        let class = Class::nvlink(width, gbps);
        class_text(&mut out, &format!("nvlink{width}"), &class);
    }
    out
}

fn vendor_name(vendor: CpuVendor) -> &'static str {
    match vendor {
        CpuVendor::Amd => "amd",
        CpuVendor::Intel => "intel",
        CpuVendor::Arm => "arm",
        CpuVendor::Power => "power",
        CpuVendor::Unknown => "unknown",
    }
}

fn list(out: &mut String, key: &str, items: &[String]) {
    let _ = writeln!(out, "{key} = [");
    items.iter().for_each(|item| {
        let _ = writeln!(out, "    {item},");
    });
    out.push_str("]\n");
}

fn link(a: &str, b: &str, class: &str) -> String {
    format!("{{ a = \"{a}\", b = \"{b}\", class = \"{class}\" }}")
}

fn links(tree: &Cabling, rates: &Rates) -> Vec<String> {
    let end = |parent: &Parent| match parent {
        Parent::Root(i) => format!("root{i}"),
        Parent::Switch(i) => format!("switch{i}"),
    };
    let mut links: Vec<String> = tree.gpus.iter().enumerate().map(|(i, p)| link(&format!("gpu{i}"), &end(p), rates.gpu_class(i))).collect();
    links.extend(tree.switches.iter().enumerate().map(|(i, p)| {
        let class = if matches!(p, Parent::Root(_)) { "switch-root" } else { "switch-switch" };
        link(&format!("switch{i}"), &end(p), class)
    }));
    links.extend(tree.roots.iter().enumerate().map(|(i, socket)| link(&format!("root{i}"), &format!("cpu{socket}"), "root-socket")));
    // Every socket to every other: the fabric of two or four processors is full.
    for a in 0..tree.sockets.len() {
        links.extend((0..a).map(|b| link(&format!("cpu{b}"), &format!("cpu{a}"), "socket-fabric")));
    }
    links
}

/// Links over NVLink: (GPU, other end, lanes), and whether a switch joins them.
fn nvlinks(facts: &Facts) -> (Vec<(usize, String, u32)>, bool) {
    let Some(labels) = &facts.labels else { return (nvlinks_of_dump(facts), facts.nvlinks.iter().any(|(_, to, _)| to.is_none())) };
    let pairs: Vec<(usize, usize, u32)> = labels
        .cells
        .iter()
        .enumerate()
        .flat_map(|(a, row)| {
            row.iter().enumerate().take(a).filter_map(move |(b, l)| if let Label::Nvlink(n) = l { Some((b, a, *n)) } else { None })
        })
        .collect();
    let count = labels.cells.len();
    let width = pairs.first().map_or(0, |p| p.2);
    // All pairs with all lanes of a GPU: a switch, for no GPU has lanes for each peer.
    if count > 2 && pairs.len() == count * (count - 1) / 2 && pairs.iter().all(|p| p.2 == width) && width as usize * (count - 1) > 18 {
        return ((0..count).map(|g| (g, "nvswitch".to_owned(), width)).collect(), true);
    }
    (pairs.into_iter().map(|(a, b, n)| (a, format!("gpu{b}"), n)).collect(), false)
}

fn nvlinks_of_dump(facts: &Facts) -> Vec<(usize, String, u32)> {
    let device = |bus: &str| facts.gpus.iter().position(|g| g.bus == bus);
    let mut found = Vec::new();
    for (from, to, count) in &facts.nvlinks {
        match (device(from), to.as_deref().map(device)) {
            (Some(a), Some(Some(b))) if a < b => found.push((a, format!("gpu{b}"), *count)),
            (Some(a), None) => found.push((a, "nvswitch".to_owned(), *count)),
            _ => {}
        }
    }
    found
}

fn versions(out: &mut String, facts: &Facts) {
    let v = &facts.versions;
    out.push_str("\n[versions]\n");
    for (key, value) in [("driver", &v.driver), ("cuda", &v.cuda), ("nccl", &v.nccl), ("flashinfer", &v.flashinfer), ("engine", &v.engine)]
    {
        if let Some(value) = value {
            let _ = writeln!(out, "{key} = {}", quoted(value));
        }
    }
}

fn class_text(out: &mut String, name: &str, class: &Class) {
    let number = |n: &crate::knob::Quantity| {
        format!("{{ value = {:?}, low = {:?}, high = {:?}, source = {} }}", n.value, n.low, n.high, quoted(&n.source))
    };
    let _ =
        writeln!(out, "\n[link_classes.{name}]\nmedium = \"{}\"\ngeneration = {}\nwidth = {}", class.medium, class.generation, class.width);
    let _ = writeln!(
        out,
        "forward_gbps = {}\nbackward_gbps = {}\nlatency_ns = {}",
        number(&class.forward),
        number(&class.backward),
        number(&class.latency)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_by_whole_names() {
        let kind = |name: &str| kind_of(&Facts::default(), &Gpu { name: name.to_owned(), ..Gpu::default() });
        assert_eq!(kind("NVIDIA RTX PRO 6000 Blackwell Server Edition"), Some("rtx-pro-6000"));
        assert_eq!(kind("NVIDIA A100-PCIE-40GB"), Some("a100-pcie-80gb"));
        assert_eq!((kind("NVIDIA RTX A1000"), kind("Tesla V100"), kind("")), (None, None, None));
        assert_eq!(kind("NVIDIA GeForce RTX 3090 Ti"), Some("rtx-3090"));
    }
}
