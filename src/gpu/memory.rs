//! Memory that peers can reach: `cuMemAlloc` on a device, mapped pages on the
//! host.
//!
//! Stream-ordered allocations are not opened by `cuCtxEnablePeerAccess`, and
//! managed memory can hang a GPU when it is oversubscribed; neither is used.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::DeviceRepr;
use cudarc::driver::result;
use cudarc::driver::sys;

use crate::error::Result;
use crate::gpu::fault::Explain;

/// Device memory of one GPU, freed when dropped.
pub struct DeviceBuffer {
    context: Arc<CudaContext>,
    address: u64,
    bytes: usize,
}

impl DeviceBuffer {
    /// Allocates `bytes` (at least 16) and fills them with `value`.
    ///
    /// # Errors
    /// When the device has too little memory.
    pub fn filled(context: &Arc<CudaContext>, bytes: usize, value: u8) -> Result<DeviceBuffer> {
        context.bind_to_thread().explain("select the device")?;
        let bytes = bytes.max(16);
        // SAFETY: a context is bound; the address is freed in `drop` alone.
        let address = unsafe { result::malloc_sync(bytes) }.explain(&format!("allocate {bytes} bytes on GPU {}", context.ordinal()))?;
        let buffer = DeviceBuffer { context: context.clone(), address, bytes };
        buffer.fill(value)?;
        Ok(buffer)
    }

    /// Sets every byte; waits until it is done.
    ///
    /// # Errors
    /// When the device fails.
    pub fn fill(&self, value: u8) -> Result<()> {
        self.context.bind_to_thread().explain("select the device")?;
        // SAFETY: address and length are those of this allocation.
        unsafe { result::memset_d8_sync(self.address, value, self.bytes) }.explain("fill device memory")?;
        // cuMemsetD8 may return before the device is done.
        self.context.synchronize().explain("wait for the device")
    }

    /// The address in the device's unified space; peers use the same.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Copies `data` to byte `offset`.
    ///
    /// # Errors
    /// When the device fails.
    pub fn write<T: DeviceRepr>(&self, offset: usize, data: &[T]) -> Result<()> {
        assert!(offset + std::mem::size_of_val(data) <= self.bytes, "the copy fits the buffer");
        self.context.bind_to_thread().explain("select the device")?;
        // SAFETY: the range was checked; `data` outlives the synchronous copy.
        unsafe { result::memcpy_htod_sync(self.address + offset as u64, data) }.explain("copy to the device")
    }

    /// Copies from byte `offset` into `data`.
    ///
    /// # Errors
    /// When the device fails, also in an earlier kernel.
    pub fn read<T: DeviceRepr>(&self, offset: usize, data: &mut [T]) -> Result<()> {
        assert!(offset + std::mem::size_of_val(data) <= self.bytes, "the copy fits the buffer");
        self.context.bind_to_thread().explain("select the device")?;
        // SAFETY: the range was checked; `data` outlives the synchronous copy.
        unsafe { result::memcpy_dtoh_sync(data, self.address + offset as u64) }.explain("copy from the device")
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: allocated in `filled`, freed once.
            let freed = unsafe { result::free_sync(self.address) };
            self.context.record_err(freed);
        }
    }
}

/// Pinned host memory, mapped into every device's space. Not write-combined:
/// the host reads it too.
pub struct HostBuffer {
    context: Arc<CudaContext>,
    host: *mut c_void,
    address: u64,
    bytes: usize,
}

impl HostBuffer {
    /// Allocates `bytes` (at least 64) of zeros.
    ///
    /// # Errors
    /// When the host has too little memory to pin.
    pub fn zeros(context: &Arc<CudaContext>, bytes: usize) -> Result<HostBuffer> {
        context.bind_to_thread().explain("select the device")?;
        let bytes = bytes.max(64);
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: a context is bound; freed in `drop` alone.
        let host = unsafe { result::malloc_host(bytes, flags) }.explain(&format!("pin {bytes} bytes of host memory"))?;
        let mut buffer = HostBuffer { context: context.clone(), host, address: 0, bytes };
        // SAFETY: `host` is the start of a mapped allocation.
        unsafe { sys::cuMemHostGetDevicePointer_v2(&mut buffer.address, host, 0) }.explain("map host memory into the device")?;
        // SAFETY: the allocation is `bytes` long and nothing else uses it yet.
        unsafe { std::ptr::write_bytes(host.cast::<u8>(), 0, bytes) };
        Ok(buffer)
    }

    /// The address in the devices' unified space.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Word `index`, read past the compiler: a device may be writing it.
    pub fn word(&self, index: usize) -> u32 {
        assert!((index + 1) * 4 <= self.bytes, "the word lies in the buffer");
        // SAFETY: in range and aligned (page-aligned start).
        unsafe { std::ptr::read_volatile(self.host.cast::<u32>().add(index)) }
    }

    /// Sets word `index` past the compiler.
    pub fn set_word(&self, index: usize, value: u32) {
        assert!((index + 1) * 4 <= self.bytes, "the word lies in the buffer");
        // SAFETY: in range and aligned (page-aligned start).
        unsafe { std::ptr::write_volatile(self.host.cast::<u32>().add(index), value) };
    }

    /// Sets every byte to zero.
    pub fn clear(&self) {
        // SAFETY: the allocation is `bytes` long; callers have no kernel running.
        unsafe { std::ptr::write_bytes(self.host.cast::<u8>(), 0, self.bytes) };
    }

    /// The length in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: allocated in `zeros`, freed once.
            let freed = unsafe { result::free_host(self.host) };
            self.context.record_err(freed);
        }
    }
}
