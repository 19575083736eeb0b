//! Values that arguments are made of, checked as they are read.

use std::str::FromStr;

use crate::error::Fault;
use crate::error::near;
use crate::units::Bytes;

/// `name=value` with a finite number: `--observed verify_ms=30`, `--set path=5`.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    /// What is set.
    pub name: String,
    /// To what.
    pub value: f64,
}

impl FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Assignment, String> {
        let (name, value) = text.split_once('=').ok_or("expected name=number")?;
        let value: f64 = value.trim().parse().map_err(|_| format!("`{value}` is no number"))?;
        if name.trim().is_empty() || !value.is_finite() {
            return Err("expected name=number with a finite number".to_owned());
        }
        Ok(Assignment { name: name.trim().to_owned(), value })
    }
}

/// Bytes as nccl-tests takes them: `43008`, `42K`, `8M`, `1G` in powers of 1024,
/// also `42KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub Bytes);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Size, String> {
        let lower = text.trim().to_ascii_lowercase();
        let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let factor: u64 = match &lower[digits.len()..] {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "kb" | "mb" | "gb" => return Err("write K, M or G for powers of 1024, or the number of bytes".to_owned()),
            other => return Err(format!("`{other}` is no unit; expected K, M or G")),
        };
        let count: u64 = digits.parse().map_err(|_| format!("`{digits}` is no whole number"))?;
        count.checked_mul(factor).map(|bytes| Size(Bytes(bytes))).ok_or_else(|| "more bytes than 64 bits count".to_owned())
    }
}

/// The fault for a name that is not among `known`, with the nearest ones as help.
pub fn unknown<'a>(code: &'static str, what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> Box<Fault> {
    let mut names: Vec<&str> = known.collect();
    names.sort_unstable();
    let close = near(name, &names);
    let help = if close.is_empty() { format!("known: {}", names.join(", ")) } else { format!("did you mean {}?", close.join(" or ")) };
    Fault::new(code, format!("there is no {what} `{name}`")).help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_help() {
        let help = |name: &str| unknown("machine-unknown", "machine", name, ["8x-h200", "h200-shared"].into_iter()).help;
        assert_eq!(help("8x-h20").as_deref(), Some("did you mean 8x-h200?"));
        assert_eq!(help("zzzzzzzzzz").as_deref(), Some("known: 8x-h200, h200-shared"));
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        let size = |text: &str| text.parse::<Size>().map(|s| s.0.0);
        assert_eq!(size("43008"), Ok(43008));
        assert_eq!(size("42K"), Ok(43008));
        assert_eq!(size("1MiB"), Ok(1 << 20));
        for wrong in ["", "K", "-1", "1.5K", "1KB", "1x", "99999999999G", "1 K", "µ"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn assignments_need_a_name_and_a_number() {
        let read = |text: &str| text.parse::<Assignment>();
        assert_eq!(read("verify_ms=30"), Ok(Assignment { name: "verify_ms".to_owned(), value: 30.0 }));
        for wrong in ["verify_ms", "=3", "a=", "a=x", "a=nan", "a=inf"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            let _ = (text.parse::<Size>(), text.parse::<Assignment>());
        }
    }
}
