//! What each of a strategy's NCCL variables changes on its own, at the size of
//! the pass and at that of a prefill chunk.

use std::collections::BTreeMap;

use crate::case::chain;
use crate::error::Result;
use crate::nccl;
use crate::nccl::explain::explain;
use crate::simulate::Options;
use crate::strategy::Context;
use crate::strategy::Logical;
use crate::strategy::Strategy;
use crate::strategy::nccl_family::lower_on;

use super::rank::Request;

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
    /// Simulated latency with nothing set and with the variables, us; only at the size of the pass.
    pub latency_us: Option<(f64, f64)>,
}

/// Effects of a strategy's variables at the first of `sizes` (simulated) and at the others (decisions only).
///
/// # Errors
/// What NCCL refuses.
pub fn effects(request: &Request<'_>, strategy: &Strategy, sizes: &[u64]) -> Result<Vec<Effect>> {
    let question = &request.question;
    let mut context = Context::new(question.machine, question.partition.tp as usize);
    context.searches = request.searches.clone();
    let rebuild = |environment: &BTreeMap<String, String>| {
        let variables: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        context.communicator(&variables)
    };
    let latency = |communicator: &nccl::Communicator, bytes: u64| -> Result<f64> {
        let lowering = lower_on(communicator, Logical::AllReduce, bytes, &nccl::Force::default())?;
        let routes = context.searches.routes(question.machine);
        let outcome = chain::run_over(question.machine, routes, &lowering, (chain::ChainLaunch::Graph, CHAIN), Options::default())?;
        Ok(outcome.critical().time as f64 / f64::from(CHAIN) / 1e6)
    };
    let mut all = Vec::new();
    for (place, &bytes) in sizes.iter().enumerate() {
        let base = &request.environment;
        for effect in explain(base, strategy.environment, nccl::Collective::AllReduce, bytes, &rebuild)? {
            let names = effect.variable.split(' ').zip(effect.value.split(' '));
            let mut environment = base.clone();
            environment.extend(names.clone().map(|(name, value)| (name.to_owned(), value.to_owned())));
            let simulated =
                if place == 0 { Some((latency(&rebuild(base)?, bytes)?, latency(&rebuild(&environment)?, bytes)?)) } else { None };
            let variables = names.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ");
            all.push(Effect { variables, bytes, differences: effect.differences, latency_us: simulated });
        }
    }
    Ok(all)
}
