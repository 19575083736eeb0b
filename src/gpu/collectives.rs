//! Series of measurements of our own all-reduces, by size and grid; and what a
//! stopped rank, one graph for all ranks and green contexts do to them.

use cudarc::driver::PushKernelArg;

use crate::error::Result;
use crate::gpu::answer::Answer;
use crate::gpu::arguments::Norm;
use crate::gpu::check::enqueue_all;
use crate::gpu::element::Element;
use crate::gpu::fault::Explain;
use crate::gpu::fused;
use crate::gpu::group::Group;
use crate::gpu::group::Message;
use crate::gpu::group::Options;
use crate::gpu::group::TIMEOUT_MS;
use crate::gpu::group::config;
use crate::gpu::implementation::Grid;
use crate::gpu::implementation::Implementation;
use crate::gpu::measure;
use crate::gpu::measure::CHAIN;
use crate::gpu::measure::REPEATS;
use crate::gpu::measure::Spread;
use crate::gpu::micro;
use crate::gpu::observation::Micro;
use crate::gpu::reference::Inputs;
use crate::gpu::skew;
use crate::gpu::threads;

/// Our all-reduces.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct OursOptions {
    /// Machine id for the rows.
    pub machine: String,
    /// Numbers of ranks.
    pub ranks: Vec<u32>,
    /// GPUs to spread ranks over.
    pub devices: usize,
    /// Element type.
    pub element: Element,
    /// Message sizes.
    pub sizes: Vec<u64>,
    /// Which; all if empty.
    pub implementations: Vec<Implementation>,
    /// Try several grids and keep the best.
    pub tune: bool,
    /// Also launched one by one.
    pub eager: bool,
    /// The longest message through host memory.
    pub host_bytes_max: u64,
}

/// A group with random inputs, for messages of `sizes`.
///
/// # Errors
/// Those of [`Group::open`].
pub fn open(ranks: u32, devices: usize, element: Element, sizes: &[u64], host_bytes_max: u64) -> Result<Group> {
    let bytes_max = sizes.iter().copied().max().unwrap_or(2);
    let host_bytes_max = host_bytes_max.min(bytes_max);
    filled(Options { ranks, devices, element, bytes_max, host_bytes_max, timeout_ms: TIMEOUT_MS, green: false })
}

fn filled(options: Options) -> Result<Group> {
    let Options { ranks, element, bytes_max, .. } = options;
    let group = Group::open(options)?;
    // Random data: zeros can be faster than anything real.
    let inputs = Inputs::random(ranks as usize, bytes_max as usize / 2, element, 42);
    for (rank, data) in group.ranks.iter().zip(&inputs.ranks) {
        rank.input.write(0, data)?;
    }
    Ok(group)
}

/// Measures our all-reduces.
///
/// # Errors
/// When a device fails or a call gives up waiting.
pub fn ours(options: &OursOptions, tell: &mut dyn FnMut(Answer)) -> Result<()> {
    for &ranks in &options.ranks {
        let group = open(ranks, options.devices, options.element, &options.sizes, options.host_bytes_max)?;
        let all: &[Implementation] = if options.implementations.is_empty() { &Implementation::ALL } else { &options.implementations };
        for &bytes in &options.sizes {
            for &implementation in all.iter().filter(|i| group.supports(**i, bytes)) {
                one(&group, options, implementation, bytes, tell)?;
            }
            if group.peers && options.implementations.is_empty() && bytes.is_multiple_of(14_336) {
                let tokens = u32::try_from(bytes / 14_336).unwrap_or(1);
                fused_row(&group, &options.machine, tokens, 7168, tell)?;
            }
        }
    }
    Ok(())
}

fn one(group: &Group, options: &OursOptions, implementation: Implementation, bytes: u64, tell: &mut dyn FnMut(Answer)) -> Result<()> {
    let standard = implementation.grid(bytes, group.options.ranks, group.blocks_max);
    let (grid, spread) = if options.tune {
        measure::best(group, implementation, bytes)?
    } else {
        (standard, measure::ours(group, implementation, bytes, standard)?)
    };
    tell(Answer::Observation(measure::row(group, &options.machine, implementation, bytes, grid, "graph_chain", spread)));
    if options.eager && spread.0 < measure::LONG_US {
        let message = Message { bytes, set: 0 };
        let spread = measure::eager_chain(group, &|| enqueue_all(group, implementation, message, grid))?;
        tell(Answer::Observation(measure::row(group, &options.machine, implementation, bytes, grid, "eager_chain_single_thread", spread)));
        if implementation != Implementation::CopyEngineRing {
            let spread = threads::ours(group, implementation, message, grid)?;
            let timing = "eager_chain_thread_per_rank";
            tell(Answer::Observation(measure::row(group, &options.machine, implementation, bytes, grid, timing, spread)));
        }
    }
    Ok(())
}

/// The fused kernel, the best of a few splits.
fn fused_row(group: &Group, machine: &str, tokens: u32, hidden: u32, tell: &mut dyn FnMut(Answer)) -> Result<()> {
    let work = fused::Work::open(group, tokens, hidden)?;
    let mut best: Option<(fused::Shape, Spread)> = None;
    for shape in fused::shapes(tokens, hidden, group.blocks_max) {
        let spread = measure::graph_chain(group, &|| work.enqueue_all(shape))?;
        if best.is_none_or(|b| spread.0 < b.1.0) {
            best = Some((shape, spread));
        }
    }
    let Some((shape, spread)) = best else { return Ok(()) };
    let grid = Grid { blocks: tokens * shape.split, threads: shape.threads };
    let bytes = u64::from(tokens) * u64::from(hidden) * 2;
    let mut row = measure::row(group, machine, Implementation::OneShotPushLl, bytes, grid, "graph_chain", spread);
    row.implementation = "fused_one_shot".to_owned();
    row.source = format!(
        "calibrate, kernel fused_one_shot (all-reduce, residual, RMSNorm), {tokens} x {hidden}, chain of {CHAIN}, {REPEATS} repetitions"
    );
    tell(Answer::Observation(row));
    Ok(())
}

/// All ranks but the last launch an all-reduce: it must be reported within
/// seconds whom they waited for, and the group must work again afterwards.
///
/// # Errors
/// `gpu-stuck`, as it should; any other is a failure of the check.
pub fn stopped_rank(ranks: u32) -> Result<()> {
    let group = open(ranks, usize::MAX, Element::Bf16, &[43_008], 43_008)?;
    let implementation = if group.peers { Implementation::OneShotPushLl } else { Implementation::HostStaged };
    let grid = implementation.grid(43_008, ranks, group.blocks_max);
    let message = Message { bytes: 43_008, set: 0 };
    for rank in 0..ranks as usize - 1 {
        group.enqueue(rank, implementation, message, grid)?;
    }
    let outcome = group.wait();
    enqueue_all(&group, implementation, message, grid)?;
    group.wait()?;
    outcome
}

/// The start skew in a chain of our own all-reduces of 43,008 bytes.
///
/// # Errors
/// When a device fails.
pub fn chain_skew(ranks: u32, tell: &mut dyn FnMut(Micro)) -> Result<()> {
    let group = open(ranks, 1, Element::Bf16, &[43_008], 0)?;
    let implementation = Implementation::SymmetricLl;
    // One multiprocessor is left to the clock.
    let grid = implementation.grid(43_008, ranks, (group.blocks_max - 1).max(1));
    skew::chain_skew(&group, &|| enqueue_all(&group, implementation, Message { bytes: 43_008, set: 0 }, grid), tell)
}

/// What green contexts do to our one-shot all-reduces in a graph chain.
///
/// # Errors
/// `gpu-driver` where the driver cannot split the GPU.
pub fn green_contexts(ranks: u32, tell: &mut dyn FnMut(Micro)) -> Result<()> {
    for green in [false, true] {
        let group = filled(Options {
            ranks,
            devices: usize::MAX,
            element: Element::Bf16,
            bytes_max: 262_144,
            host_bytes_max: 0,
            timeout_ms: TIMEOUT_MS,
            green,
        })?;
        for bytes in [14_336, 43_008, 262_144] {
            let implementation = Implementation::SymmetricLl;
            let grid = implementation.grid(bytes, ranks, group.blocks_max);
            let spread = measure::ours(&group, implementation, bytes, grid)?;
            let name = format!("{}_contexts_symmetric_r{ranks}_{bytes}_us", if green { "green" } else { "plain" });
            micro::put(tell, &name, spread);
        }
    }
    Ok(())
}

/// Launches the fused kernel on one rank.
///
/// # Errors
/// When it does not compile or launch.
pub fn enqueue_fused(group: &Group, rank: usize, norm: &Norm, tokens: u32, shape: fused::Shape) -> Result<()> {
    let function = group.function(rank, "fused_one_shot", "fused_one_shot", &shape.variant(group, norm.hidden))?;
    let bytes = u64::from(tokens) * u64::from(norm.hidden) * 2;
    let arguments = group.arguments(rank, false, Message { bytes, set: 0 });
    let stream = group.ranks[rank].stream.clone();
    let mut launch = stream.launch_builder(&function);
    launch.arg(&arguments).arg(norm);
    // SAFETY: the arguments mirror the kernel's; buffers outlive the group's waits.
    unsafe { launch.launch(config(Grid { blocks: tokens * shape.split, threads: shape.threads })) }.explain("launch fused_one_shot")?;
    Ok(())
}
