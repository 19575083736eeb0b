//! Serving benchmarks: SGLang's `bench_one_batch` and `bench_serving`, vLLM's
//! `bench serve`, as JSON or JSONL; and the CSV of serving observations.
//!
//! Per-request lists and texts of detailed files are passed over, not read.

use std::collections::BTreeMap;
use std::io::Read;

use serde_json::Value;

use crate::error::Fault;
use crate::error::Result;
use crate::import::formats;
use crate::import::formats::Format;
use crate::import::formats::Looks;
use crate::import::json::Json;
use crate::import::json::Next;
use crate::import::json_tree;
use crate::import::outcome::Outcome;
use crate::import::outcome::base_name;
use crate::trace::line;
use crate::trace::table;
use crate::trace::table::Table;

/// SGLang's and vLLM's benchmarks.
pub(super) const FORMAT: Format =
    Format { kind: "serving", looks: Looks::Json(|has| benchmark(has).is_some()), read: formats::Read::Stream(read) };

const CODE: &str = "import-serving";

/// Runs taken from one file at most.
const RUNS_MAX: usize = 100_000;

/// Columns that hold numbers, in the order of [`ServingObservation::numbers`].
const NUMBERS: [&str; 20] = [
    "concurrency",
    "request_rate",
    "batch",
    "input_tokens",
    "output_tokens",
    "requests",
    "duration_s",
    "output_tokens_per_s",
    "total_tokens_per_s",
    "ttft_ms",
    "ttft_p99_ms",
    "tpot_ms",
    "itl_ms",
    "itl_p99_ms",
    "e2e_ms",
    "accepted_length",
    "acceptance_pct",
    "drafts",
    "draft_tokens",
    "accepted_tokens",
];

/// One benchmark run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServingObservation {
    /// Machine id; empty when not known.
    pub machine: String,
    /// `sglang` or `vllm`.
    pub engine: String,
    /// The benchmark: `one_batch`, `serving`.
    pub benchmark: String,
    /// Model as the file names it.
    pub model: String,
    /// Name → value, for the names in the header after `model`.
    pub numbers: BTreeMap<&'static str, f64>,
    /// Share of drafts accepted at each position, 0 to 1.
    pub acceptance: Vec<f64>,
    /// Where the numbers come from.
    pub source: String,
}

impl ServingObservation {
    /// A number by its column.
    pub fn number(&self, column: &str) -> Option<f64> {
        self.numbers.get(column).copied()
    }
}

/// The header of the CSV.
pub fn columns() -> String {
    format!("machine,engine,benchmark,model,{},acceptance_per_position,source", NUMBERS.join(","))
}

/// Foreign key, column, factor; the mean is preferred to the median.
const SGLANG_SERVING: &[(&str, &str, f64)] = &[
    ("max_concurrency", "concurrency", 1.0),
    ("request_rate", "request_rate", 1.0),
    ("random_input_len", "input_tokens", 1.0),
    ("random_output_len", "output_tokens", 1.0),
    ("completed", "requests", 1.0),
    ("duration", "duration_s", 1.0),
    ("output_throughput", "output_tokens_per_s", 1.0),
    ("total_throughput", "total_tokens_per_s", 1.0),
    ("mean_ttft_ms", "ttft_ms", 1.0),
    ("p99_ttft_ms", "ttft_p99_ms", 1.0),
    ("mean_tpot_ms", "tpot_ms", 1.0),
    ("mean_itl_ms", "itl_ms", 1.0),
    ("p99_itl_ms", "itl_p99_ms", 1.0),
    ("mean_e2e_latency_ms", "e2e_ms", 1.0),
    ("accept_length", "accepted_length", 1.0),
];

/// As [`SGLANG_SERVING`]; times are seconds.
const SGLANG_ONE_BATCH: &[(&str, &str, f64)] = &[
    ("batch_size", "batch", 1.0),
    ("input_len", "input_tokens", 1.0),
    ("output_len", "output_tokens", 1.0),
    ("prefill_latency", "ttft_ms", 1000.0),
    ("median_decode_latency", "itl_ms", 1000.0),
    ("median_decode_throughput", "output_tokens_per_s", 1.0),
    ("total_latency", "e2e_ms", 1000.0),
    ("overall_throughput", "total_tokens_per_s", 1.0),
];

/// As [`SGLANG_SERVING`].
const VLLM_SERVING: &[(&str, &str, f64)] = &[
    ("max_concurrency", "concurrency", 1.0),
    ("request_rate", "request_rate", 1.0),
    ("completed", "requests", 1.0),
    ("duration", "duration_s", 1.0),
    ("output_throughput", "output_tokens_per_s", 1.0),
    ("total_token_throughput", "total_tokens_per_s", 1.0),
    ("mean_ttft_ms", "ttft_ms", 1.0),
    ("p99_ttft_ms", "ttft_p99_ms", 1.0),
    ("mean_tpot_ms", "tpot_ms", 1.0),
    ("mean_itl_ms", "itl_ms", 1.0),
    ("p99_itl_ms", "itl_p99_ms", 1.0),
    ("mean_e2el_ms", "e2e_ms", 1.0),
    ("spec_decode_acceptance_length", "accepted_length", 1.0),
    ("spec_decode_acceptance_rate", "acceptance_pct", 1.0),
    ("spec_decode_num_drafts", "drafts", 1.0),
    ("spec_decode_draft_tokens", "draft_tokens", 1.0),
    ("spec_decode_accepted_tokens", "accepted_tokens", 1.0),
];

/// Which benchmark the keys of an object belong to: engine, name, table of keys.
type Benchmark = (&'static str, &'static str, &'static [(&'static str, &'static str, f64)]);

fn benchmark(has: impl Fn(&str) -> bool) -> Option<Benchmark> {
    if has("prefill_latency") || has("median_decode_latency") {
        Some(("sglang", "one_batch", SGLANG_ONE_BATCH))
    } else if has("mean_e2e_latency_ms") || has("input_throughput") {
        Some(("sglang", "serving", SGLANG_SERVING))
    } else if has("total_token_throughput") || has("mean_e2el_ms") || has("num_prompts") && has("output_throughput") {
        Some(("vllm", "serving", VLLM_SERVING))
    } else {
        None
    }
}

/// Reads one object, a list or one object a line.
///
/// # Errors
/// `json`; `import-serving` naming the keys where no benchmark is recognised.
pub fn read(name: &str, input: impl Read) -> Result<Outcome> {
    let mut json = Json::new(name, input);
    let mut outcome = Outcome::default();
    while !json.at_end()? {
        if json.next_is()? == Next::Array {
            json.enter_array()?;
            while json.next_item()? {
                take(name, &mut json, &mut outcome)?;
            }
        } else {
            take(name, &mut json, &mut outcome)?;
        }
    }
    if outcome.serving.is_empty() {
        return Err(Fault::new(CODE, format!("{name} holds no run")));
    }
    let runs = outcome.serving.len();
    outcome.understood(format!("{name}: {runs} runs of {} {}", outcome.serving[0].engine, outcome.serving[0].benchmark));
    Ok(outcome)
}

fn take<R: Read>(name: &str, json: &mut Json<R>, outcome: &mut Outcome) -> Result<()> {
    let mut values: BTreeMap<String, Value> = BTreeMap::new();
    let mut lists = 0;
    let mut key = String::new();
    json.enter_object()?;
    while json.next_key(&mut key)? {
        let wanted = key == "spec_decode_per_position_acceptance_rates" || matches!(json.next_is()?, Next::Word | Next::Text);
        if wanted && values.len() < 1000 {
            values.insert(key.clone(), json.tree()?);
        } else {
            lists += 1;
            json.skip()?;
        }
    }
    let Some((engine, benchmark, table)) = benchmark(|key| values.contains_key(key)) else {
        let keys: Vec<&str> = values.keys().map(String::as_str).take(30).collect();
        return Err(Fault::new(CODE, format!("{name} is no benchmark that is known; its keys are {}", keys.join(", ")))
            .help("expected the JSON of SGLang's bench_one_batch or bench_serving, or of vLLM's bench serve"));
    };
    if outcome.serving.len() >= RUNS_MAX {
        return Err(Fault::new(CODE, format!("{name} holds more than {RUNS_MAX} runs")));
    }
    let text = |key: &str| values.get(key).and_then(Value::as_str).unwrap_or("").chars().take(200).collect::<String>();
    let mut run = ServingObservation {
        engine: engine.to_owned(),
        benchmark: benchmark.to_owned(),
        model: [text("model_id"), text("model"), text("model_path")].into_iter().find(|m| !m.is_empty()).unwrap_or_default(),
        source: base_name(name).to_owned(),
        ..ServingObservation::default()
    };
    for (key, column, factor) in table {
        // A rate of "inf" means that all requests were sent at once: no number.
        if let Some(number) = values.get(*key).and_then(json_tree::number).map(|n| n * factor).filter(|n| n.is_finite() && *n >= 0.0) {
            // Six decimals: a product such as 0.0122 × 1000 has noise beyond.
            run.numbers.insert(column, line::trimmed(number, 6).parse().unwrap_or(number));
        }
    }
    per_request(&values, &mut run);
    if let Some(Value::Array(rates)) = values.get("spec_decode_per_position_acceptance_rates") {
        run.acceptance = rates.iter().filter_map(json_tree::number).filter(|r| (0.0..=1.0).contains(r)).take(64).collect();
    }
    check(name, &run, outcome);
    if lists > 0 && outcome.skipped.is_empty() {
        outcome.skipped(format!("{name}: lists of single requests and texts"));
    }
    outcome.serving.push(run);
    Ok(())
}

/// Mean lengths from the totals, where the file does not give them.
fn per_request(values: &BTreeMap<String, Value>, run: &mut ServingObservation) {
    let Some(requests) = run.number("requests").filter(|r| *r > 0.0) else { return };
    for (key, column) in [("total_input_tokens", "input_tokens"), ("total_output_tokens", "output_tokens")] {
        if let (Some(total), None) = (values.get(key).and_then(json_tree::number), run.number(column)) {
            run.numbers.insert(column, total / requests);
        }
    }
}

/// Time per token = time between chunks ÷ tokens per chunk, or something is off.
fn check(name: &str, run: &ServingObservation, outcome: &mut Outcome) {
    if let (Some(tpot), Some(itl), Some(length)) = (run.number("tpot_ms"), run.number("itl_ms"), run.number("accepted_length")) {
        let expected = itl / length.max(1.0);
        // SGLang's client spreads a chunk's time over its tokens: there it is a time per token already.
        let spread = run.engine == "sglang" && (0.8..=1.25).contains(&(tpot / itl));
        if !spread && length > 1.0 && expected > 0.0 && !(0.8..=1.25).contains(&(tpot / expected)) {
            outcome.warn(format!(
                "{name}: time per token {tpot:.2} ms does not fit {itl:.2} ms between chunks of {length:.2} tokens ({expected:.2} ms)"
            ));
        }
    }
    if run.benchmark == "one_batch" && outcome.warnings.is_empty() {
        outcome.warn(format!("{name}: bench_one_batch never speculates: its decode time is a plain step's"));
    }
}

/// The CSV of `runs`.
pub fn write_csv(runs: &[ServingObservation]) -> String {
    let mut out = format!("{}\n", columns());
    for run in runs {
        for text in [&run.machine, &run.engine, &run.benchmark, &run.model] {
            line::push_field(&mut out, text);
            out.push(',');
        }
        for column in NUMBERS {
            out.push_str(&run.number(column).map_or(String::new(), |n| line::trimmed(n, 6)));
            out.push(',');
        }
        let rates: Vec<String> = run.acceptance.iter().map(|r| line::trimmed(*r, 6)).collect();
        out.push_str(&rates.join(";"));
        out.push(',');
        line::push_field(&mut out, &run.source);
        out.push('\n');
    }
    out
}

/// Reads the CSV that [`write_csv`] writes.
///
/// # Errors
/// `import-serving` with the line.
pub fn read_csv(name: &str, bytes: &[u8]) -> Result<Vec<ServingObservation>> {
    let mut table = Table::open(name, table::text_of(name, bytes)?, CODE, &["engine"])?;
    let mut runs = Vec::new();
    while let Some(row) = table.next_row()? {
        let mut run = ServingObservation {
            machine: row.text("machine").to_owned(),
            engine: row.text("engine").to_owned(),
            benchmark: row.text("benchmark").to_owned(),
            model: row.text("model").to_owned(),
            source: row.text("source").to_owned(),
            ..ServingObservation::default()
        };
        for column in NUMBERS {
            if let Some(number) = row.number(column, 0.0..=1e15)? {
                run.numbers.insert(column, number);
            }
        }
        for rate in row.text("acceptance_per_position").split(';').filter(|r| !r.is_empty()) {
            let rate = rate.parse::<f64>().ok().filter(|r| (0.0..=1.0).contains(r));
            run.acceptance
                .push(rate.ok_or_else(|| row.fault("acceptance_per_position", "holds no share", "shares from 0 to 1 joined by `;`"))?);
        }
        runs.push(run);
    }
    if runs.is_empty() { Err(table.no_rows()) } else { Ok(runs) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VLLM: &str = r#"{"date":"x","model_id":"moonshotai/Kimi-K2.5","num_prompts":8,"max_concurrency":1,"request_rate":"inf","duration":10.0,"completed":8,
        "total_input_tokens":8000,"total_output_tokens":1600,"output_throughput":107.0,"total_token_throughput":640.0,"mean_ttft_ms":200.5,"mean_tpot_ms":9.3,
        "mean_itl_ms":20.1,"p99_itl_ms":25,"mean_e2el_ms":2000,"spec_decode_acceptance_rate":38.5,"spec_decode_acceptance_length":2.15,"spec_decode_num_drafts":700,
        "spec_decode_per_position_acceptance_rates":[0.7,0.3,0.15],"generated_texts":["secret text"],"itls":[[0.02,0.03]]}"#;

    #[test]
    fn vllm_runs_are_read_and_come_back() {
        let outcome = read("v.json", VLLM.as_bytes()).expect("reads");
        let run = &outcome.serving[0];
        assert_eq!((run.number("output_tokens_per_s"), run.number("itl_ms"), run.number("request_rate")), (Some(107.0), Some(20.1), None));
        assert_eq!((run.number("input_tokens"), run.acceptance.as_slice()), (Some(1000.0), &[0.7, 0.3, 0.15][..]));
        // 20.1 / 2.15 = 9.35 ms: it fits 9.3.
        assert!(outcome.warnings.is_empty(), "{:?}", outcome.warnings);
        assert!(!format!("{outcome:?}").contains("secret"));
        assert_eq!(read_csv("s.csv", write_csv(&outcome.serving).as_bytes()).expect("reads"), outcome.serving);
    }

    #[test]
    fn sglang_lines_are_read() {
        let lines = "{\"run_name\":\"a\",\"batch_size\":1,\"input_len\":128,\"output_len\":16,\"prefill_latency\":0.25,\"median_decode_latency\":0.0122,\"median_decode_throughput\":82.0}\n\
            {\"request_rate\":4.0,\"completed\":10,\"output_throughput\":80.5,\"mean_e2e_latency_ms\":500.0,\"mean_itl_ms\":30.0,\"mean_tpot_ms\":29.0,\"accept_length\":2.0}\n";
        let outcome = read("s.jsonl", lines.as_bytes()).expect("reads");
        assert_eq!((outcome.serving[0].benchmark.as_str(), outcome.serving[0].number("itl_ms")), ("one_batch", Some(12.2)));
        assert_eq!((outcome.serving[1].number("accepted_length"), outcome.serving[1].number("e2e_ms")), (Some(2.0), Some(500.0)));
        // 30 ms, spread over the tokens already, fit 29 ms per token; 90 ms fit neither so nor as chunks of 2.
        let misfits = |outcome: &Outcome| outcome.warnings.iter().any(|w| w.contains("does not fit"));
        assert!(!misfits(&outcome), "{:?}", outcome.warnings);
        assert!(misfits(&read("s.jsonl", lines.replace("_itl_ms\":30.0", "_itl_ms\":90.0").as_bytes()).expect("reads")));
    }

    #[test]
    fn unknown_keys_are_named() {
        let fault = read("u.json", &br#"{"foo":1,"bar":2}"#[..]).map(|_| ()).expect_err("unknown");
        assert!(fault.message.contains("bar, foo"), "{}", fault.message);
        for text in ["", "[]", "[1]", "{", "3"] {
            assert!(read("u.json", text.as_bytes()).is_err(), "{text}");
        }
        assert!(read_csv("s.csv", b"engine,acceptance_per_position\nx,2\n").is_err());
    }
}
