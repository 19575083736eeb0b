//! How far forecasts of kernels are from measurements.

use std::collections::BTreeMap;

use crate::cost::Cache;
use crate::cost::duration;
use crate::cost::observations::Observation;
use crate::machine::GpuKind;
use crate::units::Time;

/// Errors of one group of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The rows' group; experts with `, above L2` or `, within L2`.
    pub name: String,
    /// Rows.
    pub rows: usize,
    /// Median of |forecast ÷ measured − 1|, in per cent.
    pub median_pct: f64,
    /// 95th percentile, nearest rank.
    pub p95_pct: f64,
    /// Largest.
    pub max_pct: f64,
    /// Median of forecast ÷ measured − 1, with its sign.
    pub bias_pct: f64,
}

/// What the model makes of a row.
pub fn forecast(row: &Observation, kind: &GpuKind) -> Time {
    row.ops.iter().map(|op| duration(op, kind, row.cache)).sum()
}

/// Errors by group, in the order of names.
pub fn validate<'a>(rows: impl IntoIterator<Item = &'a Observation>, kind: &GpuKind) -> Vec<Group> {
    let mut groups: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for row in rows {
        let error = forecast(row, kind).us() / row.latency_us - 1.0;
        groups.entry(name(row, kind)).or_default().push(100.0 * error);
    }
    groups.into_iter().map(|(name, errors)| summary(name, errors)).collect()
}

/// The group of a row. Rows of experts are told apart by whether their working set fits L2, since
/// only those above it say what a server pays.
pub fn name(row: &Observation, kind: &GpuKind) -> String {
    match row.cache {
        Cache::Warm { set_bytes } if row.group.starts_with("experts") => {
            format!("{}, {} L2", row.group, if set_bytes > kind.l2_bytes { "above" } else { "within" })
        }
        _ => row.group.clone(),
    }
}

fn summary(name: String, mut signed: Vec<f64>) -> Group {
    signed.sort_by(f64::total_cmp);
    let mut sizes: Vec<f64> = signed.iter().map(|error| error.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    Group {
        name,
        rows: sizes.len(),
        median_pct: quantile(&sizes, 50),
        p95_pct: quantile(&sizes, 95),
        max_pct: quantile(&sizes, 100),
        bias_pct: quantile(&signed, 50),
    }
}

/// Nearest rank: the smallest value that `percent` of the values do not exceed.
fn quantile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_nearest_ranks() {
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!((quantile(&values, 50), quantile(&values, 95), quantile(&values, 100)), (10.0, 19.0, 20.0));
        assert_eq!(quantile(&[], 50), 0.0);
    }
}
