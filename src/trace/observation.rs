//! Observations: what one collective took on one machine, measured; and their CSV.
//!
//! The columns are found by name, unknown ones are ignored, missing ones take
//! the defaults that [`Observation`] states.

use std::fmt::Write as _;
use std::path::Path;

use crate::error::Result;
use crate::trace::line::push_field;
use crate::trace::line::trimmed;
use crate::trace::table;
use crate::trace::table::Row;
use crate::trace::table::Table;

/// The header of the CSV.
pub const COLUMNS: &str = "machine,ranks,implementation,algorithm,protocol,channels,threads,buffer_bytes,timing,bytes,dtype,version,collective,latency_us,low_us,high_us,source";

/// The code of every fault in such a file.
const CODE: &str = "observations";

/// One measured collective.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// Machine id; empty when the file has no such column.
    pub machine: String,
    /// Ranks that took part, at least 1.
    pub ranks: u32,
    /// Who did it; `nccl` when the column is absent or empty.
    pub implementation: Implementation,
    /// Its algorithm; `auto` when absent or empty.
    pub algorithm: Algorithm,
    /// Its protocol; `auto` when absent or empty.
    pub protocol: Protocol,
    /// Channels it was allowed; `None`: its own choice.
    pub channels: Option<Channels>,
    /// Threads per block; `None`: its own choice.
    pub threads: Option<u32>,
    /// Buffer per channel and protocol; `None`: its own choice.
    pub buffer_bytes: Option<u64>,
    /// How it was timed; `graph_chain` when absent or empty.
    pub timing: Timing,
    /// Size as nccl-tests counts it.
    pub bytes: u64,
    /// Element type as the file names it; `bf16` when absent or empty.
    pub dtype: String,
    /// Version of the implementation (of the framework for `framework_loop`).
    pub version: String,
    /// Which collective; `all_reduce` when absent or empty.
    pub collective: Collective,
    /// Per operation, in microseconds, above zero.
    pub latency_us: f64,
    /// Smallest of the repetitions.
    pub low_us: Option<f64>,
    /// Largest of the repetitions.
    pub high_us: Option<f64>,
    /// Where the number comes from.
    pub source: String,
}

/// Channels that an implementation may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Channels {
    /// At least these.
    pub min: u32,
    /// At most these.
    pub max: u32,
}

/// Declares an open list of names: known ones are variants, others are kept as they are.
macro_rules! names {
    ($(#[doc = $doc:literal])+ pub enum $name:ident { $( $(#[doc = $vdoc:literal])+ $variant:ident = $text:literal $(| $alias:literal)*, )+ }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $( $(#[doc = $vdoc])+ $variant, )+
            /// A name that this version does not know; such a row cannot be simulated.
            Other(String),
        }

        impl $name {
            /// All known names in the order of declaration.
            pub const KNOWN: &'static [&'static str] = &[$($text),+];

            /// From the name in a file; letter case and `-` against `_` do not matter.
            pub fn from_name(name: &str) -> $name {
                match name.trim().to_ascii_lowercase().replace('-', "_").as_str() {
                    $( $text $(| $alias)* => $name::$variant, )+
                    other => $name::Other(other.to_owned()),
                }
            }

            /// As the files name it.
            pub fn name(&self) -> &str {
                match self {
                    $( $name::$variant => $text, )+
                    $name::Other(name) => name,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

names! {
    /// Who performs a collective.
    pub enum Implementation {
        /// NVIDIA's NCCL.
        Nccl = "nccl" | "",
        /// Every rank loads from every other's memory.
        OneShotPull = "one_shot_pull",
        /// Every rank stores into every other's memory.
        OneShotPush = "one_shot_push",
        /// The same into buffers that do not alternate, behind a barrier.
        OneShotPushBarrier = "one_shot_push_barrier",
        /// Reduce-scatter, then all-gather, in one kernel.
        TwoShot = "two_shot",
        /// Inside islands first, then across.
        Hierarchical = "hierarchical",
        /// Through host memory.
        HostStaged = "host_staged",
        /// MSCCL++ all-pair.
        MscclppAllpair = "mscclpp_allpair",
        /// MSCCL++ with packets that carry flags.
        MscclppPacket = "mscclpp_packet",
        /// Symmetric memory.
        Symmetric = "symmetric",
        /// One-shot fused with the residual add and norm.
        FusedOneShot = "fused_one_shot",
        /// AMD's RCCL.
        Rccl = "rccl",
    }
}

names! {
    /// NCCL's algorithms.
    pub enum Algorithm {
        /// What the implementation chooses itself.
        Auto = "auto" | "",
        /// A ring.
        Ring = "ring",
        /// A double binary tree, on one node a chain.
        Tree = "tree",
        /// SHARP, directly.
        CollnetDirect = "collnet_direct" | "collnetdirect",
        /// SHARP, in a chain.
        CollnetChain = "collnet_chain" | "collnetchain",
        /// NVLink SHARP.
        Nvls = "nvls",
        /// NVLink SHARP inside nodes, tree between them.
        NvlsTree = "nvls_tree" | "nvlstree",
        /// Parallel aggregated trees.
        Pat = "pat",
    }
}

names! {
    /// NCCL's protocols.
    pub enum Protocol {
        /// What the implementation chooses itself.
        Auto = "auto" | "",
        /// Four bytes of data, four of flag.
        Ll = "ll",
        /// 120 bytes of data, eight of flag.
        Ll128 = "ll128",
        /// Whole buffers, with fences.
        Simple = "simple",
    }
}

names! {
    /// How an operation was timed.
    pub enum Timing {
        /// A chain of 50 dependent operations in one replayed CUDA graph, per operation.
        GraphChain = "graph_chain" | "",
        /// Eager launches, one host thread enqueues every rank.
        EagerChainSingleThread = "eager_chain_single_thread",
        /// Eager launches, a host thread a rank.
        EagerChainThreadPerRank = "eager_chain_thread_per_rank",
        /// One call, waited for.
        PerCall = "per_call",
        /// A Python loop of a framework.
        FrameworkLoop = "framework_loop",
    }
}

names! {
    /// What the ranks do together.
    pub enum Collective {
        /// Everyone gets the sum.
        AllReduce = "all_reduce" | "" | "allreduce",
        /// Everyone gets everything.
        AllGather = "all_gather" | "allgather",
        /// Everyone gets a part of the sum.
        ReduceScatter = "reduce_scatter" | "reducescatter",
        /// Everyone sends a part to everyone.
        AllToAll = "all_to_all" | "alltoall",
        /// One to all.
        Broadcast = "broadcast",
        /// The sum to one.
        Reduce = "reduce",
        /// One to one.
        SendRecv = "send_recv" | "sendrecv",
    }
}

/// Reads a file.
///
/// # Errors
/// `io`, `file-too-large`, `not-utf8`; `observations` with the line.
pub fn read_file(path: &Path) -> Result<Vec<Observation>> {
    let text = table::read_text(path)?;
    read_text(&path.display().to_string(), &text)
}

/// Reads bytes that came from `name`.
///
/// # Errors
/// See [`read_file`].
pub fn read_bytes(name: &str, bytes: &[u8]) -> Result<Vec<Observation>> {
    read_text(name, table::text_of(name, bytes)?)
}

fn read_text(name: &str, text: &str) -> Result<Vec<Observation>> {
    let mut table = Table::open(name, text, CODE, &["ranks", "bytes", "latency_us"])?;
    let mut found = Vec::new();
    while let Some(row) = table.next_row()? {
        found.push(observation(&row)?);
    }
    if found.is_empty() { Err(table.no_rows()) } else { Ok(found) }
}

fn observation(row: &Row<'_>) -> Result<Observation> {
    let missing = |column| move || row.fault(column, "is empty", "a value");
    let latency = |column| row.number(column, 1e-6..=1e12);
    let dtype = row.text("dtype");
    let observation = Observation {
        machine: row.text("machine").to_owned(),
        ranks: row.number("ranks", 1.0..=65536.0)?.and(row.parse("ranks", "a whole number")?).ok_or_else(missing("ranks"))?,
        implementation: Implementation::from_name(row.text("implementation")),
        algorithm: Algorithm::from_name(row.text("algorithm")),
        protocol: Protocol::from_name(row.text("protocol")),
        channels: channels(row)?,
        threads: row.number("threads", 1.0..=1024.0)?.and(row.parse("threads", "a whole number")?),
        buffer_bytes: row.number("buffer_bytes", 1.0..=1e12)?.and(row.parse("buffer_bytes", "a whole number")?),
        timing: Timing::from_name(row.text("timing")),
        bytes: row.parse("bytes", "a whole number of bytes")?.ok_or_else(missing("bytes"))?,
        dtype: if dtype.is_empty() { "bf16".to_owned() } else { dtype.to_owned() },
        version: row.text("version").to_owned(),
        collective: Collective::from_name(row.text("collective")),
        latency_us: latency("latency_us")?.ok_or_else(missing("latency_us"))?,
        low_us: latency("low_us")?,
        high_us: latency("high_us")?,
        source: row.text("source").to_owned(),
    };
    if matches!((observation.low_us, observation.high_us), (Some(low), Some(high)) if low > high) {
        return Err(row.fault("low_us", "is above high_us", "the smallest of the repetitions"));
    }
    Ok(observation)
}

fn channels(row: &Row<'_>) -> Result<Option<Channels>> {
    let text = row.text("channels");
    if text.is_empty() {
        return Ok(None);
    }
    let (min, max) = text.split_once('-').unwrap_or((text, text));
    match (min.trim().parse::<u32>(), max.trim().parse::<u32>()) {
        (Ok(min), Ok(max)) if (1..=1024).contains(&min) && (min..=1024).contains(&max) => Ok(Some(Channels { min, max })),
        _ => Err(row.fault("channels", &format!("`{text}` is neither N nor N-M"), "N, N-M or nothing, from 1 to 1024,")),
    }
}

/// The CSV of `observations`; `comments` become `#` lines before the header.
pub fn write_csv(comments: &[String], observations: &[Observation]) -> String {
    let mut out = String::new();
    for comment in comments {
        let one_line: String = comment.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let _ = writeln!(out, "# {one_line}");
    }
    out.push_str(COLUMNS);
    out.push('\n');
    for observation in observations {
        push_row(&mut out, observation);
        out.push('\n');
    }
    out
}

fn push_row(out: &mut String, o: &Observation) {
    let channels = o.channels.map_or(String::new(), |c| if c.min == c.max { c.min.to_string() } else { format!("{}-{}", c.min, c.max) });
    let us = |value: Option<f64>| value.map_or(String::new(), |v| trimmed(v, 6));
    let optional = |value: Option<u64>| value.map_or(String::new(), |v| v.to_string());
    let fields = [
        &o.machine,
        &o.ranks.to_string(),
        o.implementation.name(),
        o.algorithm.name(),
        o.protocol.name(),
        &channels,
        &optional(o.threads.map(u64::from)),
        &optional(o.buffer_bytes),
        o.timing.name(),
        &o.bytes.to_string(),
        &o.dtype,
        &o.version,
        o.collective.name(),
        &us(Some(o.latency_us)),
        &us(o.low_us),
        &us(o.high_us),
        &o.source,
    ];
    for (i, field) in fields.into_iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        push_field(out, field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SAMPLE: &str = "# a comment\nbytes,ranks,latency_us,channels,extra,low_us,high_us,source\n\
        43008,8,29.5,1-2,x,28,31,\"bench, third run\"\n# between\n\n512,2,6.34,,,,,\n";

    #[test]
    fn columns_are_found_by_name() {
        let rows = read_bytes("s.csv", SAMPLE.as_bytes()).expect("reads");
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].bytes, rows[0].ranks, rows[0].latency_us), (43008, 8, 29.5));
        assert_eq!(rows[0].channels, Some(Channels { min: 1, max: 2 }));
        assert_eq!(rows[0].source, "bench, third run");
        assert_eq!(rows[1].implementation, Implementation::Nccl);
        assert_eq!((rows[1].algorithm.clone(), rows[1].protocol.clone()), (Algorithm::Auto, Protocol::Auto));
        assert_eq!((rows[1].timing.clone(), rows[1].collective.clone()), (Timing::GraphChain, Collective::AllReduce));
        assert_eq!((rows[1].low_us, rows[1].channels), (None, None));
    }

    #[test]
    fn unknown_names_are_kept() {
        let rows = read_bytes("s.csv", b"ranks,bytes,latency_us,implementation\n2,8,1,quick_reduce\n").expect("reads");
        assert_eq!(rows[0].implementation, Implementation::Other("quick_reduce".into()));
    }

    #[test]
    fn faults_name_line_and_what_was_expected() {
        for (text, line, expected) in [
            ("ranks,bytes,latency_us\n2,8,-1\n", "line 2", "from"),
            ("ranks,bytes,latency_us\n2,8,1\n2,8.5,1\n", "line 3", "whole number of bytes"),
            ("ranks,bytes,latency_us\n0,8,1\n", "line 2", "from 1"),
            ("ranks,bytes,latency_us\n2,8\n", "line 2", "quote"),
            ("ranks,bytes,latency_us\n2,8,NaN\n", "line 2", "from"),
            ("ranks,bytes,latency_us\n2,8,inf\n", "line 2", "from"),
            ("ranks,bytes,latency_us\n2,8,\n", "line 2", "a value"),
            ("ranks,bytes,latency_us,channels\n2,8,1,4-2\n", "line 2", "N-M"),
            ("ranks,bytes\n2,8\n", "line 1", "latency_us"),
            ("ranks,bytes,latency_us,low_us,high_us\n2,8,1,3,2\n", "line 2", "smallest"),
        ] {
            let fault = read_bytes("s.csv", text.as_bytes()).expect_err(text);
            assert!(fault.message.contains(line), "{text}: {}", fault.message);
            assert!(fault.help.as_deref().unwrap_or("").contains(expected), "{text}: {:?}", fault.help);
        }
        assert!(read_bytes("s.csv", b"").is_err());
        assert_eq!(read_bytes("s.csv", b"\xff\xfer\0a\0").expect_err("UTF-16").code, "not-utf8");
    }

    #[test]
    fn what_is_written_is_read_back() {
        let rows = read_bytes("s.csv", SAMPLE.as_bytes()).expect("reads");
        let text = write_csv(&["imported\nby hand".into()], &rows);
        assert!(text.starts_with("# imported by hand\nmachine,ranks,"));
        assert_eq!(read_bytes("t.csv", text.as_bytes()).expect("reads"), rows);
    }

    proptest! {
        #[test]
        fn mangled_files_never_panic(at in 0usize..SAMPLE.len(), byte: u8, cut in 0usize..SAMPLE.len()) {
            let mut bytes = SAMPLE.as_bytes().to_vec();
            bytes[at] = byte;
            bytes.truncate(cut);
            let _ = read_bytes("s.csv", &bytes);
        }

        #[test]
        fn any_bytes_never_panic(bytes: Vec<u8>) {
            let _ = read_bytes("s.csv", &bytes);
        }
    }
}
