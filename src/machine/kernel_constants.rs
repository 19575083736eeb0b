//! What compute kernels cost on a kind of GPU, per family of kernels.
//!
//! The defaults are rounded readings of an RTX PRO 6000 Blackwell Server's
//! tables, from which the fit starts (`validation/kernels/rtx-pro-6000.toml`,
//! `docs/kernels.md`); a kind whose file states none is priced with them.

use crate::constants;

constants! {
    /// Fitted constants of the compute kernels; `cost` says how they combine.
    pub struct KernelConstants {
        /// Share of the datasheet's memory rate that a streaming kernel reaches.
        memory_efficiency: "1", 0.2..=1.0, default 0.82 in 0.7..=0.92, "traces/kernels/rtx-pro-6000/gemm.csv";
        /// Rate at which all multiprocessors together read weights that lie in L2.
        l2_gbps: "GBps", 100.0..=50000.0, default 4000.0 in 2500.0..=8000.0, "traces/kernels/rtx-pro-6000/gemm.csv";
        /// Share of L2 that a repeated set of weights may fill before it evicts itself.
        l2_usable: "1", 0.2..=1.2, default 0.9 in 0.5..=1.0, "traces/kernels/rtx-pro-6000/gemm.csv";
        /// Share of the tensor cores' rate that a kernel with full tiles reaches.
        tensor_efficiency: "1", 0.1..=1.0, default 0.7 in 0.5..=0.9, "traces/kernels/rtx-pro-6000/moe.csv";
        /// How far memory, tensor cores and the reduction loop hide one another: 1 adds them, a large value takes the longest.
        overlap_exponent: "1", 1.0..=10.0, default 3.0 in 1.5..=6.0, "traces/kernels/rtx-pro-6000/gemm.csv";
        /// Launch to drain of a bf16 product, with the gap to the next kernel of a replayed graph.
        gemm_bf16_fixed_ns: "ns", 500.0..=20000.0, default 2100.0 in 1500.0..=3500.0, "traces/kernels/rtx-pro-6000/gemm.csv";
        /// One step along k of a block of a bf16 product whose data has come.
        gemm_bf16_loop_ps: "ps", 10.0..=20000.0, default 3400.0 in 2000.0..=5000.0, "traces/kernels/rtx-pro-6000/gemm.csv";
        /// Lanes that share the reduction of a bf16 product with one row; 1 where the library has no kernel of its own for it.
        gemm_row_lanes: "1", 1.0..=64.0, default 16.0 in 1.0..=32.0, "traces/kernels/rtx-pro-6000/gemm.csv";
        /// Length of k from which the library splits a bf16 product with fewer columns than rows of weights.
        gemm_split_from: "1", 256.0..=32768.0, default 2048.0 in 1536.0..=4096.0, "traces/kernels/rtx-pro-6000/gemm.csv";
        /// The second kernel that adds the parts of a split product.
        gemm_split_ns: "ns", 0.0..=20000.0, default 1500.0 in 800.0..=4000.0, "traces/kernels/rtx-pro-6000/gemm.csv";
        /// As `gemm_bf16_fixed_ns`, for fp8, the quantisation of the activations included.
        gemm_fp8_fixed_ns: "ns", 500.0..=30000.0, default 4900.0 in 3500.0..=7000.0, "traces/kernels/rtx-pro-6000/gemm.csv";
        /// As `gemm_bf16_loop_ps`, for fp8 with up to 32 rows; twice that with more.
        gemm_fp8_loop_ps: "ps", 10.0..=20000.0, default 1100.0 in 700.0..=2000.0, "traces/kernels/rtx-pro-6000/gemm.csv";
        /// As `gemm_bf16_fixed_ns`, for fp4, the quantisation of the activations included.
        gemm_fp4_fixed_ns: "ns", 500.0..=30000.0, default 6000.0 in 4000.0..=9000.0, "traces/kernels/rtx-pro-6000/gemm.csv";
        /// As `gemm_bf16_loop_ps`, for fp4, whose blocks have 128 rows however few tokens there are.
        gemm_fp4_loop_ps: "ps", 10.0..=20000.0, default 3500.0 in 2500.0..=5000.0, "traces/kernels/rtx-pro-6000/gemm.csv";
        /// Rate at which the fp4 kernel takes weights with one token, from memory or L2; it grows to twice that at 64.
        gemm_fp4_row_gbps: "GBps", 50.0..=20000.0, default 960.0 in 700.0..=2000.0, "traces/kernels/rtx-pro-6000/gemm.csv";
        /// Launch to drain of a batch of small products.
        batched_fixed_ns: "ns", 500.0..=30000.0, default 4300.0 in 3000.0..=6000.0, "traces/kernels/rtx-pro-6000/mla_bmm.csv";
        /// All kernels of int4 experts (Marlin) with nothing to read: sorting, two products, activation, sum.
        experts_int4_fixed_ns: "ns", 1000.0..=200000.0, default 24000.0 in 20000.0..=50000.0, "traces/kernels/rtx-pro-6000/moe.csv";
        /// Rate at which the kernels of int4 experts take weights, however fast memory is: unpacking them takes instructions.
        experts_int4_gbps: "GBps", 100.0..=50000.0, default 20000.0 in 10000.0..=50000.0, "none seen: Marlin reads int4 weights as fast as memory gives them";
        /// As `experts_int4_fixed_ns`, for the Triton kernels that take fp8 in blocks (and bf16).
        experts_fp8_fixed_ns: "ns", 1000.0..=200000.0, default 20000.0 in 10000.0..=50000.0, "traces/kernels/rtx-pro-6000/moe.csv";
        /// As `experts_int4_fixed_ns`, for the CUTLASS kernels that take fp4.
        experts_fp4_fixed_ns: "ns", 1000.0..=200000.0, default 33000.0 in 20000.0..=60000.0, "traces/kernels/rtx-pro-6000/moe.csv";
        /// One step along a reduction (hidden size, then inner size) of the fp8 experts.
        experts_fp8_loop_ps: "ps", 0.0..=50000.0, default 6000.0 in 3000.0..=9000.0, "traces/kernels/rtx-pro-6000/moe.csv";
        /// As `experts_fp8_loop_ps`, for fp4.
        experts_fp4_loop_ps: "ps", 0.0..=50000.0, default 2800.0 in 2000.0..=5000.0, "traces/kernels/rtx-pro-6000/moe.csv";
        /// Scheduling one more expert in the grouped fp4 product, however small it is.
        experts_fp4_each_ns: "ns", 0.0..=20000.0, default 1000.0 in 500.0..=2000.0, "traces/kernels/rtx-pro-6000/moe.csv";
        /// Both kernels of MLA decode with an empty cache, with the copies around them.
        mla_fixed_ns: "ns", 1000.0..=200000.0, default 30000.0 in 16000.0..=45000.0, "traces/kernels/rtx-pro-6000/mla.csv";
        /// Added to `mla_fixed_ns` with each doubling of the rows of queries, up to 32. Measured; which kernel it is, is not known.
        mla_doubling_ns: "ns", 0.0..=20000.0, default 3000.0 in 1500.0..=5000.0, "traces/kernels/rtx-pro-6000/mla.csv";
        /// Cached positions that one block of MLA decode walks before the work is split further.
        mla_chunk: "1", 16.0..=8192.0, default 512.0 in 256.0..=1024.0, "traces/kernels/rtx-pro-6000/mla.csv";
        /// One step of 16 positions of a block of MLA decode.
        mla_step_ns: "ns", 10.0..=10000.0, default 1150.0 in 500.0..=1500.0, "traces/kernels/rtx-pro-6000/mla.csv";
        /// One position against one group of 16 rows of queries, all multiprocessors busy.
        mla_group_ps: "ps", 1.0..=20000.0, default 415.0 in 300.0..=600.0, "traces/kernels/rtx-pro-6000/mla.csv";
        /// One small kernel (norm, rotary, activation, copy), with the gap to the next kernel of a replayed graph.
        elementwise_fixed_ns: "ns", 200.0..=20000.0, default 2200.0 in 1500.0..=4000.0, "traces/kernels/rtx-pro-6000/gemm.csv: the smallest kernels of the table take 2.1 us";
        /// Attention kernels other than MLA decode with an empty cache: decode (two kernels), prefill, linear.
        attention_fixed_ns: "ns", 500.0..=100000.0, default 9000.0 in 5000.0..=17000.0, "assumed: two kernels and half of what MLA decode adds to them";
        /// Share of the tensor cores' rate that prefill attention reaches.
        attention_efficiency: "1", 0.05..=1.0, default 0.55 in 0.35..=0.75, "assumed: FlashAttention 2 on chips without warp-group instructions";
    }
}
