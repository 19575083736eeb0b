//! Two traces of one pass side by side: what differs, by how much, and why.
//!
//! Both are read once, row by row, at the same pace. Each rank's time is told
//! apart ([`side`]): compute, transfer (a collective from the last arrival on),
//! skew (waiting for it), gaps. Operations are joined by id ([`join`]), or by
//! their order where the two traces name them differently ([`sequence`]).
//! Memory does not grow with the number of passes.
//!
//! All results are of the mean rank and pass: the portions of a trace add up to
//! the time of its pass, and the differences to the difference of the passes.

mod belong;
pub mod causes;
mod join;
mod names;
pub mod outcome;
mod pass;
mod sequence;
mod side;
pub mod spent;
mod totals;

use std::io::BufRead;

use crate::compare::join::Joiner;
use crate::compare::names::Names;
use crate::compare::side::Side;
use crate::error::Result;
use crate::trace::record::Header;
use crate::trace::record::Reader;

pub use causes::Cause;
pub use causes::What;
pub use outcome::Comparison;
pub use outcome::LedgerLine;
pub use outcome::Line;
pub use outcome::Unmatched;
pub use spent::Portion;

/// Rows that one trace may be ahead of the other.
const AHEAD: u64 = 512;
/// Rows that are looked at to tell how the traces name operations.
const SAMPLE: usize = 4000;

/// One trace of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// What faults and reports call it.
    pub name: String,
    /// Only this pass; all where absent.
    pub pass: Option<u32>,
}

/// How to compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Also traces whose headers say that they do not belong together, and cut ones.
    pub anyway: bool,
    /// By order, whatever the names; otherwise only where few names are common.
    pub by_order: bool,
}

/// Whether the two traces call few operations by the same name. Each is read
/// from its start; `open` gives it once more.
///
/// # Errors
/// Those of opening and reading.
pub fn names_differ<R: BufRead>(open: impl Fn(usize) -> Result<Reader<R>>) -> Result<bool> {
    let mut seen: [std::collections::BTreeSet<String>; 2] = Default::default();
    for (side, seen) in seen.iter_mut().enumerate() {
        let mut reader = open(side)?;
        let mut left = SAMPLE;
        while let Some(row) = reader.read_row()? {
            let op = if row.op.is_empty() { row.name } else { row.op };
            seen.insert(names::without_rank(op, row.rank).to_owned());
            left -= 1;
            if left == 0 {
                break;
            }
        }
    }
    let common = seen[0].intersection(&seen[1]).count();
    Ok(common * 10 < seen[0].len().min(seen[1].len()))
}

/// Compares two traces.
///
/// # Errors
/// `compare-other-model`, `compare-other-plan`, `compare-cut`, `compare-empty`
/// for traces that do not belong together; `compare-order` for rows in an order
/// that would need unbounded memory; those of the readers.
pub fn compare<R: BufRead>(inputs: [Input; 2], mut readers: [Reader<R>; 2], options: Options) -> Result<Comparison> {
    let headers: [Header; 2] = [readers[0].header().clone(), readers[1].header().clone()];
    if !options.anyway {
        belong::check_headers([&inputs[0].name, &inputs[1].name], [&headers[0], &headers[1]])?;
    }
    let mut names = Names::default();
    let ranks = |header: &Header| header.get("ranks").and_then(|ranks| ranks.parse().ok()).unwrap_or(0);
    let mut sides = [0, 1].map(|side: usize| Side::new(&inputs[side].name, ranks(&headers[side]), options.by_order, &mut names));
    let mut joiner = Joiner::default();
    let mut left = [true, true];
    while left[0] || left[1] {
        for side in 0..2 {
            let goal = if left[1 - side] { sides[1 - side].totals.rows + AHEAD } else { u64::MAX };
            while left[side] && sides[side].totals.rows < goal {
                match readers[side].read_row()? {
                    Some(row) => sides[side].push(&row, inputs[side].pass, &mut names)?,
                    None => {
                        left[side] = false;
                        sides[side].finish(&mut names);
                    }
                }
                for settled in sides[side].settled.drain(..) {
                    joiner.push(side, settled)?;
                }
            }
        }
    }
    let rest = joiner.rest();
    let [first, second] = sides.map(|side| side.totals);
    let passes = first.passes.min(second.passes) as u32;
    if !options.anyway {
        belong::check_ends(&inputs, &joiner, &rest, [first.rows, second.rows], passes, &names)?;
    }
    Ok(outcome::build(inputs, headers, [first, second], &joiner, &rest, &names, options.by_order))
}

#[cfg(test)]
mod tests;
