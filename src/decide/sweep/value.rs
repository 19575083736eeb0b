//! One value of an axis, and drawing values between two ends.

use std::fmt;

/// What an axis can set.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A name or a path.
    Text(String),
    /// A whole number.
    Whole(i64),
    /// Any other number.
    Real(f64),
}

impl Value {
    /// The number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Text(_) => None,
            Value::Whole(whole) => Some(*whole as f64),
            Value::Real(real) => Some(*real),
        }
    }
}

impl fmt::Display for Value {
    /// As rows show it; reading it gives the value back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            Value::Whole(whole) => write!(f, "{whole}"),
            Value::Real(real) => write!(f, "{real}"),
        }
    }
}

/// Numbers between two ends.
#[derive(Clone, Debug, PartialEq)]
pub struct Between {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// Equal factors are equally likely, not equal differences.
    pub log: bool,
    /// Whole numbers only.
    pub whole: bool,
}

impl Between {
    /// The number at a share of the way, 0 to 1.
    pub fn at(&self, share: f64) -> Value {
        let real = if self.log {
            self.low * libm::pow(self.high / self.low, share)
        } else {
            self.low + (self.high - self.low) * share
        };
        // Six digits: what a row shows is what was simulated.
        let real = six_digits(real).clamp(self.low, self.high);
        if self.whole { Value::Whole(libm::round(real) as i64) } else { Value::Real(real) }
    }

    /// A drawn number; whole ones are equally likely on a linear scale.
    pub fn drawn(&self, share: f64) -> Value {
        if self.whole && !self.log {
            let count = self.high - self.low + 1.0;
            return Value::Whole((self.low + libm::floor(share * count).min(count - 1.0)) as i64);
        }
        self.at(share)
    }
}

fn six_digits(real: f64) -> f64 {
    if real == 0.0 || !real.is_finite() {
        return real;
    }
    format!("{real:.5e}").parse().unwrap_or(real)
}

/// A number from 0 up to 1 that follows from seed, case and axis alone, so that
/// any part of a sweep draws the same (SplitMix64's finisher).
pub fn share(seed: u64, case: u64, axis: u64) -> f64 {
    let mixed = mix(mix(mix(seed) ^ case) ^ axis.wrapping_mul(0xD6E8_FEB8_6659_FD93));
    (mixed >> 11) as f64 / (1u64 << 53) as f64
}

fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_between_two_ends() {
        let of = |low, high, log, whole| Between { low, high, log, whole };
        assert_eq!(of(1.0, 16.0, true, true).at(0.5), Value::Whole(4));
        assert_eq!(of(10.0, 20.0, false, false).at(0.25), Value::Real(12.5));
        // 10 × 2^(1/3) = 12.59921…
        assert_eq!(of(10.0, 20.0, true, false).at(1.0 / 3.0), Value::Real(12.5992));
        assert_eq!(of(1.0, 3.0, false, true).drawn(0.99), Value::Whole(3));
        assert_eq!(of(1.0, 3.0, false, true).drawn(0.0), Value::Whole(1));
    }

    #[test]
    fn draws_are_even_and_follow_from_their_place() {
        let mean = (0..4000).map(|case| share(7, case, 1)).sum::<f64>() / 4000.0;
        // The standard error of a mean of 4,000 is 0.289 / 63 = 0.0046.
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
        assert_eq!(share(7, 3, 1), share(7, 3, 1));
        assert!(share(7, 3, 1) != share(8, 3, 1) && share(7, 3, 1) != share(7, 3, 2));
    }
}
