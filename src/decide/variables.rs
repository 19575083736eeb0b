//! What each of a strategy's NCCL variables changes on its own, and all of them
//! together, by message size.

use std::collections::BTreeMap;

use crate::case::chain;
use crate::error::Result;
use crate::machine::Machine;
use crate::nccl;
use crate::nccl::explain::explain;
use crate::simulate::Options;
use crate::strategy::Context;
use crate::strategy::Logical;
use crate::strategy::Searches;
use crate::strategy::Strategy;
use crate::strategy::nccl_family::lower_on;

/// Operations of the chain that is simulated.
const CHAIN: u32 = 10;

/// One variable, or all together in the last of a size.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// `NCCL_MAX_NCHANNELS=2`, several joined by spaces.
    pub variables: String,
    /// Size of the message.
    pub bytes: u64,
    /// What NCCL decides differently; empty when nothing.
    pub differences: Vec<String>,
    /// Simulated latency with nothing set and with the variables, us; where that was asked for.
    pub latency_us: Option<(f64, f64)>,
}

/// Where the variables are tried.
pub struct Asked<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Ranks of the group.
    pub ranks: usize,
    /// Variables that are set anyway.
    pub environment: &'a BTreeMap<String, String>,
    /// NCCL's searches on the machine.
    pub searches: &'a Searches,
}

/// Effects of a strategy's variables at sizes in bytes, each simulated or not.
///
/// # Errors
/// What NCCL refuses.
pub fn effects(asked: &Asked<'_>, strategy: &Strategy, sizes: &[(u64, bool)]) -> Result<Vec<Effect>> {
    let mut context = Context::new(asked.machine, asked.ranks);
    context.searches = asked.searches.clone();
    let rebuild = |environment: &BTreeMap<String, String>| {
        let variables: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        context.communicator(&variables)
    };
    let latency = |communicator: &nccl::Communicator, bytes: u64| -> Result<f64> {
        let lowering = lower_on(communicator, Logical::AllReduce, bytes, &nccl::Force::default())?;
        let routes = context.searches.routes(asked.machine);
        let outcome = chain::run_over(asked.machine, routes, &lowering, (chain::ChainLaunch::Graph, CHAIN), Options::default())?;
        Ok(outcome.critical().time as f64 / f64::from(CHAIN) / 1e6)
    };
    let mut all = Vec::new();
    for &(bytes, is_simulated) in sizes {
        let base = asked.environment;
        for effect in explain(base, strategy.environment, nccl::Collective::AllReduce, bytes, &rebuild)? {
            let names = effect.variable.split(' ').zip(effect.value.split(' '));
            let mut environment = base.clone();
            environment.extend(names.clone().map(|(name, value)| (name.to_owned(), value.to_owned())));
            let simulated =
                if is_simulated { Some((latency(&rebuild(base)?, bytes)?, latency(&rebuild(&environment)?, bytes)?)) } else { None };
            let variables = names.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ");
            all.push(Effect { variables, bytes, differences: effect.differences, latency_us: simulated });
        }
    }
    Ok(all)
}
