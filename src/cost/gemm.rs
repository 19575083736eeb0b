//! Dense products: few rows wait for weights, many for tensor cores.

use crate::cost::Cache;
use crate::cost::Parts;
use crate::cost::memory;
use crate::machine::GpuKind;
use crate::model::op::Dtype;
use crate::model::op::Op;

/// Ways in which a library splits a long reduction.
const SPLITS: f64 = 16.0;

/// Tiles (rows × columns) among which a library chooses.
const TILES: [(u64, u64); 4] = [(128, 128), (64, 128), (64, 64), (16, 64)];

/// Rows of the tensor cores' smallest tile.
const ROWS: f64 = 16.0;

/// The arithmetic that a product runs in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arithmetic {
    /// bf16, also for int4 weights (Marlin unpacks them) and f32 (TF32).
    Bf16,
    Fp8,
    Fp4,
}

fn arithmetic(dtype: Dtype) -> Arithmetic {
    match dtype {
        Dtype::F32 | Dtype::Bf16 | Dtype::Fp16 | Dtype::Int4 { .. } => Arithmetic::Bf16,
        Dtype::Fp8 | Dtype::Int8 => Arithmetic::Fp8,
        Dtype::Nvfp4 | Dtype::Mxfp4 => Arithmetic::Fp4,
    }
}

/// `m × k` by `k × n`.
pub fn dense(op: &Op, kind: &GpuKind, cache: Cache, m: u64, n: u64, k: u64) -> Parts {
    let c = &kind.kernels;
    let steps = k as f64;
    let (fixed_ns, loop_ns, bits, cap) = match arithmetic(op.dtype) {
        Arithmetic::Bf16 => {
            let whole = steps * c.gemm_bf16_loop_ps.value / 1e3;
            let (split, looped) = if m == 1 {
                (0.0, whole / c.gemm_row_lanes.value)
            } else if steps >= c.gemm_split_from.value && k > n {
                (c.gemm_split_ns.value, whole / SPLITS)
            } else {
                (0.0, whole)
            };
            (c.gemm_bf16_fixed_ns.value + split, looped, 16, f64::INFINITY)
        }
        Arithmetic::Fp8 => {
            let rows = if m > 32 { 2.0 } else { 1.0 };
            (c.gemm_fp8_fixed_ns.value, steps * rows * c.gemm_fp8_loop_ps.value / 1e3, 8, f64::INFINITY)
        }
        Arithmetic::Fp4 => {
            let cap = c.gemm_fp4_row_gbps.value * (1.0 + m.min(64) as f64 / 64.0);
            (c.gemm_fp4_fixed_ns.value, steps * c.gemm_fp4_loop_ps.value / 1e3, 4, if m > 64 { f64::INFINITY } else { cap })
        }
    };
    Parts {
        fixed_ns,
        memory_ns: memory::weights_capped_ns(kind, op.weight_bytes, cache, cap) + memory::activations_ns(kind, op.activation_bytes),
        compute_ns: tiles_ns(kind, bits, m, n, k),
        loop_ns,
        overlap_exponent: c.overlap_exponent.value,
    }
}

/// Whole tiles in whole waves over the multiprocessors, with the best tile; where
/// there are fewer tiles than multiprocessors the reduction is split among them.
fn tiles_ns(kind: &GpuKind, bits: u32, m: u64, n: u64, k: u64) -> f64 {
    let sms = u64::from(kind.sms.max(1));
    let flops_ns_per_sm = memory::tensor_tflops(kind, bits) * 1e3 / sms as f64;
    TILES
        .iter()
        .map(|(rows, columns)| {
            let tiles = m.div_ceil(*rows).saturating_mul(n.div_ceil(*columns));
            let waves = if tiles < sms { tiles as f64 / sms as f64 } else { tiles.div_ceil(sms) as f64 };
            waves * (2 * rows * columns) as f64 * k as f64 / flops_ns_per_sm
        })
        .fold(f64::INFINITY, f64::min)
}

/// Small products; `shape` is batch, m, n, k. Rows are padded to 16.
pub fn batched(op: &Op, kind: &GpuKind, cache: Cache, shape: [u64; 4]) -> Parts {
    let [batch, m, n, k] = shape.map(|size| size as f64);
    let c = &kind.kernels;
    let (extra, bits) = match arithmetic(op.dtype) {
        Arithmetic::Bf16 => (0.0, 16),
        Arithmetic::Fp8 | Arithmetic::Fp4 => ((c.gemm_fp8_fixed_ns.value - c.gemm_bf16_fixed_ns.value).max(0.0), 8),
    };
    Parts {
        fixed_ns: c.batched_fixed_ns.value + extra,
        memory_ns: memory::weights_ns(kind, op.weight_bytes, cache) + memory::activations_ns(kind, op.activation_bytes),
        compute_ns: 2.0 * batch * libm::ceil(m / ROWS) * ROWS * n * k / (memory::tensor_tflops(kind, bits) * 1e3),
        loop_ns: 0.0,
        overlap_exponent: c.overlap_exponent.value,
    }
}

/// The router's product in bf16, then its other launches.
pub fn router(op: &Op, kind: &GpuKind, cache: Cache, tokens: u64, experts: u64) -> Parts {
    let small = kind.kernels.elementwise_fixed_ns.value;
    let launches = f64::from(op.launches.max(1));
    let hidden = op.weight_bytes / experts.saturating_mul(2).max(1);
    if hidden == 0 {
        return Parts { fixed_ns: small * launches, ..super::elementwise(op, kind, cache) };
    }
    let mut parts = dense(&Op { dtype: Dtype::Bf16, ..op.clone() }, kind, cache, tokens, experts, hidden);
    parts.fixed_ns += small * (launches - 1.0);
    parts
}
