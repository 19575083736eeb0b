//! Measured passes of one H200 (`traces/run-h200`) against the simulator:
//! `docs/run-h200.md` is made of the committed traces and is compared with them
//! here; `LANECAST_REGENERATE=1 cargo test --test run_h200` writes it anew.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::path::PathBuf;

use lanecast::case::Answer;
use lanecast::case::LaunchMode;
use lanecast::case::Policy;
use lanecast::case::Question;
use lanecast::case::answer;
use lanecast::import::input::Input;
use lanecast::machine::Machine;
use lanecast::model::Model;
use lanecast::model::Phase;
use lanecast::model::Workload;
use lanecast::plan::Partition;
use lanecast::plan::Plan;
use lanecast::simulate::Options;
use lanecast::strategy::Context;
use lanecast::strategy::Strategy;
use lanecast::trace::record::Header;
use lanecast::trace::record::Reader;
use lanecast::trace::record::Record;

/// Variables without which NCCL's ranks cannot share a GPU.
const SHARED: [(&str, &str); 2] = [("NCCL_MULTI_RANK_GPU_ENABLE", "1"), ("NCCL_NVLS_ENABLE", "0")];

/// Passes that the constants of `h200-own` were fitted on.
const FITTED: [&str; 6] = [
    "kimi-t1-nccl-ring-ll.csv",
    "kimi-t1-one-shot-push.csv",
    "kimi-t1-tp1.csv",
    "kimi-t3-nccl-ring-ll.csv",
    "kimi-t3-one-shot-push.csv",
    "kimi-t3-tp1.csv",
];

struct Pass {
    file: String,
    header: Header,
    rows: Vec<Record>,
    simulated: Answer,
    plan: Plan,
}

fn path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

impl Pass {
    fn number(&self, key: &str) -> f64 {
        self.header.get(key).and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
    }

    fn text(&self, key: &str) -> &str {
        self.header.get(key).unwrap_or("")
    }

    fn measured_ms(&self) -> f64 {
        self.number("total_us") / 1e3
    }

    fn error_pct(&self) -> f64 {
        (self.simulated.pass.ms() / self.measured_ms() - 1.0) * 100.0
    }

    fn fitted(&self) -> bool {
        FITTED.contains(&self.file.as_str())
    }

    /// Milliseconds by kind on rank 0: of operations by themselves, and of what they add to the pass; collectives
    /// by themselves in both.
    fn kinds_ms(&self) -> BTreeMap<&'static str, (f64, f64)> {
        let mut kinds: BTreeMap<&'static str, (f64, f64)> = BTreeMap::new();
        for row in self.rows.iter().filter(|row| row.rank == 0) {
            let of = |key: &str| row.detail(key).and_then(|text| text.parse::<f64>().ok());
            let alone = of("chain_us").unwrap_or(0.0);
            let name = family(&row.detail("kind").unwrap_or("").replace('_', " "));
            let communicates = matches!(name, "all-reduce" | "other communication");
            let kind = kinds.entry(name).or_default();
            kind.0 += alone / 1e3;
            kind.1 += if communicates { alone } else { of("in_pass_us").unwrap_or(alone) } / 1e3;
        }
        kinds
    }

    /// Microseconds of a layer's all-reduce by itself: in the chain, and simulated with the chain's gap.
    fn allreduce_us(&self) -> (f64, f64) {
        let all: Vec<f64> = (self.rows.iter())
            .filter(|row| row.rank == 0 && row.detail("kind") == Some("all-reduce"))
            .filter_map(|row| row.detail("chain_us")?.parse().ok())
            .collect();
        (all.iter().sum::<f64>() / all.len().max(1) as f64, self.simulated.allreduce.mean.us() + chain_gap_us())
    }
}

/// Kinds that run beside each other are one: what is added by whom depends on who is left out.
fn family(kind: &str) -> &'static str {
    match kind {
        "router" | "experts" | "shared expert" => "experts with router",
        "all-reduce" => "all-reduce",
        "other communication" => "other communication",
        "attention" => "attention",
        "projections" => "projections",
        "norms and elementwise" => "norms and elementwise",
        "head" => "head",
        "embedding" => "embedding",
        _ => "sampling",
    }
}

fn load(file: &Path) -> Pass {
    let input = Input::open(file).expect("a committed trace");
    let mut reader = Reader::open(&file.to_string_lossy(), input.stream()).expect("a trace");
    let rows = reader.read_all().expect("its rows");
    let header = reader.header().clone();
    let number = |key: &str| header.get(key).and_then(|text| text.parse::<u64>().ok()).expect(key);
    let (tokens, ranks) = (number("tokens"), number("ranks") as u32);
    let machine = Machine::load(if ranks == 1 { "h200-own" } else { "h200-shared-own" }).expect("embedded");
    let model = Model::load(header.get("model").expect("model")).expect("embedded");
    let workload = Workload::new(if tokens == 1 { Phase::Decode } else { Phase::Verify }, tokens, number("context"));
    let partition = Partition::tensor(ranks);
    let launch = if header.get("launch") == Some("eager") { LaunchMode::Eager } else { LaunchMode::Graph };
    let question = Question { machine: &machine, model: &model, workload, partition, launch };
    let plan = question.plan().expect("a plan");
    assert_eq!(header.get("plan"), Some(format!("{:016x}", plan.hash()).as_str()), "{}: the plan of the trace", file.display());
    let mut context = Context::new(&machine, ranks as usize);
    context.environment.extend(SHARED.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let policy = Policy::single(Strategy::find(header.get("strategy").expect("strategy")).expect("known"));
    let simulated = answer(&question, &plan, &policy, &context, Options { reuse: true, records: false }).expect("an answer");
    let file = file.file_name().expect("a name").to_string_lossy().trim_end_matches(".gz").to_owned();
    Pass { file, header, rows, simulated, plan }
}

fn passes() -> Vec<Pass> {
    let folder = path("traces/run-h200");
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).filter(|p| p.is_file()).collect();
    files.sort();
    files.iter().map(|file| load(file)).collect()
}

fn totals(passes: &[Pass]) -> String {
    let mut text = String::from(
        "| trace | measured, ms | least to most | distinct experts | scale | simulated, ms | error, % | |\n|---|--:|--:|--:|--:|--:|--:|---|\n",
    );
    for pass in passes {
        let _ = writeln!(
            text,
            "| {} | {:.3} | {:.3} to {:.3} | {} | {} | {:.3} | {:+.1} | {} |",
            pass.file.trim_end_matches(".csv"),
            pass.measured_ms(),
            pass.number("total_low_us") / 1e3,
            pass.number("total_high_us") / 1e3,
            pass.text("distinct_experts"),
            pass.text("scale"),
            pass.simulated.pass.ms(),
            pass.error_pct(),
            if pass.fitted() { "fitted" } else { "" }
        );
    }
    text
}

fn kinds(passes: &[Pass]) -> String {
    let mut text = String::from(
        "| trace | kind | by itself, ms | in the pass, ms | simulated, ms | against the pass, % | |\n|---|---|--:|--:|--:|--:|---|\n",
    );
    let in_place = |pass: &&Pass| pass.text("launch") == "graph" && pass.rows.iter().any(|row| row.detail("in_pass_us").is_some());
    for pass in passes.iter().filter(in_place) {
        let gap = pass.simulated.launch.ms() / launches(pass, None).max(1) as f64;
        let mut simulated: BTreeMap<&str, f64> = BTreeMap::new();
        for (kind, share) in pass.simulated.by_kind() {
            *simulated.entry(family(kind)).or_default() += share.time.ms();
        }
        for (kind, (alone, added)) in pass.kinds_ms() {
            // The simulator keeps the gaps between kernels apart. A chain of collectives has a chain's gaps.
            let gap = if kind == "all-reduce" { chain_gap_us() / 1e3 } else { gap };
            let ours = simulated.get(kind).copied().unwrap_or(0.0) + launches(pass, Some(kind)) as f64 * gap;
            if added < 0.1 {
                continue;
            }
            let name = pass.file.trim_end_matches(".csv");
            let fitted = if pass.fitted() { "fitted" } else { "" };
            let _ = writeln!(
                text,
                "| {name} | {kind} | {alone:.3} | {added:.3} | {ours:.3} | {:+.0} | {fitted} |",
                (ours / added - 1.0) * 100.0
            );
        }
    }
    text
}

/// The same pass replayed from a graph and launched from the host, measured and forecast.
fn eager(passes: &[Pass]) -> String {
    let mut text = String::from(
        "| pass | one graph, ms | from the host, ms | longer by, % | forecast: graph | from the host | longer by, % | error of the latter, % |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for eager in passes.iter().filter(|pass| pass.text("launch") == "eager") {
        let same = |pass: &&Pass| {
            let keys = ["model", "tokens", "ranks", "strategy", "context"];
            pass.text("launch") == "graph" && keys.iter().all(|key| pass.text(key) == eager.text(key))
        };
        let Some(graph) = passes.iter().find(same) else { continue };
        let longer = |host: f64, graph: f64| (host / graph - 1.0) * 100.0;
        let (graph_ms, host_ms) = (graph.simulated.pass.ms(), eager.simulated.pass.ms());
        let _ = writeln!(
            text,
            "| {} | {:.2} | {:.2} | {:+.0} | {graph_ms:.2} | {host_ms:.2} | {:+.0} | {:+.1} |",
            graph.file.trim_end_matches(".csv"),
            graph.measured_ms(),
            eager.measured_ms(),
            longer(eager.measured_ms(), graph.measured_ms()),
            longer(host_ms, graph_ms),
            eager.error_pct()
        );
    }
    text
}

fn allreduces(passes: &[Pass]) -> String {
    let mut text = String::from("| trace | in a chain, us | simulated, us | difference, % |\n|---|--:|--:|--:|\n");
    for pass in passes.iter().filter(|pass| pass.text("ranks") != "1" && pass.text("launch") == "graph") {
        let (measured, ours) = pass.allreduce_us();
        let _ = writeln!(
            text,
            "| {} | {measured:.2} | {ours:.2} | {:+.1} |",
            pass.file.trim_end_matches(".csv"),
            (ours / measured - 1.0) * 100.0
        );
    }
    text
}

/// The gap between two kernels of a branch of a graph with eight branches (`graph_gap_q8_us`).
fn chain_gap_us() -> f64 {
    let text = std::fs::read_to_string(path("traces/h200-measured/micro.csv")).expect("readable");
    let row = text.lines().find_map(|line| line.strip_prefix("graph_gap_q8_us,")).expect("measured");
    row.split(',').next().and_then(|value| value.parse().ok()).expect("a number")
}

/// Launches of a rank, of one kind or of all.
fn launches(pass: &Pass, kind: Option<&str>) -> u64 {
    (pass.plan.expand(0).iter())
        .filter(|planned| kind.is_none_or(|kind| family(lanecast::case::kind_of(planned.action)) == kind))
        .map(|planned| planned.action.compute().map_or(1, |op| u64::from(op.launches)))
        .sum()
}

/// Groups of equal model, tokens and launch: strategies by time, both ways.
fn orders(passes: &[Pass]) -> String {
    let mut groups: BTreeMap<(String, String, String), Vec<&Pass>> = BTreeMap::new();
    for pass in passes.iter().filter(|pass| pass.text("ranks") == "8") {
        groups
            .entry((pass.text("model").to_owned(), pass.text("tokens").to_owned(), pass.text("launch").to_owned()))
            .or_default()
            .push(pass);
    }
    let mut text = String::from("| model, tokens, launch | measured order | simulated order |\n|---|---|---|\n");
    for ((model, tokens, launch), mut list) in groups {
        let names = |list: &[&Pass]| list.iter().map(|pass| pass.text("strategy")).collect::<Vec<_>>().join(" < ");
        list.sort_by(|a, b| a.measured_ms().total_cmp(&b.measured_ms()));
        let measured = names(&list);
        list.sort_by_key(|run| run.simulated.pass);
        let _ = writeln!(text, "| {model}, {tokens}, {launch} | {measured} | {} |", names(&list));
    }
    text
}

fn page() -> String {
    let passes = passes();
    let head = std::fs::read_to_string(path("tests/fixtures/run-h200.md")).expect("the page's words");
    head.replace("{{totals}}", totals(&passes).trim_end())
        .replace("{{kinds}}", kinds(&passes).trim_end())
        .replace("{{allreduces}}", allreduces(&passes).trim_end())
        .replace("{{eager}}", eager(&passes).trim_end())
        .replace("{{orders}}", orders(&passes).trim_end())
}

#[test]
fn the_page_is_made_of_the_committed_traces() {
    let at = path("docs/run-h200.md");
    let fresh = page();
    if std::env::var_os("LANECAST_REGENERATE").is_some() {
        std::fs::write(&at, &fresh).expect("written");
    }
    let committed = std::fs::read_to_string(&at).expect("docs/run-h200.md");
    assert!(fresh == committed, "docs/run-h200.md is not made of the traces: LANECAST_REGENERATE=1 cargo test --test run_h200");
}

#[test]
fn traces_say_how_they_were_made() {
    for pass in passes() {
        for key in ["strategy", "plan", "gpu", "total_us", "totals_us", "clock_ghz", "copy_gbps", "weights", "timing", "seed"] {
            assert!(pass.header.get(key).is_some(), "{}: {key}", pass.file);
        }
        assert!(!pass.header.get("checked").unwrap_or("").contains("wrong,") || pass.text("checked").contains(" 0 wrong"), "{}", pass.file);
    }
}
