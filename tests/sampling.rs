//! Samples of a ranking: the same for any number of threads and of samples
//! drawn before, and close to what simulating again would give.

use lanecast::case::Case;
use lanecast::case::LaunchMode;
use lanecast::case::Policy;
use lanecast::case::answer;
use lanecast::decide::rank;
use lanecast::decide::rank::Ranking;
use lanecast::decide::rank::Request;
use lanecast::decide::uncertain;
use lanecast::decide::uncertain::Uncertainty;
use lanecast::decide::uncertain::normal;
use lanecast::decide::uncertain::spread;
use lanecast::machine::Machine;
use lanecast::model::Model;
use lanecast::model::Workload;
use lanecast::plan::Partition;
use lanecast::simulate::Options;
use lanecast::strategy::Context;
use lanecast::strategy::Searches;
use lanecast::strategy::Strategy;

const IDS: [&str; 4] = ["nccl-16-channels", "nccl-few-channels", "one-shot-pull", "free-communication"];

fn case() -> Case {
    let (machine, model) = (Machine::load("8x-rtx-pro-6000-server").expect("built in"), Model::load("kimi-k2.5").expect("built in"));
    Case::new(machine, model, Workload::verify(3, 128), Partition::tensor(8), LaunchMode::Graph)
}

fn strategies() -> Vec<&'static Strategy> {
    IDS.iter().map(|id| Strategy::find(id).expect("known")).collect()
}

fn ranking(case: &Case) -> (Ranking, Searches) {
    let searches = Searches::default();
    let request = Request {
        question: case.question(),
        strategies: strategies(),
        baseline: Strategy::find("nccl-16-channels").expect("known"),
        environment: case.environment.clone(),
        searches: searches.clone(),
    };
    (rank::rank(&request).expect("ranks"), searches)
}

fn on_threads(threads: usize, samples: usize) -> Uncertainty {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
    pool.install(|| {
        let case = case();
        let (ranking, searches) = ranking(&case);
        uncertain::sample(&case, &ranking, &searches, samples, 7).expect("samples")
    })
}

#[test]
fn one_and_two_threads_give_the_same() {
    let (one, two) = (on_threads(1, 300), on_threads(2, 300));
    assert_eq!(one.rows, two.rows);
    assert_eq!(one.decide, two.decide);
    assert_eq!(one.leader, two.leader);
}

#[test]
fn intervals_and_chances_are_sound() {
    let drawn = on_threads(2, 1000);
    let case = case();
    for row in ranking(&case).0.rows {
        let forecast = row.outcome.expect("runs");
        let interval = &drawn.rows[row.strategy.id];
        assert!(interval.pass_ms[0] < interval.pass_ms[1], "{}", row.strategy.id);
        // Within the interval or near it: residuals may have a bias.
        let slack = 0.1 * forecast.pass.ms();
        assert!(
            (interval.pass_ms[0] - slack..=interval.pass_ms[1] + slack).contains(&forecast.pass.ms()),
            "{}: {interval:?}",
            row.strategy.id
        );
    }
    assert_eq!(drawn.rows["nccl-16-channels"].saving_ms, [0.0, 0.0]);
    assert_eq!(drawn.rows["free-communication"].best, 0.0, "a bound is never the best");
    assert!((drawn.rows.values().map(|row| row.best).sum::<f64>() - 1.0).abs() < 0.05, "someone is the best");
    let shares: f64 = drawn.decide.iter().map(|share| share.share).sum();
    assert!((0.5..=1.0 + 1e-9).contains(&shares), "{shares}");
    assert!(drawn.decide.iter().all(|share| !share.measurement.is_empty() && share.minutes > 0));
}

#[test]
fn too_few_samples_are_refused() {
    let case = case();
    let (ranking, searches) = ranking(&case);
    assert_eq!(uncertain::sample(&case, &ranking, &searches, 3, 1).map(|_| ()).expect_err("refused").code, "rank-samples");
}

/// Sums of one-at-a-time effects against simulating the pass again with all
/// constants moved at once.
#[test]
fn the_sum_of_effects_is_close_to_simulating_again() {
    let case = case();
    let (ranking, searches) = ranking(&case);
    let constants = spread::constants(&case);
    let strategies: Vec<&'static Strategy> = strategies().into_iter().take(3).collect();
    let spreads = spread::spreads(&case, &searches, &strategies, &constants).expect("runs");
    let mut worst = 0.0f64;
    for draw in normal::matrix(3, 6, constants.len()) {
        let mut moved = case.clone();
        for (constant, z) in constants.iter().zip(&draw) {
            let [value, low, high] = constant.interval;
            let to = if *z < 0.0 { value + (value - low) * z / normal::Z90 } else { value + (high - value) * z / normal::Z90 };
            // Beyond the bounds of physics the constant stays at them.
            let bounds = case.knob(&constant.path).expect("known").spec.bounds.clone();
            moved.set(&constant.path, to.clamp(*bounds.start(), *bounds.end())).expect("within bounds");
        }
        for (strategy, spread) in strategies.iter().zip(&spreads) {
            let row = ranking.rows.iter().find(|row| row.strategy.id == strategy.id).expect("ranked");
            let base = row.outcome.as_ref().expect("runs").pass.ms();
            let ours = base + uncertain::moved(&spread.communication, &draw) + uncertain::moved(&spread.kernels, &draw);
            let plan = moved.question().plan().expect("plans");
            let context = Context::new(&moved.machine, 8);
            let again = answer(&moved.question(), &plan, &Policy::single(strategy), &context, Options::default()).expect("runs").pass.ms();
            println!("{}: {ours:.2} against {again:.2} ms ({base:.2})", strategy.id);
            worst = worst.max((ours / again - 1.0).abs());
        }
    }
    // All constants at once are not the sum of each alone: the rest is what bends.
    assert!(worst < 0.05, "{worst}");
}
