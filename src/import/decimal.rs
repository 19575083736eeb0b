//! Exact decimals of foreign files as integers: microseconds since 1970 with
//! three decimals do not fit a float.

/// `text` times ten to the power of `power`, further digits dropped.
/// `None` for what is no number or does not fit.
pub fn scaled(text: &str, power: u32) -> Option<i64> {
    let text = text.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let decimal = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !decimal(whole) || !decimal(fraction) {
        return floating(text, power);
    }
    let mut value: i64 = 0;
    let padded = fraction.bytes().chain(std::iter::repeat(b'0')).take(power as usize);
    for digit in whole.bytes().chain(padded) {
        value = value.checked_mul(10)?.checked_add(i64::from(digit - b'0'))?;
    }
    Some(if negative { -value } else { value })
}

/// Numbers with an exponent.
fn floating(text: &str, power: u32) -> Option<i64> {
    if !text.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+') {
        return None;
    }
    let value = text.parse::<f64>().ok()? * libm::pow(10.0, f64::from(power));
    (value.abs() < 9e18).then_some(value as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        assert_eq!(scaled("1700000000123456.789", 3), Some(1_700_000_000_123_456_789));
        assert_eq!((scaled("-1.5", 3), scaled("7", 3), scaled("0.0019", 3)), (Some(-1500), Some(7000), Some(1)));
        assert_eq!((scaled("1.5e3", 3), scaled("12.5", 0)), (Some(1_500_000), Some(12)));
        for wrong in ["", "x", "1e300", "99999999999999999999", "NaN", "inf", "1.2.3", "--1"] {
            assert_eq!(scaled(wrong, 3), None, "{wrong}");
        }
    }
}
