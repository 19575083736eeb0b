//! What a strategy is asked about: a machine, its ranks and its software.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::error::Result;
use crate::machine::GpuKind;
use crate::machine::Machine;
use crate::machine::Medium;
use crate::nccl;
use crate::nccl::transport::Placement;

/// The version assumed where a machine file does not say.
pub const NCCL_ASSUMED: &str = "2.29.2";

/// A machine and the ranks of one group on it.
pub struct Context<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Ranks of the group; rank `r` is on device `r / ranks_per_gpu`.
    pub ranks: usize,
    /// Variables that the user has set anyway; a strategy's own go before them.
    pub environment: BTreeMap<String, String>,
    communicators: RefCell<BTreeMap<BTreeMap<String, String>, nccl::Communicator>>,
}

impl<'a> Context<'a> {
    /// A group of `ranks` on a machine, nothing set.
    pub fn new(machine: &'a Machine, ranks: usize) -> Context<'a> {
        Context { machine, ranks, environment: BTreeMap::new(), communicators: RefCell::default() }
    }

    /// The kind of the first GPU.
    pub fn kind(&self) -> Option<&'a GpuKind> {
        self.machine.gpu_kind(0)
    }

    /// The device of each rank.
    pub fn devices(&self) -> Vec<u32> {
        (0..self.ranks as u32).map(|rank| rank / self.machine.ranks_per_gpu.max(1)).collect()
    }

    /// Whether every pair of the group's GPUs is joined by NVLink (or is one GPU).
    pub fn all_nvlink(&self) -> bool {
        let mut devices = self.devices();
        devices.dedup();
        let joined = |a: u32, b: u32| {
            self.machine.links.iter().any(|link| {
                let ends = (self.machine.gpus[a as usize], self.machine.gpus[b as usize]);
                link.medium == Medium::Nvlink && ((link.a, link.b) == ends || (link.b, link.a) == ends)
            })
        };
        devices.iter().all(|&a| devices.iter().all(|&b| a == b || joined(a, b)))
    }

    /// NCCL's version on the machine, or the assumed one.
    ///
    /// # Errors
    /// When the machine's version cannot be read.
    pub fn nccl_version(&self) -> Result<nccl::Version> {
        self.machine.versions.nccl.as_deref().unwrap_or(NCCL_ASSUMED).parse()
    }

    /// What NCCL makes of the machine under these variables, the user's own included.
    ///
    /// # Errors
    /// Bad values of variables; see [`nccl::Communicator::new`].
    pub fn communicator(&self, variables: &[(&str, &str)]) -> Result<nccl::Communicator> {
        let mut environment = self.environment.clone();
        environment.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        if let Some(known) = self.communicators.borrow().get(&environment) {
            return Ok(known.clone());
        }
        let version = self.nccl_version()?;
        let parsed = nccl::Environment::parse(&environment, version)?;
        let communicator = nccl::Communicator::new(&nccl::Setup {
            machine: self.machine,
            devices: &self.devices(),
            version,
            environment: &parsed,
            placement: Placement::ProcessPerRank,
            graph_file: None,
        })?;
        self.communicators.borrow_mut().insert(environment, communicator.clone());
        Ok(communicator)
    }
}
