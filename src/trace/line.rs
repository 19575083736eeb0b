//! One line of a file at a time: bounded reading and CSV fields.
//!
//! Every CSV of this tool holds one row a line, so that a fault can name the
//! line and a reader never holds more than one. A quoted field may hold commas
//! and doubled quotes, but no line break.

use std::io::BufRead;

use crate::error::Fault;
use crate::error::Result;

/// The longest line that any reader takes, in bytes.
pub const LINE_BYTES_MAX: usize = 1 << 20;

/// Reads lines of a stream into one buffer and counts them.
pub struct Lines<R> {
    name: String,
    input: R,
    buffer: Vec<u8>,
    number: usize,
}

impl<R: BufRead> Lines<R> {
    /// Lines of `input`; `name` is what faults call it.
    pub fn new(name: &str, input: R) -> Lines<R> {
        Lines { name: name.to_owned(), input, buffer: Vec::new(), number: 0 }
    }

    /// What faults call the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of the line last read, from 1.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The line last read.
    pub fn current(&self) -> &str {
        let start = if self.number == 1 && self.buffer.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        std::str::from_utf8(&self.buffer[start..]).unwrap_or("")
    }

    /// The next line without its end, or `None` after the last.
    ///
    /// # Errors
    /// `line-too-long` above [`LINE_BYTES_MAX`], `not-utf8`, and `io`.
    pub fn read(&mut self) -> Result<Option<&str>> {
        self.buffer.clear();
        self.number += 1;
        loop {
            let chunk = match self.input.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Fault::new("io", format!("cannot read {}: {error}", self.name))),
            };
            if chunk.is_empty() {
                if self.buffer.is_empty() {
                    return Ok(None);
                }
                break;
            }
            let end = chunk.iter().position(|&b| b == b'\n');
            let taken = end.map_or(chunk.len(), |e| e + 1);
            if self.buffer.len() + taken > LINE_BYTES_MAX {
                return Err(Fault::new("line-too-long", format!("{}: line {} is longer than 1 MiB", self.name, self.number))
                    .help("expected text with one row a line"));
            }
            self.buffer.extend_from_slice(&chunk[..end.unwrap_or(chunk.len())]);
            self.input.consume(taken);
            if end.is_some() {
                break;
            }
        }
        if self.buffer.last() == Some(&b'\r') {
            self.buffer.pop();
        }
        let start = if self.number == 1 && self.buffer.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        match std::str::from_utf8(&self.buffer[start..]) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(Fault::new("not-utf8", format!("{}: line {} is not UTF-8 text", self.name, self.number))
                .help("save the file as UTF-8 (PowerShell writes UTF-16: use `Out-File -Encoding utf8`)")),
        }
    }
}

/// Splits a CSV line into fields, quotes removed. `None`: a quote is not closed.
pub fn split(line: &str) -> Option<Vec<String>> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        if let Some(quoted) = rest.trim_start_matches(' ').strip_prefix('"') {
            let (field, after) = unquote(quoted)?;
            fields.push(field);
            rest = after;
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            fields.push(rest[..end].trim().to_owned());
            rest = &rest[end..];
        }
        match rest.strip_prefix(',') {
            Some(next) => rest = next,
            None => return Some(fields),
        }
    }
}

/// The first name that is given to two columns.
pub fn twice(columns: &[String]) -> Option<&str> {
    let named = |(at, column): &(usize, &String)| !column.is_empty() && columns[..*at].contains(column);
    columns.iter().enumerate().find(named).map(|(_, column)| column.as_str())
}

/// Where the fields of a CSV line lie, quotes outside, into `ranges`; for
/// readers of many rows, as nothing is copied. Doubled quotes stay doubled.
/// False: a quote is not closed.
pub fn ranges(line: &str, ranges: &mut Vec<std::ops::Range<usize>>) -> bool {
    ranges.clear();
    let bytes = line.as_bytes();
    let mut at = 0;
    loop {
        let quoted = bytes.get(at) == Some(&b'"');
        let start = at + usize::from(quoted);
        let mut end = start;
        if quoted {
            loop {
                match bytes[end.min(bytes.len())..].iter().position(|&b| b == b'"') {
                    None => return false,
                    Some(step) if bytes.get(end + step + 1) == Some(&b'"') => end += step + 2,
                    Some(step) => {
                        end += step;
                        break;
                    }
                }
            }
        }
        let comma = bytes[end.min(bytes.len())..].iter().position(|&b| b == b',').map(|step| end + step);
        let stop = if quoted { end } else { comma.unwrap_or(bytes.len()) };
        ranges.push(start..stop);
        match comma {
            Some(comma) => at = comma + 1,
            None => return true,
        }
    }
}

/// The text up to the closing quote, and what follows from the next comma on.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut field = String::new();
    let mut rest = text;
    loop {
        let quote = rest.find('"')?;
        field.push_str(&rest[..quote]);
        rest = &rest[quote + 1..];
        match rest.strip_prefix('"') {
            Some(next) => {
                field.push('"');
                rest = next;
            }
            None => break,
        }
    }
    let comma = rest.find(',').unwrap_or(rest.len());
    field.push_str(rest[..comma].trim_end());
    Some((field, &rest[comma..]))
}

/// Appends `field` to a CSV line, quoted where it must be; control characters
/// become spaces, so that a row stays one line.
pub fn push_field(line: &mut String, field: &str) {
    let quoted = field.contains([',', '"', '#']) || field.starts_with(' ') || field.ends_with(' ');
    if quoted {
        line.push('"');
    }
    for c in field.chars() {
        match c {
            '"' => line.push_str("\"\""),
            c if c.is_control() => line.push(' '),
            c => line.push(c),
        }
    }
    if quoted {
        line.push('"');
    }
}

/// A number as the CSVs have it: up to `decimals` places, trailing zeros and a bare point dropped.
pub fn trimmed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_may_be_quoted() {
        assert_eq!(split(r#"a,"b, ""c""",,d"#), Some(vec!["a".into(), "b, \"c\"".into(), String::new(), "d".into()]));
        assert_eq!(split(""), Some(vec![String::new()]));
        assert_eq!(split(r#"a,"b"#), None);
    }

    #[test]
    fn ranges_are_where_the_fields_are() {
        let line = r#"1,"a, ""b""",,x"#;
        let mut found = Vec::new();
        assert!(ranges(line, &mut found));
        assert_eq!(found.iter().map(|r| &line[r.clone()]).collect::<Vec<_>>(), ["1", r#"a, ""b"""#, "", "x"]);
        assert!(!ranges("\"", &mut found) && !ranges("a,\"b", &mut found));
    }

    #[test]
    fn long_lines_are_refused_without_being_held() {
        let endless = std::io::Read::take(std::io::repeat(b'x'), 1 << 30);
        let mut lines = Lines::new("x", std::io::BufReader::new(endless));
        assert_eq!(lines.read().expect_err("too long").code, "line-too-long");
    }

    proptest! {
        #[test]
        fn fields_come_back(fields in proptest::collection::vec("[ -~]{0,12}", 1..6)) {
            let fields: Vec<String> = fields.iter().map(|f| f.trim().to_owned()).collect();
            let mut line = String::new();
            for (i, field) in fields.iter().enumerate() {
                if i > 0 { line.push(','); }
                push_field(&mut line, field);
            }
            prop_assert_eq!(split(&line), Some(fields));
        }

        #[test]
        fn splitting_never_panics(line in "\\PC*", plain in "[a-c\", ]{0,20}") {
            let _ = split(&line);
            let mut found = Vec::new();
            for text in [line, plain] {
                if ranges(&text, &mut found) {
                    prop_assert!(found.iter().all(|r| text.get(r.clone()).is_some()));
                }
            }
        }
    }
}
