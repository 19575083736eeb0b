//! One ring in simple order, protocol Simple.

use crate::error::Result;
use crate::import::facts::Facts;

use super::hypothesis::Hypothesis;
use super::scenario::Scenario;

/// The hypothesis.
pub const HYPOTHESIS: Hypothesis = Hypothesis {
    id: "one-channel-fall-back",
    summary: "NCCL's search finds no graph and falls back to one channel",
    measure: "",
    levels: &[1.0],
    continuous: false,
    apply,
    check: r#"NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=GRAPH,INIT: count channels, look for "falling back to simple order""#,
    check_minutes: 3,
    tells: "one channel, a bandwidth of 0.1 or 16 GB/s a channel, type SYS",
    remedy: "give NCCL a graph: NCCL_GRAPH_FILE (lanecast strategy nccl-graph-file), or a NCCL whose AMD bandwidths fit the board",
    way_back: "unset NCCL_GRAPH_FILE",
    risk: "a graph for other GPUs is refused at start",
    source: "NVIDIA/nccl pull requests 2113 and 2127: a ring of few channels on dual Turin nearly doubles small all-reduces",
    seen,
};

fn apply(scenario: &mut Scenario, level: f64) -> Result<bool> {
    if level <= 0.0 || scenario.environment.contains_key("NCCL_GRAPH_FILE") {
        return Ok(false);
    }
    // What the fall-back ends in: one ring in simple order, too slow for the tuner to choose LL.
    let before = scenario.environment.clone();
    for (name, value) in [("NCCL_MIN_NCHANNELS", "1"), ("NCCL_MAX_NCHANNELS", "1"), ("NCCL_PROTO", "Simple"), ("NCCL_ALGO", "Ring")] {
        scenario.environment.insert(name.to_owned(), value.to_owned());
    }
    Ok(before != scenario.environment)
}

fn seen(facts: &Facts) -> Option<(bool, String)> {
    let ring = facts.nccl.graphs.iter().find(|graph| graph.pattern_name() == "ring");
    let channels = ring.map(|graph| graph.channels).or(facts.nccl.collective_channels);
    // Two of type SYS are what the fall-back becomes on two sockets.
    channels.map(|channels| (channels <= 2, format!("NCCL's log: {channels} channel(s)")))
}
