//! A dated baseline of observations and versions, and what drifted since.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::error::Fault;
use crate::error::Result;

use super::diagnose::kind::Kind;
use super::diagnose::observed::Observations;
use super::readings::Reading;

/// The version of the layout.
const FORMAT: i64 = 1;

/// Deviations from which a change is a drift; both ends scatter.
const SIGMAS: f64 = 2.0;

/// What was so on a day.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    format: i64,
    /// When.
    pub date: String,
    /// Software.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    /// Values by name, of what a diagnosis weighs.
    #[serde(default)]
    pub observed: BTreeMap<String, f64>,
    /// Values by name, of what was measured besides.
    #[serde(default)]
    pub measured: BTreeMap<String, f64>,
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub struct Drift {
    /// What, its unit last.
    pub what: String,
    /// Then.
    pub before: f64,
    /// Now.
    pub now: f64,
    /// Whether it is beyond the noise.
    pub real: bool,
    /// Whether it is to the worse.
    pub worse: bool,
}

impl Baseline {
    /// Of today.
    pub fn new(date: &str, versions: BTreeMap<String, String>, observations: &Observations, readings: &[Reading]) -> Baseline {
        let observed = observations.0.values().map(|one| (one.kind.to_string(), one.value)).collect();
        let measured = readings.iter().map(|one| (one.name.clone(), one.value)).collect();
        Baseline { format: FORMAT, date: date.to_owned(), versions, observed, measured }
    }

    /// As a file.
    pub fn to_toml(&self) -> String {
        let text = |text: &str| toml::Value::String(text.to_owned()).to_string();
        let mut out = format!("format = {FORMAT}\ndate = {}\n\n[versions]\n", text(&self.date));
        for (name, version) in &self.versions {
            out += &format!("{} = {}\n", text(name), text(version));
        }
        out += "\n[observed]\n";
        for (name, value) in &self.observed {
            out += &format!("{} = {value:?}\n", text(name));
        }
        out += "\n[measured]\n";
        for (name, value) in &self.measured {
            out += &format!("{} = {value:?}\n", text(name));
        }
        out
    }

    /// Reads the text of `name`.
    ///
    /// # Errors
    /// `baseline`.
    pub fn from_toml(name: &str, text: &str) -> Result<Baseline> {
        let baseline: Baseline = toml::from_str(text).map_err(|error: toml::de::Error| {
            let message = error.message().lines().next().unwrap_or("").to_owned();
            Fault::new("baseline", format!("{name}: {message}"))
                .at(name, text, error.span().unwrap_or(0..0), "here")
                .help("let `doctor` write a new one")
        })?;
        if baseline.format != FORMAT {
            return Err(Fault::new("baseline", format!("{name}: format {} is not known", baseline.format)).help("use a newer program"));
        }
        Ok(baseline)
    }

    /// What changed, by kind.
    pub fn drifts(&self, now: &Observations) -> Vec<Drift> {
        let of = |(name, before): (&String, &f64)| {
            let kind: Kind = name.parse().ok()?;
            let observed = now.0.get(&kind)?;
            let more_is_worse = matches!(
                kind,
                Kind::VerifyMs
                    | Kind::AllreduceUs(_)
                    | Kind::P2pNearUs
                    | Kind::P2pFarUs
                    | Kind::ProfiledUs
                    | Kind::AllreduceShare
                    | Kind::LeastShare
            );
            Some(drift(name, *before, observed.value, observed.scatter, more_is_worse))
        };
        self.observed.iter().filter_map(of).collect()
    }

    /// What was measured besides and changed, by name; `scatter` is the least deviation of one reading.
    pub fn drifts_of(&self, now: &[Reading], scatter: f64) -> Vec<Drift> {
        let of = |(name, before): (&String, &f64)| {
            let reading = now.iter().find(|reading| reading.name == *name)?;
            Some(drift(name, *before, reading.value, reading.scatter(scatter), Reading::more_is_worse(name)))
        };
        self.measured.iter().filter_map(of).collect()
    }

    /// Versions that differ, and that are known at both times: name, then, now.
    pub fn moved(&self, now: &BTreeMap<String, String>) -> Vec<(String, String, String)> {
        let differs = |(name, before): (&String, &String)| {
            let now = now.get(name)?;
            (now != before).then(|| (name.clone(), before.clone(), now.clone()))
        };
        self.versions.iter().filter_map(differs).collect()
    }
}

fn drift(what: &str, before: f64, now: f64, scatter: f64, more_is_worse: bool) -> Drift {
    let change = libm::log(now / before);
    let real = libm::fabs(change) > SIGMAS * scatter * std::f64::consts::SQRT_2;
    Drift { what: what.to_owned(), before, now, real, worse: (change > 0.0) == more_is_worse && change != 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::diagnose::observed::parse;

    fn reading(us: f64) -> Reading {
        Reading { name: "eager_launch_us".to_owned(), value: us, low: us, high: us }
    }

    /// Noise of 3 % at both ends: 2 × 3 × √2 = 8.5 % is the bound.
    #[test]
    fn drift_is_what_exceeds_the_noise() {
        let mut observations = Observations::default();
        observations.add(parse("decode_tps=80", "t", 0.03, 8).expect("reads"));
        observations.add(parse("verify_ms=15", "t", 0.03, 8).expect("reads"));
        let versions = BTreeMap::from([("driver".to_owned(), "595.58".to_owned())]);
        let kept = Baseline::new("2026-12-01", versions, &observations, &[reading(3.7)]);
        let read = Baseline::from_toml("b.toml", &kept.to_toml()).expect("reads");
        assert_eq!(read, kept);
        let mut now = Observations::default();
        now.add(parse("decode_tps=70", "t", 0.03, 8).expect("reads"));
        now.add(parse("verify_ms=15.5", "t", 0.03, 8).expect("reads"));
        let drifts = read.drifts(&now);
        assert_eq!(drifts.iter().map(|drift| (drift.real, drift.worse)).collect::<Vec<_>>(), [(true, true), (false, true)]);
        let newer = BTreeMap::from([("driver".to_owned(), "596.01".to_owned())]);
        assert_eq!(read.moved(&newer).len(), 1);
        let besides = |us: f64| read.drifts_of(&[reading(us)], 0.03).iter().map(|d| (d.real, d.worse)).collect::<Vec<_>>();
        // Launches scatter by 15 %: 42 % is the bound.
        assert_eq!((besides(4.6), besides(6.0), besides(2.2)), (vec![(false, true)], vec![(true, true)], vec![(true, false)]));
        assert_eq!(Baseline::from_toml("b.toml", "format = 7\ndate = \"x\"").expect_err("newer").code, "baseline");
    }
}
