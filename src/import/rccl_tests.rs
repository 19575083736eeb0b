//! rccl-tests' `-Z json`: one object a line for each size.

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

/// rccl-tests, JSON lines.
pub(super) const FORMAT: Format =
    Format { kind: "rccl-tests-json", looks: Looks::Json(|has| has("algBw") && has("busBw")), read: formats::Read::Stream(read) };

/// Reads objects until the end, also out of a list.
///
/// # Errors
/// `json`; `import-rccl-tests` where no object holds size, time and gpus.
pub fn read(name: &str, input: impl Read) -> Result<Outcome> {
    let mut json = Json::new(name, input);
    let mut outcome = Outcome::default();
    let (mut wrong, mut unusable) = (0, 0);
    while !json.at_end()? {
        let value = json.tree()?;
        let rows = if let Some(list) = value.as_array() { list.clone() } else { vec![value] };
        for row in rows {
            let whole = |key: &str| json_tree::whole(&row[key]).filter(|n| *n > 0);
            let (Some(bytes), Some(ranks), Some(us)) = (whole("size"), whole("gpus"), json_tree::number(&row["time"]).filter(|t| *t > 0.0))
            else {
                unusable += 1;
                continue;
            };
            let Some(ranks) = u32::try_from(ranks).ok().filter(|r| *r <= 65536) else { continue };
            let run = Run {
                collective: Collective::from_name(row["name"].as_str().unwrap_or("")),
                ranks,
                timing: Timing::EagerChainSingleThread,
                version: String::new(),
                implementation: Implementation::Rccl,
            };
            let in_place = row["inPlace"].as_bool() == Some(true) || json_tree::whole(&row["inPlace"]) == Some(1);
            wrong += u32::from(json_tree::number(&row["#wrong"]).is_some_and(|w| w >= 1.0));
            let half = if in_place { "in place" } else { "out of place" };
            outcome.observations.push(run.observation(
                bytes,
                row["type"].as_str().unwrap_or("float"),
                us,
                None,
                &format!("rccl-tests, {half}, {}", base_name(name)),
            ));
        }
    }
    if outcome.observations.is_empty() {
        return Err(
            Fault::new("import-rccl-tests", format!("{name} holds no results")).help("expected objects with `size`, `time` and `gpus`")
        );
    }
    if wrong > 0 {
        outcome.warn(format!("{name}: {wrong} results report wrong values"));
    }
    if unusable > 0 {
        outcome.skipped(format!("{name}: {unusable} objects without size, time or gpus"));
    }
    outcome.understood(format!("{name}: {} times (rccl-tests)", outcome.observations.len()));
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let text = r##"{"#wrong":"0","algBw":1.4,"busBw":2.5,"gpus":8,"inPlace":1,"name":"AllReduce","redop":"sum","size":43008,"time":29.5,"type":"bfloat16"}
{"size":0}"##;
        let outcome = read("r.json", text.as_bytes()).expect("reads");
        let o = &outcome.observations[0];
        assert_eq!(
            (o.ranks, o.bytes, o.collective.clone(), o.implementation.clone()),
            (8, 43008, Collective::AllReduce, Implementation::Rccl)
        );
        assert_eq!(outcome.skipped.len(), 1);
        assert!(read("r.json", &b"[]"[..]).is_err());
    }
}
