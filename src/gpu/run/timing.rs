//! Timing a pass in three layers: the total without instruments, each
//! operation from chains of N against 2 N, and the blocks of one rank at a
//! time by event nodes.

use crate::error::Result;
use crate::gpu::fault::Explain;
use crate::gpu::observation::spread;
use crate::gpu::run::execute::Marks;
use crate::gpu::run::execute::Runner;
use crate::gpu::run::program::Step;
use crate::gpu::run::program::Work;
use cudarc::driver::sys;

/// Median, least and most, in microseconds.
pub type Spread = (f64, f64, f64);

/// Operations of the shorter chain.
const CHAIN: usize = 16;
/// Replays of a chain that count.
const CHAIN_REPEATS: usize = 5;
/// Replays of an instrumented graph that count, per rank.
const MARK_REPEATS: usize = 5;

/// What one operation of a template costs by itself.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Chain {
    /// Index of its template in the plan's blocks.
    pub block: u32,
    /// Its name there.
    pub name: String,
    /// Operations of this kind in a pass of one rank.
    pub count: u64,
    /// (time of 2 N − time of N) / N.
    pub each_us: f64,
    /// The same from the least and the most of both.
    pub low_us: f64,
    /// See `low_us`.
    pub high_us: f64,
}

/// Blocks of one rank by event nodes.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Boundaries {
    /// Whose.
    pub rank: u32,
    /// Starts of all blocks and the end, from the first start.
    pub at_us: Vec<f64>,
    /// The whole of the instrumented graph.
    pub total_us: f64,
}

/// The total of the graph without instruments.
///
/// # Errors
/// When the device fails.
pub fn total(runner: &Runner<'_>, program: &[Vec<Step>], repeats: usize) -> Result<Vec<f64>> {
    let replay = runner.capture(|| runner.all(program, None))?;
    replay.times_us(3, repeats)
}

/// Each operation from chains: the instances of an operation in all its layers,
/// one after another on every rank, so that weights are cold.
///
/// # Errors
/// When the device fails.
pub fn chains(runner: &Runner<'_>, program: &[Vec<Step>], groups: &[(u32, &'static str, Vec<usize>)]) -> Result<Vec<Chain>> {
    let mut rows = Vec::new();
    for (block, name, places) in groups {
        if matches!(program[0][places[0]].work, Work::Done | Work::Collective(crate::gpu::run::exchange::Exchanged::Alone)) {
            continue;
        }
        let short = chain(runner, program, places, CHAIN)?;
        let long = chain(runner, program, places, 2 * CHAIN)?;
        let each = |more: f64, less: f64| (more - less).max(0.0) / CHAIN as f64;
        rows.push(Chain {
            block: *block,
            name: (*name).to_owned(),
            count: places.len() as u64,
            each_us: each(long.0, short.0),
            low_us: each(long.1, short.2),
            high_us: each(long.2, short.1),
        });
    }
    Ok(rows)
}

fn chain(runner: &Runner<'_>, program: &[Vec<Step>], places: &[usize], length: usize) -> Result<Spread> {
    let replay = runner.capture(|| {
        for i in 0..length {
            let steps: Vec<&Step> = program.iter().map(|steps| &steps[places[i % places.len()]]).collect();
            runner.enqueue(&steps, false)?;
        }
        Ok(())
    })?;
    Ok(spread(&replay.times_us(1, CHAIN_REPEATS)?))
}

/// The blocks of every rank in turn.
///
/// # Errors
/// When the device fails.
pub fn boundaries(runner: &Runner<'_>, program: &[Vec<Step>]) -> Result<Vec<Boundaries>> {
    let blocks = program[0].iter().filter(|step| step.begins).count();
    let mut all = Vec::new();
    for (rank, marked) in runner.ranks.iter().enumerate() {
        let timing = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let events = (0..=blocks).map(|_| marked.context.new_event(timing).explain("make an event")).collect::<Result<Vec<_>>>()?;
        let marks = Marks { rank, events: &events };
        let replay = runner.capture(|| runner.all(program, Some(&marks)))?;
        replay.time_us()?;
        let mut stamps: Vec<Vec<f64>> = vec![Vec::new(); blocks + 1];
        let mut totals = Vec::new();
        for _ in 0..MARK_REPEATS {
            totals.push(replay.time_us()?);
            for (stamps, event) in stamps.iter_mut().zip(&events) {
                stamps.push(f64::from(events[0].elapsed_ms(event).explain("read the events")?) * 1000.0);
            }
        }
        let at_us = stamps.iter().map(|s| spread(s).0).collect();
        all.push(Boundaries { rank: rank as u32, at_us, total_us: spread(&totals).0 });
    }
    Ok(all)
}
