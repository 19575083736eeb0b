//! Observations → constants: Gauss–Newton on the simulated times.
//!
//! Residuals are ln(forecast ÷ measured), weighted by Huber's rule so that a
//! row whose mechanism is missing bends the rest little. A constant's slopes
//! are differences of two simulations: they hold what the critical path spends
//! on the constant, changes of the path included. NCCL's choices and schedules
//! are made once for each row, since they rest on no fitted constant.
//!
//! What the rows cannot tell apart is found from the covariance of the linear
//! system; such constants stay at the value that the machine had.

use rayon::prelude::*;

use crate::error::Fault;
use crate::error::Result;
use crate::fit::observe;
use crate::fit::observe::Prepared;
use crate::fit::search::Search;
use crate::knob::Quantity;
use crate::machine::Machine;
use crate::trace::observation::Observation;

/// A row with its schedule.
pub struct Row<'a> {
    /// What was measured.
    pub observation: &'a Observation,
    pub(super) prepared: Prepared,
}

/// What became of a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The rows pin it.
    Fitted,
    /// The best value lies at a bound of what physics allows.
    AtBound,
    /// The rows do not tell it from others, or do not depend on it: kept as it was.
    Kept,
    /// A threshold: searched, not fitted.
    Searched,
}

impl Status {
    /// As reports name it.
    pub fn name(self) -> &'static str {
        match self {
            Status::Fitted => "fitted",
            Status::AtBound => "at its bound",
            Status::Kept => "not identified, kept",
            Status::Searched => "threshold, searched",
        }
    }
}

/// One constant after a fit.
pub struct Constant {
    /// Its dotted path.
    pub path: String,
    /// Its unit.
    pub unit: &'static str,
    /// What it was before.
    pub before: Quantity,
    /// The estimate.
    pub value: f64,
    /// 90 % interval from the bootstrap; the old interval if kept.
    pub low: f64,
    /// See `low`.
    pub high: f64,
    /// What became of it.
    pub status: Status,
    /// Which groups of rows pin it, with their shares of the information.
    pub pinned_by: String,
}

/// A fit of some constants of a machine to some rows.
pub struct Fitted {
    /// The machine with the new values.
    pub machine: Machine,
    /// The constants, in the order asked for.
    pub constants: Vec<Constant>,
    /// Rows fitted.
    pub rows: usize,
    /// Rows that cannot be simulated, with the reason.
    pub skipped: Vec<String>,
    /// Rounds taken.
    pub rounds: usize,
}

/// Prepares rows; those that cannot be simulated are returned as reasons.
pub fn prepare<'a>(machine: &Machine, rows: &[&'a Observation]) -> (Vec<Row<'a>>, Vec<String>) {
    let prepared: Vec<_> = rows.par_iter().map(|row| (*row, observe::prepare(machine, row))).collect();
    let (mut ready, mut skipped) = (Vec::new(), Vec::new());
    for (observation, prepared) in prepared {
        match prepared {
            Ok(prepared) => ready.push(Row { observation, prepared }),
            Err(fault) => skipped.push(fault.message.clone()),
        }
    }
    (ready, skipped)
}

/// Fits the constants at `paths`, in whose order ties are broken: of constants
/// that only show as a sum, the first is fitted.
///
/// # Errors
/// `fit-too-few-rows`, unknown paths, and what simulating can meet.
pub fn fit(machine: &Machine, observations: &[&Observation], paths: &[String]) -> Result<Fitted> {
    let (rows, skipped) = prepare(machine, observations);
    let mut search = Search::new(machine, rows, paths)?;
    if search.rows.len() < search.unknowns.len().max(2) {
        let (rows, unknowns) = (search.rows.len(), search.unknowns.len());
        let first = skipped.first().map_or(String::new(), |reason| format!("; not simulated: {reason}"));
        return Err(Fault::new("fit-too-few-rows", format!("{rows} rows cannot fit {unknowns} constants{first}"))
            .help("choose more rows with --rows, or fewer constants with --constants"));
    }
    search.run()?;
    search.thresholds()?;
    let constants = search.constants()?;
    let mut fitted = Fitted { machine: search.machine, constants, rows: search.rows.len(), skipped, rounds: search.rounds };
    let source = format!("fitted: {} rows of {}", fitted.rows, fitted.machine.id);
    let set: Vec<(String, Quantity)> = (fitted.constants.iter())
        .filter(|constant| constant.status != Status::Kept)
        .map(|c| (c.path.clone(), Quantity::between(c.low, c.value, c.high, &source)))
        .collect();
    for (path, quantity) in set {
        fitted.machine.set_quantity(&path, &quantity)?;
    }
    Ok(fitted)
}
