//! The pieces of every batch and shape, and every collective's time under
//! every strategy.

use std::collections::BTreeMap;

use rayon::prelude::*;

use crate::case::Case;
use crate::case::LaunchMode;
use crate::case::Question;
use crate::case::groups::Message;
use crate::case::pieces::Piece;
use crate::case::pieces::Pieces;
use crate::case::pieces::collective_time;
use crate::case::pieces::pieces;
use crate::error::Result;
use crate::model::Phase;
use crate::model::Workload;
use crate::plan::Build;
use crate::plan::Drafting;
use crate::plan::Partition;
use crate::plan::Plan;
use crate::strategy::Context;
use crate::strategy::Effort;
use crate::strategy::Searches;
use crate::strategy::Strategy;
use crate::units::Time;

use super::Drafter;
use super::Request;
use super::Times;
use super::acceptance::Shape;

/// A plain step or a cycle at one batch, split into pieces.
pub struct Stage {
    /// Sequences.
    pub batch: u64,
    /// None for the plain step.
    pub shape: Option<Shape>,
    /// Bytes of the pass's all-reduces.
    pub message_bytes: u64,
    /// Where a norm is a kernel of its own.
    pub apart: Pieces,
    /// Where the all-reduce does the norm.
    pub fused: Pieces,
}

/// What every collective takes under one strategy.
pub struct Table {
    /// Which.
    pub strategy: &'static Strategy,
    /// By kind, bytes and stage.
    pub known: BTreeMap<Message, Time>,
}

/// Plain steps and cycles of all batches and shapes, in order.
///
/// # Errors
/// Bad workloads, splits that do not divide, models without the draft's layer.
pub fn stages(request: &Request<'_>) -> Result<Vec<Stage>> {
    let mut wanted: Vec<(u64, Option<Shape>)> = Vec::new();
    for &batch in &request.batches {
        wanted.push((batch, None));
        wanted.extend(request.shapes.iter().map(|shape| (batch, Some(*shape))));
    }
    wanted.into_par_iter().map(|(batch, shape)| stage(request, batch, shape)).collect()
}

fn stage(request: &Request<'_>, batch: u64, shape: Option<Shape>) -> Result<Stage> {
    let mut question = request.case.question();
    question.workload.batch = batch;
    stage_of(&question, &request.drafter, shape, &context(request.case, &Searches::default()))
}

/// The plain step of a question, or a cycle in place of its pass.
///
/// # Errors
/// As [`stages`].
pub fn stage_of(question: &Question<'_>, drafter: &Drafter, shape: Option<Shape>, context: &Context<'_>) -> Result<Stage> {
    let (question, plan) = cycle_of(question, drafter, shape)?;
    let (workload, model) = (question.workload, question.model);
    Ok(Stage {
        batch: workload.batch,
        shape,
        message_bytes: workload.rows() * model.hidden * crate::model::ACTIVATION_BYTES,
        apart: pieces(&question, &plan, context, false)?,
        fused: pieces(&question, &plan, context, true)?,
    })
}

/// The question with the pass of a plain step or of a cycle, and its plan, draft steps included.
///
/// # Errors
/// As [`stages`].
pub fn cycle_of<'a>(question: &Question<'a>, drafter: &Drafter, shape: Option<Shape>) -> Result<(Question<'a>, Plan)> {
    let tokens = shape.map_or(1, |shape| shape.verified);
    let phase = if tokens == 1 { Phase::Decode } else { Phase::Verify };
    let workload = Workload { phase, tokens, ..question.workload };
    workload.check()?;
    let drafting = match (drafter, shape) {
        (Drafter::Model(draft), Some(shape)) => {
            Some(Drafting { draft: draft.clone(), steps: shape.steps as u32, width: shape.width as u32 })
        }
        _ => None,
    };
    let build = Build { model: question.model, workload: &workload, partition: question.partition, drafting: drafting.as_ref() };
    Ok((Question { workload, ..*question }, build.plan()?))
}

/// The plain step of a batch.
pub fn plain_of(stages: &[Stage], batch: u64) -> Option<&Stage> {
    stages.iter().find(|stage| stage.batch == batch && stage.shape.is_none())
}

pub(super) fn context<'a>(case: &'a Case, searches: &Searches) -> Context<'a> {
    let mut context = Context::new(&case.machine, case.partition.ranks() as usize);
    context.environment.clone_from(&case.environment);
    context.searches = searches.clone();
    context.row_bytes = case.question().row_bytes();
    context
}

/// Strategies that cannot run, with the reason.
pub type Refused = Vec<(&'static str, String)>;

/// Times of all collectives under all strategies that can run.
///
/// # Errors
/// What lowering and pricing can meet.
pub fn tables(request: &Request<'_>, stages: &[Stage]) -> Result<(Vec<Table>, Refused)> {
    let mut collectives: Vec<Message> =
        stages.iter().flat_map(|stage| pieces_of(&stage.apart)).flat_map(|piece| piece.collectives.keys().copied()).collect();
    collectives.sort_unstable();
    collectives.dedup();
    let case = request.case;
    let searches = Searches::default();
    let each = |&strategy: &&'static Strategy| -> Result<std::result::Result<Table, (&'static str, String)>> {
        let context = context(case, &searches);
        if let Some(reason) = strategy.refusal(&context) {
            return Ok(Err((strategy.id, reason)));
        }
        if (strategy.partition)(case.partition.tp) != Partition::tensor(case.partition.tp) {
            return Ok(Err((
                strategy.id,
                "it splits the model or the batch in another way, which the sums here do not hold; lanecast rank simulates it".to_owned(),
            )));
        }
        let mut known = BTreeMap::new();
        for &message in &collectives {
            known.insert(message, collective_time(&context, strategy, message.logical, message.bytes)?);
        }
        Ok(Ok(Table { strategy, known }))
    };
    let all: Vec<_> = wanted(request).par_iter().map(each).collect::<Result<_>>()?;
    let (mut tables, mut refused) = (Vec::new(), Vec::new());
    for outcome in all {
        match outcome {
            Ok(table) => tables.push(table),
            Err(reason) => refused.push(reason),
        }
    }
    Ok((tables, refused))
}

/// The strategies asked for and the baseline; bounds that nobody can run are left out.
fn wanted(request: &Request<'_>) -> Vec<&'static Strategy> {
    let mut wanted: Vec<&'static Strategy> = request.strategies.iter().copied().filter(|s| s.effort != Effort::None).collect();
    if !wanted.iter().any(|strategy| strategy.id == request.baseline.id) {
        wanted.push(request.baseline);
    }
    wanted
}

fn pieces_of(pieces: &Pieces) -> [&Piece; 3] {
    [&pieces.pass, &pieces.first_draft, &pieces.later_drafts]
}

impl Table {
    /// The stage under this strategy alone.
    pub fn times(&self, request: &Request<'_>, stage: &Stage) -> Times {
        let pieces = if self.strategy.fuses_norm { &stage.fused } else { &stage.apart };
        times(request, stage, pieces, |message| self.time(message))
    }

    pub(super) fn time(&self, message: Message) -> Time {
        self.known.get(&message).copied().unwrap_or_default()
    }
}

/// A stage when `time` says what a collective takes.
pub(super) fn times(request: &Request<'_>, stage: &Stage, pieces: &Pieces, time: impl Fn(Message) -> Time) -> Times {
    let [pass, first, later] = pieces_of(pieces).map(|piece| piece.total(&time));
    let eager = stage.shape.is_some() && request.verify_launch == LaunchMode::Eager;
    let issue = request.case.machine.gpu_kind(0).map_or(Time::ZERO, |kind| Time::from_ns(kind.launch.framework_ns.value));
    let pass = if eager { pieces.pass.launched(pass, issue) } else { pass };
    Times { pass_ms: pass.ms(), draft_ms: (first + later).ms() }
}
