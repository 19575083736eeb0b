//! Green contexts: each rank of a shared GPU on multiprocessors of its own, so
//! that one rank's blocks cannot take another's places.
//!
//! Tried, not used by default: occupancy already keeps all blocks resident
//! together (`Group::check_resident`), and the driver splits a GPU in
//! steps only (8 multiprocessors on compute capability 9.0). What it costs or
//! brings is a row of the measurements.

use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::sys;

use crate::error::{Fault, Result};
use crate::gpu::device;
use crate::gpu::fault::Explain;

/// A context a rank, rank r on GPU `r % contexts.len()`.
///
/// The contexts live until the worker ends: a green context must not be
/// destroyed as ordinary ones are.
///
/// # Errors
/// `gpu-driver` when the driver cannot split a GPU so.
pub fn homes(contexts: &[Arc<CudaContext>], ranks: u32) -> Result<Vec<Arc<CudaContext>>> {
    let sharing = ranks.div_ceil(u32::try_from(contexts.len()).unwrap_or(1).max(1));
    let parts = contexts.iter().map(|context| split(context, sharing)).collect::<Result<Vec<_>>>()?;
    let mut homes = Vec::new();
    for rank in 0..ranks as usize {
        let part = &parts[rank % contexts.len()][rank / contexts.len()];
        std::mem::forget(part.clone());
        homes.push(part.clone());
    }
    Ok(homes)
}

/// Multiprocessors that each of `count` equal parts of a GPU gets at most.
pub fn share(multiprocessors: u32, count: u32) -> u32 {
    (multiprocessors / count.max(1) / 8 * 8).max(8)
}

fn split(context: &Arc<CudaContext>, count: u32) -> Result<Vec<Arc<CudaContext>>> {
    context.bind_to_thread().explain("select the device")?;
    let device = context.cu_device();
    // SAFETY: all zeros is a valid value of this plain C structure.
    let mut whole: sys::CUdevResource = unsafe { std::mem::zeroed() };
    let kind = sys::CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
    // SAFETY: a valid device and a place for one resource.
    unsafe { sys::cuDeviceGetDevResource(device, &mut whole, kind) }.explain("ask for the multiprocessors to split")?;
    // SAFETY: as above.
    let mut parts: Vec<sys::CUdevResource> = vec![unsafe { std::mem::zeroed() }; count as usize];
    let mut made = count;
    let least = share(device::multiprocessors(context)?, count);
    // SAFETY: room for `made` parts; the remainder is not wanted.
    unsafe { sys::cuDevSmResourceSplitByCount(parts.as_mut_ptr(), &mut made, &whole, std::ptr::null_mut(), 0, least) }
        .explain("split the multiprocessors")?;
    if made < count {
        return Err(Fault::new("gpu-driver", format!("the driver splits this GPU into {made} parts, not {count}")));
    }
    parts.iter_mut().map(|part| open(context, part)).collect()
}

fn open(context: &Arc<CudaContext>, part: &mut sys::CUdevResource) -> Result<Arc<CudaContext>> {
    let (mut description, mut green, mut plain) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: one resource of this device, and a place for its description.
    unsafe { sys::cuDevResourceGenerateDesc(&mut description, part, 1) }.explain("describe the multiprocessors")?;
    let flags = sys::CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM as u32;
    // SAFETY: the description was made for this device.
    unsafe { sys::cuGreenCtxCreate(&mut green, description, context.cu_device(), flags) }.explain("make a green context")?;
    // SAFETY: the green context was just made.
    unsafe { sys::cuCtxFromGreenCtx(&mut plain, green) }.explain("use a green context")?;
    // SAFETY: valid, of this device, and never destroyed otherwise (`homes` keeps it for good).
    let made = unsafe { CudaContext::from_raw_context(context.ordinal(), context.cu_device(), plain) }.explain("use a green context")?;
    // SAFETY: nothing was allocated yet; streams are ordered by our own events.
    unsafe { made.disable_event_tracking() };
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_come_in_steps_of_eight() {
        // 132 / 8 = 16.5: two steps; 132 / 6 = 22: two; 132 / 2 = 66: eight.
        assert_eq!([8, 6, 2, 16].map(|n| share(132, n)), [16, 16, 64, 8]);
    }
}
