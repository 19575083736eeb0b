//! A machine as NCCL's topology XML, for `NCCL_TOPO_FILE`.
//!
//! NCCL knows no host bridges, no virtual switches of one chip and no links
//! between switches: what hangs from a socket's bridges hangs from its CPU.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::machine::CpuVendor;
use crate::machine::Link;
use crate::machine::Machine;
use crate::machine::Medium;
use crate::machine::NodeId;
use crate::machine::NodeKind;

/// NCCL's class of a bridge, a GPU and an NVSwitch.
const CLASS_BRIDGE: &str = "0x060400";
const CLASS_GPU: &str = "0x030200";
const CLASS_NVSWITCH: &str = "0x068000";

/// The bus id that stands for any NVSwitch.
const NVSWITCH_BUS: &str = "fffffff:ffff:ff";

/// The XML of `machine`. Bus ids are made up, in the order of the file; device
/// numbers are the machine's.
pub fn write(machine: &Machine) -> String {
    let mut children: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
    let mut buses: BTreeMap<NodeId, String> = BTreeMap::new();
    for &gpu in &machine.gpus {
        // GPU, switches, bridge, socket: bridges are left out.
        let chain: Vec<NodeId> =
            machine.ancestors(gpu).into_iter().filter(|n| !matches!(machine.nodes[n.0].kind, NodeKind::RootPort)).collect();
        for pair in chain.windows(2) {
            let below = children.entry(pair[1]).or_default();
            if !below.contains(&pair[0]) {
                below.push(pair[0]);
            }
        }
    }
    let mut out = String::from("<system version=\"1\">\n");
    for socket in machine.sockets().collect::<Vec<_>>() {
        number(socket, &children, machine, &mut buses);
    }
    for socket in machine.sockets() {
        let NodeKind::Socket { numa, vendor, family, model } = machine.nodes[socket.0].kind else { continue };
        let (arch, vendor) = match vendor {
            CpuVendor::Amd => ("x86_64", "AuthenticAMD"),
            CpuVendor::Intel => ("x86_64", "GenuineIntel"),
            CpuVendor::Arm => ("arm64", ""),
            CpuVendor::Power => ("ppc64", ""),
            CpuVendor::Unknown => ("x86_64", ""),
        };
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(out, "  <cpu numaid=\"{numa}\" arch=\"{arch}\" vendor=\"{vendor}\" familyid=\"{family}\" modelid=\"{model}\">");
        for child in children.get(&socket).into_iter().flatten() {
            element(machine, *child, &children, &buses, 2, &mut out);
        }
        out.push_str("  </cpu>\n");
    }
    out.push_str("</system>\n");
    out
}

fn number(node: NodeId, children: &BTreeMap<NodeId, Vec<NodeId>>, machine: &Machine, buses: &mut BTreeMap<NodeId, String>) {
    if !matches!(machine.nodes[node.0].kind, NodeKind::Socket { .. }) {
        let next = buses.len() + 1;
        buses.insert(node, format!("{:04x}:{:02x}:00.0", next / 256, next % 256));
    }
    for child in children.get(&node).into_iter().flatten() {
        number(*child, children, machine, buses);
    }
}

fn element(
    machine: &Machine,
    node: NodeId,
    children: &BTreeMap<NodeId, Vec<NodeId>>,
    buses: &BTreeMap<NodeId, String>,
    depth: usize,
    out: &mut String,
) {
    let indent = "  ".repeat(depth);
    let device = machine.gpus.iter().position(|g| *g == node);
    let class = if device.is_some() { CLASS_GPU } else { CLASS_BRIDGE };
    let bus = buses.get(&node).map_or("", String::as_str);
    let (speed, width) = link_up(machine, node);
    let _ = writeln!(
        out,
        "{indent}<pci busid=\"{bus}\" class=\"{class}\" vendor=\"0x0000\" device=\"0x0000\" subsystem_vendor=\"0x0000\" subsystem_device=\"0x0000\" link_speed=\"{speed} GT/s PCIe\" link_width=\"{width}\">"
    );
    if let Some(device) = device {
        let sm = machine.gpu_kind(device).map_or(0, |k| k.compute_capability.0 * 10 + k.compute_capability.1);
        let _ = writeln!(out, "{indent}  <gpu dev=\"{device}\" sm=\"{sm}\" rank=\"{device}\" gdr=\"1\">");
        nvlinks(machine, node, buses, &format!("{indent}    "), out);
        let _ = writeln!(out, "{indent}  </gpu>");
    }
    for child in children.get(&node).into_iter().flatten() {
        element(machine, *child, children, buses, depth + 1, out);
    }
    let _ = writeln!(out, "{indent}</pci>");
}

/// Speed and width of the link towards the socket; 5.0 x16 where the machine does not say.
fn link_up(machine: &Machine, node: NodeId) -> (&'static str, u32) {
    let parent = machine.ancestors(node).get(1).copied();
    let joins = |l: &&Link| parent.is_some_and(|p| (l.a == node && l.b == p) || (l.a == p && l.b == node));
    let link = machine.links.iter().filter(|l| l.medium == Medium::Pcie).find(joins);
    let speed = match link.map_or(0, |l| l.generation) {
        1 => "2.5",
        2 => "5.0",
        3 => "8.0",
        4 => "16.0",
        6 => "64.0",
        _ => "32.0",
    };
    (speed, link.map(|l| l.width).filter(|w| (1..=16).contains(w)).unwrap_or(16))
}

fn nvlinks(machine: &Machine, gpu: NodeId, buses: &BTreeMap<NodeId, String>, indent: &str, out: &mut String) {
    for link in machine.links.iter().filter(|l| l.medium == Medium::Nvlink && (l.a == gpu || l.b == gpu)) {
        let other = if link.a == gpu { link.b } else { link.a };
        let is_gpu = machine.gpus.contains(&other);
        let (target, class) =
            if is_gpu { (buses.get(&other).map_or("", String::as_str), CLASS_GPU) } else { (NVSWITCH_BUS, CLASS_NVSWITCH) };
        let _ = writeln!(out, "{indent}<nvlink target=\"{target}\" count=\"{}\" tclass=\"{class}\"/>", link.width.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::machine;
    use crate::import::machine::Wish;
    use crate::import::nccl_topology;
    use crate::machine::route::Endpoint;

    #[test]
    fn nccl_sees_the_same_paths_in_the_file() {
        for id in Machine::ids() {
            let machine = Machine::load(id).expect(id);
            let xml = write(&machine);
            let outcome = nccl_topology::read("topo.xml", &xml).expect(id);
            let again =
                machine::machine(&outcome.facts, &Wish { id: id.to_owned(), gpu: Some("h200".to_owned()), ..Wish::default() }).expect(id);
            assert_eq!(again.gpus.len(), machine.gpus.len(), "{id}");
            for a in 0..machine.gpus.len() {
                for b in 0..machine.gpus.len() {
                    let path = |m: &Machine| m.route(Endpoint::Gpu(a), Endpoint::Gpu(b)).expect("a way").path;
                    assert_eq!(path(&again), path(&machine), "{id}: {a} to {b}\n{xml}");
                }
            }
        }
    }
}
