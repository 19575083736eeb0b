//! The ring whose copies the copy engines make: the host orders copies and
//! adding kernels by events, which a captured graph turns into edges.

use cudarc::driver::PushKernelArg;
use cudarc::driver::result;

use crate::error::Result;
use crate::gpu::fault::Explain;
use crate::gpu::group::Group;
use crate::gpu::group::Message;
use crate::gpu::group::SETS;
use crate::gpu::group::config;
use crate::gpu::implementation::Grid;
use crate::gpu::implementation::Implementation;

/// Puts a whole all-reduce on the streams of all ranks. Chunks are multiples
/// of 8 elements, so that each starts at a 16-byte boundary.
///
/// # Errors
/// When the driver refuses.
pub fn enqueue(group: &Group, message: Message, grid: Grid) -> Result<()> {
    let ranks = group.ranks.len();
    let elements = message.bytes / 2;
    let chunk = elements.div_ceil(ranks as u64).next_multiple_of(8);
    let part = |c: usize| {
        let from = (c as u64 * chunk).min(elements);
        (from * 2, (from + chunk).min(elements) - from)
    };
    let offset = message.set % SETS * group.options.bytes_max;
    for step in 0..2 * ranks - 2 {
        let adds = step < ranks - 1;
        // The chunk that rank r sends in this step, adding or copying.
        let sent = |r: usize| (r + 2 * ranks - step) % ranks;
        for r in 0..ranks {
            let next = (r + 1) % ranks;
            let (at, count) = part(sent(r));
            // The first step sends the input itself, later ones what was summed.
            let source = if step == 0 { group.ranks[r].input.address() } else { group.ranks[r].output.address() } + offset + at;
            let base = if adds { group.ranks[next].staging.address() } else { group.ranks[next].output.address() + offset };
            copy(group, r, next, source, base + at, count * 2)?;
        }
        exchange(group)?;
        if adds {
            for r in 0..ranks {
                let (at, count) = part(sent((r + ranks - 1) % ranks));
                accumulate(group, r, offset, at, count, grid)?;
            }
        }
    }
    Ok(())
}

/// Rank r's next step waits for the copy into its memory by its predecessor.
/// (Its own copy out of a chunk is ordered before that chunk is written again
/// by its own stream and by the ring itself.)
fn exchange(group: &Group) -> Result<()> {
    let ranks = group.ranks.len();
    // All events are recorded before any wait is added: the waits of one step
    // must not order the copies of the same step.
    let mut events = Vec::with_capacity(ranks);
    for rank in &group.ranks {
        events.push(rank.stream.record_event(None).explain("record an event")?);
    }
    for (r, rank) in group.ranks.iter().enumerate() {
        let previous = &events[(r + ranks - 1) % ranks];
        rank.context.bind_to_thread().explain("select the device")?;
        let flags = cudarc::driver::sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: stream and event are alive; the driver keeps what it needs.
        unsafe { result::stream::wait_event(rank.stream.cu_stream(), previous.cu_event(), flags) }.explain("wait for an event")?;
    }
    Ok(())
}

fn copy(group: &Group, from: usize, to: usize, source: u64, target: u64, bytes: u64) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let (sender, receiver) = (&group.ranks[from], &group.ranks[to]);
    let bytes = usize::try_from(bytes).unwrap_or(0);
    sender.context.bind_to_thread().explain("select the device")?;
    if sender.context.ordinal() == receiver.context.ordinal() {
        // SAFETY: both ranges lie in buffers of the group, of `bytes_max` a set.
        return unsafe { result::memcpy_dtod_async(target, source, bytes, sender.stream.cu_stream()) }.explain("copy");
    }
    let contexts = (receiver.context.cu_ctx(), sender.context.cu_ctx());
    // SAFETY: as above, with each buffer in its own context.
    unsafe { result::memcpy_peer_async(contexts.0, target, contexts.1, source, bytes, sender.stream.cu_stream()) }.explain("copy to a peer")
}

fn accumulate(group: &Group, rank: usize, offset: u64, at: u64, elements: u64, grid: Grid) -> Result<()> {
    if elements == 0 {
        return Ok(());
    }
    let me = &group.ranks[rank];
    let variant = Implementation::CopyEngineRing.variant(group.options.ranks, group.options.element);
    let function = group.function(rank, "accumulate", "accumulate", &variant)?;
    let (input, staged, output) = (me.input.address() + offset + at, me.staging.address() + at, me.output.address() + offset + at);
    let mut launch = me.stream.launch_builder(&function);
    launch.arg(&input).arg(&staged).arg(&output).arg(&elements);
    // SAFETY: four words as the kernel declares; the ranges lie in the group's buffers.
    unsafe { launch.launch(config(grid)) }.explain("launch accumulate")?;
    Ok(())
}
