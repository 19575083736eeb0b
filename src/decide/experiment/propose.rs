//! The run that isolates or pays most, and when to stop.
//!
//! A factor that a failed run left open comes first: alone, first whether it
//! serves, then measured against the baseline. Otherwise a run is worth its
//! expected gain (the forecast may be wrong by [`FORECAST_ERROR`], and a loss is
//! not kept) times the chance that it works, over its minutes.

use std::collections::BTreeSet;

use crate::error::Result;

use super::expect::Expectation;
use super::expect::Expecter;
use super::ledger::Ledger;
use super::verdict::FactorVerdict;
use super::verdict::Isolated;
use super::verdict::Status;

/// One sigma of a forecast gain, as a share of the pass. Public before-and-after pairs differ by as much.
pub const FORECAST_ERROR: f64 = 0.05;

/// Share of the noise below which an expected gain is not worth a run.
const WORTHLESS: f64 = 0.25;

/// Chance of a factor of which nothing is known and nothing can be forecast.
const UNKNOWN_CHANCE: f64 = 0.5;

/// What a proposed run is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Measure the server as it is.
    Baseline,
    /// See whether it serves at all with one factor alone.
    Serve,
    /// Measure one factor alone against the baseline.
    Measure,
    /// All that gains alone, together.
    Combine,
}

/// One proposed run.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// Factors that are on.
    pub factors: BTreeSet<String>,
    /// What it is for.
    pub purpose: Purpose,
    /// Whether it settles what a failed run left open.
    pub isolates: bool,
    /// What the simulator expects.
    pub expectation: Option<Expectation>,
    /// Chance that it works.
    pub chance: f64,
    /// What it costs.
    pub minutes: f64,
    /// Expected gain (share of the pass, chance included).
    pub worth: f64,
}

/// The proposals, best first, and whether to stop.
#[derive(Clone, Debug, PartialEq)]
pub struct Next {
    /// Best first.
    pub proposals: Vec<Proposal>,
    /// Why to stop, if it is time.
    pub stop: Option<String>,
    /// The forecast of the baseline, ms, where there is a question.
    pub baseline_ms: Option<f64>,
}

/// Proposes.
///
/// # Errors
/// Those of the simulator, where the ledger has a question.
pub fn next(ledger: &Ledger, status: &Status) -> Result<Next> {
    let expecter = ledger.question.as_ref().map(Expecter::new).transpose()?;
    let mut proposals = Vec::new();
    let is_baseline = |run: &&super::ledger::Run| run.factors.is_empty() && run.value.is_some();
    if ledger.runs.iter().filter(is_baseline).count() == 0 {
        proposals.push(Proposal {
            factors: BTreeSet::new(),
            purpose: Purpose::Baseline,
            isolates: true,
            expectation: None,
            chance: 1.0,
            minutes: 10.0,
            worth: 1.0,
        });
    }
    for verdict in &status.factors {
        let Some(factor) = ledger.factor(&verdict.factor) else { continue };
        if verdict.is_broken()
            || matches!(verdict.isolated, Some(Isolated::Changes { .. } | Isolated::Nothing { .. } | Isolated::Mixed { .. }))
        {
            continue;
        }
        let expectation = expecter.as_ref().map(|expecter| expecter.expect(factor)).transpose()?;
        proposals.push(of_factor(ledger, verdict, expectation, factor.minutes));
    }
    proposals.extend(together(ledger, status));
    let rate = |proposal: &Proposal| proposal.worth / proposal.minutes.max(0.1);
    proposals.sort_by(|a, b| b.isolates.cmp(&a.isolates).then(rate(b).total_cmp(&rate(a))).then_with(|| a.factors.cmp(&b.factors)));
    let best = proposals.iter().map(|proposal| if proposal.isolates { f64::INFINITY } else { proposal.worth }).fold(0.0, f64::max);
    let least = WORTHLESS * ledger.noise_pct / 100.0;
    let stop = match (proposals.is_empty(), best < least) {
        (true, _) => Some("every factor has its verdict: nothing is left to try in this campaign".to_owned()),
        (false, true) => Some(format!(
            "stop here: the best run left promises {:.2} % of the pass, chance included, where the noise is {:.1} %",
            100.0 * best,
            ledger.noise_pct
        )),
        _ => None,
    };
    Ok(Next { proposals, stop, baseline_ms: expecter.map(|expecter| expecter.baseline_ms) })
}

fn of_factor(ledger: &Ledger, verdict: &FactorVerdict, expectation: Option<Expectation>, minutes: f64) -> Proposal {
    let alone = |run: &&super::ledger::Run| run.factors.len() == 1 && run.factors.contains(&verdict.factor) && run.outcome.works();
    let serves = ledger.runs.iter().any(|run| alone(&run));
    let chance = if serves { 1.0 } else { expectation.as_ref().map_or(UNKNOWN_CHANCE, |expected| expected.chance) };
    let gain = expectation.as_ref().and_then(Expectation::gain);
    Proposal {
        factors: BTreeSet::from([verdict.factor.clone()]),
        purpose: if serves { Purpose::Measure } else { Purpose::Serve },
        isolates: verdict.is_open() || (serves && !verdict.open_in.is_empty()),
        worth: chance * kept(gain.unwrap_or(0.0)),
        expectation,
        chance,
        minutes,
    }
}

/// All factors that gain alone, together, once: gains need not add.
fn together(ledger: &Ledger, status: &Status) -> Option<Proposal> {
    let gains = |verdict: &&FactorVerdict| matches!(verdict.isolated, Some(Isolated::Changes { gain_pct, .. }) if gain_pct > 0.0);
    let good: Vec<&FactorVerdict> = status.factors.iter().filter(gains).collect();
    let factors: BTreeSet<String> = good.iter().map(|verdict| verdict.factor.clone()).collect();
    if factors.len() < 2 || ledger.runs.iter().any(|run| run.factors == factors) {
        return None;
    }
    // The largest is had already; the rest may be.
    let mut all: Vec<f64> = (good.iter())
        .map(|verdict| if let Some(Isolated::Changes { gain_pct, .. }) = verdict.isolated { gain_pct / 100.0 } else { 0.0 })
        .collect();
    all.sort_by(f64::total_cmp);
    all.pop();
    let minutes = factors.iter().filter_map(|id| ledger.factor(id)).map(|factor| factor.minutes).fold(0.0, f64::max);
    let worth = 0.7 * all.iter().sum::<f64>();
    Some(Proposal { factors, purpose: Purpose::Combine, isolates: false, expectation: None, chance: 0.7, minutes, worth })
}

/// Mean of what is kept of a gain that is normally distributed about its forecast: losses are taken back.
fn kept(gain: f64) -> f64 {
    let z = gain / FORECAST_ERROR;
    let density = libm::exp(-z * z / 2.0) / libm::sqrt(2.0 * std::f64::consts::PI);
    let below = 0.5 * libm::erfc(-z / std::f64::consts::SQRT_2);
    gain * below + FORECAST_ERROR * density
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No forecast gain: 0.05 / sqrt(2π) = 1.99 % by luck. A sure gain is itself, a sure loss nothing.
    #[test]
    fn losses_are_not_kept() {
        assert!((kept(0.0) - 0.01995).abs() < 1e-4);
        assert!((kept(0.5) - 0.5).abs() < 1e-9 && kept(-0.5) < 1e-9);
    }
}
