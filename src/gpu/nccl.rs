//! NCCL's all-reduce on the streams and buffers of a [`Group`].
//!
//! Algorithm, protocol, threads and buffers are set by `NCCL_*` variables when
//! a worker starts; channels may also be bounded per communicator. Several
//! ranks on one GPU need NCCL 2.30 or later.

use std::ffi::c_void;
use std::path::Path;

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

/// What NCCL says it chose for one size.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Choice {
    /// Message bytes.
    pub bytes: u64,
    /// `ring`, `tree`, ….
    pub algorithm: String,
    /// `ll`, `ll128`, `simple`.
    pub protocol: String,
    /// Channels used, e.g. `0..3`.
    pub channels: String,
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
        let kind = match self.group.options.element {
            Element::Bf16 => sys::ncclDataType_t::ncclBfloat16,
            Element::F16 => sys::ncclDataType_t::ncclFloat16,
        };
        let offset = message.set % SETS * self.group.options.bytes_max;
        let count = usize::try_from(message.bytes / 2).unwrap_or(0);
        result::group_start().explain("begin a group")?;
        let mut outcome = Ok(());
        for (rank, handle) in self.group.ranks.iter().zip(&self.handles) {
            let input = (rank.input.address() + offset) as *const c_void;
            let output = (rank.output.address() + offset) as *mut c_void;
            let stream = rank.stream.cu_stream() as sys::cudaStream_t;
            // SAFETY: both ranges lie in the rank's buffers; the communicator is open.
            let put = unsafe { result::all_reduce(input, output, count, kind, sys::ncclRedOp_t::ncclSum, *handle, stream) };
            outcome = outcome.and(put.explain("enqueue an all-reduce").map(|_| ()));
        }
        let ended = result::group_end().explain("enqueue the all-reduces").map(|_| ());
        outcome.and(ended)
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

/// Reads what NCCL chose from its debug file (`NCCL_DEBUG=INFO`,
/// `NCCL_DEBUG_SUBSYS=TUNING`), the last choice of each size.
pub fn choices(file: &Path) -> Vec<Choice> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut found: std::collections::BTreeMap<u64, Choice> = std::collections::BTreeMap::new();
    for choice in text.lines().filter_map(choice) {
        found.insert(choice.bytes, choice);
    }
    found.into_values().collect()
}

/// `AllReduce: 43008 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}`.
fn choice(line: &str) -> Option<Choice> {
    let (_, rest) = line.split_once("AllReduce: ")?;
    let (bytes, rest) = rest.split_once(" Bytes -> Algo ")?;
    let (algorithm, rest) = rest.split_once(" proto ")?;
    let mut words = rest.split_whitespace();
    let protocol = words.next()?.to_lowercase();
    let channels = words.find_map(|w| w.strip_prefix("channel{Lo..Hi}={")).map_or(String::new(), |w| w.trim_end_matches('}').to_owned());
    Some(Choice { bytes: bytes.trim().parse().ok()?, algorithm: algorithm.trim().to_lowercase(), protocol, channels })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tuning_line_is_read() {
        let line = "host:1:2 [0] NCCL INFO AllReduce: 43008 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}";
        let expected = Choice { bytes: 43_008, algorithm: "ring".into(), protocol: "ll".into(), channels: "0..3".into() };
        assert_eq!(choice(line), Some(expected));
        assert_eq!(choice("AllReduce: x Bytes -> Algo RING proto LL"), None);
        assert_eq!(choice("nothing"), None);
    }

    #[test]
    fn versions_are_spelled() {
        assert_eq!(version_text(23_102), "2.31.2");
        assert_eq!(version_text(22_809), "2.28.9");
    }
}
