//! Micro-benchmarks of one GPU and its way to host memory: clock, launches,
//! flags, reads, fences, stores and reads in flight, copies.

use std::time::Instant;

use cudarc::driver::result;
use cudarc::driver::sys;

use crate::error::Result;
use crate::gpu::bench::Bench;
use crate::gpu::bench::REPEATS;
use crate::gpu::bench::Word;
use crate::gpu::fault::Explain;
use crate::gpu::implementation::Grid;
use crate::gpu::memory::DeviceBuffer;
use crate::gpu::memory::HostBuffer;
use crate::gpu::observation::Micro;
use crate::gpu::observation::spread;
use crate::gpu::queues;

/// Where results go as they come.
pub type Tell<'a> = &'a mut dyn FnMut(Micro);

const ONE: Grid = Grid { blocks: 1, threads: 32 };
const TIMEOUT_CYCLES: u64 = 4_000_000_000;

/// Everything below on one GPU.
///
/// # Errors
/// When the device or a kernel fails.
pub fn all(bench: &Bench, tell: Tell<'_>) -> Result<()> {
    put(tell, "clock_ghz", (bench.clock_ghz, bench.clock_ghz, bench.clock_ghz));
    launches(bench, tell)?;
    queues::all(bench, tell)?;
    let device = bench.device(1 << 20)?;
    let host = HostBuffer::zeros(&bench.context, 1 << 20)?;
    ping_pong(bench, "l2", device.address(), device.address() + 4096, device.address() + 8192, tell)?;
    ping_pong(bench, "host", host.address(), host.address() + 4096, host.address() + 8192, tell)?;
    // One way in device memory, the other in the host's.
    ping_pong(bench, "mixed", device.address(), host.address() + 4096, host.address() + 8192, tell)?;
    reads(bench, &device, &host, tell)?;
    fences(bench, "", device.address(), tell)?;
    fences(bench, "host", host.address(), tell)?;
    in_flight(bench, "l2", device.address(), tell)?;
    in_flight(bench, "host", host.address(), tell)?;
    copies(bench, tell)
}

/// Adds one row.
pub fn put(tell: Tell<'_>, name: &str, (value, low, high): (f64, f64, f64)) {
    tell(Micro { name: name.to_owned(), value, low, high });
}

fn launches(bench: &Bench, tell: Tell<'_>) -> Result<()> {
    const COUNT: usize = 500;
    let empty = bench.function("empty", "empty", &[])?;
    let mut host = Vec::new();
    for _ in 0..REPEATS {
        let start = Instant::now();
        for _ in 0..COUNT {
            bench.launch_function(&bench.stream, &empty, ONE, &[])?;
        }
        host.push(start.elapsed().as_secs_f64() * 1e6 / COUNT as f64);
        bench.context.synchronize().explain("wait for the device")?;
    }
    put(tell, "eager_launch_us", spread(&host));
    for (name, cycles, nodes) in [("graph_node_us", 0_u64, 400_usize), ("graph_gap_us", 10_000, 200)] {
        bench.stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).explain("begin a graph")?;
        for _ in 0..nodes {
            if cycles == 0 {
                bench.launch_function(&bench.stream, &empty, ONE, &[])?;
            } else {
                bench.launch(&bench.stream, "busy", "busy", ONE, &[Word::Long(cycles)])?;
            }
        }
        let graph = bench.stream.end_capture(sys::CUgraphInstantiate_flags(0)).explain("end a graph")?;
        let Some(graph) = graph else { continue };
        let busy_us = cycles as f64 / bench.clock_ghz / 1000.0;
        let each = |total: f64| total / nodes as f64 - busy_us;
        let (value, low, high) = bench.time_us(REPEATS, &|| graph.launch().explain("launch a graph"))?;
        put(tell, name, (each(value), each(low), each(high)));
    }
    Ok(())
}

/// Half of a flag's round trip between two blocks, with and without data and a
/// fence before each flag.
///
/// # Errors
/// When the device or the kernel fails.
pub fn ping_pong(bench: &Bench, name: &str, first: u64, second: u64, payload: u64, tell: Tell<'_>) -> Result<()> {
    const ROUNDS: u32 = 500;
    let function = bench.function("flag_ping_pong", "flag_ping_pong", &[])?;
    let zero = |at: u64| -> Result<()> {
        // SAFETY: both words lie in live buffers, reachable from this context.
        unsafe { result::memset_d8_sync(at, 0, 4) }.explain("clear a flag")
    };
    for fenced in [0_u32, 1] {
        let spreads = bench.counted_ns(&[0], f64::from(2 * ROUNDS), &|| {
            zero(first)?;
            zero(second)?;
            bench.context.synchronize().explain("wait for the device")?;
            let ends = [(&bench.stream, first, second, 1_u32), (&bench.second, second, first, 0)];
            for (stream, mine, theirs, is_first) in ends {
                // The second's counts go beside the first's.
                let cycles = bench.cycles.address() + if is_first == 1 { 0 } else { 512 };
                let payload = payload + u64::from(is_first) * 64;
                let words = [
                    Word::Long(mine),
                    Word::Long(theirs),
                    Word::Long(payload),
                    Word::Short(ROUNDS),
                    Word::Short(is_first),
                    Word::Short(fenced),
                    Word::Long(cycles),
                    Word::Long(TIMEOUT_CYCLES),
                ];
                bench.launch_function(stream, &function, ONE, &words)?;
            }
            Ok(())
        })?;
        put(tell, &format!("pingpong_{name}_fence{fenced}_oneway_ns"), spreads[0]);
    }
    Ok(())
}

fn reads(bench: &Bench, device: &DeviceBuffer, host: &HostBuffer, tell: Tell<'_>) -> Result<()> {
    // A chain over 1 MB stays in L2; one over 1 GB in steps beyond a page of
    // it goes to memory.
    let small: Vec<u64> = (0..512).map(|i| device.address() + (i * 797 + 797) % 512 * 2048).collect();
    for (i, next) in small.iter().enumerate() {
        device.write(i * 2048, &[*next])?;
    }
    latency(bench, "l2_read_latency_ns", device.address(), tell)?;
    for i in 0..512_u64 {
        let next = host.address() + (i * 797 + 797) % 512 * 2048;
        host.set_word((i * 512) as usize, next as u32);
        host.set_word((i * 512 + 1) as usize, (next >> 32) as u32);
    }
    latency(bench, "host_read_latency_ns", host.address(), tell)?;
    const STEPS: u64 = 1024;
    let large = bench.device(1 << 30)?;
    let stride = (1_u64 << 30) / STEPS;
    for i in 0..STEPS {
        let next = (i * 389 + 389) % STEPS;
        large.write((i * stride) as usize, &[large.address() + next * stride])?;
    }
    // Much more than any L2 goes by before each reading.
    let flush = bench.device(1 << 29)?;
    chase(bench, "memory_read_latency_ns", large.address(), Some(&flush), tell)
}

/// Nanoseconds of one load of a chain that starts at `chain`.
///
/// # Errors
/// When the device or the kernel fails.
pub fn latency(bench: &Bench, name: &str, chain: u64, tell: Tell<'_>) -> Result<()> {
    chase(bench, name, chain, None, tell)
}

fn chase(bench: &Bench, name: &str, chain: u64, flush: Option<&DeviceBuffer>, tell: Tell<'_>) -> Result<()> {
    const HOPS: u32 = 400;
    let spreads = bench.counted_ns(&[0], f64::from(HOPS), &|| {
        flush.map_or(Ok(()), |buffer| buffer.fill(0))?;
        bench.launch(
            &bench.stream,
            "read_latency",
            "read_latency",
            Grid { blocks: 1, threads: 1 },
            &[Word::Long(chain), Word::Short(HOPS), Word::Long(bench.cycles.address())],
        )
    })?;
    put(tell, name, spreads[0]);
    Ok(())
}

/// A system-wide fence alone, and after one 16-byte store a thread to `target`.
///
/// # Errors
/// When the device or the kernel fails.
pub fn fences(bench: &Bench, place: &str, target: u64, tell: Tell<'_>) -> Result<()> {
    const ROUNDS: u32 = 200;
    for (stores, threads) in [(0_u32, 32), (1, 32), (1, 512)] {
        if stores == 0 && !place.is_empty() {
            continue;
        }
        let spreads = bench.counted_ns(&[0], f64::from(ROUNDS), &|| {
            bench.launch(
                &bench.stream,
                "fence",
                "fence",
                Grid { blocks: 1, threads },
                &[Word::Long(target), Word::Short(ROUNDS), Word::Short(stores), Word::Long(bench.cycles.address())],
            )
        })?;
        let name = if stores == 0 { "fence_sys_ns".to_owned() } else { format!("{place}write_t{threads}_fence_sys_ns") };
        put(tell, &name, spreads[0]);
    }
    Ok(())
}

/// Stores and reads in flight of one block: by threads and count.
///
/// # Errors
/// When the device or a kernel fails.
pub fn in_flight(bench: &Bench, place: &str, target: u64, tell: Tell<'_>) -> Result<()> {
    for threads in [32, 512] {
        for count in [1_u32, 4, 16, 64] {
            let spreads = bench.counted_ns(&[0, 1], 1.0, &|| {
                let words = [Word::Long(target), Word::Short(count), Word::Long(bench.cycles.address())];
                bench.launch(&bench.stream, "stores_in_flight", "stores_in_flight", Grid { blocks: 1, threads }, &words)
            })?;
            put(tell, &format!("stores_{place}_t{threads}_n{count}_issued_ns"), spreads[0]);
            put(tell, &format!("stores_{place}_t{threads}_n{count}_arrived_ns"), spreads[1]);
        }
        for depth in [1_u32, 4, 16] {
            let function = bench.function("reads_in_flight", "reads_in_flight", &[("DEPTH", depth)])?;
            let spreads = bench.counted_ns(&[0], 1.0, &|| {
                let words = [Word::Long(target), Word::Long(bench.cycles.address())];
                bench.launch_function(&bench.stream, &function, Grid { blocks: 1, threads }, &words)
            })?;
            put(tell, &format!("reads_{place}_t{threads}_n{depth}_ns"), spreads[0]);
        }
    }
    Ok(())
}

fn copies(bench: &Bench, tell: Tell<'_>) -> Result<()> {
    const LARGEST: usize = 64 << 20;
    let device = bench.device(LARGEST)?;
    let host = HostBuffer::zeros(&bench.context, LARGEST)?;
    for bytes in [4096_usize, 43_008, 1 << 20, LARGEST] {
        for (name, source, target) in [("h2d", host.address(), device.address()), ("d2h", device.address(), host.address())] {
            let times = bench.time_us(REPEATS, &|| {
                // SAFETY: both buffers hold `bytes`; unified addresses tell the direction.
                unsafe { sys::cuMemcpyAsync(target, source, bytes, bench.stream.cu_stream()) }.explain("copy")
            })?;
            put(tell, &format!("memcpy_{name}_{bytes}_us"), times);
            for blocks in [1, 2, 8, 64] {
                let words = [Word::Long(source), Word::Long(target), Word::Long(bytes as u64 / 16)];
                let grid = Grid { blocks, threads: 512 };
                let times = bench.time_us(REPEATS, &|| bench.launch(&bench.stream, "copy_packs", "copy_packs", grid, &words))?;
                put(tell, &format!("kernel_{name}_{bytes}_b{blocks}_us"), times);
            }
        }
    }
    Ok(())
}
