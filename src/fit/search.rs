//! The search behind a fit: slopes, what they pin, steps, thresholds.

use rayon::prelude::*;

use crate::error::Fault;
use crate::error::Result;
use crate::fit::bootstrap;
use crate::fit::constants::Constant;
use crate::fit::constants::Row;
use crate::fit::constants::Status;
use crate::fit::linear::Normal;
use crate::knob::Quantity;
use crate::machine::Machine;

/// Residuals beyond this weigh less than squares (8 %).
const HUBER: f64 = 0.08;
/// A constant whose standard deviation is a larger share of itself than this is not identified.
const IDENTIFIED: f64 = 0.6;
/// Rounds of Gauss–Newton at most.
const ROUNDS: usize = 12;
/// A round that gains less than this share of the loss is the last.
const GAIN: f64 = 2e-3;
/// Share of a constant by which it is moved to find its slopes.
const NUDGE: f64 = 0.01;
/// Least scale of a constant: this share of the width of its bounds.
const FLOOR: f64 = 0.02;
/// Values that a threshold is tried at: multiples of the one it has.
const THRESHOLD_FACTORS: [f64; 6] = [0.25, 0.5, 0.71, 1.41, 2.0, 4.0];

/// A constant that may move.
pub(super) struct Unknown {
    path: String,
    unit: &'static str,
    before: Quantity,
    bounds: (f64, f64),
    scale: f64,
    free: bool,
}

impl Unknown {
    /// A switch between two behaviours: no slope leads to its best value.
    fn is_threshold(&self) -> bool {
        self.path.ends_with("_from") || self.path.ends_with("_bytes")
    }
}

fn unknowns(machine: &Machine, paths: &[String]) -> Result<Vec<Unknown>> {
    let knobs = machine.knobs();
    (paths.iter())
        .map(|path| match knobs.iter().find(|(known, ..)| known == path) {
            None => Err(machine.clone().set(path, 0.0).err().unwrap_or_else(|| Fault::new("knob-unknown", path.clone()))),
            Some((_, spec, quantity)) => {
                let bounds = (*spec.bounds.start(), *spec.bounds.end());
                let scale = quantity.value.abs().max(FLOOR * (bounds.1 - bounds.0));
                Ok(Unknown { path: path.clone(), unit: spec.unit, before: (*quantity).clone(), bounds, scale, free: true })
            }
        })
        .collect()
}

/// One row's residual and slopes with respect to each unknown's scale.
struct Slopes {
    residual: f64,
    slopes: Vec<f64>,
}

/// A machine on its way to the best constants.
pub(super) struct Search<'a> {
    /// With the constants so far.
    pub machine: Machine,
    /// What is fitted.
    pub rows: Vec<Row<'a>>,
    /// What may move.
    pub unknowns: Vec<Unknown>,
    /// Rounds so far.
    pub rounds: usize,
}

impl<'a> Search<'a> {
    /// At the constants that the machine has.
    pub fn new(machine: &Machine, rows: Vec<Row<'a>>, paths: &[String]) -> Result<Search<'a>> {
        Ok(Search { machine: machine.clone(), rows, unknowns: unknowns(machine, paths)?, rounds: 0 })
    }

    fn value(&self, index: usize) -> f64 {
        let path = &self.unknowns[index].path;
        self.machine.knobs().iter().find(|(known, ..)| known == path).map_or(0.0, |(_, _, quantity)| quantity.value)
    }

    fn residuals(&self, machine: &Machine) -> Result<Vec<f64>> {
        self.rows.par_iter().map(|row| residual(row, machine)).collect()
    }

    /// Residuals and slopes of all rows; pairs known to be independent are skipped.
    fn slopes(&self, known: Option<&[Slopes]>) -> Result<Vec<Slopes>> {
        let nudged: Vec<Option<(Machine, f64)>> = (0..self.unknowns.len())
            .map(|index| {
                let unknown = &self.unknowns[index];
                if !unknown.free || unknown.is_threshold() {
                    return Ok(None);
                }
                let value = self.value(index);
                let step = NUDGE * unknown.scale;
                let to = if value + step <= unknown.bounds.1 { value + step } else { value - step };
                let mut machine = self.machine.clone();
                machine.set(&unknown.path, to)?;
                Ok(Some((machine, (to - value) / unknown.scale)))
            })
            .collect::<Result<_>>()?;
        (0..self.rows.len())
            .into_par_iter()
            .map(|index| {
                let base = residual(&self.rows[index], &self.machine)?;
                let slope = |(column, nudged): (usize, &Option<(Machine, f64)>)| match nudged {
                    Some((machine, step)) if known.is_none_or(|known| known[index].slopes[column] != 0.0) => {
                        Ok((residual(&self.rows[index], machine)? - base) / step)
                    }
                    _ => Ok(0.0),
                };
                Ok(Slopes { residual: base, slopes: nudged.iter().enumerate().map(slope).collect::<Result<_>>()? })
            })
            .collect()
    }

    /// Unknowns that may move: free, pinned, and not pushed out of their bounds.
    fn movable(&self, normal: &Normal, noise: f64) -> Vec<usize> {
        let mut keep: Vec<usize> =
            (0..self.unknowns.len()).filter(|&i| self.unknowns[i].free && !self.unknowns[i].is_threshold()).collect();
        // The least certain goes first; of two alike, the later one.
        while !keep.is_empty() {
            let spread = match normal.only(&keep).damped(1e-9).variances() {
                Some(variances) => variances,
                None => vec![f64::INFINITY; keep.len()],
            };
            let share = |place: usize| {
                let unknown = &self.unknowns[keep[place]];
                let size = self.value(keep[place]).abs().max(FLOOR * (unknown.bounds.1 - unknown.bounds.0));
                noise * libm::sqrt(spread[place]) * unknown.scale / size
            };
            let worst =
                (0..keep.len()).rev().fold(keep.len() - 1, |worst, place| if share(place) > 1.5 * share(worst) { place } else { worst });
            if share(worst) <= IDENTIFIED {
                break;
            }
            keep.remove(worst);
        }
        keep
    }

    /// Gauss–Newton until a round gains nothing.
    pub fn run(&mut self) -> Result<()> {
        let mut residuals = self.residuals(&self.machine)?;
        let mut damping = 1e-3;
        let mut known: Option<Vec<Slopes>> = None;
        for _ in 0..ROUNDS {
            self.rounds += 1;
            let slopes = self.slopes(known.as_deref())?;
            let normal = normal(&slopes, self.unknowns.len());
            let keep = self.movable(&normal, noise(&residuals));
            let before = loss(&residuals);
            let mut gained = 0.0;
            for _ in 0..6 {
                let Some(step) = self.step(&normal, &keep, damping) else { break };
                let machine = self.moved(&keep, &step)?;
                let tried = self.residuals(&machine)?;
                let after = loss(&tried);
                if after < before {
                    gained = 1.0 - after / before;
                    (self.machine, residuals) = (machine, tried);
                    damping = (damping / 5.0_f64).max(1e-6);
                    break;
                }
                damping = (damping * 8.0_f64).min(10.0);
            }
            known = known.or(Some(slopes));
            if gained < GAIN {
                break;
            }
        }
        Ok(())
    }

    /// The step of the unknowns in `keep`, in their scales. One that would
    /// leave its bounds is put on the bound, and the others are solved for again.
    fn step(&self, normal: &Normal, keep: &[usize], damping: f64) -> Option<Vec<f64>> {
        let mut moving: Vec<usize> = (0..keep.len()).collect();
        loop {
            let indices: Vec<usize> = moving.iter().map(|&place| keep[place]).collect();
            let found = normal.only(&indices).damped(damping).solve()?;
            let stuck = |(&index, step): (&usize, &f64)| {
                let (unknown, value) = (&self.unknowns[index], self.value(index));
                let edge = 1e-9 * (unknown.bounds.1 - unknown.bounds.0);
                (value <= unknown.bounds.0 + edge && *step < 0.0) || (value >= unknown.bounds.1 - edge && *step > 0.0)
            };
            match indices.iter().zip(&found).position(stuck) {
                Some(place) => {
                    moving.remove(place);
                    if moving.is_empty() {
                        return None;
                    }
                }
                None => {
                    let mut step = vec![0.0; keep.len()];
                    moving.iter().zip(found).for_each(|(&place, found)| step[place] = found);
                    return Some(step);
                }
            }
        }
    }

    /// The machine after a step, no constant moved by more than half of itself or out of its bounds.
    fn moved(&self, keep: &[usize], step: &[f64]) -> Result<Machine> {
        let mut machine = self.machine.clone();
        for (&index, step) in keep.iter().zip(step) {
            let (unknown, value) = (&self.unknowns[index], self.value(index));
            let most = 0.5 * value.abs().max(unknown.scale);
            let to = value + (step * unknown.scale).clamp(-most, most);
            machine.set(&unknown.path, to.clamp(unknown.bounds.0, unknown.bounds.1))?;
        }
        Ok(machine)
    }

    /// Tries thresholds at a few multiples of their values, the rest fitted again.
    pub fn thresholds(&mut self) -> Result<()> {
        for index in 0..self.unknowns.len() {
            if !self.unknowns[index].is_threshold() {
                continue;
            }
            let (path, bounds, value) = (self.unknowns[index].path.clone(), self.unknowns[index].bounds, self.value(index));
            let mut best = (loss(&self.residuals(&self.machine)?), self.machine.clone());
            let start = self.machine.clone();
            for factor in THRESHOLD_FACTORS {
                self.machine = start.clone();
                self.machine.set(&path, (value * factor).clamp(bounds.0, bounds.1))?;
                self.run()?;
                let tried = loss(&self.residuals(&self.machine)?);
                if tried < best.0 {
                    best = (tried, self.machine.clone());
                }
            }
            self.machine = best.1;
        }
        Ok(())
    }

    /// What the fit says of each constant.
    pub fn constants(&self) -> Result<Vec<Constant>> {
        let slopes = self.slopes(None)?;
        let normal = normal(&slopes, self.unknowns.len());
        let residuals: Vec<f64> = slopes.iter().map(|row| row.residual).collect();
        let keep = self.movable(&normal, noise(&residuals));
        let intervals = bootstrap::intervals(
            &slopes.iter().map(|row| (keep.iter().map(|&index| row.slopes[index]).collect(), row.residual)).collect::<Vec<_>>(),
            weight,
        );
        Ok((0..self.unknowns.len()).map(|index| self.constant(index, &keep, &intervals, &slopes)).collect())
    }

    fn constant(&self, index: usize, keep: &[usize], intervals: &[(f64, f64)], slopes: &[Slopes]) -> Constant {
        let (unknown, value) = (&self.unknowns[index], self.value(index));
        let place = keep.iter().position(|&kept| kept == index);
        let moved = (value - unknown.before.value).abs() > 1e-12;
        let edge = 1e-9 * (unknown.bounds.1 - unknown.bounds.0);
        let status = match place {
            _ if unknown.is_threshold() => Status::Searched,
            Some(_) if value <= unknown.bounds.0 + edge || value >= unknown.bounds.1 - edge => Status::AtBound,
            Some(_) => Status::Fitted,
            None => Status::Kept,
        };
        // Moved while it seemed pinned and not so any more: its interval is all that is known.
        let (low, high) = match place {
            Some(place) => (value + intervals[place].0 * unknown.scale, value + intervals[place].1 * unknown.scale),
            None if moved => (value.min(unknown.before.low), value.max(unknown.before.high)),
            None => (unknown.before.low, unknown.before.high),
        };
        let inside = |number: f64| number.clamp(unknown.bounds.0, unknown.bounds.1);
        let status = if status == Status::Kept && moved { Status::Fitted } else { status };
        Constant {
            path: unknown.path.clone(),
            unit: unknown.unit,
            before: unknown.before.clone(),
            value,
            low: inside(low.min(value)),
            high: inside(high.max(value)),
            status,
            pinned_by: self.pinned_by(index, slopes),
        }
    }

    /// The groups of rows with the largest squared slopes.
    fn pinned_by(&self, index: usize, slopes: &[Slopes]) -> String {
        let mut groups: std::collections::BTreeMap<String, f64> = std::collections::BTreeMap::new();
        for (row, slopes) in self.rows.iter().zip(slopes) {
            let o = row.observation;
            let name = match (o.algorithm.name(), o.protocol.name()) {
                ("auto", "auto") => format!("{} {} ranks", o.implementation, o.ranks),
                (algorithm, protocol) => format!("{algorithm} {protocol} {} ranks", o.ranks),
            };
            *groups.entry(name).or_default() += slopes.slopes[index] * slopes.slopes[index];
        }
        let total: f64 = groups.values().sum();
        if total <= 0.0 {
            return "no row depends on it".to_owned();
        }
        let mut order: Vec<(String, f64)> = groups.into_iter().collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1));
        let shown = order.iter().take(3).filter(|(_, share)| *share > 0.05 * total);
        shown.map(|(name, share)| format!("{name} {:.0} %", share / total * 100.0)).collect::<Vec<_>>().join(", ")
    }
}

fn residual(row: &Row<'_>, machine: &Machine) -> Result<f64> {
    let (us, _) = row.prepared.simulate(machine)?;
    Ok(libm::log(us.max(1e-6) / row.observation.latency_us))
}

/// Huber's weight of a residual.
fn weight(residual: f64) -> f64 {
    (HUBER / residual.abs().max(1e-12)).min(1.0)
}

fn loss(residuals: &[f64]) -> f64 {
    residuals.iter().map(|r| if r.abs() < HUBER { r * r / 2.0 } else { HUBER * (r.abs() - HUBER / 2.0) }).sum()
}

/// Robust standard deviation of residuals: 1.48 medians of their sizes, at least 1 %.
fn noise(residuals: &[f64]) -> f64 {
    let mut sizes: Vec<f64> = residuals.iter().map(|residual| residual.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.get(sizes.len() / 2).map_or(0.01, |median| (1.48 * median).max(0.01))
}

fn normal(slopes: &[Slopes], size: usize) -> Normal {
    let mut normal = Normal::new(size);
    for row in slopes {
        normal.add(&row.slopes, -row.residual, weight(row.residual));
    }
    normal
}
