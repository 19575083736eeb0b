//! Routed experts: the distinct experts' weights, in blocks of rows.
//!
//! The kernels are those that a good engine takes for each dtype: Marlin for
//! int4 weights (bf16 arithmetic), Triton for fp8 in blocks and bf16, CUTLASS
//! grouped products for fp4.

use crate::cost::Cache;
use crate::cost::Parts;
use crate::cost::memory;
use crate::machine::GpuKind;
use crate::model::op::Dtype;
use crate::model::op::Family;
use crate::model::op::Op;

/// Blocks of rows that Marlin has.
const MARLIN_ROWS: [u64; 5] = [8, 16, 32, 48, 64];

/// Rows of a block of the fp4 product.
const FP4_ROWS: u64 = 128;

/// All kernels of the routed experts of one layer.
pub fn experts(op: &Op, kind: &GpuKind, cache: Cache) -> Parts {
    let Family::Experts { tokens, hidden, intermediate, top_k, experts, distinct_milli } = op.family else { return Parts::default() };
    let c = &kind.kernels;
    let distinct = distinct_milli as f64 / 1e3;
    let reduction = hidden as f64 + intermediate as f64;
    let slots = tokens.saturating_mul(top_k);
    let (fixed_ns, rows, bits, each_ns) = match op.dtype {
        Dtype::Int4 { .. } => (c.experts_int4_fixed_ns.value, marlin_rows(slots, experts), 16, 0.0),
        Dtype::Nvfp4 | Dtype::Mxfp4 => {
            (c.experts_fp4_fixed_ns.value + reduction * c.experts_fp4_loop_ps.value / 1e3, FP4_ROWS, 4, c.experts_fp4_each_ns.value)
        }
        _ => (c.experts_fp8_fixed_ns.value + reduction * c.experts_fp8_loop_ps.value / 1e3, triton_rows(tokens, experts), 16, 0.0),
    };
    // Tokens of the average expert here; slots that other ranks serve are not ours.
    let served = slots as f64 * (experts as f64 / f64::max(experts as f64, distinct)).min(1.0);
    let blocks = (served / distinct.max(1.0) / rows as f64).min(tokens.div_ceil(rows) as f64).max(1.0);
    let cap = if matches!(op.dtype, Dtype::Int4 { .. }) { c.experts_int4_gbps.value } else { f64::INFINITY };
    let flops = 6.0 * distinct * blocks * rows as f64 * hidden as f64 * intermediate as f64;
    Parts {
        fixed_ns,
        memory_ns: memory::weights_capped_ns(kind, op.weight_bytes, cache, cap) + memory::activations_ns(kind, op.activation_bytes),
        compute_ns: flops / (memory::tensor_tflops(kind, bits) * 1e3),
        loop_ns: each_ns * distinct,
        overlap_exponent: c.overlap_exponent.value,
    }
}

/// Marlin takes the smallest block that the average expert of this rank does
/// not fill to nine tenths; it counts the slots of all ranks.
fn marlin_rows(slots: u64, experts: u64) -> u64 {
    let fits = |rows: &&u64| slots as f64 / (experts.max(1) as f64 * **rows as f64) < 0.9;
    MARLIN_ROWS.iter().find(fits).copied().unwrap_or(64)
}

/// Triton's default: 16 rows while there are no more tokens than experts.
fn triton_rows(tokens: u64, experts: u64) -> u64 {
    if tokens <= experts { 16 } else { 64 }
}
