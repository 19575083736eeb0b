//! Strategies that split the model another way; their collectives are NCCL's.

use crate::plan::ExpertExchange;
use crate::plan::Partition;

use super::Effort;
use super::Executor;
use super::Need;
use super::Risk;
use super::Strategy;
use super::custom::fall_back;
use super::nccl_family::row;

/// The rows.
pub(super) const ALL: &[Strategy] = &[
    Strategy {
        executor: Executor::ModelledOnly,
        effort: Effort::Minutes,
        risk: Risk::Medium,
        risk_words: "every pass waits for the rank whose experts are wanted most; field reports on PCIe find it slower or equal, with one exception",
        way_back: "take the flag out and restart",
        modelled: "whole experts on a rank, tokens to their experts and back by all-to-all, the fullest rank decides; NCCL's grouped sends and receives",
        not_modelled: &["replicated experts and their balancing", "DeepEP's kernels"],
        needs: &[Need::Check("a model with experts, their number divisible by the ranks")],
        flags: &["--enable-expert-parallel (vLLM), --ep-size (SGLang)"],
        partition: |tp| Partition { ep: tp, exchange: ExpertExchange::AllToAll, ..Partition::tensor(tp) },
        lower: |context, _, logical, bytes| fall_back(context, logical, bytes),
        ..row("expert-parallel", "each rank holds whole experts: the all-reduce after them becomes two all-to-alls and an all-gather", &[])
    },
    Strategy {
        executor: Executor::ModelledOnly,
        effort: Effort::Minutes,
        risk: Risk::Medium,
        risk_words: "a single request passes the stages one after another: each GPU computes half of the time",
        way_back: "go back to --tensor-parallel-size 8 and restart",
        modelled: "groups of half the ranks with their own NCCL, one hidden state handed on, stages one after another",
        not_modelled: &["several requests in flight in the pipeline"],
        needs: &[Need::Ranks(&[8]), Need::Check("layers divide evenly, and half of the model fits half of the GPUs")],
        flags: &["--tensor-parallel-size 4 --pipeline-parallel-size 2"],
        partition: |ranks| Partition { pp: 2, ..Partition::tensor((ranks / 2).max(1)) },
        lower: |context, _, logical, bytes| fall_back(context, logical, bytes),
        ..row("tp4-pp2", "two pipeline stages of half the ranks each: all-reduces inside an island, one message between the stages", &[])
    },
];
