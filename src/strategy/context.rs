//! What a strategy is asked about: a machine, its ranks and its software.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::collective::islands::Islands;
use crate::error::Result;
use crate::machine::Endpoint;
use crate::machine::GpuKind;
use crate::machine::Machine;
use crate::machine::NodeKind;
use crate::machine::route::PathType;
use crate::nccl;
use crate::nccl::graph_file;
use crate::nccl::transport::Placement;

use super::searches::Searches;

/// The version assumed where a machine file does not say.
pub const NCCL_ASSUMED: &str = "2.29.2";

/// A machine and the ranks of one group on it.
pub struct Context<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Ranks of the group.
    pub ranks: usize,
    /// The machine's rank of each; rank `r` of the machine is on device `r / ranks_per_gpu`.
    pub members: Vec<usize>,
    /// Variables that the user has set anyway; a strategy's own go before them.
    pub environment: BTreeMap<String, String>,
    /// Bytes of one token's activations, which fused kernels normalise together; 0 where no model is known.
    pub row_bytes: u64,
    /// NCCL's version, where it is not the machine's.
    pub nccl: Option<nccl::Version>,
    /// NCCL's searches on this machine, to share with other contexts of it.
    pub searches: Searches,
    communicators: RefCell<BTreeMap<Asked, nccl::Communicator>>,
}

/// What a communicator follows from: variables, version, graph file.
type Asked = (BTreeMap<String, String>, nccl::Version, Option<String>);

/// Name under which a graph file that is written here is known.
pub const GRAPH_FILE: &str = "lanecast-graph.xml";

impl<'a> Context<'a> {
    /// The machine's first `ranks`, nothing set.
    pub fn new(machine: &'a Machine, ranks: usize) -> Context<'a> {
        Context::group(machine, (0..ranks).collect())
    }

    /// Some ranks of the machine: a stage, or two neighbours of a pipeline.
    pub fn group(machine: &'a Machine, members: Vec<usize>) -> Context<'a> {
        Context {
            machine,
            ranks: members.len(),
            members,
            environment: BTreeMap::new(),
            row_bytes: 0,
            nccl: None,
            searches: Searches::default(),
            communicators: RefCell::default(),
        }
    }

    /// Some of the machine's ranks under the same software and variables.
    #[must_use]
    pub fn among(&self, members: Vec<usize>) -> Context<'a> {
        Context {
            environment: self.environment.clone(),
            row_bytes: self.row_bytes,
            nccl: self.nccl,
            searches: self.searches.clone(),
            ..Context::group(self.machine, members)
        }
    }

    /// The same where a token's activations have so many bytes.
    #[must_use]
    pub fn with_rows(mut self, row_bytes: u64) -> Context<'a> {
        self.row_bytes = row_bytes;
        self
    }

    /// The kind of the first GPU.
    pub fn kind(&self) -> Option<&'a GpuKind> {
        self.machine.gpu_kind(0)
    }

    /// The device of each rank.
    pub fn devices(&self) -> Vec<u32> {
        let ranks_per_gpu = self.machine.ranks_per_gpu.max(1) as usize;
        self.members.iter().map(|member| (member / ranks_per_gpu) as u32).collect()
    }

    /// Whether every pair of the group's GPUs is joined by NVLink, a switch of it included (or is one GPU).
    pub fn all_nvlink(&self) -> bool {
        let mut devices = self.devices();
        devices.dedup();
        let routes = self.searches.routes(self.machine);
        let joined = |a: u32, b: u32| {
            let way = routes.way(Endpoint::Gpu(a as usize), Endpoint::Gpu(b as usize));
            way.is_some_and(|way| way.label == PathType::Nvl)
        };
        devices.iter().all(|&a| devices.iter().all(|&b| a == b || joined(a, b)))
    }

    /// NCCL's version on the machine, or the assumed one.
    ///
    /// # Errors
    /// When the machine's version cannot be read.
    pub fn nccl_version(&self) -> Result<nccl::Version> {
        if let Some(version) = self.nccl {
            return Ok(version);
        }
        self.machine.versions.nccl.as_deref().unwrap_or(NCCL_ASSUMED).parse()
    }

    /// What NCCL makes of the machine under these variables, the user's own included.
    ///
    /// # Errors
    /// Bad values of variables; see [`nccl::Communicator::new`].
    pub fn communicator(&self, variables: &[(&str, &str)]) -> Result<nccl::Communicator> {
        self.communicator_of(self.nccl_version()?, variables, None)
    }

    /// The same for another version of NCCL, or with the text of a graph file.
    ///
    /// # Errors
    /// As [`Context::communicator`]; `nccl-graph-file` for a text that is none.
    ///
    /// `NCCL_GRAPH_FILE` may hold the file's name, a line break and its text
    /// ([`graph_file::named_text`]): nothing below the commands opens files.
    pub fn communicator_of(&self, version: nccl::Version, variables: &[(&str, &str)], graph: Option<&str>) -> Result<nccl::Communicator> {
        let mut environment = self.environment.clone();
        environment.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let given = environment.get("NCCL_GRAPH_FILE").filter(|value| graph_file::name_and_text(value).is_some()).cloned();
        let written = graph.map(|text| graph_file::named_text(GRAPH_FILE, text));
        let asked = (environment, version, written.or(given));
        if let Some(known) = self.communicators.borrow().get(&asked) {
            return Ok(known.clone());
        }
        let parsed = nccl::Environment::parse(&asked.0, version)?;
        let mut searched = asked.0.clone();
        searched.retain(|name, _| !nccl::NOT_SEARCHED.contains(&name.as_str()));
        let devices = self.devices();
        let communicator = self.searches.find((searched, version, asked.2.clone(), devices), |(searched, _, text, devices)| {
            nccl::Communicator::new(&nccl::Setup {
                machine: self.machine,
                devices,
                version,
                environment: &nccl::Environment::parse(searched, version)?,
                placement: Placement::ProcessPerRank,
                graph_file: text.as_deref().and_then(graph_file::name_and_text),
            })
        })?;
        let communicator = communicator.under(parsed);
        self.communicators.borrow_mut().insert(asked, communicator.clone());
        Ok(communicator)
    }

    /// The islands that the ranks form: GPUs below one switch chip, else below
    /// one socket, else below one virtual switch; None unless there are several
    /// of one size of two or more.
    ///
    /// Where all ranks share one GPU there is no boundary; the largest proper
    /// divisor of their number stands in, so that kernels can be measured there.
    pub fn islands(&self) -> Option<Islands> {
        let devices = self.devices();
        if devices.iter().all(|device| Some(device) == devices.first()) {
            let size = (2..=self.ranks / 2).rev().find(|size| self.ranks.is_multiple_of(*size))?;
            return Some(Islands::consecutive(self.ranks, size));
        }
        let chains: Vec<Vec<&'a crate::machine::Node>> = (devices.iter())
            .map(|device| {
                let gpu = self.machine.gpus.get(*device as usize)?;
                Some(self.machine.ancestors(*gpu).into_iter().map(|node| &self.machine.nodes[node.0]).collect())
            })
            .collect::<Option<_>>()?;
        let switch = |node: &&'a crate::machine::Node| matches!(node.kind, NodeKind::Switch { .. });
        let chip = |node: &'a crate::machine::Node| match &node.kind {
            NodeKind::Switch { chip: Some(chip) } => chip.as_str(),
            _ => node.id.as_str(),
        };
        let below_chip = chains.iter().map(|chain| chain.iter().copied().rfind(switch).map(chip));
        let below_socket = chains.iter().map(|chain| chain.last().map(|node| node.id.as_str()));
        let below_switch = chains.iter().map(|chain| chain.iter().copied().find(switch).map(|node| node.id.as_str()));
        grouped(below_chip).or_else(|| grouped(below_socket)).or_else(|| grouped(below_switch))
    }
}

/// Islands of ranks with the same key, in order of their first ranks.
fn grouped<'k>(keys: impl Iterator<Item = Option<&'k str>>) -> Option<Islands> {
    let mut groups: Vec<(&str, Vec<usize>)> = Vec::new();
    for (rank, key) in keys.enumerate() {
        let key = key?;
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(rank),
            None => groups.push((key, vec![rank])),
        }
    }
    let groups: Vec<Vec<usize>> = groups.into_iter().map(|(_, group)| group).collect();
    let islands = Islands::new(groups).ok()?;
    (islands.count() > 1 && islands.size() > 1).then_some(islands)
}
