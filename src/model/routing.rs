//! How many distinct experts a pass touches: exact expectations.
//!
//! A token is sent to `top_k` of `experts` experts. Expert `i` of popularity
//! rank `i` has the weight `(i+1)^-skew`; its chance `π_i` to be among a
//! token's choices is proportional to it, cut at 1, with `Σ π_i = top_k`.
//! The first token of a sequence chooses afresh; each later one repeats the
//! choice of the token before with probability `repeat`, else chooses afresh.
//! So expert `i` stays untouched by one sequence of `T` tokens with
//! `(1-π_i) · (repeat + (1-repeat)(1-π_i))^(T-1)`, and by `B` independent
//! sequences with that to the power `B`. Even and independent, the sum over
//! experts is the familiar `E · (1 - (1-k/E)^T)`.
//!
//! Only + − × ÷ and `libm::pow` are used, in a fixed order.

use crate::constants;
use crate::error::Fault;
use crate::error::Result;

constants! {
    /// How tokens choose experts; knobs of the workload.
    pub struct RoutingConstants {
        /// Zipf exponent of the experts' popularity; 0 is even.
        expert_skew: "1", 0.0..=3.0, default 0.0 in 0.0..=0.6, "assumed: routers are trained towards even load; interval covers skewed domains";
        /// Chance that a token repeats the experts of the token before it.
        token_repeat: "1", 0.0..=1.0, default 0.0 in 0.0..=0.3, "assumed: independent tokens; interval covers the overlap of neighbouring tokens";
    }
}

impl RoutingConstants {
    /// The values alone.
    pub fn routing(&self) -> Routing {
        Routing { skew: self.expert_skew.value, repeat: self.token_repeat.value }
    }
}

/// See the module's head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing {
    /// Zipf exponent of popularity.
    pub skew: f64,
    /// Chance to repeat the choice of the token before.
    pub repeat: f64,
}

impl Routing {
    /// Even popularity, independent tokens.
    pub const EVEN: Routing = Routing { skew: 0.0, repeat: 0.0 };

    /// Refuses values outside the knobs' bounds.
    ///
    /// # Errors
    /// `workload-bad-value`.
    pub fn check(&self) -> Result<()> {
        if !(0.0..=3.0).contains(&self.skew) {
            return Err(Fault::new("workload-bad-value", format!("the experts' skew must be from 0 to 3, not {}", self.skew)));
        }
        if !(0.0..=1.0).contains(&self.repeat) {
            return Err(Fault::new("workload-bad-value", format!("the tokens' repetition must be from 0 to 1, not {}", self.repeat)));
        }
        Ok(())
    }
}

/// Chance of each expert, by popularity rank, to be among one token's choices.
pub fn inclusion(experts: u64, top_k: u64, skew: f64) -> Vec<f64> {
    let top_k = top_k.min(experts);
    if skew <= 0.0 {
        return vec![top_k as f64 / experts.max(1) as f64; experts as usize];
    }
    let weights: Vec<f64> = (0..experts).map(|i| libm::pow((i + 1) as f64, -skew)).collect();
    let mut rest: f64 = weights.iter().rev().sum();
    let mut certain = 0;
    while certain < top_k as usize && weights[certain] * (top_k as usize - certain) as f64 > rest {
        rest -= weights[certain];
        certain += 1;
    }
    let scale = (top_k as usize - certain) as f64 / rest.max(f64::MIN_POSITIVE);
    weights.iter().enumerate().map(|(i, w)| if i < certain { 1.0 } else { (w * scale).min(1.0) }).collect()
}

/// Chance of each expert, by popularity rank, to be touched by `batch`
/// sequences of `tokens` tokens.
pub fn touched(experts: u64, top_k: u64, batch: u64, tokens: u64, routing: Routing) -> Vec<f64> {
    let chances = inclusion(experts, top_k, routing.skew);
    let one = |p: f64| {
        let missed = 1.0 - p;
        let again = routing.repeat + (1.0 - routing.repeat) * missed;
        1.0 - power(missed * power(again, tokens.saturating_sub(1)), batch)
    };
    if routing.skew <= 0.0 {
        return vec![chances.first().map_or(0.0, |p| one(*p)); chances.len()];
    }
    chances.into_iter().map(one).collect()
}

/// Expected number of distinct experts that a pass touches, of all.
pub fn distinct(experts: u64, top_k: u64, batch: u64, tokens: u64, routing: Routing) -> f64 {
    touched(experts, top_k, batch, tokens, routing).iter().sum()
}

/// Expected number of distinct experts touched on the fullest of `ranks`
/// ranks, which hold `experts / ranks` experts each.
///
/// Even popularity: exact. By symmetry the set of touched experts is uniform
/// among those of its size, so the size's distribution (a Markov chain over
/// tokens) and the occupancy of a uniform set suffice.
///
/// Skewed: ranks are dealt the experts in turn by popularity, and experts are
/// taken as touched independently of one another with their exact chances. An
/// estimate; the test against drawn passes holds it within 5 %.
pub fn fullest(experts: u64, top_k: u64, batch: u64, tokens: u64, routing: Routing, ranks: u64) -> f64 {
    if ranks <= 1 {
        return distinct(experts, top_k, batch, tokens, routing);
    }
    let chances = touched(experts, top_k, batch, tokens, routing);
    if routing.skew > 0.0 || experts > EXACT_EXPERTS || !experts.is_multiple_of(ranks) || batch.saturating_mul(tokens) > EXACT_TOKENS {
        return fullest_independent(&chances, ranks);
    }
    let sizes = size_distribution(experts as usize, top_k.min(experts) as usize, batch, tokens, routing.repeat);
    let most = sizes.iter().rposition(|p| *p > 1e-15).unwrap_or(0);
    let peaks = expected_peaks(experts as usize, ranks as usize, most);
    sizes.iter().zip(&peaks).map(|(p, peak)| p * peak).sum()
}

/// Binomials up to `C(EXACT_EXPERTS, ·)` fit a double.
const EXACT_EXPERTS: u64 = 1000;
/// Beyond this nearly all experts are touched and the estimate is as good.
const EXACT_TOKENS: u64 = 512;

/// `chance[d]` that `d` distinct experts are touched, even popularity.
fn size_distribution(experts: usize, top_k: usize, batch: u64, tokens: u64, repeat: f64) -> Vec<f64> {
    let mut chance = vec![0.0; experts + 1];
    chance[0] = 1.0;
    // Of a fresh choice, `new` experts are not among the `d` touched before:
    // C(d, k-new) C(E-d, new) / C(E, k).
    let steps: Vec<Vec<f64>> = (0..=experts).map(|d| hypergeometric(experts, experts - d, top_k)).collect();
    for _ in 0..batch {
        for token in 0..tokens {
            let stay = if token == 0 { 0.0 } else { repeat };
            let mut next: Vec<f64> = chance.iter().map(|p| p * stay).collect();
            for (d, p) in chance.iter().enumerate().filter(|(_, p)| **p > 0.0) {
                for (new, q) in steps[d].iter().enumerate().filter(|(_, q)| **q > 0.0) {
                    next[d + new] += p * (1.0 - stay) * q;
                }
            }
            chance = next;
        }
    }
    chance
}

/// `chance[x]` that `x` of `draws` draws without replacement from `all` are
/// among the `marked`; by the ratio of neighbours, normalised.
fn hypergeometric(all: usize, marked: usize, draws: usize) -> Vec<f64> {
    let low = (draws + marked).saturating_sub(all);
    let high = draws.min(marked);
    let mut chance = vec![0.0; draws + 1];
    let mut term = 1.0;
    for (x, slot) in chance.iter_mut().enumerate().take(high + 1).skip(low) {
        *slot = term;
        let up = (marked - x) as f64 * (draws - x) as f64;
        let down = (x + 1) as f64 * (all + x + 1 - marked - draws) as f64;
        term *= up / down.max(1.0);
    }
    let sum: f64 = chance.iter().sum();
    chance.iter().map(|c| c / sum).collect()
}

/// `peak[d]`: expected fullest rank when a uniform set of `d` experts is touched.
fn expected_peaks(experts: usize, ranks: usize, most: usize) -> Vec<f64> {
    let share = experts / ranks;
    let row = |n: usize| {
        let mut row = vec![1.0; n + 1];
        for c in 1..=n {
            row[c] = row[c - 1] * (n - c + 1) as f64 / c as f64;
        }
        row
    };
    let (own, all) = (row(share), row(experts));
    let mut peaks = vec![0.0; most + 1];
    for level in 0..share.min(most) {
        // Ways to touch d experts with no rank above `level`.
        let mut ways = vec![0.0; most + 1];
        ways[0] = 1.0;
        for _ in 0..ranks {
            let mut next = vec![0.0; most + 1];
            for (d, w) in ways.iter().enumerate().filter(|(_, w)| **w > 0.0) {
                for (c, o) in own.iter().enumerate().take((level + 1).min(most + 1 - d)) {
                    next[d + c] += w * o;
                }
            }
            ways = next;
        }
        for (d, peak) in peaks.iter_mut().enumerate() {
            *peak += (1.0 - ways[d] / all[d]).max(0.0);
        }
    }
    peaks
}

/// E[max] = Σ P(max > level), ranks and experts independent.
fn fullest_independent(chances: &[f64], ranks: u64) -> f64 {
    let ranks = ranks as usize;
    let mut below = Vec::new();
    for rank in 0..ranks {
        let mut chance = vec![1.0];
        for p in chances.iter().skip(rank).step_by(ranks) {
            let mut next = vec![0.0; chance.len() + 1];
            for (count, c) in chance.iter().enumerate() {
                next[count] += c * (1.0 - p);
                next[count + 1] += c * p;
            }
            chance = next;
        }
        below.push(chance);
    }
    let top = below.iter().map(Vec::len).max().unwrap_or(1);
    let mut sums = vec![0.0; ranks];
    let mut expected = 0.0;
    for level in 0..top - 1 {
        let mut all = 1.0;
        for (sum, chance) in sums.iter_mut().zip(&below) {
            *sum += chance.get(level).copied().unwrap_or(0.0);
            all *= *sum;
        }
        expected += (1.0 - all).max(0.0);
    }
    expected
}

/// `base` to a whole power by squaring: + and × only.
fn power(base: f64, exponent: u64) -> f64 {
    let (mut result, mut square, mut rest) = (1.0, base, exponent);
    while rest > 0 {
        if rest & 1 == 1 {
            result *= square;
        }
        square *= square;
        rest >>= 1;
    }
    result
}

#[cfg(test)]
#[path = "routing_tests.rs"]
mod tests;
