//! The embedded models against published figures, and readers against nonsense.

use lanecast::model::CATALOG;
use lanecast::model::Dtype;
use lanecast::model::Family;
use lanecast::model::Layer;
use lanecast::model::Model;
use lanecast::model::Op;
use lanecast::model::Phase;
use lanecast::model::Routing;
use lanecast::model::Shard;
use lanecast::model::Step;
use lanecast::model::Workload;
use lanecast::model::shape::Attention;
use lanecast::model::shape::FeedForward;
use proptest::prelude::*;

fn load(id: &str) -> Model {
    Model::load(id).expect("embedded")
}

fn code(result: Result<Model, Box<lanecast::error::Fault>>) -> &'static str {
    result.expect_err("refused").code
}

fn find<'a>(steps: &'a [Step], name: &str) -> &'a Op {
    &steps.iter().find(|s| s.op.name == name).unwrap_or_else(|| panic!("no {name}")).op
}

#[test]
fn parameters_are_within_one_percent_of_published() {
    for entry in &CATALOG {
        let model = load(entry.id);
        let billions = model.parameters().text.parameters as f64 / 1e9;
        let error = (billions / entry.published_billions - 1.0).abs();
        assert!(error < 0.01, "{}: {billions:.2} against {} ({})", entry.id, entry.published_billions, entry.published_source);
    }
}

/// Active parameters as the model cards give them, in thousands of millions;
/// MiniMax and gpt-oss leave the embedding out (0.61, 0.58).
#[test]
fn active_parameters_are_near_the_published() {
    for (id, published, beside) in [
        ("kimi-k2.5", 32.0, 0.0),
        ("deepseek-v3", 37.0, 0.0),
        ("glm-5", 40.0, 0.0),
        ("qwen3.5-397b", 17.0, 0.0),
        ("qwen3-235b", 22.0, 0.0),
        ("minimax-m2.5", 10.0, 0.61),
        ("gpt-oss-120b", 5.1, 0.58),
    ] {
        let active = load(id).parameters().active as f64 / 1e9 - beside;
        assert!((active / published - 1.0).abs() < 0.08, "{id}: {active:.2} against {published}");
    }
}

#[test]
fn weight_bytes_are_those_of_the_checkpoints() {
    // By hand, in GB: Kimi 60·384 experts of 44.04M at 4.5 bits = 570.7, 11.7B others at 16 bits = 23.3.
    // DeepSeek-V3: 669.1B at 8 bits, 1.85B embedding and head and the routers at 16.
    // gpt-oss: 114.66B at 4.25 bits = 60.9, 2.1B others at 16 bits = 4.3.
    for (id, gb) in [("kimi-k2.5", 594.0), ("deepseek-v3", 673.0), ("gpt-oss-120b", 65.2), ("llama-3.1-70b", 141.1), ("qwen3-235b", 470.2)]
    {
        let bytes = load(id).parameters().text.bytes as f64 / 1e9;
        assert!((bytes / gb - 1.0).abs() < 0.01, "{id}: {bytes:.1} against {gb}");
    }
    // NVFP4: 386.5B at 4.5 bits = 217.4, 9.6B at 16 bits = 19.3.
    let qwen = load("qwen3.5-397b").parameters().text.bytes as f64 / 1e9;
    assert!((qwen / 236.7 - 1.0).abs() < 0.01, "{qwen:.1}");
}

#[test]
fn mtp_layers_are_counted_apart() {
    // DeepSeek-V3's card: 14B of MTP weights, of which 1.85B are the shared embedding and head.
    let mtp = load("deepseek-v3").parameters().mtp.parameters as f64 / 1e9;
    assert!((mtp / 11.6 - 1.0).abs() < 0.02, "{mtp:.2}");
    assert_eq!(load("kimi-k2.5").mtp, None);
    assert_eq!(load("minimax-m2.5").mtp.map(|m| m.layers), Some(3));
}

#[test]
fn only_what_the_checkpoint_quantizes_is_quantized() {
    let kimi = load("kimi-k2.5");
    assert_eq!(kimi.kinds.len(), 2, "one dense, then experts");
    assert_eq!((kimi.layers[0], kimi.layers[1], kimi.layers[60]), (0, 1, 1));
    let FeedForward::Dense(dense) = &kimi.kinds[0].feed_forward else { panic!("leading dense layer") };
    assert_eq!((dense.up_dtype, dense.down_dtype), (Dtype::Bf16, Dtype::Bf16));
    let FeedForward::Experts(experts) = &kimi.kinds[1].feed_forward else { panic!("experts") };
    assert_eq!(experts.up_dtype, Dtype::Int4 { group: 32 });
    let shared = experts.shared.as_ref().expect("shared");
    assert_eq!((shared.up_dtype, shared.intermediate), (Dtype::Bf16, 2048));
    let Attention::Mla(mla) = &kimi.kinds[1].attention else { panic!("MLA") };
    assert_eq!((mla.input_dtype, mla.output_dtype, kimi.head_dtype), (Dtype::Bf16, Dtype::Bf16, Dtype::Bf16));

    let deepseek = load("deepseek-v3");
    let Attention::Mla(mla) = &deepseek.kinds[0].attention else { panic!("MLA") };
    assert_eq!((mla.input_dtype, deepseek.head_dtype, deepseek.block), (Dtype::Fp8, Dtype::Bf16, Some(128)));

    let oss = load("gpt-oss-120b");
    let FeedForward::Experts(experts) = &oss.kinds[0].feed_forward else { panic!("experts") };
    let Attention::Gqa(gqa) = &oss.kinds[0].attention else { panic!("GQA") };
    assert_eq!((experts.up_dtype, gqa.input_dtype, gqa.window), (Dtype::Mxfp4, Dtype::Bf16, Some(128)));

    let qwen = load("qwen3.5-397b");
    assert_eq!(qwen.kinds.len(), 2);
    assert_eq!(qwen.layers.iter().filter(|k| **k == 1).count(), 15, "every fourth layer has full attention");
    let FeedForward::Experts(experts) = &qwen.kinds[0].feed_forward else { panic!("experts") };
    assert_eq!((experts.up_dtype, experts.shared.as_ref().map(|s| s.up_dtype)), (Dtype::Nvfp4, Some(Dtype::Bf16)));
    let Attention::GatedDelta(delta) = &qwen.kinds[0].attention else { panic!("linear attention") };
    assert_eq!((delta.input_dtype, qwen.cache_dtype), (Dtype::Bf16, Dtype::Fp8));
    let mtp = qwen.mtp.expect("one MTP layer");
    let FeedForward::Experts(experts) = &mtp.layer.feed_forward else { panic!("experts") };
    assert_eq!(experts.up_dtype, Dtype::Bf16, "mtp.layers.0* is excepted");
}

#[test]
fn a_separate_quantization_file_says_the_same() {
    let text = std::fs::read_to_string("models/qwen3.5-397b.json").expect("there");
    let separate = std::fs::read_to_string("models/qwen3.5-397b_hf_quant_config.json").expect("there");
    let mut value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    value.as_object_mut().expect("object").remove("quantization_config");
    let stripped = Model::parse("m", &value.to_string(), Some(("q", &separate))).expect("read");
    let whole = Model::parse("m", &text, None).expect("read");
    assert_eq!(stripped, whole);

    let folder = tempfile::tempdir().expect("folder");
    std::fs::write(folder.path().join("config.json"), value.to_string()).expect("written");
    std::fs::write(folder.path().join("hf_quant_config.json"), &separate).expect("written");
    let loaded = Model::load(folder.path().to_str().expect("utf-8")).expect("read");
    assert_eq!(loaded.kinds, whole.kinds);
}

#[test]
fn a_verify_pass_of_the_case_by_hand() {
    let kimi = load("kimi-k2.5");
    let workload = Workload::verify(3, 4096);
    let steps = kimi.layer_steps(&kimi.kinds[1], &workload, Shard::tensor(8)).expect("8 divides");
    // The cache is read once for the three tokens: (4096 + 3) × 576 × 2 B.
    let attention = find(&steps, "attention");
    assert_eq!(attention.cache_bytes, 4099 * 576 * 2);
    // Compressed projections are whole on every rank: 7168 × (1536 + 576) × 2 B.
    assert_eq!(find(&steps, "qkv_a_proj").weight_bytes, 7168 * 2112 * 2);
    // 8 of 64 heads: 1536 × 8·192 × 2 B.
    assert_eq!(find(&steps, "q_b_proj").weight_bytes, 1536 * 1536 * 2);
    assert_eq!(find(&steps, "o_proj").family, Family::Gemm { m: 3, n: 7168, k: 1024 });
    // 23.5035 distinct experts, each 3 × 7168 × 256 weights at 5 bits (4 and a 16-bit scale per 32 = 4.5).
    let experts = find(&steps, "experts");
    assert!(
        matches!(experts.family, Family::Experts { intermediate: 256, experts: 384, distinct_milli: 23_503, .. }),
        "{:?}",
        experts.family
    );
    let expected = 23.503 * 3.0 * 7168.0 * 256.0 * 4.5 / 8.0;
    assert!((experts.weight_bytes as f64 / expected - 1.0).abs() < 1e-4);
    // 2 flops × 3 products × 24 pairs.
    assert_eq!(experts.flops, 2 * 3 * 7168 * 256 * 24);
}

#[test]
fn tokens_of_one_sequence_share_the_cache_and_sequences_do_not() {
    for id in ["kimi-k2.5", "llama-3.1-70b"] {
        let model = load(id);
        let cache = |batch: u64, tokens: u64| {
            let workload = Workload { batch, ..Workload::verify(tokens, 10_000) };
            let steps = model.layer_steps(&model.kinds[0], &workload, Shard::tensor(8)).expect("divides");
            find(&steps, "attention").cache_bytes as f64
        };
        assert!(cache(1, 8) / cache(1, 1) < 1.001, "{id}");
        assert_eq!(cache(4, 1), 4.0 * cache(1, 1), "{id}");
    }
}

#[test]
fn windows_cut_what_is_read() {
    let oss = load("gpt-oss-120b");
    let steps = oss.layer_steps(&oss.kinds[0], &Workload::verify(3, 8192), Shard::tensor(8)).expect("divides");
    // 127 before and 3 new positions, one key-value head of 64, keys and values, 2 B.
    assert_eq!(find(&steps, "attention").cache_bytes, 130 * 2 * 64 * 2);
}

#[test]
fn sparse_attention_walks_its_choice() {
    let glm = load("glm-5");
    let steps = glm.layer_steps(&glm.kinds[1], &Workload::verify(3, 50_000), Shard::tensor(8)).expect("divides");
    assert_eq!(find(&steps, "attention").cache_bytes, 3 * 2048 * 576 * 2);
    // One key of 128 FP8 numbers and a 4-byte scale per position, on every rank.
    assert_eq!(find(&steps, "index_scores").cache_bytes, 50_003 * 132);
    let short = glm.layer_steps(&glm.kinds[1], &Workload::verify(3, 1000), Shard::tensor(8)).expect("divides");
    assert!(short.iter().all(|s| s.op.name != "index_scores"), "nothing to choose below 2048");
}

#[test]
fn key_value_heads_are_replicated_evenly_or_refused() {
    let qwen = load("qwen3-235b");
    let per_rank = |tp: u64| {
        let steps = qwen.layer_steps(&qwen.kinds[0], &Workload::verify(1, 1000), Shard::tensor(tp)).expect("divides");
        find(&steps, "attention").cache_bytes
    };
    assert_eq!(per_rank(8), per_rank(4), "4 heads over 8 ranks: two ranks hold the same head");
    assert_eq!(per_rank(2), 2 * per_rank(4));
    for (id, tp) in [("kimi-k2.5", 7), ("qwen3-235b", 3), ("llama-3.1-70b", 16 * 5)] {
        let model = load(id);
        let fault = model.layer_steps(&model.kinds[0], &Workload::verify(1, 1), Shard::tensor(tp)).expect_err("refused");
        assert_eq!(fault.code, "model-tp-indivisible");
        assert!(fault.help.is_some());
    }
    // DeepSeek-V3's blocks of 128: 2048 / 32 = 64 columns an expert.
    let deepseek = load("deepseek-v3");
    let fault = deepseek.layer_steps(&deepseek.kinds[1], &Workload::verify(1, 1), Shard::tensor(32)).expect_err("refused");
    assert_eq!(fault.code, "model-tp-splits-block");
}

#[test]
fn what_is_not_modelled_is_said() {
    assert_eq!(load("kimi-k2.5").not_modelled, ["vision_config: only the language part is modelled"]);
    assert_eq!(load("qwen3-235b").not_modelled, Vec::<String>::new());
    let text = include_str!("../models/llama-3.1-70b.json").replacen('{', "{\"shortcut_experts\": 4,", 1);
    assert_eq!(Model::parse("m", &text, None).expect("read").not_modelled, ["shortcut_experts"]);
}

#[test]
fn nonsense_is_refused_with_one_clear_fault() {
    assert_eq!(code(Model::parse("m", "<!doctype html><html>", None)), "model-not-json");
    assert_eq!(code(Model::parse("m", "[1, 2]", None)), "model-not-json");
    assert_eq!(code(Model::parse("m", "{\"hidden_size\": 8", None)), "model-not-json");
    assert_eq!(code(Model::parse("m", "{}", None)), "model-missing-key");
    assert_eq!(code(Model::load("kimi-k3000")), "model-unknown");
    let llama = include_str!("../models/llama-3.1-70b.json");
    assert_eq!(code(Model::parse("m", &llama.replace("num_attention_heads", "ssm_heads"), None)), "model-unknown-attention");
    assert_eq!(code(Model::parse("m", &llama.replacen('{', "{\"mamba_d_state\": 16,", 1), None)), "model-unknown-attention");
    assert_eq!(code(Model::parse("m", &llama.replace("8192,", "-1,"), None)), "model-bad-value");
    let quantized = llama.replacen('{', "{\"quantization_config\": {\"quant_method\": \"magic\"},", 1);
    let fault = Model::parse("m", &quantized, None).expect_err("refused");
    assert_eq!(fault.code, "model-unknown-quantization");
    let place = fault.place.expect("a place");
    assert_eq!(&quantized[place.span], "\"quant_method\"");
}

#[test]
fn a_hundred_megabytes_are_not_read() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("config.json");
    let file = std::fs::File::create(&path).expect("created");
    file.set_len(100 << 20).expect("sparse");
    assert_eq!(code(Model::load(path.to_str().expect("utf-8"))), "model-too-large");
    std::fs::write(&path, [0xff, 0xfe, 0x00]).expect("written");
    assert_eq!(code(Model::load(path.to_str().expect("utf-8"))), "model-not-json");
}

fn totals(model: &Model, layer: &Layer, workload: &Workload) -> (u64, u64, u64) {
    let steps = model.layer_steps(layer, workload, Shard::tensor(8)).expect("divides");
    let sum = |f: fn(&Op) -> u64| steps.iter().map(|s| f(&s.op)).sum();
    (sum(|o| o.flops), sum(|o| o.weight_bytes), sum(|o| o.cache_bytes))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn work_grows_with_tokens_and_batch(entry in 0usize..8, tokens in 1u64..16, batch in 1u64..64, context in 0u64..100_000, skew in 0.0..2.0f64, repeat in 0.0..1.0f64) {
        let model = load(CATALOG[entry].id);
        let base = Workload { batch, routing: Routing { skew, repeat }, ..Workload::verify(tokens, context) };
        for layer in &model.kinds {
            let (flops, weights, cache) = totals(&model, layer, &base);
            for more in [Workload { tokens: tokens + 1, ..base }, Workload { batch: batch + 1, ..base }] {
                let grown = totals(&model, layer, &more);
                prop_assert!(grown.0 > flops && grown.1 >= weights && grown.2 > cache);
            }
        }
    }

    #[test]
    fn phases_and_extremes_never_panic(entry in 0usize..8, phase in 0usize..3, tokens in any::<u64>(), batch in any::<u64>(), context in any::<u64>(), tp in 0u64..4096, ep in 0u64..512) {
        let model = load(CATALOG[entry].id);
        let phase = [Phase::Decode, Phase::Verify, Phase::Prefill][phase];
        // Half the cases within the bounds, so that more than the refusal is tried.
        let within = |value: u64, most: u64| if value.is_multiple_of(2) { value % most + 1 } else { value };
        let workload = Workload { batch: within(batch, 64), ..Workload::new(phase, within(tokens, 512), within(context, 1 << 24)) };
        for layer in &model.kinds {
            for load in [lanecast::model::Load::Even, lanecast::model::Load::Fullest, lanecast::model::Load::Others] {
                let _ = model.layer_steps(layer, &workload, Shard { tp, ep, own_tokens: ep > 1, load });
            }
        }
    }

    #[test]
    fn mangled_configurations_never_panic(entry in 0usize..8, at in 0.0..1.0f64, cut in 0usize..40, paste in "[\\PC]{0,12}") {
        let files = ["kimi-k2.5", "deepseek-v3", "glm-5", "qwen3.5-397b", "qwen3-235b", "minimax-m2.5", "gpt-oss-120b", "llama-3.1-70b"];
        let text = std::fs::read_to_string(format!("models/{}.json", files[entry])).expect("there");
        let letters: Vec<char> = text.chars().collect();
        let at = (at * letters.len() as f64) as usize;
        let mangled: String = letters[..at].iter().copied().chain(paste.chars()).chain(letters.iter().copied().skip(at + cut)).collect();
        check_mangled(&mangled);
    }

    #[test]
    fn mangled_values_never_panic(entry in 0usize..8, key in 0usize..60, value in prop_oneof![
        Just("null".to_owned()), Just("0".to_owned()), Just("-1".to_owned()), Just("1e300".to_owned()), Just("18446744073709551615".to_owned()),
        Just("[]".to_owned()), Just("{}".to_owned()), Just("true".to_owned()), Just("\"x\"".to_owned()), any::<u32>().prop_map(|n| n.to_string())]) {
        let files = ["kimi-k2.5", "deepseek-v3", "glm-5", "qwen3.5-397b", "qwen3-235b", "minimax-m2.5", "gpt-oss-120b", "llama-3.1-70b"];
        let text = std::fs::read_to_string(format!("models/{}.json", files[entry])).expect("there");
        let mut json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let object = json.as_object_mut().expect("object");
        let inner = if object.contains_key("text_config") { object.get_mut("text_config").and_then(|t| t.as_object_mut()).expect("object") } else { object };
        let name = inner.keys().nth(key % inner.len()).cloned().expect("a key");
        inner.insert(name, serde_json::from_str(&value).expect("JSON"));
        check_mangled(&json.to_string());
    }
}

/// Reads, and where that succeeds counts and lists operations.
fn check_mangled(text: &str) {
    let Ok(model) = Model::parse("m", text, None) else { return };
    let _ = model.parameters();
    for layer in &model.kinds {
        for workload in [Workload::verify(3, 4096), Workload::new(Phase::Prefill, 100, 5), Workload::new(Phase::Decode, 1, 0)] {
            let _ = model.layer_steps(layer, &workload, Shard::tensor(8));
        }
    }
}
