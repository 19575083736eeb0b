//! Traces of any size, made while they are read: the shapes of a torch
//! profiler's JSON and of Nsight Systems' CSV, for tests and measurements.

use std::io::Read;

const KERNEL: &str = "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16>>(int, std::array<char*, 3ul>)";
const RING: &str = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
const NSYS_HEAD: &str = "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n";

/// A file that repeats an item with its number until it is as long as was asked for.
pub struct Made {
    item: fn(u64) -> String,
    tail: &'static str,
    pending: Vec<u8>,
    at: usize,
    number: u64,
    made: u64,
    bytes: u64,
}

impl Made {
    /// At least `bytes` of a torch profiler's trace: one event in three is a GPU's, as in real files.
    pub fn kineto(bytes: u64) -> Made {
        Made::new("{\"schemaVersion\": 1, \"traceEvents\": [\n", kineto_event, "], \"traceName\": \"x\"}", bytes)
    }

    /// At least `bytes` of `nsys stats -r cuda_gpu_trace -f csv`.
    pub fn nsys(bytes: u64) -> Made {
        Made::new(NSYS_HEAD, nsys_row, "", bytes)
    }

    fn new(head: &str, item: fn(u64) -> String, tail: &'static str, bytes: u64) -> Made {
        Made { item, tail, pending: head.as_bytes().to_vec(), at: 0, number: 0, made: 0, bytes }
    }
}

fn kineto_event(n: u64) -> String {
    let ts = n * 5;
    let comma = if n == 0 { "" } else { ",\n" };
    if n.is_multiple_of(3) {
        let name = if n.is_multiple_of(30) { RING } else { KERNEL };
        format!(
            "{comma}{{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"{name}\", \"pid\": 0, \"tid\": 7, \"ts\": {ts}.123, \"dur\": 3.250, \"args\": {{\"External id\": {n}, \"queued\": 0, \"device\": 0, \"context\": 1, \"stream\": 7, \"correlation\": {n}, \"registers per thread\": 32, \"shared memory\": 0, \"blocks per SM\": 1.0, \"grid\": [188, 1, 1], \"block\": [256, 1, 1]}}}}"
        )
    } else {
        format!(
            "{comma}{{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mul\", \"pid\": 12, \"tid\": 12, \"ts\": {ts}.500, \"dur\": 4, \"args\": {{\"External id\": {n}, \"Input Dims\": [[3, 7168], [3, 7168]], \"Call stack\": \"a.py(1): f\\\\nb.py(2): g\"}}}}"
        )
    }
}

fn nsys_row(n: u64) -> String {
    format!("{},2500,{n},188,1,1,256,1,1,32,0.000,0.000,,,,,NVIDIA RTX PRO 6000 (0),1,,7,\"{KERNEL}\"\n", n * 5000)
}

impl Read for Made {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.at == self.pending.len() {
            self.at = 0;
            self.pending.clear();
            if self.made < self.bytes {
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
