//! Uncertainty of fitted constants: the linear system at the solution, solved
//! again for rows drawn with replacement.

use rand::RngExt;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::fit::linear::Normal;

/// Draws of all rows.
const DRAWS: usize = 200;
/// The named seed of the draws.
const SEED: u64 = 0x1a9e_ca57_f175;

/// 90 % intervals of each unknown around the solution, from rows of slopes and
/// residuals; zero wide where a draw pins nothing.
pub fn intervals(rows: &[(Vec<f64>, f64)], weight: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
    let unknowns = rows.first().map_or(0, |(slopes, _)| slopes.len());
    let mut random = Pcg64Mcg::seed_from_u64(SEED);
    let mut found: Vec<Vec<f64>> = vec![Vec::with_capacity(DRAWS); unknowns];
    for _ in 0..DRAWS {
        let mut normal = Normal::new(unknowns);
        for _ in 0..rows.len() {
            let (slopes, residual) = &rows[random.random_range(0..rows.len())];
            normal.add(slopes, -residual, weight(*residual));
        }
        if let Some(solution) = normal.damped(1e-6).solve() {
            found.iter_mut().zip(solution).for_each(|(list, value)| list.push(value));
        }
    }
    found.into_iter().map(interval).collect()
}

fn interval(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else { return (0.0, 0.0) };
    (values[last * 5 / 100].min(0.0), values[last - last * 5 / 100].max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mean of 100 values ±1: its standard deviation is 0.1, so 90 % lie within ±0.165.
    #[test]
    fn the_interval_of_a_mean() {
        let rows: Vec<(Vec<f64>, f64)> = (0..100).map(|i| (vec![1.0], if i % 2 == 0 { 1.0 } else { -1.0 })).collect();
        let (low, high) = intervals(&rows, |_| 1.0)[0];
        assert!((-0.22..-0.11).contains(&low) && (0.11..0.22).contains(&high), "{low} {high}");
        assert_eq!(intervals(&rows, |_| 1.0)[0], (low, high));
    }
}
