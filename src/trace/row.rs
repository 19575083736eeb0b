//! Rows of a Trace CSV in place, for readers of millions of them: nothing is copied.

use std::io::BufRead;

use crate::error::Result;
use crate::trace::line;
use crate::trace::record::COLUMNS;
use crate::trace::record::Kind;
use crate::trace::record::Reader;
use crate::trace::record::time_from_ns;
use crate::units::Time;

/// One operation of one rank, its texts still in the reader's line; doubled
/// quotes stay doubled. See [`crate::trace::record::Record`] for the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// Which pass.
    pub pass: u32,
    /// Which rank.
    pub rank: u32,
    /// Id of the operation, the rank in it.
    pub op: &'a str,
    /// What a reader sees.
    pub name: &'a str,
    /// What it is made of.
    pub kind: Kind,
    /// Transformer layer.
    pub layer: Option<u32>,
    /// When it began.
    pub start: Time,
    /// When it ended, not before `start`.
    pub end: Time,
    /// Bytes that it moves.
    pub bytes: u64,
    /// `key=value` pairs.
    pub detail: &'a str,
}

impl<R: BufRead> Reader<R> {
    /// The next row, or `None` after the last.
    ///
    /// # Errors
    /// `trace` with the line and what was expected.
    pub fn read_row(&mut self) -> Result<Option<Row<'_>>> {
        loop {
            match self.lines.read()? {
                None => return Ok(None),
                Some(text) if text.is_empty() || text.starts_with('#') || text.trim().is_empty() => {}
                Some(_) => break,
            }
        }
        let mut fields = std::mem::take(&mut self.fields);
        let closed = line::ranges(self.lines.current(), &mut fields);
        self.fields = fields;
        if !closed {
            return Err(self.fault("a quote is not closed", "expected one row a line; a file that was cut ends like this"));
        }
        if self.fields.len() != self.width {
            let message = format!("{} fields where the header has {} columns", self.fields.len(), self.width);
            return Err(self.fault(&message, "quote fields that hold commas; a file that was cut ends like this"));
        }
        let row = self.row();
        match row {
            Ok(row) if row.end < row.start => Err(self.fault("end_ns is before start_ns", "expected end_ns ≥ start_ns")),
            Ok(row) => Ok(Some(row)),
            Err(column) => {
                let name = COLUMNS.split(',').nth(column).unwrap_or("");
                let shown: String = self.field(column).chars().take(60).collect();
                let expected = if (6..=7).contains(&column) { "nanoseconds with up to three decimals" } else { "a whole number" };
                Err(self.fault(&format!("{name}: `{shown}` is not {expected}"), &format!("expected {expected} in the column `{name}`")))
            }
        }
    }

    fn field(&self, column: usize) -> &str {
        let range = self.columns[column].and_then(|place| self.fields.get(place));
        range.and_then(|range| self.lines.current().get(range.clone())).unwrap_or("").trim()
    }

    /// The row in `fields`, or the column that is wrong.
    fn row(&self) -> std::result::Result<Row<'_>, usize> {
        let text = self.lines.current();
        let field = |column: usize| {
            let range = self.columns[column].and_then(|place| self.fields.get(place));
            range.and_then(|range| text.get(range.clone())).unwrap_or("").trim()
        };
        let whole = |column: usize, most: u64| match field(column) {
            "" => Ok(0),
            text => number(text).filter(|&value| value <= most).ok_or(column),
        };
        let small = u64::from(u32::MAX);
        Ok(Row {
            pass: whole(0, small)? as u32,
            rank: whole(1, small)? as u32,
            op: field(2),
            name: field(3),
            kind: Kind::from_name(field(4)),
            layer: if field(5).is_empty() { None } else { Some(whole(5, small)? as u32) },
            start: time_from_ns(field(6)).ok_or(6_usize)?,
            end: time_from_ns(field(7)).ok_or(7_usize)?,
            bytes: whole(8, u64::MAX)?,
            detail: field(9),
        })
    }
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

impl Row<'_> {
    /// What of the operation is kernels, where it says so (`busy_ns`): the rest is gaps between them.
    pub fn busy(&self) -> Option<Time> {
        if self.detail.contains("busy_ns=") { self.detail("busy_ns").and_then(time_from_ns) } else { None }
    }

    /// The value of `key` in [`Row::detail`].
    pub fn detail(&self, key: &str) -> Option<&str> {
        self.detail.split(';').find_map(|pair| pair.split_once('=').filter(|(k, _)| k.trim() == key)).map(|(_, v)| v.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEAD: &str = "# lanecast-trace 1\n# a = b\npass,rank,op,name,kind,layer,start_ns,end_ns,bytes,detail\n";

    #[test]
    fn rows_are_the_records() {
        let text = format!("{HEAD}0,3,L012.q.r3,\"f<a, b>\",compute,12,1.5,2.001,43008,stream=7;x=y\n\n# note\n1,0,x.r0,x,skew,,3,4,,\n");
        let records = Reader::open("t", text.as_bytes()).expect("opens").read_all().expect("reads");
        let mut reader = Reader::open("t", text.as_bytes()).expect("opens");
        for record in records {
            let row = reader.read_row().expect("reads").expect("as many");
            assert_eq!((row.pass, row.rank, row.op, row.name), (record.pass, record.rank, record.op.as_str(), record.name.as_str()));
            assert_eq!((row.kind, row.layer, row.start, row.end), (record.kind, record.layer, record.start, record.end));
            assert_eq!((row.bytes, row.detail), (record.bytes, record.detail.as_str()));
            assert_eq!(row.detail("x"), record.detail("x"));
        }
        assert_eq!(reader.read_row().expect("reads"), None);
    }

    #[test]
    fn wrong_rows_name_the_column() {
        for (row, words) in [
            ("0,0,a,a,compute,,1,x,0,", "end_ns"),
            ("0,0,a,a,compute,,2,1,0,", "before"),
            ("0,0,a,a,compute,,1", "7 fields"),
            ("0,z,a,a,compute,,1,2,0,", "rank"),
            ("0,0,\"a,a,compute,,1,2,0,", "quote"),
        ] {
            let text = format!("{HEAD}{row}\n");
            let fault = Reader::open("t.csv", text.as_bytes()).expect("opens").read_row().expect_err(row);
            assert!(fault.message.contains(words) && fault.message.contains("t.csv: line 4"), "{}", fault.message);
        }
    }

    proptest! {
        #[test]
        fn mangled_rows_never_panic(tail in "[ -~\n\"]{0,200}") {
            let text = format!("{HEAD}{tail}");
            if let Ok(mut reader) = Reader::open("t", text.as_bytes()) {
                while let Ok(Some(_)) = reader.read_row() {}
            }
        }
    }
}
