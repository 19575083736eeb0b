//! Kernels of two hops or a ring of copies: pushed lines, through host memory,
//! by copy engines, with eight bits on the wire.

use crate::collective::Protocol;
use crate::collective::copy_ring;
use crate::collective::hierarchical;
use crate::collective::host;
use crate::collective::islands::Islands;
use crate::collective::staged;
use crate::collective::staged::Staging;
use crate::plan::Partition;

use super::Effort;
use super::Executor;
use super::Logical;
use super::Lowering;
use super::Need;
use super::Risk;
use super::Strategy;
use super::custom::DECLINES;
use super::custom::LINES;
use super::custom::MESSAGE_MAX;
use super::custom::fall_back;
use super::custom::items_grid;

const KERNEL: &str = "a kernel of one's own in the engine's hottest place: check its sums, and that regions alternate between calls";
const PATCH: &str = "patch the engine: a communicator of its own before NCCL's";

/// The rows.
pub(super) const ALL: &[Strategy] = &[
    Strategy {
        id: "two-shot-push",
        summary: "every rank stores each shard as lines into its owner's memory, the owner sums and stores the sum into all others'; no barrier",
        executor: Executor::Ours,
        effort: Effort::Days,
        risk: Risk::High,
        risk_words: KERNEL,
        way_back: "take the patch out",
        modelled: LINES,
        not_modelled: &[],
        needs: &[Need::Mesh],
        declines: DECLINES,
        environment: &[],
        flags: &[PATCH],
        fuses_norm: false,
        partition: Partition::tensor,
        lower: |context, _, logical, bytes| match logical {
            Logical::AllReduce if bytes <= MESSAGE_MAX => {
                let grid = items_grid(context, bytes.div_ceil(8 * context.ranks as u64));
                Ok(Lowering::custom(hierarchical::two_shot(context.ranks, bytes, grid, Protocol::Ll)))
            }
            other => fall_back(context, other, bytes),
        },
    },
    Strategy {
        id: "host-staged",
        summary: "two hops over pinned host memory: write the others' shards once, read and sum one's own, write the sum, read the other sums",
        executor: Executor::Ours,
        effort: Effort::Days,
        risk: Risk::Medium,
        risk_words: "no peer access is needed, so none can fail; all GPUs share the host's memory and their links to it",
        way_back: "take the patch out",
        modelled: "each block's writes to and reads from host memory on the writer's socket; flags polled over PCIe; links shared by all flows",
        not_modelled: &["caches of the host (writes into its last level, reads from there)"],
        needs: &[],
        declines: &[],
        environment: &[],
        flags: &[PATCH],
        fuses_norm: false,
        partition: Partition::tensor,
        lower: |context, _, logical, bytes| match logical {
            Logical::AllReduce if bytes <= MESSAGE_MAX => {
                let grid = items_grid(context, bytes.div_ceil(16 * context.ranks as u64));
                Ok(Lowering::over_host(host::two_shot(context.ranks, bytes, grid)))
            }
            other => fall_back(context, other, bytes),
        },
    },
    Strategy {
        id: "copy-engine-ring",
        summary: "a ring whose copies the copy engines make, with an adding kernel after each: for large messages, leaves multiprocessors free",
        executor: Executor::Ours,
        effort: Effort::Days,
        risk: Risk::Medium,
        risk_words: "every copy and kernel is a node of the graph: far too slow for small messages",
        way_back: "take the patch out",
        modelled: "each copy's start, its flow on shared links, each adding kernel; one captured graph",
        not_modelled: &["launching it without a graph", "several streams for chunks in flight"],
        needs: &[Need::PeerAccess],
        declines: &[],
        environment: &[],
        flags: &[PATCH],
        fuses_norm: false,
        partition: Partition::tensor,
        lower: |context, _, logical, bytes| match logical {
            Logical::AllReduce => {
                let order: Vec<usize> = (0..context.ranks).collect();
                Ok(Lowering::custom(copy_ring::all_reduce(&order, bytes)))
            }
            other => fall_back(context, other, bytes),
        },
    },
    Strategy {
        id: "compressed-fp8",
        summary: "two-shot with eight bits on the wire and a scale for every 128 elements: half the bytes, two conversions a hop",
        executor: Executor::ModelledOnly,
        effort: Effort::Days,
        risk: Risk::High,
        risk_words: "sums are rounded to eight bits twice: measure quality and the acceptance of drafts",
        way_back: "take the patch out",
        modelled: "half the wire bytes and the scales; conversion as two more memory operations a pack; fences and flags",
        not_modelled: &["what rounding does to the answers"],
        needs: &[Need::Mesh, Need::Check("answers and acceptance compared with the full-precision path")],
        declines: &[],
        environment: &[],
        flags: &[PATCH],
        fuses_norm: false,
        partition: Partition::tensor,
        lower: |context, _, logical, bytes| match logical {
            Logical::AllReduce => {
                let grid = items_grid(context, bytes.div_ceil(16 * context.ranks as u64));
                let islands = Islands::consecutive(context.ranks, context.ranks);
                let staging = Staging { protocol: Protocol::Fp8, one_to_one: false };
                Ok(Lowering::custom(staged::all_reduce(&islands, bytes, grid, staging)))
            }
            other => fall_back(context, other, bytes),
        },
    },
];
