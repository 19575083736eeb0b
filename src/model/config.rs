//! `config.json` → [`Model`]: finds the language part, its quantization and
//! its layers, and says what it did not understand.

use serde_json::Map;
use serde_json::Value;

use super::Model;
use super::Mtp;
use super::json::Keys;
use super::op::Dtype;
use super::quantization::Quantization;
use super::read_layers;
use crate::error::Fault;
use crate::error::Result;

/// Bounds that keep every product of sizes within 64 bits.
pub const MOST_HIDDEN: u64 = 1 << 17;
/// See [`MOST_HIDDEN`].
pub const MOST_LAYERS: u64 = 1 << 10;
/// See [`MOST_HIDDEN`].
pub const MOST_VOCAB: u64 = 1 << 24;

/// Keys that change neither the work nor the bytes of a pass.
const IRRELEVANT: &[&str] = &[
    "_name_or_path",
    "add_cross_attention",
    "architectures",
    "attention_dropout",
    "auto_map",
    "aux_loss_alpha",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "decoder_sparse_step",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "embd_pdrop",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "ep_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "hidden_act",
    "hidden_dropout",
    "id2label",
    "ignore_index",
    "image_token_id",
    "indexer_rope_interleave",
    "initial_context_length",
    "initializer_range",
    "label2id",
    "length_penalty",
    "max_length",
    "max_window_layers",
    "media_placeholder_token_id",
    "min_length",
    "n_group",
    "no_repeat_ngram_size",
    "norm_topk_prob",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "output_scores",
    "pad_token_id",
    "partial_rotary_factor",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "pruned_heads",
    "qk_head_dim",
    "remove_invalid_values",
    "repetition_penalty",
    "resid_pdrop",
    "return_dict",
    "return_dict_in_generate",
    "rms_norm_eps",
    "rope_interleave",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "rotary_dim",
    "routed_scaling_factor",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "scoring_func",
    "sep_token_id",
    "seq_aux",
    "suppress_tokens",
    "swiglu_limit",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tie_word_embeddings",
    "tokenizer_class",
    "top_k",
    "top_p",
    "topk_group",
    "topk_method",
    "torchscript",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "use_bfloat16",
    "use_cache",
    "use_unified_vision_chunk",
    "video_placeholder",
    "video_token_id",
    "vision_end_token_id",
    "vision_start_token_id",
    "mtp_use_dedicated_embeddings",
];

/// Values of `model_type` whose layers are known to be what their keys say.
const KNOWN: &[&str] = &[
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "glm4_moe",
    "glm_moe_dsa",
    "gpt_oss",
    "kimi_k2",
    "kimi_k25",
    "llama",
    "minimax_m2",
    "mistral",
    "mixtral",
    "olmo2",
    "olmo3",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_5_moe",
    "qwen3_5_moe_text",
    "qwen3_moe",
    "qwen3_next",
];

/// What is said of a model that nobody compared with its implementation.
pub fn unknown_architecture(architecture: &str) -> Option<String> {
    let shown: String = architecture.chars().take(60).collect();
    (!KNOWN.contains(&architecture)).then(|| {
        format!("model_type `{shown}` is not known: its layers are taken as what the keys of the configuration say, norms, gates and biases as Llama's")
    })
}

/// Reads a configuration; see [`Model::parse`].
pub fn read(name: &str, text: &str, separate: Option<(&str, &str)>) -> Result<Model> {
    let outer = object(name, text)?;
    let outer = Keys::new(name, text, &outer);
    let inner = ["text_config", "language_config", "llm_config"].iter().find_map(|key| outer.object(key));
    let keys = inner.as_ref().unwrap_or(&outer);
    let architecture = keys.text("model_type").or(outer.text("model_type")).unwrap_or("").to_owned();
    refuse_unknown_attention(keys, &architecture)?;

    let mut notes: Vec<String> = unknown_architecture(&architecture).into_iter().collect();
    let quantization = read_quantization(&outer, keys, separate, &mut notes)?;
    let hidden = keys.positive("hidden_size", MOST_HIDDEN)?;
    let vocab = keys.positive("vocab_size", MOST_VOCAB)?;
    let count = keys.positive("num_hidden_layers", MOST_LAYERS)?;
    let reader = read_layers::Reader { keys, quantization: &quantization, architecture: &architecture, count };
    let (kinds, layers) = reader.layers()?;
    let mtp = read_mtp(keys, &reader, &mut notes)?;
    let plain = plain_dtype(&outer, keys);

    let mut model = Model {
        id: name.to_owned(),
        name: name.to_owned(),
        architecture,
        hidden,
        vocab,
        tied: keys.flag("tie_word_embeddings") || outer.flag("tie_word_embeddings"),
        max_positions: keys.size("max_position_embeddings", 1 << 40)?.unwrap_or(0),
        kinds,
        layers,
        embedding_dtype: plain,
        head_dtype: quantization.head_dtype(),
        cache_dtype: quantization.cache.unwrap_or(Dtype::Bf16),
        block: quantization.block,
        mtp,
        not_modelled: Vec::new(),
    };
    list_not_used(&outer, inner.as_ref(), &mut notes);
    model.not_modelled = notes;
    Ok(model)
}

/// The text as a JSON object, or one fault that points at the place.
fn object(name: &str, text: &str) -> Result<Map<String, Value>> {
    let start = text.trim_start_matches(['\u{feff}', ' ', '\n', '\r', '\t']);
    if start.starts_with('<') {
        return Err(Fault::new("model-not-json", format!("{name} is a web page, not JSON"))
            .help("download the raw file: on Hugging Face take the `resolve` link instead of `blob`"));
    }
    match serde_json::from_str::<Value>(start) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Fault::new("model-not-json", format!("{name} is JSON, but not an object")).help("give a model's config.json")),
        Err(error) => {
            let before: usize = start.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
            let at = text.len() - start.len() + before + error.column().saturating_sub(1);
            let fault = Fault::new("model-not-json", format!("{name} is not JSON: {error}"));
            Err(fault.at(name, text, at..at + 1, "here").help("give a model's config.json"))
        }
    }
}

/// Attention that would silently be priced as something else.
fn refuse_unknown_attention(keys: &Keys, architecture: &str) -> Result<()> {
    let strange = [
        "state_size",
        "ssm_state_size",
        "ssm_cfg",
        "mamba_d_state",
        "mamba_num_heads",
        "mamba_expand",
        "hybrid_override_pattern",
        "attn_layer_period",
        "layers_block_type",
        "lightning_attention",
        "rwkv_version",
        "time_step_rank",
        "conv_L_cache",
        "block_types",
        "attention_chunk_size",
        "linear_attn_config",
    ];
    let key = strange.iter().find(|key| keys.has(key));
    let other = keys.numbers("attn_type_list").iter().any(|kind| *kind != 1);
    let key = key.copied().or(other.then_some("attn_type_list"));
    let Some(key) = key else { return Ok(()) };
    Err(keys
        .fault("model-unknown-attention", key, format!("the attention of `{architecture}` is not known (`{key}`)"))
        .help("known: grouped queries, multi-head latent attention, gated delta nets, and their mixtures"))
}

fn read_quantization(outer: &Keys, keys: &Keys, separate: Option<(&str, &str)>, notes: &mut Vec<String>) -> Result<Quantization> {
    let plain = plain_dtype(outer, keys);
    if let Some(config) = outer.object("quantization_config").or_else(|| keys.object("quantization_config")) {
        return Quantization::read(&config, plain, notes);
    }
    let Some((name, text)) = separate else { return Ok(Quantization::none(plain)) };
    let object = object(name, text)?;
    let file = Keys::new(name, text, &object);
    match file.object("quantization") {
        Some(config) => Quantization::read_separate(&config, plain, notes),
        None => Err(Fault::new("model-unknown-quantization", format!("{name} has no `quantization`"))),
    }
}

fn plain_dtype(outer: &Keys, keys: &Keys) -> Dtype {
    let named = ["dtype", "torch_dtype"].map(|key| keys.text(key).or(outer.text(key)));
    match named.into_iter().flatten().next() {
        Some("float16" | "half") => Dtype::Fp16,
        Some("float32" | "float") => Dtype::F32,
        _ => Dtype::Bf16,
    }
}

fn read_mtp(keys: &Keys, reader: &read_layers::Reader, notes: &mut Vec<String>) -> Result<Option<Mtp>> {
    let mut layers = 0;
    for key in ["num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"] {
        layers = layers.max(keys.size(key, 64)?.unwrap_or(0));
    }
    if keys.size("mtp_transformer_layers", 64)?.unwrap_or(1) > 1 {
        notes.push("mtp_transformer_layers: one layer a module is taken".to_owned());
    }
    keys.get("use_mtp");
    if layers == 0 {
        return Ok(None);
    }
    let (layer, projection_dtype) = reader.mtp_layer()?;
    Ok(Some(Mtp { layers, layer, projection_dtype }))
}

fn list_not_used(outer: &Keys, inner: Option<&Keys>, notes: &mut Vec<String>) {
    let unused = inner.into_iter().flat_map(Keys::not_used).chain(outer.not_used());
    for key in unused {
        let note = match key {
            "vision_config" | "audio_config" => format!("{key}: only the language part is modelled"),
            key if IRRELEVANT.contains(&key) => continue,
            key => key.chars().take(80).collect(),
        };
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
}
