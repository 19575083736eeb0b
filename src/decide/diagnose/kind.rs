//! What people can observe: names, units, how well it is forecast, and the
//! command that measures it.

use std::fmt;
use std::str::FromStr;

use crate::error::Fault;

/// One thing that can be observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Plain decoding, tokens per second of all sequences.
    DecodeTps,
    /// One verify pass, ms, from one to the next without drafting.
    VerifyMs,
    /// Decoding with speculation, tokens per second.
    SpecTps,
    /// Chance that a drafted token is accepted, 0 to 1.
    Acceptance,
    /// One all-reduce of that many bytes as nccl-tests times it under the server's variables, us.
    AllreduceUs(u64),
    /// Slowest pair of the nearest kind, one direction, GB/s.
    P2pNearGbps,
    /// Slowest pair of the farthest kind, one direction, GB/s.
    P2pFarGbps,
    /// Slowest pair of the nearest kind, both directions together, GB/s.
    P2pBothGbps,
    /// Two GPUs below one switch writing at once to GPUs below other roots, together, GB/s.
    P2pManyGbps,
    /// A write to the nearest GPU, us.
    P2pNearUs,
    /// A write to the farthest GPU, us.
    P2pFarUs,
    /// Pinned host memory to the slowest GPU, GB/s.
    HostGbps,
    /// What one GPU sends over PCIe while decoding plainly, GB/s.
    PcieGbps,
    /// Mean duration of an all-reduce kernel in a profile of verify passes, us.
    ProfiledUs,
    /// Share of a verify pass that a profile shows in all-reduce kernels, mean of the ranks, 0 to 1.
    AllreduceShare,
    /// The same on the rank that shows the least.
    LeastShare,
}

/// Kinds whose forecasts are wrong together: one unknown factor for all of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Times of passes.
    Passes,
    /// Collectives alone.
    Collectives,
    /// Bandwidths of links.
    Links,
    /// Latencies of links.
    Latencies,
    /// What profiles show.
    Profiles,
    /// Acceptance.
    Drafts,
}

impl Group {
    /// All of them.
    pub const ALL: [Group; 6] = [Group::Passes, Group::Collectives, Group::Links, Group::Latencies, Group::Profiles, Group::Drafts];

    /// Relative error (one sigma) that all forecasts of the group may share.
    ///
    /// Passes: the plain step of the built-in case is forecast 15 % above the public one. Collectives: the
    /// median of `lanecast validate` on the default machine's rows of NCCL at 8 ranks is below 10 %. Links: two
    /// machines with the same lanes differ by 5 %. The rest is chosen, not fitted.
    pub fn shared_error(self) -> f64 {
        match self {
            Group::Passes => 0.10,
            Group::Collectives => 0.08,
            Group::Links | Group::Latencies => 0.05,
            Group::Profiles | Group::Drafts => 0.0,
        }
    }
}

/// Names of kinds without a size.
const PLAIN: [(Kind, &str); 15] = [
    (Kind::DecodeTps, "decode_tps"),
    (Kind::VerifyMs, "verify_ms"),
    (Kind::SpecTps, "spec_tps"),
    (Kind::Acceptance, "acceptance"),
    (Kind::P2pNearGbps, "p2p_near_gbps"),
    (Kind::P2pFarGbps, "p2p_far_gbps"),
    (Kind::P2pBothGbps, "p2p_both_gbps"),
    (Kind::P2pManyGbps, "p2p_many_gbps"),
    (Kind::P2pNearUs, "p2p_near_us"),
    (Kind::P2pFarUs, "p2p_far_us"),
    (Kind::HostGbps, "host_gbps"),
    (Kind::PcieGbps, "pcie_gbps"),
    (Kind::ProfiledUs, "profiled_us"),
    (Kind::AllreduceShare, "allreduce_share"),
    (Kind::LeastShare, "least_share"),
];

impl Kind {
    /// All kinds, all-reduces of the sizes given among them.
    pub fn all(sizes: &[u64]) -> Vec<Kind> {
        let mut kinds: Vec<Kind> = PLAIN.iter().map(|(kind, _)| *kind).chain(sizes.iter().map(|bytes| Kind::AllreduceUs(*bytes))).collect();
        kinds.sort();
        kinds.dedup();
        kinds
    }

    /// The group whose error it shares.
    pub fn group(self) -> Group {
        match self {
            Kind::DecodeTps | Kind::VerifyMs | Kind::SpecTps => Group::Passes,
            Kind::AllreduceUs(_) => Group::Collectives,
            Kind::P2pNearGbps | Kind::P2pFarGbps | Kind::P2pBothGbps | Kind::P2pManyGbps | Kind::HostGbps => Group::Links,
            Kind::P2pNearUs | Kind::P2pFarUs => Group::Latencies,
            Kind::PcieGbps | Kind::ProfiledUs | Kind::AllreduceShare | Kind::LeastShare => Group::Profiles,
            Kind::Acceptance => Group::Drafts,
        }
    }

    /// Which way the group's factor moves it: a slower machine has fewer tokens per second.
    pub fn sign(self) -> f64 {
        if matches!(self, Kind::DecodeTps | Kind::SpecTps) { -1.0 } else { 1.0 }
    }

    /// Relative error (one sigma) of its forecast beside the group's.
    pub fn own_error(self) -> f64 {
        match self {
            Kind::DecodeTps | Kind::VerifyMs => 0.03,
            Kind::SpecTps => 0.06,
            Kind::Acceptance => 0.5,
            Kind::AllreduceUs(_) => 0.05,
            Kind::P2pNearGbps | Kind::P2pFarGbps | Kind::HostGbps => 0.03,
            Kind::P2pBothGbps | Kind::P2pManyGbps | Kind::P2pNearUs | Kind::P2pFarUs => 0.08,
            Kind::PcieGbps => 0.2,
            Kind::ProfiledUs | Kind::AllreduceShare | Kind::LeastShare => 0.10,
        }
    }

    /// What it means, for lists.
    pub fn meaning(self) -> &'static str {
        match self {
            Kind::DecodeTps => "plain decoding, tokens per second of all sequences",
            Kind::VerifyMs => "one verify pass, ms",
            Kind::SpecTps => "decoding with speculation, tokens per second",
            Kind::Acceptance => "chance that a drafted token is accepted, 0 to 1",
            Kind::AllreduceUs(_) => "one all-reduce of that many bytes in nccl-tests, us",
            Kind::P2pNearGbps => "slowest pair of near GPUs, one direction, GB/s",
            Kind::P2pFarGbps => "slowest pair of far GPUs, one direction, GB/s",
            Kind::P2pBothGbps => "slowest pair of near GPUs, both directions, GB/s",
            Kind::P2pManyGbps => "two GPUs of one switch writing to other roots at once, GB/s",
            Kind::P2pNearUs => "a write to the nearest GPU, us",
            Kind::P2pFarUs => "a write to the farthest GPU, us",
            Kind::HostGbps => "pinned host memory to the slowest GPU, GB/s",
            Kind::PcieGbps => "what a GPU sends over PCIe while decoding plainly, GB/s",
            Kind::ProfiledUs => "mean all-reduce kernel in a profile of verify passes, us",
            Kind::AllreduceShare => "share of a verify pass in all-reduce kernels, mean of the ranks",
            Kind::LeastShare => "the same on the rank that shows the least",
        }
    }

    /// A command that measures it, and its minutes.
    pub fn measure(self) -> (String, u32) {
        let fixed = |text: &str, minutes: u32| (text.to_owned(), minutes);
        match self {
            Kind::DecodeTps => fixed("restart the server without speculation; read tokens per second of one request", 10),
            Kind::VerifyMs => {
                fixed("nsys profile -t cuda --cuda-graph-trace=node -d 5 on one worker; time from one verify pass to the next", 10)
            }
            Kind::SpecTps => fixed("read tokens per second of one request with speculation on", 2),
            Kind::Acceptance => fixed("read the accepted length in the server's log: acceptance = (length - 1) / drafts, roughly", 1),
            Kind::AllreduceUs(bytes) => {
                (format!("all_reduce_perf -b {bytes} -e {bytes} -g 8 -n 200, under the server's NCCL_ variables"), 2)
            }
            Kind::P2pNearGbps | Kind::P2pFarGbps | Kind::P2pBothGbps | Kind::P2pNearUs | Kind::P2pFarUs => {
                fixed("p2pBandwidthLatencyTest", 2)
            }
            Kind::P2pManyGbps => fixed("p2pmark, its test of concurrent writes from one switch", 3),
            Kind::HostGbps => fixed("nvbandwidth -t host_to_device_memcpy_ce", 1),
            Kind::PcieGbps => fixed("nvidia-smi dmon -s t while one request decodes", 1),
            Kind::ProfiledUs | Kind::AllreduceShare | Kind::LeastShare => {
                fixed("nsys profile --cuda-graph-trace=node on all workers; sum the all-reduce kernels of each rank over one pass", 10)
            }
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Kind::AllreduceUs(bytes) = self {
            return write!(f, "allreduce_us@{bytes}");
        }
        let name = PLAIN.iter().find(|(kind, _)| kind == self).map_or("", |(_, name)| *name);
        f.pad(name)
    }
}

impl FromStr for Kind {
    type Err = Box<Fault>;

    fn from_str(text: &str) -> Result<Kind, Box<Fault>> {
        if let Some(bytes) =
            text.strip_prefix("allreduce_us@").and_then(|bytes| bytes.parse().ok()).filter(|bytes| (1..=1 << 40).contains(bytes))
        {
            return Ok(Kind::AllreduceUs(bytes));
        }
        PLAIN.iter().find(|(_, name)| *name == text).map(|(kind, _)| *kind).ok_or_else(|| {
            let known: Vec<&str> = PLAIN.iter().map(|(_, name)| *name).collect();
            Fault::new("observed-unknown", format!("there is no observation {text}"))
                .help(format!("known are {}, allreduce_us@BYTES and busbw_gbps@BYTES", known.join(", ")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for kind in Kind::all(&[43008, 1 << 26]) {
            assert_eq!(kind.to_string().parse::<Kind>().expect("known"), kind);
            assert!(!kind.meaning().is_empty() && kind.own_error() > 0.0 && kind.measure().1 > 0);
        }
        for wrong in ["", "allreduce_us", "allreduce_us@", "allreduce_us@0", "allreduce_us@x", "decode"] {
            assert_eq!(wrong.parse::<Kind>().expect_err("unknown").code, "observed-unknown");
        }
    }
}
