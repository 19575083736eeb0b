//! The PCI tree from a folder: `/sys/bus/pci/devices`, `/sys/devices`, or a
//! copy of either. The tree is in the paths.

use std::collections::BTreeMap;
use std::fs;
use std::path::Component;
use std::path::Path;
use std::path::PathBuf;

use crate::error::Fault;
use crate::error::Result;
use crate::import::facts;
use crate::import::facts::Gpu;
use crate::import::facts::PciDevice;
use crate::import::facts::PciKind;
use crate::import::facts::PciLink;
use crate::import::formats::Format;
use crate::import::formats::Looks;
use crate::import::formats::Read;
use crate::import::outcome::Outcome;
use crate::import::pci_tree;

/// A folder of sysfs.
pub(super) const FORMAT: Format =
    Format { kind: "sysfs", looks: Looks::Nothing, read: Read::Path("give /sys/bus/pci/devices or a copy: it is a folder") };

/// Folders visited at most.
const FOLDERS_MAX: usize = 200_000;

/// Depth of folders at most; a PCI device lies some ten deep.
const DEPTH_MAX: usize = 40;

/// Reads the tree below `folder`.
///
/// # Errors
/// `io`; `import-sysfs` where no PCI device is found.
pub fn read(folder: &Path) -> Result<Outcome> {
    let mut places: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut visited = 0;
    collect(folder, 0, &mut visited, &mut places)?;
    let name = folder.display().to_string();
    let mut outcome = Outcome::default();
    // A device's bridges appear in its path even where the folder lists only links.
    let known: Vec<(String, PathBuf)> = places.into_iter().collect();
    let mut devices: BTreeMap<String, PciDevice> = BTreeMap::new();
    for (bus, path) in &known {
        let ancestors = ancestors(path);
        let mut parent = None;
        for (ancestor, place) in &ancestors {
            devices.entry(ancestor.clone()).or_insert_with(|| device(ancestor, place, parent.clone()));
            parent = Some(ancestor.clone());
        }
        if ancestors.is_empty() {
            devices.insert(bus.clone(), device(bus, path, None));
        }
    }
    tell_bridges_apart(&mut devices);
    let devices: Vec<PciDevice> = devices.into_values().collect();
    let count = |kind: PciKind| devices.iter().filter(|d| d.kind == kind).count();
    if devices.is_empty() {
        return Err(
            Fault::new("import-sysfs", format!("{name} holds no PCI device")).help("give /sys/bus/pci/devices, /sys/devices or a copy")
        );
    }
    outcome.understood(format!(
        "{name}: {} GPUs, {} switches, {} root ports (sysfs)",
        count(PciKind::Gpu),
        count(PciKind::SwitchUp),
        count(PciKind::RootPort)
    ));
    outcome.skipped(format!("{name}: {} other devices", count(PciKind::Other) + count(PciKind::Nic)));
    outcome.facts.gpus =
        devices.iter().filter(|d| d.kind == PciKind::Gpu).map(|d| Gpu { bus: d.bus.clone(), numa: d.numa, ..Gpu::default() }).collect();
    outcome.facts.pci = devices;
    Ok(outcome)
}

fn collect(folder: &Path, depth: usize, visited: &mut usize, places: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    *visited += 1;
    if depth > DEPTH_MAX || *visited > FOLDERS_MAX {
        return Ok(());
    }
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if depth == 0 => return Err(Fault::io("list", folder, &error)),
        Err(_) => return Ok(()),
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    paths.sort();
    for path in paths {
        let bus = path.file_name().and_then(|n| address(&n.to_string_lossy()));
        let link = path.is_symlink();
        if let Some(bus) = bus
            && path.join("class").is_file()
        {
            let place = if link { fs::canonicalize(&path).unwrap_or_else(|_| path.clone()) } else { path.clone() };
            places.insert(bus, place);
        }
        if !link && path.is_dir() {
            collect(&path, depth + 1, visited, places)?;
        }
    }
    Ok(())
}

/// The name of a device's folder, `0000:03:00.0` and nothing shorter.
fn address(name: &str) -> Option<String> {
    if name.matches(':').count() == 2 && name.contains('.') { facts::bus_id(name) } else { None }
}

/// The devices in a path, outermost first, the path's own last.
fn ancestors(path: &Path) -> Vec<(String, PathBuf)> {
    let mut place = PathBuf::new();
    let mut found = Vec::new();
    for component in path.components() {
        place.push(component);
        if let Component::Normal(name) = component
            && let Some(bus) = address(&name.to_string_lossy())
        {
            found.push((bus, place.clone()));
        }
    }
    found
}

fn device(bus: &str, place: &Path, parent: Option<String>) -> PciDevice {
    let file = |name: &str| {
        let mut text = String::new();
        let opened = fs::File::open(place.join(name)).ok();
        let read = opened.map(|f| std::io::Read::read_to_string(&mut std::io::Read::take(f, 256), &mut text));
        if matches!(read, Some(Ok(_))) { text.trim().to_owned() } else { String::new() }
    };
    let hex = |name: &str| u32::from_str_radix(file(name).trim_start_matches("0x"), 16).unwrap_or(0);
    let link = |speed: &str, width: &str| PciLink {
        generation: facts::generation(&file(speed)),
        width: file(width).parse().ok().filter(|w| *w <= 32).unwrap_or(0),
    };
    let kind = match (hex("class") >> 8, hex("vendor")) {
        (0x0604, _) => PciKind::Bridge,
        (0x0300 | 0x0302, 0x10de) => PciKind::Gpu,
        (0x0200 | 0x0207, _) => PciKind::Nic,
        _ => PciKind::Other,
    };
    PciDevice {
        bus: bus.to_owned(),
        parent,
        kind,
        name: format!("{:04x}:{:04x}", hex("vendor"), hex("device")),
        link: link("current_link_speed", "current_link_width"),
        link_max: link("max_link_speed", "max_link_width"),
        payload_bytes: None,
        acs_redirects: None,
        numa: file("numa_node").parse::<i64>().ok().and_then(|n| u32::try_from(n).ok()),
    }
}

/// Bridges at the processor are root ports; below them ports of switches alternate.
fn tell_bridges_apart(devices: &mut BTreeMap<String, PciDevice>) {
    for (bus, kind) in pci_tree::kinds_by_depth(devices.values()) {
        if let Some(device) = devices.get_mut(&bus) {
            device.kind = kind;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_in_the_paths() {
        let folder = tempfile::tempdir().expect("a folder");
        let gpu = folder.path().join("pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.0/0000:03:00.0");
        fs::create_dir_all(&gpu).expect("folders");
        let mut at = gpu.clone();
        for class in ["0x030200", "0x060400", "0x060400", "0x060400"] {
            for (file, content) in [
                ("class", class),
                ("vendor", "0x10de"),
                ("numa_node", "1\n"),
                ("current_link_speed", "32.0 GT/s PCIe"),
                ("current_link_width", "16"),
            ] {
                fs::write(at.join(file), content).expect("a file");
            }
            at.pop();
        }
        let facts = read(folder.path()).expect("reads").facts;
        let kinds: Vec<PciKind> = facts.pci.iter().map(|d| d.kind).collect();
        assert_eq!(kinds, [PciKind::RootPort, PciKind::SwitchUp, PciKind::SwitchDown, PciKind::Gpu]);
        assert_eq!(facts.pci[3].parent.as_deref(), Some("0000:02:00.0"));
        assert_eq!((facts.pci[3].link.generation, facts.pci[3].numa, facts.gpus.len()), (5, Some(1), 1));
    }

    #[test]
    fn empty_and_missing_folders_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(read(folder.path()).map(|_| ()).expect_err("empty").code, "import-sysfs");
        assert_eq!(read(&folder.path().join("none")).map(|_| ()).expect_err("missing").code, "io");
    }
}
