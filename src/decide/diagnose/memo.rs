//! Results that several scenarios share: most faults change only some of what is simulated.

use std::collections::BTreeMap;
use std::hash::DefaultHasher;
use std::hash::Hash;
use std::hash::Hasher;
use std::sync::Mutex;

use crate::case::LaunchMode;
use crate::error::Result;
use crate::units::Time;

use super::scenario::Scenario;

/// What is kept of a simulated pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pass {
    /// First kernel to last end.
    pub pass: Time,
    /// After the last arrival, all collectives.
    pub communication: Time,
    /// Waiting for the last arrival.
    pub skew: Time,
    /// Compute kernels.
    pub compute: Time,
    /// The layers' all-reduces.
    pub allreduces: u64,
    /// Bytes that the first GPU sent over its own link.
    pub sent_bytes: u64,
}

/// Passes and collectives by all that they depend on.
#[derive(Default)]
pub struct Memo {
    passes: Mutex<BTreeMap<u64, Pass>>,
    collectives: Mutex<BTreeMap<u64, f64>>,
}

impl Memo {
    /// A pass of that many tokens, simulated once.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn pass(&self, scenario: &Scenario, tokens: u64, launch: LaunchMode, make: impl FnOnce() -> Result<Pass>) -> Result<Pass> {
        let mut hasher = hasher_of(scenario, launch);
        (scenario.strategy.id, tokens, launch == LaunchMode::Eager).hash(&mut hasher);
        (scenario.slow_rank.to_bits(), scenario.expert_overload.to_bits()).hash(&mut hasher);
        once(&self.passes, hasher.finish(), make)
    }

    /// One all-reduce of NCCL, simulated once.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn allreduce_us(&self, scenario: &Scenario, bytes: u64, make: impl FnOnce() -> Result<f64>) -> Result<f64> {
        let mut hasher = hasher_of(scenario, LaunchMode::Graph);
        bytes.hash(&mut hasher);
        once(&self.collectives, hasher.finish(), make)
    }
}

/// Machine and variables; what a host's launch costs is left out where one graph holds all.
fn hasher_of(scenario: &Scenario, launch: LaunchMode) -> DefaultHasher {
    let mut hasher = DefaultHasher::new();
    scenario.environment.hash(&mut hasher);
    if launch == LaunchMode::Eager {
        scenario.machine.to_toml().hash(&mut hasher);
        return hasher;
    }
    let mut machine = scenario.machine.clone();
    for kind in machine.kinds.values_mut() {
        kind.launch.framework_ns.value = 0.0;
        kind.launch.eager_ns.value = 0.0;
        kind.launch.framework_ns.source.clear();
        kind.launch.eager_ns.source.clear();
        for quantity in [&mut kind.launch.framework_ns, &mut kind.launch.eager_ns] {
            (quantity.low, quantity.high) = (0.0, 0.0);
        }
    }
    machine.to_toml().hash(&mut hasher);
    hasher
}

fn once<V: Copy>(known: &Mutex<BTreeMap<u64, V>>, key: u64, make: impl FnOnce() -> Result<V>) -> Result<V> {
    if let Some(value) = known.lock().ok().and_then(|known| known.get(&key).copied()) {
        return Ok(value);
    }
    let value = make()?;
    if let Ok(mut known) = known.lock() {
        known.insert(key, value);
    }
    Ok(value)
}
