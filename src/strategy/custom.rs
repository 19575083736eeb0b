//! One exchange among all ranks by a kernel of its own: one-shot and two-shot.

use crate::collective::Protocol;
use crate::collective::one_shot;
use crate::collective::one_shot::Grid;
use crate::error::Result;
use crate::plan::Partition;

use super::Context;
use super::Decline;
use super::Effort;
use super::Executor;
use super::Logical;
use super::Lowering;
use super::Need;
use super::Risk;
use super::Strategy;

/// Most thread blocks of vLLM's and SGLang's custom all-reduce (`kMaxBlocks`).
const BLOCKS_MAX: u64 = 36;
/// Threads of their blocks.
const THREADS: u64 = 512;
/// Least threads of a block of ours.
const THREADS_MIN: u64 = 128;
/// Bytes of one packed load.
const PACK: u64 = 16;
/// Largest message of the engines' custom all-reduce; NCCL does the rest.
pub(super) const MESSAGE_MAX: u64 = 8 << 20;

const GATES: &str = "patch the engine: both gates of its custom all-reduce, at start and at each call";

/// What takes custom all-reduces away on PCIe without saying so.
pub(super) const DECLINES: &[Decline] = &[
    Decline {
        what: "vLLM's and SGLang's custom all-reduce switches itself off with more than two GPUs without full NVLink, at start and again at each call, and NCCL does the work",
        unless: Need::Nvlink { unless_at_most: 2, because: "no full NVLink" },
        sign: "vLLM warns at start that custom allreduce is not supported on more than two PCIe-only GPUs; a profile shows ncclDevKernel_AllReduce in place of cross_device_reduce",
    },
    Decline {
        what: "FlashInfer's copy of vLLM's kernel launches nothing on 4 or 8 GPUs without full NVLink, and the sum is wrong",
        unless: Need::Nvlink { unless_at_most: 2, because: "no full NVLink" },
        sign: "compare its sum with NCCL's before use; the dispatch has no arm for it",
    },
];

const PULLS: &str = "each block's barriers, reads in flight and sums; reads share links in both directions; who is late";
pub(super) const LINES: &str =
    "each block's stores, polls and sums, trip by trip; wire bytes of its lines; links shared by all flows; who is late";

const SILENT: &str = "without an end barrier or proven buffer rotation results can be wrong without a sign (acceptance near zero)";

/// The rows.
pub(super) const ALL: &[Strategy] = &[
    Strategy {
        id: "one-shot-pull",
        summary: "barrier, every rank reads all others' input over PCIe and sums, barrier (vLLM's and SGLang's one-stage kernel)",
        executor: Executor::Ours,
        effort: Effort::Days,
        risk: Risk::High,
        risk_words: SILENT,
        way_back: "--disable-custom-all-reduce",
        modelled: PULLS,
        not_modelled: &[],
        needs: &[Need::Mesh, Need::Ranks(&[2, 4, 6, 8])],
        declines: DECLINES,
        environment: &[],
        flags: &[GATES],
        fuses_norm: false,
        partition: Partition::tensor,
        lower: |context, _, logical, bytes| match logical {
            Logical::AllReduce if bytes <= MESSAGE_MAX => {
                Ok(Lowering::custom(one_shot::pull(context.ranks, bytes, grid(context, bytes), true)))
            }
            other => fall_back(context, other, bytes),
        },
    },
    Strategy {
        id: "one-shot-push",
        summary: "every rank stores its message into all others' memory as lines with flags, polls its own memory and sums; no barrier",
        executor: Executor::Ours,
        effort: Effort::Days,
        risk: Risk::High,
        risk_words: SILENT,
        way_back: "--disable-custom-all-reduce",
        modelled: LINES,
        not_modelled: &[],
        needs: &[Need::Mesh],
        declines: DECLINES,
        environment: &[],
        flags: &["patch the engine, or FlashInfer's PCIe kernels where the engine has them"],
        fuses_norm: false,
        partition: Partition::tensor,
        lower: |context, _, logical, bytes| match logical {
            Logical::AllReduce if bytes <= MESSAGE_MAX => {
                Ok(Lowering::custom(one_shot::push(context.ranks, bytes, push_grid(context, bytes), Protocol::Ll)))
            }
            other => fall_back(context, other, bytes),
        },
    },
    Strategy {
        id: "two-shot",
        summary: "barrier, every rank sums its shard of all inputs, fenced barrier, every rank reads the other sums, barrier",
        executor: Executor::Ours,
        effort: Effort::Days,
        risk: Risk::High,
        risk_words: SILENT,
        way_back: "--disable-custom-all-reduce",
        modelled: PULLS,
        not_modelled: &[],
        needs: &[Need::Mesh, Need::Ranks(&[2, 4, 6, 8])],
        declines: DECLINES,
        environment: &[],
        flags: &[GATES],
        fuses_norm: false,
        partition: Partition::tensor,
        lower: |context, _, logical, bytes| match logical {
            Logical::AllReduce if bytes <= MESSAGE_MAX => {
                let shard = bytes.div_ceil(context.ranks as u64);
                Ok(Lowering::custom(one_shot::two_shot_pull(context.ranks, bytes, grid(context, shard))))
            }
            other => fall_back(context, other, bytes),
        },
    },
];

/// Collectives that the custom kernels do not have go to NCCL, as in the engines.
pub(super) fn fall_back(context: &Context<'_>, logical: Logical, bytes: u64) -> Result<Lowering> {
    let default = Strategy::find("nccl-default")?;
    (default.lower)(context, default, logical, bytes)
}

/// One item (line, pack) a thread while blocks last, as our kernels are launched.
pub(super) fn items_grid(context: &Context<'_>, items: u64) -> Grid {
    let blocks_max = BLOCKS_MAX.min(share_of_sms(context));
    let per_block = items.div_ceil(blocks_max).max(1);
    let threads = per_block.next_multiple_of(32).clamp(THREADS_MIN, THREADS);
    Grid { blocks: items.div_ceil(threads).clamp(1, blocks_max) as u32, threads: threads as u32 }
}

/// As the kernels launch: a thread a pack, at most 36 blocks, and no more
/// multiprocessors than the ranks of one GPU have each.
pub(super) fn grid(context: &Context<'_>, bytes: u64) -> Grid {
    let blocks = bytes.div_ceil(PACK).div_ceil(THREADS).clamp(1, BLOCKS_MAX.min(share_of_sms(context)));
    Grid { blocks: blocks as u32, threads: THREADS as u32 }
}

/// Push kernels move 8 B a thread and line; two trips a block keep the stores flowing.
pub(super) fn push_grid(context: &Context<'_>, bytes: u64) -> Grid {
    let blocks = bytes.div_ceil(8).div_ceil(THREADS).clamp(1, BLOCKS_MAX.min(share_of_sms(context)));
    Grid { blocks: blocks as u32, threads: THREADS as u32 }
}

/// Multiprocessors that each rank of a GPU can have.
pub(super) fn share_of_sms(context: &Context<'_>) -> u64 {
    let sms = context.kind().map_or(64, |kind| u64::from(kind.sms));
    (sms / u64::from(context.machine.ranks_per_gpu.max(1))).max(1)
}
