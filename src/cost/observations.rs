//! Measured kernels: CSV tables in, operations with a measured latency out.
//!
//! A table is told by its columns. `#` lines are comments, unknown columns are
//! ignored. What a row means (which operations, which working set) is in
//! `tables`; this file finds columns, checks numbers and splits the rows.

use std::collections::BTreeMap;

use crate::cost::Cache;
use crate::cost::tables;
use crate::error::Fault;
use crate::error::Result;
use crate::model::op::Op;

/// One measured row.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// Family, kernel and dtype, e.g. `experts int4_wo sglang_marlin_moe`.
    pub group: String,
    /// The operations whose times add up to the row's.
    pub ops: Vec<Op>,
    /// Where their weights and cache lay.
    pub cache: Cache,
    /// What was measured.
    pub latency_us: f64,
    /// Not fitted: by a hash of the shape, so that a shape is in one half only.
    pub held_out: bool,
    /// Line in the file, from 1.
    pub line: u64,
}

/// A row that is not forecast, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Line in the file, from 1.
    pub line: u64,
    /// One sentence.
    pub reason: String,
}

/// What a file holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observations {
    /// Rows that can be forecast.
    pub rows: Vec<Observation>,
    /// Rows that cannot.
    pub skipped: Vec<Skipped>,
}

/// One row by column name.
pub(crate) struct Row<'a> {
    columns: &'a BTreeMap<String, usize>,
    record: &'a csv::StringRecord,
}

impl Row<'_> {
    /// The text of a column; empty where there is none.
    pub(crate) fn text(&self, column: &str) -> &str {
        self.columns.get(column).and_then(|at| self.record.get(*at)).unwrap_or("").trim()
    }

    /// A whole number between 1 and 2^31, which keeps every product of shapes in range.
    pub(crate) fn count(&self, column: &str) -> std::result::Result<u64, String> {
        let text = self.text(column);
        match text.parse::<u64>() {
            Ok(number) if (1..=1 << 31).contains(&number) => Ok(number),
            _ => Err(format!("column {column}: expected a whole number from 1 to 2^31, found {text:?}")),
        }
    }
}

/// Reads a table of measured kernels; `name` is the file's, for messages.
///
/// # Errors
/// `kernel-table`: no table of kernels has these columns, or a cell is not what its column needs.
pub fn read(name: &str, text: &str) -> Result<Observations> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).flexible(true).trim(csv::Trim::All).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|error| fault(name, text, 0..0, &error.to_string()))?.clone();
    let columns: BTreeMap<String, usize> = header.iter().enumerate().map(|(at, column)| (column.to_owned(), at)).collect();
    let table = tables::of_columns(&columns).ok_or_else(|| {
        fault(name, text, 0..text.len().min(1), "these columns are not those of a table of kernels")
            .help("products need m, n, k; experts top_k, experts; MLA heads, batch, context; its products tokens, heads")
    })?;
    let mut observations = Observations::default();
    for record in reader.records() {
        let record = record.map_err(|error| fault(name, text, 0..0, &error.to_string()))?;
        let place = record.position().map_or((0, 0), |p| (p.line(), usize::try_from(p.byte()).unwrap_or(0)));
        let row = Row { columns: &columns, record: &record };
        let span = place.1..place.1 + record.as_slice().len() + record.len().saturating_sub(1);
        let latency_us = latency(&row).map_err(|message| fault(name, text, span.clone(), &message))?;
        match tables::meaning(table, &row).map_err(|message| fault(name, text, span, &message))? {
            Ok(meaning) => observations.rows.push(Observation {
                group: meaning.group,
                ops: meaning.ops,
                cache: meaning.cache,
                latency_us,
                held_out: held_out(&meaning.shape),
                line: place.0,
            }),
            Err(reason) => observations.skipped.push(Skipped { line: place.0, reason }),
        }
    }
    Ok(observations)
}

fn latency(row: &Row<'_>) -> std::result::Result<f64, String> {
    let text = row.text("latency_us");
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number < 1e9 => Ok(number),
        _ => Err(format!("column latency_us: expected a number of microseconds above 0, found {text:?}")),
    }
}

fn fault(name: &str, text: &str, span: std::ops::Range<usize>, message: &str) -> Box<Fault> {
    Fault::new("kernel-table", format!("cannot read {name}: {message}")).at(name, text, span, "here")
}

/// Half of all shapes, by bit 32 of the 64-bit FNV-1a hash of the shape's text.
/// The text leaves out the dtype and the kernel, so a shape held out for one is
/// held out for all.
pub(crate) fn held_out(shape: &str) -> bool {
    let hash = shape.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    hash >> 32 & 1 == 1
}
