//! Chrome trace JSON, which ui.perfetto.dev opens: process = rank, thread =
//! stream, arrows between ranks, one counter a link.
//!
//! Times are picoseconds inside and microseconds with three decimals here, so
//! viewers see whole nanoseconds. Events are written as they come; nothing is kept.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::io::Write;

use crate::error::Fault;
use crate::error::Result;
use crate::trace::links;
use crate::trace::links::LinkLoad;
use crate::trace::record::Reader;
use crate::trace::record::Record;
use crate::units::Time;

/// The process that carries the counters of links.
const LINKS_PID: u32 = 1_000_000;

/// Writes the events of one file.
pub struct ChromeWriter<W> {
    output: W,
    first: bool,
}

impl<W: Write> ChromeWriter<W> {
    /// Opens the list of events.
    ///
    /// # Errors
    /// Those of `output`, here and below.
    pub fn create(mut output: W) -> std::io::Result<ChromeWriter<W>> {
        output.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
        Ok(ChromeWriter { output, first: true })
    }

    /// Names a rank and fixes its place in the list.
    ///
    /// # Errors
    /// Those of the output.
    pub fn process(&mut self, rank: u32, name: &str) -> std::io::Result<()> {
        let name = quoted(name);
        self.event(&format!(r#""ph":"M","pid":{rank},"tid":0,"name":"process_name","args":{{"name":{name}}}"#))?;
        self.event(&format!(r#""ph":"M","pid":{rank},"tid":0,"name":"process_sort_index","args":{{"sort_index":{rank}}}"#))
    }

    /// Names a stream of a rank.
    ///
    /// # Errors
    /// Those of the output.
    pub fn thread(&mut self, rank: u32, stream: u32, name: &str) -> std::io::Result<()> {
        let name = quoted(name);
        self.event(&format!(r#""ph":"M","pid":{rank},"tid":{stream},"name":"thread_name","args":{{"name":{name}}}"#))
    }

    /// An operation from `start` to `end`; `args` are pairs shown when it is clicked.
    ///
    /// # Errors
    /// Those of the output.
    pub fn slice(
        &mut self,
        (rank, stream): (u32, u32),
        name: &str,
        category: &str,
        (start, end): (Time, Time),
        args: &[(&str, &str)],
    ) -> std::io::Result<()> {
        let args: Vec<String> = args.iter().map(|(k, v)| format!("{}:{}", quoted(k), quoted(v))).collect();
        self.event(&format!(
            r#""ph":"X","pid":{rank},"tid":{stream},"ts":{},"dur":{},"name":{},"cat":{},"args":{{{}}}"#,
            us(start),
            us(end.saturating_sub(start)),
            quoted(name),
            quoted(category),
            args.join(",")
        ))
    }

    /// An arrow from inside a slice of one rank to inside a slice of another.
    ///
    /// # Errors
    /// Those of the output.
    pub fn flow(&mut self, id: u64, name: &str, from: (u32, u32, Time), to: (u32, u32, Time)) -> std::io::Result<()> {
        let name = quoted(name);
        for (phase, (rank, stream, at), binding) in [("s", from, ""), ("f", to, r#","bp":"e""#)] {
            let at = us(at);
            self.event(&format!(r#""ph":"{phase}","id":{id},"pid":{rank},"tid":{stream},"ts":{at},"name":{name},"cat":"flow"{binding}"#))?;
        }
        Ok(())
    }

    /// What goes over a link from `at` on.
    ///
    /// # Errors
    /// Those of the output.
    pub fn counter(&mut self, link: &str, at: Time, gbps: f64) -> std::io::Result<()> {
        let value = if gbps.is_finite() { gbps } else { 0.0 };
        self.event(&format!(r#""ph":"C","pid":{LINKS_PID},"tid":0,"ts":{},"name":{},"args":{{"GB/s":{value:.3}}}"#, us(at), quoted(link)))
    }

    /// Names the group of counters; call it when there are any.
    ///
    /// # Errors
    /// Those of the output.
    pub fn links(&mut self) -> std::io::Result<()> {
        self.process(LINKS_PID, "links")
    }

    /// Closes the list and gives the output back.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self) -> std::io::Result<W> {
        self.output.write_all(b"\n]}\n")?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn event(&mut self, fields: &str) -> std::io::Result<()> {
        self.output.write_all(if self.first { b"\n{" } else { b",\n{" })?;
        self.first = false;
        self.output.write_all(fields.as_bytes())?;
        self.output.write_all(b"}")
    }
}

/// Turns a whole Trace CSV into Chrome JSON. Records of one collective (the
/// same operation but for the rank) are joined by arrows: from the rank that
/// arrived last, on which the others waited, to each of them. Where the header
/// names links, each gets a counter: the mean rate of each collective from the
/// last arrival to the last end.
///
/// # Errors
/// Those of the reader; `io` when the output cannot be written.
pub fn convert<R: BufRead, W: Write>(reader: &mut Reader<R>, output: W) -> Result<W> {
    let io = |e: std::io::Error| Fault::new("io", format!("cannot write the trace: {e}"));
    let records = reader.read_all()?;
    let mut writer = ChromeWriter::create(output).map_err(io)?;
    let mut streams: Vec<(u32, u32)> = records.iter().map(|r| (r.rank, stream_of(r))).collect();
    streams.sort_unstable();
    streams.dedup();
    let mut last = None;
    for &(rank, stream) in &streams {
        if last != Some(rank) {
            writer.process(rank, &format!("rank {rank}")).map_err(io)?;
            last = Some(rank);
        }
        writer.thread(rank, stream, &format!("stream {stream}")).map_err(io)?;
    }
    for record in &records {
        write_record(&mut writer, record).map_err(io)?;
    }
    write_arrows(&mut writer, &records).map_err(io)?;
    write_counters(&mut writer, &links::read(reader.header()), &records).map_err(io)?;
    writer.finish().map_err(io)
}

fn stream_of(record: &Record) -> u32 {
    record.detail("stream").and_then(|s| s.parse().ok()).unwrap_or(0)
}

fn write_record<W: Write>(writer: &mut ChromeWriter<W>, r: &Record) -> std::io::Result<()> {
    let bytes = r.bytes.to_string();
    let layer = r.layer.map(|l| l.to_string());
    let mut args = vec![("op", r.op.as_str())];
    if r.bytes > 0 {
        args.push(("bytes", &bytes));
    }
    if let Some(layer) = &layer {
        args.push(("layer", layer));
    }
    args.extend(r.detail.split(';').filter_map(|pair| pair.split_once('=')));
    writer.slice((r.rank, stream_of(r)), &r.name, r.kind.name(), (r.start, r.end), &args)
}

/// The records of each collective: the same operation but for the rank.
fn collectives(records: &[Record]) -> BTreeMap<(u32, &str), Vec<&Record>> {
    let mut groups: BTreeMap<(u32, &str), Vec<&Record>> = BTreeMap::new();
    for record in records.iter().filter(|r| r.kind == crate::trace::record::Kind::Communication) {
        let shared = record.op.rsplit_once(".r").filter(|(_, rank)| rank.parse::<u32>().is_ok()).map(|(op, _)| op);
        if let Some(op) = shared {
            groups.entry((record.pass, op)).or_default().push(record);
        }
    }
    groups
}

/// A step up at each collective's last arrival and down at its last end, on every link that it crosses.
fn write_counters<W: Write>(writer: &mut ChromeWriter<W>, links: &[LinkLoad], records: &[Record]) -> std::io::Result<()> {
    if links.is_empty() {
        return Ok(());
    }
    writer.links()?;
    let groups = collectives(records);
    for link in links {
        let mut changes: BTreeMap<Time, f64> = BTreeMap::from([(Time::ZERO, 0.0)]);
        for group in groups.values() {
            let Some(bytes) = group.first().and_then(|r| link.loads.get(&(r.name.clone(), r.bytes))) else { continue };
            let (from, to) = (group.iter().map(|r| r.start).max(), group.iter().map(|r| r.end).max());
            let (Some(from), Some(to)) = (from, to) else { continue };
            let gbps = *bytes as f64 / to.saturating_sub(from).ns().max(1e-3);
            *changes.entry(from).or_default() += gbps;
            *changes.entry(to).or_default() -= gbps;
        }
        let mut rate = 0.0;
        for (at, change) in changes {
            rate += change;
            writer.counter(&link.name, at, if rate.abs() < 1e-9 { 0.0 } else { rate })?;
        }
    }
    Ok(())
}

fn write_arrows<W: Write>(writer: &mut ChromeWriter<W>, records: &[Record]) -> std::io::Result<()> {
    let mut id = 0;
    for group in collectives(records).values() {
        let Some(latest) = group.iter().max_by_key(|r| (r.start, r.rank)) else { continue };
        for other in group.iter().filter(|r| r.rank != latest.rank) {
            id += 1;
            let from = (latest.rank, stream_of(latest), latest.start);
            writer.flow(id, "last arrival", from, (other.rank, stream_of(other), other.end.max(latest.start)))?;
        }
    }
    Ok(())
}

/// Microseconds with three decimals, rounded to the nanosecond.
fn us(time: Time) -> String {
    let ns = time.0 / 1000 + u64::from(time.0 % 1000 >= 500);
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "# lanecast-trace 1\npass,rank,op,name,kind,layer,start_ns,end_ns,bytes,detail\n\
        0,0,L000.attn_allreduce.r0,all\"reduce,communication,0,1000.000,31500.400,43008,stream=7\n\
        0,1,L000.attn_allreduce.r1,all_reduce,communication,0,2000.000,31000.000,43008,stream=7\n\
        0,1,L000.q.r1,q,compute,0,500.000,900.000,0,\n";

    #[test]
    fn ranks_become_processes_and_collectives_arrows() {
        // A doubled quote inside quotes is what CSV wants; the sample's bare one is kept as it is.
        let mut reader = Reader::open("t.csv", TRACE.as_bytes()).expect("reads");
        let json = convert(&mut reader, Vec::new()).expect("writes");
        let value: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        let events = value["traceEvents"].as_array().expect("a list");
        let of = |phase: &str| events.iter().filter(|e| e["ph"] == phase).collect::<Vec<_>>();
        assert_eq!((of("X").len(), of("s").len(), of("f").len()), (3, 1, 1));
        assert_eq!(of("X")[0]["dur"].as_f64(), Some(30.5));
        assert_eq!(of("X")[0]["name"], "all\"reduce");
        assert_eq!(of("X")[0]["args"]["bytes"], "43008");
        // Rank 1 arrives last (2 us): the arrow starts there and ends with rank 0's slice.
        assert_eq!((of("s")[0]["pid"].as_u64(), of("s")[0]["ts"].as_f64()), (Some(1), Some(2.0)));
        assert_eq!((of("f")[0]["pid"].as_u64(), of("f")[0]["ts"].as_f64()), (Some(0), Some(31.5)));
    }

    #[test]
    fn links_of_the_header_become_counters() {
        let link = "# lanecast-trace 1\n# link.gpu0 > switch0 = 45.700 GB/s; all_reduce 43008 29500\n";
        let text = TRACE.replace("# lanecast-trace 1\n", link).replace("all\"reduce", "all_reduce");
        let mut reader = Reader::open("t.csv", text.as_bytes()).expect("reads");
        let json = convert(&mut reader, Vec::new()).expect("writes");
        let value: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        let counts = value["traceEvents"].as_array().expect("a list").iter().filter(|e| e["ph"] == "C");
        let steps: Vec<(f64, f64)> =
            counts.map(|e| (e["ts"].as_f64().unwrap_or(-1.0), e["args"]["GB/s"].as_f64().unwrap_or(-1.0))).collect();
        // 29,500 B from the last arrival at 2 us to the last end at 31.5 us: 1 GB/s.
        assert_eq!(steps, [(0.0, 0.0), (2.0, 1.0), (31.5, 0.0)]);
    }

    #[test]
    fn counters_are_finite() {
        let mut writer = ChromeWriter::create(Vec::new()).expect("memory");
        writer.links().expect("memory");
        writer.counter("gpu0>switch0", Time::from_us(1.5), f64::NAN).expect("memory");
        let json = writer.finish().expect("memory");
        let value: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        assert_eq!(value["traceEvents"][2]["args"]["GB/s"].as_f64(), Some(0.0));
    }
}
