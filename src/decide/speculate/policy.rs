//! Which strategy for which size of message.

use crate::case::groups::Message;
use crate::strategy::Logical;
use crate::strategy::Strategy;
use crate::units::Time;

use super::Request;
use super::Times;
use super::grid;
use super::grid::Stage;
use super::grid::Table;

/// The name under which a policy stands among strategies.
pub const NAME: &str = "policy";

/// A switch that saves less than this share of an all-reduce is not made.
const WORTH: f64 = 0.03;

/// One row of a policy: from the row before up to `bytes`.
#[derive(Clone, Copy)]
pub struct Step {
    /// Largest message that occurs in this row.
    pub bytes: u64,
    /// The strategy.
    pub strategy: &'static Strategy,
    /// One all-reduce of that size under it, a saved norm taken off.
    pub time: Time,
    /// The next best strategy at that size and its time.
    pub next: Option<(&'static Strategy, Time)>,
}

/// The best strategy of each message size that occurs, neighbours joined.
pub fn by_size(stages: &[Stage], tables: &[Table]) -> Vec<Step> {
    let mut sizes: Vec<(u64, Time)> = stages.iter().map(|stage| (stage.message_bytes, norm_time(stage))).collect();
    sizes.sort_unstable();
    sizes.dedup_by_key(|size| size.0);
    let mut steps: Vec<Step> = Vec::new();
    for (bytes, norm) in sizes {
        let mut order: Vec<(Time, &Table)> = tables.iter().map(|table| (effective(table, bytes, norm), table)).collect();
        order.sort_by_key(|(time, table)| (*time, table.strategy.id));
        let Some(&(mut time, mut best)) = order.first() else { continue };
        // Stay with the strategy of smaller messages unless leaving it pays.
        let before = steps.last().map(|step| step.strategy.id);
        let kept = order.iter().find(|(_, table)| Some(table.strategy.id) == before);
        if let Some(&(kept, table)) = kept.filter(|(kept, _)| kept.ns() <= time.ns() * (1.0 + WORTH)) {
            (time, best) = (kept, table);
        }
        let next = order.iter().find(|(_, table)| table.strategy.id != best.strategy.id).map(|(time, table)| (table.strategy, *time));
        let step = Step { bytes, strategy: best.strategy, time, next };
        match steps.last_mut() {
            Some(last) if last.strategy.id == best.strategy.id => *last = step,
            _ => steps.push(step),
        }
    }
    steps
}

/// An all-reduce, less the norm where the kernel does it.
fn effective(table: &Table, bytes: u64, norm: Time) -> Time {
    let time = table.time(Message { logical: Logical::AllReduce, bytes, stage: 0 });
    if table.strategy.fuses_norm { time.saturating_sub(norm) } else { time }
}

/// What a norm after an all-reduce takes, its gap included.
fn norm_time(stage: &Stage) -> Time {
    let saved = stage.apart.pass.kernels.saturating_sub(stage.fused.pass.kernels);
    Time(saved.0 / stage.apart.pass.layer_allreduces.max(1))
}

/// A stage under a policy: every all-reduce by its size, every other
/// collective under the fastest strategy of the policy's rows.
pub(super) fn times(request: &Request<'_>, stage: &Stage, tables: &[Table], policy: &[Step]) -> Times {
    let of = |id: &str| tables.iter().find(|table| table.strategy.id == id);
    let chosen = |bytes: u64| policy.iter().find(|step| bytes <= step.bytes).or(policy.last()).and_then(|step| of(step.strategy.id));
    let norm = norm_time(stage);
    let time = |message: Message| match message.logical {
        Logical::AllReduce => chosen(message.bytes).map_or(Time::ZERO, |table| effective(table, message.bytes, norm)),
        _ => policy.iter().filter_map(|step| of(step.strategy.id)).map(|table| table.time(message)).min().unwrap_or_default(),
    };
    grid::times(request, stage, &stage.apart, time)
}
