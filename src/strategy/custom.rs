//! One exchange among all ranks by a kernel of its own: one-shot and two-shot.

use crate::collective::Protocol;
use crate::collective::one_shot;
use crate::collective::one_shot::Grid;
use crate::error::Result;

use super::Context;
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
/// Bytes of one packed load.
const PACK: u64 = 16;
/// Largest message of the engines' custom all-reduce; NCCL does the rest.
const MESSAGE_MAX: u64 = 8 << 20;

const GATES: &str =
    "patch the engine: its custom all-reduce declines silently with more than two GPUs without full NVLink, at start and at each call";
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
        not_modelled: &[],
        needs: &[Need::PeerAccess, Need::Ranks(&[2, 4, 6, 8])],
        environment: &[],
        flags: &[GATES],
        fuses_norm: false,
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
        not_modelled: &[],
        needs: &[Need::PeerAccess],
        environment: &[],
        flags: &["patch the engine, or FlashInfer's PCIe kernels where the engine has them"],
        fuses_norm: false,
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
        not_modelled: &[],
        needs: &[Need::PeerAccess, Need::Ranks(&[2, 4, 6, 8])],
        environment: &[],
        flags: &[GATES],
        fuses_norm: false,
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

fn share_of_sms(context: &Context<'_>) -> u64 {
    let sms = context.kind().map_or(64, |kind| u64::from(kind.sms));
    (sms / u64::from(context.machine.ranks_per_gpu.max(1))).max(1)
}
