//! What simple models make of the same split, to stand beside ours.
//!
//! - **Interpolation**: ln latency over ln bytes between the fitted rows of the
//!   same series, then over channels, then over ranks; beyond the ends the
//!   nearest rows' line goes on. It has as many constants as rows.
//! - **Alpha-beta**: a + h · hops + b · bytes per link, each of an algorithm and
//!   protocol of an implementation, by least squares of relative errors.

use std::collections::BTreeMap;

use crate::fit::linear::Normal;
use crate::trace::observation::Collective;
use crate::trace::observation::Observation;

/// A forecast of one row, in microseconds; `None` where the fitted rows say nothing.
pub type Forecast = Option<f64>;

/// What a series of interpolation has in common.
fn family(row: &Observation) -> String {
    format!("{} {} {} {} {} {}", row.machine, row.implementation, row.algorithm, row.protocol, row.timing, row.collective)
}

fn threads(row: &Observation) -> u32 {
    row.threads.unwrap_or(0)
}

fn channels(row: &Observation) -> u32 {
    row.channels.map_or(0, |channels| channels.max)
}

/// Forecasts of `test` by interpolation between the rows of `fit`.
pub fn interpolation(fit: &[&Observation], test: &[&Observation]) -> Vec<Forecast> {
    // Family and threads → ranks → channels → points (ln bytes, ln µs).
    type Points = Vec<(f64, f64)>;
    let mut known: BTreeMap<(String, u32), BTreeMap<u32, BTreeMap<u32, Points>>> = BTreeMap::new();
    for row in fit {
        let by_channels = known.entry((family(row), threads(row))).or_default().entry(row.ranks).or_default();
        by_channels.entry(channels(row)).or_default().push((log(row.bytes as f64), log(row.latency_us)));
    }
    for curve in known.values_mut().flat_map(|ranks| ranks.values_mut()).flat_map(|channels| channels.values_mut()) {
        curve.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    (test.iter())
        .map(|row| {
            let ranks = known.get(&(family(row), threads(row)))?;
            let over_ranks: Points = (ranks.iter())
                .filter_map(|(count, curves)| {
                    let over_channels: Points = (curves.iter())
                        .filter_map(|(channels, curve)| Some((log(f64::from((*channels).max(1))), line(curve, log(row.bytes as f64))?)))
                        .collect();
                    Some((log(f64::from(*count)), line(&over_channels, log(f64::from(channels(row).max(1))))?))
                })
                .collect();
            line(&over_ranks, log(f64::from(row.ranks))).map(libm::exp)
        })
        .collect()
}

/// The piecewise line through points of ascending x.
fn line(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let first = points.first()?;
    let place = points.partition_point(|point| point.0 < x);
    if points.len() == 1 || (place < points.len() && points[place].0 == x) {
        return Some(if points.len() == 1 { first.1 } else { points[place].1 });
    }
    let above = place.clamp(1, points.len() - 1);
    let ((x0, y0), (x1, y1)) = (points[above - 1], points[above]);
    Some(if x1 > x0 { y0 + (y1 - y0) * (x - x0) / (x1 - x0) } else { y0 })
}

/// Forecasts of `test` by an alpha-beta model fitted to `fit`.
pub fn alpha_beta(fit: &[&Observation], test: &[&Observation]) -> Vec<Forecast> {
    let mut systems: BTreeMap<String, Normal> = BTreeMap::new();
    for row in fit {
        let terms = terms(row).map(|term| term / row.latency_us);
        systems.entry(family(row)).or_insert_with(|| Normal::new(3)).add(&terms, 1.0, 1.0);
    }
    let solved: BTreeMap<String, Option<Vec<f64>>> =
        systems.into_iter().map(|(family, normal)| (family, normal.damped(1e-9).solve())).collect();
    (test.iter())
        .map(|row| {
            let constants = solved.get(&family(row))?.as_ref()?;
            Some(terms(row).iter().zip(constants).map(|(term, constant)| term * constant).sum())
        })
        .collect()
}

/// One, hops, and kilobytes through the busiest link (of a channel, where their number is set).
fn terms(row: &Observation) -> [f64; 3] {
    let ranks = f64::from(row.ranks);
    let rounds = if row.collective == Collective::AllReduce { 2.0 } else { 1.0 };
    let hops = rounds * (ranks - 1.0);
    [1.0, hops, row.bytes as f64 / 1e3 * hops / ranks / f64::from(channels(row).max(1))]
}

fn log(value: f64) -> f64 {
    libm::log(value.max(1e-9))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::observation::read_bytes;

    fn rows(lines: &str) -> Vec<Observation> {
        read_bytes("x.csv", format!("machine,ranks,algorithm,protocol,channels,bytes,latency_us\n{lines}").as_bytes()).expect("rows")
    }

    /// Between 1 and 4 KiB, 2 is half the way in logarithms: √(10 · 40) = 20.
    #[test]
    fn interpolation_is_a_line_in_logarithms() {
        let fit = rows("m,2,ring,ll,1,1024,10\nm,2,ring,ll,1,4096,40\n");
        let test = rows("m,2,ring,ll,1,2048,1\nm,2,ring,ll,1,8192,1\nm,2,tree,ll,1,2048,1\n");
        let found = interpolation(&fit.iter().collect::<Vec<_>>(), &test.iter().collect::<Vec<_>>());
        assert!((found[0].expect("inside") - 20.0).abs() < 1e-9);
        assert!((found[1].expect("beyond") - 80.0).abs() < 1e-9);
        assert_eq!(found[2], None);
    }

    /// 3 + 2 hops + 4 × kilobytes × hops / ranks, recovered from rows that obey it.
    #[test]
    fn alpha_beta_recovers_its_own() {
        let truth = |ranks: f64, bytes: f64| 3.0 + 2.0 * 2.0 * (ranks - 1.0) + 4.0 * bytes / 1e3 * 2.0 * (ranks - 1.0) / ranks;
        let mut lines = String::new();
        for (ranks, bytes) in [(2.0, 1e3), (2.0, 1e4), (4.0, 1e3), (4.0, 1e5)] {
            lines += &format!("m,{ranks},ring,ll,1,{bytes},{}\n", truth(ranks, bytes));
        }
        let test = rows("m,8,ring,ll,1,50000,1\n");
        let fit = rows(&lines);
        let found = alpha_beta(&fit.iter().collect::<Vec<_>>(), &test.iter().collect::<Vec<_>>());
        let expected = truth(8.0, 5e4);
        assert!((found[0].expect("fitted") / expected - 1.0).abs() < 1e-4, "{found:?} {expected}");
    }
}
