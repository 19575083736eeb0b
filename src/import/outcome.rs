//! What an import gives: the product, and in words what was understood and what not.

use crate::import::events::ImportedTrace;
use crate::import::facts::Facts;
use crate::import::serving::ServingObservation;
use crate::import::summary::KernelSummary;
use crate::trace::observation::Observation;

/// The result of reading one file.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What was found, one sentence each.
    pub understood: Vec<String>,
    /// What was passed over, one sentence each.
    pub skipped: Vec<String>,
    /// What may mislead, one sentence each.
    pub warnings: Vec<String>,
    /// Facts about the machine.
    pub facts: Facts,
    /// Collectives that were measured.
    pub observations: Vec<Observation>,
    /// Serving runs that were measured.
    pub serving: Vec<ServingObservation>,
    /// Sums by kernel, where a file has no single events.
    pub summary: Vec<KernelSummary>,
    /// What happened on the GPUs, where the file tells it event by event.
    pub trace: Option<ImportedTrace>,
}

impl Outcome {
    /// Notes what was understood.
    pub fn understood(&mut self, text: impl Into<String>) {
        self.understood.push(text.into());
    }

    /// Notes what was passed over.
    pub fn skipped(&mut self, text: impl Into<String>) {
        self.skipped.push(text.into());
    }

    /// Notes what may mislead.
    pub fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }

    /// Joins the outcome of another file of the same import.
    pub fn merge(&mut self, other: Outcome) {
        self.understood.extend(other.understood);
        self.skipped.extend(other.skipped);
        self.warnings.extend(other.warnings);
        self.facts.merge(other.facts);
        self.observations.extend(other.observations);
        self.serving.extend(other.serving);
        self.summary.extend(other.summary);
        match (&mut self.trace, other.trace) {
            (Some(mine), Some(theirs)) => {
                if mine.events.merge(theirs.events) {
                    self.warn("the clocks of the traces differ by more than an hour: each begins at zero");
                }
            }
            (mine @ None, theirs) => *mine = theirs,
            (Some(_), None) => {}
        }
    }
}

/// The last part of a path: sources in outputs tell the file, not the folder.
pub fn base_name(name: &str) -> &str {
    name.rsplit(['/', '\\']).next().unwrap_or(name)
}
