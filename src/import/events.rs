//! GPU events of an imported trace, compactly: a million in 24 MB.
//!
//! What repeats (names, streams, sizes) is stored once as a class; an event is
//! a start, a duration, a class and the launch it belongs to. Records of the
//! Trace CSV are made one at a time when it is written.

use std::collections::BTreeMap;

use crate::error::Fault;
use crate::error::Result;
use crate::import::kernel_name;
use crate::trace::record::Header;
use crate::trace::record::Kind;
use crate::trace::record::Record;
use crate::units::Time;

/// Events that one import takes.
const EVENTS_MAX: usize = 50_000_000;

/// Clocks of several files further apart than this are not the same clock.
const CLOCK_GAP_NS: i64 = 3_600_000_000_000;

/// A launch with at least this many kernels is a replayed graph.
const GRAPH_KERNELS_MIN: u32 = 8;

/// What events have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class {
    /// Rank, or device where ranks are not known.
    pub rank: u32,
    /// CUDA stream.
    pub stream: u32,
    /// Kernel name or what is copied.
    pub name: String,
    /// What it is made of.
    pub kind: Kind,
    /// Bytes moved, 0 when not known.
    pub bytes: u64,
    /// More `key=value` pairs, joined by `;`.
    pub detail: String,
}

/// One event on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    start_ns: i64,
    duration_ns: u64,
    class: u32,
    launch: u32,
}

/// The events of a trace.
#[derive(Clone, Debug, Default)]
pub struct Events {
    classes: Vec<Class>,
    /// Name → (rank, stream, bytes) → class.
    by_name: BTreeMap<String, BTreeMap<(u32, u32, u64), u32>>,
    events: Vec<Event>,
    /// Starts of the passes of each rank that the file itself marks.
    marks: BTreeMap<u32, Vec<i64>>,
}

/// A trace as imported.
#[derive(Clone, Debug, Default)]
pub struct ImportedTrace {
    /// What is said about it.
    pub header: Header,
    /// What happened.
    pub events: Events,
}

impl Events {
    /// How many.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The number of a class, new or known; `kind` is told by the name where it is `None`.
    pub fn class(&mut self, (rank, stream): (u32, u32), name: &str, kind: Option<Kind>, bytes: u64) -> u32 {
        let key = (rank, stream, bytes);
        if let Some(&known) = self.by_name.get(name).and_then(|of| of.get(&key)) {
            return known;
        }
        let number = self.classes.len() as u32;
        let kind = kind.unwrap_or_else(|| kernel_name::kind(name));
        let detail = if kind == Kind::Communication { kernel_name::detail(name) } else { String::new() };
        self.classes.push(Class { rank, stream, name: name.to_owned(), kind, bytes, detail });
        self.by_name.entry(name.to_owned()).or_default().insert(key, number);
        number
    }

    /// Adds an event; `launch` is the correlation id, 0 when not known.
    ///
    /// # Errors
    /// `import-too-many` above 50 million events.
    pub fn push(&mut self, class: u32, start_ns: i64, duration_ns: u64, launch: u32) -> Result<()> {
        if self.events.len() >= EVENTS_MAX {
            return Err(Fault::new("import-too-many", "more than 50 million GPU events").help("record fewer passes"));
        }
        if self.events.len() == self.events.capacity() {
            // Doubling would hold up to twice what is needed.
            self.events.reserve_exact((self.events.len() / 4).max(4096));
        }
        self.events.push(Event { start_ns, duration_ns, class, launch });
        Ok(())
    }

    /// Marks the start of a pass that the file itself names.
    pub fn mark_pass(&mut self, rank: u32, start_ns: i64) {
        self.marks.entry(rank).or_default().push(start_ns);
    }

    /// Gives every event and mark the rank `rank`.
    pub fn set_rank(&mut self, rank: u32) {
        for class in &mut self.classes {
            class.rank = rank;
        }
        let marks: Vec<i64> = std::mem::take(&mut self.marks).into_values().flatten().collect();
        if !marks.is_empty() {
            self.marks.insert(rank, marks);
        }
        self.by_name.clear();
    }

    /// All ranks, ascending.
    pub fn ranks(&self) -> Vec<u32> {
        let mut ranks: Vec<u32> = self.classes.iter().map(|c| c.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// Classes that keep `wanted`, with the number of their events.
    pub fn count(&self, wanted: impl Fn(&Class) -> bool) -> usize {
        let keep: Vec<bool> = self.classes.iter().map(wanted).collect();
        self.events.iter().filter(|e| keep[e.class as usize]).count()
    }

    /// Joins the events of another file. Where the clocks cannot be the same
    /// one, both begin at zero and true is returned.
    pub fn merge(&mut self, mut other: Events) -> bool {
        let start = |e: &Events| e.events.iter().map(|e| e.start_ns).min();
        let mut shifted = false;
        if let (Some(ours), Some(theirs)) = (start(self), start(&other))
            && (i128::from(ours) - i128::from(theirs)).abs() > i128::from(CLOCK_GAP_NS)
        {
            self.shift(ours);
            other.shift(theirs);
            shifted = true;
        }
        let numbers: Vec<u32> = other.classes.iter().map(|c| self.class((c.rank, c.stream), &c.name, Some(c.kind), c.bytes)).collect();
        self.events.extend(other.events.iter().map(|e| Event { class: numbers[e.class as usize], ..*e }));
        for (rank, marks) in other.marks {
            self.marks.entry(rank).or_default().extend(marks);
        }
        shifted
    }

    /// Moves every event and mark `by` nanoseconds back.
    pub fn shift(&mut self, by: i64) {
        self.events.iter_mut().for_each(|e| e.start_ns = e.start_ns.saturating_sub(by));
        self.marks.values_mut().flatten().for_each(|m| *m = m.saturating_sub(by));
    }

    /// Kernels of each launch of a rank that started many: (first start, launch) → kernels.
    fn graphs(&self) -> BTreeMap<u32, Vec<(i64, u32)>> {
        let mut launches: BTreeMap<(u32, u32), (i64, u32)> = BTreeMap::new();
        for event in self.events.iter().filter(|e| e.launch != 0) {
            let rank = self.classes[event.class as usize].rank;
            let entry = launches.entry((rank, event.launch)).or_insert((event.start_ns, 0));
            *entry = (entry.0.min(event.start_ns), entry.1 + 1);
        }
        let mut graphs: BTreeMap<u32, Vec<(i64, u32)>> = BTreeMap::new();
        for ((rank, _), (start, kernels)) in launches {
            if kernels >= GRAPH_KERNELS_MIN {
                graphs.entry(rank).or_default().push((start, kernels));
            }
        }
        graphs
    }

    /// How many replayed graphs the launches show.
    pub fn graph_replays(&self) -> usize {
        self.graphs().values().map(Vec::len).sum()
    }

    /// Where passes begin, by rank: the marks of the file, else each replay of
    /// a large graph (draft models replay smaller ones in between).
    fn passes(&self) -> (BTreeMap<u32, Vec<i64>>, &'static str) {
        let mut passes = self.marks.clone();
        let mut how = "marked by the profiler";
        if passes.is_empty() {
            how = "replays of the largest graphs";
            for (rank, graphs) in self.graphs() {
                let largest = graphs.iter().map(|g| g.1).max().unwrap_or(0);
                passes.insert(rank, graphs.iter().filter(|g| g.1 * 2 >= largest).map(|g| g.0).collect());
            }
        }
        if passes.is_empty() {
            how = "not told apart";
        }
        passes.values_mut().for_each(|p| p.sort_unstable());
        (passes, how)
    }
}

impl ImportedTrace {
    /// Sorts the events and completes the header. Call it once, after all files.
    pub fn finish(&mut self) {
        self.events.events.sort_unstable();
        let ranks = self.events.ranks();
        let (passes, how) = self.events.passes();
        let count = passes.values().map(Vec::len).max().unwrap_or(1).max(1);
        self.header.set("ranks", &ranks.len().to_string());
        self.header.set("passes", &format!("{count}, {how}"));
    }

    /// How many passes there are; 1 where they are not told apart.
    pub fn pass_count(&self) -> u32 {
        let most = self.events.passes().0.values().map(Vec::len).max().unwrap_or(1).max(1);
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    /// Calls `sink` with every record, of pass `only` if given, by time.
    ///
    /// # Errors
    /// Those of `sink`; `import-clock` when the events span more than the
    /// 213 days that simulated time holds.
    pub fn for_each(&self, only: Option<u32>, sink: &mut dyn FnMut(&Record) -> Result<()>) -> Result<()> {
        let events = &self.events;
        let Some(first) = events.events.first() else { return Ok(()) };
        let passes = events.passes().0;
        let mut numbers: BTreeMap<(u32, u32, &'static str), u32> = BTreeMap::new();
        for event in &events.events {
            let class = &events.classes[event.class as usize];
            let pass = passes.get(&class.rank).map_or(0, |p| p.partition_point(|start| *start <= event.start_ns).saturating_sub(1)) as u32;
            let stem = kernel_name::stem(class);
            let number = numbers.entry((class.rank, pass, stem)).or_insert(0);
            let op = format!("{stem}.{number:05}.r{}", class.rank);
            *number += 1;
            if only.is_some_and(|o| o != pass) {
                continue;
            }
            let start = span(event.start_ns, first.start_ns)?;
            let length = event.duration_ns.checked_mul(1000).ok_or_else(clock_fault)?;
            let end = Time(start.0.checked_add(length).ok_or_else(clock_fault)?);
            let mut detail = format!("stream={}", class.stream);
            if !class.detail.is_empty() {
                detail.push(';');
                detail.push_str(&class.detail);
            }
            let (rank, kind, bytes) = (class.rank, class.kind, class.bytes);
            sink(&Record { pass, rank, op, name: class.name.clone(), kind, layer: None, start, end, bytes, detail })?;
        }
        Ok(())
    }

    /// All records of `only` or of all passes.
    ///
    /// # Errors
    /// See [`ImportedTrace::for_each`].
    pub fn records(&self, only: Option<u32>) -> Result<Vec<Record>> {
        let mut records = Vec::new();
        self.for_each(only, &mut |record| {
            records.push(record.clone());
            Ok(())
        })?;
        Ok(records)
    }
}

fn span(at: i64, first: i64) -> Result<Time> {
    let ns = u64::try_from(i128::from(at) - i128::from(first)).map_err(|_| clock_fault())?;
    ns.checked_mul(1000).map(Time).ok_or_else(clock_fault)
}

fn clock_fault() -> Box<Fault> {
    Fault::new("import-clock", "the events span more than 213 days")
        .help("one of the start times is wrong: look at the largest and smallest")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_small() {
        assert_eq!(std::mem::size_of::<Event>(), 24);
    }

    #[test]
    fn replays_of_the_largest_graph_are_passes() {
        let mut trace = ImportedTrace::default();
        let gemm = trace.events.class((0, 7), "gemm", None, 0);
        // Two replays of a graph of 20 kernels, one of a small draft graph of 9 between them.
        for (launch, start, kernels) in [(5, 1000, 20), (6, 2000, 9), (7, 3000, 20)] {
            for i in 0..kernels {
                trace.events.push(gemm, start + i * 10, 5, launch).expect("few");
            }
        }
        trace.finish();
        let records = trace.records(None).expect("a short span");
        assert_eq!(records.iter().filter(|r| r.pass == 0).count(), 29);
        assert_eq!(trace.records(Some(1)).expect("a short span").len(), 20);
        assert_eq!((records[0].start, records[1].start), (Time(0), Time(10_000)));
        assert_eq!(records[1].op, "kernel.00001.r0");
        assert_eq!(trace.events.graph_replays(), 3);
    }

    #[test]
    fn clocks_that_differ_are_aligned() {
        let mut a = Events::default();
        let gemm = a.class((0, 7), "gemm", None, 0);
        a.push(gemm, 1_700_000_000_000_000_000, 5, 0).expect("few");
        let mut b = Events::default();
        let gemm = b.class((1, 7), "gemm", None, 0);
        b.push(gemm, 12, 5, 0).expect("few");
        assert!(a.merge(b));
        let mut trace = ImportedTrace { events: a, ..ImportedTrace::default() };
        trace.finish();
        let records = trace.records(None).expect("aligned");
        assert!(records.iter().all(|r| r.start == Time(0)));
        assert_eq!(trace.header.get("ranks"), Some("2"));
    }

    #[test]
    fn impossible_spans_are_refused() {
        let mut trace = ImportedTrace::default();
        let gemm = trace.events.class((0, 7), "gemm", None, 0);
        trace.events.push(gemm, i64::MIN, 5, 0).expect("few");
        trace.events.push(gemm, i64::MAX, u64::MAX, 0).expect("few");
        trace.finish();
        assert_eq!(trace.records(None).expect_err("too long").code, "import-clock");
    }
}
