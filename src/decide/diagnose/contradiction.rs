//! Observations that cannot hold together: pairs that a healthy server cannot
//! show at once, and which faults could make both true.

use super::fit::Space;
use super::hypothesis::ALL;
use super::kind::Kind;
use super::search::Explanation;
use super::search::Pairs;

/// Squared sigmas from which a forecast of two observations is refused: one chance in fifty.
const REFUSED: f64 = 8.0;

/// Two observations that do not fit one healthy server.
#[derive(Clone, Debug, PartialEq)]
pub struct Contradiction {
    /// The two kinds.
    pub kinds: [Kind; 2],
    /// Squared sigmas between both and the healthy server.
    pub misfit: f64,
    /// Faults that each make both true, alone.
    pub joined_by: Vec<&'static str>,
    /// Pairs of faults that make both true where no single one does.
    pub joined_by_pairs: Vec<[&'static str; 2]>,
}

impl Contradiction {
    /// Whether no single fault joins the two.
    pub fn under_every_single(&self) -> bool {
        self.joined_by.is_empty()
    }
}

/// What a fault would mean, were it to explain one observation alone: its forecast of another.
#[derive(Clone, Debug, PartialEq)]
pub struct Consequence {
    /// Place of the hypothesis.
    pub hypothesis: usize,
    /// The level at which `of` comes nearest.
    pub level: f64,
    /// What is explained, and the forecast of it.
    pub of: (Kind, f64),
    /// What follows for the other.
    pub then: (Kind, f64),
}

/// All pairs of observations that a healthy server cannot show at once, worst first. `origin` is the healthy forecast of
/// all kinds, `search` explains some of them only.
pub fn contradictions(space: &Space, origin: &[f64], search: &dyn Fn(&[Kind], Pairs) -> Vec<Explanation>) -> Vec<Contradiction> {
    let mut found = Vec::new();
    for (index, &one) in space.kinds.iter().enumerate() {
        for &other in &space.kinds[index + 1..] {
            let ranked = search(&[one, other], Pairs::Left);
            let Some(healthy) = ranked.iter().find(|explanation| explanation.faults.is_empty()) else { continue };
            let keeps = |explanation: &&Explanation| explanation.misfit < REFUSED;
            // Each of the two alone must be possible, or it is no contradiction between them.
            if healthy.misfit < REFUSED || (alone(space, origin, one) && alone(space, origin, other)) {
                continue;
            }
            let singles = ranked.iter().filter(|explanation| explanation.faults.len() == 1);
            let joined_by: Vec<&str> = singles.filter(keeps).map(|one| ALL[one.faults[0].0].id).collect();
            let pairs = if joined_by.is_empty() { search(&[one, other], Pairs::Searched) } else { Vec::new() };
            let two = pairs.iter().filter(|explanation| explanation.faults.len() == 2).filter(keeps);
            let joined_by_pairs = two.map(|two| [ALL[two.faults[0].0].id, ALL[two.faults[1].0].id]).take(5).collect();
            found.push(Contradiction { kinds: [one, other], misfit: healthy.misfit, joined_by, joined_by_pairs });
        }
    }
    found.sort_by(|a, b| b.misfit.total_cmp(&a.misfit).then(a.kinds.cmp(&b.kinds)));
    found
}

/// Whether the healthy server alone already misses an observation: then the other has no part in it.
fn alone(space: &Space, origin: &[f64], kind: Kind) -> bool {
    let residual = space.residual(origin);
    space.form_of(&residual, &residual, |other| other == kind) >= REFUSED
}
