//! The cases of a sweep, what they share, and the row of each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use super::cycle::Cycles;
use super::cycle::drafter;
use super::grid::Axis;
use super::grid::Grid;
use super::grid::Placed;
use super::grid::Source;
use super::setting::Setting;
use super::setting::change_case;
use super::setting::change_number;
use super::setting::collide;
use super::value::Value;
use crate::case::Case;
use crate::case::Policy;
use crate::case::Prices;
use crate::case::Question;
use crate::case::SpeculationConstants;
use crate::case::answer_at;
use crate::case::roads::Roads;
use crate::decide::speculate::acceptance::Acceptance;
use crate::decide::speculate::acceptance::Shape;
use crate::decide::speculate::beside;
use crate::error::Fault;
use crate::error::Result;
use crate::machine::Machine;
use crate::machine::Medium;
use crate::model::Model;
use crate::model::Phase;
use crate::plan::Partition;
use crate::plan::Plan;
use crate::render::number::Number;
use crate::strategy::Context;
use crate::strategy::Searches;
use crate::strategy::Strategy;
use crate::units::Time;

/// Columns behind the axes.
pub const RESULTS: [&str; 12] = [
    "feasible",
    "pass_ms",
    "allreduce_us",
    "allreduce_count",
    "allreduce_bytes",
    "communication_ms",
    "skew_ms",
    "compute_ms",
    "launch_ms",
    "draft_ms",
    "tokens_per_s",
    "reason",
];

/// Machines with numbers of their own whose prices are kept.
const PRICES_MAX: usize = 2;

/// What a worker remembers at most of each kind.
const KEPT_MAX: usize = 512;

/// A sweep whose names have been found and whose values have been checked.
pub struct Space {
    /// The file.
    pub grid: Grid,
    base: Setting,
    machines: BTreeMap<String, Known>,
    models: BTreeMap<String, Model>,
    /// Of the machines that were simulated last, for all threads.
    prices: Mutex<BTreeMap<String, Arc<Prices>>>,
}

/// A machine and what follows from its cabling.
struct Known {
    machine: Machine,
    searches: Searches,
    /// Whether NCCL's search looks at numbers that an axis may change.
    searches_numbers: bool,
}

/// What one thread keeps from case to case.
#[derive(Default)]
pub struct Worker {
    machines: BTreeMap<String, Arc<(Machine, Searches)>>,
    plans: BTreeMap<String, Plan>,
    cycles: Cycles,
}

impl Space {
    /// Loads what the grid names and tries each value.
    ///
    /// # Errors
    /// Unknown names and bad values, with their place in the file.
    pub fn new(grid: Grid) -> Result<Space> {
        let all: Vec<&Axis> = grid.base.iter().map(|(axis, _)| axis).chain(&grid.axes).collect();
        for (at, axis) in all.iter().enumerate() {
            if let Some(other) = all[..at].iter().find(|other| collide(&other.name, &axis.name)) {
                let fault = Fault::new("sweep-bad-grid", format!("`{}` and `{}` set the same thing", other.name, axis.name));
                return Err(grid.fault(fault, &axis.span));
            }
        }
        let mut base = Setting::default();
        for (axis, value) in &grid.base {
            base.set(&axis.name, value).map_err(|fault| grid.fault(fault, &value_span(axis)))?;
        }
        let mut space = Space { base, machines: BTreeMap::new(), models: BTreeMap::new(), prices: Mutex::default(), grid };
        space.load()?;
        space.check()?;
        Ok(space)
    }

    fn load(&mut self) -> Result<()> {
        let mut names: Vec<(bool, String, std::ops::Range<usize>)> = Vec::new();
        for axis in self.grid.base.iter().map(|(axis, _)| axis).chain(&self.grid.axes) {
            let Source::Listed(values) = &axis.source else { continue };
            for Placed { value, span } in values {
                if let ("machine" | "model", Value::Text(text)) = (axis.name.as_str(), value) {
                    names.push((axis.name == "machine", text.clone(), span.clone()));
                }
            }
        }
        names.push((true, self.base.machine.clone(), 0..0));
        names.push((false, self.base.model.clone(), 0..0));
        for (is_machine, name, span) in names {
            let fault = |fault| self.grid.fault(fault, &span);
            if is_machine && !self.machines.contains_key(&name) {
                let machine = Machine::load(&name).map_err(fault)?;
                let searches_numbers = machine.links.iter().any(|link| link.medium == Medium::Nvlink && link.width == 0);
                self.machines.insert(name, Known { machine, searches: Searches::default(), searches_numbers });
            } else if !is_machine && !self.models.contains_key(&name) {
                let model = Model::load(&name).map_err(fault)?;
                self.models.insert(name, model);
            }
        }
        Ok(())
    }

    /// Tries each value of each axis on the base.
    fn check(&self) -> Result<()> {
        for axis in self.grid.base.iter().map(|(axis, _)| axis).chain(&self.grid.axes) {
            let values = match &axis.source {
                Source::Listed(values) => values.clone(),
                Source::Drawn(between, span) => [0.0, 1.0].map(|share| Placed { value: between.at(share), span: span.clone() }).to_vec(),
            };
            for Placed { value, span } in &values {
                let mut setting = self.base.clone();
                let tried = setting.set(&axis.name, value).and_then(|()| {
                    if let Some((path, change)) = setting.numbers.iter().find(|(path, _)| *path == axis.name) {
                        return self.used_machines().try_for_each(|known| change_number(&mut known.machine.clone(), path, *change));
                    }
                    let Some((path, change)) = setting.others.iter().find(|(path, _)| *path == axis.name) else { return Ok(()) };
                    let machine = self.used_machines().next().map(|known| known.machine.clone());
                    let (Some(machine), Some(model)) = (machine, self.models.values().next().cloned()) else { return Ok(()) };
                    let partition = Partition::tensor(setting.tp);
                    change_case(&mut Case::new(machine, model, setting.workload(), partition, setting.launch), path, *change)
                });
                let place = if tried.as_ref().is_err_and(|fault| fault.code == "sweep-unknown-axis") { &axis.span } else { span };
                tried.map_err(|fault| self.grid.fault(fault, place))?;
            }
        }
        Ok(())
    }

    /// Machines that cases can have: those of an axis, else the base's.
    fn used_machines(&self) -> impl Iterator<Item = &Known> {
        let varies = self.grid.axes.iter().any(|axis| axis.name == "machine");
        self.machines.iter().filter(move |(name, _)| !varies || **name != self.base.machine || self.is_listed(name)).map(|(_, known)| known)
    }

    fn is_listed(&self, name: &str) -> bool {
        let listed = |source: &Source| match source {
            Source::Listed(values) => values.iter().any(|placed| placed.value == Value::Text(name.to_owned())),
            Source::Drawn(..) => false,
        };
        self.grid.axes.iter().any(|axis| axis.name == "machine" && listed(&axis.source))
    }

    /// What the files that the grid names hold, for its hash.
    pub fn inputs(&self) -> String {
        let machines = self.machines.values().map(|known| known.machine.to_toml());
        let models = self.models.values().map(|model| format!("{model:?}"));
        machines.chain(models).collect()
    }

    /// The header of rows.
    pub fn header(&self) -> String {
        let names = std::iter::once("case").chain(self.grid.axes.iter().map(|axis| axis.name.as_str())).chain(RESULTS);
        names.map(field).collect::<Vec<_>>().join(",") + "\n"
    }

    /// What a case is made of.
    ///
    /// # Errors
    /// Values that are drawn out of bounds.
    pub fn setting(&self, values: &[Value]) -> Result<Setting> {
        let mut setting = self.base.clone();
        for (axis, value) in self.grid.axes.iter().zip(values) {
            setting.set(&axis.name, value)?;
        }
        Ok(setting)
    }

    /// The row of a case, closed by a newline.
    pub fn row(&self, worker: &mut Worker, index: u64) -> String {
        let values = self.grid.case(index);
        let mut row = index.to_string();
        for value in &values {
            row.push(',');
            row.push_str(&field(&value.to_string()));
        }
        match self.simulate(worker, &values) {
            Ok(cells) => {
                row.push_str(",true");
                for cell in cells {
                    row.push(',');
                    row.push_str(&cell);
                }
                row.push(',');
            }
            Err(reason) => {
                row.push_str(",false");
                row.extend(std::iter::repeat_n(',', RESULTS.len() - 1));
                row.push_str(&field(&reason));
            }
        }
        row.push('\n');
        row
    }

    /// The cells between `feasible` and `reason`, or why there are none.
    fn simulate(&self, worker: &mut Worker, values: &[Value]) -> std::result::Result<[String; 10], String> {
        let words = |fault: Box<crate::error::Fault>| fault.message.clone();
        let setting = self.setting(values).map_err(words)?;
        let strategy = Strategy::find(&setting.strategy).map_err(words)?;
        let shared = self.machine(worker, &setting).map_err(words)?;
        let model = self.models.get(&setting.model).ok_or_else(|| format!("no model {}", setting.model))?;
        let (machine, searches) = (&shared.0, &shared.1);
        let changed = changed(&setting, machine, model).map_err(words)?;
        let asked = match &changed {
            Some(case) => case.question(),
            None => {
                let (workload, partition) = (setting.workload(), Partition::tensor(setting.tp));
                Question { machine, model, workload, partition, launch: setting.launch }
            }
        };
        let question = Question { machine, ..asked.under(strategy) };
        let (workload, partition) = (question.workload, question.partition);
        workload.check().map_err(words)?;
        let mut context = Context::new(machine, partition.ranks() as usize);
        context.environment.clone_from(changed.as_ref().map_or(&setting.environment, |case| &case.environment));
        context.searches = searches.clone();
        if let Some(reason) = strategy.refusal(&context) {
            return Err(reason);
        }
        let key = format!("{} {:?} {:?} {:?}", setting.model, workload, partition, setting.others);
        if !worker.plans.contains_key(&key) {
            bound(&mut worker.plans);
            worker.plans.insert(key.clone(), question.plan().map_err(words)?);
        }
        let plan = &worker.plans[&key];
        let prices = &self.prices(&setting, machine, searches);
        let answer = answer_at(&question, plan, &Policy::single(strategy), &context, prices).map_err(words)?;
        let ms = |time: crate::units::Time| Number::new(time.ms(), 6).digits();
        let (mut draft, mut host_ms, mut expected) = (Time::ZERO, 0.0, 1.0);
        if let (Some(acceptance), Phase::Verify) = (setting.acceptance, workload.phase) {
            let defaults = SpeculationConstants::default();
            let constants = changed.as_ref().map_or(&defaults, |case| &case.speculation);
            let drafter = drafter(setting.draft, question.model);
            let key = format!("{} {:?} {:?} {key}", setting.machine, setting.numbers, setting.draft);
            draft = worker.cycles.draft(key, &question, &drafter, (strategy, &context), prices).map_err(words)?;
            let shape = Some(Shape::chain(workload.tokens.saturating_sub(1)));
            (host_ms, expected) = beside(constants, &drafter, &Acceptance::at(constants, acceptance), shape);
        }
        let per_s = workload.batch as f64 * expected * 1e3 / ((answer.pass + draft).ms() + host_ms).max(1e-9);
        Ok([
            ms(answer.pass),
            Number::new(answer.allreduce.mean.us(), 3).digits(),
            answer.allreduce.count.to_string(),
            answer.allreduce.bytes.to_string(),
            ms(answer.communication),
            ms(answer.skew),
            ms(answer.compute),
            ms(answer.launch),
            ms(draft),
            Number::new(per_s, 3).digits(),
        ])
    }

    /// What is priced on a machine with the case's numbers.
    fn prices(&self, setting: &Setting, machine: &Machine, searches: &Searches) -> Arc<Prices> {
        let mut known = self.prices.lock().unwrap_or_else(PoisonError::into_inner);
        let key = format!("{} {:?}", setting.machine, setting.numbers);
        if !known.contains_key(&key) && known.len() >= PRICES_MAX {
            known.clear();
        }
        let fresh = || Arc::new(Prices::new(Roads::new(machine, searches.routes(machine))));
        Arc::clone(known.entry(key).or_insert_with(fresh))
    }

    /// The machine with the case's numbers.
    fn machine(&self, worker: &mut Worker, setting: &Setting) -> Result<Arc<(Machine, Searches)>> {
        let key = format!("{} {:?}", setting.machine, setting.numbers);
        if let Some(machine) = worker.machines.get(&key) {
            return Ok(Arc::clone(machine));
        }
        let Some(known) = self.machines.get(&setting.machine) else {
            return Err(Fault::new("machine-unknown", format!("no machine {}", setting.machine)));
        };
        let mut machine = known.machine.clone();
        for (path, change) in &setting.numbers {
            change_number(&mut machine, path, *change)?;
        }
        let own = known.searches_numbers && !setting.numbers.is_empty();
        let searches = if own { Searches::default() } else { known.searches.clone() };
        let shared = Arc::new((machine, searches));
        bound(&mut worker.machines);
        worker.machines.insert(key, Arc::clone(&shared));
        Ok(shared)
    }
}

/// The case, where numbers of it change that are no machine's.
fn changed(setting: &Setting, machine: &Machine, model: &Model) -> Result<Option<Case>> {
    if setting.others.is_empty() {
        return Ok(None);
    }
    let partition = Partition::tensor(setting.tp);
    let mut case = Case::new(machine.clone(), model.clone(), setting.workload(), partition, setting.launch);
    case.environment.clone_from(&setting.environment);
    for (path, change) in &setting.others {
        change_case(&mut case, path, *change)?;
    }
    Ok(Some(case))
}

fn value_span(axis: &super::grid::Axis) -> std::ops::Range<usize> {
    match &axis.source {
        Source::Listed(values) => values.first().map_or(axis.span.clone(), |placed| placed.span.clone()),
        Source::Drawn(_, span) => span.clone(),
    }
}

/// Random sweeps never meet a machine twice: what is kept does not grow with them.
fn bound<K: Ord, V>(kept: &mut BTreeMap<K, V>) {
    if kept.len() >= KEPT_MAX {
        kept.clear();
    }
}

/// As CSV has it: quoted where it must be.
pub fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\"").replace(['\n', '\r'], " "))
    } else {
        text.to_owned()
    }
}
