//! What a launch costs the GPU: from one queue and from several, launched
//! ahead by the host or replayed from one graph; and kernels of many kinds in
//! turn, whose code may have left the caches.

use std::sync::Arc;
use std::sync::Barrier;
use std::time::Instant;

use cudarc::driver::CudaContext;
use cudarc::driver::CudaEvent;
use cudarc::driver::CudaFunction;
use cudarc::driver::CudaGraph;
use cudarc::driver::CudaStream;
use cudarc::driver::PushKernelArg;
use cudarc::driver::sys;

use crate::error::{Fault, Result};
use crate::gpu::bench::Bench;
use crate::gpu::fault::Explain;
use crate::gpu::graph::order;
use crate::gpu::group::config;
use crate::gpu::implementation::Grid;
use crate::gpu::micro::Tell;
use crate::gpu::micro::put;
use crate::gpu::observation::spread;

/// Launches of a queue; fewer than the 1,024 that a queue holds.
const LAUNCHES: usize = 400;
/// Repetitions.
const REPEATS: usize = 7;
/// Queues that are tried.
const QUEUES: [usize; 4] = [1, 2, 4, 8];
/// How long a kernel takes that hides how fast launches follow each other, us.
const LONG_US: f64 = 20.0;
/// How long queues are held back while they are filled: longer than eight threads take to fill them, us.
const GATE_US: f64 = 20_000.0;
/// Few blocks, so that the kernels of eight queues run beside each other.
const GRID: Grid = Grid { blocks: 8, threads: 256 };
/// Kinds of kernels in turn; together more code than a multiprocessor keeps.
const KINDS: [usize; 2] = [1, 16];

/// All of it on one GPU.
///
/// # Errors
/// When the device or a kernel fails.
pub fn all(bench: &Bench, tell: Tell<'_>) -> Result<()> {
    for queues in QUEUES {
        let streams = (0..queues).map(|_| bench.context.new_stream().explain("make a stream")).collect::<Result<Vec<_>>>()?;
        let busy = bench.function("busy", "busy", &[])?;
        for (name, us) in [("turn", 0.0), ("gap", LONG_US)] {
            let cycles = (us * bench.clock_ghz * 1000.0) as u64;
            let gate = (GATE_US * bench.clock_ghz * 1000.0) as u64;
            let ahead = (0..=REPEATS).map(|_| launched_ahead(bench, &streams, &busy, cycles, gate)).collect::<Result<Vec<_>>>()?;
            let period = |pairs: &[(f64, f64)]| pairs.iter().skip(1).map(|p| p.0 - us).collect::<Vec<_>>();
            put(tell, &format!("eager_{name}_q{queues}_us"), spread(&period(&ahead)));
            if us == 0.0 {
                put(tell, &format!("eager_issue_q{queues}_us"), spread(&ahead.iter().skip(1).map(|p| p.1).collect::<Vec<_>>()));
            }
            let replayed = graph_us(bench, &streams, LAUNCHES, &|stream, _| one(stream, &busy, cycles))?;
            put(tell, &format!("graph_{name}_q{queues}_us"), shifted(replayed, us));
        }
    }
    for queues in [1, 8] {
        let streams = (0..queues).map(|_| bench.context.new_stream().explain("make a stream")).collect::<Result<Vec<_>>>()?;
        for kinds in KINDS {
            let functions = (0..kinds)
                .map(|kind| bench.function("code", "code", &[("KIND", kind as u32 + 1)]))
                .collect::<Result<Vec<CudaFunction>>>()?;
            let each = graph_us(bench, &streams, 96, &|stream, nth| code(stream, &functions[nth % kinds], bench.cycles.address()))?;
            put(tell, &format!("graph_code_k{kinds}_q{queues}_us"), each);
        }
    }
    Ok(())
}

fn shifted((value, low, high): (f64, f64, f64), by: f64) -> (f64, f64, f64) {
    (value - by, low - by, high - by)
}

fn one(stream: &CudaStream, function: &CudaFunction, cycles: u64) -> Result<()> {
    let mut launch = stream.launch_builder(function);
    launch.arg(&cycles);
    // SAFETY: the kernel takes one word of 8 bytes and touches no memory.
    unsafe { launch.launch(config(GRID)) }.explain("launch a kernel")?;
    Ok(())
}

fn code(stream: &CudaStream, function: &CudaFunction, target: u64) -> Result<()> {
    let mut launch = stream.launch_builder(function);
    let x = 1.0_f32;
    launch.arg(&target).arg(&x);
    // SAFETY: an address of a live buffer and a float, as the kernel declares; it stores nothing.
    unsafe { launch.launch(config(GRID)) }.explain("launch a kernel")?;
    Ok(())
}

fn event(context: &Arc<CudaContext>) -> Result<CudaEvent> {
    context.new_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT)).explain("make an event")
}

/// A thread a queue fills it while a first kernel holds it back: microseconds
/// from the first start to the last end per launch, and of the slowest thread.
fn launched_ahead(bench: &Bench, streams: &[Arc<CudaStream>], busy: &CudaFunction, cycles: u64, gate: u64) -> Result<(f64, f64)> {
    let events = streams.iter().map(|_| Ok((event(&bench.context)?, event(&bench.context)?))).collect::<Result<Vec<_>>>()?;
    let barrier = Barrier::new(streams.len());
    let fill = |stream: &CudaStream, (started, ended): &(CudaEvent, CudaEvent)| -> Result<f64> {
        let bound = stream.context().bind_to_thread().explain("select the device");
        barrier.wait();
        bound?;
        one(stream, busy, gate)?;
        started.record(stream).explain("record an event")?;
        let begun = Instant::now();
        (0..LAUNCHES).try_for_each(|_| one(stream, busy, cycles))?;
        let host_us = begun.elapsed().as_secs_f64() * 1e6;
        ended.record(stream).explain("record an event")?;
        Ok(host_us)
    };
    let threads: Vec<Result<f64>> = std::thread::scope(|scope| {
        let fill = &fill;
        let running: Vec<_> = streams.iter().zip(&events).map(|(stream, events)| scope.spawn(move || fill(stream, events))).collect();
        running.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(Fault::new("gpu-driver", "a launching thread broke")))).collect()
    });
    let mut host_us = 0.0_f64;
    for thread in threads {
        host_us = host_us.max(thread?);
    }
    for stream in streams {
        stream.synchronize().explain("wait for the kernels")?;
    }
    let mut longest = 0.0_f64;
    for (started, _) in &events {
        for (_, ended) in &events {
            longest = longest.max(f64::from(started.elapsed_ms(ended).explain("read the events")?) * 1000.0);
        }
    }
    Ok((longest / LAUNCHES as f64, host_us / LAUNCHES as f64))
}

/// One graph with a branch a queue: microseconds per launch of a branch, the
/// difference between a graph of `count` and one of half as many.
fn graph_us(
    bench: &Bench,
    streams: &[Arc<CudaStream>],
    count: usize,
    launch: &dyn Fn(&CudaStream, usize) -> Result<()>,
) -> Result<(f64, f64, f64)> {
    let time = |count: usize| -> Result<(f64, f64, f64)> {
        let graph = captured(streams, count, launch)?;
        let first = &streams[0];
        let (started, ended) = (event(&bench.context)?, event(&bench.context)?);
        let mut times = Vec::new();
        for repeat in 0..=REPEATS {
            started.record(first).explain("record an event")?;
            graph.launch().explain("launch a graph")?;
            ended.record(first).explain("record an event")?;
            let ms = started.elapsed_ms(&ended).explain("read the events")?;
            if repeat > 0 {
                times.push(f64::from(ms) * 1000.0);
            }
        }
        Ok(spread(&times))
    };
    let (long, short) = (time(count)?, time(count / 2)?);
    let each = |more: f64, less: f64| (more - less) / (count - count / 2) as f64;
    Ok((each(long.0, short.0), each(long.1, short.2), each(long.2, short.1)))
}

fn captured(streams: &[Arc<CudaStream>], count: usize, launch: &dyn Fn(&CudaStream, usize) -> Result<()>) -> Result<CudaGraph> {
    let (first, others) = streams.split_first().ok_or_else(|| Fault::new("gpu-driver", "no queue"))?;
    first.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).explain("begin a graph")?;
    let fill = || -> Result<()> {
        others.iter().try_for_each(|other| order(first, other))?;
        for nth in 0..count {
            streams.iter().try_for_each(|stream| launch(stream, nth))?;
        }
        others.iter().try_for_each(|other| order(other, first))
    };
    let filled = fill();
    let graph = first.end_capture(sys::CUgraphInstantiate_flags(0)).explain("end a graph");
    filled?;
    let graph = graph?.ok_or_else(|| Fault::new("gpu-driver", "the captured graph is empty"))?;
    graph.upload().explain("upload a graph")?;
    Ok(graph)
}
