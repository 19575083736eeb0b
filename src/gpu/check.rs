//! Every kernel against the double-precision reference on fresh random inputs,
//! with poisoned outputs; and long chains that look for races.

use cudarc::driver::PushKernelArg;

use crate::error::Result;
use crate::gpu::all_to_all;
use crate::gpu::copy_ring;
use crate::gpu::element::Element;
use crate::gpu::fault::Explain;
use crate::gpu::fused;
use crate::gpu::graph::Replay;
use crate::gpu::group::Group;
use crate::gpu::group::Message;
use crate::gpu::group::Options;
use crate::gpu::group::SETS;
use crate::gpu::group::config;
use crate::gpu::implementation::Grid;
use crate::gpu::implementation::Implementation;
use crate::gpu::kernel::Variant;
use crate::gpu::memory::DeviceBuffer;
use crate::gpu::observation::Check;
use crate::gpu::reference::Inputs;

/// What is checked.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct CheckOptions {
    /// Numbers of ranks.
    pub ranks: Vec<u32>,
    /// GPUs to spread ranks over.
    pub devices: usize,
    /// Element types.
    pub elements: Vec<Element>,
    /// Message sizes in bytes, even.
    pub sizes: Vec<u64>,
    /// Implementations; all if empty.
    pub implementations: Vec<Implementation>,
    /// Calls of each long chain at the sizes of `soak_sizes`.
    pub soak_calls: u64,
    /// Sizes that get `soak_calls`; the others get `calls`.
    pub soak_sizes: Vec<u64>,
    /// Calls of the chain at every other size.
    pub calls: u64,
    /// Names the random inputs.
    pub seed: u64,
    /// The longest message through host memory.
    pub host_bytes_max: u64,
    /// How long a call may wait; tools that slow kernels down need more than `group::TIMEOUT_MS`.
    pub timeout_ms: u64,
}

/// Enqueues one all-reduce on all ranks.
///
/// # Errors
/// When it cannot be launched.
pub fn enqueue_all(group: &Group, implementation: Implementation, message: Message, grid: Grid) -> Result<()> {
    if implementation == Implementation::CopyEngineRing {
        return copy_ring::enqueue(group, message, grid);
    }
    (0..group.ranks.len()).try_for_each(|rank| group.enqueue(rank, implementation, message, grid))
}

/// Checks all that `options` name, telling each result as it comes.
///
/// # Errors
/// When a device fails or a call never ends; wrong sums are rows, not faults.
pub fn check_kernels(options: &CheckOptions, tell: &mut dyn FnMut(Check)) -> Result<()> {
    for &ranks in &options.ranks {
        for &element in &options.elements {
            let bytes_max = options.sizes.iter().copied().max().unwrap_or(2);
            let group = Group::open(Options {
                ranks,
                devices: options.devices,
                element,
                bytes_max,
                host_bytes_max: options.host_bytes_max.min(bytes_max),
                timeout_ms: options.timeout_ms,
                green: false,
            })?;
            // Calls across the wrap of the epoch counter are part of the check.
            group.set_epochs(0xffff_fff0)?;
            let seed = options.seed ^ u64::from(ranks) << 32 ^ element as u64;
            let inputs = Inputs::random(ranks as usize, group.options.bytes_max as usize / 2 * SETS as usize, element, seed);
            for (rank, data) in group.ranks.iter().zip(&inputs.ranks) {
                rank.input.write(0, data)?;
            }
            for &bytes in &options.sizes {
                check_size(&group, &inputs, bytes, options, tell)?;
            }
        }
    }
    Ok(())
}

fn check_size(group: &Group, inputs: &Inputs, bytes: u64, options: &CheckOptions, tell: &mut dyn FnMut(Check)) -> Result<()> {
    let stride = group.options.bytes_max as usize / 2;
    let count = bytes as usize / 2;
    let element = group.options.element;
    let expected: Vec<_> = (0..SETS as usize).map(|set| inputs.expected(set * stride, count, element)).collect();
    let wanted: &[Implementation] = if options.implementations.is_empty() { &Implementation::ALL } else { &options.implementations };
    for &implementation in wanted {
        if !group.supports(implementation, bytes) {
            continue;
        }
        let grid = implementation.grid(bytes, group.options.ranks, group.blocks_max);
        let mut row = Check {
            name: format!("{implementation:?}"),
            ranks: group.options.ranks,
            dtype: element,
            bytes,
            calls: SETS,
            wrong: 0,
            relative_error: 0.0,
        };
        for rank in &group.ranks {
            rank.output.fill(0xff)?;
        }
        for set in 0..SETS {
            enqueue_all(group, implementation, Message { bytes, set }, grid)?;
        }
        group.wait()?;
        for (set, expected) in expected.iter().enumerate() {
            let first = output(group, 0, set, count)?;
            let verdict = expected.compare(&first, element, implementation.roundings(group.options.ranks));
            row.wrong += verdict.wrong;
            row.relative_error = row.relative_error.max(verdict.relative_error);
            for rank in 1..group.ranks.len() {
                let other = output(group, rank, set, count)?;
                row.wrong += first.iter().zip(&other).filter(|(a, b)| a != b).count() as u64;
            }
        }
        let calls = if options.soak_sizes.contains(&bytes) { options.soak_calls } else { options.calls };
        if row.wrong == 0 && calls > 0 {
            row.wrong += soak(group, implementation, bytes, grid, calls)?;
            row.calls += calls;
        }
        tell(row);
    }
    if all_to_all::supports(group, bytes) {
        tell(all_to_all::check(group, inputs, bytes, 9)?);
    }
    if group.peers && bytes.is_multiple_of(1024 * 2) && bytes <= 16 * 7168 * 2 {
        check_fused(group, inputs, bytes, tell)?;
    }
    Ok(())
}

/// The fused kernel in all its shapes, on the width that makes most tokens.
fn check_fused(group: &Group, inputs: &Inputs, bytes: u64, tell: &mut dyn FnMut(Check)) -> Result<()> {
    let hidden = [7168, 4096, 1024].into_iter().find(|h| bytes.is_multiple_of(h * 2)).unwrap_or(1024);
    let tokens = u32::try_from(bytes / (hidden * 2)).unwrap_or(1);
    let work = fused::Work::open(group, tokens, hidden as u32)?;
    for shape in fused::shapes(tokens, hidden as u32, group.blocks_max) {
        tell(work.check(inputs, shape)?);
    }
    Ok(())
}

fn output(group: &Group, rank: usize, set: usize, count: usize) -> Result<Vec<u16>> {
    let mut out = vec![0_u16; count];
    group.ranks[rank].output.read(set * group.options.bytes_max as usize, &mut out)?;
    Ok(out)
}

/// A replayed chain whose calls rotate through the sets; each output is
/// compared on the GPU with the first (checked) one. Two halves and three sets:
/// data left over from the call before last is another set's.
fn soak(group: &Group, implementation: Implementation, bytes: u64, grid: Grid, calls: u64) -> Result<u64> {
    const CHAIN: u64 = 48;
    let mut expected = Vec::new();
    let mut wrong = Vec::new();
    let mut copy = vec![0_u8; group.ranks[0].output.bytes()];
    for rank in &group.ranks {
        rank.output.read(0, &mut copy)?;
        let buffer = DeviceBuffer::filled(&rank.context, copy.len(), 0)?;
        buffer.write(0, &copy)?;
        expected.push(buffer);
        wrong.push(DeviceBuffer::filled(&rank.context, 4, 0)?);
    }
    let replay = Replay::capture(group, || {
        for call in 0..CHAIN {
            let message = Message { bytes, set: call % SETS };
            enqueue_all(group, implementation, message, grid)?;
            for rank in 0..group.ranks.len() {
                compare(group, rank, message, expected[rank].address(), wrong[rank].address())?;
            }
        }
        Ok(())
    })?;
    for _ in 0..calls.div_ceil(CHAIN) {
        replay.launch()?;
    }
    group.wait()?;
    let mut total = 0;
    for buffer in &wrong {
        let mut count = [0_u32];
        buffer.read(0, &mut count)?;
        total += u64::from(count[0]);
    }
    Ok(total)
}

fn compare(group: &Group, rank: usize, message: Message, expected: u64, wrong: u64) -> Result<()> {
    let function = group.function(rank, "compare", "compare", &Variant::new(group.options.ranks, group.options.element))?;
    let offset = message.set % SETS * group.options.bytes_max;
    let (output, expected, elements) = (group.ranks[rank].output.address() + offset, expected + offset, message.bytes / 2);
    let blocks = u32::try_from(message.bytes.div_ceil(4 * 1024)).unwrap_or(1).clamp(1, group.blocks_max.min(8));
    let mut launch = group.ranks[rank].stream.launch_builder(&function);
    launch.arg(&output).arg(&expected).arg(&elements).arg(&wrong);
    // SAFETY: four words as the kernel declares; the ranges lie in live buffers.
    unsafe { launch.launch(config(Grid { blocks, threads: 512 })) }.explain("launch compare")?;
    Ok(())
}
