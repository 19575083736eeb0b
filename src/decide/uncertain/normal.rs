//! Standard normal numbers from a named seed, with + − × ÷, √ and `libm` only.

use rand::RngExt;
use rand::SeedableRng;
use rand_pcg::Pcg64;

/// The distance from the middle to the ends of a 90 % interval, in standard deviations.
pub const Z90: f64 = 1.6449;

/// Constants are not drawn further out than this: beyond it their intervals say nothing.
const Z_MOST: f64 = 2.5;

/// `rows` × `columns` numbers; row by row, so that more samples begin with the same ones.
pub fn matrix(seed: u64, rows: usize, columns: usize) -> Vec<Vec<f64>> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut one = || {
        let uniform: f64 = (random.random::<u64>() >> 11) as f64 / (1u64 << 53) as f64;
        inverse(uniform.clamp(1e-12, 1.0 - 1e-12)).clamp(-Z_MOST, Z_MOST)
    };
    (0..rows).map(|_| (0..columns).map(|_| one()).collect()).collect()
}

/// The share of a standard normal that lies below `z`.
pub fn below(z: f64) -> f64 {
    0.5 * libm::erfc(-z / std::f64::consts::SQRT_2)
}

/// The inverse of [`below`]: Acklam's rational approximation, relative error under 1.15e-9.
pub fn inverse(share: f64) -> f64 {
    const A: [f64; 6] = [
        -39.696_830_286_653_76,
        220.946_098_424_520_5,
        -275.928_510_446_968_7,
        138.357_751_867_269,
        -30.664_798_066_147_16,
        2.506_628_277_459_239,
    ];
    const B: [f64; 5] =
        [-54.476_098_798_224_06, 161.585_836_858_040_9, -155.698_979_859_886_6, 66.801_311_887_719_72, -13.280_681_552_885_72];
    const C: [f64; 6] = [
        -0.007_784_894_002_430_293,
        -0.322_396_458_041_136_5,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 4] = [0.007_784_695_709_041_462, 0.322_467_129_070_039_8, 2.445_134_137_142_996, 3.754_408_661_907_416];
    let poly = |terms: &[f64], x: f64| terms.iter().fold(0.0, |sum, term| sum * x + term);
    let tail = |q: f64| poly(&C, q) / (poly(&D, q) * q + 1.0);
    if share < 0.02425 {
        tail(libm::sqrt(-2.0 * libm::log(share)))
    } else if share > 1.0 - 0.02425 {
        -tail(libm::sqrt(-2.0 * libm::log(1.0 - share)))
    } else {
        let (q, r) = (share - 0.5, (share - 0.5) * (share - 0.5));
        q * poly(&A, r) / (poly(&B, r) * r + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inverse_is_the_tables() {
        for (share, z) in [(0.5, 0.0), (0.95, 1.644_854), (0.05, -1.644_854), (0.001, -3.090_232), (0.99, 2.326_348)] {
            assert!((inverse(share) - z).abs() < 1e-5, "{share}: {}", inverse(share));
            assert!((below(inverse(share)) - share).abs() < 1e-6);
        }
    }

    #[test]
    fn a_seed_gives_the_same_numbers_and_a_normal_spread() {
        let one = matrix(7, 2000, 3);
        assert_eq!(one[..10], matrix(7, 10, 3)[..]);
        assert_ne!(one, matrix(8, 2000, 3));
        let all: Vec<f64> = one.into_iter().flatten().collect();
        let inside = all.iter().filter(|z| z.abs() < Z90).count() as f64 / all.len() as f64;
        assert!((inside - 0.9).abs() < 0.015, "{inside}");
    }
}
