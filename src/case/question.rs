//! What is asked: a machine, a model, a workload, a way to communicate.

use crate::error::Fault;
use crate::error::Result;
use crate::machine::Machine;
use crate::model::ACTIVATION_BYTES;
use crate::model::Model;
use crate::model::Workload;
use crate::plan::Partition;
use crate::plan::Plan;
use crate::strategy::Strategy;

/// How a pass is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LaunchMode {
    /// The whole pass is one replayed CUDA graph.
    Graph,
    /// The engine launches each kernel from the host.
    Eager,
}

/// Which strategy for which message size.
#[derive(Clone)]
pub struct Policy {
    /// Largest message in bytes and its strategy, ascending; the last row takes the rest.
    pub rows: Vec<(u64, &'static Strategy)>,
}

impl Policy {
    /// One strategy for every size.
    pub fn single(strategy: &'static Strategy) -> Policy {
        Policy { rows: vec![(u64::MAX, strategy)] }
    }

    /// The strategy for a message of `bytes`.
    ///
    /// # Errors
    /// `policy-empty` when no row covers the size.
    pub fn of(&self, bytes: u64) -> Result<&'static Strategy> {
        (self.rows.iter().find(|(most, _)| bytes <= *most).map(|(_, strategy)| *strategy))
            .ok_or_else(|| Fault::new("policy-empty", format!("the policy has no strategy for {bytes} bytes")))
    }
}

/// Bytes of weights on a GPU and what its memory holds, where the weights of
/// `ranks` ranks alone do not fit: what is forecast then is what a pass would take if they did.
pub fn too_large(machine: &Machine, model: &Model, ranks: u32) -> Option<(u64, u64)> {
    let gpus = u64::from(ranks).div_ceil(u64::from(machine.ranks_per_gpu.max(1))).max(1);
    let weights = model.parameters().text.bytes / gpus;
    let memory = machine.gpu_kind(0).map_or(u64::MAX, |kind| kind.memory_bytes);
    (weights > memory).then_some((weights, memory))
}

/// One question, but for the strategy.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The model.
    pub model: &'a Model,
    /// The pass.
    pub workload: Workload,
    /// How the model is split.
    pub partition: Partition,
    /// How the pass is launched.
    pub launch: LaunchMode,
}

impl Question<'_> {
    /// The same, the ranks split as a strategy splits them; most leave the split as it is.
    #[must_use]
    pub fn under(&self, strategy: &Strategy) -> Self {
        let own = (strategy.partition)(self.partition.ranks());
        let partition = if own == Partition::tensor(self.partition.ranks()) { self.partition } else { own };
        Question { partition, ..*self }
    }

    /// Bytes of one token's activations, as ranks send them.
    pub fn row_bytes(&self) -> u64 {
        self.model.hidden * ACTIVATION_BYTES
    }

    /// The plan of the pass.
    ///
    /// # Errors
    /// What the plan refuses: bad workloads, splits that do not divide.
    pub fn plan(&self) -> Result<Plan> {
        Plan::build(self.model, &self.workload, self.partition)
    }
}
