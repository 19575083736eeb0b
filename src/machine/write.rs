//! Writing a machine as TOML that reads back to the same machine.
//!
//! By hand rather than through serde, so that numbers stay inline tables and
//! nodes and links one line each.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::knob::Constants;
use crate::knob::Quantity;
use crate::machine::check;
use crate::machine::read::FORMAT;
use crate::machine::*;

/// A TOML string. TOML's basic strings escape what JSON's do.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn number(quantity: &Quantity) -> String {
    let Quantity { value, low, high, source } = quantity;
    if low == value && high == value && source.is_empty() {
        return format!("{value:?}");
    }
    format!("{{ value = {value:?}, low = {low:?}, high = {high:?}, source = {} }}", quoted(source))
}

impl Machine {
    /// The machine as a file of format 1, complete in itself: kinds are
    /// written out, whatever library they came from.
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_toml(&mut out);
        out
    }

    fn write_toml(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "format = {FORMAT}\nid = {}\nname = {}", quoted(&self.id), quoted(&self.name))?;
        list(out, "notes", &self.notes.iter().map(|note| quoted(note)).collect::<Vec<_>>(), true)?;
        let access = match self.peer_access {
            PeerAccess::Direct => "direct",
            PeerAccess::HostStaged => "host-staged",
            PeerAccess::DriverStaged => "driver-staged",
        };
        writeln!(out, "peer_access = \"{access}\"")?;
        if self.redirects_peers {
            writeln!(out, "redirects_peers = true")?;
        }
        writeln!(out, "ranks_per_gpu = {}\n", self.ranks_per_gpu)?;
        self.write_nodes(out)?;
        self.write_versions(out)?;
        writeln!(out, "\n[fabric]")?;
        constants(out, &self.fabric)?;
        self.write_classes(out)?;
        for (id, kind) in &self.kinds {
            write_kind(out, id, kind)?;
        }
        for collapse in &self.collapses {
            writeln!(out, "\n[[collapses]]\nat = {}", quoted(&collapse.at))?;
            writeln!(out, "sources_min = {}\nroots_min = {}", collapse.sources_min, collapse.roots_min)?;
            writeln!(out, "write_gbps = {}", number(&collapse.write_gbps))?;
        }
        Ok(())
    }

    fn write_nodes(&self, out: &mut String) -> std::fmt::Result {
        let (mut sockets, mut roots, mut switches) = (Vec::new(), Vec::new(), Vec::new());
        for node in &self.nodes {
            let id = quoted(&node.id);
            match &node.kind {
                NodeKind::Socket { numa, vendor, family, model } => {
                    let vendor = vendor_name(*vendor);
                    sockets.push(format!("{{ id = {id}, numa = {numa}, vendor = \"{vendor}\", family = {family}, model = {model} }}"));
                }
                NodeKind::RootPort => roots.push(format!("{{ id = {id} }}")),
                NodeKind::Switch { chip: Some(chip) } => switches.push(format!("{{ id = {id}, chip = {} }}", quoted(chip))),
                NodeKind::Switch { chip: None } => switches.push(format!("{{ id = {id} }}")),
                NodeKind::Gpu { .. } => {}
            }
        }
        let gpu = |node: &NodeId| match &self.nodes[node.0] {
            Node { id, kind: NodeKind::Gpu { kind } } => format!("{{ id = {}, kind = {} }}", quoted(id), quoted(kind)),
            Node { id, .. } => format!("{{ id = {}, kind = \"\" }}", quoted(id)),
        };
        let id = |node: NodeId| quoted(&self.nodes[node.0].id);
        let link = |link: &Link| format!("{{ a = {}, b = {}, class = {} }}", id(link.a), id(link.b), quoted(&link.class));
        list(out, "sockets", &sockets, true)?;
        list(out, "roots", &roots, true)?;
        list(out, "switches", &switches, false)?;
        list(out, "gpus", &self.gpus.iter().map(gpu).collect::<Vec<_>>(), true)?;
        list(out, "links", &self.links.iter().map(link).collect::<Vec<_>>(), true)
    }

    fn write_versions(&self, out: &mut String) -> std::fmt::Result {
        let Versions { driver, cuda, nccl, flashinfer, engine } = &self.versions;
        let named = [("driver", driver), ("cuda", cuda), ("nccl", nccl), ("flashinfer", flashinfer), ("engine", engine)];
        writeln!(out, "\n[versions]")?;
        for (name, version) in named {
            if let Some(version) = version {
                writeln!(out, "{name} = {}", quoted(version))?;
            }
        }
        Ok(())
    }

    fn write_classes(&self, out: &mut String) -> std::fmt::Result {
        let mut classes: BTreeMap<&str, &Link> = BTreeMap::new();
        for link in &self.links {
            classes.entry(&link.class).or_insert(link);
        }
        for (class, link) in classes {
            writeln!(out, "\n[link_classes.{class}]\nmedium = \"{}\"", check::medium(link.medium))?;
            writeln!(out, "generation = {}\nwidth = {}", link.generation, link.width)?;
            for spec in LinkConstants::specs() {
                if let Some(quantity) = link.quantity(spec.name) {
                    writeln!(out, "{} = {}", spec.name, number(quantity))?;
                }
            }
        }
        Ok(())
    }
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

/// One item a line; an empty list only where the file must have it.
fn list(out: &mut String, key: &str, items: &[String], required: bool) -> std::fmt::Result {
    if items.is_empty() {
        return if required { writeln!(out, "{key} = []") } else { Ok(()) };
    }
    writeln!(out, "{key} = [")?;
    for item in items {
        writeln!(out, "    {item},")?;
    }
    writeln!(out, "]")
}

fn constants<C: Constants>(out: &mut String, constants: &C) -> std::fmt::Result {
    for spec in C::specs() {
        if let Some(quantity) = constants.quantity(spec.name) {
            writeln!(out, "{} = {}", spec.name, number(quantity))?;
        }
    }
    Ok(())
}

fn write_kind(out: &mut String, id: &str, kind: &GpuKind) -> std::fmt::Result {
    let id = quoted(id);
    let (major, minor) = kind.compute_capability;
    writeln!(out, "\n[kinds.{id}]\nname = {}\ncompute_capability = [{major}, {minor}]", quoted(&kind.name))?;
    writeln!(out, "sms = {}\nmemory_bytes = {}\nl2_bytes = {}", kind.sms, kind.memory_bytes, kind.l2_bytes)?;
    writeln!(out, "\n[kinds.{id}.chip]")?;
    constants(out, &kind.chip)?;
    writeln!(out, "\n[kinds.{id}.launch]")?;
    constants(out, &kind.launch)?;
    writeln!(out, "\n[kinds.{id}.kernels]")?;
    constants(out, &kind.kernels)?;
    writeln!(out, "\n[kinds.{id}.protocol]")?;
    constants(out, &kind.protocol)
}
