//! The Trace CSV: what every rank did in a pass, operation by operation.
//!
//! Both executors and the importers write it, compare and the reports read it.
//! Times are picoseconds inside and nanoseconds with three decimals in the
//! file, so nothing is lost between.

use std::io::BufRead;
use std::io::Write;

use crate::error::Fault;
use crate::error::Result;
pub use crate::trace::kind::Kind;
use crate::trace::line;
use crate::trace::line::Lines;
use crate::units::Time;

/// The columns in the order in which they are written.
pub const COLUMNS: &str = "pass,rank,op,name,kind,layer,start_ns,end_ns,bytes,detail";

/// The first line, up to the version.
const MAGIC: &str = "# lanecast-trace ";

/// The version that is written, and the newest that is read.
const VERSION: u32 = 1;

const CODE: &str = "trace";

/// Most `# key = value` lines that a reader takes.
const HEADER_LINES_MAX: usize = 1000;

/// What the `#` lines say: `source`, strategy, plan, machine, model, ranks,
/// tokens, launch, seed, program, timing method; any key is kept, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Keys and values in the order of the file.
    pub entries: Vec<(String, String)>,
}

impl Header {
    /// A header that names its source: `simulated`, `measured` or `imported`.
    pub fn from_source(source: &str) -> Header {
        Header { entries: vec![("source".to_owned(), source.to_owned())] }
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.entries.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// Adds or replaces `key`. Line breaks become spaces.
    pub fn set(&mut self, key: &str, value: &str) {
        let value: String = value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        match self.entries.iter_mut().find(|(k, _)| k == key) {
            Some(entry) => entry.1 = value.trim().to_owned(),
            None => self.entries.push((key.to_owned(), value.trim().to_owned())),
        }
    }
}

/// One operation of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which pass, from 0.
    pub pass: u32,
    /// Which rank, from 0.
    pub rank: u32,
    /// Id that does not depend on who executed: `L012.attn_allreduce.r3`.
    pub op: String,
    /// What a reader sees: the kernel's or the operation's name.
    pub name: String,
    /// What it is made of.
    pub kind: Kind,
    /// Transformer layer, if it belongs to one.
    pub layer: Option<u32>,
    /// When it began.
    pub start: Time,
    /// When it ended; never before `start`.
    pub end: Time,
    /// Bytes that it moves between ranks or copies; 0 when not known.
    pub bytes: u64,
    /// `key=value` pairs joined by `;`, e.g. `stream=7;arrived_ns=12.000`.
    pub detail: String,
}

impl Record {
    /// The value of `key` in [`Record::detail`].
    pub fn detail(&self, key: &str) -> Option<&str> {
        self.detail.split(';').find_map(|pair| pair.split_once('=').filter(|(k, _)| k.trim() == key)).map(|(_, v)| v.trim())
    }
}

/// Reads records one at a time.
pub struct Reader<R> {
    pub(super) lines: Lines<R>,
    header: Header,
    /// Position of each of [`COLUMNS`] in a row.
    pub(super) columns: Vec<Option<usize>>,
    pub(super) width: usize,
    /// Where the fields of the row last read lie.
    pub(super) fields: Vec<std::ops::Range<usize>>,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header of `input`, which came from `name`.
    ///
    /// # Errors
    /// `trace` when it is no trace or lacks a column, `trace-newer` when its
    /// version is unknown, and the faults of [`Lines::read`].
    pub fn open(name: &str, input: R) -> Result<Reader<R>> {
        let mut lines = Lines::new(name, input);
        let first = lines.read()?.unwrap_or("").to_owned();
        let version = first.strip_prefix(MAGIC).and_then(|v| v.trim().parse::<u32>().ok());
        match version {
            Some(VERSION) => {}
            Some(newer) => {
                return Err(Fault::new("trace-newer", format!("{name} is a trace of version {newer}"))
                    .help(format!("this program reads version {VERSION}; use a newer one")));
            }
            None => {
                return Err(
                    Fault::new(CODE, format!("{name} is not a trace")).help(format!("expected `{MAGIC}{VERSION}` as the first line"))
                );
            }
        }
        let mut reader = Reader { lines, header: Header::default(), columns: Vec::new(), width: 0, fields: Vec::new() };
        reader.read_header()?;
        Ok(reader)
    }

    /// What the `#` lines say.
    pub fn header(&self) -> &Header {
        &self.header
    }

    fn read_header(&mut self) -> Result<()> {
        for _ in 0..HEADER_LINES_MAX {
            let Some(text) = self.lines.read()? else { break };
            let text = text.trim();
            if let Some(comment) = text.strip_prefix('#') {
                if let Some((key, value)) = comment.split_once('=') {
                    self.header.entries.push((key.trim().to_owned(), value.trim().to_owned()));
                }
                continue;
            }
            if text.is_empty() {
                continue;
            }
            let found = line::split(text).unwrap_or_default();
            self.width = found.len();
            if let Some(twice) = line::twice(&found) {
                return Err(self.fault(&format!("the column `{twice}` stands there twice"), "which one counts cannot be told"));
            }
            self.columns = COLUMNS.split(',').map(|c| found.iter().position(|f| f == c)).collect();
            for (column, place) in COLUMNS.split(',').zip(&self.columns) {
                if place.is_none() && ["rank", "name", "start_ns", "end_ns"].contains(&column) {
                    return Err(self.fault(&format!("the column `{column}` is missing"), &format!("expected {COLUMNS}")));
                }
            }
            return Ok(());
        }
        Err(self.fault("the line with the columns is missing", &format!("expected {COLUMNS}")))
    }

    /// The next record, or `None` after the last.
    ///
    /// # Errors
    /// `trace` with the line and what was expected.
    pub fn read(&mut self) -> Result<Option<Record>> {
        let fields = loop {
            let Some(text) = self.lines.read()? else { return Ok(None) };
            if !text.trim().is_empty() && !text.starts_with('#') {
                break line::split(text);
            }
        };
        let Some(fields) = fields else { return Err(self.fault("a quote is not closed", "expected one row a line")) };
        if fields.len() != self.width {
            let message = format!("{} fields where the header has {} columns", fields.len(), self.width);
            return Err(self.fault(&message, "quote fields that hold commas"));
        }
        let field = |i: usize| self.columns[i].map_or("", |c| fields[c].as_str());
        let whole = |i: usize, default: u64, most: u64| match field(i) {
            "" => Ok(default),
            text => text.parse::<u64>().ok().filter(|&v| v <= most).ok_or_else(|| self.field_fault(i, text, "a whole number")),
        };
        let time = |i: usize| time_from_ns(field(i)).ok_or_else(|| self.field_fault(i, field(i), "nanoseconds with up to three decimals"));
        let small = u64::from(u32::MAX);
        let layer = if field(5).is_empty() { None } else { Some(whole(5, 0, small)? as u32) };
        let record = Record {
            pass: whole(0, 0, small)? as u32,
            rank: whole(1, 0, small)? as u32,
            op: field(2).to_owned(),
            name: field(3).to_owned(),
            kind: Kind::from_name(field(4)),
            layer,
            start: time(6)?,
            end: time(7)?,
            bytes: whole(8, 0, u64::MAX)?,
            detail: field(9).to_owned(),
        };
        if record.end < record.start {
            return Err(self.fault("end_ns is before start_ns", "expected end_ns ≥ start_ns"));
        }
        Ok(Some(record))
    }

    /// All records that are left.
    ///
    /// # Errors
    /// See [`Reader::read`].
    pub fn read_all(&mut self) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        while let Some(record) = self.read()? {
            records.push(record);
        }
        Ok(records)
    }

    fn field_fault(&self, column: usize, text: &str, expected: &str) -> Box<Fault> {
        let name = COLUMNS.split(',').nth(column).unwrap_or("");
        let shown: String = text.chars().take(60).collect();
        self.fault(&format!("{name}: `{shown}` is not {expected}"), &format!("expected {expected} in the column `{name}`"))
    }

    pub(super) fn fault(&self, message: &str, help: &str) -> Box<Fault> {
        Fault::new(CODE, format!("{}: line {}: {message}", self.lines.name(), self.lines.number())).help(help)
    }
}

/// `123.456` nanoseconds, exactly. Digits beyond the third decimal are dropped.
pub(super) fn time_from_ns(text: &str) -> Option<Time> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return None;
    }
    let mut ps = whole.parse::<u64>().ok()?.checked_mul(1000)?;
    for (digit, scale) in fraction.bytes().zip([100, 10, 1]) {
        ps = ps.checked_add(u64::from(digit - b'0') * scale)?;
    }
    Some(Time(ps))
}

/// Writes records one at a time.
pub struct Writer<W> {
    output: W,
    row: String,
}

impl<W: Write> Writer<W> {
    /// Writes the first lines to `output`.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn create(mut output: W, header: &Header) -> std::io::Result<Writer<W>> {
        writeln!(output, "{MAGIC}{VERSION}")?;
        for (key, value) in &header.entries {
            writeln!(output, "# {key} = {value}")?;
        }
        writeln!(output, "{COLUMNS}")?;
        Ok(Writer { output, row: String::new() })
    }

    /// Writes one row.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write(&mut self, r: &Record) -> std::io::Result<()> {
        use std::fmt::Write as _;
        let row = &mut self.row;
        row.clear();
        let _ = write!(row, "{},{},", r.pass, r.rank);
        line::push_field(row, &r.op);
        row.push(',');
        line::push_field(row, &r.name);
        let _ = write!(row, ",{},", r.kind.name());
        if let Some(layer) = r.layer {
            let _ = write!(row, "{layer}");
        }
        let (start, end) = (r.start.0, r.end.0);
        let _ = write!(row, ",{}.{:03},{}.{:03},{},", start / 1000, start % 1000, end / 1000, end % 1000, r.bytes);
        line::push_field(row, &r.detail);
        row.push('\n');
        self.output.write_all(row.as_bytes())
    }

    /// Flushes and gives the output back.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self) -> std::io::Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Record {
        Record {
            pass: 0,
            rank: 3,
            op: "L012.attn_allreduce.r3".into(),
            name: "ncclDevKernel_AllReduce<a, b>".into(),
            kind: Kind::Communication,
            layer: Some(12),
            start: Time(1_234_567),
            end: Time(2_000_001),
            bytes: 43008,
            detail: "stream=7;protocol=ll".into(),
        }
    }

    fn written(records: &[Record]) -> String {
        let mut header = Header::from_source("simulated");
        header.set("strategy", "nccl-default");
        let mut writer = Writer::create(Vec::new(), &header).expect("memory");
        records.iter().for_each(|r| writer.write(r).expect("memory"));
        String::from_utf8(writer.finish().expect("memory")).expect("UTF-8")
    }

    fn read(text: &[u8]) -> Result<Vec<Record>> {
        Reader::open("t.csv", text)?.read_all()
    }

    #[test]
    fn a_trace_comes_back() {
        let text = written(&[sample()]);
        let expected = "# lanecast-trace 1\n# source = simulated\n# strategy = nccl-default\n\
            pass,rank,op,name,kind,layer,start_ns,end_ns,bytes,detail\n\
            0,3,L012.attn_allreduce.r3,\"ncclDevKernel_AllReduce<a, b>\",communication,12,1234.567,2000.001,43008,stream=7;protocol=ll\n";
        assert_eq!(text, expected);
        let mut reader = Reader::open("t.csv", text.as_bytes()).expect("reads");
        assert_eq!(reader.header().get("strategy"), Some("nccl-default"));
        assert_eq!(reader.read_all().expect("reads"), vec![sample()]);
        assert_eq!(sample().detail("protocol"), Some("ll"));
    }

    #[test]
    fn foreign_and_newer_files_are_refused() {
        assert_eq!(read(b"a,b\n").expect_err("no trace").code, "trace");
        assert_eq!(read(b"# lanecast-trace 2\n").expect_err("newer").code, "trace-newer");
        assert_eq!(read(b"").expect_err("empty").code, "trace");
        assert_eq!(read(b"# lanecast-trace 1\nrank,name,start_ns\n").expect_err("end_ns").code, "trace");
    }

    #[test]
    fn times_are_exact() {
        assert_eq!(time_from_ns("1.2"), Some(Time(1200)));
        assert_eq!(time_from_ns("18446744073709551.615"), Some(Time(u64::MAX)));
        for wrong in ["", "-1", "1e3", "18446744073709551.616", "nan", ".5", "1.x"] {
            assert_eq!(time_from_ns(wrong), None, "{wrong}");
        }
        let text = written(&[sample()]).replace("2000.001", "1000.000");
        assert!(read(text.as_bytes()).expect_err("backwards").message.contains("line 5"));
    }

    proptest! {
        #[test]
        fn mangled_traces_never_panic(at in 0usize..200, byte: u8, cut in 0usize..260) {
            let mut bytes = written(&[sample()]).into_bytes();
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(cut);
            let _ = read(&bytes);
        }
    }
}
