//! The TOML file of a campaign: what is measured, the factors, the runs.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use serde::Deserialize;

use crate::error::Fault;
use crate::error::Result;

/// The version of the layout.
pub const FORMAT: i64 = 1;

/// A campaign.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    /// The version of the layout, [`FORMAT`].
    pub format: i64,
    /// What it is about.
    pub campaign: String,
    /// What runs measure.
    pub measure: Measure,
    /// What one measurement scatters by, one sigma in percent, where its runs do not say.
    #[serde(default = "usual_noise")]
    pub noise_pct: f64,
    /// What the simulator is asked; without it nothing is forecast.
    pub question: Option<Question>,
    /// What can be switched on.
    #[serde(default)]
    pub factors: Vec<Factor>,
    /// What was tried.
    #[serde(default)]
    pub runs: Vec<Run>,
}

fn usual_noise() -> f64 {
    3.0
}

/// What a campaign measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// A verify pass; less is better.
    VerifyMs,
    /// One latency; less is better.
    LatencyUs,
    /// Tokens per second; more is better.
    TokensPerS,
}

impl Measure {
    /// As the file names it.
    pub fn name(self) -> &'static str {
        match self {
            Measure::VerifyMs => "verify_ms",
            Measure::LatencyUs => "latency_us",
            Measure::TokensPerS => "tokens_per_s",
        }
    }

    /// By how much of the old value `new` is better: above zero is better.
    pub fn gain(self, old: f64, new: f64) -> f64 {
        let log = libm::log(old / new);
        if self == Measure::TokensPerS { -log } else { log }
    }
}

/// What the simulator is asked.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// Machine id or file.
    pub machine: String,
    /// Model id or file.
    pub model: String,
    /// Tokens of a verify pass.
    pub tokens: u64,
    /// Cached positions.
    #[serde(default = "usual_context")]
    pub context: u64,
    /// Ranks.
    pub tp: u32,
    /// Strategy that runs where no factor says otherwise.
    pub baseline: String,
}

fn usual_context() -> u64 {
    128
}

/// One thing that can be changed.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Factor {
    /// Short, unique.
    pub id: String,
    /// In words.
    #[serde(default)]
    pub what: String,
    /// The strategy that forecasts it.
    pub strategy: Option<String>,
    /// Variables that `run` sets for it.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Words in a message that implicate it, letter case aside.
    #[serde(default)]
    pub named_by: Vec<String>,
    /// What one run of it costs.
    #[serde(default = "usual_minutes")]
    pub minutes: f64,
    /// Chance that it works at all, where the user knows better than the default by risk.
    pub chance: Option<f64>,
}

fn usual_minutes() -> f64 {
    20.0
}

/// One run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Unique.
    pub id: u64,
    /// When: `YYYY-MM-DD`, a time may follow.
    pub date: Option<String>,
    /// Factors that were on.
    #[serde(default)]
    pub factors: BTreeSet<String>,
    /// What came of it.
    pub outcome: Outcome,
    /// Of a crash.
    #[serde(default)]
    pub message: String,
    /// Of a measurement.
    pub value: Option<f64>,
    /// Smallest of its repetitions.
    pub low: Option<f64>,
    /// Largest of its repetitions.
    pub high: Option<f64>,
    /// Free text.
    #[serde(default)]
    pub note: String,
    /// Exit code of the command.
    pub exit: Option<i64>,
    /// Seconds that it ran.
    pub seconds: Option<f64>,
    /// What was launched.
    #[serde(default)]
    pub command: String,
    /// Last lines that it printed.
    #[serde(default)]
    pub log: String,
    /// Variables that bear on the result.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Driver, kernel, engine, ….
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    /// Clocks and power limits of the GPUs.
    #[serde(default)]
    pub clocks: BTreeMap<String, String>,
}

/// What came of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It ended with an error.
    Crash,
    /// It did not answer in time.
    Hang,
    /// It answered, but wrongly.
    Wrong,
    /// It was ended before it could tell; it proves nothing.
    Interrupted,
    /// It answered rightly; nothing was measured.
    Serves,
    /// It answered rightly and was measured.
    Measured,
}

impl Outcome {
    /// Whether it answered rightly.
    pub fn works(self) -> bool {
        matches!(self, Outcome::Serves | Outcome::Measured)
    }

    /// Whether it failed by itself.
    pub fn fails(self) -> bool {
        matches!(self, Outcome::Crash | Outcome::Hang | Outcome::Wrong)
    }

    /// As the file names it.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Interrupted => "interrupted",
            Outcome::Crash => "crash",
            Outcome::Hang => "hang",
            Outcome::Wrong => "wrong",
            Outcome::Serves => "serves",
            Outcome::Measured => "measured",
        }
    }
}

impl Run {
    /// Relative scatter of its value, one sigma.
    pub fn scatter(&self, noise_pct: f64) -> f64 {
        match (self.low, self.high) {
            (Some(low), Some(high)) if high > low => libm::log(high / low) / 2.0 / 1.645,
            _ => noise_pct / 100.0,
        }
    }
}

/// A day of the calendar as `YYYY-MM-DD`; a time may follow.
fn is_date(text: &str) -> bool {
    let Some(day) = text.get(..10).filter(|_| matches!(text.as_bytes().get(10), None | Some(b' ' | b'T'))) else { return false };
    let parts: Vec<u32> =
        day.split('-').filter(|part| part.bytes().all(|b| b.is_ascii_digit())).filter_map(|part| part.parse().ok()).collect();
    let [year, month, day] = parts[..] else { return false };
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    (1..=days).contains(&day)
}

impl Ledger {
    /// Reads the text of `name`.
    ///
    /// # Errors
    /// `ledger` with the place for text that is no ledger, unknown factors, ids given twice, values without meaning.
    pub fn from_toml(name: &str, text: &str) -> Result<Ledger> {
        let ledger: Ledger = toml::from_str(text).map_err(|error: toml::de::Error| {
            let message = error.message().lines().next().unwrap_or("").to_owned();
            Fault::new("ledger", format!("{name}: {message}"))
                .at(name, text, error.span().unwrap_or(0..0), "here")
                .help("`lanecast experiment new` writes a ledger to begin with; docs/diagnosing.md explains it")
        })?;
        ledger.check(name)?;
        Ok(ledger)
    }

    fn check(&self, name: &str) -> Result<()> {
        let refuse = |what: String| Err(Fault::new("ledger", format!("{name}: {what}")).help("mend the file; nothing was written"));
        if self.format != FORMAT {
            return refuse(format!("format {} is not known, this program reads {FORMAT}", self.format));
        }
        if !(0.01..=100.0).contains(&self.noise_pct) {
            return refuse(format!("noise_pct = {} is not from 0.01 to 100", self.noise_pct));
        }
        let mut ids = BTreeSet::new();
        for factor in &self.factors {
            if factor.id.is_empty() || !ids.insert(factor.id.as_str()) {
                return refuse(format!("the factor `{}` stands there twice or has no name", factor.id));
            }
            let chance = factor.chance.unwrap_or(0.5);
            if !(0.0..=1.0).contains(&chance) || !(0.1..=1e6).contains(&factor.minutes) {
                return refuse(format!("the factor `{}` has a chance or minutes that cannot be", factor.id));
            }
        }
        let mut runs = BTreeSet::new();
        for run in &self.runs {
            if !runs.insert(run.id) {
                return refuse(format!("there are two runs {}", run.id));
            }
            if let Some(unknown) = run.factors.iter().find(|factor| !ids.contains(factor.as_str())) {
                return refuse(format!("run {} has the factor `{unknown}`, which is not among [[factors]]", run.id));
            }
            let values = [run.value, run.low, run.high];
            if values.into_iter().flatten().any(|value| !(value.is_finite() && value > 0.0)) {
                return refuse(format!("run {} has a value that is not above zero", run.id));
            }
            if let (Some(low), Some(high)) = (run.low, run.high)
                && low > high
            {
                return refuse(format!("run {}: its smallest value {low} is above its largest {high}", run.id));
            }
            let outside = |value: f64| run.low.is_some_and(|low| value < low) || run.high.is_some_and(|high| value > high);
            if run.value.is_some_and(outside) {
                return refuse(format!("run {}: its value does not lie between its smallest and its largest", run.id));
            }
            if let Some(date) = run.date.as_ref().filter(|date| !is_date(date)) {
                return refuse(format!("run {}: `{date}` is no date such as 2026-02-28", run.id));
            }
            if (run.outcome == Outcome::Measured) != run.value.is_some() {
                return refuse(format!("run {}: a measured run has a value, and no other has one", run.id));
            }
        }
        Ok(())
    }

    /// The factor of that id.
    pub fn factor(&self, id: &str) -> Option<&Factor> {
        self.factors.iter().find(|factor| factor.id == id)
    }

    /// Runs by id.
    pub fn sorted(&self) -> Vec<&Run> {
        let mut runs: Vec<&Run> = self.runs.iter().collect();
        runs.sort_by_key(|run| run.id);
        runs
    }
}
