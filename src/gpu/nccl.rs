//! NCCL's all-reduce on the streams and buffers of a [`Group`].
//!
//! Threads and buffers are set by `NCCL_*` variables when a worker starts;
//! algorithm, protocol and channels too, or from call to call by our tuner
//! (`tuner.rs`); channels may also be bounded per communicator. Several ranks on
//! one GPU need NCCL 2.30 or later.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::CudaStream;
use cudarc::nccl::result;
use cudarc::nccl::sys;

use crate::error::{Fault, Result};
use crate::gpu::element::Element;
use crate::gpu::fault::Explain;
use crate::gpu::group::Group;
use crate::gpu::group::Message;
use crate::gpu::group::SETS;

/// Variables without which ranks cannot share a GPU: allow it, no multicast,
/// a hardware queue a rank.
pub const SHARED_GPU_ENVIRONMENT: [(&str, &str); 3] =
    [("NCCL_MULTI_RANK_GPU_ENABLE", "1"), ("NCCL_NVLS_ENABLE", "0"), ("CUDA_DEVICE_MAX_CONNECTIONS", "32")];

/// The first version that lets ranks share a GPU: 2.30.
const SHARED_GPU_VERSION: i32 = 23_000;

/// One communicator a rank, destroyed when dropped.
pub struct Communicators<'a> {
    group: &'a Group,
    handles: Vec<sys::ncclComm_t>,
}

/// NCCL's version, e.g. 23102 for 2.31.2; none where it cannot be opened.
pub fn version() -> Option<i32> {
    static VERSION: std::sync::OnceLock<Option<i32>> = std::sync::OnceLock::new();
    *VERSION.get_or_init(|| {
        // SAFETY: opens and closes the library, nothing else.
        let present = unsafe { sys::is_culib_present() };
        if present { result::get_nccl_version().ok() } else { None }
    })
}

/// `2.31.2` for 23102.
pub fn version_text(version: i32) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

impl<'a> Communicators<'a> {
    /// Opens a communicator for every rank, from this thread. `channels`
    /// bounds the thread blocks of each rank (0: NCCL's own limit).
    ///
    /// # Errors
    /// `gpu-library` without NCCL, `gpu-nccl` with what it says.
    pub fn open(group: &'a Group, channels_min: i32, channels_max: i32) -> Result<Communicators<'a>> {
        let version = version().ok_or_else(|| {
            let help = "install it with `pip install nvidia-nccl-cu13`, or set LANECAST_NCCL to libnccl.so.2";
            Fault::new("gpu-library", "NCCL was not found").help(help)
        })?;
        let devices = group.ranks.iter().map(|r| r.context.ordinal()).collect::<std::collections::BTreeSet<_>>().len();
        if devices < group.ranks.len() && version < SHARED_GPU_VERSION {
            let text = format!("NCCL {} cannot have several ranks on one GPU", version_text(version));
            return Err(Fault::new("gpu-nccl", text).help("install NCCL 2.30 or later: `pip install -U nvidia-nccl-cu13`"));
        }
        let id = result::get_uniqueid().explain("make an id for NCCL")?;
        let size = i32::try_from(group.ranks.len()).unwrap_or(i32::MAX);
        let mut opened = Communicators { group, handles: vec![std::ptr::null_mut(); group.ranks.len()] };
        result::group_start().explain("begin a group")?;
        let mut outcome = Ok(());
        for (rank, handle) in opened.handles.iter_mut().enumerate() {
            group.ranks[rank].context.bind_to_thread().explain("select the device")?;
            let mut config = config(channels_min, channels_max);
            // SAFETY: handle and config are valid places; the id is of this call.
            let made = unsafe { result::comm_init_rank_config(handle, size, id, rank as i32, &mut config) };
            outcome = outcome.and(made.explain("open a communicator").map(|_| ()));
        }
        let ended = result::group_end().explain("open the communicators").map(|_| ());
        outcome.and(ended)?;
        Ok(opened)
    }

    /// A rank's communicator, open as long as `self`.
    pub fn handle(&self, rank: usize) -> sys::ncclComm_t {
        self.handles[rank]
    }

    /// Puts one all-reduce on every rank's stream.
    ///
    /// # Errors
    /// When NCCL refuses.
    pub fn enqueue(&self, message: Message) -> Result<()> {
        result::group_start().explain("begin a group")?;
        let outcome = (0..self.handles.len()).try_for_each(|rank| self.call(rank, message).put());
        let ended = result::group_end().explain("enqueue the all-reduces").map(|_| ());
        outcome.and(ended)
    }

    /// One rank's call, for [`Call::put`].
    pub fn call(&self, rank: usize, message: Message) -> Call<'_> {
        let kind = match self.group.options.element {
            Element::Bf16 => sys::ncclDataType_t::ncclBfloat16,
            Element::F16 => sys::ncclDataType_t::ncclFloat16,
        };
        let place = &self.group.ranks[rank];
        let offset = message.set % SETS * self.group.options.bytes_max;
        Call {
            input: place.input.address() + offset,
            output: place.output.address() + offset,
            count: usize::try_from(message.bytes / 2).unwrap_or(0),
            kind,
            handle: self.handles[rank],
            stream: place.stream.clone(),
            open: std::marker::PhantomData,
        }
    }
}

/// One rank's all-reduce, to be put on its stream from any one thread while
/// its communicator is open.
pub struct Call<'a> {
    input: u64,
    output: u64,
    count: usize,
    kind: sys::ncclDataType_t,
    handle: sys::ncclComm_t,
    stream: Arc<CudaStream>,
    open: std::marker::PhantomData<&'a ()>,
}

// SAFETY: NCCL lets each communicator be used from one thread at a time, any thread; a call is
// moved, not shared.
unsafe impl Send for Call<'_> {}

impl Call<'_> {
    /// Puts it on its rank's stream.
    ///
    /// # Errors
    /// When NCCL refuses.
    pub fn put(&self) -> Result<()> {
        let (input, output) = (self.input as *const c_void, self.output as *mut c_void);
        let stream = self.stream.cu_stream() as sys::cudaStream_t;
        // SAFETY: both ranges lie in the rank's buffers; the communicator is open as long as `self`.
        let put = unsafe { result::all_reduce(input, output, self.count, self.kind, sys::ncclRedOp_t::ncclSum, self.handle, stream) };
        put.explain("enqueue an all-reduce").map(|_| ())
    }
}

impl Drop for Communicators<'_> {
    fn drop(&mut self) {
        for handle in self.handles.iter().filter(|h| !h.is_null()) {
            // SAFETY: opened by `open`, closed once; an error at the end changes nothing.
            let _ = unsafe { result::comm_abort(*handle) };
        }
    }
}

/// NCCL's `NCCL_CONFIG_INITIALIZER` with bounds on thread blocks.
fn config(channels_min: i32, channels_max: i32) -> sys::ncclConfig_t {
    const MAGIC: u32 = 0xcafe_beef;
    const UNDEFINED: i32 = i32::MIN;
    let or_undefined = |n: i32| if n > 0 { n } else { UNDEFINED };
    sys::ncclConfig_t {
        size: std::mem::size_of::<sys::ncclConfig_t>(),
        magic: MAGIC,
        version: 22_800,
        blocking: UNDEFINED,
        cgaClusterSize: UNDEFINED,
        minCTAs: or_undefined(channels_min),
        maxCTAs: or_undefined(channels_max),
        netName: std::ptr::null(),
        splitShare: UNDEFINED,
        trafficClass: UNDEFINED,
        commName: std::ptr::null(),
        collnetEnable: UNDEFINED,
        CTAPolicy: UNDEFINED,
        shrinkShare: UNDEFINED,
        nvlsCTAs: UNDEFINED,
        nChannelsPerNetPeer: UNDEFINED,
        nvlinkCentricSched: UNDEFINED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_spelled() {
        assert_eq!(version_text(23_102), "2.31.2");
        assert_eq!(version_text(22_809), "2.28.9");
    }
}
