//! Collectives of a pass on one rank: our kernels, NCCL, or the fused kernel.

use std::ffi::c_void;

use cudarc::driver::CudaFunction;
use cudarc::driver::CudaStream;
use cudarc::driver::PushKernelArg;
use cudarc::nccl::result;
use cudarc::nccl::sys;

use crate::error::{Fault, Result};
use crate::gpu::arguments::Arguments;
use crate::gpu::arguments::Norm;
use crate::gpu::fault::Explain;
use crate::gpu::fused;
use crate::gpu::group::Group;
use crate::gpu::group::Message;
use crate::gpu::group::config;
use crate::gpu::implementation::Grid;
use crate::gpu::implementation::Implementation;

/// How messages up to a size are exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// NCCL, as the worker's environment makes it.
    Nccl,
    /// A kernel of ours; the grid that its name suggests unless one is given.
    Ours {
        /// Which.
        implementation: Implementation,
        /// Blocks and threads.
        grid: Option<Grid>,
    },
    /// Our kernel with the residual add and the norm behind it.
    Fused,
}

/// A communicator that a rank's own thread may use.
#[derive(Clone, Copy, Debug)]
pub struct Handle(pub sys::ncclComm_t);

// SAFETY: NCCL allows a communicator to be used from any thread, one at a time;
// each rank's is used by one thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// What NCCL is asked.
#[derive(Clone, Copy, Debug)]
pub enum NcclCall {
    /// Sum over all ranks.
    AllReduce,
    /// All ranks' parts; the count is one rank's.
    AllGather,
}

/// One rank's part of a collective, ready to be put on its stream.
#[derive(Clone)]
pub enum Exchanged {
    /// Nothing: a single rank.
    Alone,
    /// One of our kernels.
    Ours {
        /// The function.
        function: CudaFunction,
        /// What it is given.
        arguments: Box<Arguments>,
        /// Its grid.
        grid: Grid,
    },
    /// The fused kernel.
    Fused {
        /// The function.
        function: CudaFunction,
        /// What it is given.
        arguments: Box<Arguments>,
        /// The norm behind it.
        norm: Norm,
        /// Its grid.
        grid: Grid,
    },
    /// NCCL's.
    Nccl {
        /// The rank's communicator.
        handle: Handle,
        /// What it is asked.
        call: NcclCall,
        /// Where the rank's data lie.
        send: u64,
        /// Where the result goes.
        receive: u64,
        /// Elements.
        count: u64,
    },
    /// The ring of copies, which one call puts on all streams.
    CopyRing {
        /// The message.
        message: Message,
        /// Grid of its adding kernels.
        grid: Grid,
    },
}

impl Exchanged {
    /// Puts this rank's part on its stream; the ring of copies is put on all
    /// streams by [`copy_ring`](crate::gpu::copy_ring) instead.
    ///
    /// # Errors
    /// When the driver or NCCL refuses.
    pub fn enqueue(&self, stream: &CudaStream) -> Result<()> {
        match self {
            Exchanged::Alone | Exchanged::CopyRing { .. } => Ok(()),
            Exchanged::Ours { function, arguments, grid } => {
                let mut launch = stream.launch_builder(function);
                launch.arg(arguments.as_ref());
                // SAFETY: the arguments mirror the kernel's, with buffers of the group.
                unsafe { launch.launch(config(*grid)) }.explain("launch an all-reduce")?;
                Ok(())
            }
            Exchanged::Fused { function, arguments, norm, grid } => {
                let mut launch = stream.launch_builder(function);
                launch.arg(arguments.as_ref()).arg(norm);
                // SAFETY: as above; the norm's buffers are the rank's own.
                unsafe { launch.launch(config(*grid)) }.explain("launch a fused all-reduce")?;
                Ok(())
            }
            Exchanged::Nccl { handle, call, send, receive, count } => {
                let (send, receive) = (*send as *const c_void, *receive as *mut c_void);
                let count = usize::try_from(*count).unwrap_or(0);
                let kind = sys::ncclDataType_t::ncclBfloat16;
                let stream = stream.cu_stream() as sys::cudaStream_t;
                // SAFETY: both ranges lie in the rank's buffers; the communicator is open.
                let put = unsafe {
                    match call {
                        NcclCall::AllReduce => result::all_reduce(send, receive, count, kind, sys::ncclRedOp_t::ncclSum, handle.0, stream),
                        NcclCall::AllGather => result::all_gather(send, receive, count, kind, handle.0, stream),
                    }
                };
                put.explain("enqueue a collective").map(|_| ())
            }
        }
    }
}

/// One of our all-reduces, prepared for one rank.
///
/// # Errors
/// When the message is too long, or the kernel does not compile or fit.
pub fn ours(group: &Group, rank: usize, implementation: Implementation, grid: Option<Grid>, message: Message) -> Result<Exchanged> {
    let grid = grid.unwrap_or_else(|| implementation.grid(message.bytes, group.options.ranks, group.blocks_max));
    if !group.supports(implementation, message.bytes) {
        return Err(Fault::new("gpu-message", format!("{implementation:?} cannot take {} bytes here", message.bytes)));
    }
    if implementation == Implementation::CopyEngineRing {
        return Ok(Exchanged::CopyRing { message, grid });
    }
    let grid = Grid { blocks: grid.blocks.min(group.blocks_max), ..grid };
    let variant = implementation.variant(group.options.ranks, group.options.element);
    let function = group.function(rank, implementation.kernel(), implementation.kernel(), &variant)?;
    let arguments = Box::new(group.arguments(rank, implementation.through_host(), message));
    Ok(Exchanged::Ours { function, arguments, grid })
}

/// The fused kernel, prepared for one rank, in the finest shape that fits.
///
/// # Errors
/// When no shape fits or the kernel does not compile.
pub fn fused(group: &Group, rank: usize, norm: Norm, tokens: u32, message: Message) -> Result<Exchanged> {
    let shape = fused::shapes(tokens, norm.hidden, group.blocks_max)
        .into_iter()
        .next()
        .ok_or_else(|| Fault::new("gpu-grid", format!("the fused kernel has no shape for {tokens} tokens")))?;
    let function = group.function(rank, "fused_one_shot", "fused_one_shot", &shape.variant(group, norm.hidden))?;
    let arguments = Box::new(group.arguments(rank, false, message));
    Ok(Exchanged::Fused { function, arguments, norm, grid: Grid { blocks: tokens * shape.split, threads: shape.threads } })
}
