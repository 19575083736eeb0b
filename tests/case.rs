//! The case, end to end, against what public measurements say of it.

use std::path::Path;

use lanecast::case::LaunchMode;
use lanecast::case::Policy;
use lanecast::case::Question;
use lanecast::case::answer;
use lanecast::case::chain;
use lanecast::fit::validate;
use lanecast::machine::Machine;
use lanecast::model::Model;
use lanecast::model::Phase;
use lanecast::model::Workload;
use lanecast::plan::Partition;
use lanecast::simulate::Options;
use lanecast::strategy::Context;
use lanecast::strategy::Logical;
use lanecast::strategy::Strategy;
use lanecast::trace::observation;

fn allreduce_us(machine: &Machine, id: &str, bytes: u64) -> f64 {
    let context = Context::new(machine, 8);
    let strategy = Strategy::find(id).expect("known");
    let lowering = (strategy.lower)(&context, strategy, Logical::AllReduce, bytes).expect("lowers");
    let outcome = chain::run(machine, &lowering, chain::ChainLaunch::Graph, 50, Options::default()).expect("runs");
    outcome.critical().time as f64 / 50e6
}

/// Measured beside it: 29.4 us at 32 KiB and 34.2 at 64 KiB.
#[test]
fn nccl_ring_ll_of_the_case() {
    let machine = Machine::load("8x-rtx-pro-6000-server").expect("built in");
    let us = allreduce_us(&machine, "nccl-ring-ll", 43_008);
    assert!((24.0..=34.0).contains(&us), "{us}");
}

/// Field: one-shot helps small messages and hurts large ones on 8 GPUs.
#[test]
fn one_shot_crosses_nccl() {
    let machine = Machine::load("8x-rtx-pro-6000-switchtec3").expect("built in");
    for one_shot in ["one-shot-pull", "one-shot-push"] {
        assert!(allreduce_us(&machine, one_shot, 8 << 10) < allreduce_us(&machine, "nccl-default", 8 << 10), "{one_shot} at 8 KiB");
        assert!(allreduce_us(&machine, one_shot, 256 << 10) > allreduce_us(&machine, "nccl-default", 256 << 10), "{one_shot} at 256 KiB");
    }
}

fn pass_ms(strategy: &str, tokens: u64, context: u64, launch: LaunchMode, options: Options) -> f64 {
    let machine = Machine::load("8x-rtx-pro-6000-server").expect("built in");
    let model = Model::load("kimi-k2.5").expect("built in");
    let phase = if tokens == 1 { Phase::Decode } else { Phase::Verify };
    let workload = Workload::new(phase, tokens, context);
    let question = Question { machine: &machine, model: &model, workload, partition: Partition::tensor(8), launch };
    let plan = question.plan().expect("divides");
    let policy = Policy::single(Strategy::find(strategy).expect("known"));
    answer(&question, &plan, &policy, &Context::new(&machine, 8), options).expect("runs").pass.ms()
}

/// 122 all-reduces at 20 us and at 11.8 us: public twins of the server decode
/// at 12.5 ms (NCCL) and 11.4 ms (a fused kernel), on short prompts: 128
/// cached positions, MLA as vLLM's TRITON_MLA rows have it.
#[test]
fn the_plain_step_lands_on_public_figures() {
    let kernels = pass_ms("free-communication", 1, 128, LaunchMode::Graph, Options::default());
    let step = |allreduce_us: f64| kernels + 122.0 * allreduce_us / 1e3;
    assert!((step(20.0) / 12.5 - 1.0).abs() < 0.15, "{}", step(20.0));
    assert!((step(11.8) / 11.4 - 1.0).abs() < 0.15, "{}", step(11.8));
    assert!(((step(20.0) - step(11.8)) / 1.0 - 1.0).abs() < 0.2);
}

/// A verify pass outside the graph costs about what the owner observed.
#[test]
fn a_pass_outside_the_graph_is_slow() {
    let graph = pass_ms("nccl-16-channels", 3, 128, LaunchMode::Graph, Options::default());
    let eager = pass_ms("nccl-16-channels", 3, 128, LaunchMode::Eager, Options::default());
    assert!((12.0..=22.0).contains(&graph), "{graph}");
    assert!((24.0..=40.0).contains(&eager), "{eager}");
}

#[test]
fn reuse_changes_nothing() {
    for strategy in ["nccl-16-channels", "one-shot-pull", "nccl-tree-ll"] {
        let with = pass_ms(strategy, 3, 128, LaunchMode::Graph, Options { reuse: true, records: false });
        let without = pass_ms(strategy, 3, 128, LaunchMode::Graph, Options { reuse: false, records: false });
        assert_eq!(with.to_bits(), without.to_bits(), "{strategy}");
    }
}

fn errors(file: &str, keep: impl Fn(&observation::Observation) -> bool) -> validate::Errors {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/observations").join(file);
    let rows: Vec<_> = observation::read_file(&path).expect("reads").into_iter().filter(keep).collect();
    let compared = validate::collectives(&rows, &|id| Machine::load(id));
    let errors = validate::errors(&compared);
    assert_eq!(errors.skipped, 0, "{:?}", compared.iter().find_map(|one| one.forecast.as_ref().err()));
    errors
}

#[test]
fn one_h200_shared_by_ranks_is_reproduced() {
    for protocol in [observation::Protocol::Ll, observation::Protocol::Simple] {
        let errors = errors("h200-nccl-graph.csv", |row| row.protocol == protocol);
        assert!(errors.median_pct <= 10.0, "{protocol}: {errors:?}");
        assert!(errors.kendall_tau > 0.9, "{protocol}: {errors:?}");
    }
}

#[test]
fn the_default_machine_is_reproduced() {
    let nccl = |row: &observation::Observation| row.implementation == observation::Implementation::Nccl;
    let graph = |row: &observation::Observation| row.timing == observation::Timing::GraphChain && row.bytes <= 32 << 20;
    let all = errors("rtx-pro-6000-allreduce.csv", |row| nccl(row) && graph(row));
    assert!(all.median_pct <= 8.0, "{all:?}");
    let pull = errors("rtx-pro-6000-allreduce.csv", |row| row.implementation == observation::Implementation::OneShotPull && graph(row));
    assert!(pull.median_pct <= 10.0, "{pull:?}");
}

fn split_pass(strategy: &str) -> lanecast::case::Answer {
    let machine = Machine::load("8x-rtx-pro-6000-server").expect("built in");
    let model = Model::load("kimi-k2.5").expect("built in");
    let workload = Workload::verify(3, 128);
    let question = Question { machine: &machine, model: &model, workload, partition: Partition::tensor(8), launch: LaunchMode::Graph };
    let strategy = Strategy::find(strategy).expect("known");
    let question = question.under(strategy);
    let plan = question.plan().expect("divides");
    let options = Options { records: true, ..Options::default() };
    let answer = answer(&question, &plan, &Policy::single(strategy), &Context::new(&machine, 8), options).expect("runs");
    // What was simulated is the plan, rank by rank.
    for rank in 0..8 {
        let planned: Vec<String> = plan.expand(rank).iter().map(|planned| planned.id.to_string()).collect();
        let mut lived: Vec<_> = answer.outcome.records.iter().filter(|record| record.rank == rank).collect();
        lived.sort_by_key(|record| (record.entry, record.repeat, record.operation));
        let lived: Vec<String> = lived.iter().map(|record| answer.assembled.id(record).to_string()).collect();
        assert_eq!(planned, lived, "rank {rank} under {}", strategy.id);
    }
    assert_eq!(answer.communication + answer.skew + answer.compute + answer.launch, answer.pass);
    answer
}

/// Half the ranks a stage: each all-reduce stays on four GPUs and is cheaper,
/// but a request passes the stages one after another, and each stage's kernels
/// read twice the weights.
#[test]
fn stages_follow_one_another() {
    let (staged, whole) = (split_pass("tp4-pp2"), split_pass("nccl-default"));
    assert_eq!(staged.allreduce.count, 122);
    assert!(staged.allreduce.mean < whole.allreduce.mean);
    assert!(staged.compute > whole.compute && staged.compute.0 < 2 * whole.compute.0);
    // The second stage starts its first layer after the first stage's last.
    let start = |rank: u32, place: &str| {
        let mut records = staged.outcome.records.iter().filter(|r| r.rank == rank);
        records.find(|r| staged.assembled.id(r).to_string().starts_with(place)).expect("a record").start
    };
    assert!(start(4, "L031.") > start(0, "L030."), "{} {}", start(4, "L031."), start(0, "L030."));
    assert!(start(0, "OUT0.stage_send") > start(4, "IN1.stage_recv"), "the receiver waits");
    assert!(staged.skew.0 < staged.pass.0 / 100, "waiting for the other stage is no skew: {:?}", staged.skew);
}

/// 3 tokens of 8 experts touch 23.4 of 384; a rank holds 48. The fullest of 8
/// ranks has about twice the mean, and the all-to-alls wait for it.
#[test]
fn expert_parallel_waits_for_the_fullest_rank() {
    let answer = split_pass("expert-parallel");
    let load = answer.expert_load().expect("uneven");
    let ratio = load.fullest.0 as f64 / load.mean.0 as f64;
    assert!((1.6..2.4).contains(&ratio), "{ratio}");
    assert!(answer.skew.0 >= (load.fullest.0 - load.mean.0) / 2, "{:?} for {load:?}", answer.skew);
    assert_eq!(answer.allreduce.count, 62, "one a layer after attention, and the dense layer's");
    assert!(split_pass("nccl-default").expert_load().is_none());
}

/// A batch of 32 in two halves that take turns: no all-reduce is paid while the
/// other half computes, but the weights are read twice. Half by half without
/// overlap is the ceiling, computing alone the floor.
#[test]
fn halves_that_take_turns_hide_their_messages() {
    let machine = Machine::load("8x-rtx-pro-6000-server").expect("built in");
    let model = Model::load("kimi-k2.5").expect("built in");
    let pass = |strategy: &str, batch: u64, reuse: bool| {
        let workload = Workload { batch, ..Workload::verify(3, 128) };
        let question = Question { machine: &machine, model: &model, workload, partition: Partition::tensor(8), launch: LaunchMode::Graph };
        let strategy = Strategy::find(strategy).expect("known");
        let question = question.under(strategy);
        let options = Options { reuse, records: !reuse };
        let plan = question.plan()?;
        answer(&question, &plan, &Policy::single(strategy), &Context::new(&machine, 8), options)
    };
    let (turns, half) = (pass("two-batch-overlap", 32, true).expect("runs"), pass("nccl-default", 16, true).expect("runs"));
    assert_eq!(turns.compute.0, 2 * half.compute.0);
    assert!(turns.pass.0 < 2 * half.pass.0 && turns.pass > turns.compute, "{:?} of twice {:?}", turns.pass, half.pass);
    assert!(turns.communication.0 < half.communication.0, "most of it is hidden");
    assert_eq!(turns.allreduce.count, 2 * half.allreduce.count);
    let plain = pass("two-batch-overlap", 32, false).expect("runs");
    assert_eq!(plain.outcome.ends, turns.outcome.ends, "reuse changes nothing");
    // Each half goes through the plan in its order.
    let ids = |first: bool| -> Vec<String> {
        let mine = plain.outcome.records.iter().filter(|record| {
            let run = plain.assembled.program.sequence[record.entry as usize];
            let label = plain.assembled.labels[run.template as usize][record.operation as usize];
            record.rank == 5 && (label.half == Some(lanecast::case::turns::Half::First)) == first
        });
        mine.map(|record| plain.assembled.id(record).to_string()).collect()
    };
    let workload = Workload { batch: 16, ..Workload::verify(3, 128) };
    let question = Question { machine: &machine, model: &model, workload, partition: Partition::tensor(8), launch: LaunchMode::Graph };
    let planned: Vec<String> = question.plan().expect("divides").expand(5).iter().map(|planned| planned.id.to_string()).collect();
    assert_eq!(ids(true), planned);
    assert_eq!(ids(false), planned);
    assert_eq!(pass("two-batch-overlap", 3, true).err().map(|fault| fault.code), Some("partition-micro-batches"));
}

/// A long collective told from a few of its loops, against all of them simulated.
#[test]
fn a_few_loops_stand_for_many() {
    let machine = Machine::load("8x-rtx-pro-6000-server").expect("built in");
    let context = Context::new(&machine, 8);
    let routes = context.searches.routes(&machine);
    for id in ["nccl-ring-ll", "nccl-ring-ll128", "nccl-tree-ll", "nccl-few-channels", "nccl-ring-simple"] {
        let strategy = Strategy::find(id).expect("known");
        let lowering = (strategy.lower)(&context, strategy, Logical::AllReduce, 29_360_128).expect("lowers");
        let whole = chain::run(&machine, &lowering, chain::ChainLaunch::Graph, 1, Options::default()).expect("runs").critical().time;
        let told = chain::time_of_one(&machine, routes.clone(), &lowering).expect("runs").0;
        assert!((told as f64 / whole as f64 - 1.0).abs() < 0.005, "{id}: {told} for {whole}");
    }
}
