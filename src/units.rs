//! Integer time, bytes and rates.
//!
//! Simulated time is `u64` picoseconds so that the same inputs give the same
//! bytes on any machine; 2^64 ps are 213 days. Arithmetic is checked: an
//! overflow is a bug and panics in every profile.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A point in simulated time or a span of it, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The start of time.
    pub const ZERO: Time = Time(0);

    /// From nanoseconds as the constants files give them. Negative, infinite
    /// and NaN values become zero: readers have refused them before.
    pub fn from_ns(ns: f64) -> Time {
        let ps = libm::round(ns * 1000.0);
        if ps > 0.0 && ps < 9.0e18 { Time(ps as u64) } else { Time(0) }
    }

    /// From microseconds; see [`Time::from_ns`].
    pub fn from_us(us: f64) -> Time {
        Time::from_ns(us * 1000.0)
    }

    /// In nanoseconds, for reports.
    pub fn ns(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// In microseconds, for reports.
    pub fn us(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// In milliseconds, for reports.
    pub fn ms(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// `self - other`, or zero when `other` is later.
    pub fn saturating_sub(self, other: Time) -> Time {
        Time(self.0.saturating_sub(other.0))
    }

    /// `self` taken `count` times.
    pub fn times(self, count: u64) -> Time {
        Time(self.0.checked_mul(count).expect("simulated time fits 213 days"))
    }
}

impl Add for Time {
    type Output = Time;
    fn add(self, other: Time) -> Time {
        Time(self.0.checked_add(other.0).expect("simulated time fits 213 days"))
    }
}

impl AddAssign for Time {
    fn add_assign(&mut self, other: Time) {
        *self = *self + other;
    }
}

impl Sub for Time {
    type Output = Time;
    fn sub(self, other: Time) -> Time {
        Time(self.0.checked_sub(other.0).expect("time does not run backwards"))
    }
}

impl std::iter::Sum for Time {
    fn sum<I: Iterator<Item = Time>>(iter: I) -> Time {
        iter.fold(Time::ZERO, Add::add)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} us", self.us())
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    /// Exact, with thousands separated: `43,008 B`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::with_capacity(digits.len() + digits.len() / 3 + 2);
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        text.push_str(" B");
        f.pad(&text)
    }
}

/// Bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(pub u64);

impl Rate {
    /// From GB/s (10^9 bytes per second); at least one byte per second, so
    /// that a transfer always ends.
    pub fn from_gbps(gbps: f64) -> Rate {
        let rate = libm::round(gbps * 1e9);
        if (1.0..1.8e19).contains(&rate) { Rate(rate as u64) } else { Rate(1) }
    }

    /// In GB/s, for reports.
    pub fn gbps(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// How long `bytes` take at this rate, rounded up to a picosecond.
    pub fn time_for(self, bytes: Bytes) -> Time {
        let ps = (u128::from(bytes.0) * 1_000_000_000_000).div_ceil(u128::from(self.0.max(1)));
        Time(u64::try_from(ps).expect("simulated time fits 213 days"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_exactly() {
        assert_eq!(Bytes(43008).to_string(), "43,008 B");
        assert_eq!(Bytes(7).to_string(), "7 B");
        assert_eq!(Bytes(1_048_576).to_string(), "1,048,576 B");
    }

    #[test]
    fn a_transfer_is_rounded_up() {
        assert_eq!(Rate(3_000_000_000_000).time_for(Bytes(10)), Time(4));
        assert_eq!(Rate::from_gbps(50.0).time_for(Bytes(50_000)), Time::from_us(1.0));
    }

    #[test]
    fn unusable_floats_become_zero() {
        assert_eq!(Time::from_ns(f64::NAN), Time::ZERO);
        assert_eq!(Time::from_ns(-4.0), Time::ZERO);
        assert_eq!(Time::from_ns(f64::INFINITY), Time::ZERO);
    }
}
