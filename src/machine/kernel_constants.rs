//! What compute kernels cost on a kind of GPU, per family of kernels.

use crate::constants;

constants! {
    /// Fitted constants of the compute kernels; `cost` says how they combine.
    pub struct KernelConstants {
        /// Fixed time of a dense matrix product.
        gemm_fixed_ns: "ns", 0.0..=50000.0, default 2500.0 in 1500.0..=5000.0, "assumed";
    }
}
