//! The PCI tree from sysfs: who hangs below whom, link speeds and widths now
//! and at most, NUMA nodes; and what says that peer traffic may be redirected.

use std::fs;
use std::path::Path;

/// One PCI function on the way from a GPU to its root complex.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct PciNode {
    /// `0000:41:00.0`.
    pub address: String,
    /// The bridge above it; none below the root complex.
    pub parent: Option<String>,
    /// The root complex, e.g. `pci0000:40`.
    pub root: String,
    /// Class, e.g. `0x030200`.
    pub class: String,
    /// Vendor and device, e.g. `0x10de:0x2335`.
    pub id: String,
    /// GT/s now; idle links run slower.
    pub speed_now_gts: Option<f64>,
    /// GT/s at most.
    pub speed_max_gts: Option<f64>,
    /// Lanes now.
    pub width_now: Option<u32>,
    /// Lanes at most.
    pub width_max: Option<u32>,
    /// NUMA node; none where the firmware does not say.
    pub numa: Option<u32>,
}

/// Signs of peer traffic going through the root complex or the IOMMU.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Redirection {
    /// `intel_iommu=…`, `amd_iommu=…`, `iommu=…`, `pci=…`, `pcie_acs_override=…` of the kernel's command line.
    pub kernel_options: Vec<String>,
    /// IOMMU groups that exist; 0: no IOMMU in use.
    pub iommu_groups: usize,
    /// Bridges whose ACS control redirects requests, when the configuration space could be read (root only).
    pub acs_redirecting: Vec<String>,
    /// Whether the bridges' configuration spaces could be read.
    pub acs_readable: bool,
}

/// Nodes from each GPU in `gpus` up to its root, each once, below `sysfs`
/// (`/sys`, or a copy of it).
pub fn tree(sysfs: &Path, gpus: &[String]) -> Vec<PciNode> {
    let mut nodes: Vec<PciNode> = Vec::new();
    for gpu in gpus {
        let Some(chain) = chain(sysfs, gpu) else { continue };
        let root = chain.first().cloned().unwrap_or_default();
        for (i, address) in chain.iter().enumerate().skip(1) {
            if nodes.iter().all(|n| n.address != *address) {
                let parent = if i > 1 { Some(chain[i - 1].clone()) } else { None };
                nodes.push(node(sysfs, address, parent, &root));
            }
        }
    }
    nodes
}

/// `pci0000:40`, bridges from the root down, the device.
fn chain(sysfs: &Path, address: &str) -> Option<Vec<String>> {
    let link = sysfs.join("bus/pci/devices").join(address);
    let real = fs::canonicalize(link).ok()?;
    let names: Vec<String> = real.components().map(|c| c.as_os_str().to_string_lossy().into_owned()).collect();
    let start = names.iter().position(|n| n.starts_with("pci") && n.contains(':'))?;
    Some(names[start..].to_vec())
}

fn node(sysfs: &Path, address: &str, parent: Option<String>, root: &str) -> PciNode {
    let folder = sysfs.join("bus/pci/devices").join(address);
    let text = |name: &str| fs::read_to_string(folder.join(name)).map(|t| t.trim().to_owned()).ok();
    let speed = |name: &str| text(name).and_then(|t| t.split_whitespace().next()?.parse::<f64>().ok());
    // Width 0 and 255 mean that the link is down or unknown.
    let width = |name: &str| text(name).and_then(|t| t.parse::<u32>().ok()).filter(|w| (1..=32).contains(w));
    let part = |name: &str| text(name).unwrap_or_else(|| "?".to_owned());
    PciNode {
        address: address.to_owned(),
        parent,
        root: root.to_owned(),
        class: part("class"),
        id: format!("{}:{}", part("vendor"), part("device")),
        speed_now_gts: speed("current_link_speed"),
        speed_max_gts: speed("max_link_speed"),
        width_now: width("current_link_width"),
        width_max: width("max_link_width"),
        numa: text("numa_node").and_then(|t| t.parse::<i64>().ok()).and_then(|n| u32::try_from(n).ok()),
    }
}

/// Reads the signs below `sysfs` and `procfs` for the bridges of `nodes`.
pub fn redirection(sysfs: &Path, procfs: &Path, nodes: &[PciNode]) -> Redirection {
    let command_line = fs::read_to_string(procfs.join("cmdline")).unwrap_or_default();
    let wanted = ["intel_iommu=", "amd_iommu=", "iommu=", "pci=", "pcie_acs_override="];
    let kernel_options = command_line.split_whitespace().filter(|w| wanted.iter().any(|k| w.starts_with(k))).map(str::to_owned).collect();
    let iommu_groups = fs::read_dir(sysfs.join("kernel/iommu_groups")).map_or(0, |entries| entries.count());
    let mut found = Redirection { kernel_options, iommu_groups, ..Redirection::default() };
    for bridge in nodes.iter().filter(|n| n.class.starts_with("0x0604")) {
        let config = fs::read(sysfs.join("bus/pci/devices").join(&bridge.address).join("config")).unwrap_or_default();
        // An ordinary user reads the first 64 bytes only.
        if config.len() > 256 {
            found.acs_readable = true;
            if acs_control(&config).is_some_and(|control| control & ACS_REDIRECTS != 0) {
                found.acs_redirecting.push(bridge.address.clone());
            }
        }
    }
    found
}

/// Request redirect and completion redirect: bits 2 and 3 of ACS control (PCI
/// Express base specification, 7.7.11.3).
const ACS_REDIRECTS: u16 = 0b1100;

/// The ACS control register of a configuration space of 4096 bytes: extended
/// capability 0x000d, register at offset 6.
fn acs_control(config: &[u8]) -> Option<u16> {
    let word = |at: usize| Some(u16::from_le_bytes([*config.get(at)?, *config.get(at + 1)?]));
    let mut at = 0x100;
    // At most (4096 - 256) / 4 capabilities; a loop in a broken space ends.
    for _ in 0..960 {
        let id = word(at)?;
        if id == 0x000d {
            return word(at + 6);
        }
        at = usize::from(word(at + 2)? >> 4);
        if at < 0x100 {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(root: &Path, path: &str, files: &[(&str, &str)]) {
        let folder = root.join("devices").join(path);
        fs::create_dir_all(&folder).expect("a folder");
        for (name, text) in files {
            fs::write(folder.join(name), text).expect("a file");
        }
        let links = root.join("bus/pci/devices");
        fs::create_dir_all(&links).expect("a folder");
        let name = Path::new(path).file_name().expect("a name");
        std::os::unix::fs::symlink(&folder, links.join(name)).expect("a link");
    }

    #[test]
    fn two_gpus_below_one_switch_share_their_bridges() {
        let root = tempfile::tempdir().expect("a folder");
        let base = "pci0000:40/0000:40:01.1";
        let port = [("class", "0x060400\n"), ("vendor", "0x1000\n"), ("device", "0xc030\n"), ("numa_node", "-1\n")];
        device(root.path(), base, &port);
        device(root.path(), &format!("{base}/0000:41:00.0"), &port);
        for n in [1, 2] {
            device(root.path(), &format!("{base}/0000:41:00.0/0000:42:0{n}.0"), &port);
            let gpu = [
                ("class", "0x030200\n"),
                ("vendor", "0x10de\n"),
                ("device", "0x2bb5\n"),
                ("current_link_speed", "2.5 GT/s PCIe\n"),
                ("max_link_speed", "32.0 GT/s PCIe\n"),
                ("current_link_width", "16\n"),
                ("max_link_width", "16\n"),
                ("numa_node", "1\n"),
            ];
            device(root.path(), &format!("{base}/0000:41:00.0/0000:42:0{n}.0/0000:4{}:00.0", n + 2), &gpu);
        }
        let nodes = tree(root.path(), &["0000:43:00.0".into(), "0000:44:00.0".into()]);
        let names: Vec<&str> = nodes.iter().map(|n| n.address.as_str()).collect();
        assert_eq!(names, ["0000:40:01.1", "0000:41:00.0", "0000:42:01.0", "0000:43:00.0", "0000:42:02.0", "0000:44:00.0"]);
        assert_eq!(nodes[0].parent, None);
        assert_eq!(nodes[4].parent.as_deref(), Some("0000:41:00.0"));
        assert_eq!(
            (nodes[3].speed_now_gts, nodes[3].speed_max_gts, nodes[3].width_max, nodes[3].numa),
            (Some(2.5), Some(32.0), Some(16), Some(1))
        );
        assert_eq!((nodes[0].numa, nodes[0].width_now), (None, None));
        assert!(tree(root.path(), &["0000:99:00.0".into()]).is_empty());
    }

    #[test]
    fn acs_is_found_behind_another_capability() {
        let mut config = vec![0_u8; 4096];
        // At 0x100: capability 1, next 0x148. At 0x148: 0x000d, the last; control = 0x001d.
        config[0x100..0x104].copy_from_slice(&[0x01, 0x00, 0x81, 0x14]);
        config[0x148..0x14c].copy_from_slice(&[0x0d, 0x00, 0x01, 0x00]);
        config[0x14e..0x150].copy_from_slice(&[0x1d, 0x00]);
        assert_eq!(acs_control(&config), Some(0x1d));
        // A loop and a short space end.
        config[0x148..0x14c].copy_from_slice(&[0x02, 0x00, 0x01, 0x10]);
        assert_eq!(acs_control(&config), None);
        assert_eq!(acs_control(&config[..0x101]), None);
    }

    #[test]
    fn signs_come_from_the_command_line() {
        let root = tempfile::tempdir().expect("a folder");
        fs::write(root.path().join("cmdline"), "quiet iommu=pt amd_iommu=on root=/dev/sda\n").expect("a file");
        let found = redirection(root.path(), root.path(), &[]);
        assert_eq!(found.kernel_options, ["iommu=pt", "amd_iommu=on"]);
        assert_eq!((found.iommu_groups, found.acs_readable), (0, false));
    }
}
