//! Expectations of routing against enumeration and drawn passes.

use super::*;
use rand::RngExt;
use rand::SeedableRng;

fn near(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance
}

#[test]
fn even_and_independent_is_the_known_formula() {
    // 384 (1 - (1 - 8/384)^3) = 384 (1 - 0.979167^3) = 23.5035
    assert!(near(distinct(384, 8, 1, 3, Routing::EVEN), 23.5035, 1e-4));
    assert!(near(distinct(384, 8, 1, 1, Routing::EVEN), 8.0, 1e-12));
    // Three sequences of one token are as independent as three tokens.
    assert!(near(distinct(384, 8, 3, 1, Routing::EVEN), 23.5035, 1e-4));
}

#[test]
fn repetition_takes_experts_away() {
    let all = Routing { skew: 0.0, repeat: 1.0 };
    assert!(near(distinct(384, 8, 1, 5, all), 8.0, 1e-12));
    // Half: 384 (1 - q (1/2 + q/2)^2), q = 376/384: 0.979167 · 0.989583² = 0.958874 → 15.7922
    let half = Routing { skew: 0.0, repeat: 0.5 };
    assert!(near(distinct(384, 8, 1, 3, half), 384.0 * (1.0 - 0.979_166_666_7 * 0.989_583_333_3 * 0.989_583_333_3), 1e-6));
}

#[test]
fn inclusion_sums_to_top_k_and_stays_below_one() {
    for skew in [0.0, 0.3, 1.0, 2.0, 3.0] {
        let chances = inclusion(128, 8, skew);
        assert!(near(chances.iter().sum(), 8.0, 1e-9), "skew {skew}");
        assert!(chances.iter().all(|p| (0.0..=1.0).contains(p)));
        assert!(chances.windows(2).all(|w| w[0] >= w[1]));
    }
}

#[test]
fn one_token_on_two_ranks_by_hand() {
    // 4 experts on 2 ranks, 2 chosen: both on one rank in 2 of 6 sets → E = 1·4/6 + 2·2/6 = 4/3.
    assert!(near(fullest(4, 2, 1, 1, Routing::EVEN, 2), 4.0 / 3.0, 1e-12));
    assert!(near(fullest(384, 8, 1, 3, Routing::EVEN, 1), 23.5035, 1e-4));
    // All experts touched: every rank is full.
    assert!(near(fullest(8, 8, 1, 2, Routing::EVEN, 4), 2.0, 1e-9));
}

#[test]
fn the_fullest_rank_agrees_with_drawn_passes() {
    for (routing, tolerance) in
        [(Routing::EVEN, 0.02), (Routing { skew: 0.0, repeat: 0.4 }, 0.02), (Routing { skew: 0.6, repeat: 0.0 }, 0.05)]
    {
        let drawn = draw(384, 8, 3, routing, 8, 20_000);
        let expected = fullest(384, 8, 1, 3, routing, 8);
        assert!((expected / drawn - 1.0).abs() < tolerance, "{routing:?}: {expected} against {drawn}");
    }
}

/// Mean of the fullest rank over passes drawn by systematic sampling, which
/// meets the inclusion chances exactly (popularity order shuffled each time).
fn draw(experts: usize, top_k: u64, tokens: u32, routing: Routing, ranks: usize, passes: u32) -> f64 {
    let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(7);
    let chances = inclusion(experts as u64, top_k, routing.skew);
    let mut order: Vec<usize> = (0..experts).collect();
    let mut total = 0.0;
    for _ in 0..passes {
        let mut touched = vec![false; experts];
        for token in 0..tokens {
            if token > 0 && random.random_range(0.0..1.0) < routing.repeat {
                continue;
            }
            for i in (1..experts).rev() {
                order.swap(i, random.random_range(0..=i));
            }
            let (mut sum, mut next) = (0.0, random.random_range(0.0..1.0));
            for expert in &order {
                sum += chances[*expert];
                if sum > next {
                    touched[*expert] = true;
                    next += 1.0;
                }
            }
        }
        let count = |rank: usize| touched.iter().skip(rank).step_by(ranks).filter(|t| **t).count();
        total += (0..ranks).map(count).max().unwrap_or(0) as f64;
    }
    total / f64::from(passes)
}
