//! Forecasts against measurements, by group.

use std::collections::BTreeMap;

use rayon::prelude::*;

use crate::cost::accuracy;
use crate::cost::observations;
use crate::error::Result;
use crate::machine::GpuKind;
use crate::machine::Machine;
use crate::simulate::stamp::PARTS;
use crate::trace::flows::FlowObservation;
use crate::trace::flows::Flows;
use crate::trace::observation::Observation;

use super::flows;
use super::observe;

/// One measurement and its forecast.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The group it belongs to.
    pub key: Key,
    /// What was measured, in words.
    pub label: String,
    /// Bytes of a collective; 0 where it means nothing.
    pub bytes: u64,
    /// The measurement.
    pub measured: f64,
    /// The forecast in the same unit, or why there is none.
    pub forecast: std::result::Result<f64, String>,
    /// `us` or `GB/s`.
    pub unit: &'static str,
    /// On what the forecast's critical path spends an operation, in picoseconds.
    pub parts: Option<[u64; PARTS]>,
}

impl Compared {
    /// |forecast / measured − 1| in percent.
    pub fn error_pct(&self) -> Option<f64> {
        Some(self.signed_pct()?.abs())
    }

    /// forecast / measured − 1 in percent.
    pub fn signed_pct(&self) -> Option<f64> {
        let forecast = *self.forecast.as_ref().ok()?;
        Some((forecast / self.measured - 1.0) * 100.0)
    }
}

/// What rows are grouped by: machine, ranks, implementation, algorithm, protocol, timing.
///
/// Flows have `flows`, their access and how many there are; kernels `kernel`, their
/// family and whether their shape was held out from fitting.
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
    /// 90th percentile: half of a 90 % interval around a forecast.
    pub p90_pct: f64,
    /// 95th percentile.
    pub p95_pct: f64,
    /// Largest.
    pub max_pct: f64,
    /// Kendall's tau-b between forecasts and measurements; NaN where it has no meaning.
    pub kendall_tau: f64,
}

/// Machines by id, each found once.
fn machines<'a>(ids: impl Iterator<Item = &'a str>, find: &Find<'_>) -> BTreeMap<&'a str, std::result::Result<Machine, String>> {
    let mut machines = BTreeMap::new();
    for id in ids {
        machines.entry(id).or_insert_with(|| find(id).map_err(|fault| fault.message.clone()));
    }
    machines
}

/// Finds a machine by id.
pub type Find<'a> = dyn Fn(&str) -> Result<Machine> + Sync + 'a;

/// Simulates every observation; machines are looked up by `find`.
pub fn collectives(rows: &[Observation], find: &Find<'_>) -> Vec<Compared> {
    let machines = machines(rows.iter().map(|row| row.machine.as_str()), find);
    (rows.par_iter())
        .map(|row| match &machines[row.machine.as_str()] {
            Ok(machine) => collective(machine, row),
            Err(message) => compared(row, Err(message.clone()), None),
        })
        .collect()
}

/// Errors of rows on one machine, whatever machine they name.
pub fn on_machine(machine: &Machine, rows: &[&Observation]) -> Errors {
    errors(&rows.par_iter().map(|row| collective(machine, row)).collect::<Vec<_>>())
}

fn collective(machine: &Machine, row: &Observation) -> Compared {
    let simulated = observe::prepare(machine, row).and_then(|prepared| Ok((prepared.simulate(machine)?, prepared.count())));
    match simulated {
        Ok(((us, outcome), count)) => {
            let parts = outcome.critical().parts.map(|part| part / u64::from(count.max(1)));
            compared(row, Ok(us), Some(parts))
        }
        Err(fault) => compared(row, Err(fault.message.clone()), None),
    }
}

fn compared(row: &Observation, forecast: std::result::Result<f64, String>, parts: Option<[u64; PARTS]>) -> Compared {
    let [implementation, algorithm, protocol, timing] =
        [row.implementation.name(), row.algorithm.name(), row.protocol.name(), row.timing.name()].map(str::to_owned);
    let channels = row.channels.map_or(String::new(), |channels| format!(" {}ch", channels.max));
    let threads = row.threads.map_or(String::new(), |threads| format!(" {threads}thr"));
    Compared {
        label: format!("{} {} {implementation} {algorithm} {protocol}{channels}{threads}", row.machine, row.ranks),
        key: (row.machine.clone(), row.ranks, implementation, algorithm, protocol, timing),
        bytes: row.bytes,
        measured: row.latency_us,
        forecast,
        unit: "us",
        parts,
    }
}

/// Rates of flows; machines are looked up by `find`.
pub fn transfers(rows: &[FlowObservation], find: &Find<'_>) -> Vec<Compared> {
    let machines = machines(rows.iter().map(|row| row.machine.as_str()), find);
    (rows.iter())
        .map(|row| {
            let (gpus, forecast) = match &machines[row.machine.as_str()] {
                Ok(machine) => (machine.gpus.len() as u32, flows::forecast(machine, row).map_err(|fault| fault.message.clone())),
                Err(message) => (0, Err(message.clone())),
            };
            let (count, pairs) = match &row.flows {
                Flows::All => ("all pairs", "all".to_owned()),
                Flows::Pairs(pairs) if pairs.len() == 1 => ("one", row.flows.to_string()),
                Flows::Pairs(_) => ("several", row.flows.to_string()),
            };
            let access = row.access.name();
            Compared {
                label: format!("{} {access} {pairs} ({})", row.machine, row.source),
                key: (row.machine.clone(), gpus, "flows".to_owned(), access.to_owned(), count.to_owned(), String::new()),
                bytes: 0,
                measured: row.total_gbps,
                forecast,
                unit: "GB/s",
                parts: None,
            }
        })
        .collect()
}

/// Durations of kernels on a kind of GPU called `name`.
pub fn kernels(rows: &observations::Observations, name: &str, kind: &GpuKind) -> Vec<Compared> {
    let key = |group: &str, set: &str| (name.to_owned(), 1, "kernel".to_owned(), group.to_owned(), set.to_owned(), String::new());
    let found = rows.rows.iter().map(|row| Compared {
        key: key(&row.group, if row.held_out { "held out" } else { "fitted" }),
        label: format!("{name} {} line {}", row.group, row.line),
        bytes: 0,
        measured: row.latency_us,
        forecast: Ok(accuracy::forecast(row, kind).us()),
        unit: "us",
        parts: None,
    });
    let skipped = rows.skipped.iter().map(|row| Compared {
        key: key("other", ""),
        label: format!("{name} line {}", row.line),
        bytes: 0,
        measured: f64::NAN,
        forecast: Err(row.reason.clone()),
        unit: "us",
        parts: None,
    });
    found.chain(skipped).collect()
}

/// Errors by group.
pub fn groups(compared: &[Compared]) -> BTreeMap<Key, Errors> {
    let mut members: BTreeMap<Key, Vec<&Compared>> = BTreeMap::new();
    for one in compared {
        members.entry(one.key.clone()).or_default().push(one);
    }
    members.into_iter().map(|(key, members)| (key, errors(members))).collect()
}

/// Errors of some rows together.
pub fn errors<'a>(compared: impl IntoIterator<Item = &'a Compared>) -> Errors {
    let (mut all, mut percents, mut pairs) = (0, Vec::new(), Vec::new());
    for one in compared {
        all += 1;
        if let (Some(percent), Ok(forecast)) = (one.error_pct(), &one.forecast) {
            percents.push(percent);
            pairs.push((*forecast, one.measured));
        }
    }
    percents.sort_by(f64::total_cmp);
    Errors {
        rows: percents.len(),
        skipped: all - percents.len(),
        median_pct: quantile(&percents, 0.5),
        p90_pct: quantile(&percents, 0.9),
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
