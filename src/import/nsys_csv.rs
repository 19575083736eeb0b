//! Nsight Systems: `nsys stats -r cuda_gpu_trace -f csv`, streamed.

use std::io::BufRead;

use crate::error::Fault;
use crate::error::Result;
use crate::import::decimal;
use crate::import::events::Events;
use crate::import::events::ImportedTrace;
use crate::import::formats::Format;
use crate::import::formats::Looks;
use crate::import::formats::Read;
use crate::import::outcome::Outcome;
use crate::trace::line;
use crate::trace::line::Lines;
use crate::trace::record::Header;
use crate::trace::record::Kind;

/// nsys `cuda_gpu_trace`.
pub(super) const FORMAT: Format =
    Format { kind: "nsys-trace", looks: Looks::Text(|text| text.lines().any(is_header)), read: Read::Stream(read) };

const CODE: &str = "import-nsys";

/// Lines before the header at most.
const PREAMBLE_MAX: usize = 10_000;

/// Whether a line is the header.
pub fn is_header(line: &str) -> bool {
    line.starts_with("Start (") && line.contains("Duration (") && line.contains("Name")
}

/// Columns that are used, by place.
#[derive(Default)]
struct Columns {
    start: usize,
    duration: usize,
    name: usize,
    launch: Option<usize>,
    device: Option<usize>,
    stream: Option<usize>,
    bytes: Option<usize>,
    /// Powers of ten from the file's unit to nanoseconds.
    start_power: u32,
    duration_power: u32,
    count: usize,
}

/// Reads a trace of any size.
///
/// # Errors
/// `import-nsys` with the line; those of reading lines.
pub fn read(name: &str, input: impl BufRead) -> Result<Outcome> {
    let mut lines = Lines::new(name, input);
    let columns = loop {
        let number = lines.number();
        match lines.read()? {
            Some(line) if is_header(line) => break columns_of(line),
            Some(_) if number < PREAMBLE_MAX => {}
            _ => {
                return Err(Fault::new(CODE, format!("{name} has no header line `Start (ns),Duration (ns),…`"))
                    .help("run `nsys stats -r cuda_gpu_trace -f csv report.nsys-rep`"));
            }
        }
    };
    let Some(columns) = columns else {
        return Err(
            Fault::new(CODE, format!("{name}: line {}: the header's unit of time is not known", lines.number())).help("expected (ns)")
        );
    };
    let mut outcome = Outcome::default();
    let mut events = Events::default();
    let mut fields = Vec::new();
    while let Some(line) = lines.read()? {
        if line.trim().is_empty() {
            continue;
        }
        if !line.starts_with(|c: char| c.is_ascii_digit()) {
            outcome.skipped(format!("{name}: what follows the trace of GPU events"));
            break;
        }
        if !line::ranges(line, &mut fields) || fields.len() != columns.count || take(line, &fields, &columns, &mut events)?.is_none() {
            let number = lines.number();
            return Err(Fault::new(
                CODE,
                format!("{name}: line {number} is no row of {} columns with a start and a duration", columns.count),
            )
            .help("the file may be cut off: export it again"));
        }
    }
    finish(name, events, outcome)
}

fn columns_of(header: &str) -> Option<Columns> {
    let names: Vec<&str> = header.split(',').map(str::trim).collect();
    if names.iter().enumerate().any(|(at, name)| names[..at].contains(name)) {
        return None;
    }
    let place = |wanted: &[&str]| names.iter().position(|n| wanted.iter().any(|w| n.starts_with(w)));
    let power = |name: &str| match name.split(['(', ')']).nth(1).map(|u| u.trim().trim_end_matches("ec")) {
        Some("ns") => Some(0),
        Some("us") => Some(3),
        Some("ms") => Some(6),
        Some("s") => Some(9),
        _ => None,
    };
    let (start, duration) = (place(&["Start ("])?, place(&["Duration ("])?);
    Some(Columns {
        start,
        duration,
        name: place(&["Name"])?,
        launch: place(&["CorrId", "CorrID"]),
        device: place(&["Device"]),
        stream: place(&["Strm", "Stream"]),
        bytes: place(&["Bytes ("]),
        start_power: power(names[start])?,
        duration_power: power(names[duration])?,
        count: names.len(),
    })
}

/// `None`: start or duration is no number.
fn take(line: &str, fields: &[std::ops::Range<usize>], columns: &Columns, events: &mut Events) -> Result<Option<()>> {
    let text = |at: usize| line.get(fields[at].clone()).unwrap_or("");
    let start = decimal::scaled(text(columns.start), columns.start_power);
    let duration = decimal::scaled(text(columns.duration), columns.duration_power).and_then(|d| u64::try_from(d).ok());
    let (Some(start), Some(duration)) = (start, duration) else { return Ok(None) };
    let number = |at: Option<usize>| at.and_then(|a| text(a).trim().parse::<u32>().ok()).unwrap_or(0);
    let name = text(columns.name);
    let kind = kind_of(name);
    let bytes = match kind {
        // Megabytes with three decimals.
        Some(Kind::Copy | Kind::Memset) => columns.bytes.and_then(|a| decimal::scaled(text(a), 6)).and_then(|b| u64::try_from(b).ok()),
        _ => None,
    };
    let device = columns.device.map_or(0, |a| device_of(text(a)));
    let class = events.class((device, number(columns.stream)), name, kind, bytes.unwrap_or(0));
    events.push(class, start, duration, number(columns.launch))?;
    Ok(Some(()))
}

/// Nsight puts what is no kernel in brackets.
pub fn kind_of(name: &str) -> Option<Kind> {
    let lower = |fragment: &str| name.len() < 200 && name.to_ascii_lowercase().contains(fragment);
    if name.starts_with("[CUDA memcpy") || name.starts_with("[CUDA Unified") {
        Some(Kind::Copy)
    } else if name.starts_with("[CUDA memset") {
        Some(Kind::Memset)
    } else if (name.starts_with('[') || name.starts_with("CUDA")) && lower("graph") {
        Some(Kind::Graph)
    } else {
        None
    }
}

/// `NVIDIA H200 (3)` is device 3.
fn device_of(text: &str) -> u32 {
    let number = text.rsplit(['(', ' ']).next().unwrap_or("").trim_end_matches(')');
    number.parse().ok().filter(|d| *d < 65536).unwrap_or(0)
}

/// Says what was found; shared with the SQLite reader.
///
/// # Errors
/// `import-nsys` where there is no event.
pub fn finish(name: &str, events: Events, mut outcome: Outcome) -> Result<Outcome> {
    if events.is_empty() {
        return Err(Fault::new(CODE, format!("{name} holds no GPU event")).help("record with `nsys profile -t cuda`"));
    }
    let graphs = events.count(|c| c.kind == Kind::Graph);
    let communication = events.count(|c| c.kind == Kind::Communication);
    let (devices, replays) = (events.ranks().len(), events.graph_replays());
    outcome
        .understood(format!("{name}: {} GPU events on {devices} devices, {communication} of communication (Nsight Systems)", events.len()));
    if graphs > 0 {
        outcome.warn(format!(
            "{name}: {graphs} graph replays are one block each, their kernels are hidden: record with `nsys profile --cuda-graph-trace=node` (the default is graph)"
        ));
    } else if replays > 0 {
        outcome.understood(format!("{name}: {replays} graph replays recorded node by node"));
    }
    if communication > 0 {
        outcome.warn(format!("{name}: a communication kernel's time includes waiting for later ranks"));
    }
    let mut header = Header::from_source("imported");
    header.set("program", "nsys");
    header.set("timing", "CUPTI, per kernel");
    outcome.trace = Some(ImportedTrace { header, events });
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Time;

    const TEXT: &str = "NOTICE: Existing SQLite export found: x.sqlite\nProcessing [x.sqlite] with [cuda_gpu_trace.py]... \n\
        Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n\
        1000,2500,7,1,1,1,256,1,1,32,0.000,0.000,,,,,NVIDIA H200 (1),1,,7,\"void gemm<a, b>(int)\"\n\
        4000,100,8,,,,,,,,,,0.004,40.000,Pageable,Device,NVIDIA H200 (0),1,,7,[CUDA memcpy Host-to-Device]\n\
        5000,29001,9,1,1,1,96,1,1,96,0.000,0.000,,,,,NVIDIA H200 (0),1,,9,ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)\n";

    #[test]
    fn rows_become_records() {
        let outcome = read("x.csv", TEXT.as_bytes()).expect("reads");
        let mut trace = outcome.trace.expect("a trace");
        trace.finish();
        let records = trace.records(None).expect("a short span");
        assert_eq!((records[0].name.as_str(), records[0].rank, records[0].end), ("void gemm<a, b>(int)", 1, Time(2_500_000)));
        assert_eq!((records[1].kind, records[1].bytes), (Kind::Copy, 4000));
        assert_eq!((records[2].op.as_str(), records[2].start), ("allreduce.00000.r0", Time(4_000_000)));
    }

    #[test]
    fn graph_capture_is_explained() {
        let text = "Start (ns),Duration (ns),CorrId,Device,Strm,Name\n1000,9000000,7,X (0),7,[CUDA Graph 12]\n";
        let outcome = read("x.csv", text.as_bytes()).expect("reads");
        assert!(outcome.warnings[0].contains("--cuda-graph-trace=node"));
        let text =
            (0..20).fold("Start (us),Duration (us),CorrId,Device,Strm,Name\n".to_owned(), |t, i| t + &format!("{i}.5,0.25,7,X (0),7,k\n"));
        let outcome = read("x.csv", text.as_bytes()).expect("reads");
        assert!(outcome.understood[1].contains("1 graph replays"));
    }

    #[test]
    fn broken_files_are_refused() {
        let header = "Start (ns),Duration (ns),Name\n";
        for text in [
            "",
            "a,b\n",
            header,
            &format!("{header}1,2\n"),
            &format!("{header}1,x,k\n"),
            &format!("{header}1,-2,k\n"),
            "Start (h),Duration (h),Name\n1,2,k\n",
        ] {
            assert_eq!(read("x.csv", text.as_bytes()).map(|_| ()).expect_err(text).code, CODE);
        }
    }
}
