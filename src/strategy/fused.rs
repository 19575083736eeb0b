//! All-reduce fused with the residual add and RMSNorm, and the bound that no
//! strategy passes.

use crate::collective::Buffer;
use crate::collective::Protocol;
use crate::collective::Schedule;
use crate::collective::one_shot;
use crate::collective::one_shot::Rows;
use crate::plan::Partition;

use super::Decline;
use super::Effort;
use super::Executor;
use super::Kernel;
use super::Logical;
use super::Lowering;
use super::Need;
use super::Risk;
use super::Strategy;
use super::custom::MESSAGE_MAX;
use super::custom::fall_back;
use super::custom::push_grid;
use super::custom::share_of_sms;

/// The rows.
pub(super) const ALL: &[Strategy] = &[
    Strategy {
        id: "fused-one-shot",
        summary: "one-shot push that adds the residual and normalises in the same kernel",
        executor: Executor::Ours,
        effort: Effort::Days,
        risk: Risk::High,
        risk_words: "a kernel of one's own in the engine's hottest place: check its numbers against the unfused path",
        way_back: "switch the engine's all-reduce fusion off",
        modelled: "each block's stores, polls and sums, trip by trip; the flags by which the blocks of a token exchange their sums of squares; wire bytes of its lines; links shared by all flows; who is late",
        not_modelled: &["quantisation of the output in the same kernel"],
        needs: &[Need::Mesh],
        declines: &[],
        environment: &[],
        flags: &["patch the engine: a fusion pass for all-reduce, residual add and RMSNorm"],
        fuses_norm: true,
        partition: Partition::tensor,
        lower: fused_push,
    },
    Strategy {
        id: "flashinfer-fused",
        summary: "FlashInfer's trtllm all-reduce fusion: Lamport one-shot push, residual add and RMSNorm in one kernel",
        executor: Executor::ModelledOnly,
        effort: Effort::Hours,
        risk: Risk::Medium,
        risk_words: "where its JIT does not know the GPU the server dies while it captures graphs; at TP 4 on SM 12.x a regression was published",
        way_back: "switch the engine's FlashInfer all-reduce fusion off and restart",
        modelled: "each block's stores of raw packs, polls until no mark for empty is left, sums and clears; the flags by which the blocks of a token exchange their sums of squares; links shared by all flows",
        not_modelled: &["clusters and programmatic launch"],
        needs: &[
            Need::Mesh,
            Need::FlashInferSm12 {
                since: (0, 6, 14),
                because: "its JIT dies: \"No supported CUDA architectures found for major versions [9, 10]\"",
            },
            Need::Nvlink {
                unless_at_most: 4,
                because: "vLLM's pass logs \"Flashinfer allreduce fusion is not supported for world size 8 or max size is not provided\" and disables itself",
            },
        ],
        declines: &[Decline {
            what: "vLLM's fusion pass disables itself where it knows no largest size for the group, and the unfused path runs",
            unless: Need::Nvlink { unless_at_most: 4, because: "no size known" },
            sign: "the log line \"Flashinfer allreduce fusion is not supported for world size ...\"",
        }],
        environment: &[],
        flags: &["--enable-flashinfer-allreduce-fusion"],
        fuses_norm: true,
        partition: Partition::tensor,
        lower: fused_push,
    },
    Strategy {
        id: "free-communication",
        summary: "every collective takes no time: the floor that no strategy passes",
        executor: Executor::ModelledOnly,
        effort: Effort::None,
        risk: Risk::Low,
        risk_words: "a bound, nothing to run",
        way_back: "nothing to undo",
        modelled: "nothing: collectives start and end at once, ranks still wait for each other",
        not_modelled: &[],
        needs: &[],
        declines: &[],
        environment: &[],
        flags: &[],
        fuses_norm: false,
        partition: Partition::tensor,
        lower: |context, _, _, bytes| {
            Ok(Lowering { schedule: Schedule::new(context.ranks, bytes), kernel: Kernel::None, through_host: Vec::new() })
        },
    },
];

fn fused_push(context: &super::Context<'_>, strategy: &Strategy, logical: Logical, bytes: u64) -> crate::error::Result<Lowering> {
    if logical != Logical::AllReduce || bytes > MESSAGE_MAX {
        return fall_back(context, logical, bytes);
    }
    // FlashInfer's kernel is Lamport's: raw packs. Ours sends lines.
    let protocol = if strategy.executor == Executor::Ours { Protocol::Ll } else { Protocol::Sentinel };
    let mut schedule = match rows(context, bytes) {
        Some(rows) => one_shot::push_and_normalise(context.ranks, bytes, rows, protocol),
        None => one_shot::push(context.ranks, bytes, push_grid(context, bytes), protocol),
    };
    schedule.result = Buffer::User;
    // Residual in, residual out, normalised out; the sum itself stays in registers.
    schedule.epilogue_bytes = 3 * bytes;
    Ok(Lowering::custom(schedule))
}

/// Blocks that share a token, most first; as our kernel is built (`gpu::fused`).
const SPLITS: [u64; 5] = [8, 5, 4, 2, 1];
/// Lines that a thread keeps at most.
const LINES_MAX: u64 = 4;
/// Least and most threads of a block.
const THREADS: std::ops::RangeInclusive<u64> = 64..=512;

/// How tokens are dealt to blocks: as finely as they fit beside the GPU's other ranks. `None` where no token
/// is known or none fits.
fn rows(context: &super::Context<'_>, bytes: u64) -> Option<Rows> {
    let row = context.row_bytes;
    if row == 0 || !bytes.is_multiple_of(row) {
        return None;
    }
    let (tokens, blocks_max) = (bytes / row, share_of_sms(context));
    SPLITS.into_iter().filter(|split| tokens * split <= blocks_max).find_map(|split| {
        let lines = (row / 8).div_ceil(split);
        let threads = lines.next_multiple_of(32).clamp(*THREADS.start(), *THREADS.end());
        (lines.div_ceil(threads) <= LINES_MAX).then_some(Rows { bytes: row, split: split as u32, threads: threads as u32 })
    })
}
