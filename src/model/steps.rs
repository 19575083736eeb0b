//! The operations of one rank for a layer, the embedding and the head, with
//! what each needs. A plan puts the collectives between them.
//!
//! Conventions, as serving engines (SGLang, vLLM) with CUDA graphs do it:
//! - activations are 16-bit; every operation reads and writes them in memory;
//! - the residual add is fused with the norm after it, one launch;
//! - a product of FP8 or NVFP4 weights quantizes its input in a launch of its own;
//! - products of equal input are fused (`qkv_proj`, `gate_up_proj`, MLA's
//!   `qkv_a_proj`); parts that every rank needs whole are replicated.

use super::Model;
use super::op::Dtype;
use super::op::Family;
use super::op::Op;
use super::shape::Attention;
use super::shape::Dense;
use super::shape::Experts;
use super::shape::FeedForward;
use super::shape::Layer;
use super::workload::Load;
use super::workload::Shard;
use super::workload::Workload;
use super::workload::split_by;
use crate::error::Fault;
use crate::error::Result;

/// Bytes of an activation (16-bit).
pub const ACTIVATION_BYTES: u64 = 2;

/// Vocabularies are padded to a multiple of this before they are split (vLLM
/// and SGLang: `DEFAULT_VOCAB_PADDING_SIZE`).
const VOCAB_PADDING: u64 = 64;

/// One operation and the operations of the same layer whose output it reads.
/// Without needs it reads what came before the layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The operation.
    pub op: Op,
    /// Names of operations in the same list.
    pub needs: Vec<&'static str>,
}

impl Model {
    /// The operations of one layer on one rank, in an order in which they can
    /// be issued. Names are unique within the list.
    ///
    /// # Errors
    /// `model-tp-indivisible`, `model-tp-splits-block`, `workload-bad-value`.
    pub fn layer_steps(&self, layer: &Layer, workload: &Workload, shard: Shard) -> Result<Vec<Step>> {
        workload.check()?;
        let mut steps = Steps::new(self, workload, shard);
        let rows = workload.rows();
        steps.norm("input_norm", rows, self.hidden, &[]);
        match &layer.attention {
            Attention::Mla(mla) => steps.mla(mla)?,
            Attention::Gqa(gqa) => steps.gqa(gqa)?,
            Attention::GatedDelta(delta) => steps.gated_delta(delta)?,
        }
        steps.norm("post_attention_norm", rows, self.hidden, &[ATTENTION_OUTPUT, "input_norm"]);
        match &layer.feed_forward {
            FeedForward::Dense(dense) => steps.dense(dense)?,
            FeedForward::Experts(experts) => steps.experts(experts)?,
        }
        Ok(steps.list)
    }

    /// The vocabulary-parallel embedding: each rank gathers the rows it holds.
    ///
    /// # Errors
    /// `workload-bad-value`.
    pub fn embedding_steps(&self, workload: &Workload, shard: Shard) -> Result<Vec<Step>> {
        workload.check()?;
        let mut steps = Steps::new(self, workload, shard);
        let cells = mul(&[workload.rows(), self.hidden]);
        steps.push(
            Op {
                name: "embedding",
                family: Family::Embedding,
                dtype: self.embedding_dtype,
                flops: 0,
                weight_bytes: self.embedding_dtype.bytes_of(cells.div_ceil(shard.tp.max(1))),
                cache_bytes: 0,
                activation_bytes: cells.saturating_mul(ACTIVATION_BYTES),
                launches: 1,
            },
            &[],
        );
        Ok(steps.list)
    }

    /// Final norm and this rank's columns of `lm_head`; with `sampling` what
    /// follows the gathered logits on every rank.
    ///
    /// # Errors
    /// `workload-bad-value`.
    pub fn head_steps(&self, workload: &Workload, shard: Shard) -> Result<Vec<Step>> {
        workload.check()?;
        let mut steps = Steps::new(self, workload, shard);
        let rows = workload.logit_rows();
        steps.norm("final_norm", rows, self.hidden, &[]);
        steps.gemm("lm_head", rows, self.vocab_share(shard.tp), self.hidden, self.head_dtype, &["final_norm"]);
        steps.sample(rows, mul(&[self.vocab_share(shard.tp), shard.tp]), &["lm_head"]);
        Ok(steps.list)
    }

    /// Columns of `lm_head` on one of `tp` ranks, padding included.
    pub fn vocab_share(&self, tp: u64) -> u64 {
        Model::padded_share(self.vocab, tp)
    }

    /// [`Model::vocab_share`] of a head with `columns` columns.
    pub fn padded_share(columns: u64, tp: u64) -> u64 {
        (columns.div_ceil(VOCAB_PADDING) * VOCAB_PADDING).div_ceil(tp.max(1))
    }
}

/// The operation after which a tensor-parallel group sums the attention.
pub const ATTENTION_OUTPUT: &str = "o_proj";

/// Collects the steps of one list.
pub(super) struct Steps<'a> {
    pub model: &'a Model,
    pub workload: &'a Workload,
    pub shard: Shard,
    pub list: Vec<Step>,
}

impl<'a> Steps<'a> {
    pub fn new(model: &'a Model, workload: &'a Workload, shard: Shard) -> Steps<'a> {
        Steps { model, workload, shard, list: Vec::with_capacity(24) }
    }

    pub fn push(&mut self, op: Op, needs: &[&'static str]) {
        self.list.push(Step { op, needs: needs.to_vec() });
    }

    /// `m × k` by `k × n`.
    pub fn gemm(&mut self, name: &'static str, m: u64, n: u64, k: u64, dtype: Dtype, needs: &[&'static str]) {
        let op = Op {
            name,
            family: Family::Gemm { m, n, k },
            dtype,
            flops: mul(&[2, m, n, k]),
            weight_bytes: dtype.bytes_of(mul(&[n, k])),
            cache_bytes: 0,
            activation_bytes: mul(&[m, n + k, ACTIVATION_BYTES]),
            launches: 1 + quantizes_input(dtype),
        };
        self.push(op, needs);
    }

    /// A product per head.
    pub fn batched(&mut self, name: &'static str, batch: u64, m: u64, n: u64, k: u64, needs: &[&'static str]) {
        let op = Op {
            name,
            family: Family::BatchedGemm { batch, m, n, k },
            dtype: Dtype::Bf16,
            flops: mul(&[2, batch, m, n, k]),
            weight_bytes: Dtype::Bf16.bytes_of(mul(&[batch, n, k])),
            cache_bytes: 0,
            activation_bytes: mul(&[batch, m, n + k, ACTIVATION_BYTES]),
            launches: 1,
        };
        self.push(op, needs);
    }

    /// Reads `read` numbers per row, writes `write`.
    pub fn elementwise(&mut self, name: &'static str, rows: u64, read: u64, write: u64, launches: u32, needs: &[&'static str]) {
        let cells = mul(&[rows, read + write]);
        let op = Op {
            name,
            family: Family::Elementwise,
            dtype: Dtype::Bf16,
            flops: cells,
            weight_bytes: 0,
            cache_bytes: 0,
            activation_bytes: cells.saturating_mul(ACTIVATION_BYTES),
            launches,
        };
        self.push(op, needs);
    }

    /// Residual add and RMSNorm in one launch: reads both, writes both.
    pub fn norm(&mut self, name: &'static str, rows: u64, width: u64, needs: &[&'static str]) {
        self.elementwise(name, rows, 2 * width, 2 * width, 1, needs);
    }

    /// Greedy choice or verification over all logits.
    pub fn sample(&mut self, rows: u64, vocab: u64, needs: &[&'static str]) {
        let op = Op {
            name: "sample",
            family: Family::Sample,
            dtype: Dtype::F32,
            flops: mul(&[2, rows, vocab]),
            weight_bytes: 0,
            cache_bytes: 0,
            activation_bytes: mul(&[rows, vocab, 4]),
            launches: 2,
        };
        self.push(op, needs);
    }

    fn dense(&mut self, dense: &Dense) -> Result<()> {
        let inner = self.inner(self.shard.tp, dense.intermediate, "columns of the feed-forward network", dense.down_dtype)?;
        let rows = self.workload.rows();
        self.network(["gate_up_proj", "act", "down_proj"], rows, inner, (dense.up_dtype, dense.down_dtype));
        Ok(())
    }

    /// Gate and up in one product, the activation, down.
    fn network(&mut self, names: [&'static str; 3], rows: u64, inner: u64, dtypes: (Dtype, Dtype)) {
        let [up, act, down] = names;
        let hidden = self.model.hidden;
        self.gemm(up, rows, 2 * inner, hidden, dtypes.0, &["post_attention_norm"]);
        self.elementwise(act, rows, 2 * inner, inner, 1, &[up]);
        self.gemm(down, rows, hidden, inner, dtypes.1, &[act]);
    }

    fn experts(&mut self, experts: &Experts) -> Result<()> {
        let rows = self.workload.rows();
        let own = self.shard.own_rows(rows);
        let hidden = self.model.hidden;
        self.push(
            Op {
                name: "router",
                family: Family::Router { tokens: own, experts: experts.experts },
                dtype: experts.router_dtype,
                flops: mul(&[2, own, hidden, experts.experts]),
                weight_bytes: experts.router_dtype.bytes_of(mul(&[hidden, experts.experts])),
                cache_bytes: 0,
                activation_bytes: mul(&[own, hidden + 2 * experts.experts, ACTIVATION_BYTES]),
                // Scores, top-k, alignment of tokens to blocks of experts.
                launches: 3,
            },
            &["post_attention_norm"],
        );
        self.routed(experts)?;
        let Some(shared) = &experts.shared else { return Ok(()) };
        let split = if self.shard.own_tokens { 1 } else { self.shard.tp };
        let inner = self.inner(split, shared.intermediate, "columns of the shared experts", shared.down_dtype)?;
        let names = ["shared_gate_up_proj", "shared_act", "shared_down_proj"];
        self.network(names, own, inner, (shared.up_dtype, shared.down_dtype));
        // The gate's product (one column), its sigmoid and the sum, or the sum alone.
        let launches = if shared.gated { 2 } else { 1 };
        self.elementwise("shared_add", own, 2 * hidden, hidden, launches, &["experts", "shared_down_proj"]);
        Ok(())
    }

    /// The routed experts of this rank, fused.
    fn routed(&mut self, experts: &Experts) -> Result<()> {
        let (workload, shard) = (self.workload, self.shard);
        let ep = shard.ep.max(1);
        let local = split_by(ep, experts.experts, "experts")?;
        if shard.tp % ep != 0 {
            return Err(Fault::new("model-tp-indivisible", format!("{ep} groups of experts do not divide {} ranks", shard.tp)));
        }
        let inner = self.inner(shard.tp / ep, experts.intermediate, "columns of an expert", experts.down_dtype)?;
        let touched = Touched::new(experts, workload, shard);
        let (rows, hidden) = (workload.rows(), self.model.hidden);
        let weights = |count: u64| {
            let up = experts.up_dtype.bytes_of(mul(&[2, hidden, inner])).saturating_mul(count);
            let down = experts.down_dtype.bytes_of(mul(&[hidden, inner])).saturating_mul(count);
            up.saturating_add(down)
        };
        let per_mille = weights(1000) as f64 / 1e6;
        let op = Op {
            name: "experts",
            family: Family::Experts {
                tokens: rows,
                hidden,
                intermediate: inner,
                top_k: experts.top_k,
                experts: local,
                distinct_milli: touched.distinct_milli,
            },
            dtype: experts.up_dtype,
            flops: mul(&[6, hidden, inner, touched.pairs]),
            weight_bytes: libm::round(per_mille * touched.distinct_milli as f64) as u64,
            cache_bytes: 0,
            // In and out per token-expert pair, and the inner values twice.
            activation_bytes: mul(&[touched.pairs, 2 * hidden + 4 * inner, ACTIVATION_BYTES]),
            // First product, activation, second product, weighted sum.
            launches: 4 + 2 * quantizes_input(experts.up_dtype),
        };
        self.push(op, &["router"]);
        Ok(())
    }

    /// An inner size split over `parts` ranks; each share must hold whole
    /// blocks of scales.
    fn inner(&self, parts: u64, whole: u64, what: &str, dtype: Dtype) -> Result<u64> {
        let share = split_by(parts, whole, what)?;
        let quantized = !matches!(dtype, Dtype::Bf16 | Dtype::Fp16 | Dtype::F32);
        match self.model.block {
            Some(block) if quantized && parts > 1 && share % block != 0 => Err(Fault::new(
                "model-tp-splits-block",
                format!("{parts} ranks leave {share} {what} each, which is no multiple of the {block} weights that share a scale"),
            )
            .help("take fewer ranks, or expert parallelism, which keeps experts whole")),
            _ => Ok(share),
        }
    }
}

/// What the routed experts of one rank meet.
struct Touched {
    distinct_milli: u64,
    pairs: u64,
}

impl Touched {
    /// Expectations. Pairs of token and expert on the fullest rank are taken in
    /// proportion to its distinct experts.
    fn new(experts: &Experts, workload: &Workload, shard: Shard) -> Touched {
        let (count, top_k) = (experts.experts, experts.top_k);
        let (batch, tokens, routing) = (workload.batch, workload.tokens, workload.routing);
        let ep = shard.ep.max(1) as f64;
        let all = super::routing::distinct(count, top_k, batch, tokens, routing);
        let mean = all / ep;
        let here = match shard.load {
            Load::Even => mean,
            Load::Fullest => super::routing::fullest(count, top_k, batch, tokens, routing, shard.ep),
            Load::Others => {
                let fullest = super::routing::fullest(count, top_k, batch, tokens, routing, shard.ep);
                ((all - fullest) / (ep - 1.0).max(1.0)).max(0.0)
            }
        };
        let pairs = mul(&[workload.rows(), top_k]) as f64 / ep * (here / mean.max(f64::MIN_POSITIVE));
        Touched { distinct_milli: libm::round(here * 1000.0) as u64, pairs: libm::ceil(pairs - 1e-9) as u64 }
    }
}

/// 1 when the product's input is quantized in a launch before it.
fn quantizes_input(dtype: Dtype) -> u32 {
    u32::from(matches!(dtype, Dtype::Fp8 | Dtype::Nvfp4))
}

/// A product that stops at the largest `u64`.
pub(super) fn mul(factors: &[u64]) -> u64 {
    factors.iter().fold(1, |product: u64, factor| product.saturating_mul(*factor))
}
