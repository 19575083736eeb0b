//! NCCL's cost model: what it believes each algorithm and protocol takes, and what it therefore picks.
//!
//! [S] tuning.cc:243-440 and 620-655: time = latency + bytes / bandwidth, both from tables by version;
//! the first minimum in the order Tree, Ring × LL, LL128, Simple wins. These are beliefs, not forecasts.

use crate::error::Fault;
use crate::error::Result;

use super::Communicator;
use super::kinds::Algorithm;
use super::kinds::Collective;
use super::kinds::PathType;
use super::kinds::Protocol;
use super::launch::Force;
use super::tables;

/// What the model holds of one algorithm and protocol.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Belief {
    /// Which.
    pub algorithm: Algorithm,
    /// Which.
    pub protocol: Protocol,
    /// Latency term.
    pub latency_us: f64,
    /// Algorithm bandwidth before the correction by size; 0 where it is not allowed.
    pub bandwidth_gbps: f64,
    /// Why it is not allowed, if so.
    pub refused: Option<Refusal>,
}

/// Why an algorithm or protocol is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `NCCL_ALGO`.
    AlgorithmList,
    /// `NCCL_PROTO`.
    ProtocolList,
    /// LL128 is on by default only over NVLink (graph typeIntra at most NVB) and between equal GPUs.
    Ll128Gate,
    /// Tree serves all-reduce only.
    NotForCollective,
}

impl Communicator {
    /// Hops in a row: 2(n-1) for all-reduce, n-1 for the halves.
    fn steps(&self, collective: Collective) -> u32 {
        let once = self.ranks.saturating_sub(1);
        if collective == Collective::AllReduce { 2 * once } else { once }
    }

    fn refusal(&self, collective: Collective, algorithm: Algorithm, protocol: Protocol) -> Option<Refusal> {
        if algorithm == Algorithm::Tree && collective != Collective::AllReduce {
            return Some(Refusal::NotForCollective);
        }
        if !self.environment.algorithms.allows(collective, algorithm) {
            return Some(Refusal::AlgorithmList);
        }
        match self.environment.protocols.verdict(collective, protocol) {
            Some(true) => None,
            Some(false) => Some(Refusal::ProtocolList),
            None if protocol == Protocol::Ll128 && !self.ll128_by_default(algorithm) => Some(Refusal::Ll128Gate),
            None => None,
        }
    }

    /// [S] tuning.cc:531: typeIntra <= NVB, equal compute capabilities, Volta or newer.
    pub fn ll128_by_default(&self, algorithm: Algorithm) -> bool {
        let (low, high) = self.compute_capability;
        self.graph(algorithm).type_intra <= PathType::Nvb && low == high && low >= 70
    }

    /// What the model holds, ignoring what is allowed.
    fn unrestricted(&self, collective: Collective, algorithm: Algorithm, protocol: Protocol) -> (f64, f64) {
        let graph = self.graph(algorithm);
        let (low, _) = self.compute_capability;
        let version = self.version;
        let channels = f64::from(self.graph_channels);
        let total = channels * graph.channel_gbps;
        let ll_max = tables::ll_max_gbps(low, version);
        let mut bus = match (algorithm, protocol) {
            (Algorithm::Ring, Protocol::Ll) => ll_max.min(total * tables::ring_ll_factor(collective == Collective::AllReduce, version)),
            (Algorithm::Ring, Protocol::Ll128) => (total * 0.92).min(channels * tables::ring_ll128_channel_gbps(low, version)),
            (Algorithm::Ring, Protocol::Simple) => total,
            (Algorithm::Tree, _) => {
                let tree = (total * 0.92).min(channels * tables::tree_channel_gbps(low, version));
                match protocol {
                    Protocol::Ll => (tree / 3.8).min(ll_max),
                    Protocol::Ll128 => (tree * 7.0 / 9.0).min(channels * tables::tree_ll128_channel_gbps(low, version)),
                    Protocol::Simple => tree,
                }
            }
        };
        if algorithm == Algorithm::Tree && graph.pattern == super::Pattern::Tree {
            bus *= 0.85;
        }
        let steps = f64::from(self.steps(collective));
        let ranks = f64::from(self.ranks);
        let (share, hops) = match algorithm {
            Algorithm::Ring => (ranks / steps.max(1.0), steps),
            Algorithm::Tree => (0.5, 2.0 * (ranks - 1.0)),
        };
        let step = tables::step_latency_us(graph.type_intra == PathType::Nvl, algorithm, protocol, version);
        (tables::base_latency_us(algorithm, protocol, version) + hops * step, bus * share)
    }

    /// The whole table for a collective, in NCCL's order.
    pub fn beliefs(&self, collective: Collective) -> Vec<Belief> {
        let mut table = Vec::new();
        for algorithm in Algorithm::ALL {
            for protocol in Protocol::ALL {
                let refused = self.refusal(collective, algorithm, protocol);
                let (latency_us, bandwidth) = self.unrestricted(collective, algorithm, protocol);
                let bandwidth_gbps = if refused.is_some() { 0.0 } else { bandwidth };
                table.push(Belief { algorithm, protocol, latency_us, bandwidth_gbps, refused });
            }
        }
        table
    }

    /// What NCCL believes one operation of `bytes` takes, whether or not it is allowed.
    pub fn estimate_us(&self, collective: Collective, algorithm: Algorithm, protocol: Protocol, bytes: u64) -> f64 {
        let (latency_us, mut bandwidth) = self.unrestricted(collective, algorithm, protocol);
        if algorithm == Algorithm::Tree && collective == Collective::AllReduce {
            bandwidth *= tables::tree_correction(protocol, bytes, self.version);
        }
        latency_us + bytes as f64 / (1000.0 * bandwidth.max(1e-9))
    }

    /// The algorithm and protocol for `bytes`, with the estimate.
    ///
    /// # Errors
    /// `nccl-nothing-allowed` when the lists leave nothing, where NCCL stops with an internal error.
    pub(super) fn pick(&self, collective: Collective, bytes: u64, force: &Force) -> Result<(Algorithm, Protocol, f64)> {
        let mut best: Option<(Algorithm, Protocol, f64)> = None;
        for algorithm in Algorithm::ALL {
            for protocol in Protocol::ALL {
                let forced_algorithm = force.algorithm.is_some_and(|forced| forced == algorithm);
                let forced_protocol = force.protocol.is_some_and(|forced| forced == protocol);
                if (force.algorithm.is_some() && !forced_algorithm) || (force.protocol.is_some() && !forced_protocol) {
                    continue;
                }
                let allowed = match self.refusal(collective, algorithm, protocol) {
                    None => true,
                    Some(Refusal::NotForCollective) => false,
                    Some(Refusal::AlgorithmList) => forced_algorithm,
                    Some(Refusal::ProtocolList | Refusal::Ll128Gate) => forced_protocol,
                };
                if !allowed {
                    continue;
                }
                let time = self.estimate_us(collective, algorithm, protocol, bytes);
                if best.is_none_or(|(.., least)| time < least) {
                    best = Some((algorithm, protocol, time));
                }
            }
        }
        best.ok_or_else(|| {
            Fault::new("nccl-nothing-allowed", format!("no algorithm and protocol are left for {}", collective.name()))
                .help("NCCL_ALGO and NCCL_PROTO, or what the caller forces, exclude each other; NCCL would stop with an error here")
        })
    }
}
