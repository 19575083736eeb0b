//! The diagnosis: explanations in classes that the observations cannot tell
//! apart, what tells them apart, what contradicts what, and what to do first.

use crate::error::Fault;
use crate::error::Result;
use crate::import::facts::Facts;

use super::contradiction::Contradiction;
use super::contradiction::contradictions;
use super::fit::Space;
use super::fit::sigmas;
use super::forecast::Figures;
use super::hypothesis::ALL;
use super::kind::Kind;
use super::observed::Observations;
use super::scenario::Setup;
use super::search::Explanation;
use super::search::Found;
use super::search::PRICE_OF_A_FAULT;
use super::search::Pairs;
use super::search::Simulator;
use super::search::search;

/// Explanations whose forecasts of what was observed differ by less than this are one class, squared sigmas.
const SAME: f64 = 1.0;

/// Sigmas by which a check must tell two explanations apart.
const TELLS: f64 = 3.0;

/// Explanations that are shown and put in classes.
const SHOWN: usize = 12;

/// What the price of a fault becomes when a file shows it: a file outweighs that many squared sigmas of forecast.
const PRICE_IF_SEEN: f64 = -20.0;

/// A rival explanation that scores worse by more than this needs no check of its own.
const RIVAL: f64 = 10.0;

/// A check that tells explanations apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// What to run.
    pub command: String,
    /// How long it takes.
    pub minutes: u32,
    /// What it tells, in words.
    pub tells: String,
}

/// Explanations that the observations cannot tell apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Places in [`Found::ranked`], best first.
    pub members: Vec<usize>,
    /// The cheapest check that tells the first two apart, or the only one from a healthy server.
    pub check: Option<Check>,
}

/// The answer.
pub struct Diagnosis {
    /// What was observed.
    pub observations: Observations,
    /// Explanations in order, and what was left out.
    pub found: Found,
    /// The healthy server's forecasts.
    pub healthy: Figures,
    /// The best explanations in classes, best first.
    pub classes: Vec<Class>,
    /// What files say of hypotheses: place, whether it is so, where it stands.
    pub seen: Vec<(usize, bool, String)>,
    /// What cannot hold together on a healthy server.
    pub contradictions: Vec<Contradiction>,
    /// Forecasts of `kinds` by the best explanation of each kind alone; see [`Diagnosis::alone`].
    pub kinds: Vec<Kind>,
    /// What a right forecast stays below, squared sigmas.
    pub acceptable: f64,
    /// Per kind: each single fault's best forecast were it to explain that kind alone.
    pub alone: Vec<(Kind, Vec<Explanation>)>,
}

impl Diagnosis {
    /// The best explanation.
    pub fn best(&self) -> &Explanation {
        &self.found.ranked[0]
    }

    /// Whether the server is as it should be, as far as the observations tell.
    pub fn is_healthy(&self) -> bool {
        self.best().faults.is_empty() && self.best().misfit <= self.acceptable
    }

    /// Whether anything fits.
    pub fn is_explained(&self) -> bool {
        self.best().misfit <= self.acceptable
    }

    /// What to run first.
    pub fn first_check(&self) -> Option<&Check> {
        self.classes.first().and_then(|class| class.check.as_ref())
    }
}

/// Diagnoses.
///
/// # Errors
/// `observed-none` without any observation, and everything that simulating the healthy server can meet.
pub fn diagnose(setup: &Setup<'_>, observations: Observations, facts: &Facts) -> Result<Diagnosis> {
    if observations.0.is_empty() {
        return Err(Fault::new("observed-none", "there is no observation to explain").help("give at least one: --observed decode_tps=82"));
    }
    let sizes: Vec<u64> =
        observations.kinds().into_iter().filter_map(|kind| if let Kind::AllreduceUs(b) = kind { Some(b) } else { None }).collect();
    let simulator = Simulator::new(setup, &sizes);
    let drafts = setup.tokens - 1;
    let space = Space::new(&observations, drafts);
    let seen: Vec<(usize, bool, String)> =
        ALL.iter().enumerate().filter_map(|(place, one)| (one.seen)(facts).map(|(so, text)| (place, so, text))).collect();
    let price = |hypothesis: usize| match seen.iter().find(|known| known.0 == hypothesis) {
        Some((_, false, _)) => None,
        Some((_, true, _)) => Some(PRICE_IF_SEEN),
        None => Some(PRICE_OF_A_FAULT),
    };
    let found = search(&simulator, &space, &price, Pairs::Searched)?;
    let of_kinds = |kinds: &[Kind], pairs: Pairs| {
        let some = Observations(observations.0.iter().filter(|(kind, _)| kinds.contains(kind)).map(|(k, o)| (*k, o.clone())).collect());
        search(&simulator, &Space::new(&some, drafts), &price, pairs).map(|found| found.ranked).unwrap_or_default()
    };
    let contradictions = if space.misfit(&healthy_of(&found).point) > 2.0 {
        contradictions(&space, &healthy_of(&found).point, &of_kinds)
    } else {
        Vec::new()
    };
    let healthy = (*healthy_of(&found).figures).clone();
    let classes = classes(&space, &found);
    let telling = [Kind::VerifyMs, Kind::DecodeTps, Kind::SpecTps].into_iter().filter(|kind| observations.value(*kind).is_some());
    let single = |explanation: &Explanation| explanation.faults.len() == 1;
    let alone = telling.map(|kind| (kind, of_kinds(&[kind], Pairs::Left).into_iter().filter(single).collect())).collect();
    Ok(Diagnosis {
        kinds: space.kinds.clone(),
        acceptable: space.acceptable(),
        observations,
        found,
        healthy,
        classes,
        seen,
        contradictions,
        alone,
    })
}

fn healthy_of(found: &Found) -> &Explanation {
    found.ranked.iter().find(|explanation| explanation.faults.is_empty()).unwrap_or(&found.ranked[0])
}

fn classes(space: &Space, found: &Found) -> Vec<Class> {
    let mut classes: Vec<Class> = Vec::new();
    let shown = found.ranked.len().min(SHOWN);
    for place in 0..shown {
        let point = &found.ranked[place].point;
        let same = |class: &&mut Class| {
            let first = &found.ranked[class.members[0]];
            let step: Vec<f64> = first.point.iter().zip(point).map(|(a, b)| a - b).collect();
            first.faults.len() == found.ranked[place].faults.len() && space.form(&step, &step) < SAME
        };
        match classes.iter_mut().find(same) {
            Some(class) => class.members.push(place),
            None => classes.push(Class { members: vec![place], check: None }),
        }
    }
    let firsts: Vec<usize> = classes.iter().map(|class| class.members[0]).collect();
    for (index, class) in classes.iter_mut().enumerate() {
        let own = &found.ranked[class.members[0]];
        let near = |first: &&usize| **first != firsts[index] && found.ranked[**first].score < own.score + RIVAL;
        let rival = class.members.get(1).or(firsts.iter().find(near));
        let between = rival.and_then(|rival| check_between(space, own, &found.ranked[*rival]));
        class.check = between.or_else(|| own.faults.first().map(|fault| own_check(fault.0)));
    }
    classes
}

/// The command that tells of a hypothesis directly.
fn own_check(hypothesis: usize) -> Check {
    let one = ALL[hypothesis];
    Check { command: one.check.to_owned(), minutes: one.check_minutes, tells: format!("{} if it shows: {}", one.id, one.tells) }
}

/// The cheapest check that tells two explanations apart: a hypothesis's own, or a kind that was not observed.
fn check_between(space: &Space, one: &Explanation, other: &Explanation) -> Option<Check> {
    let has = |explanation: &Explanation, hypothesis: usize| explanation.faults.iter().any(|fault| fault.0 == hypothesis);
    let own = (one.faults.iter().chain(&other.faults)).filter(|fault| has(one, fault.0) != has(other, fault.0)).map(|fault| {
        let check = own_check(fault.0);
        (check.minutes, 0, check)
    });
    let unobserved = one.figures.keys().filter(|kind| !space.kinds.contains(kind) && sigmas(**kind, &one.figures, &other.figures) >= TELLS);
    let measured = unobserved.map(|kind| {
        let (command, minutes) = kind.measure();
        let value = |explanation: &Explanation| explanation.figures.get(kind).copied().unwrap_or(f64::NAN);
        let tells =
            format!("{kind} near {} speaks for {}, near {} for {}", digits(value(one)), title(one), digits(value(other)), title(other));
        (minutes, 1, Check { command, minutes, tells })
    });
    own.chain(measured).min_by_key(|(minutes, order, _)| (*minutes, *order)).map(|(_, _, check)| check)
}

/// Three significant digits.
pub fn digits(value: f64) -> String {
    let size = value.abs();
    let decimals = if size >= 100.0 {
        0
    } else if size >= 10.0 {
        1
    } else if size >= 1.0 {
        2
    } else {
        3
    };
    format!("{value:.decimals$}")
}

/// The faults' ids joined, or "healthy".
pub fn title(explanation: &Explanation) -> String {
    if explanation.faults.is_empty() {
        return "healthy".to_owned();
    }
    explanation.faults.iter().map(|fault| ALL[fault.0].id).collect::<Vec<_>>().join(" + ")
}

/// The levels in words: `share of the rate that is left 0.80`; empty where there are none.
pub fn levels(explanation: &Explanation) -> String {
    let with = explanation.faults.iter().filter(|fault| !ALL[fault.0].measure.is_empty());
    with.map(|fault| format!("{} {}", ALL[fault.0].measure, digits(fault.1))).collect::<Vec<_>>().join("; ")
}
