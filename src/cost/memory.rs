//! Where bytes lie and how fast they come.

use crate::cost::Cache;
use crate::machine::GpuKind;

/// Above `l2_usable` of L2 a repeated set loses its hits over this further
/// share of it: replacement is neither perfectly cyclic nor perfect.
const FADE: f64 = 0.25;

/// Share of reads that hit L2.
pub fn resident(kind: &GpuKind, cache: Cache) -> f64 {
    let Cache::Warm { set_bytes } = cache else { return 0.0 };
    let usable = kind.l2_bytes as f64 * kind.kernels.l2_usable.value;
    if usable <= 0.0 {
        return 0.0;
    }
    ((1.0 + FADE - set_bytes as f64 / usable) / FADE).clamp(0.0, 1.0)
}

/// GB/s of reads from device memory.
pub fn memory_gbps(kind: &GpuKind) -> f64 {
    kind.chip.memory_gbps.value * kind.kernels.memory_efficiency.value
}

/// Time to read `bytes` of weights or cache, at most at `cap_gbps`.
pub fn weights_capped_ns(kind: &GpuKind, bytes: u64, cache: Cache, cap_gbps: f64) -> f64 {
    let hits = resident(kind, cache);
    let l2 = kind.kernels.l2_gbps.value.min(cap_gbps);
    let memory = memory_gbps(kind).min(cap_gbps);
    bytes as f64 * (hits / l2 + (1.0 - hits) / memory)
}

/// Time to read `bytes` of weights or cache.
pub fn weights_ns(kind: &GpuKind, bytes: u64, cache: Cache) -> f64 {
    weights_capped_ns(kind, bytes, cache, f64::INFINITY)
}

/// Time for activations: the kernel before has just written them, so they lie
/// in L2 unless they are larger than it.
pub fn activations_ns(kind: &GpuKind, bytes: u64) -> f64 {
    weights_ns(kind, bytes, Cache::Warm { set_bytes: bytes })
}

/// The longest of `parts`, or a little more where several are long:
/// `(Σ partᵖ)^(1/p)`.
pub fn overlap(parts: &[f64], exponent: f64) -> f64 {
    let longest = parts.iter().copied().fold(0.0, f64::max);
    if longest <= 0.0 {
        return 0.0;
    }
    let sum: f64 = parts.iter().map(|part| libm::pow(part.max(0.0) / longest, exponent)).sum();
    longest * libm::pow(sum, 1.0 / exponent)
}

/// TFLOPS of the tensor cores for numbers of `bits`.
pub fn tensor_tflops(kind: &GpuKind, bits: u32) -> f64 {
    let peak = match bits {
        4 => kind.chip.fp4_tflops.value,
        8 => kind.chip.fp8_tflops.value,
        _ => kind.chip.bf16_tflops.value,
    };
    peak * kind.kernels.tensor_efficiency.value
}
