//! The one error type of the library: what is wrong, where, and how to mend it.
//!
//! A [`Fault`] is an expected error (bad input, missing hardware); the program
//! prints it and exits with 2. Bugs panic.

use std::path::Path;

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};

/// `Result` of everything that can meet a bad input.
pub type Result<T> = std::result::Result<T, Box<Fault>>;

/// An expected error, with a stable code, the place in the user's file and help.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// Stable, kebab-case, e.g. `machine-unknown-link`; documented in `docs/errors.md`.
    pub code: &'static str,
    /// One sentence, lower case, no full stop.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// The text in which the fault lies and the byte range, if there is one.
    pub place: Option<Place>,
}

/// A byte range in a named text.
#[derive(Debug)]
pub struct Place {
    /// The file's name and text.
    pub source: NamedSource<String>,
    /// Offset and length in bytes.
    pub span: std::ops::Range<usize>,
    /// What the range is, e.g. "this link".
    pub label: String,
}

impl Fault {
    /// A fault with no place.
    pub fn new(code: &'static str, message: impl Into<String>) -> Box<Fault> {
        Box::new(Fault { code, message: shown(&message.into()), help: None, place: None })
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn help(mut self: Box<Fault>, help: impl Into<String>) -> Box<Fault> {
        self.help = Some(shown(&help.into()));
        self
    }

    /// Points at bytes `span` of `text`, read from `name`. The range is cut to
    /// the text; of lines too long to read only the surroundings are kept.
    #[must_use]
    pub fn at(mut self: Box<Fault>, name: &str, text: &str, span: std::ops::Range<usize>, label: impl Into<String>) -> Box<Fault> {
        let start = floor_char(text, span.start);
        let end = floor_char(text, span.end).max(start);
        let around = around(text, start..end);
        let (excerpt, span) = match around {
            None => (visible(text), start..end),
            Some(part) => {
                let end = floor_char(text, end.min(part.end).max(start));
                (visible(&text[part.clone()]), start - part.start..end - part.start)
            }
        };
        let name = if excerpt.len() < text.len() { format!("{name}, from byte {}", start - span.start) } else { name.to_owned() };
        self.place = Some(Place { source: NamedSource::new(name, excerpt), span, label: label.into() });
        self
    }

    /// A file that could not be read or written.
    pub fn io(action: &str, path: &Path, error: &std::io::Error) -> Box<Fault> {
        Fault::new("io", format!("cannot {action} {}: {error}", path.display()))
    }
}

/// Bytes of a message that people still read.
const MESSAGE_BYTES_MAX: usize = 2000;

/// Bytes of a line, or of a marked range, that a screen still shows.
const LINE_BYTES_MAX: usize = 600;

/// A message that quotes a file: without control characters, and cut.
fn shown(message: &str) -> String {
    let short = short_numbers(message);
    let end = floor_char(&short, MESSAGE_BYTES_MAX);
    let cut = if end < short.len() { "…" } else { "" };
    visible(&short[..end]) + cut
}

/// Digits of a number that are shown; the rest of a longer one is counted.
const DIGITS_MAX: usize = 24;

/// A number of hundreds of digits says no more than its first.
fn short_numbers(message: &str) -> std::borrow::Cow<'_, str> {
    let is_long = |digits: &str| digits.len() > DIGITS_MAX && digits.bytes().all(|b| b.is_ascii_digit());
    let mut parts = message.split_inclusive(|c: char| !c.is_ascii_digit()).map(|part| {
        let digits = part.trim_end_matches(|c: char| !c.is_ascii_digit());
        (digits, &part[digits.len()..])
    });
    if !parts.clone().any(|(digits, _)| is_long(digits)) {
        return message.into();
    }
    let one = |(digits, rest): (&str, &str)| match is_long(digits) {
        true => format!("{}… ({} digits){rest}", &digits[..DIGITS_MAX / 2], digits.len()),
        false => format!("{digits}{rest}"),
    };
    parts.by_ref().map(one).collect::<String>().into()
}

/// Control characters of a file must not reach a terminal; each becomes one byte, so that places stay.
pub fn visible(text: &str) -> String {
    let is_hidden = |c: char| c.is_ascii_control() && !matches!(c, '\n' | '\t' | '\r');
    if text.contains(is_hidden) { text.replace(is_hidden, "?") } else { text.to_owned() }
}

/// The part of a text to show, where the lines at `span` are too long.
fn around(text: &str, span: std::ops::Range<usize>) -> Option<std::ops::Range<usize>> {
    // A line before and a line after are shown too.
    let before = text[..span.start].rmatch_indices('\n').nth(1).map_or(0, |(at, _)| at + 1);
    let after = text[span.end..].match_indices('\n').nth(1).map_or(text.len(), |(at, _)| span.end + at);
    let longest = text[before..after].lines().map(str::len).max().unwrap_or(0);
    if longest <= LINE_BYTES_MAX && span.len() <= LINE_BYTES_MAX {
        return None;
    }
    let line = text[..span.start].rfind('\n').map_or(0, |at| at + 1);
    let start = floor_char(text, line.max(span.start.saturating_sub(LINE_BYTES_MAX / 6)));
    let end = floor_char(text, span.end.min(span.start + LINE_BYTES_MAX / 2) + LINE_BYTES_MAX / 6);
    let end = text[span.start..end].find('\n').map_or(end, |at| (span.start + at).max(span.start));
    Some(start..end)
}

fn floor_char(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Up to three of `known` that `name` may be a slip of, the nearest first.
pub fn near<'a>(name: &str, known: &[&'a str]) -> Vec<&'a str> {
    let mut all: Vec<(usize, &str)> = known.iter().map(|candidate| (distance(name, candidate), *candidate)).collect();
    all.sort_unstable();
    all.retain(|(distance, candidate)| *distance <= candidate.chars().count().div_ceil(3));
    all.into_iter().map(|(_, candidate)| candidate).take(3).collect()
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

impl Diagnostic for Fault {
    fn code<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        Some(Box::new(self.code))
    }

    fn help<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        self.help.as_ref().map(|h| Box::new(h) as Box<dyn std::fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.place.as_ref().map(|p| &p.source as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let place = self.place.as_ref()?;
        let label = LabeledSpan::new(Some(place.label.clone()), place.span.start, place.span.len());
        Some(Box::new(std::iter::once(label)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_around_the_place() {
        let text = format!("first\n{}wrong{}\nlast\n", "é".repeat(5000), "y".repeat(1 << 20));
        let start = text.find("wrong").expect("there");
        let fault = Fault::new("x", "m").at("f.txt", &text, start..start + 5, "here");
        let place = fault.place.expect("a place");
        let excerpt = place.source.inner();
        assert!(excerpt.len() < 1000, "{}", excerpt.len());
        assert_eq!(&excerpt[place.span], "wrong");
        let whole = Fault::new("x", "m").at("f.txt", &text, 0..text.len(), "here").place.expect("a place");
        assert!(whole.source.inner().len() < 1000);
        let short = Fault::new("x", "m").at("f.txt", "a\nb\n", 2..3, "here").place.expect("a place");
        assert_eq!((short.source.inner().as_str(), short.source.name()), ("a\nb\n", "f.txt"));
    }

    #[test]
    fn terminals_get_no_control_characters() {
        let fault = Fault::new("x", format!("\u{1b}[31m{}", "z".repeat(1 << 20)));
        assert!(fault.message.starts_with("?[31mz") && fault.message.len() < 2100);
        let place = Fault::new("x", "m").at("f", "a\u{1b}b", 2..3, "here").place.expect("a place");
        assert_eq!(place.source.inner(), "a?b");
    }

    #[test]
    fn long_numbers_are_counted() {
        let fault = Fault::new("x", format!("a = {} is out, 12 is in, {}", "9".repeat(300), "1".repeat(25)));
        assert_eq!(fault.message, "a = 999999999999… (300 digits) is out, 12 is in, 111111111111… (25 digits)");
        assert_eq!(Fault::new("x", "18446744073709551615 é").message, "18446744073709551615 é");
    }

    proptest::proptest! {
        #[test]
        fn any_range_of_any_text_is_a_place(text: String, start: u16, length: u16) {
            let long = format!("{text}{}", text.repeat(50));
            assert_eq!(distance(&text, &text), 0);
            for text in [&text, &long] {
                let fault = Fault::new("x", text.as_str()).at("f", text, usize::from(start)..usize::from(start) + usize::from(length), "here");
                let place = fault.place.expect("a place");
                proptest::prop_assert!(place.source.inner().get(place.span.clone()).is_some());
            }
        }
    }
}
