//! Reading a machine from TOML: text → shapes with places → [`Machine`].
//!
//! Every error points into the file. What the graph must satisfy is in
//! [`super::check`].

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use crate::error::Fault;
use crate::error::Result;
use crate::knob::Constants;
use crate::knob::Quantity;
use crate::knob::Spec;
use crate::machine::check;
use crate::machine::constants::LinkConstants;
use crate::machine::knobs::COLLAPSE_SPECS;
use crate::machine::raw::Numbers;
use crate::machine::raw::OnlyFormat;
use crate::machine::raw::RawCollapse;
use crate::machine::raw::RawKind;
use crate::machine::raw::RawKinds;
use crate::machine::raw::RawMachine;
use crate::machine::*;

/// The newest `format` that this program reads.
pub const FORMAT: i64 = 1;
/// Larger files are refused unread.
pub const SIZE_LIMIT: u64 = 4 << 20;
/// More GPUs than this are refused: ways between all pairs and NCCL's search
/// grow with the third power, and no host has a quarter of them.
const GPUS_LIMIT: usize = 128;
/// More nodes or links than this are refused, for the same reason.
const NODES_LIMIT: usize = 1024;
/// More ranks on one GPU than this are refused.
const RANKS_PER_GPU_LIMIT: i64 = 64;

/// A file's name and text, to point into.
#[derive(Clone, Copy)]
pub(crate) struct Origin<'a> {
    /// As the user gave it.
    pub name: &'a str,
    /// All of it.
    pub text: &'a str,
}

impl Origin<'_> {
    /// A fault at a place of this file.
    pub fn fault(&self, code: &'static str, message: impl Into<String>, span: Range<usize>, label: impl Into<String>) -> Box<Fault> {
        Fault::new(code, message).at(self.name, self.text, span, label)
    }

    /// TOML that does not parse or does not have the expected shape.
    fn parse<T: for<'de> Deserialize<'de>>(&self) -> Result<T> {
        toml::from_str(self.text).map_err(|error| {
            let message = error.message().lines().next().unwrap_or("not TOML").to_owned();
            self.fault("machine-syntax", message, error.span().unwrap_or(0..0), "here")
        })
    }
}

impl Machine {
    /// Reads a machine. `name` is the file's, for errors.
    ///
    /// # Errors
    /// `machine-syntax`, `machine-format`, `machine-too-large`, `machine-bounds`
    /// and those of [`super::check`]; each points into `text`.
    pub fn from_toml(name: &str, text: &str) -> Result<Machine> {
        let origin = Origin { name, text };
        check_format(origin)?;
        let raw: RawMachine = origin.parse()?;
        check_size(origin, &raw)?;
        let ids = check::ids(origin, &raw)?;
        let classes = read_classes(origin, &raw)?;
        let kinds = read_kinds(origin, &raw, library::kinds()?)?;
        let mut fabric = FabricConstants::default();
        apply(origin, &mut fabric, &raw.fabric)?;
        let machine = Machine {
            id: raw.id.get_ref().clone(),
            name: raw.name.clone(),
            notes: raw.notes.clone(),
            versions: raw.versions.clone(),
            peer_access: raw.peer_access,
            redirects_peers: raw.redirects_peers,
            ranks_per_gpu: read_ranks(origin, raw.ranks_per_gpu.as_ref())?,
            kinds,
            nodes: read_nodes(&raw),
            links: read_links(origin, &raw, &ids, &classes)?,
            gpus: raw.gpus.iter().filter_map(|gpu| ids.get(gpu.id.get_ref().as_str()).copied()).collect(),
            fabric,
            collapses: read_collapses(origin, &raw)?,
        };
        check::graph(origin, &raw, &machine)?;
        Ok(machine)
    }
}

/// Reads a library of kinds, each complete in itself.
pub(crate) fn kinds_from_toml(name: &str, text: &str) -> Result<BTreeMap<String, GpuKind>> {
    let origin = Origin { name, text };
    check_format(origin)?;
    let raw: RawKinds = origin.parse()?;
    let none = BTreeMap::new();
    raw.kinds.iter().map(|(id, kind)| Ok((id.get_ref().clone(), read_kind(origin, id, kind, &none)?))).collect()
}

fn check_format(origin: Origin) -> Result<()> {
    if origin.text.len() as u64 > SIZE_LIMIT {
        let message = format!("{} has {} bytes; machine files have at most {SIZE_LIMIT}", origin.name, origin.text.len());
        return Err(Fault::new("machine-too-large", message));
    }
    let format = origin.parse::<OnlyFormat>()?.format;
    if *format.get_ref() == FORMAT {
        return Ok(());
    }
    let message = format!("machine format {} is not known", format.get_ref());
    Err(origin
        .fault("machine-format", message, format.span(), format!("this program reads format {FORMAT}"))
        .help("a newer program wrote this file: update lanecast, or export the machine again"))
}

fn check_size(origin: Origin, raw: &RawMachine) -> Result<()> {
    let nodes = raw.gpus.len() + raw.switches.len() + raw.roots.len() + raw.sockets.len();
    for (count, limit, what) in
        [(raw.gpus.len(), GPUS_LIMIT, "GPUs"), (nodes, NODES_LIMIT, "nodes"), (raw.links.len(), NODES_LIMIT, "links")]
    {
        if count > limit {
            return Err(origin
                .fault("machine-too-large", format!("the machine has {count} {what}"), raw.id.span(), "this machine")
                .help(format!("a machine is one host, of at most {limit} {what}")));
        }
    }
    Ok(())
}

fn read_ranks(origin: Origin, ranks: Option<&Spanned<i64>>) -> Result<u32> {
    let Some(ranks) = ranks else { return Ok(1) };
    match u32::try_from(*ranks.get_ref()) {
        Ok(count) if (1..=RANKS_PER_GPU_LIMIT).contains(ranks.get_ref()) => Ok(count),
        _ => Err(origin.fault(
            "machine-bounds",
            "ranks_per_gpu is out of bounds",
            ranks.span(),
            format!("expected 1 to {RANKS_PER_GPU_LIMIT}"),
        )),
    }
}

/// A number within the bounds of `spec`.
fn bounded(origin: Origin, spec: &Spec, quantity: &Spanned<Quantity>) -> Result<Quantity> {
    let (low, high) = (spec.bounds.start(), spec.bounds.end());
    let inside = |number: f64| (*low..=*high).contains(&number);
    let value = quantity.get_ref();
    if inside(value.value) && inside(value.low) && inside(value.high) {
        return Ok(value.clone());
    }
    let message = format!("{} is out of bounds", spec.name);
    let label = format!("expected {low} to {high} {}", spec.unit);
    Err(origin.fault("machine-bounds", message, quantity.span(), label).help(spec.meaning.trim()))
}

/// Sets the named numbers of `constants`.
fn apply<C: Constants>(origin: Origin, constants: &mut C, numbers: &Numbers) -> Result<()> {
    for (name, quantity) in numbers {
        let known = C::specs().iter().find(|spec| spec.name == name.get_ref());
        let (Some(spec), Some(field)) = (known, constants.quantity_mut(name.get_ref())) else {
            let names: Vec<&str> = C::specs().iter().map(|spec| spec.name).collect();
            let message = format!("unknown key `{}`", name.get_ref());
            return Err(origin
                .fault("machine-unknown-key", message, name.span(), "not known")
                .help(format!("expected one of {}", names.join(", "))));
        };
        *field = bounded(origin, spec, quantity)?;
    }
    Ok(())
}

fn read_kinds(origin: Origin, raw: &RawMachine, library: &BTreeMap<String, GpuKind>) -> Result<BTreeMap<String, GpuKind>> {
    let mut kinds = BTreeMap::new();
    for (id, kind) in &raw.kinds {
        kinds.insert(id.get_ref().clone(), read_kind(origin, id, kind, library)?);
    }
    for gpu in &raw.gpus {
        let id = gpu.kind.get_ref();
        if kinds.contains_key(id) {
            continue;
        }
        let Some(kind) = library.get(id) else {
            return Err(unknown_kind(origin, &gpu.kind, library));
        };
        kinds.insert(id.clone(), kind.clone());
    }
    Ok(kinds)
}

fn unknown_kind(origin: Origin, id: &Spanned<String>, library: &BTreeMap<String, GpuKind>) -> Box<Fault> {
    let known: Vec<&str> = library.keys().map(String::as_str).collect();
    origin
        .fault("machine-unknown-kind", format!("no kind of GPU is called `{}`", id.get_ref()), id.span(), "not known")
        .help(format!("describe it under [kinds.…], or use one of {}", known.join(", ")))
}

fn read_kind(origin: Origin, id: &Spanned<String>, raw: &RawKind, library: &BTreeMap<String, GpuKind>) -> Result<GpuKind> {
    let base = match &raw.like {
        Some(like) => Some(library.get(like.get_ref()).ok_or_else(|| unknown_kind(origin, like, library))?),
        None => library.get(id.get_ref()),
    };
    let missing = |field: &str| {
        let message = format!("kind `{}` lacks `{field}`", id.get_ref());
        origin
            .fault("machine-incomplete-kind", message, id.span(), "this kind")
            .help("give the field, or `like = \"…\"` with a kind of the library")
    };
    let sms = raw.sms.as_ref().map(|sms| *sms.get_ref()).or(base.map(|b| b.sms)).ok_or_else(|| missing("sms"))?;
    if let (0, Some(place)) = (sms, &raw.sms) {
        return Err(origin.fault("machine-bounds", "sms is out of bounds", place.span(), "expected at least 1"));
    }
    let mut kind = GpuKind {
        name: raw.name.clone().or(base.map(|b| b.name.clone())).ok_or_else(|| missing("name"))?,
        compute_capability: raw.compute_capability.or(base.map(|b| b.compute_capability)).ok_or_else(|| missing("compute_capability"))?,
        sms,
        memory_bytes: raw.memory_bytes.or(base.map(|b| b.memory_bytes)).ok_or_else(|| missing("memory_bytes"))?,
        l2_bytes: raw.l2_bytes.or(base.map(|b| b.l2_bytes)).ok_or_else(|| missing("l2_bytes"))?,
        chip: base.map(|b| b.chip.clone()).unwrap_or_default(),
        launch: base.map(|b| b.launch.clone()).unwrap_or_default(),
        kernels: base.map(|b| b.kernels.clone()).unwrap_or_default(),
        protocol: base.map(|b| b.protocol.clone()).unwrap_or_default(),
    };
    apply(origin, &mut kind.chip, &raw.chip)?;
    apply(origin, &mut kind.launch, &raw.launch)?;
    apply(origin, &mut kind.kernels, &raw.kernels)?;
    apply(origin, &mut kind.protocol, &raw.protocol)?;
    Ok(kind)
}

/// In the order sockets, roots, switches, GPUs, as [`check::ids`] counts.
fn read_nodes(raw: &RawMachine) -> Vec<Node> {
    let node = |id: &Spanned<String>, kind| Node { id: id.get_ref().clone(), kind };
    let sockets =
        raw.sockets.iter().map(|s| node(&s.id, NodeKind::Socket { numa: s.numa, vendor: s.vendor, family: s.family, model: s.model }));
    let roots = raw.roots.iter().map(|r| node(&r.id, NodeKind::RootPort));
    let switches = raw.switches.iter().map(|s| node(&s.id, NodeKind::Switch { chip: s.chip.clone() }));
    let gpus = raw.gpus.iter().map(|g| node(&g.id, NodeKind::Gpu { kind: g.kind.get_ref().clone() }));
    sockets.chain(roots).chain(switches).chain(gpus).collect()
}

/// The numbers of a class as a link with no ends yet.
fn read_classes(origin: Origin, raw: &RawMachine) -> Result<BTreeMap<String, Link>> {
    let specs = LinkConstants::specs();
    let spec = |name: &str| specs.iter().find(|spec| spec.name == name).unwrap_or(&specs[0]);
    let mut classes = BTreeMap::new();
    for (id, class) in &raw.link_classes {
        let backward = class.backward_gbps.as_ref().unwrap_or(&class.forward_gbps);
        let read_factor = match &class.read_factor {
            Some(factor) => bounded(origin, spec("read_factor"), factor)?,
            None => LinkConstants::default().read_factor,
        };
        let link = Link {
            a: NodeId(0),
            b: NodeId(0),
            medium: class.medium,
            class: id.get_ref().clone(),
            forward_gbps: bounded(origin, spec("forward_gbps"), &class.forward_gbps)?,
            backward_gbps: bounded(origin, spec("backward_gbps"), backward)?,
            latency_ns: bounded(origin, spec("latency_ns"), &class.latency_ns)?,
            read_factor,
            generation: class.generation,
            width: class.width,
        };
        check::name(origin, id, "link class")?;
        classes.insert(id.get_ref().clone(), link);
    }
    Ok(classes)
}

fn read_links(origin: Origin, raw: &RawMachine, ids: &BTreeMap<&str, NodeId>, classes: &BTreeMap<String, Link>) -> Result<Vec<Link>> {
    let end = |id: &Spanned<String>| {
        ids.get(id.get_ref().as_str()).copied().ok_or_else(|| {
            let message = format!("no node is called `{}`", id.get_ref());
            origin.fault("machine-unknown-node", message, id.span(), "this end").help("declare it as a socket, root, switch or GPU")
        })
    };
    let mut links = Vec::new();
    for link in raw.links.iter().map(Spanned::get_ref) {
        let class = classes.get(link.class.get_ref()).ok_or_else(|| {
            let known: Vec<&str> = classes.keys().map(String::as_str).collect();
            let message = format!("no link class is called `{}`", link.class.get_ref());
            origin.fault("machine-unknown-class", message, link.class.span(), "this class").help(format!("known: {}", known.join(", ")))
        })?;
        links.push(Link { a: end(&link.a)?, b: end(&link.b)?, ..class.clone() });
    }
    Ok(links)
}

fn read_collapses(origin: Origin, raw: &RawMachine) -> Result<Vec<Collapse>> {
    let collapse = |c: &RawCollapse| {
        Ok(Collapse {
            at: c.at.get_ref().clone(),
            sources_min: c.sources_min,
            roots_min: c.roots_min,
            write_gbps: bounded(origin, &COLLAPSE_SPECS[0], &c.write_gbps)?,
        })
    };
    raw.collapses.iter().map(collapse).collect()
}
