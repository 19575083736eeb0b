//! What one operation costs on one kind of GPU, in integer picoseconds.
//!
//! Every kernel is a fixed time plus the longest of what it waits for, softly
//! (`overlap_exponent`): bytes over the rate of where they lie, floating-point
//! work in whole tiles over the tensor cores' rate, and the serial loop of one
//! thread block along the reduction. The numbers are [`KernelConstants`]; no
//! measurement is read here at run time. [`observations`] reads the tables on
//! which they were fitted, [`fitting`] refits them, [`accuracy`] says how far
//! off they are on rows that were not fitted.
//!
//! Fixed times contain the gap between kernels of a replayed graph, because
//! the tables were measured as repetitions back to back: whoever adds up
//! operations adds no `graph_gap_ns` per kernel.
//!
//! [`KernelConstants`]: crate::machine::KernelConstants

pub mod accuracy;
mod attention;
mod experts;
pub mod fitting;
mod gemm;
mod memory;
pub mod observations;
pub mod protocol;
mod routing;
mod tables;

use crate::machine::GpuKind;
use crate::model::op::Family;
use crate::model::op::Op;
use crate::units::Time;

pub use memory::overlap;

/// Where weights and cache lie when an operation starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cache {
    /// In device memory: between two passes of a server the other layers have
    /// evicted them. This is the state of every forecast.
    Cold,
    /// Used over and over, as benchmarks do: what fits L2 is read from there.
    Warm {
        /// All bytes touched between two uses of the same byte.
        set_bytes: u64,
    },
}

/// What an operation's time is made of. The parts of one operation overlap:
/// they add up to more than [`Parts::total`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Parts {
    /// Launch, fill, drain, and the gap to the next kernel.
    pub fixed_ns: f64,
    /// Bytes over the rate of where they lie.
    pub memory_ns: f64,
    /// Floating-point work in whole tiles.
    pub compute_ns: f64,
    /// The serial loop of one thread block.
    pub loop_ns: f64,
    /// How far the last three hide one another.
    pub overlap_exponent: f64,
}

impl Parts {
    /// The operation's time.
    pub fn total(&self) -> Time {
        let hidden = memory::overlap(&[self.memory_ns, self.compute_ns, self.loop_ns], self.overlap_exponent);
        Time::from_ns(self.fixed_ns + hidden)
    }

    /// The longest part, for reports: `fixed`, `memory`, `compute` or `loop`.
    pub fn bound(&self) -> &'static str {
        let parts = [("fixed", self.fixed_ns), ("memory", self.memory_ns), ("compute", self.compute_ns), ("loop", self.loop_ns)];
        parts.iter().fold(parts[0], |longest, part| if part.1 > longest.1 { *part } else { longest }).0
    }
}

/// How long `op` takes on `kind`, all its kernels back to back in a graph.
pub fn duration(op: &Op, kind: &GpuKind, cache: Cache) -> Time {
    parts(op, kind, cache).total()
}

/// As [`duration`], with the parts of the time.
pub fn parts(op: &Op, kind: &GpuKind, cache: Cache) -> Parts {
    match op.family {
        Family::Gemm { m, n, k } => gemm::dense(op, kind, cache, m, n, k),
        Family::BatchedGemm { batch, m, n, k } => gemm::batched(op, kind, cache, [batch, m, n, k]),
        Family::Experts { .. } => experts::experts(op, kind, cache),
        Family::MlaDecode { .. } => attention::mla_decode(op, kind, cache),
        Family::GqaDecode { .. } => attention::gqa_decode(op, kind, cache),
        Family::Prefill { .. } => attention::prefill(op, kind, cache),
        Family::LinearAttention { .. } => attention::linear(op, kind, cache),
        Family::Router { tokens, experts } => gemm::router(op, kind, cache, tokens, experts),
        Family::Elementwise | Family::Embedding | Family::Sample => elementwise(op, kind, cache),
    }
}

/// Kernels that only move bytes: one fixed time a launch.
fn elementwise(op: &Op, kind: &GpuKind, cache: Cache) -> Parts {
    let k = &kind.kernels;
    Parts {
        fixed_ns: k.elementwise_fixed_ns.value * f64::from(op.launches.max(1)),
        memory_ns: memory::weights_ns(kind, op.weight_bytes.saturating_add(op.cache_bytes), cache)
            + memory::activations_ns(kind, op.activation_bytes),
        overlap_exponent: k.overlap_exponent.value,
        ..Parts::default()
    }
}
