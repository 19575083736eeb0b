//! Numbers with fixed decimals.
//!
//! A [`Number`] prints the same digits in a table, a CSV field and a JSON
//! value, independent of locale, platform and the last bits of a float. What
//! is not finite is missing: an empty field, `null`, or a dash.

use std::fmt;

use serde::{Serialize, Serializer};

/// A value, or its absence, with the decimals that are worth showing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    value: Option<f64>,
    decimals: usize,
}

impl Number {
    /// No more are printed: beyond them a double has no digits to give.
    pub const DECIMALS_MAX: usize = 15;

    /// `value` with `decimals` digits behind the point; missing when not finite.
    pub fn new(value: f64, decimals: usize) -> Number {
        Number::maybe(Some(value), decimals)
    }

    /// A value that may be missing.
    pub fn maybe(value: Option<f64>, decimals: usize) -> Number {
        Number { value: value.filter(|v| v.is_finite()), decimals: decimals.min(Number::DECIMALS_MAX) }
    }

    /// A count.
    pub fn integer(value: u64) -> Number {
        Number::new(value as f64, 0)
    }

    /// What is not known.
    pub const MISSING: Number = Number { value: None, decimals: 0 };

    /// Is there no value?
    pub fn is_missing(self) -> bool {
        self.value.is_none()
    }

    /// The digits, empty when missing. Never `-0.0`: a zero has no sign here.
    pub fn digits(self) -> String {
        let Some(value) = self.value else { return String::new() };
        let text = format!("{value:.*}", self.decimals);
        match text.strip_prefix('-') {
            Some(rest) if rest.bytes().all(|b| b == b'0' || b == b'.') => rest.to_owned(),
            _ => text,
        }
    }

    /// The value as its digits say it: what a reader of the output gets back.
    pub fn rounded(self) -> Option<f64> {
        self.digits().parse().ok()
    }

    /// The digits with thousands separated by commas: `43,008`.
    pub fn grouped(self) -> String {
        let digits = self.digits();
        let (sign, rest) = digits.strip_prefix('-').map_or(("", digits.as_str()), |rest| ("-", rest));
        let (whole, fraction) = rest.split_once('.').map_or((rest, None), |(w, f)| (w, Some(f)));
        let mut text = String::from(sign);
        for (at, digit) in whole.chars().enumerate() {
            if at > 0 && (whole.len() - at).is_multiple_of(3) {
                text.push(',');
            }
            text.push(digit);
        }
        if let Some(fraction) = fraction {
            text.push('.');
            text.push_str(fraction);
        }
        text
    }

    /// With a sign even when positive, for differences: `+1.5`, `-0.2`, `0.0`.
    pub fn signed(self) -> String {
        let digits = self.digits();
        if digits.starts_with('-') || digits.bytes().all(|b| b == b'0' || b == b'.') { digits } else { format!("+{digits}") }
    }
}

impl fmt::Display for Number {
    /// The digits, or `-` when missing; width and alignment are obeyed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_missing() { f.pad("-") } else { f.pad(&self.digits()) }
    }
}

impl Serialize for Number {
    /// The rounded value (an integer without decimals), or null.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.rounded() {
            None => serializer.serialize_none(),
            Some(value) if self.decimals == 0 && value.abs() < 9.0e15 => serializer.serialize_i64(value as i64),
            Some(value) => serializer.serialize_f64(value),
        }
    }
}

/// Any serializable value as indented JSON with a closing newline.
pub fn to_json(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("values of this crate have string keys");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_fixed_and_a_zero_has_no_sign() {
        assert_eq!(Number::new(12.0, 3).digits(), "12.000");
        assert_eq!(Number::new(-0.0004, 3).digits(), "0.000");
        assert_eq!(Number::new(-0.0006, 3).digits(), "-0.001");
        assert_eq!(Number::new(f64::NAN, 3).digits(), "");
        assert_eq!(Number::new(f64::INFINITY, 3).to_string(), "-");
        assert_eq!(format!("[{:>6}]", Number::new(1.5, 1)), "[   1.5]");
    }

    #[test]
    fn thousands_and_signs() {
        assert_eq!(Number::integer(43008).grouped(), "43,008");
        assert_eq!(Number::new(-1234567.25, 2).grouped(), "-1,234,567.25");
        assert_eq!(Number::new(999.0, 0).grouped(), "999");
        assert_eq!(Number::new(1.25, 1).signed(), "+1.2");
        assert_eq!(Number::new(-0.01, 1).signed(), "0.0");
    }

    #[test]
    fn json_holds_the_rounded_value() {
        let values = [Number::new(0.1 + 0.2, 3), Number::integer(122), Number::MISSING, Number::new(-2.5, 1)];
        assert_eq!(serde_json::to_string(&values).expect("json"), "[0.3,122,null,-2.5]");
        assert_eq!(to_json(&Number::integer(1)), "1\n");
    }

    proptest::proptest! {
        #[test]
        fn digits_read_back_within_half_a_unit(value in -1e9f64..1e9, decimals in 0usize..6) {
            let number = Number::new(value, decimals);
            let back = number.rounded().expect("finite");
            let unit = 0.1f64.powi(i32::try_from(decimals).expect("small"));
            proptest::prop_assert!((back - value).abs() <= unit * 0.5 + 1e-6);
            proptest::prop_assert_eq!(number.grouped().replace(',', ""), number.digits());
        }
    }
}
