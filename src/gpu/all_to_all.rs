//! Launches and checks the all-to-all kernel.

use cudarc::driver::PushKernelArg;

use crate::error::{Fault, Result};
use crate::gpu::fault::Explain;
use crate::gpu::group::Group;
use crate::gpu::group::Message;
use crate::gpu::group::SETS;
use crate::gpu::group::config;
use crate::gpu::implementation::Grid;
use crate::gpu::implementation::Implementation;
use crate::gpu::kernel::Variant;
use crate::gpu::observation::Check;
use crate::gpu::reference::Inputs;

/// Bytes from one row to the next: rows start at multiples of 8 elements.
fn row_bytes(bytes: u64) -> u64 {
    bytes.div_ceil(16) * 16
}

/// Whether rows of `bytes` for every rank fit the group's buffers and regions.
pub fn supports(group: &Group, bytes: u64) -> bool {
    let ranks = u64::from(group.options.ranks);
    group.peers && bytes >= 2 && bytes <= group.options.bytes_max && ranks * row_bytes(bytes) <= SETS * group.options.bytes_max
}

/// Puts one all-to-all of `bytes` a pair on all ranks' streams.
///
/// # Errors
/// When it does not fit or launch.
pub fn enqueue_all(group: &Group, bytes: u64, grid: Grid) -> Result<()> {
    if !supports(group, bytes) {
        return Err(Fault::new("gpu-message", format!("an all-to-all of {bytes} bytes a pair does not fit this group")));
    }
    let variant = Variant::new(group.options.ranks, group.options.element);
    for rank in 0..group.ranks.len() {
        let function = group.function(rank, "all_to_all", "all_to_all", &variant)?;
        let arguments = group.arguments(rank, false, Message { bytes, set: 0 });
        let stream = group.ranks[rank].stream.clone();
        let mut launch = stream.launch_builder(&function);
        launch.arg(&arguments);
        // SAFETY: the arguments mirror the kernel's; the sizes were checked.
        unsafe { launch.launch(config(grid)) }.explain("launch all_to_all")?;
    }
    Ok(())
}

/// Runs `calls` times and compares every row bit by bit.
///
/// # Errors
/// When a device fails or a call gives up waiting.
pub fn check(group: &Group, inputs: &Inputs, bytes: u64, calls: u64) -> Result<Check> {
    let grid = Implementation::OneShotPushLl.grid(bytes, group.options.ranks, group.blocks_max);
    for rank in &group.ranks {
        rank.output.fill(0xff)?;
    }
    for _ in 0..calls {
        enqueue_all(group, bytes, grid)?;
    }
    group.wait()?;
    let (count, stride) = (bytes as usize / 2, row_bytes(bytes) as usize / 2);
    let mut wrong = 0;
    for (rank, me) in group.ranks.iter().enumerate() {
        for (peer, sent) in inputs.ranks.iter().enumerate() {
            let mut row = vec![0_u16; count];
            me.output.read(peer * stride * 2, &mut row)?;
            wrong += row.iter().zip(&sent[rank * stride..rank * stride + count]).filter(|(a, b)| a != b).count() as u64;
        }
    }
    Ok(Check {
        name: "AllToAll".to_owned(),
        ranks: group.options.ranks,
        dtype: group.options.element,
        bytes,
        calls,
        wrong,
        relative_error: 0.0,
    })
}
