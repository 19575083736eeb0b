//! Passes put together from their collectives' courses are the event loop's.

use lanecast::case::LaunchMode;
use lanecast::case::Policy;
use lanecast::case::Prices;
use lanecast::case::Question;
use lanecast::case::answer;
use lanecast::case::answer_at;
use lanecast::case::assemble::assemble_at;
use lanecast::case::roads::Roads;
use lanecast::machine::Machine;
use lanecast::model::Model;
use lanecast::model::Phase;
use lanecast::model::Workload;
use lanecast::simulate::Options;
use lanecast::simulate::apart;
use lanecast::strategy;
use lanecast::strategy::Context;

/// All strategies that run there: how many passes were compared, and how many were put together.
fn compare(id: &str, tp: u32, tokens: u64, launch: LaunchMode) -> (usize, usize) {
    let machine = Machine::load(id).expect("it is embedded");
    let model = Model::load("kimi-k2.5").expect("it is embedded");
    let workload = Workload::new(if tokens == 1 { Phase::Decode } else { Phase::Verify }, tokens, 128);
    let partition = lanecast::plan::Partition::tensor(tp);
    let question = Question { machine: &machine, model: &model, workload, partition, launch };
    let plan = question.plan().expect("a plan");
    let context = Context::new(&machine, tp as usize);
    let prices = Prices::new(Roads::new(&machine, context.searches.routes(&machine)));
    let (mut compared, mut together) = (0, 0);
    for strategy in strategy::all().filter(|strategy| strategy.refusal(&context).is_none()) {
        let policy = Policy::single(strategy);
        let Ok(whole) = answer(&question, &plan, &policy, &context, Options::default()) else { continue };
        let parts = answer_at(&question, &plan, &policy, &context, &prices).expect("it runs");
        assert_eq!(whole.outcome.ends, parts.outcome.ends, "{id} {} {tokens}", strategy.id);
        assert_eq!(whole.outcome.totals, parts.outcome.totals, "{id} {} {tokens}", strategy.id);
        assert_eq!(whole.outcome.carried, parts.outcome.carried, "{id} {} {tokens}", strategy.id);
        assert_eq!((whole.pass, whole.allreduce, whole.launch), (parts.pass, parts.allreduce, parts.launch));
        let (assembled, probes) = assemble_at(&question, &plan, &policy, &context, &prices).expect("it runs");
        compared += 1;
        together += usize::from(apart::outcome(&assembled.program, &probes).is_some());
    }
    (compared, together)
}

#[test]
fn equal_for_every_strategy_on_the_case() {
    let (compared, together) = compare("8x-rtx-pro-6000-server", 8, 3, LaunchMode::Graph);
    // Most collectives of a pass do not meet; where none would be put together this test would say nothing.
    assert!(compared > 20 && together * 2 > compared, "{together} of {compared}");
}

#[test]
fn equal_on_other_machines_sizes_and_launches() {
    for (id, tp, tokens, launch) in [
        ("8x-rtx-pro-6000-switchtec3", 8, 16, LaunchMode::Graph),
        ("4x-rtx-pro-6000-one-chip", 4, 1, LaunchMode::Graph),
        ("8x-rtx-pro-6000-turin-direct", 8, 2, LaunchMode::Eager),
    ] {
        assert!(compare(id, tp, tokens, launch).0 > 10, "{id}");
    }
}
