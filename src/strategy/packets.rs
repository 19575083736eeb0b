//! MSCCL++'s packet kernels and NCCL's symmetric-memory kernel.

use crate::collective::one_shot::Grid;
use crate::collective::packet;
use crate::collective::symmetric;
use crate::plan::Partition;

use super::Context;
use super::Effort;
use super::Executor;
use super::Logical;
use super::Lowering;
use super::Need;
use super::Risk;
use super::Strategy;
use super::custom::LINES;
use super::custom::fall_back;
use super::custom::share_of_sms;

/// Above this MSCCL++ leaves packets (algorithm_selector.cc), and NCCL does the rest.
const PACKETS_MAX: u64 = 1 << 20;
/// Data that a block of NCCL's kernel moves at once: 512 threads of 8 B.
const TRIP: u64 = 4096;

const SELECTOR: Need =
    Need::Majors { majors: &[7, 8, 9, 11, 12], because: "on compute capability 10.x MSCCL++ takes a selector that assumes NVLS" };
const SHIM: &str = "LD_PRELOAD=libmscclpp_nccl.so, or SGLang's --enable-mscclpp (8 or 16 consecutive ranks, not inside piecewise graphs)";

const fn mscclpp(
    id: &'static str,
    summary: &'static str,
    lower: fn(&Context<'_>, &Strategy, Logical, u64) -> crate::error::Result<Lowering>,
) -> Strategy {
    Strategy {
        id,
        summary,
        executor: Executor::Ours,
        effort: Effort::Hours,
        risk: Risk::Medium,
        risk_words: "nobody has published numbers on PCIe; without its own NCCL to fall back on it fails for what it lacks",
        way_back: "take the preload or the flag out and restart",
        modelled: LINES,
        not_modelled: &["its tuning at start", "how our kernels, which stand in for it on GPUs, deal blocks otherwise"],
        needs: &[Need::Mesh, SELECTOR],
        declines: &[],
        environment: &[],
        flags: &[SHIM],
        fuses_norm: false,
        partition: Partition::tensor,
        lower,
    }
}

/// The rows.
pub(super) const ALL: &[Strategy] = &[
    mscclpp(
        "mscclpp-allpair",
        "MSCCL++ all-pair: one hop, each peer's warps push the whole message to it as packets of 8 B; its own choice up to 16 KiB",
        |context, _, logical, bytes| match logical {
            Logical::AllReduce if bytes <= PACKETS_MAX => Ok(Lowering::custom(packet::all_pair(context.ranks, bytes, peers_grid(context)))),
            other => fall_back(context, other, bytes),
        },
    ),
    mscclpp(
        "mscclpp-packet",
        "MSCCL++ packets in two hops: shards to their owners, sums to all, as packets of 16 B; its own choice up to 1 MiB",
        |context, _, logical, bytes| match logical {
            Logical::AllReduce if bytes <= PACKETS_MAX => Ok(Lowering::custom(packet::two_hop(context.ranks, bytes, peers_grid(context)))),
            other => fall_back(context, other, bytes),
        },
    ),
    Strategy {
        id: "nccl-symmetric",
        summary: "NCCL's symmetric-memory kernel AGxLL_R: each thread stores its line to all ranks and polls all slots, trip by trip",
        executor: Executor::Ours,
        effort: Effort::Hours,
        risk: Risk::Medium,
        risk_words: "its cost model assumes NVLink; windows must be registered by all ranks in the same order",
        way_back: "unset the variables and restart the server",
        modelled: LINES,
        not_modelled: &["NCCL's choice between its kernels", "the barrier that registers windows"],
        needs: &[
            Need::Mesh,
            Need::Nccl {
                since: (2, 27),
                before: Some((2, 29)),
                nvlink_exempt: true,
                because: "symmetric kernels came with 2.27, and since 2.29 NCCL refuses them unless all pairs have direct NVLink",
            },
            Need::Check("buffers registered as symmetric windows (vLLM: VLLM_USE_NCCL_SYMM_MEM=1)"),
        ],
        declines: &[],
        environment: &[
            ("NCCL_WIN_ENABLE", "1"),
            ("NCCL_CUMEM_ENABLE", "1"),
            ("NCCL_P2P_LEVEL", "SYS"),
            ("NCCL_SYM_KERNEL", "AllReduce_AGxLL_R"),
        ],
        flags: &[],
        fuses_norm: false,
        partition: Partition::tensor,
        lower: |context, _, logical, bytes| match logical {
            Logical::AllReduce => {
                let blocks = bytes.div_ceil(TRIP).clamp(1, share_of_sms(context).min(32)) as u32;
                Ok(Lowering::custom(symmetric::all_reduce(context.ranks, bytes, Grid { blocks, threads: 512 })))
            }
            other => fall_back(context, other, bytes),
        },
    },
];

/// MSCCL++'s default: four blocks a peer, 512 threads.
fn peers_grid(context: &Context<'_>) -> Grid {
    let peers = context.ranks.saturating_sub(1).max(1) as u64;
    let per_peer = (share_of_sms(context) / peers).clamp(1, 4);
    Grid { blocks: (peers * per_peer) as u32, threads: 512 }
}
