//! The one registry of numbers: machine, model, workload, partition, strategy
//! and speculation by dotted path.
//!
//! | prefix | what |
//! |---|---|
//! | `fabric.`, `links.CLASS.`, `kinds.KIND.PART.`, `collapses.AT.` | the machine ([`Machine::knobs`]) |
//! | `model.` | sizes that a what-if changes |
//! | `workload.` | tokens, batch, context, routing of experts |
//! | `partition.` | ranks by what they split |
//! | `strategy.` | what the user sets for NCCL whatever the strategy; a strategy's own setting goes before it |
//! | `speculation.` | drafts, acceptance, host time of a cycle |
//!
//! Fit, sampling, sweeps, sensitivity, diagnosis and experiments change a
//! [`Case`] through [`Case::with`] and nothing else.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::error::Fault;
use crate::error::Result;
use crate::knob::Constants;
use crate::knob::Quantity;
use crate::knob::Spec;
use crate::machine::Machine;
use crate::model::Model;
use crate::model::RoutingConstants;
use crate::model::Workload;
use crate::plan::Partition;

use super::question::LaunchMode;
use super::question::Question;
use super::speculation::SpeculationConstants;
use super::whole::WHOLE;
use super::whole::Whole;

/// A question that owns its parts, every number of it reachable by path.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The machine.
    pub machine: Machine,
    /// The model.
    pub model: Model,
    /// The pass; its routing follows [`Case::routing`].
    pub workload: Workload,
    /// How the model is split.
    pub partition: Partition,
    /// How the pass is launched.
    pub launch: LaunchMode,
    /// Variables that are set for NCCL whatever the strategy.
    pub environment: BTreeMap<String, String>,
    /// How tokens choose experts, with intervals.
    pub routing: RoutingConstants,
    /// Tokens drafted a cycle (K).
    pub draft_steps: u64,
    /// Acceptance and host times of speculation.
    pub speculation: SpeculationConstants,
}

/// One number of a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Knob<'a> {
    /// Dotted path.
    pub path: String,
    /// Unit, bounds and meaning.
    pub spec: &'static Spec,
    /// Value, interval and source.
    pub quantity: Cow<'a, Quantity>,
    /// Whether only whole numbers have a meaning.
    pub is_whole: bool,
}

impl Case {
    /// A case with nothing set for NCCL and speculation as it is by default.
    pub fn new(machine: Machine, model: Model, workload: Workload, partition: Partition, launch: LaunchMode) -> Case {
        let mut routing = RoutingConstants::default();
        for (quantity, value) in [(&mut routing.expert_skew, workload.routing.skew), (&mut routing.token_repeat, workload.routing.repeat)] {
            if quantity.value != value {
                *quantity = Quantity::exact(value, "set");
            }
        }
        Case {
            machine,
            model,
            workload,
            partition,
            launch,
            environment: BTreeMap::new(),
            routing,
            draft_steps: 2,
            speculation: SpeculationConstants::default(),
        }
    }

    /// As a question for the executors.
    pub fn question(&self) -> Question<'_> {
        Question { machine: &self.machine, model: &self.model, workload: self.workload, partition: self.partition, launch: self.launch }
    }

    /// A copy in which the number at `path` is exactly `value`.
    ///
    /// # Errors
    /// `knob-unknown`, `knob-bounds`, `knob-whole`.
    pub fn with(&self, path: &str, value: f64) -> Result<Case> {
        let mut case = self.clone();
        case.set(path, value)?;
        Ok(case)
    }

    /// Sets the number at `path` exactly: its interval shrinks to the value.
    ///
    /// # Errors
    /// See [`Case::with`].
    pub fn set(&mut self, path: &str, value: f64) -> Result<()> {
        self.set_quantity(path, &Quantity::exact(value, "set"))
    }

    /// Sets the number at `path` with its interval and source. Whole numbers
    /// have no interval: theirs is dropped.
    ///
    /// # Errors
    /// See [`Case::with`].
    pub fn set_quantity(&mut self, path: &str, quantity: &Quantity) -> Result<()> {
        if let Some(whole) = WHOLE.iter().find(|whole| whole.path == path) {
            return self.set_whole(whole, quantity.value);
        }
        let (spec, field) = match path.split_once('.') {
            Some(("workload", name)) => (find(RoutingConstants::specs(), name), self.routing.quantity_mut(name)),
            Some(("speculation", name)) => (find(SpeculationConstants::specs(), name), self.speculation.quantity_mut(name)),
            _ if self.machine.spec(path).is_some() => return self.machine.set_quantity(path, quantity),
            _ => (None, None),
        };
        let (Some(spec), Some(field)) = (spec, field) else { return Err(self.unknown(path)) };
        for value in [quantity.value, quantity.low, quantity.high] {
            check_bounds(path, spec, value)?;
        }
        field.clone_from(quantity);
        self.workload.routing = self.routing.routing();
        Ok(())
    }

    fn set_whole(&mut self, whole: &Whole, value: f64) -> Result<()> {
        check_bounds(whole.path, &whole.spec, value)?;
        if value != libm::trunc(value) {
            return Err(Fault::new("knob-whole", format!("{} = {value} is no whole number", whole.path)).help(whole.spec.meaning.trim()));
        }
        (whole.set)(self, value as u64)
    }

    /// Value, interval, bounds and source of the number at `path`.
    ///
    /// # Errors
    /// `knob-unknown`.
    pub fn knob(&self, path: &str) -> Result<Knob<'_>> {
        self.knobs().into_iter().find(|knob| knob.path == path).ok_or_else(|| self.unknown(path))
    }

    /// Every number of the case: those of the machine first.
    pub fn knobs(&self) -> Vec<Knob<'_>> {
        let mut knobs: Vec<Knob<'_>> = (self.machine.knobs().into_iter())
            .map(|(path, spec, quantity)| Knob { path, spec, quantity: Cow::Borrowed(quantity), is_whole: false })
            .collect();
        for whole in &WHOLE {
            let Some(value) = (whole.get)(self) else { continue };
            let quantity = Cow::Owned(Quantity::exact(value as f64, whole.source));
            knobs.push(Knob { path: whole.path.to_owned(), spec: &whole.spec, quantity, is_whole: true });
        }
        list(&mut knobs, "workload", &self.routing);
        list(&mut knobs, "speculation", &self.speculation);
        knobs
    }

    fn unknown(&self, path: &str) -> Box<Fault> {
        let last = path.rsplit('.').next().unwrap_or(path);
        let knobs = self.knobs();
        let near: Vec<&str> = knobs.iter().map(|k| k.path.as_str()).filter(|known| known.rsplit('.').next() == Some(last)).collect();
        let fault = Fault::new("knob-unknown", format!("there is no number called `{path}` in a case on {}", self.machine.id));
        if near.is_empty() {
            return fault.help(
                "`lanecast explain knobs` lists them: fabric, links, kinds, collapses, model, workload, partition, strategy, speculation",
            );
        }
        fault.help(format!("known: {}", near.join(", ")))
    }
}

fn find(specs: &'static [Spec], name: &str) -> Option<&'static Spec> {
    specs.iter().find(|spec| spec.name == name)
}

fn check_bounds(path: &str, spec: &Spec, value: f64) -> Result<()> {
    if spec.bounds.contains(&value) {
        return Ok(());
    }
    let (low, high) = (spec.bounds.start(), spec.bounds.end());
    Err(Fault::new("knob-bounds", format!("{path} = {value} is out of bounds")).help(format!(
        "expected {low} to {high} {}: {}",
        spec.unit,
        spec.meaning.trim()
    )))
}

fn list<'a, C: Constants>(knobs: &mut Vec<Knob<'a>>, prefix: &str, constants: &'a C) {
    for spec in C::specs() {
        let Some(quantity) = constants.quantity(spec.name) else { continue };
        knobs.push(Knob { path: format!("{prefix}.{}", spec.name), spec, quantity: Cow::Borrowed(quantity), is_whole: false });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case() -> Case {
        let (machine, model) = (Machine::load("8x-rtx-pro-6000-server").expect("built in"), Model::load("kimi-k2.5").expect("built in"));
        Case::new(machine, model, Workload::verify(3, 128), Partition::tensor(8), LaunchMode::Graph)
    }

    /// Every number is found under its path, can be set to itself, and says where it comes from.
    #[test]
    fn every_knob_is_set_through_its_path() {
        let case = case();
        let knobs = case.knobs();
        let mut paths: Vec<&str> = knobs.iter().map(|k| k.path.as_str()).collect();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), knobs.len(), "no path twice");
        for knob in &knobs {
            assert!(!knob.quantity.source.is_empty(), "{} has no source", knob.path);
            let same = case.with(&knob.path, knob.quantity.value).unwrap_or_else(|fault| panic!("{}: {fault}", knob.path));
            assert_eq!(same.knob(&knob.path).expect("still there").quantity.value, knob.quantity.value, "{}", knob.path);
            assert_eq!(case.with(&knob.path, knob.spec.bounds.end() * 2.0 + 1.0).expect_err("out of bounds").code, "knob-bounds");
        }
        for prefix in ["fabric.", "links.", "kinds.", "model.", "workload.", "partition.", "strategy.", "speculation."] {
            assert!(knobs.iter().any(|k| k.path.starts_with(prefix)), "{prefix}");
        }
    }

    #[test]
    fn a_knob_changes_what_is_asked() {
        let case = case();
        let one = case.with("workload.tokens", 1.0).expect("one token");
        assert_eq!((one.workload.tokens, one.workload.phase), (1, crate::model::Phase::Decode));
        assert_eq!(one.with("workload.tokens", 4.0).expect("four").workload.phase, crate::model::Phase::Verify);
        assert_eq!(case.with("workload.expert_skew", 0.5).expect("skewed").question().workload.routing.skew, 0.5);
        let few = case.with("strategy.nccl_max_channels", 2.0).expect("two");
        assert_eq!(few.environment.get("NCCL_MAX_NCHANNELS").map(String::as_str), Some("2"));
        assert!(few.with("strategy.nccl_max_channels", 0.0).expect("none").environment.is_empty());
        assert_eq!(case.with("model.layers", 10.0).expect("ten").question().plan().expect("plans").layers, 10);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let case = case();
        let code = |path: &str, value: f64| case.with(path, value).map(|_| ()).expect_err("refused").code;
        assert_eq!(code("workload.tokens", 2.5), "knob-whole");
        assert_eq!(code("workload.tokens", 0.0), "knob-bounds");
        assert_eq!(code("speculation.acceptance", f64::NAN), "knob-bounds");
        assert_eq!(code("no.such", 1.0), "knob-unknown");
        assert!(case.with("x.poll_ns", 1.0).expect_err("refused").help.is_some_and(|help| help.contains("protocol.poll_ns")));
    }
}
