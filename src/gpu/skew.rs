//! How far apart the ranks of one GPU start when one graph launches them all.
//!
//! `%globaltimer` moves in coarse steps, and `clock64` belongs to one
//! multiprocessor; so one block writes its clock to memory without pause and
//! every rank reads it when it starts.

use cudarc::driver::sys;

use crate::error::Result;
use crate::gpu::bench::Bench;
use crate::gpu::bench::REPEATS;
use crate::gpu::bench::Word;
use crate::gpu::fault::Explain;
use crate::gpu::graph::Replay;
use crate::gpu::graph::order;
use crate::gpu::group::Group;
use crate::gpu::implementation::Grid;
use crate::gpu::micro::Tell;
use crate::gpu::micro::put;
use crate::gpu::observation::spread;

/// Launch rounds of the graph per repetition; the later ones show the chain's
/// steady state.
const ROUNDS: u32 = 8;

/// First to last start among `ranks` kernels side by side in one graph, at the
/// graph's first kernels and at those of a chain; and the clock's step.
///
/// # Errors
/// When the device or a kernel fails.
pub fn start_skew(bench: &Bench, ranks: u32, tell: Tell<'_>) -> Result<()> {
    let streams = (0..ranks).map(|_| bench.context.new_stream().explain("make a stream")).collect::<Result<Vec<_>>>()?;
    let clock = bench.context.new_stream_with_priority(0).explain("make a stream")?;
    let tick = bench.device(64)?;
    let marks = bench.device((ranks * ROUNDS * 16) as usize)?;
    let mark = bench.function("mark", "mark", &[])?;
    let spin = (5000.0 * bench.clock_ghz) as u64;
    streams[0].begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).explain("begin a graph")?;
    for stream in &streams[1..] {
        order(&streams[0], stream)?;
    }
    for (rank, stream) in streams.iter().enumerate() {
        for round in 0..ROUNDS {
            let slot = rank as u32 * ROUNDS + round;
            let words = [Word::Long(tick.address()), Word::Long(marks.address()), Word::Short(slot), Word::Long(spin)];
            bench.launch_function(stream, &mark, Grid { blocks: 8, threads: 256 }, &words)?;
        }
    }
    for stream in &streams[1..] {
        order(stream, &streams[0])?;
    }
    let graph = streams[0].end_capture(sys::CUgraphInstantiate_flags(0)).explain("end a graph")?;
    let Some(graph) = graph else { return Ok(()) };
    let (mut first, mut later, mut steps, mut timer) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut by_rank = vec![Vec::new(); ranks as usize];
    for repeat in 0..=REPEATS {
        bench.cycles.clear();
        let stop = bench.cycles.address() + 1024;
        let words = [Word::Long(tick.address()), Word::Long(stop), Word::Long(bench.cycles.address()), Word::Long(2_000_000_000)];
        bench.launch(&clock, "ticker", "ticker", Grid { blocks: 1, threads: 1 }, &words)?;
        graph.launch().explain("launch a graph")?;
        streams[0].synchronize().explain("wait for the graph")?;
        bench.cycles.set_word(256, 1);
        clock.synchronize().explain("wait for the clock")?;
        if repeat == 0 {
            continue;
        }
        let mut found = vec![0_u64; (ranks * ROUNDS * 2) as usize];
        marks.read(0, &mut found)?;
        steps.push(bench.count(1) as f64 / bench.count(0).max(1) as f64 / bench.clock_ghz);
        let at = |rank: u32, round: u32, word: u32| found[((rank * ROUNDS + round) * 2 + word) as usize];
        let range = |round: u32, word: u32| {
            let starts: Vec<u64> = (0..ranks).map(|r| at(r, round, word)).collect();
            let least = starts.iter().min().copied().unwrap_or(0);
            (starts.iter().max().copied().unwrap_or(0) - least, least)
        };
        first.push(range(0, 0).0 as f64 / bench.clock_ghz);
        timer.push(range(0, 1).0 as f64);
        for round in 1..ROUNDS {
            later.push(range(round, 0).0 as f64 / bench.clock_ghz);
        }
        let least = range(0, 0).1;
        for (rank, starts) in by_rank.iter_mut().enumerate() {
            starts.push((at(rank as u32, 0, 0) - least) as f64 / bench.clock_ghz);
        }
    }
    put(tell, &format!("start_skew_clock_step_r{ranks}_ns"), spread(&steps));
    put(tell, &format!("start_skew_first_r{ranks}_ns"), spread(&first));
    put(tell, &format!("start_skew_chain_r{ranks}_ns"), spread(&later));
    put(tell, &format!("start_skew_globaltimer_r{ranks}_ns"), spread(&timer));
    for (rank, starts) in by_rank.iter().enumerate() {
        put(tell, &format!("start_skew_first_r{ranks}_rank{rank}_ns"), spread(starts));
    }
    Ok(())
}

/// First to last start after an all-reduce, in a chain of them: what a
/// collective meets inside a pass. `one` puts one all-reduce on all streams.
///
/// # Errors
/// When the device or a kernel fails.
pub fn chain_skew(group: &Group, one: &dyn Fn() -> Result<()>, tell: Tell<'_>) -> Result<()> {
    let bench = Bench::open(0)?;
    let ranks = group.ranks.len() as u32;
    let tick = bench.device(64)?;
    let marks = bench.device((ranks * ROUNDS * 16) as usize)?;
    let mark = bench.function("mark", "mark", &[])?;
    let replay = Replay::capture(group, || {
        for round in 0..ROUNDS {
            one()?;
            for (rank, place) in group.ranks.iter().enumerate() {
                let slot = rank as u32 * ROUNDS + round;
                let words = [Word::Long(tick.address()), Word::Long(marks.address()), Word::Short(slot), Word::Long(0)];
                bench.launch_function(&place.stream, &mark, Grid { blocks: 1, threads: 32 }, &words)?;
            }
        }
        Ok(())
    })?;
    let mut later = Vec::new();
    for repeat in 0..=REPEATS {
        bench.cycles.clear();
        let stop = bench.cycles.address() + 1024;
        let words = [Word::Long(tick.address()), Word::Long(stop), Word::Long(bench.cycles.address()), Word::Long(2_000_000_000)];
        bench.launch(&bench.second, "ticker", "ticker", Grid { blocks: 1, threads: 1 }, &words)?;
        replay.launch()?;
        group.wait()?;
        bench.cycles.set_word(256, 1);
        bench.context.synchronize().explain("wait for the clock")?;
        let mut found = vec![0_u64; (ranks * ROUNDS * 2) as usize];
        marks.read(0, &mut found)?;
        for round in (1..ROUNDS).filter(|_| repeat > 0) {
            let starts: Vec<u64> = (0..ranks).map(|r| found[((r * ROUNDS + round) * 2) as usize]).collect();
            let range = starts.iter().max().copied().unwrap_or(0) - starts.iter().min().copied().unwrap_or(0);
            later.push(range as f64 / bench.clock_ghz);
        }
    }
    put(tell, &format!("start_skew_after_allreduce_r{ranks}_ns"), spread(&later));
    Ok(())
}
