//! Random inputs and the sums in double precision that kernels are held to.

use rand::RngExt;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::gpu::element::Element;

/// Elements of every rank for one set.
pub struct Inputs {
    /// `[rank][element]`, as bits.
    pub ranks: Vec<Vec<u16>>,
}

/// What the sum should be and how far an element may be off.
pub struct Expected {
    /// The exact sum of the rounded inputs.
    pub sum: Vec<f64>,
    /// Σ |x|, the scale of rounding errors.
    pub scale: Vec<f64>,
}

/// A result against its reference.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Elements outside the bound or not a number.
    pub wrong: u64,
    /// ‖out − sum‖ / ‖sum‖.
    pub relative_error: f64,
}

impl Inputs {
    /// Uniform in [−1, 1), from a named seed.
    pub fn random(ranks: usize, elements: usize, element: Element, seed: u64) -> Inputs {
        let fill = |rank: usize| {
            let mut generator = Pcg64Mcg::seed_from_u64(seed ^ (rank as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            (0..elements).map(|_| element.from_f32(generator.random_range(-1.0..1.0))).collect()
        };
        Inputs { ranks: (0..ranks).map(fill).collect() }
    }

    /// The exact sum over ranks of elements `from..from + count`.
    pub fn expected(&self, from: usize, count: usize, element: Element) -> Expected {
        let mut sum = vec![0.0; count];
        let mut scale = vec![0.0; count];
        for rank in &self.ranks {
            for (i, bits) in rank[from..from + count].iter().enumerate() {
                let x = element.to_f64(*bits);
                sum[i] += x;
                scale[i] += x.abs();
            }
        }
        Expected { sum, scale }
    }
}

impl Expected {
    /// Compares, allowing `roundings` roundings to the element type of partial
    /// sums, each at most Σ|x| large.
    pub fn compare(&self, out: &[u16], element: Element, roundings: u32) -> Verdict {
        let unit = element.rounding() * f64::from(roundings);
        let (mut wrong, mut error, mut norm) = (0, 0.0, 0.0);
        for (i, bits) in out.iter().enumerate() {
            let off = (element.to_f64(*bits) - self.sum[i]).abs();
            // The last term is fp16's smallest step.
            let right = off <= unit * self.scale[i] + 6e-8;
            // A NaN is not right.
            if !right {
                wrong += 1;
            }
            error += off * off;
            norm += self.sum[i] * self.sum[i];
        }
        Verdict { wrong, relative_error: if norm > 0.0 { libm::sqrt(error / norm) } else { 0.0 } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_sum_passes_and_a_wrong_one_fails() {
        for element in [Element::Bf16, Element::F16] {
            let inputs = Inputs::random(4, 100, element, 7);
            let expected = inputs.expected(10, 80, element);
            let mut out: Vec<u16> = expected.sum.iter().map(|s| element.from_f32(*s as f32)).collect();
            let verdict = expected.compare(&out, element, 1);
            assert_eq!(verdict.wrong, 0);
            assert!(verdict.relative_error < element.rounding());
            // One rank's part missing: off by far more than a rounding.
            out[3] = element.from_f32((expected.sum[3] + 0.5) as f32);
            out[4] = 0xffff;
            assert_eq!(expected.compare(&out, element, 1).wrong, 2);
        }
    }

    #[test]
    fn seeds_name_inputs() {
        let a = Inputs::random(2, 8, Element::Bf16, 1);
        let b = Inputs::random(2, 8, Element::Bf16, 1);
        let c = Inputs::random(2, 8, Element::Bf16, 2);
        assert_eq!(a.ranks, b.ranks);
        assert_ne!(a.ranks, c.ranks);
        assert_ne!(a.ranks[0], a.ranks[1]);
    }
}
