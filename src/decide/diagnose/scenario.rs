//! One state of a server that can be simulated: what a hypothesis changes.

use std::collections::BTreeMap;

use crate::case::LaunchMode;
use crate::error::Result;
use crate::machine::Machine;
use crate::model::Model;
use crate::plan::Partition;
use crate::strategy::Strategy;

/// What is asked, the same for all hypotheses.
pub struct Setup<'a> {
    /// The machine as it should be.
    pub machine: &'a Machine,
    /// The model.
    pub model: &'a Model,
    /// How it is split.
    pub partition: Partition,
    /// Sequences.
    pub batch: u64,
    /// Tokens of a verify pass, root included.
    pub tokens: u64,
    /// Cached positions.
    pub context: u64,
    /// How the all-reduces are believed to run.
    pub strategy: &'static Strategy,
    /// Variables of the server.
    pub environment: BTreeMap<String, String>,
}

impl Setup<'_> {
    /// Bytes of a layer's all-reduce in the verify pass (16-bit activations).
    pub fn verify_bytes(&self) -> u64 {
        self.batch * self.tokens * self.model.hidden * 2
    }

    /// The sizes of nccl-tests rows that are always forecast: a verify pass's, and one that shows bandwidth.
    pub fn sizes(&self) -> [u64; 2] {
        [self.verify_bytes(), LARGE_BYTES]
    }
}

/// A message that shows bandwidth, not latency.
pub const LARGE_BYTES: u64 = 64 << 20;

/// One state of the server.
#[derive(Clone)]
pub struct Scenario {
    /// The machine.
    pub machine: Machine,
    /// What runs the all-reduces.
    pub strategy: &'static Strategy,
    /// Variables of NCCL.
    pub environment: BTreeMap<String, String>,
    /// How verify passes are launched.
    pub verify_launch: LaunchMode,
    /// Time between passes that the host does not hide, ms.
    pub host_step_ms: f64,
    /// How much longer kernels of one rank take, 1 when not.
    pub slow_rank: f64,
    /// By how many sigmas of random routing the fullest rank's experts exceed the mean; 0 when experts are sharded.
    pub expert_overload: f64,
    /// Host time of a kernel while profiling, ns, where waiting is counted as communication.
    pub profiled_launch_ns: Option<f64>,
    /// What is left of the acceptance.
    pub acceptance: f64,
    /// What peer copies get of a link's rate.
    pub copy_share: f64,
}

impl Scenario {
    /// The server as it should be.
    pub fn healthy(setup: &Setup<'_>) -> Scenario {
        Scenario {
            machine: setup.machine.clone(),
            strategy: setup.strategy,
            environment: setup.environment.clone(),
            verify_launch: LaunchMode::Graph,
            host_step_ms: 0.0,
            slow_rank: 1.0,
            expert_overload: 0.0,
            profiled_launch_ns: None,
            acceptance: 1.0,
            copy_share: 1.0,
        }
    }

    /// Multiplies a number of the machine, held inside its bounds. Numbers that the machine lacks are passed over.
    ///
    /// # Errors
    /// None that a machine that was read can meet.
    pub fn scale(&mut self, path: &str, factor: f64) -> Result<()> {
        let knobs = self.machine.knobs();
        let Some((_, spec, quantity)) = knobs.into_iter().find(|(known, _, _)| known == path) else { return Ok(()) };
        let value = (quantity.value * factor).clamp(*spec.bounds.start(), *spec.bounds.end());
        self.machine.set(path, value)
    }

    /// Multiplies every number below `prefix` whose unit is one of `units`.
    ///
    /// # Errors
    /// As [`Scenario::scale`].
    pub fn scale_all(&mut self, prefix: &str, units: &[&str], factor: f64) -> Result<()> {
        let changes: Vec<(String, f64)> = (self.machine.knobs().into_iter())
            .filter(|(path, spec, _)| path.starts_with(prefix) && units.contains(&spec.unit))
            .map(|(path, spec, quantity)| (path, (quantity.value * factor).clamp(*spec.bounds.start(), *spec.bounds.end())))
            .collect();
        changes.into_iter().try_for_each(|(path, value)| self.machine.set(&path, value))
    }

    /// Sets a number of every kind of GPU.
    ///
    /// # Errors
    /// `knob-bounds`.
    pub fn set_launch(&mut self, name: &str, value: f64) -> Result<()> {
        let kinds: Vec<String> = self.machine.kinds.keys().cloned().collect();
        kinds.iter().try_for_each(|kind| self.machine.set(&format!("kinds.{kind}.launch.{name}"), value))
    }
}
