//! A measured pass as a trace: blocks where event nodes saw them, operations
//! inside placed by what chains say of them.

use crate::error::{Fault, Result};
use crate::gpu::run::Measured;
use crate::plan::Action;
use crate::plan::OpId;
use crate::plan::Plan;
use crate::plan::Planned;
use crate::trace::record::Header;
use crate::trace::record::Kind;
use crate::trace::record::Record;
use crate::trace::record::Writer;
use crate::units::Time;

/// How far the sum of chains may be from the total without a warning.
pub const SCALE_OFF: f64 = 0.1;

/// Operations that run on the second stream, beside others.
fn beside(name: &str) -> bool {
    matches!(name, "shared_gate_up_proj" | "shared_act" | "shared_down_proj")
}

/// Microseconds of an operation by itself; 0 where no chain measured it.
fn chain_us(measured: &Measured, planned: &Planned<'_>) -> f64 {
    let same = |c: &&crate::gpu::run::timing::Chain| c.block == planned.block.0 && c.name == planned.id.name;
    measured.chains.iter().find(same).map_or(0.0, |c| c.each_us)
}

/// Microseconds of an operation where it stands in the pass; `None` where only a chain measured it.
fn in_pass_us(measured: &Measured, planned: &Planned<'_>) -> Option<f64> {
    let same = |c: &&crate::gpu::run::timing::Chain| c.block == planned.block.0 && c.name == planned.id.name;
    measured.chains.iter().find(same)?.in_pass_us
}

/// Total over the sum of all operations by themselves (those beside others left
/// out): what the order of operations, gaps and overlaps make of them. `None`
/// without chains.
pub fn scale_alone(measured: &Measured, plan: &Plan) -> Option<f64> {
    let sum: f64 = plan.expand(0).iter().filter(|p| !beside(p.id.name)).map(|p| chain_us(measured, p)).sum();
    (sum > 0.0).then(|| measured.total.0 / sum)
}

/// Total over the sum of all operations as they run in the pass, and by
/// themselves where they were not measured there. `None` without chains.
pub fn scale(measured: &Measured, plan: &Plan) -> Option<f64> {
    if measured.chains.iter().all(|chain| chain.in_pass_us.is_none()) {
        return scale_alone(measured, plan);
    }
    let sum: f64 = plan.expand(0).iter().map(|p| placed_us(measured, p).max(0.0)).sum();
    (sum > 0.0).then(|| measured.total.0 / sum)
}

/// What an operation adds to the pass: where it stands, or by itself where only
/// that is known; what runs beside others then adds nothing. A collective counts
/// by itself: without it ranks would not wait for each other, and what they wait
/// is not its own time.
fn placed_us(measured: &Measured, planned: &Planned<'_>) -> f64 {
    if planned.action.collective().is_some() {
        return chain_us(measured, planned);
    }
    in_pass_us(measured, planned).unwrap_or_else(|| if beside(planned.id.name) { 0.0 } else { chain_us(measured, planned) })
}

/// The trace of the first `ranks` ranks. `kind` names an operation's kind as
/// the simulator does.
///
/// # Errors
/// Only if memory cannot be written.
pub fn trace(measured: &Measured, plan: &Plan, header: &Header, ranks: u32, kind: &dyn Fn(&Action) -> &'static str) -> Result<String> {
    let io = |error: std::io::Error| Fault::new("io", format!("cannot write the trace: {error}"));
    let mut writer = Writer::create(Vec::new(), header).map_err(io)?;
    for rank in 0..plan.partition.ranks().min(ranks) {
        for record in rank_records(measured, plan, rank, kind) {
            writer.write(&record).map_err(io)?;
        }
    }
    let bytes = writer.finish().map_err(io)?;
    String::from_utf8(bytes).map_err(|_| Fault::new("io", "the trace is not UTF-8"))
}

/// Starts of the blocks in microseconds, and the end: of the rank's own event
/// nodes, stretched to the total without instruments; without any, from chains.
fn starts(measured: &Measured, rank: u32, sums: &[f64]) -> Vec<f64> {
    let own = measured.boundaries.iter().find(|b| b.rank == rank);
    let at: Vec<f64> = match own.filter(|b| b.at_us.len() == sums.len() + 1) {
        Some(boundaries) => boundaries.at_us.clone(),
        None => std::iter::once(0.0)
            .chain(sums.iter().scan(0.0, |at, sum| {
                *at += sum;
                Some(*at)
            }))
            .collect(),
    };
    let end = at.last().copied().unwrap_or(0.0);
    let stretch = if end > 0.0 { measured.total.0 / end } else { 1.0 };
    at.iter().map(|us| us * stretch).collect()
}

fn rank_records(measured: &Measured, plan: &Plan, rank: u32, kind: &dyn Fn(&Action) -> &'static str) -> Vec<Record> {
    let planned = plan.expand(rank);
    let mut blocks: Vec<std::ops::Range<usize>> = Vec::new();
    for (index, one) in planned.iter().enumerate() {
        match blocks.last_mut() {
            Some(block) if planned[block.start].id.place == one.id.place => block.end = index + 1,
            _ => blocks.push(index..index + 1),
        }
    }
    let main = |range: &std::ops::Range<usize>| -> f64 {
        planned[range.clone()].iter().filter(|p| !beside(p.id.name)).map(|p| placed_us(measured, p).max(0.0)).sum()
    };
    let sums: Vec<f64> = blocks.iter().map(main).collect();
    let starts = starts(measured, rank, &sums);
    let mut records = Vec::with_capacity(planned.len());
    for (n, block) in blocks.iter().enumerate() {
        let (from, to) = (starts[n], starts[n + 1]);
        let stretch = if sums[n] > 0.0 { (to - from) / sums[n] } else { 0.0 };
        let mut at = from;
        let mut side = from;
        for (position, one) in planned[block.clone()].iter().enumerate() {
            let each = chain_us(measured, one);
            // What runs beside others takes its time there, whatever it adds to the pass.
            let length = stretch * if beside(one.id.name) { each } else { placed_us(measured, one).max(0.0) };
            let begin = if beside(one.id.name) { side } else { at };
            // The block starts where an event saw it; the rest is placed.
            let timing = if position == 0 { "start_measured" } else { "placed" };
            let in_pass = in_pass_us(measured, one).map_or_else(String::new, |us| format!(";in_pass_us={us:.3}"));
            let detail = format!("timing={timing};chain_us={each:.3}{in_pass}");
            records.push(record(one, kind(one.action), (begin, begin + length), detail));
            if beside(one.id.name) {
                side += length;
            } else {
                at += length;
            }
            if one.id.name == "post_attention_norm" {
                side = at;
            }
        }
    }
    records
}

fn record(one: &Planned<'_>, kind: &'static str, span: (f64, f64), detail: String) -> Record {
    let ps = |us: f64| Time((us.max(0.0) * 1e6) as u64);
    let (communicates, bytes) = match one.action {
        Action::Collective(collective) => (true, collective.bytes),
        Action::Compute(op) => (false, op.weight_bytes + op.cache_bytes),
    };
    Record {
        pass: 0,
        rank: one.id.rank,
        op: OpId { ..one.id }.to_string(),
        name: one.id.name.to_owned(),
        kind: if communicates { Kind::Communication } else { Kind::Compute },
        layer: one.id.place.layer(),
        start: ps(span.0),
        end: ps(span.1),
        bytes,
        detail: format!("kind={};{detail}", kind.replace(' ', "_")),
    }
}
