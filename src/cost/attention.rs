//! Attention: the cache is read once for all tokens of a sequence in a pass.

use crate::cost::Cache;
use crate::cost::Parts;
use crate::cost::memory;
use crate::machine::GpuKind;
use crate::model::op::Family;
use crate::model::op::Op;

/// Rows of queries (heads × tokens) that one block takes; more rows pass over
/// the cache again, out of L2.
const GROUP_ROWS: u64 = 16;

/// Positions of one step of a block.
const STEP_POSITIONS: f64 = 16.0;

/// Rows up to which the fixed time grows.
const DOUBLED_MAX: f64 = 32.0;

/// Splits of one sequence at most.
const SPLITS_MAX: f64 = 64.0;

/// A block that loads, multiplies and loads again hides less than a pipelined
/// product: 2 joins the one-group rows (memory) and the eight-group rows
/// (arithmetic) of the table.
const OVERLAP: f64 = 2.0;

/// MLA decode over the compressed cache (Triton): the serial walk of a block
/// beside the work of all blocks; the cache comes from memory once, however many
/// groups of rows there are.
pub fn mla_decode(op: &Op, kind: &GpuKind, cache: Cache) -> Parts {
    let Family::MlaDecode { batch, tokens, context, heads, .. } = op.family else { return Parts::default() };
    let c = &kind.kernels;
    let chunk = c.mla_chunk.value.max(context as f64 / SPLITS_MAX).min(context as f64);
    let groups = heads.saturating_mul(tokens).div_ceil(GROUP_ROWS);
    let visits = batch as f64 * context as f64 * groups as f64;
    Parts {
        fixed_ns: c.mla_fixed_ns.value + c.mla_doubling_ns.value * libm::log2((batch as f64 * tokens as f64).clamp(1.0, DOUBLED_MAX)),
        memory_ns: memory::weights_ns(kind, op.cache_bytes, cache) + memory::activations_ns(kind, op.activation_bytes),
        compute_ns: visits * c.mla_group_ps.value / 1e3,
        loop_ns: libm::ceil(chunk / STEP_POSITIONS) * c.mla_step_ns.value,
        overlap_exponent: OVERLAP,
    }
}

/// Decode with grouped queries: bytes of the cache, arithmetic in groups of rows.
pub fn gqa_decode(op: &Op, kind: &GpuKind, cache: Cache) -> Parts {
    let Family::GqaDecode { batch, tokens, context, heads, kv_heads, head_dim } = op.family else { return Parts::default() };
    let groups = (heads / kv_heads.max(1)).saturating_mul(tokens).div_ceil(GROUP_ROWS);
    let rows = groups as f64 * GROUP_ROWS as f64 * kv_heads as f64;
    let flops = 4.0 * batch as f64 * context as f64 * rows * head_dim as f64;
    Parts { compute_ns: flops / attention_flops_per_ns(kind), ..bytes_only(op, kind, cache) }
}

/// Prefill: floating-point work of the causal half.
pub fn prefill(op: &Op, kind: &GpuKind, cache: Cache) -> Parts {
    Parts { compute_ns: op.flops as f64 / attention_flops_per_ns(kind), ..bytes_only(op, kind, cache) }
}

/// Linear attention: the state is read and written once.
pub fn linear(op: &Op, kind: &GpuKind, cache: Cache) -> Parts {
    Parts { compute_ns: op.flops as f64 / attention_flops_per_ns(kind), ..bytes_only(op, kind, cache) }
}

fn attention_flops_per_ns(kind: &GpuKind) -> f64 {
    kind.chip.bf16_tflops.value * kind.kernels.attention_efficiency.value * 1e3
}

fn bytes_only(op: &Op, kind: &GpuKind, cache: Cache) -> Parts {
    Parts {
        fixed_ns: kind.kernels.attention_fixed_ns.value,
        memory_ns: memory::weights_ns(kind, op.cache_bytes.saturating_add(op.weight_bytes), cache)
            + memory::activations_ns(kind, op.activation_bytes),
        overlap_exponent: kind.kernels.overlap_exponent.value,
        ..Parts::default()
    }
}
