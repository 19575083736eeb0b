//! Telling what a file is by its first bytes, and by its name where those do not.

use crate::error::Fault;
use crate::error::Result;
use crate::import::formats::FORMATS;
use crate::import::formats::ForeignKind;
use crate::import::formats::Looks;
use crate::import::formats::SQLITE;
use crate::import::formats::names;
use crate::import::input;
use crate::import::json_tree;

/// What a file is that begins with `head` and is called `name`.
///
/// # Errors
/// `import-unknown`, naming the keys of JSON that is not known; `import-empty`.
pub fn detect_kind(head: &[u8], name: &str) -> Result<ForeignKind> {
    if head.starts_with(input::SQLITE_MAGIC) {
        return Ok(ForeignKind::of(SQLITE.kind));
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
    Fault::new("import-unknown", format!("{name} is of no kind that is recognised"))
        .help(format!("say what it is with --kind: {}", names()))
}

fn unknown_json(head: &[u8], name: &str) -> Box<Fault> {
    let keys: Vec<String> = json_tree::keys_of(head).into_iter().take(30).map(|k| k.chars().take(60).collect()).collect();
    let keys = if keys.is_empty() { "no keys at the top".to_owned() } else { format!("the keys {}", keys.join(", ")) };
    Fault::new("import-unknown", format!("{name} is JSON of no kind that is recognised: it has {keys}"))
        .help("expected a torch profiler trace, nvbandwidth, nccl-tests, rccl-tests, NCCL inspector, or a benchmark of SGLang or vLLM")
}

/// The first format that `fits`.
fn first(fits: impl Fn(Looks) -> bool) -> Option<ForeignKind> {
    FORMATS.iter().find(|format| fits(format.looks)).map(|format| ForeignKind::of(format.kind))
}

fn json_kind(head: &[u8]) -> Option<ForeignKind> {
    let keys = json_tree::keys_of(head);
    let has = |key: &str| keys.iter().any(|k| k == key);
    first(|looks| matches!(looks, Looks::Json(test) if test(&has)))
}

fn xml_kind(start: &str) -> Option<ForeignKind> {
    first(|looks| matches!(looks, Looks::Xml(element) if start.contains(element)))
}

/// What a text looks like, by the first test that fits.
fn text_kind(text: &str) -> Option<ForeignKind> {
    let log = || text.lines().any(|line| line.starts_with("NCCL version ")).then_some(ForeignKind::of("nccl-log"));
    let benchmark = || text.contains("busbw").then_some(ForeignKind::of("nccl-tests"));
    text_kinds(text).first().copied().or_else(log).or_else(benchmark)
}

/// All that a text looks like: outputs of several tools may be pasted together.
pub fn text_kinds(text: &str) -> Vec<ForeignKind> {
    let fits = FORMATS.iter().filter(|format| matches!(format.looks, Looks::Text(test) if test(text)));
    fits.map(|format| ForeignKind::of(format.kind)).collect()
}

fn kind_by_name(name: &str) -> Option<ForeignKind> {
    let file = name.rsplit(['/', '\\']).next().unwrap_or(name);
    match file {
        "cmdline" => Some(ForeignKind::of("cmdline")),
        "params" => Some(ForeignKind::of("driver-params")),
        _ if file.contains("lspci") => Some(ForeignKind::of("lspci")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told() {
        for (text, kind) in [
            ("{\"schemaVersion\":1,\"traceEvents\":[", ForeignKind::of("kineto")),
            ("[{\"ph\":\"X\",\"ts\":1", ForeignKind::of("kineto")),
            ("{\"nvbandwidth\":{", ForeignKind::of("nvbandwidth-json")),
            ("{\"header\":{},\"metadata\":{},\"coll_perf\":{}}", ForeignKind::of("nccl-inspector")),
            ("{\"#wrong\":\"0\",\"algBw\":1,\"busBw\":1}", ForeignKind::of("rccl-tests-json")),
            ("{\"version\":3,\"args\":[],\"env\":[],\"nccl_version\":1", ForeignKind::of("nccl-tests-json")),
            ("{\"num_prompts\":1,\"output_throughput\":1}", ForeignKind::of("serving")),
            ("<?xml version=\"1.0\"?><system version=\"1\">", ForeignKind::of("nccl-topology")),
            ("<graphs version=\"1\">", ForeignKind::of("nccl-graph")),
            ("NOTICE: x\nStart (ns),Duration (ns),CorrId,Name\n", ForeignKind::of("nsys-trace")),
            ("Time (%),Total Time (ns),Instances,Name\n", ForeignKind::of("nsys-summary")),
            ("[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\nP2P Connectivity Matrix\n", ForeignKind::of("p2p-test")),
            ("h:1:2 [0] NCCL INFO Bootstrap\n", ForeignKind::of("nccl-log")),
            ("\tGPU0\tGPU1\nGPU0\t X \tPIX\nGPU1\tPIX\t X \n", ForeignKind::of("topo-matrix")),
            ("BOOT_IMAGE=/vmlinuz root=x quiet", ForeignKind::of("cmdline")),
            ("ResmanDebugLevel: 1\nRegistryDwords: \"\"\n", ForeignKind::of("driver-params")),
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
}
