//! NCCL under various environments: what it would choose, then its schedule.

use crate::error::Fault;
use crate::error::Result;
use crate::nccl;

use super::Context;
use super::Effort;
use super::Executor;
use super::Kernel;
use super::Logical;
use super::Lowering;
use super::Risk;
use super::Strategy;
use super::nccl_schedule;

const CORRUPTION: &str =
    "NCCL's documentation warns of data corruption where 128-byte stores are not atomic, and naming LL128 turns the check off";

/// A row of this family; the rest is the same for all.
const fn row(id: &'static str, summary: &'static str, environment: &'static [(&'static str, &'static str)]) -> Strategy {
    Strategy {
        id,
        summary,
        executor: Executor::Nccl,
        effort: Effort::Minutes,
        risk: Risk::Low,
        risk_words: "at worst it is slower, in prefill too",
        way_back: "unset the variables and restart the server",
        not_modelled: &["network transports", "registered user buffers"],
        needs: &[],
        environment,
        flags: &[],
        fuses_norm: false,
        lower,
    }
}

/// The rows.
pub(super) const ALL: &[Strategy] = &[
    row("nccl-default", "NCCL with nothing set: its own search, tuner and thresholds", &[]),
    row(
        "nccl-16-channels",
        "NCCL with 16 channels, the case's known-good setting",
        &[("NCCL_MIN_NCHANNELS", "16"), ("NCCL_MAX_NCHANNELS", "16")],
    ),
    row(
        "nccl-few-channels",
        "NCCL with one or two channels, small buffers and few threads: the case's four variables",
        &[("NCCL_MIN_NCHANNELS", "1"), ("NCCL_MAX_NCHANNELS", "2"), ("NCCL_BUFFSIZE", "131072"), ("NCCL_NTHREADS", "64")],
    ),
    row("nccl-ring-ll", "NCCL's ring with LL for every size", &[("NCCL_ALGO", "Ring"), ("NCCL_PROTO", "LL")]),
    Strategy {
        risk: Risk::High,
        risk_words: CORRUPTION,
        ..row(
            "nccl-ring-ll128",
            "NCCL's ring with LL128, which PCIe does not get by itself",
            &[("NCCL_ALGO", "Ring"), ("NCCL_PROTO", "LL128")],
        )
    },
    row("nccl-ring-simple", "NCCL's ring with Simple for every size", &[("NCCL_ALGO", "Ring"), ("NCCL_PROTO", "Simple")]),
    row("nccl-tree-ll", "NCCL's tree (on one node a chain) with LL for every size", &[("NCCL_ALGO", "Tree"), ("NCCL_PROTO", "LL")]),
    Strategy {
        risk: Risk::High,
        risk_words: CORRUPTION,
        ..row("nccl-tree-ll128", "NCCL's tree with LL128", &[("NCCL_ALGO", "Tree"), ("NCCL_PROTO", "LL128")])
    },
    row("nccl-tree-simple", "NCCL's tree with Simple for every size", &[("NCCL_ALGO", "Tree"), ("NCCL_PROTO", "Simple")]),
    Strategy {
        risk: Risk::Medium,
        risk_words: "peer writes across root ports or sockets hang or stay away on some machines; prove peer access with a data check first",
        needs: &[super::Need::PeerAccess],
        ..row("nccl-p2p-sys", "NCCL with peer-to-peer beyond switches and root ports", &[("NCCL_P2P_LEVEL", "SYS")])
    },
    Strategy {
        risk_words: "slower on a healthy machine; a stop-gap where peer access hangs",
        ..row("nccl-host-staged", "NCCL through host memory only", &[("NCCL_P2P_DISABLE", "1")])
    },
];

fn lower(context: &Context<'_>, strategy: &Strategy, logical: Logical, bytes: u64) -> Result<Lowering> {
    let communicator = context.communicator(strategy.environment)?;
    lower_on(&communicator, logical, bytes, &nccl::Force::default())
}

/// What a communicator does with a message, as a schedule with its transports.
///
/// # Errors
/// When nothing is allowed for the collective, or a pair would go over a network.
pub fn lower_on(communicator: &nccl::Communicator, logical: Logical, bytes: u64, force: &nccl::Force) -> Result<Lowering> {
    let collective = match logical {
        Logical::AllReduce => nccl::Collective::AllReduce,
        Logical::AllGather => nccl::Collective::AllGather,
        Logical::ReduceScatter => nccl::Collective::ReduceScatter,
    };
    let choice = match communicator.choose(collective, bytes, force) {
        // NCCL_ALGO=Tree leaves nothing for other collectives: NCCL then refuses
        // the variable for them, and so do we.
        Err(fault) if fault.code == "nccl-nothing-allowed" && logical != Logical::AllReduce => {
            let ring = nccl::Force { algorithm: Some(nccl::Algorithm::Ring), ..*force };
            communicator.choose(collective, bytes, &ring).map_err(|_| fault)?
        }
        other => other?,
    };
    let ranks = communicator.ranks as usize;
    let mut through_host = vec![false; ranks * ranks];
    for connection in &communicator.connections {
        let place = connection.from as usize * ranks + connection.to as usize;
        match connection.transport {
            nccl::transport::Transport::Shm => through_host[place] = true,
            nccl::transport::Transport::Net => {
                return Err(Fault::new("nccl-network", "NCCL would use the network between some ranks, which is not modelled")
                    .help("unset NCCL_SHM_DISABLE, or allow peer access"));
            }
            _ => {}
        }
    }
    let order = match choice.algorithm {
        nccl::Algorithm::Ring => communicator.ring_of(0),
        nccl::Algorithm::Tree => communicator.chain_of(0),
    };
    let order: Vec<usize> = order.into_iter().map(|rank| rank as usize).collect();
    let schedule = nccl_schedule::schedule(collective, &choice, &order, bytes)?;
    Ok(Lowering { schedule, kernel: Kernel::Nccl, through_host })
}
