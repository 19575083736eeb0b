//! How many tokens a cycle yields: chances of acceptance, chains and trees.
//!
//! `chance(i)` is the chance that the draft at position `i` is right, all
//! before it being right. A chain of K drafts yields
//! `E = 1 + Σ_{k=1..K} Π_{i≤k} chance(i)` tokens (the 1 is the target's own).
//! In a tree the first candidate of a place is right with `chance(i)`, each
//! further one with `sibling` where those before it at its place are wrong; the
//! nodes kept are those with the largest products along their paths, as
//! EAGLE-2's dynamic trees keep them, and E is 1 plus the sum of their products.

use std::collections::BTreeMap;

use crate::case::SpeculationConstants;
use crate::error::Fault;
use crate::error::Result;
use crate::import::serving::ServingObservation;

/// Positions for which a chance is kept.
const POSITIONS: usize = 64;

/// Chances of acceptance by position.
#[derive(Clone, Debug, PartialEq)]
pub struct Acceptance {
    /// Chance of each position, all before it being right.
    chances: Vec<f64>,
    /// Beyond the last of `chances`: the factor from one position to the next.
    decay: f64,
    /// Chance of each further candidate of a tree's place.
    sibling: f64,
}

/// What is drafted and verified in one cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Draft steps: K of a chain, depth of a tree.
    pub steps: u64,
    /// Candidates kept at each place; 1 is a chain.
    pub width: u64,
    /// Tokens of a sequence in the verify pass, the root included.
    pub verified: u64,
}

impl Shape {
    /// A chain of `steps` drafts.
    pub fn chain(steps: u64) -> Shape {
        Shape { steps, width: 1, verified: steps + 1 }
    }
}

impl Acceptance {
    /// One rate for every position, falling by the decay of the constants.
    pub fn rate(constants: &SpeculationConstants) -> Acceptance {
        Acceptance::at(constants, constants.acceptance.value)
    }

    /// The same with another rate for the first position.
    pub fn at(constants: &SpeculationConstants, rate: f64) -> Acceptance {
        let rate = rate.clamp(0.0, 1.0);
        Acceptance { chances: vec![rate], decay: constants.acceptance_decay.value, sibling: constants.sibling.value }
    }

    /// From the share of cycles in which each position was accepted, as vLLM prints it.
    ///
    /// # Errors
    /// `speculate-acceptance` for shares outside 0 to 1 or that grow with the position.
    pub fn shares(shares: &[f64], constants: &SpeculationConstants) -> Result<Acceptance> {
        let mut before = 1.0;
        let mut chances = Vec::new();
        for (position, &share) in shares.iter().enumerate().take(POSITIONS) {
            if !(0.0..=before).contains(&share) {
                return Err(Fault::new("speculate-acceptance", format!("position {} is accepted in a share of {share} of the cycles, after {before}", position + 1))
                    .help("expected for each position the share of cycles in which it was accepted: from 0 to 1, never more than the position before"));
            }
            chances.push(if before > 0.0 { share / before } else { 0.0 });
            before = share;
        }
        if chances.is_empty() {
            return Err(Fault::new("speculate-acceptance", "no position has a share").help("for example --acceptance 0.7,0.45,0.3"));
        }
        Ok(Acceptance { chances, decay: constants.acceptance_decay.value, sibling: constants.sibling.value })
    }

    /// The one rate with which a chain of `drafts` yields `length` tokens a cycle.
    ///
    /// # Errors
    /// `speculate-acceptance` when no rate does.
    pub fn length(length: f64, drafts: u64, constants: &SpeculationConstants) -> Result<Acceptance> {
        if drafts == 0 || !(1.0..=drafts as f64 + 1.0).contains(&length) {
            return Err(Fault::new("speculate-acceptance", format!("{length} tokens a cycle cannot come from {drafts} drafts"))
                .help("the accepted length counts the target's own token: from 1 to drafts + 1"));
        }
        let flat = SpeculationConstants { acceptance_decay: crate::knob::Quantity::exact(1.0, "one rate"), ..constants.clone() };
        let rate = bisect(|rate| Acceptance::at(&flat, rate).tokens(Shape::chain(drafts)) - length);
        Ok(Acceptance::at(&flat, rate.unwrap_or(1.0)))
    }

    /// From a benchmark: shares by position where it has them, else the accepted
    /// length or share, for which `drafts` must be known.
    ///
    /// # Errors
    /// `speculate-acceptance` when the run does not tell.
    pub fn observed(run: &ServingObservation, drafts: u64, constants: &SpeculationConstants) -> Result<Acceptance> {
        if !run.acceptance.is_empty() {
            return Acceptance::shares(&run.acceptance, constants);
        }
        let counted = match (run.number("draft_tokens"), run.number("drafts")) {
            (Some(tokens), Some(cycles)) if cycles > 0.0 => libm::round(tokens / cycles) as u64,
            _ => drafts,
        };
        if let Some(length) = run.number("accepted_length") {
            return Acceptance::length(length, counted, constants);
        }
        let pct = run.number("acceptance_pct").ok_or_else(|| {
            Fault::new("speculate-acceptance", format!("the run of {} tells no acceptance", run.source))
                .help("expected acceptance_per_position, accepted_length or acceptance_pct")
        })?;
        Acceptance::length(1.0 + counted as f64 * pct / 100.0, counted, constants)
    }

    /// Chance of the draft at a position (from 0), all before it being right.
    pub fn chance(&self, position: usize) -> f64 {
        match self.chances.get(position) {
            Some(chance) => *chance,
            None => {
                let last = self.chances.last().copied().unwrap_or(0.0);
                last * libm::pow(self.decay, (position + 1 - self.chances.len()) as f64)
            }
        }
    }

    /// Every chance times `factor`, at most 1.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Acceptance {
        Acceptance { chances: self.chances.iter().map(|chance| (chance * factor).clamp(0.0, 1.0)).collect(), ..self.clone() }
    }

    /// Tokens that a cycle yields on average, the target's own included.
    pub fn tokens(&self, shape: Shape) -> f64 {
        if shape.width <= 1 {
            let mut product = 1.0;
            let drafts = shape.steps.min(shape.verified.saturating_sub(1)) as usize;
            return 1.0
                + (0..drafts)
                    .map(|i| {
                        product *= self.chance(i);
                        product
                    })
                    .sum::<f64>();
        }
        1.0 + self.tree(shape).iter().map(|node| node.1).sum::<f64>()
    }

    /// Depth and path product of the nodes kept, best first.
    fn tree(&self, shape: Shape) -> Vec<(u64, f64)> {
        let budget = shape.verified.saturating_sub(1) as usize;
        let mut kept: Vec<(u64, f64)> = Vec::new();
        let mut open = self.children(0, 1.0, shape);
        while kept.len() < budget {
            let best = open.iter().enumerate().fold(None, |best: Option<(usize, (u64, f64))>, (at, node)| match best {
                Some((_, other)) if other.1 >= node.1 => best,
                _ => Some((at, *node)),
            });
            let Some((at, node)) = best else { break };
            open.remove(at);
            open.extend(self.children(node.0, node.1, shape));
            kept.push(node);
        }
        kept
    }

    fn children(&self, depth: u64, product: f64, shape: Shape) -> Vec<(u64, f64)> {
        if depth >= shape.steps {
            return Vec::new();
        }
        let first = self.chance(depth as usize);
        let rank = |j: u64| if j == 0 { first } else { (1.0 - first) * libm::pow(1.0 - self.sibling, (j - 1) as f64) * self.sibling };
        (0..shape.width).map(|j| (depth + 1, product * rank(j))).collect()
    }

    /// The factor on all chances (as the rate of the first position) at which a
    /// cycle yields `tokens`; None where even certain acceptance does not.
    pub fn rate_for(&self, tokens: f64, shape: Shape) -> Option<f64> {
        if tokens <= 1.0 {
            return Some(0.0);
        }
        let first = self.chance(0).max(1e-9);
        // Chances keep their ratios; those above 1 stay at 1.
        bisect(|rate| self.scaled(rate / first).tokens(shape) - tokens)
    }
}

/// Acceptance by batch, as benchmarks at several concurrencies give it.
#[derive(Clone, Debug, PartialEq)]
pub struct ByBatch {
    rows: BTreeMap<u64, Acceptance>,
    fallback: Acceptance,
}

impl ByBatch {
    /// The same at every batch.
    pub fn same(acceptance: Acceptance) -> ByBatch {
        ByBatch { rows: BTreeMap::new(), fallback: acceptance }
    }

    /// From runs; those that tell no acceptance are passed over.
    ///
    /// # Errors
    /// `speculate-acceptance` when no run tells one, or one tells nonsense.
    pub fn observed(runs: &[ServingObservation], drafts: u64, constants: &SpeculationConstants) -> Result<ByBatch> {
        let tells = |run: &&ServingObservation| {
            !run.acceptance.is_empty() || run.number("accepted_length").is_some_and(|l| l > 1.0) || run.number("acceptance_pct").is_some()
        };
        let mut rows = BTreeMap::new();
        for run in runs.iter().filter(tells) {
            let batch = run.number("concurrency").or_else(|| run.number("batch")).map_or(1, |n| (n as u64).max(1));
            rows.insert(batch, Acceptance::observed(run, drafts, constants)?);
        }
        let fallback = rows.values().next().cloned().ok_or_else(|| {
            Fault::new("speculate-acceptance", "no run of the file tells an acceptance")
                .help("expected acceptance_per_position, accepted_length above 1 or acceptance_pct")
        })?;
        Ok(ByBatch { rows, fallback })
    }

    /// That of the batch whose size is nearest by ratio.
    pub fn of(&self, batch: u64) -> &Acceptance {
        let distance = |other: u64| (libm::log(other as f64) - libm::log(batch.max(1) as f64)).abs();
        let nearest = self.rows.iter().min_by(|a, b| distance(*a.0).total_cmp(&distance(*b.0)));
        nearest.map_or(&self.fallback, |(_, acceptance)| acceptance)
    }
}

/// Where a function that grows with its argument from 0 to 1 crosses zero.
fn bisect(function: impl Fn(f64) -> f64) -> Option<f64> {
    let (mut low, mut high) = (0.0, 1.0);
    if function(high) < -1e-12 {
        return None;
    }
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if function(middle) < 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(rate: f64) -> Acceptance {
        Acceptance { chances: vec![rate], decay: 1.0, sibling: 0.5 }
    }

    /// 1 + 0.5 + 0.25 + 0.125.
    #[test]
    fn a_chain_yields_a_geometric_sum() {
        assert!((flat(0.5).tokens(Shape::chain(3)) - 1.875).abs() < 1e-12);
        assert_eq!(flat(0.5).tokens(Shape::chain(0)), 1.0);
        assert_eq!(flat(1.0).tokens(Shape::chain(4)), 5.0);
    }

    /// Two drafts of 0.5 and the same with two candidates a place (second: 0.5 × 0.5 = 0.25), three nodes kept:
    /// 0.5, then the best of {0.25 second of the root, 0.25 first below}, both: 1 + 0.5 + 0.25 + 0.25.
    #[test]
    fn a_tree_keeps_its_best_nodes() {
        let shape = Shape { steps: 2, width: 2, verified: 4 };
        assert!((flat(0.5).tokens(shape) - 2.0).abs() < 1e-12);
        // A tree of one candidate a place is a chain.
        assert_eq!(flat(0.5).tokens(Shape { width: 1, ..shape }), flat(0.5).tokens(Shape::chain(2)));
    }

    /// vLLM's shares 0.7, 0.35: the second is right in half of the cycles in which the first is. 1 + 0.7 + 0.35.
    #[test]
    fn shares_become_chances() {
        let constants = SpeculationConstants::default();
        let acceptance = Acceptance::shares(&[0.7, 0.35], &constants).expect("falls");
        assert!((acceptance.chance(1) - 0.5).abs() < 1e-12);
        assert!((acceptance.tokens(Shape::chain(2)) - 2.05).abs() < 1e-12);
        assert!(Acceptance::shares(&[0.3, 0.4], &constants).is_err() && Acceptance::shares(&[], &constants).is_err());
    }

    /// 0.316 of three drafts: 1.948 tokens, a + a² + a³ = 0.948, a = 0.526.
    #[test]
    fn a_length_becomes_a_rate() {
        let constants = SpeculationConstants::default();
        let acceptance = Acceptance::length(1.948, 3, &constants).expect("possible");
        assert!((acceptance.chance(0) - 0.526).abs() < 1e-3, "{}", acceptance.chance(0));
        assert!((acceptance.tokens(Shape::chain(3)) - 1.948).abs() < 1e-9);
        assert!(Acceptance::length(4.5, 3, &constants).is_err());
    }

    #[test]
    fn the_nearest_batch_counts() {
        let run = |batch: f64, length: f64| ServingObservation {
            numbers: [("concurrency", batch), ("accepted_length", length)].into_iter().collect(),
            ..ServingObservation::default()
        };
        let constants = SpeculationConstants::default();
        let table = ByBatch::observed(&[run(1.0, 2.0), run(128.0, 2.5), ServingObservation::default()], 3, &constants).expect("two tell");
        assert!((table.of(2).tokens(Shape::chain(3)) - 2.0).abs() < 1e-9);
        assert!((table.of(64).tokens(Shape::chain(3)) - 2.5).abs() < 1e-9);
        assert!(ByBatch::observed(&[], 3, &constants).is_err());
    }

    proptest::proptest! {
        /// More acceptance, more steps or more nodes never yield fewer tokens; E stays within 1 and the depth + 1.
        #[test]
        fn tokens_are_bounded_and_grow(rate in 0.0f64..=1.0, steps in 0u64..8, width in 1u64..5, extra in 0u64..12) {
            let shape = Shape { steps, width, verified: steps + 1 + if width > 1 { extra } else { 0 } };
            let tokens = flat(rate).tokens(shape);
            proptest::prop_assert!(tokens >= 1.0 - 1e-12 && tokens <= steps as f64 + 1.0 + 1e-9, "{}", tokens);
            proptest::prop_assert!(flat((rate + 0.1).min(1.0)).tokens(shape) >= tokens - 1e-9);
            if let Some(back) = flat(0.5).rate_for(tokens, Shape::chain(steps.max(1))) {
                proptest::prop_assert!((0.0..=1.0).contains(&back));
            }
        }
    }
}
