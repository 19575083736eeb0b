//! From what NCCL decides to the schedule its kernels then run.

use crate::collective::Buffer;
use crate::collective::KernelShape;
use crate::collective::Part;
use crate::collective::Protocol;
use crate::collective::Schedule;
use crate::collective::exchange;
use crate::collective::exchange::Channels;
use crate::collective::exchange::Message;
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

/// Threads of each role of a send and receive: half of a block of 512, as far as is known.
const EXCHANGE_THREADS: u32 = 256;

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

/// All-to-all of `bytes` a rank, or one message of `bytes` from rank 0 to rank
/// 1: grouped sends and receives.
pub fn exchange(communicator: &nccl::Communicator, to_all: bool, bytes: u64) -> Schedule {
    let ranks = communicator.ranks as usize;
    let pair_bytes = if to_all { bytes.div_ceil(ranks.max(1) as u64) } else { bytes };
    let how = communicator.send_receive(pair_bytes);
    let channels = Channels {
        protocol: protocol(how.protocol),
        count: how.channels,
        per_peer: how.channels_per_peer,
        part_bytes: how.part_bytes,
        chunk_bytes: how.chunk_bytes,
        threads: EXCHANGE_THREADS,
    };
    if to_all {
        return exchange::grouped_all_to_all(ranks, pair_bytes, &channels);
    }
    let message = Message { from: 0, to: 1, from_offset: 0, to_offset: 0, bytes };
    exchange::grouped(ranks, bytes, Buffer::User, &[message], &channels)
}

fn protocol(used: nccl::Protocol) -> Protocol {
    match used {
        nccl::Protocol::Ll => Protocol::Ll,
        nccl::Protocol::Ll128 => Protocol::Ll128,
        nccl::Protocol::Simple => Protocol::Simple,
    }
}

fn shape(launch: &nccl::Launch) -> KernelShape {
    KernelShape {
        protocol: protocol(launch.protocol),
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
