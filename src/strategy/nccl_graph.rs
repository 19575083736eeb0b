//! NCCL with another graph: from a file, from a newer version, after a change
//! of the driver.

use crate::error::Result;
use crate::machine::PeerAccess;
use crate::nccl;
use crate::nccl::Graph;
use crate::nccl::Origin;
use crate::nccl::PathType;
use crate::nccl::Version;
use crate::nccl::graph_file;

use super::Context;
use super::Effort;
use super::Need;
use super::Risk;
use super::Strategy;
use super::nccl_family::lower_on;
use super::nccl_family::row;

/// What a channel is credited with where no search gives a number: what dual
/// Turin gets once its sockets are classed right (NVIDIA/nccl PR 2127).
const CHANNEL_GBPS: f64 = 15.0;
const CHANNELS: u32 = 2;

/// The rows.
pub(super) const ALL: &[Strategy] = &[
    Strategy {
        effort: Effort::Minutes,
        risk: Risk::Medium,
        risk_words: "NCCL takes the file's word for everything: wrong device numbers or distances give rings over the wrong pairs, or LL128 where it corrupts",
        way_back: "unset NCCL_GRAPH_FILE and restart the server",
        needs: &[
            Need::Check("dev of the file is NVML's number of each GPU (nvidia-smi), also under CUDA_VISIBLE_DEVICES"),
            Need::Check("typeintra is the farthest pair's true distance: NVL, NVB or PIX would let LL128 in"),
            Need::Check("NCCL_DEBUG=INFO shows the file's rings and no \"falling back to simple order\""),
        ],
        lower: |context, strategy, logical, bytes| {
            let text = graph_text(context)?;
            let communicator = context.communicator_of(context.nccl_version()?, strategy.environment, Some(&text))?;
            lower_on(&communicator, logical, bytes, &nccl::Force::default())
        },
        ..row(
            "nccl-graph-file",
            "NCCL with a graph file in place of its search: rings and speeds of a healthy search, where its own falls back to one channel at 0.1 GB/s",
            &[("NCCL_GRAPH_FILE", super::context::GRAPH_FILE)],
        )
    },
    Strategy {
        effort: Effort::Hours,
        risk: Risk::Medium,
        risk_words: "another library under the engine than it was tested with",
        way_back: "put the old library back",
        needs: &[
            Need::Nccl { since: (2, 18), before: Some((2, 31)), nvlink_exempt: false, because: "2.31 or newer is there already" },
            Need::Check("the engine loads the new library (VLLM_NCCL_SO_PATH or LD_PRELOAD; the log prints its version)"),
        ],
        flags: &["pip install 'nvidia-nccl-cu13>=2.31'"],
        lower: |context, _, logical, bytes| {
            let communicator = context.communicator_of(context.nccl_version()?.max(Version::NEWEST_READ), &[], None)?;
            lower_on(&communicator, logical, bytes, &nccl::Force::default())
        },
        ..row(
            "nccl-newer",
            "NCCL 2.31, which knows what AMD's sockets of Zen 4 and 5 carry, where an older one falls back to one channel",
            &[],
        )
    },
    Strategy {
        effort: Effort::Hours,
        risk: Risk::Medium,
        risk_words: "an undocumented option of the driver: machines have hung with it",
        way_back: "take the option out and reboot",
        needs: &[Need::StagedByDriver, Need::Check("ACS off on root ports and switches, IOMMU off or pass-through, then a data check")],
        flags: &["options nvidia NVreg_RegistryDwords=\"ForceP2P=0x11;RMForceP2PType=1;RMPcieP2PType=2\" in /etc/modprobe.d, then reboot"],
        lower: |context, strategy, logical, bytes| {
            let mut machine = context.machine.clone();
            machine.peer_access = PeerAccess::Direct;
            let mut direct = Context::group(&machine, context.members.clone());
            direct.environment.clone_from(&context.environment);
            direct.nccl = context.nccl;
            lower_on(&direct.communicator(strategy.environment)?, logical, bytes, &nccl::Force::default())
        },
        ..row(
            "driver-direct-p2p",
            "the driver's option for peer access over PCIe in place of staging in system memory, then NCCL peer to peer; custom kernels become possible",
            &[("NCCL_P2P_LEVEL", "SYS")],
        )
    },
];

/// The text of a graph file for the machine: what NCCL 2.31 would find, or two
/// channels in plain order where that finds nothing either.
///
/// # Errors
/// As [`Context::communicator`].
pub fn graph_text(context: &Context<'_>) -> Result<String> {
    let version = context.nccl_version()?.max(Version::NEWEST_READ);
    let mut healthy = context.communicator_of(version, &[], None)?;
    for graph in [&mut healthy.ring, &mut healthy.tree] {
        if graph.origin == Origin::Fallback {
            *graph = Graph::given(graph.pattern, healthy.ranks, CHANNELS, CHANNEL_GBPS, PathType::Sys);
        }
    }
    graph_file::write(&healthy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    /// Two AMD sockets and Blackwell before 2.31: the search finds nothing, the
    /// file and the newer version do.
    #[test]
    fn a_file_or_a_newer_version_ends_the_fall_back() {
        let machine = Machine::load("8x-rtx-pro-6000-turin-direct").expect("loads");
        let context = Context::new(&machine, 8);
        assert_eq!(context.communicator(&[]).expect("default").ring.origin, Origin::Fallback);
        let text = graph_text(&context).expect("a graph");
        let version = context.nccl_version().expect("a version");
        let from_file = context.communicator_of(version, &[], Some(&text)).expect("reads its own file");
        assert_eq!(from_file.ring.origin, Origin::File);
        let newer = context.communicator_of(Version::NEWEST_READ, &[], None).expect("newer");
        assert_eq!(newer.ring.origin, Origin::Search);
        assert_eq!(newer.ring.channels, from_file.ring.channels);
        let choice = |communicator: &nccl::Communicator| {
            let choice = communicator.choose(nccl::Collective::AllReduce, 43_008, &nccl::Force::default()).expect("a choice");
            choice.launch.protocol
        };
        assert_eq!(choice(&from_file), nccl::Protocol::Ll);
        assert_eq!(choice(&context.communicator(&[]).expect("default")), nccl::Protocol::Simple);
    }
}
