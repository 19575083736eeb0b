//! Forecasts against observations, by group.

use std::collections::BTreeMap;

use rayon::prelude::*;

use crate::error::Result;
use crate::machine::Machine;
use crate::trace::observation::Observation;

use super::observe;

/// One observation and its forecast.
pub struct Compared<'a> {
    /// What was measured.
    pub row: &'a Observation,
    /// The forecast in microseconds, or why there is none.
    pub forecast_us: std::result::Result<f64, String>,
}

impl Compared<'_> {
    /// |forecast / measured − 1| in percent.
    pub fn error_pct(&self) -> Option<f64> {
        let forecast = *self.forecast_us.as_ref().ok()?;
        Some((forecast / self.row.latency_us - 1.0).abs() * 100.0)
    }
}

/// What rows are grouped by.
pub type Key = (String, u32, String, String, String, String);

/// Errors of one group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Errors {
    /// Rows with a forecast.
    pub rows: usize,
    /// Rows without.
    pub skipped: usize,
    /// Median of the errors, percent; NaN without rows.
    pub median_pct: f64,
    /// 95th percentile.
    pub p95_pct: f64,
    /// Largest.
    pub max_pct: f64,
    /// Kendall's tau-b between forecasts and measurements; NaN where it has no meaning.
    pub kendall_tau: f64,
}

/// Simulates every observation; machines are looked up by `find`.
pub fn compare<'a>(rows: &'a [Observation], find: &(dyn Fn(&str) -> Result<Machine> + Sync)) -> Vec<Compared<'a>> {
    let mut machines: BTreeMap<&str, std::result::Result<Machine, String>> = BTreeMap::new();
    for row in rows {
        machines.entry(&row.machine).or_insert_with(|| find(&row.machine).map_err(|fault| fault.message.clone()));
    }
    (rows.par_iter())
        .map(|row| {
            let forecast_us = match &machines[row.machine.as_str()] {
                Ok(machine) => observe::simulate(machine, row).map(|(us, _)| us).map_err(|fault| fault.message.clone()),
                Err(message) => Err(message.clone()),
            };
            Compared { row, forecast_us }
        })
        .collect()
}

/// Errors of rows on one machine, whatever machine they name.
pub fn on_machine(machine: &Machine, rows: &[&Observation]) -> Errors {
    let compared: Vec<Compared<'_>> = (rows.par_iter())
        .map(|row| Compared { row, forecast_us: observe::simulate(machine, row).map(|(us, _)| us).map_err(|fault| fault.message.clone()) })
        .collect();
    errors(&compared.iter().collect::<Vec<_>>())
}

/// Errors by (machine, ranks, implementation, algorithm, protocol, timing).
pub fn groups<'a>(compared: &'a [Compared<'a>]) -> BTreeMap<Key, Errors> {
    let mut members: BTreeMap<Key, Vec<&Compared<'_>>> = BTreeMap::new();
    for one in compared {
        let row = one.row;
        let names = [row.implementation.name(), row.algorithm.name(), row.protocol.name(), row.timing.name()].map(str::to_owned);
        let [implementation, algorithm, protocol, timing] = names;
        members.entry((row.machine.clone(), row.ranks, implementation, algorithm, protocol, timing)).or_default().push(one);
    }
    members.into_iter().map(|(key, members)| (key, errors(&members))).collect()
}

/// Errors of some rows together.
pub fn errors(compared: &[&Compared<'_>]) -> Errors {
    let mut percents: Vec<f64> = compared.iter().filter_map(|one| one.error_pct()).collect();
    percents.sort_by(f64::total_cmp);
    let pairs: Vec<(f64, f64)> =
        compared.iter().filter_map(|one| one.forecast_us.as_ref().ok().map(|forecast| (*forecast, one.row.latency_us))).collect();
    Errors {
        rows: percents.len(),
        skipped: compared.len() - percents.len(),
        median_pct: quantile(&percents, 0.5),
        p95_pct: quantile(&percents, 0.95),
        max_pct: percents.last().copied().unwrap_or(f64::NAN),
        kendall_tau: kendall_tau(&pairs),
    }
}

/// The quantile by linear interpolation of sorted values; NaN without any.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = share * last as f64;
    let below = libm::floor(place) as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

/// Kendall's tau-b: agreement of two orders, ties taken into account.
fn kendall_tau(pairs: &[(f64, f64)]) -> f64 {
    let (mut agree, mut ties_first, mut ties_second) = (0i64, 0i64, 0i64);
    for (index, one) in pairs.iter().enumerate() {
        for other in &pairs[index + 1..] {
            let (first, second) = (one.0.total_cmp(&other.0) as i64, one.1.total_cmp(&other.1) as i64);
            agree += first * second;
            ties_first += i64::from(first == 0);
            ties_second += i64::from(second == 0);
        }
    }
    let all = (pairs.len() * pairs.len().saturating_sub(1) / 2) as i64;
    let scale = libm::sqrt((all - ties_first) as f64) * libm::sqrt((all - ties_second) as f64);
    if scale > 0.0 { agree as f64 / scale } else { f64::NAN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), 2.5);
        assert_eq!(quantile(&[7.0], 0.95), 7.0);
        assert!(quantile(&[], 0.5).is_nan());
    }

    /// Three pairs, one of them out of order: (2 − 1) / 3.
    #[test]
    fn tau_counts_pairs() {
        assert!((kendall_tau(&[(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)]) - 1.0).abs() < 1e-12);
        assert!((kendall_tau(&[(1.0, 1.0), (2.0, 3.0), (3.0, 2.0)]) - 1.0 / 3.0).abs() < 1e-12);
        assert!(kendall_tau(&[(1.0, 1.0)]).is_nan());
    }
}
