//! How far a forecast is from the observations, in squared sigmas.
//!
//! Logarithms of observed over forecast, each with its own scatter and error of
//! forecast; kinds of one group share an unknown factor besides, which is
//! integrated out (its prior width is [`Group::shared_error`]).

use super::forecast::Figures;
use super::forecast::tokens_per_cycle;
use super::kind::Group;
use super::kind::Kind;
use super::observed::Observations;

/// The observations as a space with a metric.
pub struct Space {
    /// What was observed, in order.
    pub kinds: Vec<Kind>,
    observed: Vec<f64>,
    weights: Vec<f64>,
    acceptance: Option<f64>,
    drafts: u64,
}

impl Space {
    /// `drafts` are the drafted tokens of a cycle.
    pub fn new(observations: &Observations, drafts: u64) -> Space {
        let all: Vec<_> = observations.0.values().collect();
        let weight = |kind: Kind, scatter: f64| 1.0 / (scatter * scatter + kind.own_error() * kind.own_error());
        Space {
            kinds: all.iter().map(|one| one.kind).collect(),
            observed: all.iter().map(|one| libm::log(one.value)).collect(),
            weights: all.iter().map(|one| weight(one.kind, one.scatter)).collect(),
            acceptance: observations.value(Kind::Acceptance),
            drafts,
        }
    }

    /// Logarithms of a forecast, in the order of the kinds. Tokens per second with speculation are taken at the
    /// observed acceptance where there is one. What was not forecast counts as observed.
    pub fn point(&self, figures: &Figures) -> Vec<f64> {
        let forecast = |kind: Kind| {
            let value = *figures.get(&kind)?;
            let cycle = |acceptance: f64| tokens_per_cycle(acceptance, self.drafts);
            let factor = match (kind, self.acceptance, figures.get(&Kind::Acceptance)) {
                (Kind::SpecTps, Some(observed), Some(assumed)) => cycle(observed) / cycle(*assumed),
                _ => 1.0,
            };
            Some(libm::log((value * factor).max(1e-12)))
        };
        self.kinds.iter().zip(&self.observed).map(|(kind, observed)| forecast(*kind).unwrap_or(*observed)).collect()
    }

    /// Observed minus forecast.
    pub fn residual(&self, point: &[f64]) -> Vec<f64> {
        self.observed.iter().zip(point).map(|(observed, forecast)| observed - forecast).collect()
    }

    /// The inner product of two differences.
    pub fn form(&self, x: &[f64], y: &[f64]) -> f64 {
        self.form_of(x, y, |_| true)
    }

    /// The same with some of the observations only.
    pub fn form_of(&self, x: &[f64], y: &[f64], keep: impl Fn(Kind) -> bool) -> f64 {
        let kept = |index: &usize| keep(self.kinds[*index]);
        let own: f64 = (0..self.kinds.len()).filter(kept).map(|index| self.weights[index] * x[index] * y[index]).sum();
        let shared = |group: Group| {
            let error = group.shared_error();
            if error <= 0.0 {
                return 0.0;
            }
            let members = (0..self.kinds.len()).filter(kept).filter(|index| self.kinds[*index].group() == group);
            let (mut of_x, mut of_y, mut weight) = (0.0, 0.0, 0.0);
            for index in members {
                let signed = self.weights[index] * self.kinds[index].sign();
                of_x += signed * x[index];
                of_y += signed * y[index];
                weight += self.weights[index];
            }
            of_x * of_y / (weight + 1.0 / (error * error))
        };
        own - Group::ALL.into_iter().map(shared).sum::<f64>()
    }

    /// Squared sigmas between the observations and a forecast.
    pub fn misfit(&self, point: &[f64]) -> f64 {
        let residual = self.residual(point);
        self.form(&residual, &residual)
    }

    /// What a forecast that is right exceeds in one case of fifty: the mean and two deviations of chi squared.
    pub fn acceptable(&self) -> f64 {
        let count = self.kinds.len() as f64;
        count + 2.0 * libm::sqrt(2.0 * count)
    }

    /// Between two forecasts, from 0 to 1, the place that fits best, and its point.
    pub fn between(&self, from: &[f64], to: &[f64]) -> (f64, Vec<f64>) {
        let along: Vec<f64> = to.iter().zip(from).map(|(to, from)| to - from).collect();
        let length = self.form(&along, &along);
        let place = if length > 1e-12 { (self.form(&self.residual(from), &along) / length).clamp(0.0, 1.0) } else { 0.0 };
        (place, from.iter().zip(&along).map(|(from, step)| from + place * step).collect())
    }
}

/// Sigmas that a single unobserved kind would tell two forecasts apart by.
pub fn sigmas(kind: Kind, one: &Figures, other: &Figures) -> f64 {
    /// Scatter of a careful measurement.
    const SCATTER: f64 = 0.03;
    let (Some(a), Some(b)) = (one.get(&kind), other.get(&kind)) else { return 0.0 };
    let (own, shared) = (kind.own_error(), kind.group().shared_error());
    libm::log(a.max(1e-12) / b.max(1e-12)).abs() / libm::sqrt(SCATTER * SCATTER + own * own + shared * shared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::diagnose::observed::parse;

    fn space(texts: &[&str]) -> Space {
        let mut observations = Observations::default();
        for text in texts {
            assert_eq!(observations.add(parse(text, "test", 0.03, 8).expect("reads")), None);
        }
        Space::new(&observations, 2)
    }

    /// One observation of 10 % more: weight 1 / (0.03² + 0.03²) = 555.6; the shared 10 % take most of it:
    /// x² / (0.03² + 0.03² + 0.1²) with x = ln 1.1 = 0.09531: 0.770.
    #[test]
    fn a_shared_factor_takes_what_is_common() {
        let space = space(&["verify_ms=11"]);
        let figures = Figures::from([(Kind::VerifyMs, 10.0)]);
        let misfit = space.misfit(&space.point(&figures));
        assert!((misfit - 0.770).abs() < 1e-3, "{misfit}");
    }

    /// Half the tokens per second and twice the time are one factor; twice both is none.
    #[test]
    fn rates_and_times_move_against_each_other() {
        let space = space(&["verify_ms=11", "decode_tps=100"]);
        let misfit = |ms: f64, tps: f64| space.misfit(&space.point(&Figures::from([(Kind::VerifyMs, ms), (Kind::DecodeTps, tps)])));
        assert!(misfit(10.0, 110.0) < misfit(10.0, 90.9) / 5.0);
    }

    #[test]
    fn the_best_place_between_two_forecasts() {
        let space = space(&["p2p_near_gbps=20"]);
        let point = |gbps: f64| space.point(&Figures::from([(Kind::P2pNearGbps, gbps)]));
        let (place, best) = space.between(&point(10.0), &point(40.0));
        assert!((place - 0.5).abs() < 1e-9 && space.misfit(&best) < 1e-12);
        assert_eq!(space.between(&point(30.0), &point(40.0)).0, 0.0);
    }
}
