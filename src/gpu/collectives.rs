//! Series of all-reduce measurements: ours by size and grid, NCCL's under the
//! worker's environment, and both side by side.

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
use crate::gpu::group::config;
use crate::gpu::implementation::Grid;
use crate::gpu::implementation::Implementation;
use crate::gpu::measure;
use crate::gpu::measure::CHAIN;
use crate::gpu::measure::REPEATS;
use crate::gpu::measure::Spread;
use crate::gpu::nccl;
use crate::gpu::nccl::Communicators;
use crate::gpu::observation::Micro;
use crate::gpu::observation::Observation;
use crate::gpu::reference::Inputs;
use crate::gpu::skew;

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

/// NCCL under one environment.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct NcclOptions {
    /// Machine id for the rows.
    pub machine: String,
    /// Ranks.
    pub ranks: u32,
    /// GPUs to spread ranks over.
    pub devices: usize,
    /// Element type.
    pub element: Element,
    /// Message sizes.
    pub sizes: Vec<u64>,
    /// Columns of the rows, as the environment sets them.
    pub algorithm: String,
    /// See `algorithm`.
    pub protocol: String,
    /// See `algorithm`: `N` or `N-M`.
    pub channels: String,
    /// See `algorithm`.
    pub threads: String,
    /// See `algorithm`.
    pub buffer_bytes: String,
    /// Bounds on channels for this communicator, 0 for none.
    pub channels_min: i32,
    /// See `channels_min`.
    pub channels_max: i32,
    /// Ours, measured in the same process right after NCCL at each size.
    pub beside: Vec<Implementation>,
    /// Also launched one by one.
    pub eager: bool,
    /// The file that `NCCL_DEBUG_FILE` names, to read its choices from.
    pub debug_file: Option<std::path::PathBuf>,
}

fn open(ranks: u32, devices: usize, element: Element, sizes: &[u64], host_bytes_max: u64) -> Result<Group> {
    let bytes_max = sizes.iter().copied().max().unwrap_or(2);
    let options = Options { ranks, devices, element, bytes_max, host_bytes_max: host_bytes_max.min(bytes_max), timeout_ms: 2000 };
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
            if bytes.is_multiple_of(14_336) {
                let tokens = u32::try_from(bytes / 14_336).unwrap_or(1);
                fused_row(&group, &options.machine, tokens, 7168, tell)?;
            }
        }
        tell(Answer::Progress(format!("ours: {ranks} ranks done")));
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
    if options.eager {
        let message = Message { bytes, set: 0 };
        let spread = measure::eager_chain(group, &|| enqueue_all(group, implementation, message, grid))?;
        tell(Answer::Observation(measure::row(group, &options.machine, implementation, bytes, grid, "eager_chain_single_thread", spread)));
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

/// Measures NCCL as the environment makes it, ours beside it.
///
/// # Errors
/// When NCCL or a device fails.
pub fn nccl(options: &NcclOptions, tell: &mut dyn FnMut(Answer)) -> Result<()> {
    let group = open(options.ranks, options.devices, options.element, &options.sizes, 0)?;
    let communicators = Communicators::open(&group, options.channels_min, options.channels_max)?;
    for &bytes in &options.sizes {
        let message = Message { bytes, set: 0 };
        let spread = measure::graph_chain(&group, &|| communicators.enqueue(message))?;
        tell(Answer::Observation(nccl_row(options, bytes, "graph_chain", spread)));
        for &implementation in options.beside.iter().filter(|i| group.supports(**i, bytes)) {
            let (grid, spread) = measure::best(&group, implementation, bytes)?;
            tell(Answer::Observation(measure::row(&group, &options.machine, implementation, bytes, grid, "graph_chain", spread)));
        }
        if options.eager {
            let spread = measure::eager_chain(&group, &|| communicators.enqueue(message))?;
            tell(Answer::Observation(nccl_row(options, bytes, "eager_chain_single_thread", spread)));
        }
    }
    drop(communicators);
    if let Some(file) = &options.debug_file {
        nccl::choices(file).into_iter().for_each(|choice| tell(Answer::Choice(choice)));
    }
    Ok(())
}

fn nccl_row(options: &NcclOptions, bytes: u64, timing: &str, spread: Spread) -> Observation {
    Observation {
        machine: options.machine.clone(),
        ranks: options.ranks,
        implementation: "nccl".to_owned(),
        algorithm: options.algorithm.clone(),
        protocol: options.protocol.clone(),
        channels: options.channels.clone(),
        threads: options.threads.clone(),
        buffer_bytes: options.buffer_bytes.clone(),
        timing: timing.to_owned(),
        bytes,
        dtype: options.element,
        version: nccl::version().map_or_else(String::new, nccl::version_text),
        collective: "all_reduce".to_owned(),
        latency_us: spread.0,
        low_us: spread.1,
        high_us: spread.2,
        source: format!("calibrate, NCCL, out of place, chain of {CHAIN}, {REPEATS} repetitions"),
    }
}

/// All ranks but the last launch an all-reduce: it must be reported within
/// seconds whom they waited for, and the group must work again afterwards.
///
/// # Errors
/// `gpu-stuck`, as it should; any other is a failure of the check.
pub fn stopped_rank(ranks: u32) -> Result<()> {
    let group = open(ranks, usize::MAX, Element::Bf16, &[43_008], 0)?;
    let implementation = Implementation::OneShotPushLl;
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
