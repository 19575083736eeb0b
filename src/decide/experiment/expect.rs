//! What the simulator expects of a factor, said before the run.

use std::collections::BTreeMap;

use crate::case::LaunchMode;
use crate::case::Policy;
use crate::case::Question as Pass;
use crate::case::answer;
use crate::error::Result;
use crate::machine::Machine;
use crate::model::Model;
use crate::model::Workload;
use crate::plan::Partition;
use crate::simulate::Options;
use crate::strategy::Context;
use crate::strategy::Risk;
use crate::strategy::Searches;
use crate::strategy::Strategy;

use super::ledger::Factor;
use super::ledger::Question;

/// What is expected of one factor.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// Forecast pass with it, ms; None where it cannot be simulated.
    pub pass_ms: Option<f64>,
    /// Forecast pass without it, ms.
    pub baseline_ms: f64,
    /// Why it cannot run here, where a gate says so.
    pub refused: Option<String>,
    /// Chance that it works at all.
    pub chance: f64,
}

impl Expectation {
    /// Share of the pass that it saves; below zero it costs.
    pub fn gain(&self) -> Option<f64> {
        self.pass_ms.map(|pass| 1.0 - pass / self.baseline_ms.max(1e-9))
    }
}

/// A simulator of one campaign's question.
pub struct Expecter {
    machine: Machine,
    model: Model,
    question: Question,
    searches: Searches,
    /// Forecast pass of the baseline, ms.
    pub baseline_ms: f64,
}

impl Expecter {
    /// Loads and simulates the baseline.
    ///
    /// # Errors
    /// Unknown machines, models, strategies, and all that simulating can meet.
    pub fn new(question: &Question) -> Result<Expecter> {
        let mut expecter = Expecter {
            machine: Machine::load(&question.machine)?,
            model: Model::load(&question.model)?,
            question: question.clone(),
            searches: Searches::default(),
            baseline_ms: 0.0,
        };
        expecter.baseline_ms = expecter.pass_ms(Strategy::find(&question.baseline)?, &BTreeMap::new())?;
        Ok(expecter)
    }

    fn context(&self, environment: &BTreeMap<String, String>) -> Context<'_> {
        let mut context = Context::new(&self.machine, self.question.tp as usize);
        context.environment.clone_from(environment);
        context.searches = self.searches.clone();
        context
    }

    fn pass_ms(&self, strategy: &'static Strategy, environment: &BTreeMap<String, String>) -> Result<f64> {
        let pass = self.pass(strategy);
        let plan = pass.plan()?;
        Ok(answer(&pass, &plan, &Policy::single(strategy), &self.context(environment), Options::default())?.pass.ms())
    }

    fn pass(&self, strategy: &Strategy) -> Pass<'_> {
        let asked = &self.question;
        let workload = Workload::verify(asked.tokens, asked.context);
        let partition = Partition::tensor(asked.tp);
        Pass { machine: &self.machine, model: &self.model, workload, partition, launch: LaunchMode::Graph }.under(strategy)
    }

    /// What is expected of a factor. One without a strategy is its variables under the baseline.
    ///
    /// # Errors
    /// Unknown strategies, and all that simulating can meet.
    pub fn expect(&self, factor: &Factor) -> Result<Expectation> {
        let baseline_ms = self.baseline_ms;
        let strategy = Strategy::find(factor.strategy.as_deref().unwrap_or(&self.question.baseline))?;
        let usual = match strategy.risk {
            Risk::Low => 0.9,
            Risk::Medium => 0.6,
            Risk::High => 0.4,
        };
        let chance = factor.chance.unwrap_or(usual);
        if let Some(reason) = strategy.refusal(&self.context(&BTreeMap::new())) {
            // A gate may be lifted by an upgrade; the run as it stands will fail.
            return Ok(Expectation { pass_ms: None, baseline_ms, refused: Some(reason), chance: chance.min(0.05) });
        }
        if let Err(fault) = self.pass(strategy).plan() {
            // It splits the model in a way that this model or batch does not allow.
            return Ok(Expectation { pass_ms: None, baseline_ms, refused: Some(fault.message), chance: chance.min(0.05) });
        }
        // A strategy of NCCL sets its own variables; a factor's count where it is the variables alone.
        let environment = if factor.strategy.is_some() { BTreeMap::new() } else { factor.environment.clone() };
        Ok(Expectation { pass_ms: Some(self.pass_ms(strategy, &environment)?), baseline_ms, refused: None, chance })
    }
}
