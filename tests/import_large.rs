//! Traces of hundreds of megabytes are read in little memory. The input is
//! made while it is read; speed is printed, not asserted.

use std::io::BufReader;
use std::io::Read;

use lanecast::import::kineto;
use lanecast::import::nsys_csv;
use lanecast::import::outcome::Outcome;

const BYTES: u64 = 200 << 20;
const MEMORY_KIB: u64 = 100 << 10;

/// Repeats `item(n)` between `head` and `tail` until there are [`BYTES`].
struct Made<F> {
    item: F,
    tail: &'static str,
    pending: Vec<u8>,
    at: usize,
    number: u64,
    made: u64,
}

impl<F: Fn(u64) -> String> Made<F> {
    fn new(head: &str, item: F, tail: &'static str) -> Made<F> {
        Made { item, tail, pending: head.as_bytes().to_vec(), at: 0, number: 0, made: 0 }
    }
}

impl<F: Fn(u64) -> String> Read for Made<F> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.at == self.pending.len() {
            self.at = 0;
            self.pending.clear();
            if self.made < BYTES {
                while self.pending.len() < 64 << 10 {
                    self.pending.extend_from_slice((self.item)(self.number).as_bytes());
                    self.number += 1;
                }
            } else if !self.tail.is_empty() {
                self.pending.extend_from_slice(self.tail.as_bytes());
                self.tail = "";
            }
            self.made += self.pending.len() as u64;
        }
        let count = (self.pending.len() - self.at).min(buffer.len());
        buffer[..count].copy_from_slice(&self.pending[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// Largest memory of this process so far.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?.trim().trim_end_matches(" kB").parse().ok()
}

fn check(what: &str, read: impl FnOnce() -> Outcome) {
    let started = std::time::Instant::now();
    let mut trace = read().trace.expect("a trace");
    let seconds = started.elapsed().as_secs_f64();
    trace.finish();
    let mut records = 0u64;
    let events = trace.events.len();
    trace
        .for_each(None, &mut |_| {
            records += 1;
            Ok(())
        })
        .expect("a short span");
    assert_eq!(records, events as u64);
    println!("{what}: {events} events, {:.0} MB/s, peak {:?} KiB", BYTES as f64 / 1e6 / seconds, peak_kib());
    if let Some(peak) = peak_kib() {
        assert!(peak < MEMORY_KIB, "{what}: {peak} KiB");
    }
}

/// One test, so that the peaks do not add up.
#[test]
fn large_traces_take_little_memory() {
    let kernel = "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16>>(int, std::array<char*, 3ul>)";
    let item = |n: u64| {
        let ts = n * 5;
        if n.is_multiple_of(3) {
            let name =
                if n.is_multiple_of(30) { "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)" } else { kernel };
            format!(
                "{}{{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"{name}\", \"pid\": 0, \"tid\": 7, \"ts\": {ts}.123, \"dur\": 3.250, \"args\": {{\"External id\": {n}, \"queued\": 0, \"device\": 0, \"context\": 1, \"stream\": 7, \"correlation\": {n}, \"registers per thread\": 32, \"shared memory\": 0, \"blocks per SM\": 1.0, \"grid\": [188, 1, 1], \"block\": [256, 1, 1]}}}}",
                if n == 0 { "" } else { ",\n" }
            )
        } else {
            format!(
                ",\n{{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mul\", \"pid\": 12, \"tid\": 12, \"ts\": {ts}.500, \"dur\": 4, \"args\": {{\"External id\": {n}, \"Input Dims\": [[3, 7168], [3, 7168]], \"Call stack\": \"a.py(1): f\\\\nb.py(2): g\"}}}}"
            )
        }
    };
    check("Kineto JSON", || {
        kineto::read("made", Made::new("{\"schemaVersion\": 1, \"traceEvents\": [\n", item, "], \"traceName\": \"x\"}")).expect("reads")
    });
    let head = "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n";
    let row = |n: u64| format!("{},2500,{n},188,1,1,256,1,1,32,0.000,0.000,,,,,NVIDIA RTX PRO 6000 (0),1,,7,\"{kernel}\"\n", n * 5000);
    check("nsys CSV", || nsys_csv::read("made", BufReader::new(Made::new(head, row, ""))).expect("reads"));
}
