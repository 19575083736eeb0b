//! Draft models: what one step of speculation runs on one rank.

use super::Model;
use super::op::Dtype;
use super::shape::Dense;
use super::shape::FeedForward;
use super::shape::Gqa;
use super::shape::Layer;
use super::shape::QkNorm;
use super::steps::Step;
use super::steps::Steps;
use super::workload::Shard;
use super::workload::Workload;
use crate::error::Fault;
use crate::error::Result;

/// Who drafts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Draft {
    /// EAGLE-3: one decoder layer over the fused hidden states of three layers.
    Eagle3(Eagle3),
    /// The model's own multi-token-prediction layer.
    Mtp,
}

/// The shape of an EAGLE-3 draft model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eagle3 {
    /// Attention of its layer; it reads the embedding beside the hidden state,
    /// so that its input is twice as wide.
    pub attention: Gqa,
    /// Inner size of its feed-forward network.
    pub intermediate: u64,
    /// Rows of its own head.
    pub vocab: u64,
    /// Hidden states of the target that the first step fuses.
    pub fused: u64,
}

impl Eagle3 {
    /// The shape that public EAGLE-3 drafts for large models have: a Llama
    /// layer with heads of 128, no grouping narrower than 8, a dense network of
    /// the target's dense inner size, and a head of 32,000 frequent tokens.
    /// Assumed: drafts differ, give the real one where it is known.
    pub fn for_model(model: &Model) -> Eagle3 {
        let heads = match model.hidden / 128 {
            heads if heads % 8 == 0 => heads,
            heads => (heads / 8 + 1) * 8,
        };
        let dense = model.kinds.iter().find_map(|layer| match &layer.feed_forward {
            FeedForward::Dense(dense) => Some(dense.intermediate),
            FeedForward::Experts(_) => None,
        });
        let attention = Gqa {
            heads,
            kv_heads: 8,
            head_dim: 128,
            window: None,
            gated: false,
            qk_norm: QkNorm::None,
            bias: false,
            output_bias: false,
            sinks: false,
            input_dtype: Dtype::Bf16,
            output_dtype: Dtype::Bf16,
        };
        Eagle3 { attention, intermediate: dense.unwrap_or(model.hidden * 2), vocab: model.vocab.min(32_000), fused: 3 }
    }
}

impl Model {
    /// What comes before a draft step's layer. The first step after a verify
    /// pass fuses hidden states of the target (`fc`); later ones feed on their own.
    ///
    /// # Errors
    /// `model-no-mtp`, `workload-bad-value`.
    pub fn draft_entry_steps(&self, draft: &Draft, first: bool, workload: &Workload, shard: Shard) -> Result<Vec<Step>> {
        workload.check()?;
        let rows = workload.rows();
        let mut steps = Steps::new(self, workload, shard);
        match draft {
            Draft::Eagle3(eagle) => {
                if first {
                    // Replicated, as engines keep it.
                    steps.gemm("fc", rows, self.hidden, eagle.fused * self.hidden, Dtype::Bf16, &[]);
                }
                steps.elementwise("draft_norms", rows, 2 * self.hidden, 2 * self.hidden, 2, if first { &["fc"] } else { &[] });
            }
            Draft::Mtp => {
                let mtp = self.mtp.as_ref().ok_or_else(|| self.no_mtp())?;
                steps.elementwise("draft_norms", rows, 2 * self.hidden, 2 * self.hidden, 2, &[]);
                steps.gemm("eh_proj", rows, self.hidden, 2 * self.hidden, mtp.projection_dtype, &["draft_norms"]);
            }
        }
        Ok(steps.list)
    }

    /// The draft's decoder layer.
    ///
    /// # Errors
    /// Those of [`Model::layer_steps`], and `model-no-mtp`.
    pub fn draft_layer_steps(&self, draft: &Draft, workload: &Workload, shard: Shard) -> Result<Vec<Step>> {
        let layer = match draft {
            Draft::Mtp => return self.layer_steps(&self.mtp.as_ref().ok_or_else(|| self.no_mtp())?.layer, workload, shard),
            Draft::Eagle3(eagle) => Layer {
                attention: super::shape::Attention::Gqa(eagle.attention.clone()),
                feed_forward: FeedForward::Dense(Dense {
                    intermediate: eagle.intermediate,
                    bias: false,
                    up_dtype: Dtype::Bf16,
                    down_dtype: Dtype::Bf16,
                }),
            },
        };
        let mut list = self.layer_steps(&layer, workload, shard)?;
        for step in list.iter_mut().filter(|s| s.op.name == "qkv_proj") {
            widen(step);
        }
        Ok(list)
    }

    /// The draft's norm, head and choice.
    ///
    /// # Errors
    /// `workload-bad-value`.
    pub fn draft_head_steps(&self, draft: &Draft, workload: &Workload, shard: Shard) -> Result<Vec<Step>> {
        let own = match draft {
            Draft::Eagle3(eagle) => {
                Model { vocab: eagle.vocab, head_dtype: Dtype::Bf16, kinds: Vec::new(), layers: Vec::new(), ..self.clone() }
            }
            Draft::Mtp => return self.head_steps(workload, shard),
        };
        own.head_steps(workload, shard)
    }

    fn no_mtp(&self) -> Box<Fault> {
        Fault::new("model-no-mtp", format!("{} has no multi-token-prediction layer", self.id)).help("draft with EAGLE-3 instead")
    }
}

/// EAGLE-3's first product reads embedding and hidden state side by side.
fn widen(step: &mut Step) {
    if let super::op::Family::Gemm { m, n, k } = step.op.family {
        step.op.family = super::op::Family::Gemm { m, n, k: 2 * k };
        step.op.flops = step.op.flops.saturating_mul(2);
        step.op.weight_bytes = step.op.weight_bytes.saturating_mul(2);
        step.op.activation_bytes =
            step.op.activation_bytes.saturating_add(m.saturating_mul(k).saturating_mul(super::steps::ACTIVATION_BYTES));
    }
}
