//! Parameters and bytes of weights, counted tensor by tensor.

use super::Model;
use super::op::Dtype;
use super::shape::Attention;
use super::shape::Experts;
use super::shape::FeedForward;
use super::shape::GatedDelta;
use super::shape::Gqa;
use super::shape::Layer;
use super::shape::Mla;
use super::shape::QkNorm;

/// A sum over tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Numbers, scales of quantized blocks not counted.
    pub parameters: u64,
    /// Bytes as stored, scales counted.
    pub bytes: u64,
}

impl Totals {
    fn add(&mut self, dtype: Dtype, count: u64) {
        self.parameters = self.parameters.saturating_add(count);
        self.bytes = self.bytes.saturating_add(dtype.bytes_of(count));
    }

    fn add_times(&mut self, other: Totals, times: u64) {
        self.parameters = self.parameters.saturating_add(other.parameters.saturating_mul(times));
        self.bytes = self.bytes.saturating_add(other.bytes.saturating_mul(times));
    }
}

/// The parts of a model's total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Embedding, layers, final norm and head: what a plain pass uses.
    pub text: Totals,
    /// Multi-token-prediction layers; published totals leave them out.
    pub mtp: Totals,
    /// Parameters that one token goes through (embedding and head counted whole).
    pub active: u64,
}

impl Model {
    /// Counts parameters and weight bytes. A vision tower is not counted.
    pub fn parameters(&self) -> Parameters {
        let mut text = Totals::default();
        text.add(self.embedding_dtype, self.vocab * self.hidden);
        if !self.tied {
            text.add(self.head_dtype, self.vocab * self.hidden);
        }
        text.add(Dtype::Bf16, self.hidden);
        let mut active = text.parameters;
        for (kind, layer) in self.kinds.iter().enumerate() {
            let count = self.layers.iter().filter(|l| **l == kind).count() as u64;
            let (totals, used) = layer_totals(layer, self.hidden);
            text.add_times(totals, count);
            active = active.saturating_add(used.saturating_mul(count));
        }
        let mut mtp = Totals::default();
        if let Some(module) = &self.mtp {
            let (mut totals, _) = layer_totals(&module.layer, self.hidden);
            totals.add(module.projection_dtype, 2 * self.hidden * self.hidden);
            totals.add(Dtype::Bf16, 3 * self.hidden);
            mtp.add_times(totals, module.layers);
        }
        Parameters { text, mtp, active }
    }
}

/// Totals of a layer, and the parameters that one token uses.
fn layer_totals(layer: &Layer, hidden: u64) -> (Totals, u64) {
    let mut totals = Totals::default();
    totals.add(Dtype::Bf16, 2 * hidden);
    match &layer.attention {
        Attention::Mla(mla) => add_mla(&mut totals, mla, hidden),
        Attention::Gqa(gqa) => add_gqa(&mut totals, gqa, hidden),
        Attention::GatedDelta(delta) => add_delta(&mut totals, delta, hidden),
    }
    match &layer.feed_forward {
        FeedForward::Dense(dense) => {
            totals.add(dense.up_dtype, 2 * hidden * dense.intermediate);
            totals.add(dense.down_dtype, hidden * dense.intermediate);
            if dense.bias {
                totals.add(Dtype::Bf16, 2 * dense.intermediate + hidden);
            }
            (totals, totals.parameters)
        }
        FeedForward::Experts(experts) => {
            add_around_experts(&mut totals, experts, hidden);
            let mut one = Totals::default();
            one.add(experts.up_dtype, 2 * hidden * experts.intermediate);
            one.add(experts.down_dtype, hidden * experts.intermediate);
            if experts.bias {
                one.add(Dtype::Bf16, 2 * experts.intermediate + hidden);
            }
            let used = totals.parameters.saturating_add(one.parameters.saturating_mul(experts.top_k));
            totals.add_times(one, experts.experts);
            (totals, used)
        }
    }
}

fn add_around_experts(totals: &mut Totals, experts: &Experts, hidden: u64) {
    totals.add(experts.router_dtype, hidden * experts.experts);
    if experts.correction_bias {
        totals.add(Dtype::F32, experts.experts);
    }
    if experts.bias {
        totals.add(Dtype::Bf16, experts.experts);
    }
    if let Some(shared) = &experts.shared {
        totals.add(shared.up_dtype, 2 * hidden * shared.intermediate);
        totals.add(shared.down_dtype, hidden * shared.intermediate);
        if shared.gated {
            totals.add(Dtype::Bf16, hidden);
        }
    }
}

fn add_mla(totals: &mut Totals, mla: &Mla, hidden: u64) {
    let query = mla.heads * (mla.nope + mla.rope);
    if mla.q_rank > 0 {
        totals.add(mla.input_dtype, hidden * mla.q_rank);
        totals.add(Dtype::Bf16, mla.q_rank);
        totals.add(mla.q_up_dtype, mla.q_rank * query);
    } else {
        totals.add(mla.q_up_dtype, hidden * query);
    }
    totals.add(mla.input_dtype, hidden * mla.line());
    totals.add(Dtype::Bf16, mla.kv_rank);
    totals.add(mla.kv_up_dtype, mla.kv_rank * mla.heads * (mla.nope + mla.value));
    totals.add(mla.output_dtype, mla.heads * mla.value * hidden);
    if let Some(indexer) = &mla.indexer {
        let source = if mla.q_rank > 0 { mla.q_rank } else { hidden };
        totals.add(indexer.dtype, source * indexer.heads * indexer.head_dim);
        totals.add(indexer.dtype, hidden * indexer.head_dim);
        totals.add(Dtype::Bf16, hidden * indexer.heads + 2 * indexer.head_dim);
    }
}

fn add_gqa(totals: &mut Totals, gqa: &Gqa, hidden: u64) {
    let query = gqa.heads * gqa.head_dim;
    let keys = gqa.kv_heads * gqa.head_dim;
    let outputs = query * if gqa.gated { 2 } else { 1 } + 2 * keys;
    totals.add(gqa.input_dtype, hidden * outputs);
    totals.add(gqa.output_dtype, query * hidden);
    let norm = match gqa.qk_norm {
        QkNorm::None => 0,
        QkNorm::PerHead => 2 * gqa.head_dim,
        QkNorm::PerLayer => query + keys,
    };
    let bias = if gqa.bias { outputs } else { 0 } + if gqa.output_bias { hidden } else { 0 };
    let sinks = if gqa.sinks { gqa.heads } else { 0 };
    totals.add(Dtype::Bf16, norm + bias + sinks);
}

fn add_delta(totals: &mut Totals, delta: &GatedDelta, hidden: u64) {
    let values = delta.value_heads * delta.value_dim;
    totals.add(delta.input_dtype, hidden * (delta.conv_channels() + values));
    totals.add(delta.input_dtype, hidden * 2 * delta.value_heads);
    totals.add(Dtype::Bf16, delta.conv_channels() * delta.conv_taps);
    totals.add(Dtype::F32, 2 * delta.value_heads);
    totals.add(Dtype::Bf16, delta.value_dim);
    totals.add(delta.output_dtype, values * hidden);
}
