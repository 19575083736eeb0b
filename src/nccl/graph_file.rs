//! Graph files: what `NCCL_GRAPH_DUMP_FILE` writes and `NCCL_GRAPH_FILE` reads.
//!
//! [S] search.cc:870-1034: a graph that is in the file is taken as it stands, without a search; `typeintra`
//! then decides the latency row and LL128, whatever the machine is. `dev` is hexadecimal.

use serde::Deserialize;
use serde::Serialize;

use crate::error::Fault;
use crate::error::Result;

use super::Communicator;
use super::graph::Graph;
use super::graph::Origin;
use super::graph::Pattern;
use super::kinds::PathType;

/// What a file holds of the graphs modelled here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graphs {
    /// `id="0"`.
    pub ring: Option<Graph>,
    /// `id="1"`.
    pub tree: Option<Graph>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename = "graphs")]
struct GraphsXml {
    #[serde(rename = "@version")]
    version: u32,
    #[serde(default)]
    graph: Vec<GraphXml>,
}

#[derive(Serialize, Deserialize)]
struct GraphXml {
    #[serde(rename = "@id")]
    id: u32,
    #[serde(rename = "@pattern")]
    pattern: u32,
    #[serde(rename = "@crossnic", default)]
    crossnic: u32,
    #[serde(rename = "@nchannels")]
    nchannels: u32,
    #[serde(rename = "@speedintra")]
    speedintra: f64,
    #[serde(rename = "@speedinter", default)]
    speedinter: f64,
    #[serde(rename = "@latencyinter", default)]
    latencyinter: f64,
    #[serde(rename = "@typeintra")]
    typeintra: String,
    #[serde(rename = "@typeinter", default)]
    typeinter: String,
    #[serde(rename = "@samechannels", default)]
    samechannels: u32,
    #[serde(default)]
    channel: Vec<ChannelXml>,
}

#[derive(Serialize, Deserialize)]
struct ChannelXml {
    #[serde(default)]
    gpu: Vec<GpuXml>,
}

#[derive(Serialize, Deserialize)]
struct GpuXml {
    #[serde(rename = "@dev")]
    dev: String,
    #[serde(rename = "@rank", default, skip_serializing_if = "Option::is_none")]
    rank: Option<u32>,
}

fn fault(name: &str, why: impl std::fmt::Display) -> Box<Fault> {
    Fault::new("nccl-graph-file", format!("{name} is no graph file: {why}")).help("dump one with NCCL_GRAPH_DUMP_FILE on the machine")
}

/// A file's name and text as one value of a variable, so that faults in the
/// text name the user's file; see [`name_and_text`].
pub fn named_text(name: &str, text: &str) -> String {
    format!("{}\n{}", name.replace('\n', " "), text.trim_start())
}

/// What [`named_text`] joined; None for anything else, such as a name alone.
pub fn name_and_text(value: &str) -> Option<(&str, &str)> {
    value.split_once('\n').filter(|(_, text)| text.starts_with('<'))
}

/// Reads a file for ranks on `devices`.
///
/// # Errors
/// `nccl-graph-file` when it is no XML of this form, names GPUs that are not there, or a channel does not
/// hold each rank once.
pub fn read(name: &str, text: &str, devices: &[u32]) -> Result<Graphs> {
    let file: GraphsXml = quick_xml::de::from_str(text).map_err(|error| fault(name, error))?;
    if file.version != 1 {
        return Err(fault(name, format!("version {} is not 1", file.version)));
    }
    let mut graphs = Graphs::default();
    for graph in file.graph {
        let slot = match graph.id {
            0 => &mut graphs.ring,
            1 => &mut graphs.tree,
            _ => continue,
        };
        *slot = Some(graph_of(name, &graph, devices)?);
    }
    Ok(graphs)
}

fn graph_of(name: &str, graph: &GraphXml, devices: &[u32]) -> Result<Graph> {
    let path = |text: &str| PathType::from_name(text).ok_or_else(|| fault(name, format!("{text:?} is no path type")));
    let pattern = Pattern::from_number(graph.pattern).ok_or_else(|| fault(name, format!("pattern {} is not 1 to 4", graph.pattern)))?;
    if graph.channel.len() != graph.nchannels as usize || graph.channel.is_empty() || graph.channel.len() > 64 {
        return Err(fault(name, format!("nchannels is {} but {} channels follow", graph.nchannels, graph.channel.len())));
    }
    if !graph.speedintra.is_finite() || graph.speedintra <= 0.0 {
        return Err(fault(name, "speedintra must be above 0"));
    }
    let mut channels = Vec::new();
    for channel in &graph.channel {
        let mut order = Vec::new();
        for gpu in &channel.gpu {
            let digits = gpu.dev.trim_start_matches("0x");
            let dev = u32::from_str_radix(digits, 16).map_err(|_| fault(name, format!("{:?} is no device", gpu.dev)))?;
            let rank = gpu.rank.or_else(|| devices.iter().position(|device| *device == dev).map(|rank| rank as u32));
            order.push(rank.ok_or_else(|| fault(name, format!("GPU {dev} has no rank")))?);
        }
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..devices.len() as u32) {
            return Err(fault(name, format!("a channel has ranks {order:?} instead of each of {} once", devices.len())));
        }
        channels.push(order);
    }
    Ok(Graph {
        pattern,
        channels,
        channel_gbps: graph.speedintra,
        type_intra: path(&graph.typeintra)?,
        type_inter: if graph.typeinter.is_empty() { PathType::Pix } else { path(&graph.typeinter)? },
        same_channels: graph.samechannels != 0,
        hops: 0,
        origin: Origin::File,
    })
}

/// The file that `NCCL_GRAPH_DUMP_FILE` would hold.
///
/// # Errors
/// `nccl-graph-file` if the text cannot be written, which would be a bug.
pub fn write(communicator: &Communicator) -> Result<String> {
    let graph = [(0, &communicator.ring), (1, &communicator.tree)]
        .into_iter()
        .map(|(id, graph)| GraphXml {
            id,
            pattern: graph.pattern.number(),
            crossnic: 0,
            nchannels: graph.count(),
            speedintra: graph.channel_gbps,
            speedinter: graph.channel_gbps,
            latencyinter: 0.0,
            typeintra: graph.type_intra.name().to_owned(),
            typeinter: graph.type_inter.name().to_owned(),
            samechannels: u32::from(graph.same_channels),
            channel: graph
                .channels
                .iter()
                .map(|channel| ChannelXml { gpu: channel.iter().map(|rank| gpu_of(communicator, *rank)).collect() })
                .collect(),
        })
        .collect();
    let mut text = String::new();
    let mut serializer = quick_xml::se::Serializer::new(&mut text);
    serializer.indent(' ', 2);
    GraphsXml { version: 1, graph }.serialize(serializer).map_err(|error| fault("the graph", error))?;
    text.push('\n');
    Ok(text)
}

fn gpu_of(communicator: &Communicator, rank: u32) -> GpuXml {
    let device = communicator.devices.get(rank as usize).copied().unwrap_or(rank);
    let shared = communicator.devices.iter().filter(|other| **other == device).count() > 1;
    GpuXml { dev: format!("{device:x}"), rank: shared.then_some(rank) }
}
