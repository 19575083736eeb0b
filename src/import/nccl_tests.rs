//! nccl-tests: the text tables and the `-J` JSON.
//!
//! Each size gives two observations, out of place and in place, as the source
//! says. The environment that the JSON dumps is never looked at.

use serde_json::Value;

use crate::error::Fault;
use crate::error::Result;
use crate::import::formats::Format;
use crate::import::formats::Looks;
use crate::import::formats::Read;
use crate::import::json_tree;
use crate::import::outcome::Outcome;
use crate::import::outcome::base_name;
use crate::trace::observation::Algorithm;
use crate::trace::observation::Collective;
use crate::trace::observation::Implementation;
use crate::trace::observation::Observation;
use crate::trace::observation::Protocol;
use crate::trace::observation::Timing;

/// nccl-tests, text.
pub(super) const FORMAT_TEXT: Format =
    Format { kind: "nccl-tests", looks: Looks::Text(detect), read: Read::Text(crate::import::nccl_tests_runs::read) };

/// nccl-tests, JSON.
pub(super) const FORMAT_JSON: Format = Format {
    kind: "nccl-tests-json",
    looks: Looks::Json(|has| has("nccl_version") || has("config") && has("results") && has("args")),
    read: Read::Tree(read_json),
};

const CODE: &str = "import-nccl-tests";

/// Rows taken from one file at most.
const ROWS_MAX: usize = 1_000_000;

/// What holds for a whole run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Which collective.
    pub collective: Collective,
    /// Ranks, 0 while not known.
    pub ranks: u32,
    /// How it was timed.
    pub timing: Timing,
    /// NCCL's version, empty when not known.
    pub version: String,
    /// Whose library.
    pub implementation: Implementation,
}

impl Run {
    /// An observation of this run.
    pub fn observation(&self, bytes: u64, dtype: &str, us: f64, range: Option<(f64, f64)>, source: &str) -> Observation {
        Observation {
            machine: String::new(),
            ranks: self.ranks,
            implementation: self.implementation.clone(),
            algorithm: Algorithm::Auto,
            protocol: Protocol::Auto,
            channels: None,
            threads: None,
            buffer_bytes: None,
            timing: self.timing.clone(),
            bytes,
            dtype: dtype_name(dtype).to_owned(),
            version: self.version.clone(),
            collective: self.collective.clone(),
            latency_us: us,
            low_us: range.map(|r| r.0),
            high_us: range.map(|r| r.1),
            source: source.to_owned(),
        }
    }
}

/// Element types as the observations name them.
pub fn dtype_name(name: &str) -> &str {
    match name {
        "bfloat16" => "bf16",
        "half" | "float16" => "fp16",
        "float" | "float32" => "fp32",
        other => other,
    }
}

/// Whether `head` looks like the text.
pub fn detect(head: &str) -> bool {
    let plain = head.contains("out-of-place") && head.contains("busbw");
    plain || head.contains("nccl-tests version") || head.contains("rccl-tests version") || head.contains("# nThread ")
}

/// The collective that a program name such as `all_reduce_perf` says.
pub fn collective_in(text: &str) -> Option<Collective> {
    const PROGRAMS: [(&str, Collective); 7] = [
        ("all_reduce_perf", Collective::AllReduce),
        ("all_gather_perf", Collective::AllGather),
        ("reduce_scatter_perf", Collective::ReduceScatter),
        ("alltoall_perf", Collective::AllToAll),
        ("broadcast_perf", Collective::Broadcast),
        ("sendrecv_perf", Collective::SendRecv),
        ("reduce_perf", Collective::Reduce),
    ];
    PROGRAMS.iter().find(|(program, _)| text.contains(program)).map(|(_, collective)| collective.clone())
}

/// The collective whose bus bandwidth is `ratio` times the algorithm's at
/// `ranks` ranks (2(n−1)/n, (n−1)/n or 1, nccl-tests' PERFORMANCE.md).
fn collective_by_ratio(ratio: f64, ranks: u32, reduces: bool) -> Option<Collective> {
    let n = f64::from(ranks);
    let near = |expected: f64| (ratio - expected).abs() < 0.03;
    if near(2.0 * (n - 1.0) / n) {
        Some(Collective::AllReduce)
    } else if near((n - 1.0) / n) {
        Some(if reduces { Collective::ReduceScatter } else { Collective::AllGather })
    } else {
        None
    }
}

/// Reads the text.
///
/// # Errors
/// `import-nccl-tests` where there is no row or the ranks cannot be told.
pub fn read_text(name: &str, text: &str) -> Result<Outcome> {
    let mut run = run_of_text(name, text);
    let mut header: Vec<&str> = Vec::new();
    let mut rows: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
    let mut wrong = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.trim_start().trim_start_matches('#').split_whitespace().collect();
        if words.first() == Some(&"size") && words.contains(&"busbw") {
            header = words;
        } else if !line.trim_start().starts_with('#')
            && words.len() >= 8
            && words[0].parse::<u64>().is_ok()
            && words[1].parse::<u64>().is_ok()
        {
            if rows.len() < ROWS_MAX {
                rows.push((header.clone(), words));
            }
        } else if line.contains("FAILED") {
            wrong += 1;
        }
    }
    let mut outcome = Outcome::default();
    complete_run(name, &mut run, &rows)?;
    for (header, words) in &rows {
        wrong += take_row(name, &run, header, words, &mut outcome);
    }
    if outcome.observations.is_empty() {
        return Err(
            Fault::new(CODE, format!("{name} holds no row of results")).help("expected the table of all_reduce_perf or another nccl-test")
        );
    }
    if wrong > 0 {
        outcome
            .warn(format!("{name}: {wrong} rows report wrong values: the data did not arrive intact; find out before you trust any time"));
    }
    if !run.version.is_empty() {
        outcome.facts.versions.nccl = Some(run.version.clone());
    }
    outcome.understood(format!("{name}: {} times of {} on {} ranks (nccl-tests)", outcome.observations.len(), run.collective, run.ranks));
    Ok(outcome)
}

fn run_of_text(name: &str, text: &str) -> Run {
    let after = |key: &str| text.split(key).nth(1).and_then(|rest| rest.split_whitespace().next());
    let number = |key: &str| after(key).and_then(|t| t.parse::<u32>().ok()).unwrap_or(0);
    let ranks = text.lines().filter(|l| l.trim_start_matches(['#', ' ']).starts_with("Rank ") && l.contains(" Pid ")).count();
    let processes =
        text.lines().filter_map(|l| l.split(" Pid ").nth(1)?.split_whitespace().next()).collect::<std::collections::BTreeSet<_>>().len();
    let version = after("NCCL version ").map(|v| v.split('+').next().unwrap_or(v).to_owned());
    let version = version.or_else(|| after("nccl-library=").and_then(|t| t.parse().ok()).map(version_of_code)).unwrap_or_default();
    let rccl = text.contains("rccl-tests") || text.contains("RCCL version");
    Run {
        collective: collective_in(text).or_else(|| collective_in(name)).unwrap_or(Collective::Other(String::new())),
        ranks: u32::try_from(ranks).unwrap_or(0),
        timing: timing(number("graph:") > 0, number("nThread "), processes),
        version,
        implementation: if rccl { Implementation::Rccl } else { Implementation::Nccl },
    }
}

fn timing(graph: bool, threads: u32, processes: usize) -> Timing {
    if graph {
        Timing::GraphChain
    } else if threads > 1 || processes > 1 {
        Timing::EagerChainThreadPerRank
    } else {
        Timing::EagerChainSingleThread
    }
}

/// `22902` as `2.29.2`, `2804` as `2.8.4`, as nccl.h codes it.
pub fn version_of_code(code: u32) -> String {
    if code < 10_000 {
        format!("{}.{}.{}", code / 1000, code % 1000 / 100, code % 100)
    } else {
        format!("{}.{}.{}", code / 10_000, code % 10_000 / 100, code % 100)
    }
}

/// Fills in what only the rows tell: the ratio of bus to algorithm bandwidth.
fn complete_run(name: &str, run: &mut Run, rows: &[(Vec<&str>, Vec<&str>)]) -> Result<()> {
    // The row with the largest bandwidth has the most digits.
    let ratio = rows
        .iter()
        .filter_map(|(header, words)| {
            let (alg, bus) = (place(header, "algbw", 0)?, place(header, "busbw", 0)?);
            Some((words.get(alg)?.parse::<f64>().ok()?, words.get(bus)?.parse::<f64>().ok()?))
        })
        .filter(|(alg, bus)| *alg > 0.0 && bus.is_finite())
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(alg, bus)| bus / alg);
    let reduces = rows.iter().any(|(_, words)| words.get(3).is_some_and(|op| *op != "none"));
    let unknown = matches!(run.collective, Collective::Other(_));
    if run.ranks == 0 {
        if unknown && reduces {
            run.collective = Collective::AllReduce;
        }
        // 2(n−1)/n = ratio ⇒ n = 2 / (2 − ratio).
        let share = if run.collective == Collective::AllReduce { ratio.map(|r| r / 2.0) } else { ratio };
        let ranks = share.filter(|s| (0.4..0.9999).contains(s)).map(|s| libm::round(1.0 / (1.0 - s)));
        match ranks {
            Some(ranks) if (2.0..=1024.0).contains(&ranks) => run.ranks = ranks as u32,
            _ => {
                return Err(Fault::new(CODE, format!("{name} does not tell how many ranks took part"))
                    .help("keep the lines `#  Rank  0 Group …` above the table"));
            }
        }
    }
    if matches!(run.collective, Collective::Other(_)) {
        let told = ratio.and_then(|r| collective_by_ratio(r, run.ranks, reduces));
        run.collective = told.unwrap_or(if reduces { Collective::AllReduce } else { Collective::AllGather });
    }
    Ok(())
}

/// Where the `nth` column of that name stands; without a header, where nccl-tests puts it.
fn place(header: &[&str], column: &str, nth: usize) -> Option<usize> {
    if header.is_empty() {
        let first = match column {
            "time" => 5,
            "algbw" => 6,
            "busbw" => 7,
            "#wrong" => 8,
            _ => return None,
        };
        return Some(first + 4 * nth);
    }
    header.iter().enumerate().filter(|(_, h)| **h == column).nth(nth).map(|(i, _)| i)
}

/// Takes both halves of a row; returns how many report wrong values.
fn take_row(name: &str, run: &Run, header: &[&str], words: &[&str], outcome: &mut Outcome) -> u32 {
    let Ok(bytes) = words[0].parse::<u64>() else { return 0 };
    let mut wrong = 0;
    for (nth, half) in ["out of place", "in place"].into_iter().enumerate() {
        let number = |column: &str| place(header, column, nth).and_then(|i| words.get(i)).and_then(|w| w.parse::<f64>().ok());
        let Some(us) = number("time").filter(|t| t.is_finite() && *t > 0.0 && *t < 1e12) else { continue };
        let extremes = number("i_min").zip(number("i_max")).filter(|(low, high)| *low > 0.0 && low <= high && high.is_finite());
        if number("#wrong").or_else(|| number("error")).is_some_and(|w| w >= 1.0) {
            wrong += 1;
        }
        if bytes > 0 {
            outcome.observations.push(run.observation(bytes, words[2], us, extremes, &format!("nccl-tests, {half}, {}", base_name(name))));
        }
    }
    wrong
}

/// Reads the JSON of `-J`.
///
/// # Errors
/// `import-nccl-tests` where results are missing.
pub fn read_json(name: &str, value: &Value) -> Result<Outcome> {
    let config = &value["config"];
    let devices = value["devices"].as_array().map_or(0, Vec::len);
    let whole = |v: &Value| json_tree::whole(v).and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
    let (threads, gpus) = (whole(&config["nthreads"]), whole(&config["ngpus"]));
    let pids: std::collections::BTreeSet<u32> = value["devices"].as_array().into_iter().flatten().map(|d| whole(&d["pid"])).collect();
    let args: Vec<&str> = value["args"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let version = json_tree::whole(&value["nccl_version"]).and_then(|c| u32::try_from(c).ok()).filter(|c| *c >= 1000).map(version_of_code);
    let version =
        version.or_else(|| value["nccl_version"].as_str().map(|v| v.split('+').next().unwrap_or("").to_owned())).unwrap_or_default();
    let graph = whole(&config["graph"]) > 0 || config["graph"].as_str() == Some("true");
    let run = Run {
        collective: args.first().and_then(|a| collective_in(a)).or_else(|| collective_in(name)).unwrap_or(Collective::AllReduce),
        ranks: if devices > 0 { u32::try_from(devices).unwrap_or(0) } else { threads.saturating_mul(gpus) },
        timing: timing(graph, threads, pids.len()),
        version,
        implementation: Implementation::Nccl,
    };
    if run.ranks == 0 {
        return Err(Fault::new(CODE, format!("{name} does not tell how many ranks took part")).help("expected `devices` or `config.ngpus`"));
    }
    let mut outcome = Outcome::default();
    let mut wrong = 0;
    for result in value["results"].as_array().into_iter().flatten().take(ROWS_MAX) {
        for (half, title) in [("out_of_place", "out of place"), ("in_place", "in place")] {
            let us = json_tree::number(&result[half]["time"]).or_else(|| json_tree::number(&result[half]["cpu_time"]));
            let (Some(bytes), Some(us)) = (json_tree::whole(&result["size"]).filter(|b| *b > 0), us.filter(|t| *t > 0.0 && *t < 1e12))
            else {
                continue;
            };
            let iterations = &result[format!("{half}_per_iter").as_str()];
            let range =
                json_tree::number(&iterations["min_us"]).zip(json_tree::number(&iterations["max_us"])).filter(|(l, h)| *l > 0.0 && l <= h);
            wrong += u32::from(json_tree::number(&result[half]["nwrong"]).is_some_and(|w| w >= 1.0));
            let dtype = result["type"].as_str().unwrap_or("float");
            outcome.observations.push(run.observation(bytes, dtype, us, range, &format!("nccl-tests, {title}, {}", base_name(name))));
        }
    }
    if outcome.observations.is_empty() {
        return Err(Fault::new(CODE, format!("{name} holds no results")).help("expected `results` with `size` and `out_of_place.time`"));
    }
    if wrong > 0 {
        outcome.warn(format!("{name}: {wrong} results report wrong values"));
    }
    outcome.facts.versions.nccl = Some(run.version.clone()).filter(|v| !v.is_empty());
    outcome.understood(format!(
        "{name}: {} times of {} on {} ranks (nccl-tests JSON)",
        outcome.observations.len(),
        run.collective,
        run.ranks
    ));
    outcome.skipped(format!("{name}: the environment"));
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# nccl-tests version 2.17.6 nccl-headers=22902 nccl-library=22902\n# Collective test starting: all_reduce_perf\n\
        # nThread 1 nGpus 2 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0\n\
        #  Rank  0 Group  0 Pid   1 on box device  0 [0000:03:00] NVIDIA RTX\n#  Rank  1 Group  0 Pid   1 on box device  1 [0000:04:00] NVIDIA RTX\n\
        #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n\
        #        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n\
        \x20      43008         21504  bfloat16     sum      -1    29.51    1.46    1.46      0    28.70    1.50    1.50      0\n\
        \x20      65536         32768  bfloat16     sum      -1    30.00    2.18    2.18      3    29.00    2.26    2.26    N/A\n# Out of bounds values : 1 FAILED\n";

    #[test]
    fn tables_are_read() {
        assert!(detect(TEXT));
        let outcome = read_text("x.txt", TEXT).expect("reads");
        let o = &outcome.observations;
        assert_eq!(o.len(), 4);
        assert_eq!((o[0].bytes, o[0].latency_us, o[0].ranks, o[0].dtype.as_str()), (43008, 29.51, 2, "bf16"));
        assert_eq!((o[1].latency_us, o[0].version.as_str()), (28.7, "2.29.2"));
        assert_eq!((o[0].timing.clone(), o[0].collective.clone()), (Timing::EagerChainSingleThread, Collective::AllReduce));
        assert!(outcome.warnings[0].contains("wrong values"));
    }

    #[test]
    fn ranks_follow_from_the_bandwidths() {
        // busbw / algbw = 2(n - 1)/n = 1.5 at 4 ranks; older tables have no root and `error`.
        let text = "#  size  count  type  redop  time  algbw  busbw  error  time  algbw  busbw  error\n 8388608 2097152 float sum 500 16.77 25.16 0 500 16.77 25.16 0\n";
        let o = read_text("x.txt", text).expect("reads").observations;
        assert_eq!((o[0].ranks, o[0].latency_us, o.len()), (4, 500.0, 2));
        // An all-gather at 8 ranks: 7/8.
        let text = "#  size  count  type  redop root time  algbw  busbw  #wrong\n 8388608 262144 float none -1 500 16.00 14.00 0\n";
        let o = read_text("x.txt", text).expect("reads").observations;
        assert_eq!((o[0].ranks, o[0].collective.clone()), (8, Collective::AllGather));
    }

    #[test]
    fn json_is_read_without_its_environment() {
        let text = r#"{"version":3,"args":["./build/all_reduce_perf","-g","2"],"env":["HF_TOKEN=hf_secret"],"nccl_version":22902,
            "config":{"nthreads":1,"ngpus":2,"graph":1,"blocking_collectives":"false"},"devices":[{"rank":0,"pid":5},{"rank":1,"pid":5}],
            "results":[{"size":43008,"count":21504,"type":"bfloat16","redop":"sum","root":"  -1","out_of_place":{"time":29.5,"alg_bw":1.4,"nwrong":"nan"},
            "in_place":{"time":"nan"},"out_of_place_per_iter":{"min_us":28,"max_us":31}}]}"#;
        let value = crate::import::json::Json::new("x", text.as_bytes()).tree().expect("JSON");
        let outcome = read_json("x.json", &value).expect("reads");
        assert_eq!(outcome.observations.len(), 1);
        assert_eq!((outcome.observations[0].low_us, outcome.observations[0].timing.clone()), (Some(28.0), Timing::GraphChain));
        assert!(!format!("{outcome:?}").contains("hf_secret"));
    }

    #[test]
    fn empty_and_rankless_files_are_refused() {
        for text in ["", "# nThread 1", "8 2 float sum -1 9.0 0.00 0.00 0 9.0 0.00 0.00 0"] {
            assert_eq!(read_text("x", text).map(|_| ()).expect_err(text).code, CODE);
        }
        assert!(read_json("x", &serde_json::json!({"results": [], "config": {"ngpus": 2, "nthreads": 1}})).is_err());
        assert_eq!(version_of_code(2804), "2.8.4");
    }
}
