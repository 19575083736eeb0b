//! Values that arguments are made of, checked as they are read.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

use crate::error::Fault;
use crate::error::Result;
use crate::units::Bytes;

/// A machine or model: the name of a built-in one, or a file of one's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// An id such as `8x-h200` or `moonshotai/Kimi-K2.5`.
    Id(String),
    /// What ends with `.toml` or `.json`, or starts with `.`, `/` or `~`.
    File(PathBuf),
}

impl FromStr for Reference {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Reference, String> {
        if text.trim().is_empty() {
            return Err("expected a name or a file".to_owned());
        }
        let is_file = text.ends_with(".toml") || text.ends_with(".json") || text.starts_with(['.', '/', '~']);
        Ok(if is_file { Reference::File(PathBuf::from(text)) } else { Reference::Id(text.to_owned()) })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reference::Id(id) => f.pad(id),
            Reference::File(path) => f.pad(&path.to_string_lossy()),
        }
    }
}

impl Reference {
    /// The text behind the name: `builtin(id)`, or what the file holds.
    ///
    /// # Errors
    /// `io` for a file that cannot be read; `code` for an id that is not among
    /// `known`, with the nearest one as help. `what` is "machine" or "model".
    pub fn text<'a>(
        &self,
        code: &'static str,
        what: &str,
        known: impl Iterator<Item = &'a str> + Clone,
        builtin: impl Fn(&str) -> Option<String>,
    ) -> Result<String> {
        match self {
            Reference::File(path) => fs::read_to_string(path).map_err(|error| Fault::io("read", path, &error)),
            Reference::Id(id) => builtin(id).ok_or_else(|| unknown(code, what, id, known)),
        }
    }
}

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
    let mut near: Vec<(usize, &str)> = known.map(|candidate| (distance(name, candidate), candidate)).collect();
    near.sort();
    let close: Vec<&str> = near.iter().filter(|(d, c)| *d <= c.chars().count().div_ceil(3)).map(|(_, c)| *c).take(3).collect();
    let mut names: Vec<&str> = near.iter().map(|(_, candidate)| *candidate).collect();
    names.sort_unstable();
    let help = if close.is_empty() { format!("known: {}", names.join(", ")) } else { format!("did you mean {}?", close.join(" or ")) };
    Fault::new(code, format!("there is no {what} `{name}`")).help(help)
}

/// Letters to insert, remove or replace (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_with_a_slash_is_a_name() {
        let read = |text: &str| text.parse::<Reference>().expect("a reference");
        assert_eq!(read("moonshotai/Kimi-K2.5"), Reference::Id("moonshotai/Kimi-K2.5".to_owned()));
        assert_eq!(read("8x-h200"), Reference::Id("8x-h200".to_owned()));
        assert_eq!(read("box.toml"), Reference::File("box.toml".into()));
        assert_eq!(read("./config"), Reference::File("./config".into()));
        assert!("  ".parse::<Reference>().is_err());
    }

    #[test]
    fn references_lead_to_texts_or_faults() {
        let known = ["8x-h200", "h200-shared"];
        let text = |reference: Reference| {
            let builtin = |id: &str| known.contains(&id).then(|| format!("text of {id}"));
            reference.text("machine-unknown", "machine", known.iter().copied(), builtin)
        };
        assert_eq!(text(Reference::Id("8x-h200".to_owned())).expect("known"), "text of 8x-h200");
        let fault = text(Reference::Id("8x-h20".to_owned())).expect_err("unknown");
        assert_eq!((fault.code, fault.help.as_deref()), ("machine-unknown", Some("did you mean 8x-h200?")));
        let fault = text(Reference::Id("zzzzzzzzzz".to_owned())).expect_err("unknown");
        assert_eq!(fault.help.as_deref(), Some("known: 8x-h200, h200-shared"));
        assert_eq!(text(Reference::File("nowhere/x.toml".into())).expect_err("no file").code, "io");
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
            let _ = (text.parse::<Size>(), text.parse::<Assignment>(), text.parse::<Reference>());
            proptest::prop_assert_eq!(distance(&text, &text), 0);
        }
    }
}
