//! What two headers say together: whether the traces are of the same pass,
//! parts and links that both name; and what is missing where one was cut.

use crate::compare::Input;
use crate::compare::join::Joiner;
use crate::compare::names::Names;
use crate::compare::totals::Settled;
use crate::error::Fault;
use crate::error::Result;
use crate::trace::links;
use crate::trace::links::LinkLoad;
use crate::trace::record::Header;

/// How to go on all the same.
const ANYWAY: &str = "--anyway compares what has the same name in both";

/// Refuses traces of different models, splits, workloads or plans, by their headers.
///
/// # Errors
/// `compare-other-model`, `compare-other-plan`.
pub fn check_headers(names: [&str; 2], headers: [&Header; 2]) -> Result<()> {
    let differs = |key: &str| match (headers[0].get(key), headers[1].get(key)) {
        (Some(a), Some(b)) if a != b => Some(format!("{key} {a} in {}, {b} in {}", names[0], names[1])),
        _ => None,
    };
    if let Some(words) = differs("model") {
        return Err(Fault::new("compare-other-model", format!("the traces are of different models: {words}")).help(ANYWAY));
    }
    let shape: Vec<String> = ["ranks", "tokens"].iter().filter_map(|key| differs(key)).collect();
    if !shape.is_empty() {
        return Err(Fault::new("compare-other-plan", format!("the traces are of different passes: {}", shape.join("; "))).help(ANYWAY));
    }
    if let Some(words) = differs("plan") {
        let message = format!("the traces are of different plans: {words}");
        return Err(Fault::new("compare-other-plan", message).help(format!(
            "model, ranks and tokens are equal as far as the headers say: look at the context, the batch, the split and the program's version. {ANYWAY}"
        )));
    }
    Ok(())
}

/// Refuses a trace that has all that the other has up to some point and nothing after it.
///
/// # Errors
/// `compare-cut`, `compare-empty`.
pub fn check_ends(
    inputs: &[Input; 2],
    joiner: &Joiner,
    rest: &[Vec<Settled>; 2],
    rows: [u64; 2],
    passes: u32,
    names: &Names,
) -> Result<()> {
    for side in 0..2 {
        if rows[side] == 0 {
            return Err(Fault::new("compare-empty", format!("{} holds no operation", inputs[side].name))
                .help("was it cut, or was another pass asked for with --passes?"));
        }
    }
    for (short, long) in [(0, 1), (1, 0)] {
        let missing: Vec<&Settled> = rest[long].iter().filter(|op| op.pass < passes).collect();
        let alone = rest[short].iter().any(|op| op.pass < passes);
        if missing.is_empty() || alone || !missing.iter().all(|op| op.place >= joiner.matched(long, op.pass, op.rank).1) {
            continue;
        }
        let Some(first) = missing.first() else { continue };
        return Err(Fault::new(
            "compare-cut",
            format!(
                "{} ends early: it lacks {} of the {} operations of {}, from {} on",
                inputs[short].name,
                missing.len(),
                rows[long],
                inputs[long].name,
                names.text(first.key, first.rank)
            ),
        )
        .help(format!("write or copy the file again; {ANYWAY}")));
    }
    Ok(())
}

/// `# part.wire_ns = 150600.000`, where both traces have it.
pub fn parts(headers: &[Header; 2]) -> Vec<(String, [f64; 2])> {
    let us =
        |header: &Header, key: &str| header.get(key).and_then(|ns| ns.parse::<f64>().ok()).filter(|ns| ns.is_finite()).map(|ns| ns / 1e3);
    (headers[0].entries.iter())
        .filter_map(|(key, _)| {
            let name = key.strip_prefix("part.")?.strip_suffix("_ns")?;
            Some((name.to_owned(), [us(&headers[0], key)?, us(&headers[1], key)?]))
        })
        .collect()
}

/// The links that both headers name.
pub fn linked(headers: &[Header; 2]) -> Vec<[LinkLoad; 2]> {
    let others = links::read(&headers[1]);
    let pair = |link: LinkLoad| others.iter().find(|other| other.name == link.name).map(|other| [link, other.clone()]);
    links::read(&headers[0]).into_iter().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(entries: &[(&str, &str)]) -> Header {
        let mut header = Header::from_source("simulated");
        entries.iter().for_each(|(key, value)| header.set(key, value));
        header
    }

    #[test]
    fn what_differs_is_named() {
        let base = header(&[("model", "m"), ("tokens", "3"), ("plan", "aa")]);
        let refused = |entries| check_headers(["a.csv", "b.csv"], [&base, &header(entries)]).expect_err("differs");
        assert_eq!(refused(&[("model", "n")]).code, "compare-other-model");
        let fault = refused(&[("model", "m"), ("tokens", "4"), ("plan", "bb")]);
        assert_eq!(fault.code, "compare-other-plan");
        assert!(fault.message.contains("tokens 3 in a.csv, 4 in b.csv"), "{}", fault.message);
        assert!(refused(&[("plan", "bb")]).message.contains("plan aa in a.csv, bb in b.csv"));
        check_headers(["a", "b"], [&base, &header(&[])]).expect("nothing is known to differ");
    }
}
