//! How many distinct experts the routings of the public tables touch.
//!
//! The tables say `balanced` or `power_law_A` and no more. The counts below
//! have no fitted number, but two rules (who gets what rounding left over, and
//! what happens when every draw rounds to nothing) were chosen because they
//! agree with the times of the Marlin and Triton rows.

/// A routing of the tables.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Routing {
    /// Slots go to the experts in turn.
    Balanced,
    /// Expert loads are drawn from a power law with this exponent.
    PowerLaw(f64),
}

/// Shuffles over which the most loaded rank is averaged.
const SHUFFLES: u64 = 16;

/// Distinct experts on the most loaded of `ranks` ranks, times 1000.
pub fn distinct_milli(routing: Routing, tokens: u64, top_k: u64, experts: u64, ranks: u64) -> u64 {
    let ranks = ranks.clamp(1, experts.max(1));
    match routing {
        Routing::Balanced => 1000 * (tokens * top_k).div_ceil(ranks).clamp(1, (experts / ranks).max(1)),
        Routing::PowerLaw(exponent) => {
            let loads = power_law(tokens, top_k, experts, exponent);
            if ranks == 1 {
                return 1000 * loads.iter().filter(|load| **load > 0).count() as u64;
            }
            if loads.iter().all(|load| *load <= 1) {
                // Every draw was rounded to nothing: the slots went round in turn.
                return distinct_milli(Routing::Balanced, tokens, top_k, experts, ranks);
            }
            let sum: u64 = (0..SHUFFLES).map(|seed| 1000 * on_most_loaded(&shuffled(&loads, seed), ranks)).sum();
            sum / SHUFFLES
        }
    }
}

/// Loads per expert: quantiles of the power law between its bounds, scaled to
/// all slots, rounded; what rounding left over goes one each to the least
/// loaded, what it gave too much is taken from the most loaded.
fn power_law(tokens: u64, top_k: u64, experts: u64, exponent: f64) -> Vec<u64> {
    let slots = tokens * top_k;
    let (low, high) = if slots > experts { (1.0, tokens as f64 * 0.8) } else { (0.01, 2.0) };
    let power = 1.0 - exponent;
    let (from, to) = (libm::pow(low, power), libm::pow(high, power));
    let draws: Vec<f64> = (0..experts).map(|i| libm::pow((to - from) * (i as f64 + 0.5) / experts as f64 + from, 1.0 / power)).collect();
    let sum: f64 = draws.iter().sum();
    let mut loads: Vec<u64> = draws.iter().map(|draw| libm::rint(draw / sum * slots as f64) as u64).collect();
    let mut order: Vec<usize> = (0..loads.len()).collect();
    order.sort_by_key(|expert| (loads[*expert], *expert));
    let given: u64 = loads.iter().sum();
    for i in 0..slots.saturating_sub(given) as usize {
        loads[order[i % order.len()]] += 1;
    }
    for i in 0..given.saturating_sub(slots) as usize {
        let load = &mut loads[order[order.len() - 1 - i % order.len()]];
        *load = load.saturating_sub(1);
    }
    loads
}

/// Distinct experts of the rank with the most slots; the first of equals.
fn on_most_loaded(loads: &[u64], ranks: u64) -> u64 {
    let each = (loads.len() / ranks as usize).max(1);
    let mut best = (0, 0);
    for rank in loads.chunks(each) {
        let slots = rank.iter().sum::<u64>();
        if slots > best.0 {
            best = (slots, rank.iter().filter(|load| **load > 0).count() as u64);
        }
    }
    best.1
}

/// Fisher-Yates with splitmix64, whose seed is the shuffle's number.
fn shuffled(loads: &[u64], seed: u64) -> Vec<u64> {
    let mut loads = loads.to_vec();
    let mut state = seed;
    for i in (1..loads.len()).rev() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        loads.swap(i, ((z ^ (z >> 31)) % (i as u64 + 1)) as usize);
    }
    loads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balanced_slots_go_round() {
        // 4 tokens × 8 slots over 2 ranks: 16 of each rank's 192 experts.
        assert_eq!(distinct_milli(Routing::Balanced, 4, 8, 384, 2), 16_000);
        // 64 × 8 = 512 slots reach all 384.
        assert_eq!(distinct_milli(Routing::Balanced, 64, 8, 384, 1), 384_000);
        assert_eq!(distinct_milli(Routing::Balanced, 1, 8, 384, 64), 1_000);
    }

    #[test]
    fn power_law_loads_keep_the_sum() {
        for tokens in [1, 2, 4, 8, 16, 32, 48, 64] {
            for exponent in [1.01, 1.2] {
                assert_eq!(power_law(tokens, 8, 384, exponent).iter().sum::<u64>(), tokens * 8, "{tokens} {exponent}");
            }
        }
    }

    #[test]
    fn power_law_agrees_with_expert_bound_rows() {
        // sglang_marlin_moe, 384 experts, one rank: (latency − 40 us) / 16.3 us
        // an expert gives 63, 114, 164, 193 and 252 experts at 8, 16, 32, 48, 64 tokens.
        for (tokens, measured) in [(8, 63.0), (16, 114.0), (32, 164.0), (48, 193.0), (64, 252.0)] {
            let ours = distinct_milli(Routing::PowerLaw(1.01), tokens, 8, 384, 1) as f64 / 1e3;
            assert!((ours / measured - 1.0).abs() < 0.03, "{tokens} tokens: {ours} against {measured}");
        }
    }
}
