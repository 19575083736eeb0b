//! The numbers of links, packets and GPUs, with bounds, defaults and sources.

use crate::constants;

constants! {
    /// PCIe packets and host memory of a machine.
    pub struct FabricConstants {
        /// Payload of a posted write or completion packet.
        max_payload_bytes: "bytes", 64.0..=4096.0, default 256.0 in 128.0..=512.0, "rtx6kpro wrx90-cpayne-microchip-switches: MaxPayload 256 everywhere";
        /// Header, sequence number, CRC and framing of one packet.
        packet_overhead_bytes: "bytes", 12.0..=40.0, default 24.0 in 20.0..=28.0, "Intel AN829: 20 to 28 bytes";
        /// Best rate of one socket's memory for device traffic, per direction.
        host_memory_gbps: "GBps", 1.0..=1000.0, default 114.0 in 73.0..=230.0, "rtx6kpro wrx90-cpayne-8gpu-root-topology-comparison: 8 GPUs over two roots";
        /// What one GPU's threads read from host memory at most: the reads it keeps in flight over their latency.
        host_read_gbps: "GBps", 0.5..=1000.0, default 50.0 in 24.0..=55.0, "one H200: 64 MiB read by 64 blocks in 1320.96 us";
        /// What is used of a port into a GPU, or of a link between sockets, that writers share who each write to several GPUs at once.
        crossing_share: "1", 0.2..=1.0, default 0.6 in 0.57..=0.64, "p2pmark on 4 GPUs, all pairs: 138.3 of 217.7, 129.7 of 220.6, 127.6 of 221.0 GB/s; 0.586 is what queues in order leave of a switch (Karol, Hluchyj, Morgan 1987)";
        /// From the root complex to memory and into the reader's packet.
        host_memory_latency_ns: "ns", 0.0..=5000.0, default 150.0 in 50.0..=400.0, "assumed: a DRAM access";
    }
}

constants! {
    /// Ceilings of a chip.
    pub struct ChipConstants {
        /// Device memory, reads.
        memory_gbps: "GBps", 10.0..=20000.0, default 1000.0 in 500.0..=2000.0, "assumed";
        /// From a thread's remote load or store to its packet leaving the GPU.
        issue_ns: "ns", 0.0..=5000.0, default 120.0 in 60.0..=200.0, "assumed: the part of 270 ns (see serve_ns) that a store has too";
        /// From a read request at the GPU's port to the completion leaving it.
        serve_ns: "ns", 0.0..=5000.0, default 150.0 in 80.0..=250.0, "rtx6kpro wrx90-cpayne-microchip-switches: 710 - 4 x 110 = 270 ns of a PIX read are not links; 120 of them issue_ns";
        /// L2 cache, reads that hit.
        l2_gbps: "GBps", 10.0..=100000.0, default 4000.0 in 2000.0..=8000.0, "assumed";
        /// Dense bf16 matrix products.
        bf16_tflops: "TFLOPS", 1.0..=20000.0, default 200.0 in 100.0..=400.0, "assumed";
        /// Dense fp8 matrix products.
        fp8_tflops: "TFLOPS", 1.0..=20000.0, default 400.0 in 200.0..=800.0, "assumed";
        /// Dense fp4 matrix products.
        fp4_tflops: "TFLOPS", 1.0..=40000.0, default 800.0 in 400.0..=1600.0, "assumed";
    }
}

constants! {
    /// What launches cost.
    pub struct LaunchConstants {
        /// Host time of one eager launch from one thread.
        eager_ns: "ns", 100.0..=100000.0, default 3730.0 in 2500.0..=6000.0, "one H200, driver 580, CUDA 13.0: launches from one thread";
        /// From the end of a kernel to the start of the next in a replayed graph.
        graph_gap_ns: "ns", 0.0..=20000.0, default 1000.0 in 500.0..=2000.0, "assumed";
        /// From the end of a kernel to the start of the next, launched from the host and queued already.
        eager_gap_ns: "ns", 0.0..=20000.0, default 1560.0 in 1200.0..=2200.0, "one H200, driver 580: kernels of 20 us, queued ahead, follow each other by 1.56 us (traces/h200-measured/micro.csv, eager_gap_q1_us)";
        /// What a GPU takes a launch from one of several queues in: ranks that share it wait for their turn.
        eager_turn_ns: "ns", 0.0..=20000.0, default 1000.0 in 900.0..=1200.0, "one H200, driver 580: eight queues of kernels that do nothing, an eighth of 7.97 us a launch (traces/h200-measured/micro.csv, eager_turn_q8_us)";
        /// Host time of one framework operation outside a graph (Python and dispatch).
        framework_ns: "ns", 0.0..=1e6, default 20000.0 in 10000.0..=40000.0, "AIConfigurator 0.12.0 systems data: an all-reduce kernel at 2 GPUs takes 21 us in a Python loop, 4 in a graph";
    }
}

constants! {
    /// The numbers of one class of links.
    pub struct LinkConstants {
        /// From the first end to the second: payload of posted writes at the best packet size.
        forward_gbps: "GBps", 0.01..=20000.0, default 56.5 in 50.0..=57.0, "p2pmark three-TURIN2D24G-2L-500W: Gen5 x16, GPUs of one socket";
        /// From the second end to the first.
        backward_gbps: "GBps", 0.01..=20000.0, default 56.5 in 50.0..=57.0, "p2pmark three-TURIN2D24G-2L-500W: Gen5 x16, GPUs of one socket";
        /// One packet, one way, ports of both ends included.
        latency_ns: "ns", 0.0..=100000.0, default 110.0 in 60.0..=160.0, "rtx6kpro wrx90-cpayne-microchip-switches: (1160 - 710) / 4";
        /// What reads get of the rates above.
        read_factor: "1", 0.05..=2.0, default 0.975 in 0.95..=1.0, "rtx6kpro wrx90-cpayne-8gpu-root-topology-comparison: 55.0 (read by the GPU) / 56.4 (written by it)";
    }
}
