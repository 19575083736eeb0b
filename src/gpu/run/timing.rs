//! Timing a pass in layers: the total without instruments; each operation by
//! itself, from chains of N against 2 N; each operation in its place, from the
//! pass against the pass without it; and the blocks of one rank at a time by
//! event nodes.

use crate::error::Result;
use crate::gpu::fault::Explain;
use crate::gpu::observation::spread;
use crate::gpu::run::execute::Marks;
use crate::gpu::run::execute::Runner;
use crate::gpu::run::program::Step;
use crate::gpu::run::program::Work;
use crate::gpu::run::weights::Pool;
use cudarc::driver::sys;

/// Median, least and most, in microseconds.
pub type Spread = (f64, f64, f64);

/// Operations of the shorter chain.
const CHAIN: usize = 16;
/// Replays of a chain that count.
const CHAIN_REPEATS: usize = 5;
/// Operations rarer than this are too small a part of a pass to be told from its spread.
const IN_PASS_LEAST: usize = 8;
/// Replays of the whole pass and of one with less in it that count.
const IN_PASS_REPEATS: usize = 5;
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
    /// (time of the pass − time of the pass without these operations) / their number.
    #[serde(default)]
    pub in_pass_us: Option<f64>,
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
    let replay = runner.capture(|| runner.all(program, None, &[]))?;
    replay.times_us(3, repeats)
}

/// What each operation takes where it stands: the pass against a graph of the
/// pass without it, in turns so that both see the same clocks. What is left out
/// leaves the values of passes before it in place; so that no other experts are
/// chosen then, both choose by fixed random scores. Returns the whole pass's
/// time with those.
///
/// # Errors
/// When the device fails.
pub fn in_pass(
    runner: &Runner<'_>,
    program: &[Vec<Step>],
    groups: &[(u32, &'static str, Vec<usize>)],
    chains: &mut [Chain],
) -> Result<f64> {
    let program = with_fixed_choices(runner, program);
    let whole = runner.capture(|| runner.all(&program, None, &[]))?;
    let all_us = spread(&whole.times_us(1, IN_PASS_REPEATS)?).0;
    for (block, name, places) in groups.iter().filter(|group| group.2.len() >= IN_PASS_LEAST) {
        let Some(chain) = chains.iter_mut().find(|chain| chain.block == *block && chain.name == *name) else { continue };
        let with = spread(&whole.times_us(0, IN_PASS_REPEATS)?).0;
        let less = runner.capture(|| runner.all(&program, None, places))?;
        let without = spread(&less.times_us(1, IN_PASS_REPEATS)?).0;
        chain.in_pass_us = Some((with - without) / places.len() as f64);
    }
    Ok(all_us)
}

/// Bytes from one layer's fixed scores to the next: 8 tokens of 512 experts.
const SCORES_BYTES: u64 = 8 * 512 * 2;

/// The program with experts chosen by random numbers of a weight pool, others in each layer, alike on all ranks
/// where the pool is; what is computed is unchanged.
fn with_fixed_choices(runner: &Runner<'_>, program: &[Vec<Step>]) -> Vec<Vec<Step>> {
    let mut program = program.to_vec();
    for (steps, rank) in program.iter_mut().zip(runner.ranks) {
        let pool = [Pool::Replicated, Pool::Sharded].map(|pool| rank.pools.buffer(pool)).into_iter().max_by_key(|pool| pool.bytes());
        let Some(pool) = pool else { continue };
        let places = (pool.bytes() as u64 / SCORES_BYTES).max(1);
        for step in steps.iter_mut().filter(|step| step.id.name == "router") {
            // The product, the choice, the list of distinct experts.
            if let (Work::Kernels(kernels), Some(layer)) = (&mut step.work, step.id.place.layer())
                && let [_, choice, _] = kernels.as_mut_slice()
                && pool.bytes() as u64 >= SCORES_BYTES
            {
                choice.words.set(0, pool.address() + u64::from(layer) % places * SCORES_BYTES);
            }
        }
    }
    program
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
            in_pass_us: None,
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
        let replay = runner.capture(|| runner.all(program, Some(&marks), &[]))?;
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
