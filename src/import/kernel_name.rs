//! What a kernel's name says: NCCL of every era, and others' all-reduce kernels.
//!
//! NCCL's names changed: `ncclAllReduceRingLLKernel_sum_f16` (to 2.8),
//! `ncclKernel_AllReduce_RING_LL_Sum_half` (to 2.18),
//! `ncclDevKernel_AllReduce_Sum_f16_RING_LL` (since 2.19), `ncclDevKernel_Generic`
//! (rare combinations share one kernel), `ncclSymkDevKernel_AllReduce_…`
//! (symmetric memory, since 2.27). Letter case is not to be relied on.

use crate::import::events::Class;
use crate::trace::observation::Algorithm;
use crate::trace::observation::Collective;
use crate::trace::observation::Protocol;
use crate::trace::record::Kind;

/// What a communication kernel is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Communication {
    /// `nccl`, `custom_all_reduce`, …: whose kernel it is.
    pub library: &'static str,
    /// Which collective; `None` where one kernel serves several.
    pub collective: Option<Collective>,
    /// NCCL's algorithm, when the name says it.
    pub algorithm: Option<Algorithm>,
    /// NCCL's protocol, when the name says it.
    pub protocol: Option<Protocol>,
}

/// Fragments (lower case) of kernels of other libraries, and whose they are.
const OTHERS: &[(&str, &str, Collective)] = &[
    ("cross_device_reduce", "custom_all_reduce", Collective::AllReduce),
    ("one_shot_all_reduce", "torch_symmetric", Collective::AllReduce),
    ("two_shot_all_reduce", "torch_symmetric", Collective::AllReduce),
    ("multimem_all_reduce", "torch_symmetric", Collective::AllReduce),
    ("allreduce_fusion_kernel", "flashinfer", Collective::AllReduce),
    ("allreducefusion", "flashinfer", Collective::AllReduce),
    ("oneshotallreduce", "flashinfer", Collective::AllReduce),
    ("twoshotallreduce", "flashinfer", Collective::AllReduce),
    ("pcie_allreduce", "pcie_one_shot", Collective::AllReduce),
    ("pcie_ipc", "pcie_one_shot", Collective::AllReduce),
    ("mscclpp", "mscclpp", Collective::AllReduce),
    ("quickreduce", "quick_reduce", Collective::AllReduce),
    ("deep_ep", "deep_ep", Collective::AllToAll),
];

/// What `name` says, `None` for kernels that compute.
pub fn communication(name: &str) -> Option<Communication> {
    let lower = name.to_ascii_lowercase();
    let bare = lower.trim_start_matches("void ").trim_start();
    if bare.starts_with("nccl") || bare.starts_with("rccl") {
        let symmetric = bare.starts_with("ncclsym");
        return Some(Communication {
            library: if symmetric { "nccl_symmetric" } else { "nccl" },
            collective: collective_in(bare),
            algorithm: algorithm_in(bare),
            protocol: protocol_in(bare),
        });
    }
    let (_, library, collective) = OTHERS.iter().find(|(fragment, ..)| lower.contains(fragment))?;
    Some(Communication { library, collective: Some(collective.clone()), algorithm: None, protocol: None })
}

fn collective_in(lower: &str) -> Option<Collective> {
    const NAMES: [(&str, Collective); 8] = [
        ("allreduce", Collective::AllReduce),
        ("all_reduce", Collective::AllReduce),
        ("allgather", Collective::AllGather),
        ("reducescatter", Collective::ReduceScatter),
        ("broadcast", Collective::Broadcast),
        ("alltoall", Collective::AllToAll),
        ("sendrecv", Collective::SendRecv),
        ("reduce_", Collective::Reduce),
    ];
    NAMES.iter().find(|(fragment, _)| lower.contains(fragment)).map(|(_, collective)| collective.clone())
}

fn algorithm_in(lower: &str) -> Option<Algorithm> {
    const NAMES: [(&str, Algorithm); 6] = [
        ("collnet_direct", Algorithm::CollnetDirect),
        ("collnet_chain", Algorithm::CollnetChain),
        ("nvls_tree", Algorithm::NvlsTree),
        ("nvls", Algorithm::Nvls),
        ("ring", Algorithm::Ring),
        ("tree", Algorithm::Tree),
    ];
    NAMES.iter().find(|(fragment, _)| lower.contains(fragment)).map(|(_, algorithm)| algorithm.clone())
}

fn protocol_in(lower: &str) -> Option<Protocol> {
    let after = |algorithm: &str| lower.find(algorithm).map(|at| lower[at + algorithm.len()..].trim_start_matches('_'));
    let rest = after("ring").or_else(|| after("nvls_tree")).or_else(|| after("tree")).or_else(|| after("direct"))?;
    if rest.starts_with("ll128") {
        Some(Protocol::Ll128)
    } else if rest.starts_with("ll") {
        Some(Protocol::Ll)
    } else if rest.starts_with("simple") || rest.starts_with("kernel") {
        Some(Protocol::Simple)
    } else {
        None
    }
}

/// What an event is made of, by its name.
pub fn kind(name: &str) -> Kind {
    if communication(name).is_some() { Kind::Communication } else { Kind::Compute }
}

/// The `key=value` pairs that a communication kernel's name gives, joined by `;`.
pub fn detail(name: &str) -> String {
    let Some(found) = communication(name) else { return String::new() };
    let mut detail = format!("library={}", found.library);
    let parts = [
        ("collective", found.collective.as_ref().map(Collective::name)),
        ("algorithm", found.algorithm.as_ref().map(Algorithm::name)),
        ("protocol", found.protocol.as_ref().map(Protocol::name)),
    ];
    for (key, value) in parts {
        if let Some(value) = value {
            detail.push_str(&format!(";{key}={value}"));
        }
    }
    detail
}

/// What operation ids of imported events begin with, so that the n-th
/// all-reduce of one rank meets the n-th of another.
pub fn stem(class: &Class) -> &'static str {
    match class.kind {
        Kind::Communication => match communication(&class.name).and_then(|c| c.collective) {
            Some(Collective::AllReduce) => "allreduce",
            Some(Collective::AllGather) => "allgather",
            Some(Collective::ReduceScatter) => "reducescatter",
            Some(Collective::AllToAll) => "alltoall",
            Some(Collective::SendRecv) => "sendrecv",
            Some(Collective::Broadcast) => "broadcast",
            _ => "collective",
        },
        Kind::Copy => "copy",
        Kind::Memset => "memset",
        Kind::Graph => "graph",
        _ => "kernel",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_era_of_nccl_is_known() {
        for (name, algorithm, protocol) in [
            ("ncclAllReduceRingLLKernel_sum_f16(ncclColl)", Some(Algorithm::Ring), Some(Protocol::Ll)),
            ("ncclAllReduceTreeLL128Kernel_sum_f16", Some(Algorithm::Tree), Some(Protocol::Ll128)),
            ("ncclAllReduceRingKernel_sum_f32", Some(Algorithm::Ring), Some(Protocol::Simple)),
            ("ncclKernel_AllReduce_RING_LL_Sum_half(ncclDevComm*, unsigned long, ncclWork*)", Some(Algorithm::Ring), Some(Protocol::Ll)),
            ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", Some(Algorithm::Ring), Some(Protocol::Ll)),
            ("ncclDevKernel_AllReduce_Sum_bf16_TREE_SIMPLE", Some(Algorithm::Tree), Some(Protocol::Simple)),
            ("NCCLDEVKERNEL_ALLREDUCE_SUM_BF16_RING_LL128", Some(Algorithm::Ring), Some(Protocol::Ll128)),
        ] {
            let found = communication(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!((found.library, found.collective), ("nccl", Some(Collective::AllReduce)), "{name}");
            assert_eq!((found.algorithm, found.protocol), (algorithm, protocol), "{name}");
        }
        let generic = communication("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)").expect("NCCL");
        assert_eq!((generic.collective, generic.algorithm), (None, None));
        let symmetric = communication("ncclSymkDevKernel_AllReduce_AGxLL_R_sum_bf16").expect("NCCL");
        assert_eq!(symmetric.library, "nccl_symmetric");
        assert_eq!(communication("ncclDevKernel_AllGather_RING_LL").and_then(|c| c.collective), Some(Collective::AllGather));
    }

    #[test]
    fn other_libraries_are_known() {
        let name = "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)";
        assert_eq!(communication(name).map(|c| c.library), Some("custom_all_reduce"));
        assert_eq!(kind("void cutlass::Kernel2<gemm>"), Kind::Compute);
        assert_eq!(detail(name), "library=custom_all_reduce;collective=all_reduce");
    }
}
