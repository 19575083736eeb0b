//! Telling what a file is by its first bytes, and by its name where those do not.

use crate::error::Fault;
use crate::error::Result;
use crate::import::aiconfigurator;
use crate::import::crossover;
use crate::import::host_settings;
use crate::import::input;
use crate::import::json_tree;
use crate::import::lspci;
use crate::import::nccl_log;
use crate::import::nccl_tests;
use crate::import::nsys_csv;
use crate::import::nvbandwidth;
use crate::import::p2p_test;
use crate::import::p2pmark;
use crate::import::serving;
use crate::import::summary;
use crate::import::topo_matrix;

/// A foreign format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ForeignKind {
    /// `nvidia-smi topo -m`.
    TopoMatrix,
    /// `lspci -vv`.
    Lspci,
    /// A folder of sysfs.
    Sysfs,
    /// NCCL topology XML.
    NcclTopology,
    /// NCCL graph XML.
    NcclGraph,
    /// p2pBandwidthLatencyTest.
    P2pTest,
    /// nvbandwidth, JSON.
    NvbandwidthJson,
    /// nvbandwidth, text.
    NvbandwidthText,
    /// p2pmark.
    P2pmark,
    /// `/proc/cmdline`.
    KernelCmdline,
    /// `/proc/driver/nvidia/params`.
    DriverParams,
    /// nccl-tests, text.
    NcclTestsText,
    /// nccl-tests, JSON.
    NcclTestsJson,
    /// rccl-tests, JSON lines.
    RcclTestsJson,
    /// NCCL inspector.
    Inspector,
    /// `NCCL_DEBUG=INFO`.
    NcclLog,
    /// Start-up crossover log of an engine.
    Crossover,
    /// AIConfigurator's table of collectives.
    AiConfigurator,
    /// torch.profiler.
    Kineto,
    /// nsys `cuda_gpu_trace`.
    NsysTrace,
    /// nsys SQLite export.
    NsysSqlite,
    /// nsys `cuda_gpu_kern_sum`.
    NsysSummary,
    /// SGLang's and vLLM's benchmarks.
    Serving,
}

impl ForeignKind {
    /// All kinds with the names that `--kind` takes.
    pub const ALL: [(ForeignKind, &'static str); 23] = [
        (ForeignKind::TopoMatrix, "topo-matrix"),
        (ForeignKind::Lspci, "lspci"),
        (ForeignKind::Sysfs, "sysfs"),
        (ForeignKind::NcclTopology, "nccl-topology"),
        (ForeignKind::NcclGraph, "nccl-graph"),
        (ForeignKind::P2pTest, "p2p-test"),
        (ForeignKind::NvbandwidthJson, "nvbandwidth-json"),
        (ForeignKind::NvbandwidthText, "nvbandwidth"),
        (ForeignKind::P2pmark, "p2pmark"),
        (ForeignKind::KernelCmdline, "cmdline"),
        (ForeignKind::DriverParams, "driver-params"),
        (ForeignKind::NcclTestsText, "nccl-tests"),
        (ForeignKind::NcclTestsJson, "nccl-tests-json"),
        (ForeignKind::RcclTestsJson, "rccl-tests-json"),
        (ForeignKind::Inspector, "nccl-inspector"),
        (ForeignKind::NcclLog, "nccl-log"),
        (ForeignKind::Crossover, "crossover"),
        (ForeignKind::AiConfigurator, "aiconfigurator"),
        (ForeignKind::Kineto, "kineto"),
        (ForeignKind::NsysTrace, "nsys-trace"),
        (ForeignKind::NsysSqlite, "nsys-sqlite"),
        (ForeignKind::NsysSummary, "nsys-summary"),
        (ForeignKind::Serving, "serving"),
    ];

    /// The name that `--kind` takes.
    pub fn name(self) -> &'static str {
        ForeignKind::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }

    /// From the name that `--kind` takes.
    ///
    /// # Errors
    /// `import-unknown` naming all kinds.
    pub fn from_name(name: &str) -> Result<ForeignKind> {
        ForeignKind::ALL.iter().find(|(_, n)| *n == name).map(|(kind, _)| *kind).ok_or_else(|| {
            let names: Vec<&str> = ForeignKind::ALL.iter().map(|(_, n)| *n).collect();
            Fault::new("import-unknown", format!("no kind of file is called `{name}`"))
                .help(format!("expected one of {}", names.join(", ")))
        })
    }
}

/// What a file is that begins with `head` and is called `name`.
///
/// # Errors
/// `import-unknown`, naming the keys of JSON that is not known; `import-empty`.
pub fn detect_kind(head: &[u8], name: &str) -> Result<ForeignKind> {
    if head.starts_with(input::SQLITE_MAGIC) {
        return Ok(ForeignKind::NsysSqlite);
    }
    let text = String::from_utf8_lossy(head);
    let start = text.trim_start();
    if let Some(fault) = own(start, name) {
        return Err(fault);
    }
    match start.chars().next() {
        None => Err(Fault::new("import-empty", format!("{name} is empty"))),
        Some('{' | '[') if !start.starts_with("[P2P") && !start.starts_with("[TP") => match json_kind(head) {
            Some(kind) => Ok(kind),
            // Logs may begin with a bracket.
            None => text_kind(&text).ok_or_else(|| unknown_json(head, name)),
        },
        Some('<') => xml_kind(start).ok_or_else(|| unknown(name)),
        Some(_) => text_kind(&text).or_else(|| kind_by_name(name)).ok_or_else(|| unknown(name)),
    }
}

/// First lines of this program's own files, and what reads them.
const OWN: [(&str, &str, &str); 5] = [
    ("format = 1\nid = ", "a machine file", "give it to --machine"),
    ("# lanecast-trace ", "a trace of this program", "it needs no import"),
    ("machine,ranks,implementation,", "a file of observations", "give it to lanecast validate"),
    ("machine,engine,benchmark,", "a file of serving observations", "it needs no import"),
    ("contents = \"facts\"", "a file of facts", "import the files that it was made of"),
];

/// Files that need no import are called by name.
fn own(start: &str, name: &str) -> Option<Box<Fault>> {
    // Observations may begin with comments.
    let plain = start.lines().find(|line| !line.starts_with('#') || line.starts_with("# lanecast-trace")).unwrap_or("");
    let (_, what, help) = OWN.iter().find(|(begin, ..)| start.starts_with(begin) || plain.starts_with(begin))?;
    Some(Fault::new("import-own", format!("{name} is {what} already")).help(*help))
}

fn unknown(name: &str) -> Box<Fault> {
    let names: Vec<&str> = ForeignKind::ALL.iter().map(|(_, n)| *n).collect();
    Fault::new("import-unknown", format!("{name} is of no kind that is recognised"))
        .help(format!("say what it is with --kind: {}", names.join(", ")))
}

fn unknown_json(head: &[u8], name: &str) -> Box<Fault> {
    let keys: Vec<String> = json_tree::keys_of(head).into_iter().take(30).map(|k| k.chars().take(60).collect()).collect();
    let keys = if keys.is_empty() { "no keys at the top".to_owned() } else { format!("the keys {}", keys.join(", ")) };
    Fault::new("import-unknown", format!("{name} is JSON of no kind that is recognised: it has {keys}"))
        .help("expected a torch profiler trace, nvbandwidth, nccl-tests, rccl-tests, NCCL inspector, or a benchmark of SGLang or vLLM")
}

fn json_kind(head: &[u8]) -> Option<ForeignKind> {
    let keys = json_tree::keys_of(head);
    let has = |key: &str| keys.iter().any(|k| k == key);
    if has("traceEvents") || has("deviceProperties") && has("schemaVersion") || has("ph") && (has("ts") || has("pid")) {
        Some(ForeignKind::Kineto)
    } else if has("nvbandwidth") {
        Some(ForeignKind::NvbandwidthJson)
    } else if has("coll_perf") || has("header") && has("metadata") {
        Some(ForeignKind::Inspector)
    } else if has("algBw") && has("busBw") {
        Some(ForeignKind::RcclTestsJson)
    } else if has("nccl_version") || has("config") && has("results") && has("args") {
        Some(ForeignKind::NcclTestsJson)
    } else if serving::detect(&keys) {
        Some(ForeignKind::Serving)
    } else {
        None
    }
}

fn xml_kind(start: &str) -> Option<ForeignKind> {
    if start.contains("<graphs") {
        Some(ForeignKind::NcclGraph)
    } else if start.contains("<system") {
        Some(ForeignKind::NcclTopology)
    } else {
        None
    }
}

/// Whether a text looks like one kind.
type Test = fn(&str) -> bool;

/// What a text looks like, by the first test that fits.
fn text_kind(text: &str) -> Option<ForeignKind> {
    const LAST: [(Test, ForeignKind); 2] = [
        (|t| t.lines().any(|l| l.starts_with("NCCL version ")), ForeignKind::NcclLog),
        (|t| t.contains("busbw"), ForeignKind::NcclTestsText),
    ];
    let last = || LAST.iter().find(|(test, _)| test(text)).map(|(_, kind)| *kind);
    text_kinds(text).first().copied().or_else(last)
}

/// All that a text looks like: outputs of several tools may be pasted together.
pub fn text_kinds(text: &str) -> Vec<ForeignKind> {
    let tests: [(Test, ForeignKind); 13] = [
        (|t| t.lines().any(nsys_csv::is_header), ForeignKind::NsysTrace),
        (|t| t.lines().any(summary::is_header), ForeignKind::NsysSummary),
        (aiconfigurator::detect, ForeignKind::AiConfigurator),
        (p2p_test::detect, ForeignKind::P2pTest),
        (nvbandwidth::detect, ForeignKind::NvbandwidthText),
        (p2pmark::detect, ForeignKind::P2pmark),
        // The table of a benchmark may stand between lines of NCCL's log.
        (nccl_tests::detect, ForeignKind::NcclTestsText),
        (crossover::detect, ForeignKind::Crossover),
        (nccl_log::detect, ForeignKind::NcclLog),
        (topo_matrix::detect, ForeignKind::TopoMatrix),
        (lspci::detect, ForeignKind::Lspci),
        (host_settings::detect_params, ForeignKind::DriverParams),
        (host_settings::detect_cmdline, ForeignKind::KernelCmdline),
    ];
    tests.iter().filter(|(test, _)| test(text)).map(|(_, kind)| *kind).collect()
}

fn kind_by_name(name: &str) -> Option<ForeignKind> {
    let file = name.rsplit(['/', '\\']).next().unwrap_or(name);
    match file {
        "cmdline" => Some(ForeignKind::KernelCmdline),
        "params" => Some(ForeignKind::DriverParams),
        _ if file.contains("lspci") => Some(ForeignKind::Lspci),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told() {
        for (text, kind) in [
            ("{\"schemaVersion\":1,\"traceEvents\":[", ForeignKind::Kineto),
            ("[{\"ph\":\"X\",\"ts\":1", ForeignKind::Kineto),
            ("{\"nvbandwidth\":{", ForeignKind::NvbandwidthJson),
            ("{\"header\":{},\"metadata\":{},\"coll_perf\":{}}", ForeignKind::Inspector),
            ("{\"#wrong\":\"0\",\"algBw\":1,\"busBw\":1}", ForeignKind::RcclTestsJson),
            ("{\"version\":3,\"args\":[],\"env\":[],\"nccl_version\":1", ForeignKind::NcclTestsJson),
            ("{\"num_prompts\":1,\"output_throughput\":1}", ForeignKind::Serving),
            ("<?xml version=\"1.0\"?><system version=\"1\">", ForeignKind::NcclTopology),
            ("<graphs version=\"1\">", ForeignKind::NcclGraph),
            ("NOTICE: x\nStart (ns),Duration (ns),CorrId,Name\n", ForeignKind::NsysTrace),
            ("Time (%),Total Time (ns),Instances,Name\n", ForeignKind::NsysSummary),
            ("[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\nP2P Connectivity Matrix\n", ForeignKind::P2pTest),
            ("h:1:2 [0] NCCL INFO Bootstrap\n", ForeignKind::NcclLog),
            ("\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tPIX\t X \n", ForeignKind::TopoMatrix),
            ("BOOT_IMAGE=/vmlinuz root=x quiet", ForeignKind::KernelCmdline),
            ("ResmanDebugLevel: 1\nRegistryDwords: \"\"\n", ForeignKind::DriverParams),
        ] {
            assert_eq!(detect_kind(text.as_bytes(), "x").expect(text), kind, "{text}");
        }
    }

    #[test]
    fn unknown_json_is_refused_by_its_keys() {
        let fault = detect_kind(br#"{"alpha":1,"beta":{"gamma":2}}"#, "x.json").expect_err("unknown");
        assert!(fault.message.contains("alpha, beta"), "{}", fault.message);
        assert!(detect_kind(b"", "x").is_err());
        assert!(detect_kind(b"hello", "x").is_err());
        assert!(detect_kind(b"<html>", "x").is_err());
    }

    #[test]
    fn own_files_are_called_by_name() {
        for (text, word) in [
            ("format = 1\nid = \"x\"\n", "machine file"),
            ("# lanecast-trace 1\n# source = imported\n", "trace"),
            ("# why\nmachine,ranks,implementation,algorithm\n", "observations"),
            ("contents = \"facts\"\nformat = 1\n", "facts"),
        ] {
            let fault = detect_kind(text.as_bytes(), "x").expect_err(word);
            assert!(fault.code == "import-own" && fault.message.contains(word), "{fault}");
        }
    }

    #[test]
    fn names_come_back() {
        for (kind, name) in ForeignKind::ALL {
            assert_eq!((ForeignKind::from_name(name).expect(name), kind.name()), (kind, name));
        }
        assert!(ForeignKind::from_name("x").is_err());
    }
}
