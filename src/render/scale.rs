//! Axes: from values to pixels, with ticks at round numbers.
//!
//! plotters has a logarithmic axis of its own; it calls the platform's
//! mathematics, whose last bits differ between machines. This one does not.

use std::ops::Range;

use plotters::style::RGBColor;

use crate::render::number::Number;

/// Lines and letters. The page turns this very colour around in the dark.
pub const INK: RGBColor = RGBColor(0x1b, 0x1b, 0x1b);
/// Lines that only guide the eye; see [`INK`].
pub const GRID: RGBColor = RGBColor(0xd9, 0xd9, 0xd9);

/// Colours that the colour-blind tell apart and that show on light and dark
/// (Okabe and Ito, 2008, without black and yellow).
pub const PALETTE: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
];

/// The colour of series `at`; the palette repeats.
pub fn color(at: usize) -> RGBColor {
    PALETTE[at % PALETTE.len()]
}

/// One axis from `low` to `high`, `low < high`, both positive when logarithmic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    low: f64,
    high: f64,
    log: bool,
}

impl Scale {
    /// An axis that shows all finite `values`. A logarithmic one shows the
    /// positive ones, rounded out to whole 1-2-5 steps; a linear one starts at
    /// zero unless there are negative values.
    pub fn around(values: impl Iterator<Item = f64>, log: bool) -> Scale {
        let mut low = f64::INFINITY;
        let mut high = f64::NEG_INFINITY;
        for value in values.filter(|v| v.is_finite() && (!log || *v > 0.0)) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            (low, high) = if log { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        if log {
            let (bottom, top) = (low * 0.9, high * 1.1);
            let low = steps(bottom).rfind(|step| *step <= bottom).unwrap_or(bottom);
            let high = steps(top).find(|step| *step >= top).unwrap_or(top);
            return Scale { low, high, log };
        }
        let low = low.min(0.0);
        let span = if high > low { high - low } else { 1.0 };
        Scale { low, high: low + span * 1.05, log }
    }

    /// A linear axis with these ends.
    pub fn between(low: f64, high: f64) -> Scale {
        let is_range = low.is_finite() && high.is_finite() && high > low;
        if is_range { Scale { low, high, log: false } } else { Scale::around([low, high].into_iter(), false) }
    }

    /// Where `value` lies, 0 at `low` and 1 at `high`, cut to the axis.
    pub fn share(&self, value: f64) -> f64 {
        let of = |v: f64| if self.log { libm::log10(v.max(f64::MIN_POSITIVE)) } else { v };
        let share = (of(value) - of(self.low)) / (of(self.high) - of(self.low));
        if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
    }

    /// At most about `count` round values on the axis.
    pub fn ticks(&self, count: usize) -> Vec<f64> {
        let count = count.max(2);
        if !self.log {
            let raw = (self.high - self.low) / count as f64;
            let step = steps(raw).find(|step| *step >= raw * 0.999).unwrap_or(raw);
            let first = libm::ceil(self.low / step);
            return (0..=2 * count).map(|i| (first + i as f64) * step).filter(|v| *v <= self.high * 1.0001).collect();
        }
        let first = libm::floor(libm::log10(self.low)) as i32;
        let last = libm::ceil(libm::log10(self.high)) as i32;
        let all: Vec<f64> = (first..=last).flat_map(|e| [1.0, 2.0, 5.0].map(|m| m * power(e))).collect();
        let inside: Vec<f64> = all.into_iter().filter(|v| *v >= self.low * 0.999 && *v <= self.high * 1.001).collect();
        if inside.len() <= count {
            return inside;
        }
        let decade = |v: &f64| (libm::log10(*v) - libm::round(libm::log10(*v))).abs() < 1e-6;
        let decades: Vec<f64> = inside.iter().copied().filter(decade).collect();
        let stride = decades.len().div_ceil(count).max(1);
        decades.into_iter().step_by(stride).collect()
    }
}

/// 10 to the `exponent`, the same on every machine: short products are exact.
fn power(exponent: i32) -> f64 {
    let size = (0..exponent.unsigned_abs()).fold(1.0, |product, _| product * 10.0);
    if exponent < 0 { 1.0 / size } else { size }
}

/// Round numbers from a decade below `value` to a decade above, rising.
fn steps(value: f64) -> impl DoubleEndedIterator<Item = f64> {
    let exponent = if value > 0.0 && value.is_finite() { libm::floor(libm::log10(value)) as i32 } else { 0 };
    (exponent - 1..=exponent + 1).flat_map(|e| [1.0, 2.0, 5.0].map(|m| m * power(e)))
}

/// A tick's label: no more decimals than it needs, thousands as `k`, `M`, `G`.
pub fn tick_label(value: f64) -> String {
    let size = value.abs();
    let (scaled, unit) = match size {
        s if s >= 1e9 => (value / 1e9, "G"),
        s if s >= 1e6 => (value / 1e6, "M"),
        s if s >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = Number::new(scaled, 6).digits();
    let short = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{}{unit}", if short.is_empty() { "0" } else { short })
}

impl Scale {
    /// The ends of the axis.
    pub fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logarithmic_axis_ends_at_round_numbers() {
        let scale = Scale::around([14336.0, 43008.0, 57344.0].into_iter(), true);
        assert_eq!(scale.range(), 10000.0..100000.0);
        assert_eq!(scale.share(10000.0), 0.0);
        // Half-way between 10^4 and 10^5 on a log axis is 10^4.5.
        assert!((scale.share(31622.7766) - 0.5).abs() < 1e-9);
        assert_eq!(scale.ticks(10), [10000.0, 20000.0, 50000.0, 100000.0]);
    }

    #[test]
    fn a_linear_axis_starts_at_zero() {
        let scale = Scale::around([3.0, 10.0].into_iter(), false);
        assert_eq!(scale.range(), 0.0..10.5);
        assert_eq!(scale.ticks(5), [0.0, 5.0, 10.0]);
        assert_eq!(Scale::around([-4.0, 4.0].into_iter(), false).range().start, -4.0);
    }

    #[test]
    fn nonsense_gives_an_axis_all_the_same() {
        for log in [false, true] {
            for values in [vec![], vec![f64::NAN], vec![0.0], vec![-1.0, f64::INFINITY], vec![5.0, 5.0], vec![1e-300, 1e300]] {
                let scale = Scale::around(values.iter().copied(), log);
                assert!(scale.range().start < scale.range().end, "{values:?}");
                assert!(scale.ticks(8).len() <= 20, "{values:?}");
                assert!((0.0..=1.0).contains(&scale.share(f64::NAN)));
            }
        }
    }

    #[test]
    fn labels_are_short() {
        assert_eq!(tick_label(0.0), "0");
        assert_eq!(tick_label(0.05), "0.05");
        assert_eq!(tick_label(5000.0), "5000");
        assert_eq!(tick_label(20000.0), "20k");
        assert_eq!(tick_label(1_500_000.0), "1.5M");
    }
}
