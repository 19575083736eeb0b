//! What drafting costs a case, by the sum that `speculate` forms: the draft's
//! kernels, each of its collectives as long as one alone takes, and the host.

use std::collections::BTreeMap;

use super::setting::DraftName;
use crate::case::Prices;
use crate::case::Question;
use crate::case::groups::Groups;
use crate::case::groups::Message;
use crate::case::pieces::Pieces;
use crate::case::pieces::pieces;
use crate::case::prices::Asked;
use crate::decide::speculate::Drafter;
use crate::decide::speculate::acceptance::Shape;
use crate::decide::speculate::grid::cycle_of;
use crate::error::Fault;
use crate::error::Result;
use crate::model::Draft;
use crate::model::Eagle3;
use crate::model::Model;
use crate::plan::Kind;
use crate::strategy::Context;
use crate::strategy::Logical;
use crate::strategy::Strategy;
use crate::units::Time;

/// Cycles whose kernels a worker remembers.
const KEPT_MAX: usize = 512;

/// Who drafts for a model.
pub fn drafter(name: DraftName, model: &Model) -> Drafter {
    match name {
        DraftName::Ngram => Drafter::NGram,
        DraftName::Mtp => Drafter::Model(Draft::Mtp),
        DraftName::Auto if model.mtp.is_some() => Drafter::Model(Draft::Mtp),
        DraftName::Auto | DraftName::Eagle3 => Drafter::Model(Draft::Eagle3(Eagle3::for_model(model))),
    }
}

/// Kernels of draft steps, from case to case.
#[derive(Default)]
pub struct Cycles {
    known: BTreeMap<(String, bool), Pieces>,
}

impl Cycles {
    /// What the draft's steps of a cycle take; `key` names the machine, the model and the workload.
    ///
    /// # Errors
    /// Models without the layer that is to draft; what lowering and simulating can meet.
    pub fn draft(
        &mut self,
        key: String,
        question: &Question<'_>,
        drafter: &Drafter,
        under: (&Strategy, &Context<'_>),
        prices: &Prices,
    ) -> Result<Time> {
        let (strategy, context) = under;
        if *drafter == Drafter::NGram {
            return Ok(Time::ZERO);
        }
        let key = (key, strategy.fuses_norm);
        if !self.known.contains_key(&key) {
            if self.known.len() >= KEPT_MAX {
                self.known.clear();
            }
            let (cycle, plan) = cycle_of(question, drafter, Some(Shape::chain(question.workload.tokens.saturating_sub(1))))?;
            self.known.insert(key.clone(), pieces(&cycle, &plan, context, strategy.fuses_norm)?);
        }
        let pieces = &self.known[&key];
        let mut fault = None;
        let mut time = |message: Message| {
            alone(question, message, (strategy, context), prices).unwrap_or_else(|met| {
                fault = Some(met);
                Time::ZERO
            })
        };
        let total = pieces.first_draft.total(&mut time) + pieces.later_drafts.total(&mut time);
        fault.map_or(Ok(total), Err)
    }
}

/// What a message takes alone, the gap before its kernel included.
fn alone(question: &Question<'_>, message: Message, (strategy, context): (&Strategy, &Context<'_>), prices: &Prices) -> Result<Time> {
    let asked =
        Asked::of(context, question.partition, question.row_bytes()).with(strategy, kind(message.logical), message.bytes, message.stage);
    let lower = || Groups::new(context, question.partition, question.row_bytes())?.message(strategy, message);
    let priced = prices.of(question.machine, asked, lower)?;
    let gap = question.machine.gpu_kind(0).map_or(Time::ZERO, |kind| Time::from_ns(kind.launch.graph_gap_ns.value));
    let alone = priced.probe.alone().ok_or_else(|| Fault::new("simulation-deadlock", "a collective does not end"))?;
    let launches = if priced.timed.blocks.is_empty() { 0 } else { u64::from(priced.timed.launches) };
    Ok(Time(alone) + gap.times(launches))
}

fn kind(logical: Logical) -> Kind {
    match logical {
        Logical::AllReduce => Kind::AllReduce,
        Logical::AllGather => Kind::AllGather,
        Logical::ReduceScatter => Kind::ReduceScatter,
        Logical::AllToAll => Kind::AllToAll,
        Logical::SendReceive => Kind::SendRecv,
    }
}
