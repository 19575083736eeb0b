//! Does speculative decoding pay here, with how many drafts, under which
//! strategy, at which batch?
//!
//! A cycle is a verify pass over the root and the drafts, the draft's steps and
//! the host's time between them; it yields E tokens a sequence
//! ([`acceptance`]). Everything is added up from pieces ([`crate::case::pieces`]):
//! kernels of the pass and of the draft steps, and each distinct collective
//! simulated once under each strategy ([`grid`]). [`policy`] chooses a strategy
//! by the size of the message.

pub mod acceptance;
pub mod grid;
pub mod policy;

use crate::case::Case;
use crate::case::LaunchMode;
use crate::case::SpeculationConstants;
use crate::error::Fault;
use crate::error::Result;
use crate::model::Draft;
use crate::strategy::Strategy;

use acceptance::Acceptance;
use acceptance::ByBatch;
use acceptance::Shape;

/// Who drafts.
#[derive(Clone, Debug, PartialEq)]
pub enum Drafter {
    /// Nobody: every cycle is a verify pass of the root alone.
    None,
    /// The host looks up the prompt for a continuation.
    NGram,
    /// A draft model on the GPUs.
    Model(Draft),
}

/// What is asked.
pub struct Request<'a> {
    /// Machine, model, context; tokens and batch are replaced.
    pub case: &'a Case,
    /// Who drafts.
    pub drafter: Drafter,
    /// The shape asked about.
    pub asked: Shape,
    /// Shapes to compare, the asked one among them.
    pub shapes: Vec<Shape>,
    /// Batches to compare; the first is the one asked about.
    pub batches: Vec<u64>,
    /// Acceptance by batch.
    pub acceptance: ByBatch,
    /// How verify passes are launched; plain steps and drafts are in a graph.
    pub verify_launch: LaunchMode,
    /// Strategies to compare.
    pub strategies: Vec<&'static Strategy>,
    /// The strategy that is in use.
    pub baseline: &'static Strategy,
}

/// One shape at one batch under one strategy.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Sequences.
    pub batch: u64,
    /// What is drafted and verified.
    pub shape: Shape,
    /// Strategy id, or `policy` for the best strategy of each message size.
    pub strategy: &'static str,
    /// Bytes of the verify pass's all-reduces.
    pub message_bytes: u64,
    /// A plain step under the same strategy.
    pub plain_ms: f64,
    /// The verify pass.
    pub verify_ms: f64,
    /// All draft steps.
    pub draft_ms: f64,
    /// Host time of a cycle that GPUs wait for.
    pub host_ms: f64,
    /// Tokens of a sequence that a cycle yields.
    pub expected: f64,
    /// The rate of the first position at which speculation breaks even; None where even certain acceptance does not.
    pub break_even_rate: Option<f64>,
}

impl Cell {
    /// One cycle.
    pub fn cycle_ms(&self) -> f64 {
        self.verify_ms + self.draft_ms + self.host_ms
    }

    /// Tokens per second of all sequences.
    pub fn tokens_per_s(&self) -> f64 {
        self.batch as f64 * self.expected * 1e3 / self.cycle_ms().max(1e-9)
    }

    /// Tokens per second of plain decoding.
    pub fn plain_tokens_per_s(&self) -> f64 {
        self.batch as f64 * 1e3 / self.plain_ms.max(1e-9)
    }

    /// Tokens per second against plain decoding under the same strategy, percent.
    pub fn gain_pct(&self) -> f64 {
        (self.tokens_per_s() / self.plain_tokens_per_s() - 1.0) * 100.0
    }

    /// The verify pass at which speculation breaks even: E × plain − draft − host.
    pub fn break_even_verify_ms(&self) -> f64 {
        self.expected * self.plain_ms - self.draft_ms - self.host_ms
    }
}

/// All cells, and what follows from them.
pub struct Answer {
    /// By batch, shape, strategy (`policy` last).
    pub cells: Vec<Cell>,
    /// Strategies that cannot run, with the reason.
    pub refused: Vec<(&'static str, String)>,
    /// The best strategy of each message size that occurs.
    pub policy: Vec<policy::Step>,
}

impl Answer {
    /// The cells of a batch and strategy, by shape.
    pub fn of<'a>(&'a self, batch: u64, strategy: &'a str) -> impl Iterator<Item = &'a Cell> {
        self.cells.iter().filter(move |cell| cell.batch == batch && cell.strategy == strategy)
    }

    /// The shape with most tokens per second; the first of equals. None where plain decoding is faster than all.
    pub fn best_shape<'a>(&'a self, batch: u64, strategy: &'a str) -> Option<&'a Cell> {
        let cells = self.of(batch, strategy).filter(|cell| cell.gain_pct() > 0.0);
        cells.fold(None, |best: Option<&Cell>, cell| match best {
            Some(known) if known.tokens_per_s() >= cell.tokens_per_s() => best,
            _ => Some(cell),
        })
    }

    /// The strategy with most tokens per second for a batch and shape, `policy` aside.
    pub fn best_strategy(&self, batch: u64, shape: Shape) -> Option<&Cell> {
        let cells = self.cells.iter().filter(|cell| cell.batch == batch && cell.shape == shape && cell.strategy != policy::NAME);
        cells.fold(None, |best: Option<&Cell>, cell| match best {
            Some(known) if known.tokens_per_s() >= cell.tokens_per_s() => best,
            _ => Some(cell),
        })
    }
}

/// Compares.
///
/// # Errors
/// `speculate-nothing` without shapes, batches or a strategy that can run; bad
/// workloads; a model without the layer that is to draft.
pub fn speculate(request: &Request<'_>) -> Result<Answer> {
    if request.shapes.is_empty() || request.batches.is_empty() {
        return Err(
            Fault::new("speculate-nothing", "no draft length or no batch to compare").help("for example --drafts 4 --batches 1,8,32")
        );
    }
    let stages = grid::stages(request)?;
    let (tables, refused) = grid::tables(request, &stages)?;
    if tables.is_empty() {
        return Err(Fault::new("speculate-nothing", "none of the strategies can run here").help("`lanecast strategies` says why"));
    }
    let policy = policy::by_size(&stages, &tables);
    let mut cells = Vec::new();
    for stage in &stages {
        let plain = grid::plain_of(&stages, stage.batch);
        for table in &tables {
            let times = |stage: &grid::Stage| table.times(request, stage);
            cells.extend(cell(request, stage, table.strategy.id, plain.map(times), times(stage)));
        }
        let times = |stage: &grid::Stage| policy::times(request, stage, &tables, &policy);
        cells.extend(cell(request, stage, policy::NAME, plain.map(times), times(stage)));
    }
    Ok(Answer { cells, refused, policy })
}

/// Milliseconds of a plain step or verify pass, and of the draft steps behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// The target's pass.
    pub pass_ms: f64,
    /// The draft steps.
    pub draft_ms: f64,
}

/// What a cycle has beside its kernels: host time that GPUs wait for, ms, and the tokens of a sequence that it
/// yields. A plain step waits for nothing and yields one.
pub fn beside(constants: &SpeculationConstants, drafter: &Drafter, acceptance: &Acceptance, shape: Option<Shape>) -> (f64, f64) {
    let Some(shape) = shape else { return (0.0, 1.0) };
    let lookup_us = if *drafter == Drafter::NGram { constants.ngram_lookup_us.value } else { 0.0 };
    let host_ms = (constants.cycle_host_us.value + lookup_us) / 1e3;
    (host_ms, if *drafter == Drafter::None { 1.0 } else { acceptance.tokens(shape) })
}

fn cell(request: &Request<'_>, stage: &grid::Stage, strategy: &'static str, plain: Option<Times>, times: Times) -> Option<Cell> {
    let shape = stage.shape?;
    let plain_ms = plain?.pass_ms;
    let acceptance: &Acceptance = request.acceptance.of(stage.batch);
    let (host_ms, expected) = beside(&request.case.speculation, &request.drafter, acceptance, Some(shape));
    let cycle_ms = times.pass_ms + times.draft_ms + host_ms;
    Some(Cell {
        batch: stage.batch,
        shape,
        strategy,
        message_bytes: stage.message_bytes,
        plain_ms,
        verify_ms: times.pass_ms,
        draft_ms: times.draft_ms,
        host_ms,
        expected,
        break_even_rate: acceptance.rate_for(cycle_ms / plain_ms.max(1e-9), shape),
    })
}
