//! What the runs of a campaign prove, of each factor and each alone.
//!
//! - Two runs that differ in one factor isolate it. Nothing else does.
//! - A failure that differs in more than one thing from every run that works
//!   implicates none of them, unless its message names some: those are
//!   implicated, and the others were not tried by it.
//! - What moved unnoticed (a variable, a version, a clock) counts as a factor.
//! - A difference inside the noise proves nothing.

use std::collections::BTreeMap;

use super::difference::Difference;
use super::difference::differences;
use super::ledger::Ledger;
use super::ledger::Outcome;
use super::ledger::Run;

/// Deviations from which a difference counts.
const SIGMAS: f64 = 2.0;

/// What isolated comparisons say of a factor. Only these are verdicts of isolation.
#[derive(Clone, Debug, PartialEq)]
pub enum Isolated {
    /// It changes the measure: gain in percent (below zero is a loss), its deviation, the runs compared.
    Changes {
        /// Percent better.
        gain_pct: f64,
        /// One deviation.
        sigma_pct: f64,
        /// Ids (without, with).
        runs: Vec<(u64, u64)>,
    },
    /// The difference lies inside the noise.
    Nothing {
        /// Percent better.
        gain_pct: f64,
        /// One deviation.
        sigma_pct: f64,
        /// Ids (without, with).
        runs: Vec<(u64, u64)>,
    },
    /// It alone makes the server fail.
    Fails {
        /// Ids (works, fails).
        runs: Vec<(u64, u64)>,
    },
    /// Some comparisons fail and others do not.
    Mixed {
        /// Ids (works, fails).
        fails: Vec<(u64, u64)>,
        /// Ids (without, with) that were measured.
        works: Vec<(u64, u64)>,
    },
}

/// All that is known of a factor.
#[derive(Clone, Debug, PartialEq)]
pub struct FactorVerdict {
    /// Its id.
    pub factor: String,
    /// What isolated comparisons say.
    pub isolated: Option<Isolated>,
    /// Runs that worked with it on, whatever else was.
    pub serves_in: Vec<u64>,
    /// Failed runs whose message names it.
    pub implicated_in: Vec<u64>,
    /// Failed runs with it on that say nothing of it.
    pub open_in: Vec<u64>,
}

impl FactorVerdict {
    /// Whether it was on in a failed run that says nothing of it, and in nothing else that tells.
    pub fn is_open(&self) -> bool {
        self.isolated.is_none() && self.serves_in.is_empty() && self.implicated_in.is_empty() && !self.open_in.is_empty()
    }

    /// Whether it must be taken for broken until somebody mends it.
    pub fn is_broken(&self) -> bool {
        matches!(self.isolated, Some(Isolated::Fails { .. })) || (!self.implicated_in.is_empty() && self.serves_in.is_empty())
    }
}

/// What one run proves and does not.
#[derive(Clone, Debug, PartialEq)]
pub struct RunVerdict {
    /// Its id.
    pub run: u64,
    /// Sentences.
    pub says: Vec<String>,
}

/// Everything.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// By factor, in the file's order.
    pub factors: Vec<FactorVerdict>,
    /// By run, by id.
    pub runs: Vec<RunVerdict>,
}

/// Draws the conclusions. The order of entries in the file does not matter.
pub fn status(ledger: &Ledger) -> Status {
    let runs = ledger.sorted();
    let factors = ledger.factors.iter().map(|factor| of_factor(ledger, &runs, &factor.id)).collect();
    let runs = runs.iter().map(|run| RunVerdict { run: run.id, says: says(ledger, &runs, run) }).collect();
    Status { factors, runs }
}

/// Whether two runs differ in this factor and in nothing else.
fn isolates(ledger: &Ledger, a: &Run, b: &Run, factor: &str) -> bool {
    matches!(differences(ledger, a, b).as_slice(), [Difference::Factor(id)] if id == factor)
}

fn of_factor(ledger: &Ledger, runs: &[&Run], factor: &str) -> FactorVerdict {
    let with = || runs.iter().filter(|run| run.factors.contains(factor));
    let pairs: Vec<(&Run, &Run)> =
        with().flat_map(|on| runs.iter().filter(|off| isolates(ledger, off, on, factor)).map(move |off| (*off, *on))).collect();
    let ids = |pairs: &[(&Run, &Run)]| {
        let mut ids: Vec<(u64, u64)> = pairs.iter().map(|(off, on)| (off.id, on.id)).collect();
        ids.sort_unstable();
        ids
    };
    let measured: Vec<(&Run, &Run)> = pairs.iter().filter(|(off, on)| off.value.is_some() && on.value.is_some()).copied().collect();
    let failed: Vec<(&Run, &Run)> = pairs.iter().filter(|(off, on)| off.outcome.works() && on.outcome.fails()).copied().collect();
    let isolated = match (measured.is_empty(), failed.is_empty()) {
        (true, true) => None,
        (true, false) => Some(Isolated::Fails { runs: ids(&failed) }),
        (false, false) => Some(Isolated::Mixed { fails: ids(&failed), works: ids(&measured) }),
        (false, true) => Some(compared(ledger, &measured, ids(&measured))),
    };
    let names = |run: &&&Run| named(ledger, run).contains(&factor.to_owned());
    let isolating = |run: &&&Run| failed.iter().any(|(_, on)| on.id == run.id);
    let failures = || with().filter(|run| run.outcome.fails());
    FactorVerdict {
        factor: factor.to_owned(),
        isolated,
        serves_in: with().filter(|run| run.outcome.works()).map(|run| run.id).collect(),
        implicated_in: failures().filter(names).map(|run| run.id).collect(),
        open_in: failures().filter(|run| !names(run) && !isolating(run)).map(|run| run.id).collect(),
    }
}

/// The mean gain of all pairs, and the mean of their deviations: pairs share runs, so more pairs promise no more.
fn compared(ledger: &Ledger, pairs: &[(&Run, &Run)], runs: Vec<(u64, u64)>) -> Isolated {
    let mut sorted = pairs.to_vec();
    sorted.sort_by_key(|(off, on)| (off.id, on.id));
    let count = sorted.len() as f64;
    let (mut gain, mut sigma) = (0.0, 0.0);
    for (off, on) in sorted {
        gain += gain_of(ledger, off, on) / count;
        sigma += scatter(ledger, off, on) / count;
    }
    let (gain_pct, sigma_pct) = (percent(gain), 100.0 * sigma);
    if libm::fabs(gain) > SIGMAS * sigma {
        Isolated::Changes { gain_pct, sigma_pct, runs }
    } else {
        Isolated::Nothing { gain_pct, sigma_pct, runs }
    }
}

fn gain_of(ledger: &Ledger, off: &Run, on: &Run) -> f64 {
    match (off.value, on.value) {
        (Some(old), Some(new)) => ledger.measure.gain(old, new),
        _ => 0.0,
    }
}

fn scatter(ledger: &Ledger, off: &Run, on: &Run) -> f64 {
    let (a, b) = (off.scatter(ledger.noise_pct), on.scatter(ledger.noise_pct));
    libm::sqrt(a * a + b * b)
}

/// A logarithmic gain in percent of the old value.
fn percent(gain: f64) -> f64 {
    100.0 * (libm::exp(gain) - 1.0)
}

/// Factors of a failed run that its message or log names.
fn named(ledger: &Ledger, run: &Run) -> Vec<String> {
    let text = format!("{}\n{}", run.message, run.log).to_lowercase();
    let says = |word: &String| !word.is_empty() && text.contains(&word.to_lowercase());
    let on = run.factors.iter().filter_map(|id| ledger.factor(id));
    on.filter(|factor| factor.named_by.iter().any(says)).map(|factor| factor.id.clone()).collect()
}

/// The run among `others` that differs least; ties go to the smaller id.
fn nearest<'a>(ledger: &Ledger, run: &Run, others: impl Iterator<Item = &'a Run>) -> Option<(&'a Run, Vec<Difference>)> {
    let compared = others.map(|other| (other, differences(ledger, other, run)));
    compared.min_by_key(|(other, differences)| (differences.len(), other.id))
}

fn says(ledger: &Ledger, runs: &[&Run], run: &Run) -> Vec<String> {
    match run.outcome {
        Outcome::Interrupted => vec!["it was ended before it could tell: it proves nothing".to_owned()],
        _ if run.outcome.works() => of_work(ledger, runs, run),
        _ => of_failure(ledger, runs, run),
    }
}

fn joined(differences: &[Difference]) -> String {
    differences.iter().map(Difference::words).collect::<Vec<_>>().join(", ")
}

fn of_failure(ledger: &Ledger, runs: &[&Run], run: &Run) -> Vec<String> {
    let what = match run.outcome {
        Outcome::Hang => "the hang",
        Outcome::Wrong => "the wrong result",
        _ => "the crash",
    };
    let named = named(ledger, run);
    let working = runs.iter().copied().filter(|other| other.outcome.works());
    let Some((reference, differing)) = nearest(ledger, run, working) else {
        return vec![format!("no run is known to work: {what} may have nothing to do with what was changed")];
    };
    let mut says = Vec::new();
    if !named.is_empty() {
        says.push(format!("its message names {}: implicated", named.join(", ")));
        let others: Vec<&String> = run.factors.iter().filter(|id| !named.contains(id)).collect();
        for other in others {
            says.push(format!("says nothing of {other}: still untested"));
        }
    }
    match differing.as_slice() {
        [] => says.push(format!(
            "nothing that was recorded differs from run {}, which works: {what} comes and goes, or its cause was not recorded",
            reference.id
        )),
        [one] => says.push(format!("differs from run {}, which works, in {} alone: {what} is its doing", reference.id, one.words())),
        many if named.is_empty() => says.push(format!(
            "differs from run {}, which works, in {} things ({}): {what} implicates none of them and clears none",
            reference.id,
            many.len(),
            joined(many)
        )),
        many => says.push(format!("differs from run {}, which works, in {} things ({})", reference.id, many.len(), joined(many))),
    }
    says
}

fn of_work(ledger: &Ledger, runs: &[&Run], run: &Run) -> Vec<String> {
    let mut says = Vec::new();
    if !run.factors.is_empty() {
        let factors: Vec<&str> = run.factors.iter().map(String::as_str).collect();
        says.push(format!("the server works with {}", factors.join(", ")));
    }
    let Some(value) = run.value else {
        says.push("nothing was measured: it says nothing of speed".to_owned());
        return says;
    };
    let others = runs.iter().copied().filter(|other| other.value.is_some() && other.id != run.id);
    let Some((reference, differing)) = nearest(ledger, run, others) else {
        says.push(format!("{} = {value}: the first measurement, to compare others with", ledger.measure.name()));
        return says;
    };
    let (gain, sigma) = (gain_of(ledger, reference, run), scatter(ledger, reference, run));
    let change = format!("{:+.1} % against run {} (noise {:.1} %)", percent(gain), reference.id, 100.0 * SIGMAS * sigma);
    says.push(match (differing.as_slice(), libm::fabs(gain) > SIGMAS * sigma) {
        ([], true) => format!("{change}, though nothing that was recorded differs: something moves that nobody records"),
        ([], false) => format!("{change}: a repetition, as it should be"),
        (_, false) if differing.len() == 1 => format!("{change}: {} proves to change nothing beyond the noise", joined(&differing)),
        ([one], true) => format!("{change}: the doing of {}", one.words()),
        (many, _) => {
            format!("{change}: confounded, {} things differ ({}), so it is the doing of none in particular", many.len(), joined(many))
        }
    });
    says
}

/// Runs by what moved in them against the others, for reports: names that differ anywhere.
pub fn moved_names(ledger: &Ledger) -> Vec<String> {
    let mut names = BTreeMap::new();
    let runs = ledger.sorted();
    for (index, a) in runs.iter().enumerate() {
        for b in &runs[index + 1..] {
            for difference in differences(ledger, a, b) {
                if let Difference::Moved(name, _, _) = difference {
                    names.insert(name, ());
                }
            }
        }
    }
    names.into_keys().collect()
}
