//! The kernel constants from rows that were not held out.
//!
//! A compass search on the logarithms of the constants: no derivative, no
//! random number, the same result everywhere. The loss is the mean over groups
//! of the mean over rows of a Huber function of ln(forecast ÷ measured), so
//! that a kernel the library chose badly does not bend the rest.

use std::collections::BTreeMap;

use crate::cost::accuracy::forecast;
use crate::cost::observations::Observation;
use crate::knob::Constants;
use crate::machine::GpuKind;
use crate::machine::KernelConstants;

/// Where the Huber function turns from a square into a line.
const HUBER: f64 = 0.1;

/// First and last step of the search, as ln of a factor.
const STEPS: (f64, f64) = (0.2, 0.002);

/// Constants that dense products pin, with those of memory.
pub const GEMM: [&str; 14] = [
    "memory_efficiency",
    "l2_gbps",
    "l2_usable",
    "overlap_exponent",
    "gemm_bf16_fixed_ns",
    "gemm_bf16_loop_ps",
    "gemm_row_lanes",
    "gemm_split_from",
    "gemm_split_ns",
    "gemm_fp8_fixed_ns",
    "gemm_fp8_loop_ps",
    "gemm_fp4_fixed_ns",
    "gemm_fp4_loop_ps",
    "gemm_fp4_row_gbps",
];

/// Constants that the tables of experts pin.
pub const EXPERTS: [&str; 7] = [
    "tensor_efficiency",
    "experts_int4_fixed_ns",
    "experts_fp8_fixed_ns",
    "experts_fp4_fixed_ns",
    "experts_fp8_loop_ps",
    "experts_fp4_loop_ps",
    "experts_fp4_each_ns",
];

/// Constants that the tables of MLA pin.
pub const MLA: [&str; 6] = ["batched_fixed_ns", "mla_fixed_ns", "mla_doubling_ns", "mla_chunk", "mla_step_ns", "mla_group_ps"];

/// Starts for the length from which products are split: a threshold has no slope.
const SPLIT_STARTS: [f64; 4] = [1300.0, 1800.0, 2900.0, 3900.0];

/// As [`fit`] for [`GEMM`], from several starts for the one threshold among them.
pub fn fit_gemm(kind: &mut GpuKind, rows: &[&Observation]) -> f64 {
    let mut best = (f64::INFINITY, kind.clone());
    for start in SPLIT_STARTS {
        let mut tried = kind.clone();
        set(&mut tried.kernels, "gemm_split_from", start);
        let loss = fit(&mut tried, rows, &GEMM);
        if loss < best.0 {
            best = (loss, tried);
        }
    }
    *kind = best.1;
    best.0
}

/// Fits the named constants of `kind` to the rows that are not held out.
/// Returns the loss; constants stay within their bounds, intervals unchanged
/// but for containing the value.
pub fn fit(kind: &mut GpuKind, rows: &[&Observation], names: &[&str]) -> f64 {
    let rows: Vec<&Observation> = rows.iter().copied().filter(|row| !row.held_out).collect();
    let mut best = loss(kind, &rows);
    let mut step = STEPS.0;
    while step >= STEPS.1 {
        let mut better = false;
        for name in names {
            for factor in [libm::exp(step), libm::exp(-step)] {
                let Some(old) = kind.kernels.quantity(name).map(|quantity| quantity.value) else { continue };
                set(&mut kind.kernels, name, old * factor);
                let tried = loss(kind, &rows);
                if tried < best {
                    best = tried;
                    better = true;
                } else {
                    set(&mut kind.kernels, name, old);
                }
            }
        }
        if !better {
            step /= 2.0;
        }
    }
    best
}

fn set(kernels: &mut KernelConstants, name: &str, value: f64) {
    let Some(spec) = KernelConstants::specs().iter().find(|spec| spec.name == name) else { return };
    let Some(quantity) = kernels.quantity_mut(name) else { return };
    quantity.value = value.clamp(*spec.bounds.start(), *spec.bounds.end());
    quantity.low = quantity.low.min(quantity.value);
    quantity.high = quantity.high.max(quantity.value);
}

fn loss(kind: &GpuKind, rows: &[&Observation]) -> f64 {
    let mut groups: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for row in rows {
        let error = libm::log(forecast(row, kind).us().max(1e-6) / row.latency_us).abs();
        let cost = if error < HUBER { error * error / (2.0 * HUBER) } else { error - HUBER / 2.0 };
        let group = groups.entry(&row.group).or_default();
        group.0 += cost;
        group.1 += 1.0;
    }
    groups.values().map(|(sum, count)| sum / count).sum::<f64>() / groups.len().max(1) as f64
}
