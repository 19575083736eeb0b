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
    Strategy {
        executor: Executor::ModelledOnly,
        effort: Effort::Hours,
        risk: Risk::Medium,
        risk_words: "both halves read the weights: where reading them is most of the time, a pass takes longer than it hides",
        way_back: "take the flag out and restart",
        modelled: "two halves of the batch on one compute stream and one communication stream: one computes while the other's collective is under way",
        not_modelled: &[
            "multiprocessors and memory bandwidth that a collective takes from the kernels beside it",
            "prompts of unequal length",
        ],
        needs: &[Need::Check("an even batch, and an engine that splits decode steps (SGLang and vLLM do so for expert-parallel models)")],
        flags: &["--enable-two-batch-overlap (SGLang), --enable-dbo (vLLM)"],
        partition: |tp| Partition { micro_batches: 2, ..Partition::tensor(tp) },
        lower: |context, _, logical, bytes| fall_back(context, logical, bytes),
        ..row("two-batch-overlap", "the batch in two halves that take turns: one computes while the other's all-reduce is under way", &[])
    },
    Strategy {
        executor: Executor::ModelledOnly,
        effort: Effort::None,
        risk: Risk::High,
        risk_words: "another model: one that was not trained so gives other tokens",
        way_back: "use the checkpoint as it was trained",
        modelled: "one all-reduce a layer for the sum of attention and feed-forward part, in place of two",
        not_modelled: &["what it does to the model's quality"],
        needs: &[Need::Check(
            "a checkpoint whose layers were trained side by side (Falcon, GPT-J, Command R); a bound for every other model",
        )],
        partition: |tp| Partition { parallel_blocks: true, ..Partition::tensor(tp) },
        lower: |context, _, logical, bytes| fall_back(context, logical, bytes),
        ..row("parallel-blocks", "fewer messages: attention and feed-forward part side by side, their sum is one all-reduce a layer", &[])
    },
];
