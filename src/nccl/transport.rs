//! How each pair of ranks is connected: peer-to-peer, host memory or network, and why.
//!
//! [S] p2p.cc:130-210 (order of checks), shm.cc (sides), paths.cc:355-418 (level, reads). [D] `P2P/CUMEM` is
//! taken as the default between processes from 2.24 on and `P2P/IPC` before.

use std::fmt;

use super::environment::Environment;
use super::kinds::PathType;
use super::topology::Topology;
use super::version::Version;
use crate::machine::PeerAccess;

/// Whether ranks share a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// One process a rank, as serving frameworks run.
    #[default]
    ProcessPerRank,
    /// One process for all.
    OneProcess,
}

/// What carries the data of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// Peer-to-peer inside one process.
    P2pDirect,
    /// Peer-to-peer over cuMem handles.
    P2pCumem,
    /// Peer-to-peer over legacy IPC handles.
    P2pIpc,
    /// Pinned host memory.
    Shm,
    /// A network, through the loop-back of this host.
    Net,
}

impl fmt::Display for Transport {
    /// As in NCCL's `via …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::P2pDirect => "P2P/direct pointer",
            Transport::P2pCumem => "P2P/CUMEM",
            Transport::P2pIpc => "P2P/IPC",
            Transport::Shm => "SHM/direct/direct",
            Transport::Net => "NET/Socket/0",
        })
    }
}

/// Why a pair has its transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Both ranks are on one GPU: always peer-to-peer, whatever the level.
    SameGpu,
    /// The distance is within the level.
    WithinLevel {
        /// How far apart.
        distance: PathType,
        /// The level in force.
        level: PathType,
    },
    /// The distance exceeds the level.
    BeyondLevel {
        /// How far apart.
        distance: PathType,
        /// The level in force.
        level: PathType,
    },
    /// The driver grants no peer access.
    NoPeerAccess,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::SameGpu => write!(f, "both ranks are on one GPU"),
            Reason::WithinLevel { distance, level } => write!(f, "distance {} is within the P2P level {}", distance.name(), level.name()),
            Reason::BeyondLevel { distance, level } => write!(f, "distance {} exceeds the P2P level {}", distance.name(), level.name()),
            Reason::NoPeerAccess => write!(f, "the driver grants no peer access"),
        }
    }
}

/// One directed pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// What carries the data.
    pub transport: Transport,
    /// Whether Simple's data is pulled by the receiver instead of pushed (P2P read mode).
    pub read: bool,
    /// Why.
    pub reason: Reason,
}

/// The connections of all directed pairs, by sender, then receiver.
pub fn connections(topology: &Topology, placement: Placement, version: Version, environment: &Environment) -> Vec<Connection> {
    let ranks = topology.ranks.len();
    let level = topology.p2p_level(environment);
    let mut list = Vec::new();
    for a in 0..ranks {
        for b in (0..ranks).filter(|b| *b != a) {
            let distance = topology.distances[a][b];
            let reason = if distance == PathType::Loc {
                Reason::SameGpu
            } else if topology.peer_access == PeerAccess::HostStaged {
                Reason::NoPeerAccess
            } else if distance <= level {
                Reason::WithinLevel { distance, level }
            } else {
                Reason::BeyondLevel { distance, level }
            };
            let transport = match reason {
                Reason::NoPeerAccess | Reason::BeyondLevel { .. } if environment.shm_disable => Transport::Net,
                Reason::NoPeerAccess | Reason::BeyondLevel { .. } => Transport::Shm,
                _ if placement == Placement::OneProcess && !environment.p2p_direct_disable => Transport::P2pDirect,
                _ if environment.cumem.unwrap_or(version.since(24)) => Transport::P2pCumem,
                _ => Transport::P2pIpc,
            };
            let peer = matches!(transport, Transport::P2pDirect | Transport::P2pCumem | Transport::P2pIpc);
            // By default only Ampere over NVLink reads.
            let default = topology.compute_capability == (80, 80) && distance == PathType::Nvl;
            let read = peer && environment.p2p_read.unwrap_or(default);
            list.push(Connection { from: a as u32, to: b as u32, transport, read, reason });
        }
    }
    list
}
