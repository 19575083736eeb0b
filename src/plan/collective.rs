//! Collectives as a plan states them: what, how many bytes, among whom, why.
//! How they are carried out is a strategy's matter.

use super::Partition;

/// What a collective does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Sum on every rank.
    AllReduce,
    /// Every rank ends with all parts.
    AllGather,
    /// Every rank ends with its part of the sum.
    ReduceScatter,
    /// Every rank sends a part to every other.
    AllToAll,
    /// One rank to one rank.
    SendRecv,
}

impl Kind {
    /// As formats name it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::AllReduce => "all_reduce",
            Kind::AllGather => "all_gather",
            Kind::ReduceScatter => "reduce_scatter",
            Kind::AllToAll => "all_to_all",
            Kind::SendRecv => "send_recv",
        }
    }
}

/// Why a collective is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// After the vocabulary-parallel embedding.
    EmbedAllreduce,
    /// After attention's output projection.
    AttnAllreduce,
    /// After the feed-forward network or the experts.
    MlpAllreduce,
    /// Sums of squares of a norm over all heads (MiniMax-M2).
    QkNormAllreduce,
    /// Tokens to their experts.
    MoeDispatch,
    /// Results back.
    MoeCombine,
    /// Tokens of all ranks for the next attention.
    MoeTokenGather,
    /// Columns of the logits.
    LogitsGather,
    /// Hidden state and residual to the next stage.
    StageSend,
    /// The same, on the receiving side.
    StageRecv,
}

impl Role {
    /// As ids name it.
    pub fn name(self) -> &'static str {
        match self {
            Role::EmbedAllreduce => "embed_allreduce",
            Role::AttnAllreduce => "attn_allreduce",
            Role::MlpAllreduce => "mlp_allreduce",
            Role::QkNormAllreduce => "qk_norm_allreduce",
            Role::MoeDispatch => "moe_dispatch",
            Role::MoeCombine => "moe_combine",
            Role::MoeTokenGather => "moe_token_gather",
            Role::LogitsGather => "logits_gather",
            Role::StageSend => "stage_send",
            Role::StageRecv => "stage_recv",
        }
    }

    /// One of the layers' all-reduces that strategies compete for: after
    /// attention, after the feed-forward part.
    pub fn is_layer_allreduce(self) -> bool {
        matches!(self, Role::AttnAllreduce | Role::MlpAllreduce)
    }
}

/// Who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// The tensor-parallel ranks of a stage.
    Tensor,
    /// The ranks among which whole experts are dealt; equal to the
    /// tensor-parallel ones when `ep` = `tp`.
    Expert,
    /// A rank and its counterpart in the next stage (send) or the one before (receive).
    NextStage,
    /// See [`Group::NextStage`].
    PreviousStage,
}

impl Group {
    /// The members that `rank` meets, itself included, in ascending order.
    pub fn members(self, partition: &Partition, rank: u32) -> Vec<u32> {
        let tp = partition.tp.max(1);
        match self {
            Group::Tensor | Group::Expert => partition.stage_ranks(rank / tp).collect(),
            Group::NextStage => vec![rank, rank + tp],
            Group::PreviousStage => vec![rank.saturating_sub(tp), rank],
        }
    }
}

/// A collective of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct Collective {
    /// What it does.
    pub kind: Kind,
    /// Why it is there.
    pub role: Role,
    /// As nccl-tests counts: all-reduce the buffer; all-gather what each rank
    /// ends with; reduce-scatter what each begins with; all-to-all what the
    /// rank that sends most sends in all; send and receive the message.
    pub bytes: u64,
    /// Who takes part.
    pub group: Group,
}
