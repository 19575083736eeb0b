//! Strategies that this kind of machine mostly refuses, with the true reason.

use super::Effort;
use super::Executor;
use super::Logical;
use super::Lowering;
use super::Need;
use super::Risk;
use super::Strategy;
use super::custom::fall_back;
use super::custom::grid;
use crate::collective::one_shot;

/// The rows.
pub(super) const ALL: &[Strategy] = &[Strategy {
    id: "torch-symmetric",
    summary: "torch symmetric memory: one-shot or multimem all-reduce over a symmetric allocation",
    executor: Executor::ModelledOnly,
    effort: Effort::Hours,
    risk: Risk::Medium,
    risk_words: "its barriers use compare-and-swap on peers, which PCIe without native peer atomics does not keep atomic",
    way_back: "VLLM_ALLREDUCE_USE_SYMM_MEM=0",
    not_modelled: &["multimem instructions"],
    needs: &[Need::Multicast {
        because: "vLLM's symm_mem wants compute capability 9.0, 10.0 or 10.3 and a multicast pointer; PyTorch's wants full NVLink",
    }],
    environment: &[("VLLM_ALLREDUCE_USE_SYMM_MEM", "1")],
    flags: &[],
    fuses_norm: false,
    lower: |context, _, logical, bytes| match logical {
        Logical::AllReduce => Ok(Lowering::custom(one_shot::pull(context.ranks, bytes, grid(context, bytes), true))),
        other => fall_back(context, other, bytes),
    },
}];
