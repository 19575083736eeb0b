//! The shapes of a machine file, each value with its place in the text.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use crate::knob::Quantity;
use crate::machine::*;

/// Numbers by name, each with its place.
pub(crate) type Numbers = BTreeMap<Spanned<String>, Spanned<Quantity>>;

#[derive(Deserialize)]
pub(crate) struct OnlyFormat {
    pub format: Spanned<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawMachine {
    #[serde(rename = "format")]
    _format: i64,
    pub id: Spanned<String>,
    pub name: String,
    #[serde(default)]
    pub notes: Vec<String>,
    #[serde(default)]
    pub versions: Versions,
    pub peer_access: PeerAccess,
    #[serde(default)]
    pub redirects_peers: bool,
    pub ranks_per_gpu: Option<Spanned<i64>>,
    #[serde(default)]
    pub kinds: BTreeMap<Spanned<String>, RawKind>,
    #[serde(default)]
    pub fabric: Numbers,
    pub sockets: Vec<RawSocket>,
    pub roots: Vec<RawRoot>,
    #[serde(default)]
    pub switches: Vec<RawSwitch>,
    pub gpus: Vec<RawGpu>,
    #[serde(default)]
    pub link_classes: BTreeMap<Spanned<String>, RawClass>,
    pub links: Vec<Spanned<RawLink>>,
    #[serde(default)]
    pub collapses: Vec<RawCollapse>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawKinds {
    #[serde(rename = "format")]
    _format: i64,
    pub kinds: BTreeMap<Spanned<String>, RawKind>,
}

/// A kind of GPU; what is left out comes from the library's kind of the same name or of `like`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawKind {
    pub like: Option<Spanned<String>>,
    pub name: Option<String>,
    pub compute_capability: Option<(u32, u32)>,
    pub sms: Option<Spanned<u32>>,
    pub memory_bytes: Option<u64>,
    pub l2_bytes: Option<u64>,
    #[serde(default)]
    pub chip: Numbers,
    #[serde(default)]
    pub launch: Numbers,
    #[serde(default)]
    pub kernels: Numbers,
    #[serde(default)]
    pub protocol: Numbers,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawSocket {
    pub id: Spanned<String>,
    pub numa: u32,
    pub vendor: CpuVendor,
    #[serde(default)]
    pub family: u32,
    #[serde(default)]
    pub model: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRoot {
    pub id: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawSwitch {
    pub id: Spanned<String>,
    pub chip: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawGpu {
    pub id: Spanned<String>,
    pub kind: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawClass {
    pub medium: Medium,
    #[serde(default)]
    pub generation: u32,
    #[serde(default)]
    pub width: u32,
    pub forward_gbps: Spanned<Quantity>,
    pub backward_gbps: Option<Spanned<Quantity>>,
    pub latency_ns: Spanned<Quantity>,
    pub read_factor: Option<Spanned<Quantity>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawLink {
    pub a: Spanned<String>,
    pub b: Spanned<String>,
    pub class: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawCollapse {
    pub at: Spanned<String>,
    pub sources_min: u32,
    pub roots_min: u32,
    pub write_gbps: Spanned<Quantity>,
}
