//! Strategies that spare the boundary between islands of GPUs.

use crate::collective::Protocol;
use crate::collective::Schedule;
use crate::collective::hierarchical;
use crate::collective::islands::Islands;
use crate::collective::one_shot;
use crate::collective::one_shot::Grid;
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
use super::custom::LINES;
use super::custom::MESSAGE_MAX;
use super::custom::fall_back;
use super::custom::items_grid;

/// The rows.
pub(super) const ALL: &[Strategy] = &[
    Strategy {
        id: "hierarchical",
        summary: "reduce-scatter inside islands (GPUs of a switch or a socket), exchange of shards across, all-gather inside; lines, no barrier",
        executor: Executor::Ours,
        effort: Effort::Days,
        risk: Risk::High,
        risk_words: "a kernel of one's own in the engine's hottest place; ranks must be dealt to GPUs as it assumes",
        way_back: "take the patch out",
        modelled: LINES,
        not_modelled: &[],
        needs: &[Need::PeerAccess, Need::Islands],
        declines: &[],
        environment: &[],
        flags: &["patch the engine: a communicator of its own before NCCL's"],
        fuses_norm: false,
        partition: Partition::tensor,
        lower: |context, _, logical, bytes| match (logical, context.islands()) {
            (Logical::AllReduce, Some(islands)) if bytes <= MESSAGE_MAX => {
                let grid = items_grid(context, bytes.div_ceil(8 * islands.size() as u64));
                Ok(Lowering::custom(hierarchical::all_reduce(&islands, bytes, grid, Protocol::Ll)))
            }
            (other, _) => fall_back(context, other, bytes),
        },
    },
    Strategy {
        id: "flashinfer-pcie-ipc",
        summary: "FlashInfer's PCIe all-reduce by its seed policy: pushed 4 + 4 islands (8 GPUs) or a staged block (4) below 32 KiB, staged one-to-one passes above",
        executor: Executor::ModelledOnly,
        effort: Effort::Days,
        risk: Risk::Medium,
        risk_words: "a young kernel that wants tuning on each host; lost prefill time to an eight-bit ring where it was measured",
        way_back: "take the engine's switch for it out and restart",
        modelled: "the seed policy's kernels: pushes, marks for empty, fences, flags and barriers of each pass; islands of consecutive ranks",
        not_modelled: &["the tuned policy (it searches blocks and threads on the host)", "payloads above the staging memory"],
        needs: &[
            Need::PeerAccess,
            Need::Ranks(&[2, 4, 8]),
            Need::FlashInfer { since: (0, 6, 18), because: "the kernel came in August 2026, after this version" },
            Need::Check("ranks 0 to 3 and 4 to 7 on one side of the slowest boundary each; run its tune() on the host"),
        ],
        declines: &[],
        environment: &[],
        flags: &["an engine that has it (SGLang #34528, vLLM's flashinfer_pcie_ipc_all_reduce)"],
        fuses_norm: false,
        partition: Partition::tensor,
        lower: |context, _, logical, bytes| match logical {
            // Packs of 16 B, at least one a rank.
            Logical::AllReduce if bytes % 16 == 0 && bytes >= 16 * context.ranks as u64 => {
                Ok(Lowering::custom(seed_policy(context.ranks, bytes)))
            }
            other => fall_back(context, other, bytes),
        },
    },
];

/// pcie_ipc_policy.py:67-135. Two ranks are not in it: one push.
fn seed_policy(ranks: usize, bytes: u64) -> Schedule {
    let islands = Islands::consecutive(ranks, if ranks == 8 { 4 } else { ranks });
    let staging = |one_to_one| Staging { protocol: Protocol::Simple, one_to_one };
    if bytes >= 32 << 10 {
        let blocks = (bytes / (256 << 10)).clamp(1, 4) as u32;
        return staged::all_reduce(&islands, bytes, Grid { blocks, threads: 256 }, staging(true));
    }
    match ranks {
        8 => hierarchical::all_reduce(&islands, bytes, Grid { blocks: 16, threads: 256 }, Protocol::Sentinel),
        4 => staged::all_reduce(&islands, bytes, Grid { blocks: 1, threads: 256 }, staging(false)),
        _ => one_shot::push(ranks, bytes, Grid { blocks: 16, threads: 256 }, Protocol::Sentinel),
    }
}
