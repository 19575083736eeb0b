//! Operations of one rank: what is computed and how many bytes it touches.
//! No time here: `cost` prices an operation on a kind of GPU.

use serde::Serialize;

/// How numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Dtype {
    /// 32-bit floating point.
    F32,
    /// 16-bit brain floating point.
    Bf16,
    /// 16-bit half precision.
    Fp16,
    /// 8-bit floating point, with scales where the checkpoint has blocks.
    Fp8,
    /// 8-bit integers.
    Int8,
    /// 4-bit floating point with a scale per 16 (NVFP4).
    Nvfp4,
    /// 4-bit floating point with a scale per 32 (MXFP4).
    Mxfp4,
    /// 4-bit integers with a 16-bit scale per group.
    Int4 {
        /// Weights that share a scale.
        group: u32,
    },
}

impl Dtype {
    /// Bits per weight, scales included, times 1024 (so that it is an integer).
    pub fn millibits(self) -> u64 {
        match self {
            Dtype::F32 => 32 * 1024,
            Dtype::Bf16 | Dtype::Fp16 => 16 * 1024,
            Dtype::Fp8 | Dtype::Int8 => 8 * 1024,
            Dtype::Nvfp4 => 4 * 1024 + 8 * 1024 / 16,
            Dtype::Mxfp4 => 4 * 1024 + 8 * 1024 / 32,
            Dtype::Int4 { group } => 4 * 1024 + 16 * 1024 / u64::from(group.max(1)),
        }
    }

    /// Bytes of `count` numbers, rounded up; saturates at the largest `u64`.
    pub fn bytes_of(self, count: u64) -> u64 {
        let bits = u128::from(count) * u128::from(self.millibits());
        u64::try_from(bits.div_ceil(8 * 1024)).unwrap_or(u64::MAX)
    }
}

/// The family of kernels that does an operation, with its shape on this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// `m × k` activations by a `k × n` weight.
    Gemm {
        /// Rows (tokens).
        m: u64,
        /// Output features on this rank.
        n: u64,
        /// Input features on this rank.
        k: u64,
    },
    /// `batch` small products, e.g. the absorbed MLA projections (per head).
    BatchedGemm {
        /// Products (heads on this rank).
        batch: u64,
        /// Rows of each (tokens).
        m: u64,
        /// Output features of each.
        n: u64,
        /// Input features of each.
        k: u64,
    },
    /// Routed experts, both products and the activation between, fused.
    Experts {
        /// Tokens.
        tokens: u64,
        /// Hidden size.
        hidden: u64,
        /// Expert's inner size on this rank.
        intermediate: u64,
        /// Experts that a token is sent to.
        top_k: u64,
        /// Experts whose weights lie on this rank.
        experts: u64,
        /// Distinct experts that the tokens touch on this rank, times 1000.
        distinct_milli: u64,
    },
    /// Decode attention of MLA over the compressed cache.
    MlaDecode {
        /// Sequences.
        batch: u64,
        /// Tokens of each sequence in this pass.
        tokens: u64,
        /// Cached positions.
        context: u64,
        /// Query heads on this rank.
        heads: u64,
        /// Width of the compressed cache line (rank + rope).
        width: u64,
    },
    /// Decode attention with grouped queries.
    GqaDecode {
        /// Sequences.
        batch: u64,
        /// Tokens of each sequence in this pass.
        tokens: u64,
        /// Cached positions that are read (sliding windows cut it).
        context: u64,
        /// Query heads on this rank.
        heads: u64,
        /// Key-value heads on this rank.
        kv_heads: u64,
        /// Width of a head.
        head_dim: u64,
    },
    /// Prefill attention: all tokens against all before them.
    Prefill {
        /// Sequences.
        batch: u64,
        /// New tokens of each.
        tokens: u64,
        /// Cached positions before them.
        context: u64,
        /// Query heads on this rank.
        heads: u64,
        /// Key width plus value width of a head.
        width: u64,
    },
    /// Recurrent state of linear attention (gated delta rule).
    LinearAttention {
        /// Sequences.
        batch: u64,
        /// Tokens of each sequence.
        tokens: u64,
        /// Value heads on this rank.
        heads: u64,
        /// State per head, in elements.
        state: u64,
    },
    /// Norms, rotary, activations, residual adds: bytes in and out.
    Elementwise,
    /// Scores of the router, top-k and the permutation of tokens.
    Router {
        /// Tokens.
        tokens: u64,
        /// Experts in all.
        experts: u64,
    },
    /// Rows gathered from the embedding.
    Embedding,
    /// Sampling or verification over the gathered logits.
    Sample,
}

/// One operation on one rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Op {
    /// Stable name inside its layer, snake case, e.g. `q_a_proj`.
    pub name: &'static str,
    /// What kernel family, and its shape.
    pub family: Family,
    /// How the weights (or the cache, for attention) are stored.
    pub dtype: Dtype,
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes of weights read; for experts those of the distinct experts.
    pub weight_bytes: u64,
    /// Bytes of the key-value cache or recurrent state read and written.
    pub cache_bytes: u64,
    /// Bytes of activations read and written.
    pub activation_bytes: u64,
    /// Kernels that a serving engine launches for it.
    pub launches: u32,
}
