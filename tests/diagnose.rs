//! Faults are simulated, blurred and forgotten; the diagnosis must find them.

use lanecast::decide::diagnose::fit::Space;
use lanecast::decide::diagnose::forecast::Figures;
use lanecast::decide::diagnose::hypothesis::ALL;
use lanecast::decide::diagnose::kind::Kind;
use lanecast::decide::diagnose::observed::Observations;
use lanecast::decide::diagnose::observed::Observed;
use lanecast::decide::diagnose::scenario::Setup;
use lanecast::decide::diagnose::search::Explanation;
use lanecast::decide::diagnose::search::Fault;
use lanecast::decide::diagnose::search::PRICE_OF_A_FAULT;
use lanecast::decide::diagnose::search::Pairs;
use lanecast::decide::diagnose::search::Simulator;
use lanecast::decide::diagnose::search::search;
use lanecast::machine::Machine;
use lanecast::model::Model;
use lanecast::plan::Partition;
use lanecast::strategy::Strategy;
use rand::RngExt;
use rand::SeedableRng;
use rand_pcg::Pcg64;

/// Of the draws of levels and noise.
const SEED: u64 = 20_261_201;

/// Noise of the observations, one sigma.
const NOISE: f64 = 0.03;

/// Cases of one fault, and of two.
const SINGLES: usize = 200;
const PAIRS: usize = 40;

struct Server {
    machine: Machine,
    model: Model,
    strategy: &'static Strategy,
}

impl Server {
    fn new(strategy: &str) -> Server {
        Server {
            machine: Machine::load("8x-rtx-pro-6000-server").expect("built in"),
            model: Model::load("kimi-k2.5").expect("built in"),
            strategy: Strategy::find(strategy).expect("known"),
        }
    }

    fn setup(&self) -> Setup<'_> {
        Setup {
            machine: &self.machine,
            model: &self.model,
            partition: Partition::tensor(8),
            batch: 1,
            tokens: 3,
            context: 128,
            strategy: self.strategy,
            environment: std::collections::BTreeMap::new(),
        }
    }
}

/// Irwin and Hall: twelve uniform numbers less six have mean 0 and variance 1.
fn normal(random: &mut Pcg64) -> f64 {
    (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
}

/// The fixed set: every kind that is forecast.
fn blurred(figures: &Figures, random: &mut Pcg64) -> Observations {
    let mut observations = Observations::default();
    for (kind, value) in figures {
        let factor = libm::exp(NOISE * normal(random));
        let share = matches!(kind, Kind::Acceptance | Kind::AllreduceShare | Kind::LeastShare);
        let value = if share { (value * factor).min(1.0) } else { value * factor };
        observations.add(Observed { kind: *kind, value, scatter: NOISE, source: "test".to_owned() });
    }
    observations
}

/// A level between the mildest and the most severe, at one of four places that are not in the list, so that states
/// can be simulated once; one of the list where there is nothing between.
fn drawn(hypothesis: usize, random: &mut Pcg64) -> f64 {
    let levels = ALL[hypothesis].levels;
    if ALL[hypothesis].continuous {
        let (first, last) = (levels[0], levels[levels.len() - 1]);
        first + (f64::from(random.random_range(0..4u32)) + 0.5) / 4.0 * (last - first)
    } else {
        levels[random.random_range(0..levels.len())]
    }
}

fn ranked(simulator: &Simulator<'_>, observations: &Observations) -> Vec<Explanation> {
    let space = Space::new(observations, 2);
    search(simulator, &space, &|_| Some(PRICE_OF_A_FAULT), Pairs::Searched).expect("searched").ranked
}

fn names(faults: &[Fault]) -> Vec<&'static str> {
    faults.iter().map(|fault| ALL[fault.0].id).collect()
}

/// Where the explanation with exactly these faults stands, counted from 1.
fn place(ranked: &[Explanation], truth: &[usize]) -> usize {
    let of = |explanation: &Explanation| explanation.faults.iter().map(|fault| fault.0).collect::<Vec<_>>() == truth;
    ranked.iter().position(of).map_or(usize::MAX, |at| at + 1)
}

/// Which server shows a hypothesis: those of custom kernels need one that runs them.
fn server_of(hypothesis: usize, servers: usize, case: usize) -> usize {
    if ["kernel-declined", "driver-staged"].contains(&ALL[hypothesis].id) { 1 } else { case % servers }
}

#[test]
fn single_faults_are_found() {
    let servers = [Server::new("nccl-16-channels"), Server::new("one-shot-push")];
    let setups = servers.each_ref().map(Server::setup);
    let simulators = setups.each_ref().map(|setup| Simulator::new(setup, &[]));
    let mut random = Pcg64::seed_from_u64(SEED);
    let (mut first, mut second, mut missed) = (0, 0, Vec::new());
    for case in 0..SINGLES {
        let hypothesis = case % ALL.len();
        let simulator = &simulators[server_of(hypothesis, 2, case / ALL.len())];
        let level = drawn(hypothesis, &mut random);
        let figures = simulator.simulate(&[(hypothesis, level)]).expect("simulated").expect("applies");
        let ranked = ranked(simulator, &blurred(&figures, &mut random));
        let place = place(&ranked, &[hypothesis]);
        first += usize::from(place == 1);
        second += usize::from(place <= 2);
        if place != 1 {
            missed.push(format!("{} at {level:.3}: place {place}, first {:?}", ALL[hypothesis].id, names(&ranked[0].faults)));
        }
    }
    println!("{first} of {SINGLES} first, {second} among two\n{}", missed.join("\n"));
    assert!(first * 100 >= 75 * SINGLES, "{first} of {SINGLES} first\n{}", missed.join("\n"));
    assert!(second * 100 >= 90 * SINGLES, "{second} of {SINGLES} among two\n{}", missed.join("\n"));
}

#[test]
fn pairs_of_faults_are_found() {
    let server = Server::new("one-shot-push");
    let setup = server.setup();
    let simulator = Simulator::new(&setup, &[]);
    let mut random = Pcg64::seed_from_u64(SEED + 1);
    let (mut cases, mut found, mut missed) = (0, 0, Vec::new());
    while cases < PAIRS {
        let (one, other) = (random.random_range(0..ALL.len()), random.random_range(0..ALL.len()));
        let (one, other) = (one.min(other), one.max(other));
        let faults = [(one, drawn(one, &mut random)), (other, drawn(other, &mut random))];
        let Some(figures) = (one != other).then(|| simulator.simulate(&faults).expect("simulated")).flatten() else { continue };
        cases += 1;
        let ranked = ranked(&simulator, &blurred(&figures, &mut random));
        let place = place(&ranked, &[one, other]);
        found += usize::from(place <= 5);
        if place > 5 {
            missed.push(format!(
                "{:?} {:.3} {:.3}: place {place}, first {:?}",
                names(&faults),
                faults[0].1,
                faults[1].1,
                names(&ranked[0].faults)
            ));
        }
    }
    println!("{found} of {PAIRS} among five\n{}", missed.join("\n"));
    assert!(found * 100 >= 70 * PAIRS, "{found} of {PAIRS} among five\n{}", missed.join("\n"));
}

#[test]
fn a_healthy_server_is_called_healthy() {
    let server = Server::new("nccl-16-channels");
    let setup = server.setup();
    let simulator = Simulator::new(&setup, &[]);
    let figures = simulator.simulate(&[]).expect("simulated").expect("applies");
    let mut random = Pcg64::seed_from_u64(SEED + 2);
    for case in 0..20 {
        let ranked = ranked(&simulator, &blurred(&figures, &mut random));
        assert!(ranked[0].faults.is_empty(), "case {case}: {:?} {:.1}", names(&ranked[0].faults), ranked[0].score);
    }
}
