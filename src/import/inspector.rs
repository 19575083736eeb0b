//! NCCL inspector: one JSON object a collective and rank; summed up by size.

use std::collections::BTreeMap;
use std::io::Read;

use crate::error::Fault;
use crate::error::Result;
use crate::import::formats;
use crate::import::formats::Format;
use crate::import::formats::Looks;
use crate::import::json::Json;
use crate::import::json_tree;
use crate::import::nccl_tests::Run;
use crate::import::outcome::Outcome;
use crate::import::outcome::base_name;
use crate::trace::observation::Collective;
use crate::trace::observation::Implementation;
use crate::trace::observation::Timing;

/// NCCL inspector.
pub(super) const FORMAT: Format = Format {
    kind: "nccl-inspector",
    looks: Looks::Json(|has| has("coll_perf") || has("header") && has("metadata")),
    read: formats::Read::Stream(read),
};

/// Executions kept at most (four bytes each).
const EXECUTIONS_MAX: usize = 10_000_000;

/// Reads objects until the end: median, smallest and largest of each size.
///
/// # Errors
/// `json`; `import-inspector` where no object holds a collective.
pub fn read(name: &str, input: impl Read) -> Result<Outcome> {
    let mut json = Json::new(name, input);
    let mut groups: BTreeMap<(String, u64, u32), Vec<f32>> = BTreeMap::new();
    let (mut kept, mut unusable) = (0, 0u64);
    while !json.at_end()? {
        let value = json.tree()?;
        let perf = &value["coll_perf"];
        let ranks = json_tree::whole(&value["header"]["n_ranks"]).and_then(|n| u32::try_from(n).ok()).filter(|n| (2..=65536).contains(n));
        let bytes = json_tree::whole(&perf["coll_msg_size_bytes"]).filter(|b| *b > 0);
        let us = json_tree::number(&perf["coll_exec_time_us"]).filter(|t| *t > 0.0 && *t < 1e9);
        match (ranks, bytes, us, perf["coll"].as_str()) {
            (Some(ranks), Some(bytes), Some(us), Some(collective)) if kept < EXECUTIONS_MAX => {
                kept += 1;
                groups.entry((collective.chars().take(40).collect(), bytes, ranks)).or_default().push(us as f32);
            }
            _ => unusable += 1,
        }
    }
    let mut outcome = Outcome::default();
    for ((collective, bytes, ranks), mut times) in groups {
        times.sort_by(f32::total_cmp);
        let run = Run {
            collective: Collective::from_name(&collective),
            ranks,
            timing: Timing::PerCall,
            version: String::new(),
            implementation: Implementation::Nccl,
        };
        let of = |i: usize| (f64::from(times[i]) * 1e3).round_ties_even() / 1e3;
        let range = Some((of(0), of(times.len() - 1)));
        let source = format!("NCCL inspector, median of {} executions over all ranks, waiting included, {}", times.len(), base_name(name));
        outcome.observations.push(run.observation(bytes, "bytes", of(times.len() / 2), range, &source));
    }
    if outcome.observations.is_empty() {
        return Err(Fault::new("import-inspector", format!("{name} holds no collective"))
            .help("expected objects with `header.n_ranks` and `coll_perf`; NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES (8192) hides small ones"));
    }
    if unusable > 0 {
        outcome.skipped(format!("{name}: {unusable} objects without a usable collective"));
    }
    outcome.warn(format!("{name}: a rank's time includes waiting for later ranks: the smallest is nearest to the collective itself"));
    outcome.understood(format!("{name}: {kept} executions in {} sizes (NCCL inspector)", outcome.observations.len()));
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executions_are_summed_up() {
        let line = |us: f64| {
            format!(
                r#"{{"header":{{"id":"x","rank":0,"n_ranks":8,"nnodes":1}},"metadata":{{"hostname":"h"}},"coll_perf":{{"coll":"AllReduce","coll_sn":1,"coll_msg_size_bytes":43008,"coll_exec_time_us":{us}}}}}"#
            )
        };
        let text = [30.0, 28.5, 90.0].map(line).join("\n") + "\n{\"header\":{}}";
        let outcome = read("i.log", text.as_bytes()).expect("reads");
        let o = &outcome.observations[0];
        assert_eq!((o.latency_us, o.low_us, o.high_us, o.ranks), (30.0, Some(28.5), Some(90.0), 8));
        assert_eq!(o.collective, Collective::AllReduce);
        assert_eq!(outcome.skipped.len(), 1);
        assert!(read("i.log", &b"{}"[..]).is_err());
    }
}
