//! What a row of each table means: operations, working set and group.

use std::collections::BTreeMap;

use crate::cost::Cache;
use crate::cost::observations::Row;
use crate::cost::routing::Routing;
use crate::cost::routing::distinct_milli;
use crate::model::op::Dtype;
use crate::model::op::Family;
use crate::model::op::Op;

/// The tables there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Table {
    Gemm,
    Experts,
    Mla,
    MlaProducts,
}

/// A row in our terms.
pub(crate) struct Meaning {
    pub group: String,
    /// What the split hashes.
    pub shape: String,
    pub ops: Vec<Op>,
    pub cache: Cache,
}

/// `Err(Err)`: the cell is wrong; `Ok(Err)`: the row is skipped.
type Read = std::result::Result<std::result::Result<Meaning, String>, String>;

/// Weights among which the products' benchmark rotates. Found in the tables:
/// products leave the L2 rate at 21 MB of weights, a sixth of 128 MB of L2.
const ROTATED: u64 = 6;

/// DeepSeek-V3 and Kimi-K2 attention, whose blocks the tables measured.
/// Source: their `config.json`; the tables give only the heads.
pub mod mla {
    /// Hidden size.
    pub const HIDDEN: u64 = 7168;
    /// Rank of the queries.
    pub const Q_RANK: u64 = 1536;
    /// Rank of the cache.
    pub const KV_RANK: u64 = 512;
    /// Rotary part of a head and of the cache.
    pub const ROPE: u64 = 64;
    /// Other part of a query or key head.
    pub const NOPE: u64 = 128;
    /// Value head.
    pub const VALUE: u64 = 128;
}

/// The table whose columns these are.
pub(crate) fn of_columns(columns: &BTreeMap<String, usize>) -> Option<Table> {
    let has = |names: &[&str]| names.iter().all(|name| columns.contains_key(*name));
    if !has(&["latency_us", "dtype"]) && !has(&["latency_us", "kv_dtype"]) {
        None
    } else if has(&["m", "n", "k"]) {
        Some(Table::Gemm)
    } else if has(&["tokens", "hidden", "expert_intermediate", "top_k", "experts"]) {
        Some(Table::Experts)
    } else if has(&["operation", "heads", "batch", "context"]) {
        Some(Table::Mla)
    } else if has(&["operation", "tokens", "heads"]) {
        Some(Table::MlaProducts)
    } else {
        None
    }
}

/// The row's meaning, or why it has none here.
pub(crate) fn meaning(table: Table, row: &Row<'_>) -> Read {
    match table {
        Table::Gemm => gemm(row),
        Table::Experts => experts(row),
        Table::Mla => mla_decode(row),
        Table::MlaProducts => mla_products(row),
    }
}

fn dtype(text: &str) -> std::result::Result<Dtype, String> {
    match text {
        "bfloat16" | "bf16" => Ok(Dtype::Bf16),
        "float16" | "fp16" => Ok(Dtype::Fp16),
        "fp8" | "fp8_block" => Ok(Dtype::Fp8),
        "int8" | "int8_wo" => Ok(Dtype::Int8),
        "nvfp4" => Ok(Dtype::Nvfp4),
        "mxfp4" | "w4a16_mxfp4" => Ok(Dtype::Mxfp4),
        // Kimi-K2.5's group, and the one at which these rows read memory as fast as others do.
        "int4" | "int4_wo" => Ok(Dtype::Int4 { group: 32 }),
        other => Err(format!("unknown dtype {other:?}")),
    }
}

/// A dense product as a server's layer has it.
pub(crate) fn product(name: &'static str, dtype: Dtype, m: u64, n: u64, k: u64) -> Op {
    Op {
        name,
        family: Family::Gemm { m, n, k },
        dtype,
        flops: (2 * m * n).saturating_mul(k),
        weight_bytes: dtype.bytes_of(n * k),
        cache_bytes: 0,
        activation_bytes: 2 * m * (n + k),
        launches: 1,
    }
}

fn gemm(row: &Row<'_>) -> Read {
    let (m, n, k) = (row.count("m")?, row.count("n")?, row.count("k")?);
    if m * n > 1 << 40 || n * k > 1 << 40 {
        return Ok(Err(format!("{m} x {n} x {k} fits no device")));
    }
    let dtype = match dtype(row.text("dtype")) {
        Ok(dtype) => dtype,
        Err(reason) => return Ok(Err(reason)),
    };
    let op = product("product", dtype, m, n, k);
    let cache = match row.text("cache") {
        "cold" => Cache::Cold,
        "warm" => Cache::Warm { set_bytes: op.weight_bytes + op.activation_bytes },
        "" => Cache::Warm { set_bytes: ROTATED * op.weight_bytes },
        other => return Err(format!("column cache: expected cold, warm or nothing, found {other:?}")),
    };
    let state = row.text("cache");
    let group = format!("gemm {}{}{state}", row.text("dtype"), if state.is_empty() { "" } else { " " });
    Ok(Ok(Meaning { group, shape: format!("{n},{k}"), ops: vec![op], cache }))
}

fn experts(row: &Row<'_>) -> Read {
    let (tokens, hidden, whole) = (row.count("tokens")?, row.count("hidden")?, row.count("expert_intermediate")?);
    let (top_k, experts) = (row.count("top_k")?, row.count("experts")?);
    let part = |column| if row.text(column).is_empty() { Ok(1) } else { row.count(column) };
    let (tp, ep) = (part("moe_tp")?, part("moe_ep")?);
    let small = tokens <= 1 << 20 && hidden <= 1 << 20 && whole <= 1 << 20 && top_k <= 1 << 10 && experts <= 1 << 14;
    if !small || tp > whole || ep > experts {
        return Ok(Err("no such experts".to_owned()));
    }
    let dtype = match dtype(row.text("dtype")) {
        Ok(dtype) => dtype,
        Err(reason) => return Ok(Err(reason)),
    };
    let routing = match row.text("distribution") {
        "" | "balanced" | "uniform" => Routing::Balanced,
        other => match other.strip_prefix("power_law_").and_then(|exponent| exponent.parse::<f64>().ok()) {
            Some(exponent) if exponent > 0.0 && exponent < 10.0 && exponent != 1.0 => Routing::PowerLaw(exponent),
            _ => return Ok(Err(format!("unknown distribution {other:?}"))),
        },
    };
    // DeepSeek-V3 restricts a token to half of the groups of experts; on balanced
    // scores the choice repeats itself, which the table shows (2.8 TB/s otherwise,
    // more than the memory has). Inferred from these rows: four experts common to all
    // tokens and four of its own.
    let grouped = routing == Routing::Balanced && hidden == 7168 && experts == 256 && row.text("kernel").starts_with("vllm");
    if grouped && ep > 1 {
        return Ok(Err("balanced scores under group-limited routing: the experts of one rank are not known".to_owned()));
    }
    let distinct = if grouped { 1000 * (4 + 4 * tokens).min(132) } else { distinct_milli(routing, tokens, top_k, experts, ep) };
    let inner = whole / tp;
    let weights = u128::from(dtype.bytes_of(3 * hidden * inner)) * u128::from(distinct) / 1000;
    let weight_bytes = u64::try_from(weights).unwrap_or(u64::MAX);
    let op = Op {
        name: "experts",
        family: Family::Experts { tokens, hidden, intermediate: inner, top_k, experts: experts / ep, distinct_milli: distinct },
        dtype,
        flops: 6 * tokens * top_k / ep * hidden * inner,
        weight_bytes,
        cache_bytes: 0,
        activation_bytes: 2 * tokens * (2 * hidden + 3 * top_k * inner / ep),
        launches: 5,
    };
    let cache = Cache::Warm { set_bytes: weight_bytes.saturating_add(op.activation_bytes) };
    let group = format!("experts {} {}", row.text("dtype"), row.text("kernel"));
    Ok(Ok(Meaning { group, shape: format!("{hidden},{whole},{experts},{tp},{ep},{tokens}"), ops: vec![op], cache }))
}

fn small_kernel(name: &'static str, launches: u32, elements: u64) -> Op {
    Op {
        name,
        family: Family::Elementwise,
        dtype: Dtype::Bf16,
        flops: 0,
        weight_bytes: 0,
        cache_bytes: 0,
        activation_bytes: 4 * elements,
        launches,
    }
}

/// One of the two products that absorb the up-projections, per head.
fn absorbed(name: &'static str, dtype: Dtype, heads: u64, m: u64, n: u64, k: u64) -> Op {
    Op {
        name,
        family: Family::BatchedGemm { batch: heads, m, n, k },
        dtype,
        flops: 2 * heads * m * n * k,
        weight_bytes: dtype.bytes_of(heads * n * k),
        cache_bytes: 0,
        activation_bytes: 2 * heads * m * (n + k),
        launches: 1,
    }
}

fn attention(kv: Dtype, heads: u64, batch: u64, context: u64) -> Op {
    let width = mla::KV_RANK + mla::ROPE;
    Op {
        name: "attention",
        family: Family::MlaDecode { batch, tokens: 1, context, heads, width },
        dtype: kv,
        flops: 2 * batch * heads * context * (width + mla::KV_RANK),
        weight_bytes: 0,
        cache_bytes: kv.bytes_of(batch * context * width),
        activation_bytes: 2 * batch * heads * (width + mla::KV_RANK),
        launches: 2,
    }
}

/// The attention block of one layer: what serving engines launch between the
/// norm before it and the all-reduce after it.
pub(crate) fn mla_block(projections: Dtype, kv: Dtype, heads: u64, batch: u64, context: u64) -> Vec<Op> {
    let head = mla::NOPE + mla::ROPE;
    vec![
        product("qkv_a_proj", projections, batch, mla::Q_RANK + mla::KV_RANK + mla::ROPE, mla::HIDDEN),
        small_kernel("qkv_a_norm", 2, batch * (mla::Q_RANK + mla::KV_RANK)),
        product("q_b_proj", projections, batch, heads * head, mla::Q_RANK),
        small_kernel("rotary_and_cache_write", 2, batch * (heads + 1) * mla::ROPE + batch * mla::KV_RANK),
        absorbed("absorb_k", Dtype::Bf16, heads, batch, mla::KV_RANK, mla::NOPE),
        attention(kv, heads, batch, context),
        absorbed("absorb_v", Dtype::Bf16, heads, batch, mla::VALUE, mla::KV_RANK),
        product("o_proj", projections, batch, mla::HIDDEN, heads * mla::VALUE),
    ]
}

fn mla_decode(row: &Row<'_>) -> Read {
    let (heads, batch, context) = (row.count("heads")?, row.count("batch")?, row.count("context")?);
    if heads > 1 << 12 || batch > 1 << 16 || context > 1 << 28 {
        return Ok(Err("no such cache".to_owned()));
    }
    let kv = match dtype(row.text("kv_dtype")) {
        Ok(dtype) => dtype,
        Err(reason) => return Ok(Err(reason)),
    };
    let (ops, projections) = match row.text("operation") {
        "mla_decode" => (vec![attention(kv, heads, batch, context)], ""),
        "mla_decode_module" => match dtype(row.text("projection_dtype")) {
            Ok(projections) => (mla_block(projections, kv, heads, batch, context), row.text("projection_dtype")),
            Err(reason) => return Ok(Err(reason)),
        },
        other => return Ok(Err(format!("unknown operation {other:?}"))),
    };
    let set_bytes = ops.iter().map(|op| op.weight_bytes + op.cache_bytes).sum();
    let group = format!("{} {}", row.text("operation"), if projections.is_empty() { row.text("kernel") } else { projections });
    let shape = format!("{heads},{batch},{context}");
    Ok(Ok(Meaning { group, shape, ops, cache: Cache::Warm { set_bytes } }))
}

fn mla_products(row: &Row<'_>) -> Read {
    let (tokens, heads) = (row.count("tokens")?, row.count("heads")?);
    if heads > 1 << 12 || tokens > 1 << 20 {
        return Ok(Err("no such product".to_owned()));
    }
    let dtype = match dtype(row.text("dtype")) {
        Ok(dtype) => dtype,
        Err(reason) => return Ok(Err(reason)),
    };
    let op = match row.text("operation") {
        "mla_gen_pre" => absorbed("absorb_k", dtype, heads, tokens, mla::KV_RANK, mla::NOPE),
        "mla_gen_post" => absorbed("absorb_v", dtype, heads, tokens, mla::VALUE, mla::KV_RANK),
        other => return Ok(Err(format!("unknown operation {other:?}"))),
    };
    let cache = Cache::Warm { set_bytes: ROTATED * op.weight_bytes };
    let group = format!("{} {}", row.text("operation"), row.text("dtype"));
    Ok(Ok(Meaning { group, shape: format!("{tokens},{heads}"), ops: vec![op], cache }))
}
