//! Traces of torch.profiler (Kineto's Chrome JSON), streamed.
//!
//! Only GPU events are kept; events of the host are counted. Kernels of a
//! replayed graph share the launch they come from and have none of their own.

use std::io::Read;

use crate::error::Fault;
use crate::error::Result;
use crate::import::decimal;
use crate::import::events::Events;
use crate::import::events::ImportedTrace;
use crate::import::formats;
use crate::import::formats::Format;
use crate::import::formats::Looks;
use crate::import::json::Json;
use crate::import::json::Next;
use crate::import::kernel_name;
use crate::import::outcome::Outcome;
use crate::trace::observation::Collective;
use crate::trace::record::Header;
use crate::trace::record::Kind;

/// torch.profiler.
pub(super) const FORMAT: Format = Format { kind: "kineto", looks: Looks::Json(detect), read: formats::Read::Stream(read) };

/// Times before this are relative to the file's base (it is 1973).
const ABSOLUTE_NS: i64 = 100_000_000_000_000_000;

/// Streams above this are no streams of CUDA.
const STREAM_MAX: i64 = 1 << 31;

/// One event, its buffers used again for the next.
#[derive(Default)]
struct Event {
    phase: String,
    category: String,
    name: String,
    start: String,
    duration: String,
    device: Option<i64>,
    stream: Option<i64>,
    correlation: Option<i64>,
    bytes: Option<i64>,
    in_elements: Option<i64>,
    out_elements: Option<i64>,
    dtype: String,
}

/// What is known of the file beside its events.
#[derive(Default)]
struct Scan {
    events: Events,
    base_ns: Option<i64>,
    rank: Option<u32>,
    first_ns: Option<i64>,
    host_events: u64,
    graph_launches: u64,
    unusable: u64,
    gpu_marks: Vec<(i64, u32)>,
    host_marks: Vec<i64>,
}

/// Whether an object with these keys is one.
fn detect(has: &dyn Fn(&str) -> bool) -> bool {
    has("traceEvents") || has("deviceProperties") && has("schemaVersion") || has("ph") && (has("ts") || has("pid"))
}

/// Reads a trace of any size.
///
/// # Errors
/// `json`; `import-kineto` where there is no event of a GPU.
pub fn read(name: &str, input: impl Read) -> Result<Outcome> {
    let mut json = Json::new(name, input);
    let mut scan = Scan::default();
    let (mut key, mut text) = (String::new(), String::new());
    if json.next_is()? == Next::Array {
        read_events(&mut json, &mut scan)?;
    } else {
        json.enter_object()?;
        while json.next_key(&mut key)? {
            match key.as_str() {
                "traceEvents" if json.next_is()? == Next::Array => read_events(&mut json, &mut scan)?,
                "baseTimeNanoseconds" if matches!(json.next_is()?, Next::Word | Next::Text) => {
                    json.word(&mut text)?;
                    scan.base_ns = decimal::scaled(&text, 0);
                }
                "distributedInfo" => {
                    let info = json.tree()?;
                    scan.rank = info["rank"].as_u64().and_then(|r| u32::try_from(r).ok()).filter(|r| *r < 65536);
                }
                _ => json.skip()?,
            }
        }
    }
    finish(name, scan)
}

fn read_events<R: Read>(json: &mut Json<R>, scan: &mut Scan) -> Result<()> {
    let mut event = Event::default();
    let (mut key, mut text) = (String::new(), String::new());
    json.enter_array()?;
    while json.next_item()? {
        if json.next_is()? != Next::Object {
            json.skip()?;
            continue;
        }
        event.clear();
        json.enter_object()?;
        while json.next_key(&mut key)? {
            let simple = matches!(json.next_is()?, Next::Word | Next::Text);
            match key.as_str() {
                "ph" if simple => json.word(&mut event.phase)?,
                "cat" if simple => json.word(&mut event.category)?,
                "name" if simple => json.word(&mut event.name)?,
                "ts" if simple => json.word(&mut event.start)?,
                "dur" if simple => json.word(&mut event.duration)?,
                "args" if !simple && json.next_is()? == Next::Object => read_args(json, &mut event, &mut text)?,
                _ => json.skip()?,
            }
        }
        scan.take(&event)?;
    }
    Ok(())
}

fn read_args<R: Read>(json: &mut Json<R>, event: &mut Event, text: &mut String) -> Result<()> {
    let mut key = String::new();
    json.enter_object()?;
    while json.next_key(&mut key)? {
        if !matches!(json.next_is()?, Next::Word | Next::Text) {
            json.skip()?;
            continue;
        }
        let field = match key.as_str() {
            "device" | "device_id" => &mut event.device,
            "stream" => &mut event.stream,
            "correlation" => &mut event.correlation,
            "bytes" | "Bytes" => &mut event.bytes,
            "In msg nelems" => &mut event.in_elements,
            "Out msg nelems" => &mut event.out_elements,
            "dtype" => {
                json.word(&mut event.dtype)?;
                continue;
            }
            _ => {
                json.skip()?;
                continue;
            }
        };
        json.word(text)?;
        *field = decimal::scaled(text, 0);
    }
    Ok(())
}

impl Event {
    fn clear(&mut self) {
        for text in [&mut self.phase, &mut self.category, &mut self.name, &mut self.start, &mut self.duration, &mut self.dtype] {
            text.clear();
        }
        for number in
            [&mut self.device, &mut self.stream, &mut self.correlation, &mut self.bytes, &mut self.in_elements, &mut self.out_elements]
        {
            *number = None;
        }
    }

    /// Message size as nccl-tests counts it, or bytes copied.
    fn bytes(&self) -> u64 {
        let width = match self.dtype.as_str() {
            "BFloat16" | "Half" | "bfloat16" | "float16" => 2,
            "Float" | "Int" | "float32" | "int32" => 4,
            "Double" | "Long" | "float64" | "int64" => 8,
            "Byte" | "Char" | "Bool" | "Float8_e4m3fn" | "uint8" | "int8" => 1,
            _ => 0,
        };
        let gathers = kernel_name::communication(&self.name).is_some_and(|c| c.collective == Some(Collective::AllGather));
        let elements = if gathers { self.out_elements } else { self.in_elements };
        let bytes = self.bytes.or_else(|| elements.and_then(|e| e.checked_mul(width)));
        u64::try_from(bytes.unwrap_or(0)).unwrap_or(0)
    }
}

impl Scan {
    fn take(&mut self, event: &Event) -> Result<()> {
        if event.phase != "X" {
            return Ok(());
        }
        let kind = match event.category.as_str() {
            "kernel" | "Kernel" => None,
            "gpu_memcpy" | "Memcpy" => Some(Kind::Copy),
            "gpu_memset" | "Memset" => Some(Kind::Memset),
            "gpu_user_annotation" => return self.mark(event, true),
            "user_annotation" => {
                self.host_events += 1;
                return self.mark(event, false);
            }
            _ => {
                self.host_events += 1;
                self.graph_launches += u64::from(event.name.contains("GraphLaunch"));
                return Ok(());
            }
        };
        let duration = if event.duration.is_empty() { Some(0) } else { decimal::scaled(&event.duration, 3) };
        let (Some(start), Some(duration)) = (decimal::scaled(&event.start, 3), duration.and_then(|d| u64::try_from(d).ok())) else {
            self.unusable += 1;
            return Ok(());
        };
        let device = event.device.filter(|d| (0..65536).contains(d)).unwrap_or(0) as u32;
        let stream = event.stream.filter(|s| (0..STREAM_MAX).contains(s)).unwrap_or(0) as u32;
        let launch = event.correlation.and_then(|c| u32::try_from(c).ok()).unwrap_or(0);
        self.first_ns = Some(self.first_ns.map_or(start, |f| f.min(start)));
        let bytes = if kind.is_some() || event.in_elements.is_some() { event.bytes() } else { 0 };
        let class = self.events.class((device, stream), &event.name, kind, bytes);
        self.events.push(class, start, duration, launch)
    }

    /// `ProfilerStep#7` marks a pass; on the GPU's own line where the file has it.
    fn mark(&mut self, event: &Event, on_gpu: bool) -> Result<()> {
        if event.name.starts_with("ProfilerStep#")
            && let Some(start) = decimal::scaled(&event.start, 3)
        {
            let device = event.device.filter(|d| (0..65536).contains(d)).unwrap_or(0) as u32;
            if on_gpu { self.gpu_marks.push((start, device)) } else { self.host_marks.push(start) }
        }
        Ok(())
    }
}

fn finish(name: &str, mut scan: Scan) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    if scan.events.is_empty() {
        return Err(Fault::new("import-kineto", format!("{name} holds no event of a GPU"))
            .help("record with `ProfilerActivity.CUDA`; a trace of the host alone does not tell what kernels take"));
    }
    let devices = scan.events.ranks();
    for (start, device) in &scan.gpu_marks {
        scan.events.mark_pass(*device, *start);
    }
    if scan.gpu_marks.is_empty() && !scan.host_marks.is_empty() {
        for device in &devices {
            scan.host_marks.iter().for_each(|start| scan.events.mark_pass(*device, *start));
        }
        outcome.warn(format!(
            "{name}: steps are marked on the host only: kernels that ran later than their step's end count to the next pass"
        ));
    }
    if let (Some(base), Some(first)) = (scan.base_ns, scan.first_ns)
        && first < ABSOLUTE_NS
    {
        scan.events.shift(base.saturating_neg());
    }
    match (scan.rank.or_else(|| rank_in(name)), devices.len()) {
        (Some(rank), 1) => scan.events.set_rank(rank),
        (None, 1) => outcome.warn(format!("{name}: neither the trace nor its name tells the rank: it is taken for device {}", devices[0])),
        _ => outcome.understood(format!("{name}: {} devices in one file, taken for ranks", devices.len())),
    }
    let replays = scan.events.graph_replays();
    let communication = scan.events.count(|c| c.kind == Kind::Communication);
    outcome.understood(format!("{name}: {} GPU events, {communication} of communication (torch profiler)", scan.events.len()));
    if replays > 0 {
        outcome.understood(format!("{name}: {replays} graph replays recorded node by node; their kernels have no launch of their own"));
    } else if scan.graph_launches > 0 {
        outcome.warn(format!(
            "{name}: {} graph launches, but no kernel refers to one: kernels inside graphs may be missing",
            scan.graph_launches
        ));
    }
    outcome.skipped(format!("{name}: {} events of the host", scan.host_events));
    if scan.unusable > 0 {
        outcome.skipped(format!("{name}: {} GPU events without a usable time", scan.unusable));
    }
    if communication > 0 {
        outcome.warn(format!(
            "{name}: a communication kernel's time includes waiting for later ranks; import the traces of all ranks to tell them apart"
        ));
    }
    let mut header = Header::from_source("imported");
    header.set("program", "torch profiler");
    header.set("timing", "CUPTI, per kernel");
    outcome.trace = Some(ImportedTrace { header, events: scan.events });
    Ok(outcome)
}

/// `…rank3…`, `…-TP-3.trace.json.gz`.
fn rank_in(name: &str) -> Option<u32> {
    let file = name.rsplit(['/', '\\']).next().unwrap_or(name).to_ascii_lowercase();
    ["rank", "tp"].iter().find_map(|word| {
        file.split(word).skip(1).find_map(|rest| {
            let rest = rest.trim_start_matches(['_', '-', '=']);
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok().filter(|r| *r < 65536)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Time;

    const TRACE: &str = r#"{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "x"}], "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
      "baseTimeNanoseconds": 1700000000000000000, "traceEvents": [
      {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "python"}},
      {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 2, "ts": 10.5, "dur": 3, "args": {"correlation": 7}},
      {"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#1", "ts": 11, "dur": 100, "args": {"device": 0}},
      {"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#2", "ts": 50, "dur": 100, "args": {"device": 0}},
      {"args": {"stream": 7, "device": 0, "correlation": 7, "grid": [1, 2, 3]}, "ph": "X", "cat": "kernel", "name": "gemm", "ts": 12.125, "dur": 2.5},
      {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ts": 60, "dur": 29.001,
       "args": {"stream": 9, "device": 0, "In msg nelems": 21504, "Out msg nelems": 21504, "dtype": "BFloat16", "Group size": 8}},
      {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 61, "dur": 1, "args": {"bytes": 4096, "stream": 7, "device": 0}},
      {"ph": "X", "cat": "kernel", "name": "broken", "ts": null, "dur": 1},
      {"ph": "s", "id": 7, "ts": 10, "cat": "ac2g", "name": "ac2g"}],
      "traceName": "x.json"}"#;

    #[test]
    fn gpu_events_become_records() {
        let outcome = read("x.json", TRACE.as_bytes()).expect("reads");
        let mut trace = outcome.trace.expect("a trace");
        trace.finish();
        let records = trace.records(None).expect("a short span");
        assert_eq!(records.len(), 3);
        assert_eq!((records[0].name.as_str(), records[0].start, records[0].end), ("gemm", Time(0), Time(2_500_000)));
        let ring = &records[1];
        assert_eq!((ring.op.as_str(), ring.bytes, ring.pass, ring.rank), ("allreduce.00000.r3", 43008, 1, 3));
        // 60 - 12.125 = 47.875 us after the first kernel, 29.001 us long.
        assert_eq!((ring.start, ring.end), (Time(47_875_000), Time(76_876_000)));
        assert_eq!((ring.detail("protocol"), ring.detail("stream")), (Some("ll"), Some("9")));
        assert_eq!((records[2].kind, records[2].bytes), (Kind::Copy, 4096));
        assert!(outcome.skipped.iter().any(|s| s.contains("1 GPU events without")));
    }

    #[test]
    fn traces_without_a_gpu_are_refused() {
        for text in ["{\"traceEvents\": []}", "[]", "{}", "{\"traceEvents\": {\"a\": 1}}"] {
            assert_eq!(read("x", text.as_bytes()).map(|_| ()).expect_err(text).code, "import-kineto");
        }
        for cut in 0..TRACE.len() - 1 {
            assert!(read("x", &TRACE.as_bytes()[..cut]).is_err());
        }
    }

    #[test]
    fn names_may_tell_the_rank() {
        assert_eq!(rank_in("/a/tp8/1700-TP-5.trace.json.gz"), Some(5));
        assert_eq!((rank_in("worker_rank_2.json"), rank_in("trace.json")), (Some(2), None));
        assert_eq!(rank_in("output-TP-3.json"), Some(3));
    }
}
