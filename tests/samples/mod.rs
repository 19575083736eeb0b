//! One small file of each foreign kind.

use lanecast::import::ForeignKind;

/// One small file of each kind that is read from bytes.
pub const SAMPLES: &[(ForeignKind, &str)] = &[
    (ForeignKind::of("topo-matrix"), "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tPIX\t0-3\t0\nGPU1\tPIX\tX\t0-3\t0\n"),
    (
        ForeignKind::of("lspci"),
        "00:01.1 PCI bridge: AMD x\n\tBus: primary=00, secondary=01, subordinate=04\n\tCapabilities: [58] Express (v2) Root Port\n01:00.0 VGA compatible controller: NVIDIA Corporation GB202\n\t\tLnkSta:\tSpeed 32GT/s, Width x16\n\t\tACSCtl:\tSrcValid- ReqRedir+\n",
    ),
    (
        ForeignKind::of("nccl-topology"),
        "<system version=\"1\"><cpu numaid=\"0\" vendor=\"AuthenticAMD\"><pci busid=\"0000:01:00.0\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"0\"/></pci></cpu></system>",
    ),
    (
        ForeignKind::of("nccl-graph"),
        "<graphs version=\"1\"><graph id=\"0\" pattern=\"4\" nchannels=\"1\" speedintra=\"24\"><channel><gpu dev=\"0\"/></channel></graph></graphs>",
    ),
    (
        ForeignKind::of("p2p-test"),
        "Unidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n   D\\D     0      1\n     0 1488.10  56.57\n     1  56.57 1416.77\n",
    ),
    (
        ForeignKind::of("nvbandwidth-json"),
        "{\"nvbandwidth\":{\"testcases\":[{\"name\":\"device_to_device_memcpy_write_ce\",\"bandwidth_matrix\":[[\"N/A\",\"5.1\"],[\"5.2\",\"N/A\"]]}]}}",
    ),
    (
        ForeignKind::of("nvbandwidth"),
        "nvbandwidth Version: v0.8\nRunning device_to_device_memcpy_read_ce.\nmemcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)\n  0 1\n 0 N/A 40.0\n 1 41.0 N/A\n",
    ),
    (ForeignKind::of("p2pmark"), "PCIe LINK SCORE: 0.86\n(54.30 GB/s avg / 63.0 GB/s theoretical)\n"),
    (ForeignKind::of("cmdline"), "BOOT_IMAGE=/vmlinuz root=x iommu=pt"),
    (ForeignKind::of("driver-params"), "RegistryDwords: \"ForceP2P=0x11\"\n"),
    (
        ForeignKind::of("nccl-tests"),
        "# nThread 1 nGpus 2\n#  Rank  0 Group  0 Pid 1 on x\n#  Rank  1 Group  0 Pid 1 on x\n 43008 21504 bfloat16 sum -1 29.51 1.46 1.46 0 28.70 1.50 1.50 0\n",
    ),
    (
        ForeignKind::of("nccl-tests-json"),
        "{\"args\":[\"all_reduce_perf\"],\"env\":[\"A=b\"],\"nccl_version\":22902,\"config\":{\"nthreads\":1,\"ngpus\":2},\"results\":[{\"size\":43008,\"type\":\"half\",\"out_of_place\":{\"time\":29.5}}]}",
    ),
    (
        ForeignKind::of("rccl-tests-json"),
        "{\"algBw\":1.4,\"busBw\":2.5,\"gpus\":8,\"inPlace\":1,\"name\":\"AllReduce\",\"size\":43008,\"time\":29.5,\"type\":\"bfloat16\"}\n",
    ),
    (
        ForeignKind::of("nccl-inspector"),
        "{\"header\":{\"n_ranks\":8},\"metadata\":{},\"coll_perf\":{\"coll\":\"AllReduce\",\"coll_msg_size_bytes\":43008,\"coll_exec_time_us\":30}}\n",
    ),
    (
        ForeignKind::of("nccl-log"),
        "x [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\nx [0] NCCL INFO AllReduce: 43008 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}\nx NCCL INFO Pattern 4, crossNic 0, nChannels 2, bw 24.0/24.0, type PHB/PIX\n",
    ),
    (ForeignKind::of("crossover"), "crossover world_size=4\nsize 8 KB: custom 6.4 us, nccl 13.9 us\n"),
    (ForeignKind::of("aiconfigurator"), "framework,version,nccl_dtype,num_gpus,message_size,latency\nNCCL,2.29,half,2,256,0.00634\n"),
    (
        ForeignKind::of("kineto"),
        "{\"traceEvents\":[{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"ts\":1.5,\"dur\":2,\"args\":{\"stream\":7,\"device\":0,\"correlation\":3,\"In msg nelems\":5,\"dtype\":\"Half\"}}]}",
    ),
    (
        ForeignKind::of("nsys-trace"),
        "Start (ns),Duration (ns),CorrId,Bytes (MB),Device,Strm,Name\n1000,2500,7,,X (1),7,\"void k<a, b>()\"\n2000,100,8,0.004,X (1),7,[CUDA memcpy]\n",
    ),
    (
        ForeignKind::of("nsys-summary"),
        "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),Name\n70.0,7000,7,1000,990,900,1200,k\n",
    ),
    (
        ForeignKind::of("serving"),
        "{\"num_prompts\":8,\"completed\":8,\"total_output_tokens\":80,\"output_throughput\":107.0,\"mean_itl_ms\":20.1,\"mean_tpot_ms\":9,\"spec_decode_acceptance_length\":2.1,\"spec_decode_per_position_acceptance_rates\":[0.7]}",
    ),
];
