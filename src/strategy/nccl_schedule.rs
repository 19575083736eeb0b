//! From what NCCL decides to the schedule its kernels then run.

use crate::collective::KernelShape;
use crate::collective::Part;
use crate::collective::Protocol;
use crate::collective::Schedule;
use crate::collective::gather;
use crate::collective::ring;
use crate::collective::tree;
use crate::error::Fault;
use crate::error::Result;
use crate::nccl;
use crate::nccl::Algorithm;
use crate::nccl::Collective;

/// Smallest slice of Simple as a share of a slice's steps (prims_simple.h:183).
const SLICE_FLOOR: u64 = 32;

/// Builds the schedule of one of NCCL's choices over the ring or chain `order`.
///
/// # Errors
/// `nccl-no-schedule` for a collective that NCCL does not run as ring or tree.
pub fn schedule(collective: Collective, choice: &nccl::Choice, order: &[usize], bytes: u64) -> Result<Schedule> {
    let shape = shape(&choice.launch);
    Ok(match (collective, choice.algorithm) {
        (Collective::AllReduce, Algorithm::Ring) => ring::all_reduce(order, bytes, &shape),
        (Collective::AllReduce, Algorithm::Tree) => tree::all_reduce(order, bytes, &shape),
        (Collective::AllGather, Algorithm::Ring) => gather::ring_all_gather(order, bytes, &shape),
        (Collective::ReduceScatter, Algorithm::Ring) => gather::ring_reduce_scatter(order, bytes, &shape),
        (collective, algorithm) => {
            return Err(Fault::new("nccl-no-schedule", format!("NCCL has no {} over {}", collective.name(), algorithm.name())));
        }
    })
}

fn shape(launch: &nccl::Launch) -> KernelShape {
    let protocol = match launch.protocol {
        nccl::Protocol::Ll => Protocol::Ll,
        nccl::Protocol::Ll128 => Protocol::Ll128,
        nccl::Protocol::Simple => Protocol::Simple,
    };
    KernelShape {
        protocol,
        threads: launch.roles.workers,
        broadcast_threads: launch.roles.broadcast_workers,
        block_threads: launch.threads,
        slice_steps: launch.slice_steps,
        chunk_steps: launch.chunk_steps,
        slice_bytes_min: launch.step_bytes * u64::from(launch.slice_steps) / SLICE_FLOOR,
        parts: (launch.parts.iter())
            .map(|part| Part { channel: part.channel, offset: part.offset_bytes, bytes: part.bytes, chunk_bytes: part.chunk_bytes })
            .collect(),
    }
}
