//! What `lanecast detect --format json` says, as facts and as checks.

use serde_json::Value;

use crate::error::Fault;
use crate::error::Result;
use crate::import::facts::Facts;
use crate::import::facts::Gpu;
use crate::import::facts::Iommu;
use crate::import::facts::PciDevice;
use crate::import::facts::PciKind;
use crate::import::facts::PciLink;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// As it should be.
    Good,
    /// It can not be told.
    Unknown,
    /// Something to look at.
    Bad,
}

impl Health {
    /// As reports name it.
    pub fn name(self) -> &'static str {
        match self {
            Health::Good => "good",
            Health::Unknown => "not known",
            Health::Bad => "look here",
        }
    }
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// What was looked at.
    pub what: &'static str,
    /// How it came out.
    pub health: Health,
    /// What was seen.
    pub seen: String,
    /// What to do; empty where nothing.
    pub remedy: &'static str,
}

/// Facts and checks of a stored or fresh detection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Detection {
    /// For the diagnosis.
    pub facts: Facts,
    /// For the reader.
    pub checks: Vec<Checked>,
    /// The clock that the driver names for the slowest GPU, GHz.
    pub clock_ghz: Option<f64>,
}

/// Whether a text looks like one.
pub fn is_detection(text: &str) -> bool {
    text.trim_start().starts_with('{') && text.contains("\"redirection\"") && text.contains("\"peers\"")
}

/// Reads the JSON of `name`.
///
/// # Errors
/// `detected` when it is no detection.
pub fn read(name: &str, text: &str) -> Result<Detection> {
    let refuse = |why: String| {
        Fault::new("detected", format!("{name} is no detection: {why}")).help("write one with `lanecast detect --format json`")
    };
    let json: Value = serde_json::from_str(text).map_err(|error| refuse(error.to_string()))?;
    if !json["gpus"].is_array() || !json["redirection"].is_object() {
        return Err(refuse("it has no GPUs or no redirection".to_owned()));
    }
    let facts = facts(&json);
    let checks = vec![gpus(&json), peers(&json), links(&json), acs(&json), iommu(&facts), force_p2p(&facts, &json), power(&json)];
    let clocks = items(&json, "gpus").iter().filter_map(|gpu| gpu["clock_khz"].as_f64());
    let clock_ghz = clocks.reduce(f64::min).map(|khz| khz / 1e6);
    Ok(Detection { facts, checks, clock_ghz })
}

fn items<'a>(json: &'a Value, key: &str) -> &'a [Value] {
    json[key].as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn whole(value: &Value) -> u32 {
    value.as_u64().and_then(|number| u32::try_from(number).ok()).unwrap_or(0)
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(|one| one.as_str().map(str::to_owned)).collect()
}

fn facts(json: &Value) -> Facts {
    let mut facts = Facts::default();
    let filled = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    facts.versions.driver = filled(&json["driver"]);
    facts.versions.cuda = filled(&json["cuda"]);
    facts.versions.nccl = filled(&json["nccl"]);
    facts.gpus =
        items(json, "gpus").iter().map(|gpu| Gpu { name: text(&gpu["name"]), bus: text(&gpu["pci_address"]), numa: None }).collect();
    facts.kernel_options = strings(&json["redirection"]["kernel_options"]);
    facts.iommu = iommu_of(&facts.kernel_options, json["redirection"]["iommu_groups"].as_u64());
    let registry = items(json, "driver_options").iter().filter_map(Value::as_str).find(|option| option.starts_with("RegistryDwords:"));
    facts.force_p2p = registry.map(|option| option.contains("ForceP2P"));
    let redirecting = strings(&json["redirection"]["acs_redirecting"]);
    let readable = json["redirection"]["acs_readable"].as_bool().unwrap_or(false);
    facts.pci = items(json, "pci").iter().map(|node| device(node, &redirecting, readable)).collect();
    facts
}

fn device(node: &Value, redirecting: &[String], readable: bool) -> PciDevice {
    let bus = text(&node["address"]);
    let class = text(&node["class"]);
    let kind = if class.starts_with("0x03") {
        PciKind::Gpu
    } else if class.starts_with("0x0604") {
        PciKind::Bridge
    } else {
        PciKind::Other
    };
    let generation = |value: &Value| crate::import::facts::generation(&value.as_f64().map_or(String::new(), |gts| format!("{gts}")));
    PciDevice {
        acs_redirects: (readable && kind == PciKind::Bridge).then(|| redirecting.contains(&bus)),
        bus,
        parent: node["parent"].as_str().map(str::to_owned),
        kind,
        name: String::new(),
        link: PciLink { generation: generation(&node["speed_now_gts"]), width: whole(&node["width_now"]) },
        link_max: PciLink { generation: generation(&node["speed_max_gts"]), width: whole(&node["width_max"]) },
        payload_bytes: None,
        numa: None,
    }
}

/// Options first; groups without an option may be of either mode.
fn iommu_of(options: &[String], groups: Option<u64>) -> Option<Iommu> {
    let has = |words: &[&str]| options.iter().any(|option| words.contains(&option.as_str()));
    if has(&["iommu=pt", "iommu.passthrough=1"]) {
        Some(Iommu::PassThrough)
    } else if has(&["iommu=off", "amd_iommu=off", "intel_iommu=off"]) || groups == Some(0) {
        Some(Iommu::Off)
    } else if has(&["iommu=on", "intel_iommu=on", "iommu=force", "iommu.passthrough=0", "iommu.strict=1"]) {
        Some(Iommu::Translated)
    } else {
        None
    }
}

fn gpus(json: &Value) -> Checked {
    let names: Vec<String> = items(json, "gpus").iter().map(|gpu| text(&gpu["name"])).collect();
    let alike = names.windows(2).all(|pair| pair[0] == pair[1]);
    let seen =
        format!("{} of {}", names.len(), if alike { names.first().cloned().unwrap_or_default() } else { "different kinds".to_owned() });
    let health = if alike && !names.is_empty() { Health::Good } else { Health::Bad };
    Checked {
        what: "GPUs",
        health,
        seen,
        remedy: if health == Health::Good { "" } else { "the slowest sets the pace of every all-reduce" },
    }
}

fn peers(json: &Value) -> Checked {
    let peers = items(json, "peers");
    let is = |peer: &Value, key: &str| peer[key].as_bool().unwrap_or(false);
    let claimed = peers.iter().filter(|peer| is(peer, "claimed")).count();
    let lost = peers.iter().filter(|peer| is(peer, "claimed") && !(is(peer, "write_proved") && is(peer, "read_proved"))).count();
    let (health, seen, remedy) = match (peers.len(), claimed, lost) {
        (0, ..) => (Health::Unknown, "no pair of GPUs".to_owned(), ""),
        (_, 0, _) => {
            (Health::Bad, "the driver grants none".to_owned(), "everything goes through host memory: see host-staged in docs/diagnosing.md")
        }
        (_, _, lost) if lost > 0 => (
            Health::Bad,
            format!("{lost} pairs lose data that the driver says arrive"),
            "NCCL_P2P_DISABLE=1 until ACS and IOMMU are mended",
        ),
        (all, claimed, _) if claimed < all => {
            (Health::Bad, format!("{claimed} of {all} ordered pairs"), "look at the cabling and at ACS of the others")
        }
        (all, ..) => (Health::Good, format!("all {all} ordered pairs, proved with data"), ""),
    };
    Checked { what: "peer access", health, seen, remedy }
}

fn links(json: &Value) -> Checked {
    let narrow: Vec<String> = items(json, "gpus")
        .iter()
        .filter(|gpu| whole(&gpu["link"]["width_now"]) > 0 && whole(&gpu["link"]["width_now"]) < whole(&gpu["link"]["width_max"]))
        .map(|gpu| format!("{} x{} of x{}", text(&gpu["pci_address"]), whole(&gpu["link"]["width_now"]), whole(&gpu["link"]["width_max"])))
        .collect();
    let known = items(json, "gpus").iter().any(|gpu| gpu["link"].is_object());
    let (health, seen, remedy) = match (known, narrow.is_empty()) {
        (false, _) => (Health::Unknown, "NVML does not say".to_owned(), ""),
        (_, true) => (Health::Good, "all lanes in use (idle links may run at a lower generation)".to_owned(), ""),
        _ => (Health::Bad, narrow.join(", "), "reseat card, cable or riser; look at dmesg for AER errors"),
    };
    Checked { what: "PCIe lanes", health, seen, remedy }
}

fn acs(json: &Value) -> Checked {
    let redirecting = strings(&json["redirection"]["acs_redirecting"]);
    let readable = json["redirection"]["acs_readable"].as_bool().unwrap_or(false);
    let bridges = bridges(json);
    let (health, seen, remedy) = match (redirecting.is_empty(), readable) {
        (false, _) => {
            (Health::Bad, format!("redirects at {}", redirecting.join(", ")), "setpci -s PORT ECAP_ACS+6.w=0000, or off in the BIOS")
        }
        (true, true) => (Health::Good, "no bridge redirects".to_owned(), ""),
        (true, false) if bridges == 0 => (Health::Unknown, "no bridge is visible: a virtual machine hides them".to_owned(), ""),
        (true, false) => (Health::Unknown, "bridges cannot be read".to_owned(), "run it as root"),
    };
    Checked { what: "ACS", health, seen, remedy }
}

fn iommu(facts: &Facts) -> Checked {
    let (health, seen, remedy) = match facts.iommu {
        Some(Iommu::Translated) => (Health::Bad, "translates".to_owned(), "iommu=pt on the kernel's command line"),
        Some(mode) => (Health::Good, format!("{mode:?}"), ""),
        None => (Health::Unknown, "on, its mode is not stated".to_owned(), "dmesg | grep -i \"domain type\" tells; iommu=pt settles it"),
    };
    Checked { what: "IOMMU", health, seen, remedy }
}

/// PCI bridges that can be seen.
fn bridges(json: &Value) -> usize {
    items(json, "pci").iter().filter(|node| text(&node["class"]).starts_with("0x0604")).count()
}

/// Without a switch between GPUs the driver stages peers' loads unless it is told not to.
fn force_p2p(facts: &Facts, json: &Value) -> Checked {
    let switched = bridges(json) > items(json, "gpus").len();
    let (health, seen, remedy) = match (facts.force_p2p, items(json, "peers").is_empty()) {
        (_, true) => (Health::Unknown, "no pair of GPUs".to_owned(), ""),
        (Some(true), _) => (Health::Good, "ForceP2P is set".to_owned(), ""),
        (Some(false), _) if switched => (Health::Good, "not set; GPUs hang from switches".to_owned(), ""),
        _ => (
            Health::Unknown,
            "not set".to_owned(),
            "without switches, custom kernels may be served from system memory: time one against NCCL",
        ),
    };
    Checked { what: "driver's peer mode", health, seen, remedy }
}

fn power(json: &Value) -> Checked {
    let limits: Vec<f64> = items(json, "gpus").iter().filter_map(|gpu| gpu["power_limit_w"].as_f64()).collect();
    let (low, high) = (limits.iter().copied().fold(f64::INFINITY, f64::min), limits.iter().copied().fold(0.0, f64::max));
    let (health, seen, remedy) = match limits.is_empty() {
        true => (Health::Unknown, "NVML does not say".to_owned(), ""),
        false if high > 1.05 * low => {
            (Health::Bad, format!("limits from {low:.0} to {high:.0} W"), "nvidia-smi -pl: the slowest card sets the pace")
        }
        false => (Health::Good, format!("limit {high:.0} W"), ""),
    };
    Checked { what: "power", health, seen, remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = include_str!("../../traces/h200-measured/detect.json");

    #[test]
    fn a_stored_detection_is_read() {
        assert!(is_detection(SAMPLE));
        let read = read("d.json", SAMPLE).expect("reads");
        assert_eq!((read.facts.gpus.len(), read.facts.iommu), (1, Some(Iommu::Off)));
        assert!(read.checks.iter().all(|check| check.health != Health::Bad), "{:?}", read.checks);
    }

    #[test]
    fn signs_of_trouble_are_seen() {
        let text = SAMPLE
            .replace("\"acs_redirecting\": []", "\"acs_redirecting\": [\"0000:40:01.1\"]")
            .replace("\"pci=realloc=off\"", "\"intel_iommu=on\"")
            .replace("\"iommu_groups\": 0", "\"iommu_groups\": 12")
            .replace("\"width_now\": 16", "\"width_now\": 4");
        let bad: Vec<&str> =
            read("d.json", &text).expect("reads").checks.iter().filter(|c| c.health == Health::Bad).map(|c| c.what).collect();
        assert_eq!(bad, ["PCIe lanes", "ACS", "IOMMU"]);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "{}", "[]", "{\"gpus\": 3}", "not json"] {
            assert_eq!(read("d.json", text).expect_err("refused").code, "detected");
        }
    }
}
