//! TOML of observations and facts: `[observed]` with a number or `[low, high]` a
//! name, and the facts that imports write (`[host]`, `[nccl]`).

use toml::Table;
use toml::Value;

use crate::error::Fault;
use crate::error::Result;
use crate::import::facts::Facts;
use crate::import::facts::Iommu;

use super::gather::Gathered;
use super::observed::parse;

/// Reads the text of `name`. Keys that mean nothing here are passed over, but `[observed]` is read strictly.
///
/// # Errors
/// `toml` for text that is none, `facts-bad-value`, those of observations.
pub fn read(name: &str, text: &str, scatter: f64, ranks: u32) -> Result<Gathered> {
    let top: Table = text.parse().map_err(|error: toml::de::Error| {
        Fault::new("toml", format!("{name} is no TOML: {}", error.message())).at(name, text, error.span().unwrap_or(0..0), "here")
    })?;
    if let Some(format) = top.get("format").and_then(Value::as_integer).filter(|format| *format != 1) {
        return Err(Fault::new("facts-bad-value", format!("{name} has format {format}, this program reads 1")).help("use a newer program"));
    }
    let mut gathered = Gathered::default();
    for (key, value) in table(&top, "observed") {
        let text = match value {
            Value::Array(ends) if ends.len() == 2 => format!("{key}={}..{}", number(name, key, &ends[0])?, number(name, key, &ends[1])?),
            Value::String(text) => format!("{key}={text}"),
            other => format!("{key}={}", number(name, key, other)?),
        };
        gathered.observations.add(parse(&text, name, scatter, ranks)?);
    }
    gathered.facts = facts(name, &top)?;
    Ok(gathered)
}

fn number(name: &str, key: &str, value: &Value) -> Result<f64> {
    (value.as_float().or(value.as_integer().map(|whole| whole as f64)))
        .ok_or_else(|| Fault::new("facts-bad-value", format!("{name}: {key} is no number")).help("write a number, or [low, high]"))
}

fn table<'a>(top: &'a Table, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    top.get(key).and_then(Value::as_table).into_iter().flatten()
}

fn facts(name: &str, top: &Table) -> Result<Facts> {
    let mut facts = Facts::default();
    for (key, value) in table(top, "host") {
        match (key.as_str(), value) {
            ("iommu", Value::String(text)) => facts.iommu = Some(iommu(name, text)?),
            ("force_p2p", Value::Boolean(forced)) => facts.force_p2p = Some(*forced),
            _ => {}
        }
    }
    for (key, value) in table(top, "nccl") {
        match (key.as_str(), value) {
            ("collective_channels", Value::Integer(channels)) => facts.nccl.collective_channels = u32::try_from(*channels).ok(),
            ("environment", Value::Table(variables)) => {
                let text = |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_owned()));
                facts.nccl.environment.extend(variables.iter().filter_map(text));
            }
            ("transports", Value::Table(pairs)) => {
                let pair = |(pair, via): (&String, &Value)| {
                    let (from, to) = pair.split_once('>')?;
                    Some(((from.parse().ok()?, to.parse().ok()?), via.as_str()?.to_owned()))
                };
                facts.nccl.transports.extend(pairs.iter().filter_map(pair));
            }
            _ => {}
        }
    }
    Ok(facts)
}

fn iommu(name: &str, text: &str) -> Result<Iommu> {
    match text {
        "off" => Ok(Iommu::Off),
        "pass-through" => Ok(Iommu::PassThrough),
        "translated" => Ok(Iommu::Translated),
        other => Err(Fault::new("facts-bad-value", format!("{name}: iommu = \"{other}\" is not known"))
            .help("expected off, pass-through or translated")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::diagnose::kind::Kind;

    const SAMPLE: &str = "format = 1\n[observed]\ndecode_tps = 82\nprofiled_us = [150, 300]\nverify_ms = \"29..31\"\n\
        [host]\niommu = \"translated\"\nforce_p2p = false\n[nccl]\ncollective_channels = 1\n\
        environment = { NCCL_PROTO = \"LL\" }\ntransports = { \"0>1\" = \"SHM/direct/direct\" }\n";

    #[test]
    fn observations_and_facts_are_read() {
        let read = read("f.toml", SAMPLE, 0.03, 8).expect("reads");
        assert_eq!(read.observations.value(Kind::DecodeTps), Some(82.0));
        assert_eq!(read.observations.0.len(), 3);
        assert_eq!((read.facts.iommu, read.facts.force_p2p), (Some(Iommu::Translated), Some(false)));
        assert_eq!(read.facts.nccl.transports.len(), 1);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["a = ", "format = 9", "[observed]\nspeed = 3", "[observed]\ndecode_tps = true", "[host]\niommu = \"maybe\""] {
            assert!(read("f.toml", text, 0.03, 8).is_err(), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn mangled_files_never_panic(at in 0usize..SAMPLE.len(), byte: u8) {
            let mut bytes = SAMPLE.as_bytes().to_vec();
            bytes[at] = byte;
            if let Ok(text) = String::from_utf8(bytes) {
                let _ = read("f.toml", &text, 0.03, 8);
            }
        }
    }
}
