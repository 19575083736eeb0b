//! What a machine is, in tables.

use crate::gpu::detect::Detected;
use crate::gpu::detect::Gpu;
use crate::render::number::Number;
use crate::render::number::to_json;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::report::Report;
use crate::report::reproduce::Reproduce;

/// GPUs, peers, the PCI tree, software and signs of redirected traffic.
pub fn report(found: &Detected, reproduce: Reproduce) -> Report {
    let gpus = gpus(found);
    let section = |heading: &str, blocks| Section { heading: heading.to_owned(), blocks };
    let mut sections = vec![section("GPUs", vec![Block::Table(gpus.clone())])];
    if !found.peers.is_empty() {
        sections.push(section("Peer access", vec![Block::Table(peers(found))]));
    }
    if !found.pci.is_empty() {
        sections.push(section("PCI functions, from the GPUs up", vec![Block::Table(tree(found))]));
    }
    sections.push(section("Software and settings", vec![Block::List(software(found))]));
    if !found.notes.is_empty() {
        sections.push(section("Not seen", vec![Block::List(found.notes.clone())]));
    }
    Report { title: "This machine".to_owned(), sections, rows: gpus, exact: None, json: Some(to_json(found)), reproduce, passed: true }
}

/// One line for the heads of files.
pub fn headline(found: &Detected) -> String {
    let gpu = |g: &Gpu| {
        let link = g.link.map_or_else(String::new, |l| format!(", PCIe Gen{} x{}", l.generation_max, l.width_max));
        format!("{} ({} multiprocessors, {} MiB L2{link})", g.name, g.multiprocessors, g.l2_bytes >> 20)
    };
    let first = found.gpus.first().map_or_else(|| "no GPU".to_owned(), gpu);
    let nccl = found.nccl.as_deref().map_or_else(String::new, |v| format!(", NCCL {v}"));
    let nvrtc = found.nvrtc.as_deref().map_or_else(String::new, |v| format!(", NVRTC {v}"));
    format!("{} x {first}, driver {}, CUDA {}{nvrtc}{nccl}", found.gpus.len(), found.driver, found.cuda)
}

fn gpus(found: &Detected) -> Table {
    let mut rows = Table::new(vec![
        Column::number("gpu", "GPU"),
        Column::text("name", "name"),
        Column::text("pci_address", "PCI address"),
        Column::text("compute_capability", "compute capability"),
        Column::number("multiprocessors", "multiprocessors"),
        Column::number("memory_gib", "memory, GiB"),
        Column::number("l2_mib", "L2, MiB"),
        Column::text("link", "link now (at most)"),
        Column::number("clock_mhz", "clock now, MHz"),
        Column::number("power_w", "power limit, W"),
        Column::text("host", "host memory"),
    ]);
    for gpu in &found.gpus {
        let link = gpu
            .link
            .map_or_else(String::new, |l| format!("Gen{} x{} (Gen{} x{})", l.generation_now, l.width_now, l.generation_max, l.width_max));
        rows.row(vec![
            Number::integer(gpu.ordinal as u64).into(),
            gpu.name.as_str().into(),
            gpu.pci_address.as_str().into(),
            format!("{}.{}", gpu.compute_capability.0, gpu.compute_capability.1).into(),
            Number::integer(u64::from(gpu.multiprocessors)).into(),
            Number::new(gpu.memory_bytes as f64 / f64::from(1 << 30), 1).into(),
            Number::new(gpu.l2_bytes as f64 / f64::from(1 << 20), 0).into(),
            link.into(),
            Number::maybe(gpu.clock_now_mhz.map(f64::from), 0).into(),
            Number::maybe(gpu.power_limit_w, 0).into(),
            if gpu.host_proved { "proved" } else { "data came back wrong" }.into(),
        ]);
    }
    rows
}

fn peers(found: &Detected) -> Table {
    let mut rows = Table::new(vec![
        Column::number("from", "from GPU"),
        Column::number("to", "to GPU"),
        Column::text("claimed", "driver says"),
        Column::text("write", "writes"),
        Column::text("read", "reads"),
        Column::text("atomics", "atomics"),
        Column::number("rank", "driver's rank"),
    ]);
    for peer in &found.peers {
        let proof = |proved: bool| match (peer.claimed, proved) {
            (false, _) => "not tried",
            (true, true) => "proved",
            (true, false) => "data came back wrong",
        };
        rows.row(vec![
            Number::integer(peer.from as u64).into(),
            Number::integer(peer.to as u64).into(),
            if peer.claimed { "access" } else { "no access" }.into(),
            proof(peer.write_proved).into(),
            proof(peer.read_proved).into(),
            if peer.atomics { "native" } else { "none" }.into(),
            Number::new(f64::from(peer.performance_rank), 0).into(),
        ]);
    }
    rows
}

fn tree(found: &Detected) -> Table {
    let mut rows = Table::new(vec![
        Column::text("address", "address"),
        Column::text("parent", "below"),
        Column::text("id", "vendor:device"),
        Column::text("link", "link now (at most)"),
        Column::number("numa", "NUMA node"),
    ]);
    for node in &found.pci {
        let speed = |gts: Option<f64>, width: Option<u32>| match (gts, width) {
            (Some(gts), Some(width)) => format!("{gts} GT/s x{width}"),
            _ => "-".to_owned(),
        };
        let (now, most) = (speed(node.speed_now_gts, node.width_now), speed(node.speed_max_gts, node.width_max));
        rows.row(vec![
            node.address.as_str().into(),
            node.parent.as_deref().unwrap_or(&node.root).into(),
            node.id.as_str().into(),
            format!("{now} ({most})").into(),
            Number::maybe(node.numa.map(f64::from), 0).into(),
        ]);
    }
    rows
}

fn software(found: &Detected) -> Vec<String> {
    let absent = |version: &Option<String>| version.clone().unwrap_or_else(|| "not found".to_owned());
    let signs = &found.redirection;
    let mut all = vec![
        format!("driver {}, CUDA {}, NVRTC {}, NCCL {}", found.driver, found.cuda, absent(&found.nvrtc), absent(&found.nccl)),
        format!("kernel {}", found.kernel),
    ];
    all.extend(found.cpus.iter().map(|cpu| format!("socket {}: {}, {}", cpu.socket, cpu.vendor, cpu.name)));
    all.push(match signs.iommu_groups {
        0 => "no IOMMU is in use".to_owned(),
        groups => format!("an IOMMU is in use, {groups} groups: peer traffic may go through the root complex"),
    });
    if !signs.kernel_options.is_empty() {
        all.push(format!("kernel options: {}", signs.kernel_options.join(" ")));
    }
    all.push(match (signs.acs_readable, signs.acs_redirecting.as_slice()) {
        (_, [first, rest @ ..]) => {
            format!("Access Control Services redirect peer traffic at {}", rest.iter().fold(first.clone(), |a, b| a + ", " + b))
        }
        (true, []) => "no bridge redirects peer traffic (Access Control Services)".to_owned(),
        (false, []) if found.pci.iter().all(|n| n.parent.is_none()) => "no bridge to ask about Access Control Services".to_owned(),
        (false, []) => "whether bridges redirect peer traffic cannot be read: run it as root to see".to_owned(),
    });
    all.extend(found.driver_options.iter().map(|option| format!("driver option {option}")));
    all
}
