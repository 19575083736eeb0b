//! Text as `NCCL_DEBUG=INFO` with the subsystems GRAPH and TUNING prints it, so that it can be laid beside a
//! real log. [S] for the lines' wording as logs of 2.18 to 2.30 show it; host, process and bus ids are left out.

use super::Communicator;
use super::graph::Graph;
use super::kinds::Algorithm;
use super::kinds::Collective;
use super::kinds::Protocol;
use super::launch::Force;

/// All lines of initialisation.
pub fn initialisation(communicator: &Communicator) -> Vec<String> {
    let mut lines: Vec<String> = communicator.warnings.iter().map(|warning| format!("NCCL WARN {warning}")).collect();
    for graph in [&communicator.ring, &communicator.tree] {
        lines.extend(graph_lines(graph));
    }
    lines.extend(channel_lines(communicator));
    lines.extend(tree_lines(communicator));
    lines.extend(connection_lines(communicator));
    let thresholds = |algorithm| Protocol::ALL.map(|protocol| communicator.thread_threshold(algorithm, protocol).to_string()).join("/");
    lines.push(format!("NCCL INFO threadThresholds {} | {}", thresholds(Algorithm::Tree), thresholds(Algorithm::Ring)));
    let send_receive = communicator.send_receive(1 << 20);
    lines.push(format!(
        "NCCL INFO {} coll channels, 0 collnet channels, 0 nvls channels, {} p2p channels, {} p2p channels per peer",
        communicator.channels_under(&Force::default()),
        send_receive.channels,
        2.min(send_receive.channels)
    ));
    lines
}

fn graph_lines(graph: &Graph) -> Vec<String> {
    let mut lines = vec![format!(
        "NCCL INFO Pattern {}, crossNic 0, nChannels {}, bw {:.6}/{:.6}, type {}/{}, sameChannels {}",
        graph.pattern.number(),
        graph.count(),
        graph.channel_gbps,
        graph.channel_gbps,
        graph.type_intra.name(),
        graph.type_inter.name(),
        u32::from(graph.same_channels)
    )];
    for (index, channel) in graph.channels.iter().enumerate() {
        let gpus: Vec<String> = channel.iter().map(|rank| format!("GPU/{rank}")).collect();
        lines.push(format!("NCCL INFO {index:2} : {}", gpus.join(" ")));
    }
    lines
}

/// The ring of each channel, from rank 0 on; channels beyond the graph's repeat it.
fn channel_lines(communicator: &Communicator) -> Vec<String> {
    let count = communicator.channels_under(&Force::default());
    (0..count)
        .map(|channel| {
            let ring = communicator.ring_of(channel);
            let ranks: Vec<String> = ring.iter().map(u32::to_string).collect();
            format!("NCCL INFO Channel {channel:02}/{count:02} : {}", ranks.join(" "))
        })
        .collect()
}

fn tree_lines(communicator: &Communicator) -> Vec<String> {
    let count = communicator.channels_under(&Force::default());
    (0..communicator.ranks)
        .map(|rank| {
            let channels: Vec<String> = (0..count)
                .map(|channel| {
                    let chain = communicator.chain_of(channel);
                    let at = chain.iter().position(|other| *other == rank);
                    let neighbour = |at: Option<usize>| at.and_then(|at| chain.get(at)).map_or("-1".to_owned(), u32::to_string);
                    let up = neighbour(at.and_then(|at| at.checked_sub(1)));
                    let down = neighbour(at.map(|at| at + 1));
                    format!("[{channel}] {down}/-1/-1->{rank}->{up}")
                })
                .collect();
            format!("NCCL INFO Trees {}", channels.join(" "))
        })
        .collect()
}

fn connection_lines(communicator: &Communicator) -> Vec<String> {
    let mut lines = Vec::new();
    for channel in 0..communicator.channels_under(&Force::default()) {
        let ring = communicator.ring_of(channel);
        for (at, from) in ring.iter().enumerate() {
            let Some(to) = ring.get((at + 1) % ring.len()) else { continue };
            let found = communicator.connections.iter().find(|connection| connection.from == *from && connection.to == *to);
            let Some(connection) = found else { continue };
            let device = |rank: &u32| communicator.devices.get(*rank as usize).copied().unwrap_or(*rank);
            let read = if connection.read { "/read" } else { "" };
            lines.push(format!(
                "NCCL INFO Channel {channel:02}/0 : {from}[{}] -> {to}[{}] via {}{read}",
                device(from),
                device(to),
                connection.transport
            ));
        }
    }
    lines
}

/// The lines of a collective under TUNING: the table of beliefs (latency/bandwidth) and the choice.
///
/// # Errors
/// As [`Communicator::choose`].
pub fn tuning(communicator: &Communicator, collective: Collective, bytes: u64) -> crate::error::Result<Vec<String>> {
    let beliefs = communicator.beliefs(collective);
    let mut lines: Vec<String> = Vec::new();
    for algorithm in Algorithm::ALL {
        let cells: Vec<String> = beliefs
            .iter()
            .filter(|belief| belief.algorithm == algorithm)
            .map(|belief| format!("{} {:7.1}/{:6.1}", belief.protocol.name(), belief.latency_us, belief.bandwidth_gbps))
            .collect();
        lines.push(format!("NCCL INFO {:>13} | {:>5} | {}", collective.name(), algorithm.name(), cells.join(" | ")));
    }
    let choice = communicator.choose(collective, bytes, &Force::default())?;
    lines.push(format!(
        "NCCL INFO {}: {bytes} Bytes -> Algo {} proto {} channel{{Lo..Hi}}={{0..{}}} time {:.6}",
        collective.name(),
        choice.algorithm.name().to_uppercase(),
        choice.protocol.name().to_uppercase(),
        choice.channels.saturating_sub(1),
        choice.estimated_us
    ));
    Ok(lines)
}
