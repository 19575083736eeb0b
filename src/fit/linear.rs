//! Weighted least squares in a few unknowns: normal equations and their solution.

/// Normal equations `A x = b`, `A` symmetric.
#[derive(Clone, Debug, PartialEq)]
pub struct Normal {
    /// Unknowns.
    pub size: usize,
    matrix: Vec<f64>,
    right: Vec<f64>,
}

impl Normal {
    /// No row yet.
    pub fn new(size: usize) -> Normal {
        Normal { size, matrix: vec![0.0; size * size], right: vec![0.0; size] }
    }

    /// Adds the row `slopes · x = value` with a weight.
    pub fn add(&mut self, slopes: &[f64], value: f64, weight: f64) {
        for (i, a) in slopes.iter().enumerate() {
            for (j, b) in slopes.iter().enumerate() {
                self.matrix[i * self.size + j] += weight * a * b;
            }
            self.right[i] += weight * a * value;
        }
    }

    /// The same equations for the unknowns in `keep` alone; the others are zero.
    #[must_use]
    pub fn only(&self, keep: &[usize]) -> Normal {
        let matrix = keep.iter().flat_map(|&i| keep.iter().map(move |&j| self.matrix[i * self.size + j])).collect();
        Normal { size: keep.len(), matrix, right: keep.iter().map(|&i| self.right[i]).collect() }
    }

    /// Grows the diagonal by a share of itself and by a little more, so that
    /// unknowns that no row speaks of have a solution too.
    #[must_use]
    pub fn damped(mut self, share: f64) -> Normal {
        for i in 0..self.size {
            let at = i * self.size + i;
            self.matrix[at] += share * self.matrix[at] + 1e-12;
        }
        self
    }

    /// The solution; `None` when the matrix is not positive definite.
    pub fn solve(&self) -> Option<Vec<f64>> {
        let lower = self.cholesky()?;
        Some(self.substitute(&lower, &self.right))
    }

    /// The diagonal of the inverse: variances where the noise has variance one.
    pub fn variances(&self) -> Option<Vec<f64>> {
        let lower = self.cholesky()?;
        let unit = |index: usize| (0..self.size).map(|i| f64::from(u8::from(i == index))).collect::<Vec<f64>>();
        Some((0..self.size).map(|index| self.substitute(&lower, &unit(index))[index]).collect())
    }

    fn cholesky(&self) -> Option<Vec<f64>> {
        let n = self.size;
        let mut lower = vec![0.0; n * n];
        for i in 0..n {
            for j in 0..=i {
                let dot: f64 = (0..j).map(|k| lower[i * n + k] * lower[j * n + k]).sum();
                let rest = self.matrix[i * n + j] - dot;
                if i == j {
                    if rest <= 0.0 || !rest.is_finite() {
                        return None;
                    }
                    lower[i * n + i] = libm::sqrt(rest);
                } else {
                    lower[i * n + j] = rest / lower[j * n + j];
                }
            }
        }
        Some(lower)
    }

    fn substitute(&self, lower: &[f64], right: &[f64]) -> Vec<f64> {
        let n = self.size;
        let mut x = right.to_vec();
        for i in 0..n {
            let dot: f64 = (0..i).map(|k| lower[i * n + k] * x[k]).sum();
            x[i] = (x[i] - dot) / lower[i * n + i];
        }
        for i in (0..n).rev() {
            let dot: f64 = (i + 1..n).map(|k| lower[k * n + i] * x[k]).sum();
            x[i] = (x[i] - dot) / lower[i * n + i];
        }
        x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 + 2 x through three points: exact. The inverse of [[3, 3], [3, 5]] is [[5, −3], [−3, 3]] / 6.
    #[test]
    fn a_line_through_points() {
        let mut normal = Normal::new(2);
        for x in [0.0, 1.0, 2.0] {
            normal.add(&[1.0, x], 1.0 + 2.0 * x, 1.0);
        }
        let solution = normal.solve().expect("definite");
        assert!((solution[0] - 1.0).abs() < 1e-12 && (solution[1] - 2.0).abs() < 1e-12, "{solution:?}");
        let variances = normal.variances().expect("definite");
        assert!((variances[0] - 5.0 / 6.0).abs() < 1e-12 && (variances[1] - 0.5).abs() < 1e-12, "{variances:?}");
        assert_eq!(normal.only(&[1]).size, 1);
    }

    #[test]
    fn what_no_row_pins_has_no_solution_but_a_damped_one() {
        let mut normal = Normal::new(2);
        normal.add(&[1.0, 1.0], 2.0, 1.0);
        assert_eq!(normal.solve(), None);
        let solution = normal.damped(1e-6).solve().expect("damped");
        assert!((solution[0] + solution[1] - 2.0).abs() < 1e-3, "{solution:?}");
    }
}
