//! The lightning indexer of sparse attention (DSA) as operations of one rank.
//!
//! It is replicated: every rank scores all cached positions with all indexer
//! heads, because every rank needs the same choice. Its own cache holds one
//! key of `head_dim` FP8 numbers (and a 4-byte scale) per position.

use super::op::Dtype;
use super::op::Family;
use super::op::Op;
use super::shape::Indexer;
use super::shape::Mla;
use super::steps::ACTIVATION_BYTES;
use super::steps::Steps;
use super::steps::mul;
use crate::error::Result;

impl Steps<'_> {
    /// Pushes the indexer; returns the step that attention needs and the number
    /// of positions it leaves. Below that number engines skip the scoring, the
    /// key is still stored.
    pub fn indexer(&mut self, indexer: &Indexer, mla: &Mla) -> Result<Option<(&'static str, u64)>> {
        let workload = self.workload;
        let rows = workload.rows();
        let hidden = self.model.hidden;
        let width = indexer.heads * indexer.head_dim;
        let (source, from) = if mla.q_rank > 0 { (mla.q_rank, "qkv_a_norm") } else { (hidden, "input_norm") };
        self.gemm("index_k_proj", rows, indexer.head_dim, hidden, indexer.dtype, &["input_norm"]);
        self.rope_and_store("index_k_write", 0, indexer.head_dim, 0, &["index_k_proj"]);
        let key_bytes = Dtype::Fp8.bytes_of(indexer.head_dim) + 4;
        if let Some(step) = self.list.last_mut() {
            step.op.cache_bytes = mul(&[rows, key_bytes]);
        }
        if workload.positions() <= indexer.top_k {
            return Ok(None);
        }
        self.gemm("index_q_proj", rows, width, source, indexer.dtype, &[from]);
        self.gemm("index_weights_proj", rows, indexer.heads, hidden, Dtype::Bf16, &["input_norm"]);
        self.elementwise("index_q_rope", rows, width, width, 2, &["index_q_proj"]);
        let positions = workload.positions();
        let op = Op {
            name: "index_scores",
            family: Family::GqaDecode {
                batch: workload.batch,
                tokens: workload.tokens,
                context: positions,
                heads: indexer.heads,
                kv_heads: 1,
                head_dim: indexer.head_dim,
            },
            dtype: Dtype::Fp8,
            flops: mul(&[2, rows, indexer.heads, positions, indexer.head_dim]),
            weight_bytes: 0,
            cache_bytes: mul(&[workload.batch, positions, key_bytes]),
            activation_bytes: mul(&[rows, width, ACTIVATION_BYTES]).saturating_add(mul(&[rows, positions, 4])),
            launches: 1,
        };
        self.push(op, &["index_q_rope", "index_weights_proj", "index_k_write"]);
        self.elementwise("index_top_k", rows, 2 * positions, 2 * indexer.top_k, 1, &["index_scores"]);
        Ok(Some(("index_top_k", indexer.top_k)))
    }
}
