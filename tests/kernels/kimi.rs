//! One plain decode pass of Kimi-K2.5 (int4 experts, bf16 elsewhere), written
//! out by hand from its `config.json`: 61 layers, the first dense, tensor
//! parallel over 8 ranks.

use lanecast::cost;
use lanecast::cost::Cache;
use lanecast::machine::GpuKind;
use lanecast::model::op::Dtype;
use lanecast::model::op::Family;
use lanecast::model::op::Op;
use lanecast::units::Time;

const HIDDEN: u64 = 7168;
const RANKS: u64 = 8;

fn op(name: &'static str, family: Family, dtype: Dtype, weights: u64, activations: u64, launches: u32) -> Op {
    let bytes = dtype.bytes_of(weights);
    Op { name, family, dtype, flops: 0, weight_bytes: bytes, cache_bytes: 0, activation_bytes: activations, launches }
}

fn product(name: &'static str, m: u64, n: u64, k: u64) -> Op {
    op(name, Family::Gemm { m, n, k }, Dtype::Bf16, n * k, 2 * m * (n + k), 1)
}

fn small(name: &'static str, bytes: u64, launches: u32) -> Op {
    op(name, Family::Elementwise, Dtype::Bf16, 0, bytes, launches)
}

fn attention(tokens: u64, context: u64) -> Vec<Op> {
    let heads = 64 / RANKS;
    let cache = Dtype::Bf16.bytes_of(context * 576);
    let decode = Family::MlaDecode { batch: 1, tokens, context, heads, width: 576 };
    vec![
        product("qkv_a_proj", tokens, 1536 + 512 + 64, HIDDEN),
        small("qkv_a_norm", 4 * tokens * 2048, 2),
        product("q_b_proj", tokens, heads * 192, 1536),
        small("rotary_and_cache_write", 4 * tokens * 1100, 2),
        op("absorb_k", Family::BatchedGemm { batch: heads, m: tokens, n: 512, k: 128 }, Dtype::Bf16, heads * 512 * 128, 0, 1),
        Op { cache_bytes: cache, ..op("attention", decode, Dtype::Bf16, 0, 2 * tokens * heads * 1088, 2) },
        op("absorb_v", Family::BatchedGemm { batch: heads, m: tokens, n: 128, k: 512 }, Dtype::Bf16, heads * 512 * 128, 0, 1),
        product("o_proj", tokens, HIDDEN, heads * 128),
    ]
}

fn experts(tokens: u64, distinct_milli: u64) -> Vec<Op> {
    let inner = 2048 / RANKS;
    let family = Family::Experts { tokens, hidden: HIDDEN, intermediate: inner, top_k: 8, experts: 384, distinct_milli };
    let weights = 3 * HIDDEN * inner * distinct_milli / 1000;
    let routed = op("experts", family, Dtype::Int4 { group: 32 }, weights, 4 * tokens * HIDDEN, 5);
    vec![
        op("router", Family::Router { tokens, experts: 384 }, Dtype::Bf16, HIDDEN * 384, 0, 2),
        Op { weight_bytes: routed.weight_bytes + shared_bytes(), ..routed },
        small("add_shared", 6 * tokens * HIDDEN, 1),
    ]
}

/// The shared expert runs on a second stream beside the routed ones, as engines
/// do at decode: it costs its bytes, in the fixed times of the others.
fn shared_bytes() -> u64 {
    Dtype::Bf16.bytes_of(3 * HIDDEN * 2048 / RANKS)
}

/// Time of all operations of a rank between all-reduces, cold, added up.
/// `distinct_milli`: distinct experts of the tokens, times 1000.
pub fn compute(kind: &GpuKind, tokens: u64, context: u64, distinct_milli: u64) -> Time {
    let price = |ops: &[Op]| ops.iter().map(|op| cost::duration(op, kind, Cache::Cold)).sum::<Time>();
    let dense = 18_432 / RANKS;
    let mlp = [
        product("gate_up_proj", tokens, 2 * dense, HIDDEN),
        small("activation", 6 * tokens * dense, 1),
        product("down_proj", tokens, HIDDEN, dense),
    ];
    let norms = small("add_and_norm", 8 * tokens * HIDDEN, 1);
    let ends = [small("embedding", 4 * tokens * HIDDEN, 1), norms.clone(), product("lm_head", tokens, 163_840 / RANKS, HIDDEN)];
    let layers = price(&attention(tokens, context)).times(61) + price(&[norms]).times(122);
    layers + price(&experts(tokens, distinct_milli)).times(60) + price(&mlp) + price(&ends)
}
