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
        Box::new(Fault { code, message: message.into(), help: None, place: None })
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn help(mut self: Box<Fault>, help: impl Into<String>) -> Box<Fault> {
        self.help = Some(help.into());
        self
    }

    /// Points at bytes `span` of `text`, read from `name`. The range is cut to the text.
    #[must_use]
    pub fn at(mut self: Box<Fault>, name: &str, text: &str, span: std::ops::Range<usize>, label: impl Into<String>) -> Box<Fault> {
        let start = floor_char(text, span.start);
        let end = floor_char(text, span.end).max(start);
        self.place = Some(Place { source: NamedSource::new(name, text.to_owned()), span: start..end, label: label.into() });
        self
    }

    /// A file that could not be read or written.
    pub fn io(action: &str, path: &Path, error: &std::io::Error) -> Box<Fault> {
        Fault::new("io", format!("cannot {action} {}: {error}", path.display()))
    }
}

fn floor_char(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
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
