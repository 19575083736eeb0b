//! Attention blocks as operations of one rank: multi-head latent attention and
//! grouped queries.
//!
//! Query heads are split over the tensor-parallel ranks and must divide.
//! Key-value heads are split when there are enough; with fewer heads than ranks
//! each rank holds one, and `ranks / heads` ranks hold the same (as vLLM and
//! SGLang replicate). MLA's compressed cache is whole on every rank.

use super::op::Dtype;
use super::op::Family;
use super::op::Op;
use super::shape::Gqa;
use super::shape::Mla;
use super::shape::QkNorm;
use super::steps::ACTIVATION_BYTES;
use super::steps::ATTENTION_OUTPUT;
use super::steps::Steps;
use super::steps::mul;
use super::workload::Phase;
use super::workload::Workload;
use super::workload::split_by;
use crate::error::Result;

impl Workload {
    /// Positions of one sequence in the cache once this pass has written its own.
    pub fn positions(&self) -> u64 {
        self.context + self.tokens
    }

    /// Positions that the attention of one sequence reads when each token sees
    /// at most `window`, itself included.
    pub fn visible(&self, window: Option<u64>) -> u64 {
        match window {
            Some(window) => self.context.min(window.saturating_sub(1)) + self.tokens,
            None => self.positions(),
        }
    }

    /// Pairs of query and position over all tokens of one sequence, causal.
    fn pairs(&self, window: Option<u64>) -> u64 {
        let window = window.unwrap_or(u64::MAX);
        // Token i (from 1) sees min(context + i, window) positions.
        let growing = window.saturating_sub(self.context).min(self.tokens);
        let triangle = mul(&[growing, growing + 1]) / 2;
        let full = mul(&[self.tokens - growing, window.min(self.positions())]);
        mul(&[growing, self.context]).saturating_add(triangle).saturating_add(full)
    }
}

impl Steps<'_> {
    /// How the cache is kept in this pass.
    pub fn cache_dtype(&self) -> Dtype {
        self.workload.cache_dtype.unwrap_or(self.model.cache_dtype)
    }

    /// Multi-head latent attention. Decode and verify absorb the
    /// up-projections (two products per head) and attend over the compressed
    /// cache; prefill expands keys and values and attends head by head.
    pub fn mla(&mut self, mla: &Mla) -> Result<()> {
        let heads = self.shard.split(mla.heads, "query heads")?;
        let rows = self.workload.rows();
        let hidden = self.model.hidden;
        let query = heads * (mla.nope + mla.rope);
        if mla.q_rank > 0 {
            // Every rank needs the compressed queries and keys whole: replicated.
            self.gemm("qkv_a_proj", rows, mla.q_rank + mla.line(), hidden, mla.input_dtype, &["input_norm"]);
            let width = mla.q_rank + mla.kv_rank;
            self.elementwise("qkv_a_norm", rows, width, width, 2, &["qkv_a_proj"]);
            self.gemm("q_b_proj", rows, query, mla.q_rank, mla.q_up_dtype, &["qkv_a_norm"]);
        } else {
            self.gemm("kv_a_proj", rows, mla.line(), hidden, mla.input_dtype, &["input_norm"]);
            self.elementwise("qkv_a_norm", rows, mla.kv_rank, mla.kv_rank, 1, &["kv_a_proj"]);
            self.gemm("q_b_proj", rows, query, hidden, mla.q_up_dtype, &["input_norm"]);
        }
        self.rope_and_store("rope_cache_write", heads * mla.rope, mla.rope, mla.line(), &["q_b_proj", "qkv_a_norm"]);
        let picked = match &mla.indexer {
            Some(indexer) => self.indexer(indexer, mla)?,
            None => None,
        };
        if self.workload.phase == Phase::Prefill {
            self.mla_prefill(mla, heads, picked);
        } else {
            self.mla_decode(mla, heads, picked);
        }
        self.gemm(ATTENTION_OUTPUT, rows, hidden, heads * mla.value, mla.output_dtype, &[self.last_attention()]);
        Ok(())
    }

    fn last_attention(&self) -> &'static str {
        if self.workload.phase == Phase::Prefill { "attention" } else { "v_up_absorbed" }
    }

    fn mla_decode(&mut self, mla: &Mla, heads: u64, picked: Option<(&'static str, u64)>) {
        let workload = self.workload;
        let rows = workload.rows();
        self.batched("k_up_absorbed", heads, rows, mla.kv_rank, mla.nope, &["q_b_proj"]);
        let visible = picked.map_or(workload.positions(), |(_, top)| workload.positions().min(top));
        let line = self.cache_dtype().bytes_of(mla.line());
        // Verify tokens of a sequence share one walk over its cache. A sparse
        // choice is made per token, so that each token then walks its own.
        let walks = if picked.is_some() { workload.rows() } else { workload.batch };
        let op = Op {
            name: "attention",
            family: Family::MlaDecode { batch: workload.batch, tokens: workload.tokens, context: visible, heads, width: mla.line() },
            dtype: self.cache_dtype(),
            flops: mul(&[2, rows, heads, visible, mla.line() + mla.kv_rank]),
            weight_bytes: 0,
            cache_bytes: mul(&[walks, visible, line]),
            activation_bytes: mul(&[rows, heads, mla.line() + mla.kv_rank, ACTIVATION_BYTES]),
            // Split over the context, then combined.
            launches: 2,
        };
        let mut needs = vec!["k_up_absorbed", "rope_cache_write"];
        needs.extend(picked.map(|(name, _)| name));
        self.push(op, &needs);
        self.batched("v_up_absorbed", heads, rows, mla.value, mla.kv_rank, &["attention"]);
    }

    fn mla_prefill(&mut self, mla: &Mla, heads: u64, picked: Option<(&'static str, u64)>) {
        let workload = self.workload;
        // Keys and values of the cached prefix are expanded again.
        let expanded = mul(&[workload.batch, workload.positions()]);
        self.gemm("kv_b_proj", expanded, heads * (mla.nope + mla.value), mla.kv_rank, mla.kv_up_dtype, &["rope_cache_write"]);
        let width = mla.nope + mla.rope + mla.value;
        let limit = picked.map(|(_, top)| top);
        let line = self.cache_dtype().bytes_of(mla.line());
        let op = Op {
            name: "attention",
            family: Family::Prefill { batch: workload.batch, tokens: workload.tokens, context: workload.context, heads, width },
            dtype: Dtype::Bf16,
            flops: mul(&[2, workload.batch, workload.pairs(limit), heads, width]),
            weight_bytes: 0,
            cache_bytes: mul(&[workload.batch, workload.context, line]),
            activation_bytes: mul(&[workload.batch, workload.tokens + workload.positions(), heads, width, ACTIVATION_BYTES]),
            launches: 1,
        };
        let mut needs = vec!["kv_b_proj", "q_b_proj", "rope_cache_write"];
        needs.extend(picked.map(|(name, _)| name));
        self.push(op, &needs);
    }

    /// Rotary embedding of `rotated` query numbers and `keys` key numbers per
    /// row, and the write of `line` numbers per row to the cache.
    pub fn rope_and_store(&mut self, name: &'static str, rotated: u64, keys: u64, line: u64, needs: &[&'static str]) {
        let rows = self.workload.rows();
        self.elementwise(name, rows, rotated + keys + line, rotated + keys, 2, needs);
        let written = mul(&[rows, self.cache_dtype().bytes_of(line)]);
        if let Some(step) = self.list.last_mut() {
            step.op.cache_bytes = written;
        }
    }

    /// Grouped-query attention.
    pub fn gqa(&mut self, gqa: &Gqa) -> Result<()> {
        let tp = self.shard.tp;
        let heads = self.shard.split(gqa.heads, "query heads")?;
        let kv_heads = if gqa.kv_heads >= tp {
            split_by(tp, gqa.kv_heads, "key-value heads")?
        } else {
            split_by(gqa.kv_heads, tp, "ranks, which the key-value heads must divide to be replicated evenly")?;
            1
        };
        let rows = self.workload.rows();
        let (query, keys) = (heads * gqa.head_dim, kv_heads * gqa.head_dim);
        let outputs = query * if gqa.gated { 2 } else { 1 } + 2 * keys;
        self.gemm("qkv_proj", rows, outputs, self.model.hidden, gqa.input_dtype, &["input_norm"]);
        let mut before = "qkv_proj";
        match gqa.qk_norm {
            QkNorm::None => {}
            QkNorm::PerHead => {
                self.elementwise("qk_norm", rows, query + keys, query + keys, 2, &[before]);
                before = "qk_norm";
            }
            QkNorm::PerLayer => {
                self.elementwise(QK_NORM_SQUARES, rows, query + keys, 4, 1, &[before]);
                self.elementwise("qk_norm", rows, query + keys, query + keys, 1, &[before, QK_NORM_SQUARES]);
                before = "qk_norm";
            }
        }
        self.rope_and_store("rope_cache_write", query, keys, 2 * keys, &[before]);
        self.gqa_attention(gqa, heads, kv_heads);
        let mut last = "attention";
        if gqa.gated {
            self.elementwise("attention_gate", rows, 2 * query, query, 1, &[last, "qkv_proj"]);
            last = "attention_gate";
        }
        self.gemm(ATTENTION_OUTPUT, rows, self.model.hidden, query, gqa.output_dtype, &[last]);
        Ok(())
    }

    fn gqa_attention(&mut self, gqa: &Gqa, heads: u64, kv_heads: u64) {
        let workload = self.workload;
        let visible = workload.visible(gqa.window);
        let line = self.cache_dtype().bytes_of(2 * kv_heads * gqa.head_dim);
        let pairs = workload.pairs(gqa.window);
        let (batch, tokens, head_dim) = (workload.batch, workload.tokens, gqa.head_dim);
        let prefill = workload.phase == Phase::Prefill;
        let family = if prefill {
            Family::Prefill { batch, tokens, context: visible - tokens, heads, width: 2 * head_dim }
        } else {
            Family::GqaDecode { batch, tokens, context: visible, heads, kv_heads, head_dim }
        };
        let op = Op {
            name: "attention",
            family,
            dtype: self.cache_dtype(),
            flops: mul(&[4, batch, pairs, heads, head_dim]),
            weight_bytes: 0,
            // One walk over the cache serves all tokens of a sequence.
            cache_bytes: mul(&[batch, visible, line]),
            activation_bytes: mul(&[2, batch, tokens, heads, head_dim, ACTIVATION_BYTES]),
            launches: if prefill { 1 } else { 2 },
        };
        self.push(op, &["rope_cache_write"]);
    }
}

/// Sums of squares that a tensor-parallel group adds up before `qk_norm`.
pub const QK_NORM_SQUARES: &str = "qk_norm_squares";
