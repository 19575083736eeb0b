//! What the steps of communication protocols cost inside a thread block.

use crate::constants;

constants! {
    /// Fitted constants of the protocols; `cost::protocol` says how they combine.
    pub struct ProtocolConstants {
        /// From a NCCL kernel's start to its first primitive: work list, channel, pointers.
        nccl_kernel_ns: "ns", 0.0..=20000.0, default 1500.0 in 500.0..=4000.0, "assumed";
        /// From another communication kernel's start to its first step.
        custom_kernel_ns: "ns", 0.0..=20000.0, default 300.0 in 100.0..=1000.0, "assumed";
        /// From the last block's end to the kernel's end.
        kernel_end_ns: "ns", 0.0..=10000.0, default 500.0 in 200.0..=1500.0, "assumed";
        /// More, for LL128 and Simple: NCCL compiles a kernel of its own for LL alone; the others are called
        /// through a table of functions from it, and their code is not yet in the caches.
        indirect_kernel_ns: "ns", 0.0..=10000.0, default 500.0 in 0.0..=3000.0, "assumed";
        /// More, for LL128 and Simple, when a block has over 512 threads: seen as a step where NCCL goes
        /// from 320 to 640 (LL128) or from 288 to 544 threads (Simple); not seen with LL. The cause is not known.
        wide_block_ns: "ns", 0.0..=10000.0, default 0.0 in 0.0..=4000.0, "assumed";
        /// How much later the third and further branches of one graph start on a GPU that ranks share.
        branch_skew_ns: "ns", 0.0..=10000.0, default 0.0 in 0.0..=3000.0, "assumed: one rank a GPU";
        /// How much later each branch after the third starts than the one before.
        branch_step_ns: "ns", 0.0..=2000.0, default 0.0 in 0.0..=300.0, "assumed: one rank a GPU";
        /// From a line's arrival in local memory to the poll that sees it.
        poll_ns: "ns", 0.0..=5000.0, default 200.0 in 80.0..=500.0, "assumed: half an L2 round trip and a loop";
        /// From a 4-byte flag's arrival in local memory to the poll of one thread that sees it.
        flag_poll_ns: "ns", 0.0..=5000.0, default 340.0 in 250.0..=420.0, "rtx6kpro wrx90-cpayne-8gpu-root-topology-comparison: flags between kernels take 633 to 727 ns, of which the links and the store take 340";
        /// Between blocks of one GPU, through L2: from the store to the arrival.
        local_hop_ns: "ns", 0.0..=5000.0, default 200.0 in 80.0..=500.0, "assumed: an L2 write";
        /// A fence at system scope.
        fence_ns: "ns", 0.0..=10000.0, default 520.0 in 300.0..=2000.0, "one H200: fence_sys_ns 521.9";
        /// Entering an LL primitive that sends: barrier, credit, pointers.
        ll_entry_ns: "ns", 0.0..=5000.0, default 150.0 in 30.0..=500.0, "assumed";
        /// Leaving an LL primitive that receives: barrier, counter.
        ll_exit_ns: "ns", 0.0..=5000.0, default 150.0 in 30.0..=500.0, "assumed";
        /// One LL trip of one warp: load, poll, add, store.
        ll_trip_ns: "ns", 5.0..=2000.0, default 136.0 in 80.0..=300.0, "assumed";
        /// What each further warp of the block adds to an LL trip.
        ll_warp_ns: "ns", 0.0..=500.0, default 17.0 in 8.0..=30.0, "assumed";
        /// Share of a one-warp trip that grows with the memory operations of a thread.
        trip_operation_share: "1", 0.0..=1.0, default 0.3 in 0.0..=0.7, "one H200, NCCL 2.31.2: as fitted there";
        /// What each further block of NCCL's on the same GPU adds to a trip or a copy: polls and stores queue in L2.
        crowd_share: "1", 0.0..=0.05, default 0.0 in 0.0..=0.01, "assumed: few blocks a GPU";
        /// What an LL trip waits longer when the buffers of a GPU's ranks exceed its L2.
        l2_miss_ns: "ns", 0.0..=2000.0, default 0.0 in 0.0..=300.0, "assumed";
        /// What each further peer adds to a trip that stores to or polls several.
        peer_share: "1", 0.0..=1.0, default 0.25 in 0.05..=1.0, "assumed";
        /// Entering an LL128 primitive that sends.
        ll128_entry_ns: "ns", 0.0..=5000.0, default 300.0 in 30.0..=1000.0, "assumed";
        /// Leaving an LL128 primitive that receives.
        ll128_exit_ns: "ns", 0.0..=5000.0, default 200.0 in 30.0..=1000.0, "assumed";
        /// One LL128 trip of one warp (1,920 B), vote and reload included.
        ll128_trip_ns: "ns", 5.0..=5000.0, default 300.0 in 80.0..=1000.0, "assumed";
        /// What each further warp of the block adds to an LL128 trip.
        ll128_warp_ns: "ns", 0.0..=1000.0, default 25.0 in 10.0..=80.0, "assumed";
        /// Entering a slice of Simple: waiting threads, pointers, barrier.
        simple_entry_ns: "ns", 0.0..=10000.0, default 500.0 in 100.0..=2000.0, "assumed";
        /// Leaving a slice of Simple: barrier, counters.
        simple_exit_ns: "ns", 0.0..=10000.0, default 400.0 in 100.0..=2000.0, "assumed";
        /// After a slice of Simple: until the stores of a whole block are seen by others, and the fence is done.
        simple_fence_ns: "ns", 0.0..=10000.0, default 1200.0 in 900.0..=1400.0, "one H200: stores of 512 threads are seen 1.06 to 1.37 us after the last of them was issued (traces/h200-measured/micro.csv)";
        /// What each warp adds to a barrier of the block.
        barrier_warp_ns: "ns", 0.0..=500.0, default 10.0 in 0.0..=40.0, "assumed";
        /// Data that one thread of a Simple block moves per second with three memory operations (two loads, a store),
        /// as many threads as a multiprocessor's port to L2 is shared by.
        simple_thread_gbps: "GBps", 0.001..=1.0, default 0.06 in 0.02..=0.2, "assumed";
        /// A barrier's arrival or wait in a custom kernel.
        barrier_ns: "ns", 0.0..=5000.0, default 300.0 in 50.0..=1000.0, "assumed";
        /// Reads of 16 B that one thread keeps in flight per peer.
        reads_in_flight: "1", 0.25..=32.0, default 1.0 in 0.5..=4.0, "vLLM custom all-reduce: one packed load per peer and thread";
        /// Host time until a copy engine starts, per copy.
        copy_engine_ns: "ns", 0.0..=50000.0, default 3000.0 in 1000.0..=10000.0, "one H200: memcpy of 4 KiB in 3.65 to 4.86 us";
    }
}
