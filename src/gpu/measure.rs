//! Timing of chains of collectives: replayed from a graph, or launched one by
//! one from one host thread.

use cudarc::driver::sys;

use crate::error::Result;
use crate::gpu::arguments::THREADS_MAX;
use crate::gpu::check::enqueue_all;
use crate::gpu::fault::Explain;
use crate::gpu::graph::Replay;
use crate::gpu::graph::order;
use crate::gpu::group::Group;
use crate::gpu::group::Message;
use crate::gpu::implementation::Grid;
use crate::gpu::implementation::Implementation;
use crate::gpu::observation::Observation;
use crate::gpu::observation::spread;

/// Dependent operations in a chain.
pub const CHAIN: usize = 50;
/// Timed repetitions.
pub const REPEATS: usize = 9;

/// Longer than this, an operation hides its launch, and threads matter no more.
pub const LONG_US: f64 = 300.0;

/// Median, least and most of the microseconds of one operation.
pub type Spread = (f64, f64, f64);

/// A chain of [`CHAIN`] operations in one replayed graph, per operation.
///
/// # Errors
/// When a device fails or an operation gives up waiting.
pub fn graph_chain(group: &Group, one: &dyn Fn() -> Result<()>) -> Result<Spread> {
    let replay = Replay::capture(group, || (0..CHAIN).try_for_each(|_| one()))?;
    for _ in 0..3 {
        replay.launch()?;
    }
    group.wait()?;
    let times = (0..REPEATS).map(|_| Ok(replay.time_us()? / CHAIN as f64)).collect::<Result<Vec<f64>>>()?;
    Ok(spread(&times))
}

/// A chain of [`CHAIN`] operations that one host thread launches, per operation.
///
/// # Errors
/// As [`graph_chain`].
pub fn eager_chain(group: &Group, one: &dyn Fn() -> Result<()>) -> Result<Spread> {
    let first = &group.ranks[0].stream;
    let timing = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
    let started = first.context().new_event(timing).explain("make an event")?;
    let ended = first.context().new_event(timing).explain("make an event")?;
    let mut times = Vec::new();
    for repeat in 0..REPEATS + 2 {
        started.record(first).explain("record an event")?;
        for rank in &group.ranks[1..] {
            order(first, &rank.stream)?;
        }
        (0..CHAIN).try_for_each(|_| one())?;
        for rank in &group.ranks[1..] {
            order(&rank.stream, first)?;
        }
        ended.record(first).explain("record an event")?;
        group.wait()?;
        if repeat >= 2 {
            times.push(f64::from(started.elapsed_ms(&ended).explain("read the events")?) * 1000.0 / CHAIN as f64);
        }
    }
    Ok(spread(&times))
}

/// One of our all-reduces in a graph chain, on one grid.
///
/// # Errors
/// As [`graph_chain`].
pub fn ours(group: &Group, implementation: Implementation, bytes: u64, grid: Grid) -> Result<Spread> {
    let message = Message { bytes, set: 0 };
    graph_chain(group, &|| enqueue_all(group, implementation, message, grid))
}

/// Grids worth trying beside the default.
pub fn grids(group: &Group, implementation: Implementation, bytes: u64) -> Vec<Grid> {
    let standard = implementation.grid(bytes, group.options.ranks, group.blocks_max);
    let mut all = vec![standard];
    if implementation == Implementation::CopyEngineRing {
        return all;
    }
    for threads in [128, 256, 512] {
        let mut blocks = 1;
        while blocks <= group.blocks_max {
            let grid = Grid { blocks, threads };
            let enough = implementation != Implementation::PacketAllPair || threads / 32 >= group.options.ranks - 1;
            // More threads than items only add barriers; far too few are never best.
            let items = u64::from(blocks * threads) * 8;
            if enough && !all.contains(&grid) && items <= bytes.max(1024) * 4 && items * 64 >= bytes {
                all.push(grid);
            }
            blocks *= 2;
        }
    }
    all
}

/// The best of [`grids`], by median.
///
/// # Errors
/// As [`graph_chain`].
pub fn best(group: &Group, implementation: Implementation, bytes: u64) -> Result<(Grid, Spread)> {
    let standard = implementation.grid(bytes, group.options.ranks, group.blocks_max);
    let mut best = (standard, ours(group, implementation, bytes, standard)?);
    for grid in grids(group, implementation, bytes).into_iter().skip(1) {
        // Where bandwidth rules, only the number of blocks still matters.
        if best.1.0 > LONG_US && grid.threads != THREADS_MAX {
            continue;
        }
        let spread = ours(group, implementation, bytes, grid)?;
        if spread.0 < best.1.0 {
            best = (grid, spread);
        }
    }
    Ok(best)
}

/// The row for one of our measurements.
pub fn row(
    group: &Group,
    machine: &str,
    implementation: Implementation,
    bytes: u64,
    grid: Grid,
    timing: &str,
    spread: Spread,
) -> Observation {
    let (name, algorithm, protocol) = implementation.names();
    Observation {
        machine: machine.to_owned(),
        ranks: group.options.ranks,
        implementation: name.to_owned(),
        algorithm: algorithm.to_owned(),
        protocol: protocol.to_owned(),
        channels: grid.blocks.to_string(),
        threads: grid.threads.to_string(),
        buffer_bytes: String::new(),
        timing: timing.to_owned(),
        bytes,
        dtype: group.options.element,
        version: format!("lanecast {}", env!("CARGO_PKG_VERSION")),
        collective: "all_reduce".to_owned(),
        latency_us: spread.0,
        low_us: spread.1,
        high_us: spread.2,
        source: format!("calibrate, kernel {}, chain of {CHAIN}, {REPEATS} repetitions", implementation.kernel()),
    }
}
