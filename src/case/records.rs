//! A simulated pass as a trace.

use crate::error::Fault;
use crate::error::Result;
use crate::simulate::Operation;
use crate::simulate::Part;
use crate::trace::links;
use crate::trace::record::Header;
use crate::trace::record::Kind;
use crate::trace::record::Record;
use crate::trace::record::Writer;
use crate::units::Time;

use super::answer::Answer;
use super::assemble::Label;
use super::loads::link_loads;
use super::question::LaunchMode;
use super::question::Question;

/// The trace CSV of an answer that was simulated with records. Its `#` lines
/// also hold the parts of the critical path (`part.wire_ns`) and the links that
/// collectives cross (see [`crate::trace::links`]).
///
/// # Errors
/// Only if memory cannot be written.
pub fn trace(answer: &Answer, question: &Question<'_>, strategy: &str, plan_hash: u64) -> Result<String> {
    let mut header = Header::from_source("simulated");
    let launch = if question.launch == LaunchMode::Graph { "graph" } else { "eager" };
    let entries = [
        ("strategy", strategy.to_owned()),
        ("plan", format!("{plan_hash:016x}")),
        ("machine", question.machine.id.clone()),
        ("model", question.model.id.clone()),
        ("ranks", answer.assembled.program.ranks.to_string()),
        ("tokens", question.workload.tokens.to_string()),
        ("launch", launch.to_owned()),
        ("program", format!("lanecast {}", env!("CARGO_PKG_VERSION"))),
    ];
    for (key, value) in entries {
        header.set(key, &value);
    }
    let end = answer.outcome.critical();
    for part in Part::ALL {
        let ps = end.parts[part as usize];
        header.set(&format!("part.{}_ns", part.name()), &format!("{}.{:03}", ps / 1000, ps % 1000));
    }
    links::write(&mut header, &link_loads(&answer.assembled));
    let io = |error: std::io::Error| Fault::new("io", format!("cannot write the trace: {error}"));
    let mut writer = Writer::create(Vec::new(), &header).map_err(io)?;
    for record in &answer.outcome.records {
        let assembled = &answer.assembled;
        let run = assembled.program.sequence[record.entry as usize];
        let label = assembled.labels[run.template as usize][record.operation as usize];
        let id = assembled.id(record);
        let communication = matches!(label.kind, "all-reduce" | "other communication");
        writer
            .write(&Record {
                pass: 0,
                rank: record.rank,
                op: id.to_string(),
                name: id.name.to_owned(),
                kind: if communication { Kind::Communication } else { Kind::Compute },
                layer: id.place.layer(),
                start: Time(record.start),
                end: Time(record.end),
                bytes: label.bytes,
                detail: detail(answer, record, &label),
            })
            .map_err(io)?;
    }
    let bytes = writer.finish().map_err(io)?;
    String::from_utf8(bytes).map_err(|_| Fault::new("io", "the trace is not UTF-8"))
}

/// `key=value` pairs: the kind, which half of a batch, and the kernels' own time
/// (`busy_ns`) where several kernels are one operation with gaps between them.
fn detail(answer: &Answer, record: &crate::simulate::Record, label: &Label) -> String {
    let mut text = format!("kind={}", label.kind.replace(' ', "_"));
    if let Some(half) = label.half {
        text.push_str(&format!(";half={}", half as u8 + 1));
    }
    let program = &answer.assembled.program;
    let run = program.sequence[record.entry as usize];
    if let Operation::Compute { ps, .. } = &program.templates[run.template as usize].operations[record.operation as usize] {
        let busy = if ps.len() == 1 { ps[0] } else { ps[record.rank as usize] };
        if busy < record.end - record.start {
            text.push_str(&format!(";busy_ns={}.{:03}", busy / 1000, busy % 1000));
        }
    }
    text
}
