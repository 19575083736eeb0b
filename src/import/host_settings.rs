//! `/proc/cmdline` and `/proc/driver/nvidia/params`: settings that decide how
//! peers reach each other. Only the few options that bear on PCIe are taken.

use crate::error::Fault;
use crate::error::Result;
use crate::import::facts::Iommu;
use crate::import::formats::Format;
use crate::import::formats::Looks;
use crate::import::formats::Read;
use crate::import::outcome::Outcome;

/// `/proc/cmdline`.
pub(super) const FORMAT_CMDLINE: Format = Format { kind: "cmdline", looks: Looks::Text(detect_cmdline), read: Read::Text(read_cmdline) };

/// `/proc/driver/nvidia/params`.
pub(super) const FORMAT_PARAMS: Format = Format { kind: "driver-params", looks: Looks::Text(detect_params), read: Read::Text(read_params) };

/// Keys of the kernel's command line that are kept.
const KERNEL_KEYS: &[&str] =
    &["iommu", "amd_iommu", "intel_iommu", "iommu.passthrough", "iommu.strict", "pci", "pcie_acs_override", "pcie_aspm", "pcie_ports"];

/// Options of the driver that are kept.
const DRIVER_KEYS: &[&str] = &[
    "RegistryDwords",
    "EnableResizableBar",
    "EnablePCIeGen3",
    "EnablePCIERelaxedOrderingMode",
    "EnableMSI",
    "GrdmaPciTopoCheckOverride",
    "EnableStreamMemOPs",
];

/// Whether `head` looks like a kernel's command line.
pub fn detect_cmdline(head: &str) -> bool {
    let one_line = head.trim().lines().count() == 1;
    one_line
        && head.split_whitespace().any(|w| {
            w.starts_with("BOOT_IMAGE=")
                || w.starts_with("root=")
                || w.starts_with("iommu=")
                || w.starts_with("amd_iommu=")
                || w.starts_with("intel_iommu=")
        })
}

/// Whether `head` looks like the driver's parameters.
pub fn detect_params(head: &str) -> bool {
    head.lines().any(|l| l.starts_with("RegistryDwords:") || l.starts_with("ResmanDebugLevel:"))
}

/// Reads a kernel's command line.
///
/// # Errors
/// `import-cmdline` where the text is no single line.
pub fn read_cmdline(name: &str, text: &str) -> Result<Outcome> {
    if text.trim().lines().count() != 1 {
        return Err(Fault::new("import-cmdline", format!("{name} is not one line")).help("expected the content of /proc/cmdline"));
    }
    let mut outcome = Outcome::default();
    let words: Vec<(&str, &str)> = text.split_whitespace().map(|w| w.split_once('=').unwrap_or((w, ""))).collect();
    let has = |key: &str, value: &str| words.iter().any(|(k, v)| *k == key && v.split(',').any(|part| part == value));
    outcome.facts.iommu = if has("iommu", "off") || has("amd_iommu", "off") || has("intel_iommu", "off") {
        Some(Iommu::Off)
    } else if has("iommu", "pt") || has("amd_iommu", "pt") || has("iommu.passthrough", "1") {
        Some(Iommu::PassThrough)
    } else if has("amd_iommu", "on") || has("intel_iommu", "on") || has("iommu", "on") || has("iommu", "force") {
        Some(Iommu::Translated)
    } else {
        None
    };
    match outcome.facts.iommu {
        Some(Iommu::Translated) => outcome.warn(format!(
            "{name}: the IOMMU translates device addresses: peer traffic goes up to the root (15 % slower at best, NCCL may hang); iommu=pt avoids it"
        )),
        None => outcome.warn(format!("{name}: nothing about the IOMMU: the kernel's default holds, which differs by distribution")),
        _ => {}
    }
    outcome.facts.kernel_options = words
        .iter()
        .filter(|(k, _)| KERNEL_KEYS.contains(k))
        .map(|(k, v)| if v.is_empty() { (*k).to_owned() } else { format!("{k}={v}") })
        .collect();
    let kept = outcome.facts.kernel_options.len();
    outcome.understood(format!("{name}: {kept} options that bear on PCIe (kernel command line)"));
    outcome.skipped(format!("{name}: {} other options", words.len() - kept));
    Ok(outcome)
}

/// Reads the driver's parameters.
///
/// # Errors
/// `import-params` where there is no `Key: value` line.
pub fn read_params(name: &str, text: &str) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let pairs: Vec<(&str, &str)> =
        text.lines().filter_map(|l| l.split_once(':')).map(|(k, v)| (k.trim(), v.trim().trim_matches('"'))).collect();
    if pairs.is_empty() {
        return Err(Fault::new("import-params", format!("{name} holds no `Key: value` lines"))
            .help("expected the content of /proc/driver/nvidia/params"));
    }
    for (key, value) in pairs.iter().filter(|(k, v)| DRIVER_KEYS.contains(k) && !v.is_empty()) {
        outcome.facts.driver_options.insert((*key).to_owned(), (*value).to_owned());
    }
    let registry = pairs.iter().find(|(k, _)| *k == "RegistryDwords").map_or("", |(_, v)| *v);
    let force = registry.split([';', ' ']).filter_map(|p| p.split_once('=')).find(|(k, _)| k.trim() == "ForceP2P");
    outcome.facts.force_p2p = Some(force.is_some_and(|(_, v)| v.trim() != "0" && v.trim() != "0x0"));
    if outcome.facts.force_p2p == Some(false) {
        outcome.warn(format!(
            "{name}: RegistryDwords has no ForceP2P: on direct-attached machines the driver may stage peer loads in host memory"
        ));
    }
    let kept = outcome.facts.driver_options.len();
    outcome.understood(format!("{name}: {kept} options (NVIDIA driver)"));
    outcome.skipped(format!("{name}: {} other options", pairs.len() - kept));
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_iommu_is_told() {
        let of = |text: &str| read_cmdline("cmdline", text).expect("one line").facts.iommu;
        assert_eq!(of("BOOT_IMAGE=/vmlinuz root=UUID=x ro amd_iommu=on iommu=pt"), Some(Iommu::PassThrough));
        assert_eq!(of("root=/dev/sda1 intel_iommu=on,sm_on"), Some(Iommu::Translated));
        assert_eq!(of("root=/dev/sda1 iommu=off"), Some(Iommu::Off));
        assert_eq!(of("root=/dev/sda1 quiet"), None);
        assert!(read_cmdline("cmdline", "a\nb").is_err());
    }

    #[test]
    fn secrets_on_the_command_line_stay_there() {
        let outcome = read_cmdline("cmdline", "root=x iommu=pt rescue.password=hunter2 ip=10.0.0.1").expect("one line");
        assert!(!format!("{outcome:?}").contains("hunter2"));
    }

    #[test]
    fn forced_peer_access_is_told() {
        let of = |text: &str| read_params("params", text).expect("pairs").facts.force_p2p;
        assert_eq!(of("ResmanDebugLevel: 4294967295\nRegistryDwords: \"ForceP2P=0x11;RMForceP2PType=1\"\n"), Some(true));
        assert_eq!(of("RegistryDwords: \"\"\n"), Some(false));
        assert_eq!(of("RegistryDwords: \"ForceP2P=0x0\"\n"), Some(false));
        assert!(read_params("params", "").is_err());
    }
}
