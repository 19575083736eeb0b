//! What a layer is made of: attention and feed-forward shapes, and how each
//! weight is stored. Whole sizes, before any partition.

use super::op::Dtype;

/// One transformer layer. Equal layers are one template in a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// How tokens look at one another.
    pub attention: Attention,
    /// What each token goes through alone.
    pub feed_forward: FeedForward,
}

/// Kinds of attention that are modelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attention {
    /// Multi-head latent attention over a compressed cache.
    Mla(Mla),
    /// Grouped queries (multi-head and multi-query are its ends).
    Gqa(Gqa),
    /// Linear attention by the gated delta rule.
    GatedDelta(GatedDelta),
}

/// Multi-head latent attention (DeepSeek-V2 and later).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mla {
    /// Query heads.
    pub heads: u64,
    /// Rank of the compressed queries; 0 when queries are not compressed.
    pub q_rank: u64,
    /// Rank of the compressed keys and values.
    pub kv_rank: u64,
    /// Width of a head's keys without position.
    pub nope: u64,
    /// Width of the keys that carry position, shared by all heads.
    pub rope: u64,
    /// Width of a head's values.
    pub value: u64,
    /// Sparse selection of positions (DSA), if the model has it.
    pub indexer: Option<Indexer>,
    /// `q_a_proj` and `kv_a_proj_with_mqa`, which engines fuse.
    pub input_dtype: Dtype,
    /// `q_b_proj` (or `q_proj` when queries are not compressed).
    pub q_up_dtype: Dtype,
    /// `kv_b_proj`.
    pub kv_up_dtype: Dtype,
    /// `o_proj`.
    pub output_dtype: Dtype,
}

impl Mla {
    /// Elements of the cache per position: compressed line and shared rotary keys.
    pub fn line(&self) -> u64 {
        self.kv_rank + self.rope
    }
}

/// The lightning indexer of DeepSeek Sparse Attention: scores every cached
/// position with a few small heads and keeps the best.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Indexer {
    /// Heads of the indexer.
    pub heads: u64,
    /// Width of each.
    pub head_dim: u64,
    /// Positions kept for each token.
    pub top_k: u64,
    /// Its projections.
    pub dtype: Dtype,
}

/// How queries and keys are normalised before attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// Not at all.
    None,
    /// Each head alone (Qwen3).
    PerHead,
    /// Over all heads of the layer (MiniMax-M2): tensor parallelism then needs
    /// the sum of squares of all ranks.
    PerLayer,
}

/// Grouped-query attention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gqa {
    /// Query heads.
    pub heads: u64,
    /// Key-value heads.
    pub kv_heads: u64,
    /// Width of a head.
    pub head_dim: u64,
    /// Positions that a token sees, itself included; `None` is all.
    pub window: Option<u64>,
    /// The output is gated by a second query-sized projection (Qwen3.5).
    pub gated: bool,
    /// Normalisation of queries and keys.
    pub qk_norm: QkNorm,
    /// Bias in the query, key and value projections.
    pub bias: bool,
    /// Bias in the output projection.
    pub output_bias: bool,
    /// A learned logit per head in the softmax (gpt-oss).
    pub sinks: bool,
    /// `q_proj`, `k_proj`, `v_proj`, which engines fuse.
    pub input_dtype: Dtype,
    /// `o_proj`.
    pub output_dtype: Dtype,
}

/// Gated delta net (Qwen3-Next, Qwen3.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatedDelta {
    /// Key (and query) heads.
    pub key_heads: u64,
    /// Value heads, each with a state of key width × value width.
    pub value_heads: u64,
    /// Width of a key head.
    pub key_dim: u64,
    /// Width of a value head.
    pub value_dim: u64,
    /// Taps of the causal convolution before it.
    pub conv_taps: u64,
    /// How the recurrent state is kept.
    pub state_dtype: Dtype,
    /// The input projections.
    pub input_dtype: Dtype,
    /// `out_proj`.
    pub output_dtype: Dtype,
}

impl GatedDelta {
    /// Channels of the convolution: queries, keys and values.
    pub fn conv_channels(&self) -> u64 {
        2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
    }
}

/// What follows attention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedForward {
    /// One network for all tokens.
    Dense(Dense),
    /// A mixture of experts.
    Experts(Experts),
}

/// A gated network: `down(act(gate(x)) * up(x))`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dense {
    /// Inner size.
    pub intermediate: u64,
    /// Has biases.
    pub bias: bool,
    /// `gate_proj` and `up_proj`, which engines fuse.
    pub up_dtype: Dtype,
    /// `down_proj`.
    pub down_dtype: Dtype,
}

/// A mixture of gated networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experts {
    /// Routed experts.
    pub experts: u64,
    /// Experts that a token is sent to.
    pub top_k: u64,
    /// Inner size of one.
    pub intermediate: u64,
    /// Experts and router have biases (gpt-oss).
    pub bias: bool,
    /// A bias per expert corrects the choice (DeepSeek-V3, MiniMax-M2).
    pub correction_bias: bool,
    /// Experts that every token is sent to, taken as one network.
    pub shared: Option<Shared>,
    /// The router's weight; left out of quantization by every checkpoint known.
    pub router_dtype: Dtype,
    /// First product of the routed experts.
    pub up_dtype: Dtype,
    /// Second product of the routed experts.
    pub down_dtype: Dtype,
}

/// The shared experts of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Inner size of all of them together.
    pub intermediate: u64,
    /// Scaled by a sigmoid gate per token (Qwen).
    pub gated: bool,
    /// First product.
    pub up_dtype: Dtype,
    /// Second product.
    pub down_dtype: Dtype,
}
