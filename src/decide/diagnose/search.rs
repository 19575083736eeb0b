//! Singles and pairs of hypotheses, simulated and put in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;

use rayon::prelude::*;

use crate::error::Result;

use super::fit::Space;
use super::forecast::Figures;
use super::forecast::forecast;
use super::hypothesis::ALL;
use super::memo::Memo;
use super::scenario::Scenario;
use super::scenario::Setup;

/// What a further fault must win, in squared sigmas, to be worth assuming.
pub const PRICE_OF_A_FAULT: f64 = 5.0;

/// Pairs that are simulated: the best by the sum of what each does alone, at most and at least.
const PAIRS_MOST: usize = 24;
/// See [`PAIRS_MOST`].
const PAIRS_LEAST: usize = 4;

/// A pair whose sum scores worse than the best single by more than this is not simulated beyond [`PAIRS_LEAST`].
const PAIR_MARGIN: f64 = 8.0;

/// Below this many squared sigmas a hypothesis leaves no trace in what was observed.
const TRACE: f64 = 2.0;

/// A hypothesis (its place in [`ALL`]) at a level.
pub type Fault = (usize, f64);

/// One explanation: none, one or two faults.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// What is wrong, in the order of [`ALL`]; empty for a healthy server.
    pub faults: Vec<Fault>,
    /// What was simulated, at the listed level next to the fitted one.
    pub figures: Arc<Figures>,
    /// Logarithms of the forecast at the fitted level, in the order of the observed kinds.
    pub point: Vec<f64>,
    /// Squared sigmas from the observations.
    pub misfit: f64,
    /// The same and a price for each fault that no file confirms.
    pub score: f64,
}

/// What the search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Best first; the healthy server is among them.
    pub ranked: Vec<Explanation>,
    /// Cannot be here, or is so already.
    pub inapplicable: Vec<usize>,
    /// Leave no trace in what was observed.
    pub traceless: Vec<usize>,
    /// Could not be simulated, with the reason.
    pub failed: Vec<(usize, String)>,
}

/// Hypotheses, each with its level.
type Faults = Vec<(usize, usize)>;

/// Simulates states of one server once each.
pub struct Simulator<'a> {
    setup: &'a Setup<'a>,
    sizes: Vec<u64>,
    known: Mutex<BTreeMap<Faults, Option<Arc<Figures>>>>,
    memo: Memo,
}

impl<'a> Simulator<'a> {
    /// `sizes` are those of all-reduces beside the usual.
    pub fn new(setup: &'a Setup<'a>, sizes: &[u64]) -> Simulator<'a> {
        let mut all: Vec<u64> = setup.sizes().into_iter().chain(sizes.iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        Simulator { setup, sizes: all, known: Mutex::default(), memo: Memo::default() }
    }

    /// What would be observed with these faults; None where one cannot be here.
    ///
    /// # Errors
    /// Everything that simulating can meet.
    pub fn simulate(&self, faults: &[Fault]) -> Result<Option<Figures>> {
        let mut scenario = Scenario::healthy(self.setup);
        for (hypothesis, level) in faults {
            if !(ALL[*hypothesis].apply)(&mut scenario, *level)? {
                return Ok(None);
            }
        }
        forecast(self.setup, &scenario, &self.sizes, &self.memo).map(Some)
    }

    /// The same at listed levels, remembered.
    fn listed(&self, places: &[(usize, usize)]) -> Result<Option<Arc<Figures>>> {
        if let Some(known) = self.known.lock().ok().and_then(|known| known.get(places).cloned()) {
            return Ok(known);
        }
        let faults: Vec<Fault> = places.iter().map(|(hypothesis, level)| (*hypothesis, ALL[*hypothesis].levels[*level])).collect();
        let figures = self.simulate(&faults)?.map(Arc::new);
        if let Ok(mut known) = self.known.lock() {
            known.insert(places.to_vec(), figures.clone());
        }
        Ok(figures)
    }
}

/// One hypothesis alone: its figures and points by level.
struct Single {
    hypothesis: usize,
    levels: Vec<(Arc<Figures>, Vec<f64>)>,
}

/// Whether pairs of faults are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// Yes.
    Searched,
    /// Singles only.
    Left,
}

/// Searches. `price` is what assuming a hypothesis costs; None excludes it.
///
/// # Errors
/// When the healthy server cannot be simulated.
pub fn search(simulator: &Simulator<'_>, space: &Space, price: &(dyn Fn(usize) -> Option<f64> + Sync), with: Pairs) -> Result<Found> {
    let healthy = simulator.listed(&[])?.unwrap_or_default();
    let origin = space.point(&healthy);
    let mut found = Found { ranked: Vec::new(), inapplicable: Vec::new(), traceless: Vec::new(), failed: Vec::new() };
    let misfit = space.misfit(&origin);
    found.ranked.push(Explanation { faults: Vec::new(), figures: healthy, point: origin.clone(), misfit, score: misfit });
    let wanted: Vec<usize> = (0..ALL.len()).filter(|hypothesis| price(*hypothesis).is_some()).collect();
    let simulated: Vec<(usize, Result<Vec<Arc<Figures>>>)> = wanted.par_iter().map(|&one| (one, levels(simulator, one))).collect();
    let mut singles = Vec::new();
    for (hypothesis, outcome) in simulated {
        let figures = match outcome {
            Ok(figures) => figures,
            Err(fault) => {
                found.failed.push((hypothesis, fault.message.clone()));
                continue;
            }
        };
        if figures.is_empty() {
            found.inapplicable.push(hypothesis);
            continue;
        }
        let levels: Vec<_> = figures.into_iter().map(|figures| (figures.clone(), space.point(&figures))).collect();
        if levels.iter().all(|(_, point)| trace(space, point, &origin) < TRACE) {
            found.traceless.push(hypothesis);
            continue;
        }
        singles.push(Single { hypothesis, levels });
    }
    let price_of = |hypothesis: usize| price(hypothesis).unwrap_or(PRICE_OF_A_FAULT);
    found.ranked.extend(singles.iter().map(|single| best_single(space, single, price_of(single.hypothesis))));
    if with == Pairs::Searched {
        let best = found.ranked.iter().map(|one| one.score).fold(f64::INFINITY, f64::min);
        found.ranked.extend(pairs(simulator, space, &origin, &singles, best, &price_of)?);
    }
    found.ranked.sort_by(|a, b| a.score.total_cmp(&b.score).then_with(|| places(a).cmp(&places(b))));
    Ok(found)
}

fn places(explanation: &Explanation) -> Vec<usize> {
    explanation.faults.iter().map(|fault| fault.0).collect()
}

fn trace(space: &Space, point: &[f64], origin: &[f64]) -> f64 {
    let step: Vec<f64> = point.iter().zip(origin).map(|(a, b)| a - b).collect();
    space.form(&step, &step)
}

/// Figures at every listed level; empty where it cannot be here.
fn levels(simulator: &Simulator<'_>, hypothesis: usize) -> Result<Vec<Arc<Figures>>> {
    let mut all = Vec::new();
    for level in 0..ALL[hypothesis].levels.len() {
        match simulator.listed(&[(hypothesis, level)])? {
            Some(figures) => all.push(figures),
            None => return Ok(Vec::new()),
        }
    }
    Ok(all)
}

/// Best level of a line of points: the listed one next to it, its place, point and misfit.
fn best_on(space: &Space, hypothesis: usize, points: &[&Vec<f64>]) -> (usize, f64, Vec<f64>, f64) {
    let listed = ALL[hypothesis].levels;
    let mut best = (0, listed[0], points[0].clone(), space.misfit(points[0]));
    let mut take = |level: usize, value: f64, point: Vec<f64>| {
        let misfit = space.misfit(&point);
        if misfit < best.3 {
            best = (level, value, point, misfit);
        }
    };
    for (level, point) in points.iter().enumerate().skip(1) {
        take(level, listed[level], (*point).clone());
    }
    if ALL[hypothesis].continuous {
        for level in 1..points.len() {
            let (place, point) = space.between(points[level - 1], points[level]);
            let value = listed[level - 1] + place * (listed[level] - listed[level - 1]);
            take(if place < 0.5 { level - 1 } else { level }, value, point);
        }
    }
    best
}

fn best_single(space: &Space, single: &Single, price: f64) -> Explanation {
    let points: Vec<&Vec<f64>> = single.levels.iter().map(|(_, point)| point).collect();
    let (level, value, point, misfit) = best_on(space, single.hypothesis, &points);
    let figures = single.levels[level].0.clone();
    Explanation { faults: vec![(single.hypothesis, value)], figures, point, misfit, score: misfit + price }
}

/// The pairs that promise most, simulated.
fn pairs(
    simulator: &Simulator<'_>,
    space: &Space,
    origin: &[f64],
    singles: &[Single],
    best_single: f64,
    price: &(dyn Fn(usize) -> f64 + Sync),
) -> Result<Vec<Explanation>> {
    let none = vec![0.0; origin.len()];
    let mut sums: Vec<(f64, usize, usize)> = Vec::new();
    for one in 0..singles.len() {
        for other in one + 1..singles.len() {
            let best = best_pair(space, origin, [&singles[one], &singles[other]], &none);
            sums.push((best.misfit + price(singles[one].hypothesis) + price(singles[other].hypothesis), one, other));
        }
    }
    sums.sort_by(|a, b| a.0.total_cmp(&b.0).then((a.1, a.2).cmp(&(b.1, b.2))));
    let promising = sums.iter().filter(|sum| sum.0 < best_single + PAIR_MARGIN).count();
    sums.truncate(promising.clamp(PAIRS_LEAST, PAIRS_MOST));
    let exact = |(_, one, other): &(f64, usize, usize)| refine(simulator, space, origin, [&singles[*one], &singles[*other]], price);
    let simulated: Vec<Option<Explanation>> = sums.par_iter().map(exact).collect::<Result<_>>()?;
    Ok(simulated.into_iter().flatten().collect())
}

/// A pair's best levels if its effects were the sum of each alone plus `more`.
struct PairFit {
    levels: [usize; 2],
    values: [f64; 2],
    point: Vec<f64>,
    misfit: f64,
}

fn best_pair(space: &Space, origin: &[f64], pair: [&Single; 2], more: &[f64]) -> PairFit {
    let mut best: Option<PairFit> = None;
    for (level, (_, own)) in pair[0].levels.iter().enumerate() {
        let shifted: Vec<Vec<f64>> = (pair[1].levels.iter())
            .map(|(_, point)| (0..origin.len()).map(|i| point[i] + own[i] - origin[i] + more[i]).collect())
            .collect();
        let points: Vec<&Vec<f64>> = shifted.iter().collect();
        let (other, value, point, misfit) = best_on(space, pair[1].hypothesis, &points);
        if best.as_ref().is_none_or(|known| misfit < known.misfit) {
            best = Some(PairFit { levels: [level, other], values: [ALL[pair[0].hypothesis].levels[level], value], point, misfit });
        }
    }
    let Some(mut best) = best else {
        return PairFit { levels: [0, 0], values: [0.0, 0.0], point: origin.to_vec(), misfit: f64::INFINITY };
    };
    // Then the first one's level along its own line, the second one held.
    let rest: Vec<f64> = (0..origin.len()).map(|i| best.point[i] - pair[0].levels[best.levels[0]].1[i]).collect();
    let shifted: Vec<Vec<f64>> =
        pair[0].levels.iter().map(|(_, point)| point.iter().zip(&rest).map(|(point, rest)| point + rest).collect()).collect();
    let points: Vec<&Vec<f64>> = shifted.iter().collect();
    let (level, value, point, misfit) = best_on(space, pair[0].hypothesis, &points);
    if misfit < best.misfit {
        best = PairFit { levels: [level, best.levels[1]], values: [value, best.values[1]], point, misfit };
    }
    best
}

/// Simulates a pair where the sum fits best, learns what the sum misses, and looks again.
fn refine(
    simulator: &Simulator<'_>,
    space: &Space,
    origin: &[f64],
    pair: [&Single; 2],
    price: &(dyn Fn(usize) -> f64 + Sync),
) -> Result<Option<Explanation>> {
    let mut more = vec![0.0; origin.len()];
    let mut fit = best_pair(space, origin, pair, &more);
    let mut figures = Arc::default();
    for _ in 0..3 {
        let places = [(pair[0].hypothesis, fit.levels[0]), (pair[1].hypothesis, fit.levels[1])];
        let Some(simulated) = simulator.listed(&places)? else { return Ok(None) };
        let point = space.point(&simulated);
        let (one, other) = (&pair[0].levels[fit.levels[0]].1, &pair[1].levels[fit.levels[1]].1);
        more = (0..origin.len()).map(|i| point[i] - one[i] - other[i] + origin[i]).collect();
        figures = simulated;
        let levels = fit.levels;
        fit = best_pair(space, origin, pair, &more);
        if fit.levels == levels {
            break;
        }
    }
    let faults = vec![(pair[0].hypothesis, fit.values[0]), (pair[1].hypothesis, fit.values[1])];
    let score = fit.misfit + price(pair[0].hypothesis) + price(pair[1].hypothesis);
    Ok(Some(Explanation { faults, figures, point: fit.point, misfit: fit.misfit, score }))
}
