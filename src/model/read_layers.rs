//! The layers of a configuration: which attention, which feed-forward, and how
//! each weight is stored, layer by layer.

use super::json::Keys;
use super::op::Dtype;
use super::quantization::Quantization;
use super::shape::Attention;
use super::shape::Dense;
use super::shape::Experts;
use super::shape::FeedForward;
use super::shape::GatedDelta;
use super::shape::Gqa;
use super::shape::Indexer;
use super::shape::Layer;
use super::shape::Mla;
use super::shape::QkNorm;
use super::shape::Shared;
use crate::error::Result;

const MOST_HEADS: u64 = 1 << 10;
const MOST_WIDTH: u64 = 1 << 12;
const MOST_RANK: u64 = 1 << 16;
const MOST_INNER: u64 = 1 << 20;
const MOST_EXPERTS: u64 = 1 << 12;

const LINEAR: &str = "linear_attention";
const SLIDING: &str = "sliding_attention";
const FULL: &str = "full_attention";

/// Turns keys into layers.
pub struct Reader<'a> {
    /// The language part of the configuration.
    pub keys: &'a Keys<'a>,
    /// How weights are stored.
    pub quantization: &'a Quantization,
    /// `model_type`.
    pub architecture: &'a str,
    /// Number of layers.
    pub count: u64,
}

impl Reader<'_> {
    /// The distinct layers, and for each layer its index among them.
    pub fn layers(&self) -> Result<(Vec<Layer>, Vec<usize>)> {
        let types = self.layer_types()?;
        let mixture = self.mixture()?;
        let (mut kinds, mut layers): (Vec<Layer>, Vec<usize>) = (Vec::new(), Vec::new());
        // Where names' numbers are not looked at, layers of one shape are alike: each shape is read once.
        let tells = self.quantization.tells_layers();
        let mut shapes: Vec<(&str, bool, usize)> = Vec::new();
        for index in 0..self.count {
            let kind = types.get(index as usize).copied().unwrap_or(FULL);
            let sparse = mixture.as_ref().is_some_and(|mixture| mixture.at(index));
            let read = shapes.iter().find(|(k, s, _)| !tells && (*k, *s) == (kind, sparse));
            if let Some((_, _, known)) = read {
                layers.push(*known);
                continue;
            }
            let prefixes = prefixes(index);
            let attention = self.attention(kind, &prefixes)?;
            let feed_forward = self.feed_forward(mixture.as_ref().filter(|_| sparse), &prefixes)?;
            let layer = Layer { attention, feed_forward };
            let place = kinds.iter().position(|k| *k == layer).unwrap_or_else(|| {
                kinds.push(layer);
                kinds.len() - 1
            });
            shapes.push((kind, sparse, place));
            layers.push(place);
        }
        Ok((kinds, layers))
    }

    /// The layer of a multi-token-prediction module, which is like the last
    /// full-attention one, and how its projection is stored.
    pub fn mtp_layer(&self) -> Result<(Layer, Dtype)> {
        let mut prefix = prefixes(self.count);
        prefix.extend(["mtp.layers.0".to_owned(), "model.mtp.layers.0".to_owned()]);
        let attention = self.attention(FULL, &prefix)?;
        let mixture = self.mixture()?.filter(|mixture| mixture.at(self.count.saturating_sub(1)));
        let feed_forward = self.feed_forward(mixture.as_ref(), &prefix)?;
        let projection = self.quantization.dtype_of(&["mtp.layers.0.eh_proj".to_owned(), format!("model.layers.{}.eh_proj", self.count)]);
        Ok((Layer { attention, feed_forward }, projection))
    }

    /// The kind of attention of each layer, where layers differ.
    fn layer_types(&self) -> Result<Vec<&'static str>> {
        let interval = self.keys.size("full_attention_interval", 1 << 10)?;
        let pattern = self.keys.size("sliding_window_pattern", 1 << 10)?;
        let listed = self.keys.strings("layer_types");
        let mut types = Vec::new();
        for name in &listed {
            types.push(match *name {
                LINEAR => LINEAR,
                FULL | "attention" => FULL,
                SLIDING => SLIDING,
                other => {
                    let message = format!("layers of type `{}` are not known", other.chars().take(60).collect::<String>());
                    return Err(self
                        .keys
                        .fault("model-unknown-attention", "layer_types", message)
                        .help("known: full_attention, sliding_attention, linear_attention"));
                }
            });
        }
        if types.is_empty() {
            let period = interval.or(pattern).filter(|p| *p > 0);
            let other = if interval.is_some() { LINEAR } else { SLIDING };
            if let Some(period) = period {
                types = (0..self.count).map(|i| if (i + 1) % period == 0 { FULL } else { other }).collect();
            }
        } else if types.len() as u64 != self.count {
            let message = format!("`layer_types` has {} entries for {} layers", types.len(), self.count);
            return Err(self.keys.fault("model-bad-value", "layer_types", message));
        }
        Ok(types)
    }

    fn attention(&self, kind: &str, prefix: &[String]) -> Result<Attention> {
        if kind == LINEAR {
            return self.gated_delta(prefix).map(Attention::GatedDelta);
        }
        if self.keys.has("kv_lora_rank") {
            return self.mla(prefix).map(Attention::Mla);
        }
        if !self.keys.has("num_attention_heads") {
            let message = format!("no known attention: `{}` has no `num_attention_heads`", self.architecture);
            return Err(self
                .keys
                .fault("model-unknown-attention", "model_type", message)
                .help("known: grouped queries, multi-head latent attention, gated delta nets, and their mixtures"));
        }
        self.gqa(kind, prefix).map(Attention::Gqa)
    }

    fn mla(&self, prefix: &[String]) -> Result<Mla> {
        let keys = self.keys;
        keys.get("num_key_value_heads");
        keys.get("head_dim");
        keys.get("attention_bias");
        let q_rank = keys.size("q_lora_rank", MOST_RANK)?.unwrap_or(0);
        let indexer = match keys.size("index_n_heads", MOST_HEADS)? {
            Some(heads) if heads > 0 => Some(Indexer {
                heads,
                head_dim: keys.positive("index_head_dim", MOST_WIDTH)?,
                top_k: keys.positive("index_topk", 1 << 24)?,
                dtype: self.stored(prefix, &["self_attn.indexer.wq_b"]),
            }),
            _ => None,
        };
        Ok(Mla {
            heads: keys.positive("num_attention_heads", MOST_HEADS)?,
            q_rank,
            kv_rank: keys.positive("kv_lora_rank", MOST_RANK)?,
            nope: keys.positive("qk_nope_head_dim", MOST_WIDTH)?,
            rope: keys.positive("qk_rope_head_dim", MOST_WIDTH)?,
            value: keys.positive("v_head_dim", MOST_WIDTH)?,
            indexer,
            input_dtype: self.stored(prefix, &["self_attn.kv_a_proj_with_mqa"]),
            q_up_dtype: self.stored(prefix, &[if q_rank > 0 { "self_attn.q_b_proj" } else { "self_attn.q_proj" }]),
            kv_up_dtype: self.stored(prefix, &["self_attn.kv_b_proj"]),
            output_dtype: self.stored(prefix, &["self_attn.o_proj"]),
        })
    }

    fn gqa(&self, kind: &str, prefix: &[String]) -> Result<Gqa> {
        let keys = self.keys;
        let heads = keys.positive("num_attention_heads", MOST_HEADS)?;
        let hidden = keys.positive("hidden_size", super::config::MOST_HIDDEN)?;
        let head_dim = self.positive_or("head_dim", MOST_WIDTH, (hidden / heads).clamp(1, MOST_WIDTH))?;
        let window = keys.size("sliding_window", 1 << 30)?.filter(|w| *w > 0);
        let everywhere = !keys.has("use_sliding_window") && !keys.has("layer_types") && !keys.has("sliding_window_pattern");
        let window = window.filter(|_| kind == SLIDING || everywhere || keys.flag("use_sliding_window"));
        let qk_norm = match (self.architecture, keys.text("qk_norm_type")) {
            (_, Some("per_layer")) => QkNorm::PerLayer,
            ("olmo2" | "olmo3", _) => QkNorm::PerLayer,
            (name, _) if name.starts_with("qwen3") || name.starts_with("gemma3") => QkNorm::PerHead,
            _ if keys.flag("use_qk_norm") => QkNorm::PerHead,
            _ => QkNorm::None,
        };
        keys.get("use_qk_norm");
        let bias = keys.flag("attention_bias") || keys.flag("qkv_bias") || self.architecture.starts_with("qwen2");
        let oss = self.architecture == "gpt_oss";
        Ok(Gqa {
            heads,
            kv_heads: self.positive_or("num_key_value_heads", MOST_HEADS, heads)?,
            head_dim,
            window,
            gated: keys.flag("attn_output_gate"),
            qk_norm,
            bias,
            output_bias: oss && bias,
            sinks: oss,
            input_dtype: self.stored(prefix, &["self_attn.q_proj", "self_attn.qkv_proj"]),
            output_dtype: self.stored(prefix, &["self_attn.o_proj"]),
        })
    }

    /// A size that may be left out, but not be zero.
    fn positive_or(&self, key: &str, most: u64, usual: u64) -> Result<u64> {
        if self.keys.size(key, most)?.is_some() { self.keys.positive(key, most) } else { Ok(usual) }
    }

    fn gated_delta(&self, prefix: &[String]) -> Result<GatedDelta> {
        let keys = self.keys;
        let single = keys.text("mamba_ssm_dtype").is_none_or(|d| d == "float32");
        Ok(GatedDelta {
            key_heads: keys.positive("linear_num_key_heads", MOST_HEADS)?,
            value_heads: keys.positive("linear_num_value_heads", MOST_HEADS)?,
            key_dim: keys.positive("linear_key_head_dim", MOST_WIDTH)?,
            value_dim: keys.positive("linear_value_head_dim", MOST_WIDTH)?,
            conv_taps: keys.positive("linear_conv_kernel_dim", 64)?,
            state_dtype: if single { Dtype::F32 } else { Dtype::Bf16 },
            input_dtype: self.stored(prefix, &["linear_attn.in_proj_qkv", "linear_attn.in_proj_qkvz"]),
            output_dtype: self.stored(prefix, &["linear_attn.out_proj"]),
        })
    }

    /// Where the experts are, if there are any.
    fn mixture(&self) -> Result<Option<Mixture>> {
        let keys = self.keys;
        let experts = ["n_routed_experts", "num_experts", "num_local_experts"];
        if !experts.iter().any(|key| keys.has(key)) {
            return Ok(None);
        }
        Ok(Some(Mixture {
            experts: keys.positive_of(&experts, MOST_EXPERTS)?,
            leading: keys.size("first_k_dense_replace", 1 << 20)?.unwrap_or(0),
            every: keys.size("moe_layer_freq", 1 << 20)?.or(keys.size("decoder_sparse_step", 1 << 20)?).unwrap_or(1).max(1),
            offset: if keys.has("decoder_sparse_step") { 1 } else { 0 },
            dense: keys.numbers("mlp_only_layers"),
        }))
    }

    /// Experts where there is a mixture, else a dense block.
    fn feed_forward(&self, mixture: Option<&Mixture>, prefix: &[String]) -> Result<FeedForward> {
        let Some(mixture) = mixture else {
            return self.dense(prefix).map(FeedForward::Dense);
        };
        self.keys.get("intermediate_size");
        self.experts(mixture.experts, prefix).map(FeedForward::Experts)
    }

    fn dense(&self, prefix: &[String]) -> Result<Dense> {
        Ok(Dense {
            intermediate: self.keys.positive("intermediate_size", MOST_INNER)?,
            bias: self.keys.flag("mlp_bias"),
            up_dtype: self.stored(prefix, &["mlp.gate_proj", "mlp.gate_up_proj"]),
            down_dtype: self.stored(prefix, &["mlp.down_proj"]),
        })
    }

    fn experts(&self, experts: u64, prefix: &[String]) -> Result<Experts> {
        let keys = self.keys;
        let top_k = keys.positive_of(&["num_experts_per_tok", "experts_per_token", "moe_topk"], MOST_EXPERTS)?;
        if top_k > experts {
            return Err(keys.fault("model-bad-value", "num_experts_per_tok", format!("{top_k} experts a token of {experts} experts")));
        }
        let intermediate = keys.positive_of(&["moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size"], MOST_INNER)?;
        let single = keys.size("shared_expert_intermediate_size", MOST_INNER)?.or(keys.size("shared_intermediate_size", MOST_INNER)?);
        let many = keys.size("n_shared_experts", 64)?.or(keys.size("num_shared_experts", 64)?).map(|n| n * intermediate);
        let shared = single.or(many).filter(|inner| *inner > 0).map(|intermediate| Shared {
            intermediate,
            gated: single.is_some(),
            up_dtype: self.stored(prefix, &["mlp.shared_experts.gate_proj", "mlp.shared_expert.gate_proj"]),
            down_dtype: self.stored(prefix, &["mlp.shared_experts.down_proj", "mlp.shared_expert.down_proj"]),
        });
        let correction_bias = keys.text("topk_method") == Some("noaux_tc") || keys.flag("use_routing_bias");
        Ok(Experts {
            experts,
            top_k,
            intermediate,
            bias: self.architecture == "gpt_oss",
            correction_bias,
            shared,
            router_dtype: Dtype::Bf16,
            up_dtype: self.stored(prefix, &["mlp.experts.0.gate_proj", "block_sparse_moe.experts.0.w1"]),
            down_dtype: self.stored(prefix, &["mlp.experts.0.down_proj", "block_sparse_moe.experts.0.w2"]),
        })
    }

    /// How the module is stored that goes by any of `names` below a prefix.
    fn stored(&self, prefix: &[String], names: &[&str]) -> Dtype {
        let all: Vec<String> = prefix.iter().flat_map(|p| names.iter().map(move |n| format!("{p}.{n}"))).collect();
        self.quantization.dtype_of(&all)
    }
}

/// Which layers have experts.
struct Mixture {
    experts: u64,
    leading: u64,
    every: u64,
    offset: u64,
    dense: Vec<u64>,
}

impl Mixture {
    fn at(&self, index: u64) -> bool {
        index >= self.leading && (index + self.offset).is_multiple_of(self.every) && !self.dense.contains(&index)
    }
}

/// What a layer is called in checkpoints, with and without a vision tower.
fn prefixes(index: u64) -> Vec<String> {
    ["model", "language_model.model", "model.language_model"].iter().map(|p| format!("{p}.layers.{index}")).collect()
}
