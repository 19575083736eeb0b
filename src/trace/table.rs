//! A small CSV in memory: `#` comments, columns by name, faults with their place.

use std::path::Path;
use std::str::FromStr;

use crate::error::Fault;
use crate::error::Result;
use crate::trace::line;

/// The largest table that is read into memory, in bytes.
pub const TABLE_BYTES_MAX: u64 = 64 << 20;

/// Above this size a fault shows the one line, not the file around it.
const SHOWN_BYTES_MAX: usize = 4 << 20;

/// Reads a text file of at most [`TABLE_BYTES_MAX`].
///
/// # Errors
/// `io`, `file-too-large`, `not-utf8`.
pub fn read_text(path: &Path) -> Result<String> {
    let file = std::fs::File::open(path).map_err(|e| Fault::io("open", path, &e))?;
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut std::io::Read::take(file, TABLE_BYTES_MAX + 1), &mut bytes).map_err(|e| Fault::io("read", path, &e))?;
    text_of(&path.display().to_string(), &bytes).map(str::to_owned)
}

/// `bytes` as text, the byte order mark removed.
///
/// # Errors
/// `file-too-large`, `not-utf8`.
pub fn text_of<'b>(name: &str, bytes: &'b [u8]) -> Result<&'b str> {
    if bytes.len() as u64 > TABLE_BYTES_MAX {
        return Err(Fault::new("file-too-large", format!("{name} is larger than {} MiB", TABLE_BYTES_MAX >> 20)));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].iter().filter(|&&b| b == b'\n').count() + 1;
        Fault::new("not-utf8", format!("{name}: line {line} is not UTF-8 text"))
            .help("save the file as UTF-8 (PowerShell writes UTF-16: use `Out-File -Encoding utf8`)")
    })
}

/// A table being read.
pub struct Table<'t> {
    name: &'t str,
    text: &'t str,
    code: &'static str,
    columns: Vec<String>,
    offset: usize,
    line: usize,
}

/// One row, with its place.
pub struct Row<'a> {
    table: &'a Table<'a>,
    fields: Vec<String>,
    span: std::ops::Range<usize>,
    /// The line, from 1.
    pub line: usize,
}

impl<'t> Table<'t> {
    /// Reads the header. `name` and `code` are for faults.
    ///
    /// # Errors
    /// `code` when there is no header, a column of `required` is missing, or one stands there twice.
    pub fn open(name: &'t str, text: &'t str, code: &'static str, required: &[&str]) -> Result<Table<'t>> {
        let mut table = Table { name, text, code, columns: Vec::new(), offset: 0, line: 0 };
        let Some((line, span)) = table.next_line() else {
            return Err(Fault::new(code, format!("{name} has no header line"))
                .help(format!("expected columns with at least {}", required.join(", "))));
        };
        let header = &text[span.clone()];
        table.columns = line::split(header).unwrap_or_default().into_iter().map(|c| c.trim().to_owned()).collect();
        if let Some(twice) = line::twice(&table.columns) {
            let message = format!("the column `{twice}` stands there twice");
            return Err(table.fault(line, span, message, "the header").help("take one of them out: which one counts cannot be told"));
        }
        if let Some(missing) = required.iter().find(|r| !table.columns.iter().any(|c| c == *r)) {
            return Err(table.fault(line, span, format!("the column `{missing}` is missing"), "the header").help(format!(
                "expected at least {}; found {}",
                required.join(", "),
                table.columns.join(", ")
            )));
        }
        Ok(table)
    }

    /// The fault of a table without a row, for those who need one.
    pub fn no_rows(&self) -> Box<Fault> {
        Fault::new(self.code, format!("{} holds no row below its header", self.name)).help("expected at least one row")
    }

    /// Whether the header names `column`.
    pub fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|c| c == column)
    }

    /// The next row that is neither blank nor a comment.
    ///
    /// # Errors
    /// The table's code when the row has not as many fields as the header.
    pub fn next_row(&mut self) -> Result<Option<Row<'_>>> {
        let Some((line, span)) = self.next_line() else { return Ok(None) };
        let Some(fields) = line::split(&self.text[span.clone()]) else {
            return Err(self.fault(line, span, "a quote is not closed", "this row").help("expected one row a line"));
        };
        if fields.len() != self.columns.len() {
            let message = format!("{} fields where the header has {} columns", fields.len(), self.columns.len());
            return Err(self.fault(line, span, message, "this row").help("quote fields that hold commas"));
        }
        Ok(Some(Row { table: self, fields, span, line }))
    }

    fn next_line(&mut self) -> Option<(usize, std::ops::Range<usize>)> {
        while self.offset < self.text.len() {
            let start = self.offset;
            let rest = &self.text[start..];
            let length = rest.find('\n').unwrap_or(rest.len());
            self.offset = start + length + 1;
            self.line += 1;
            let content = rest[..length].trim_end_matches('\r');
            if !content.trim().is_empty() && !content.trim_start().starts_with('#') {
                return Some((self.line, start..start + content.len()));
            }
        }
        None
    }

    fn fault(&self, line: usize, span: std::ops::Range<usize>, message: impl Into<String>, label: &str) -> Box<Fault> {
        let fault = Fault::new(self.code, format!("{}: line {line}: {}", self.name, message.into()));
        if self.text.len() > SHOWN_BYTES_MAX {
            let content = &self.text[span];
            return fault.at(&format!("{} (line {line})", self.name), content, 0..content.len(), label);
        }
        fault.at(self.name, self.text, span, label)
    }
}

impl Row<'_> {
    /// The field of that column; empty when there is no such column.
    pub fn text(&self, column: &str) -> &str {
        self.table.columns.iter().position(|c| c == column).map_or("", |i| self.fields[i].as_str())
    }

    /// The field as a number, `None` when it is empty.
    ///
    /// # Errors
    /// The table's code when it is not of the kind `expected` says.
    pub fn parse<T: FromStr>(&self, column: &str, expected: &str) -> Result<Option<T>> {
        let text = self.text(column);
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| self.fault(column, &format!("`{text}` is not {expected}"), expected))
    }

    /// The field as a finite number within `range`, `None` when it is empty.
    ///
    /// # Errors
    /// The table's code when it is no number or outside.
    pub fn number(&self, column: &str, range: std::ops::RangeInclusive<f64>) -> Result<Option<f64>> {
        let expected = format!("a number from {} to {}", range.start(), range.end());
        match self.parse::<f64>(column, &expected)? {
            Some(value) if !range.contains(&value) => {
                Err(self.fault(column, &format!("`{}` is not {expected}", self.text(column)), &expected))
            }
            value => Ok(value),
        }
    }

    /// A fault about one field of this row.
    pub fn fault(&self, column: &str, message: &str, expected: &str) -> Box<Fault> {
        self.table
            .fault(self.line, self.span.clone(), format!("{column}: {message}"), "this row")
            .help(format!("expected {expected} in the column `{column}`"))
    }
}
