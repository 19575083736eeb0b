//! GPUs as the driver shows them, opened for use by kernels of our own.

use std::sync::Arc;
use std::sync::OnceLock;

use cudarc::driver::CudaContext;
use cudarc::driver::sys;
use cudarc::driver::sys::CUdevice_attribute as Attribute;

use crate::error::{Fault, Result};
use crate::gpu::fault::Explain;

/// The oldest driver whose symbols are all there: 12.8 (R570).
const DRIVER_MIN: i32 = 12_080;

/// Whether `libcuda` can be opened; asked once.
pub fn driver_present() -> bool {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    // SAFETY: opens and closes the library, nothing else.
    *PRESENT.get_or_init(|| unsafe { sys::is_culib_present() })
}

/// The CUDA version of the driver, e.g. 13000; checked to be new enough.
///
/// # Errors
/// `gpu-none` without a driver, `gpu-driver` when it is too old.
pub fn driver_version() -> Result<i32> {
    if !driver_present() {
        return Err(Fault::new("gpu-none", "no NVIDIA driver was found (libcuda.so.1)").help("run this on a machine with an NVIDIA GPU"));
    }
    let mut version = 0;
    // SAFETY: a valid place for an int; needs no initialisation.
    unsafe { sys::cuDriverGetVersion(&mut version) }.explain("ask the driver for its version")?;
    if version < DRIVER_MIN {
        let text = format!("the driver supports CUDA {}.{}, too old", version / 1000, version % 1000 / 10);
        return Err(Fault::new("gpu-driver", text).help("update the NVIDIA driver to R570 or later"));
    }
    Ok(version)
}

/// Number of GPUs.
///
/// # Errors
/// `gpu-none` without a driver or a GPU.
pub fn count() -> Result<usize> {
    driver_version()?;
    let count = CudaContext::device_count().map_err(|e| Fault::new("gpu-none", format!("the driver shows no GPU: {:?}", e.0)))?;
    match usize::try_from(count) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(Fault::new("gpu-none", "the driver shows no GPU").help("check nvidia-smi and CUDA_VISIBLE_DEVICES")),
    }
}

/// Opens GPU `ordinal`'s primary context, without cudarc's event tracking.
///
/// # Errors
/// `gpu-none` without such a device, or when it cannot be opened.
pub fn open(ordinal: usize) -> Result<Arc<CudaContext>> {
    let count = count()?;
    if ordinal >= count {
        return Err(Fault::new("gpu-none", format!("there is no GPU {ordinal}")).help(format!("the driver shows {count}, from 0 on")));
    }
    let context = CudaContext::new(ordinal).explain(&format!("open GPU {ordinal}"))?;
    // SAFETY: nothing was allocated yet; streams are ordered by our own events.
    unsafe { context.disable_event_tracking() };
    Ok(context)
}

/// One attribute of a device.
///
/// # Errors
/// When the driver does not know it.
pub fn attribute(context: &CudaContext, which: Attribute) -> Result<i32> {
    context.attribute(which).explain("ask for a device attribute")
}

/// Streaming multiprocessors.
///
/// # Errors
/// When the driver fails.
pub fn multiprocessors(context: &CudaContext) -> Result<u32> {
    let count = attribute(context, Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    Ok(u32::try_from(count).unwrap_or(1).max(1))
}

/// 90 for compute capability 9.0.
///
/// # Errors
/// When the driver fails.
pub fn architecture(context: &CudaContext) -> Result<u32> {
    let (major, minor) = context.compute_capability().explain("ask for the compute capability")?;
    Ok(u32::try_from(major * 10 + minor).unwrap_or(0))
}

/// The multiprocessors' highest clock in kHz, as the driver states it.
///
/// # Errors
/// When the driver fails.
pub fn clock_khz(context: &CudaContext) -> Result<u64> {
    let khz = attribute(context, Attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?;
    Ok(u64::try_from(khz).unwrap_or(0).max(1))
}

/// Lets kernels of `from` reach memory of `to`; true when they can.
///
/// # Errors
/// When the driver refuses although it says that access is possible.
pub fn enable_peer(from: &Arc<CudaContext>, to: &Arc<CudaContext>) -> Result<bool> {
    if !can_access_peer(from, to)? {
        return Ok(false);
    }
    from.bind_to_thread().explain("select the device")?;
    // SAFETY: both contexts are alive and `from` is current.
    let status = unsafe { sys::cuCtxEnablePeerAccess(to.cu_ctx(), 0) };
    if status == sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED {
        return Ok(true);
    }
    status.explain(&format!("let GPU {} reach GPU {}", from.ordinal(), to.ordinal()))?;
    Ok(true)
}

/// What the driver says of access from one GPU's kernels to another's memory.
///
/// # Errors
/// When the driver fails.
pub fn can_access_peer(from: &CudaContext, to: &CudaContext) -> Result<bool> {
    let mut can = 0;
    // SAFETY: a valid place for an int and two valid devices.
    unsafe { sys::cuDeviceCanAccessPeer(&mut can, from.cu_device(), to.cu_device()) }.explain("ask about peer access")?;
    Ok(can != 0)
}
