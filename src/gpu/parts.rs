//! What a measurement of a machine consists of, how much of it is asked for,
//! and what it gives.

use crate::error::{Fault, Result};
use crate::gpu::answer::Answer;
use crate::gpu::detect::Detected;
use crate::gpu::element::Element;
use crate::gpu::group::TIMEOUT_MS;
use crate::gpu::observation::Check;
use crate::gpu::observation::Choice;
use crate::gpu::observation::Flow;
use crate::gpu::observation::Micro;
use crate::gpu::observation::Observation;

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Launches, flags, reads, fences, stores in flight, copies.
    Micro,
    /// How far apart ranks of one graph start on a shared GPU.
    Skew,
    /// Concurrent flows.
    Flows,
    /// Every kernel against double precision.
    Check,
    /// A rank that stops is reported.
    Stop,
    /// All-reduces of our own.
    Ours,
    /// Those through host memory, best of several grids.
    Host,
    /// NCCL with forced choices.
    Nccl,
    /// NCCL and ours side by side at the case's sizes.
    Versus,
    /// The four variables of the few-channels proposal.
    Variables,
    /// What green contexts change.
    Green,
}

impl Part {
    /// All, in the order in which they run.
    pub const ALL: [Part; 11] = [
        Part::Micro,
        Part::Skew,
        Part::Flows,
        Part::Check,
        Part::Stop,
        Part::Ours,
        Part::Host,
        Part::Nccl,
        Part::Versus,
        Part::Variables,
        Part::Green,
    ];

    /// Those of a quick run.
    pub const QUICK: [Part; 8] = [Part::Micro, Part::Skew, Part::Flows, Part::Check, Part::Stop, Part::Ours, Part::Nccl, Part::Versus];

    /// As the command line names it.
    pub fn name(self) -> &'static str {
        match self {
            Part::Micro => "micro",
            Part::Skew => "skew",
            Part::Flows => "flows",
            Part::Check => "check",
            Part::Stop => "stop",
            Part::Ours => "ours",
            Part::Host => "host",
            Part::Nccl => "nccl",
            Part::Versus => "versus",
            Part::Variables => "variables",
            Part::Green => "green",
        }
    }
}

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which parts; empty: those of a quick or a full run.
    pub parts: Vec<Part>,
    /// More sizes, several grids, every choice of NCCL, eager launches too.
    pub full: bool,
    /// Machine id of the rows.
    pub machine: String,
    /// Numbers of ranks; empty: the GPUs there are, or 2, 4 and 8 on one GPU.
    pub ranks: Vec<u32>,
    /// Message sizes; empty: those of a quick or a full run.
    pub sizes: Vec<u64>,
    /// Element type of the measurements.
    pub element: Element,
    /// Calls of the check's long chains at 42 B, 43,008 B and 1 MiB.
    pub soak_calls: u64,
    /// Calls of its chains elsewhere.
    pub calls: u64,
    /// Names its random inputs.
    pub seed: u64,
    /// How long a checked call may wait.
    pub timeout_ms: u64,
    /// Channels that NCCL is made to use one after the other in a full run.
    pub channels: Vec<u32>,
    /// Of NCCL its own choice alone.
    pub own_choice_only: bool,
    /// When to begin nothing more: what is left out then is a note.
    pub seconds_max: Option<u64>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            parts: Vec::new(),
            full: false,
            machine: "this-machine".to_owned(),
            ranks: Vec::new(),
            sizes: Vec::new(),
            element: Element::Bf16,
            soak_calls: 96,
            calls: 48,
            seed: 1,
            timeout_ms: TIMEOUT_MS,
            channels: vec![1, 4],
            own_choice_only: false,
            seconds_max: None,
        }
    }
}

/// A rank that stopped, and what was said of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Stopped {
    /// Ranks of the group.
    pub ranks: u32,
    /// From the request to the report, the worker's start included.
    pub seconds: f64,
    /// Who waited for whom.
    pub report: String,
}

/// What was measured.
#[derive(Clone, Debug, Default)]
pub struct Calibration {
    /// The machine, when it could be looked at.
    pub detected: Option<Detected>,
    /// Latencies.
    pub observations: Vec<Observation>,
    /// Rates.
    pub flows: Vec<Flow>,
    /// Micro-benchmarks.
    pub micro: Vec<Micro>,
    /// What NCCL said it chose.
    pub choices: Vec<Choice>,
    /// Kernels against the reference.
    pub checks: Vec<Check>,
    /// The rank that was made to stop.
    pub stopped: Option<Stopped>,
    /// Seconds of each part that ran.
    pub seconds: Vec<(Part, f64)>,
    /// Parts that failed, with their faults, and what was left out.
    pub notes: Vec<String>,
    /// Parts that gave no row at all.
    pub failed: Vec<Part>,
}

/// What a listener hears while a machine is measured.
pub enum Event<'a> {
    /// A part begins: its place, how many there are, what it does.
    Begins(usize, usize, &'a str),
    /// A result came: everything so far.
    Grew(&'a Calibration),
    /// A part ended, or the machine was looked at: everything so far, e.g. to be written.
    Ended(&'a Calibration),
}

impl Calibration {
    /// Keeps one answer.
    pub fn put(&mut self, answer: Answer) {
        match answer {
            Answer::Detected(machine) => self.detected = Some(*machine),
            Answer::Micro(row) => self.micro.push(row),
            Answer::Flow(row) => self.flows.push(row),
            Answer::Observation(row) => self.observations.push(row),
            Answer::Choice(choice) => self.choices.push(choice),
            Answer::Check(check) => self.checks.push(check),
            // One note for all sizes.
            Answer::Note(text) if self.notes.contains(&text) => {}
            Answer::Note(text) => self.notes.push(text),
            Answer::Pass(_) | Answer::Progress(_) | Answer::Done | Answer::Fault { .. } => {}
        }
    }

    /// The most ranks of any row; 1 without one.
    pub fn ranks_most(&self) -> u32 {
        let measured = self.observations.iter().map(|o| o.ranks);
        measured.chain(self.checks.iter().map(|c| c.ranks)).max().unwrap_or(1)
    }

    /// The fault of a run that measured nothing that was asked for.
    ///
    /// # Errors
    /// `gpu-worker` with the notes.
    pub fn answered(&self) -> Result<()> {
        if self.failed.is_empty() || self.failed.len() < self.seconds.len() {
            return Ok(());
        }
        let text = self.notes.first().cloned().unwrap_or_else(|| "nothing was measured".to_owned());
        Err(Fault::new("gpu-worker", text).help(self.notes[1.min(self.notes.len())..].join("; ")))
    }
}
