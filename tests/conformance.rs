//! One suite over plans, two executors: what a trace of a pass must hold,
//! whoever made it. The GPU's arm says that it is skipped where there is none.
#![cfg(feature = "gpu")]

use std::collections::BTreeSet;

use lanecast::case::LaunchMode;
use lanecast::case::Policy;
use lanecast::case::Question;
use lanecast::case::answer;
use lanecast::case::kind_of;
use lanecast::case::records;
use lanecast::gpu::device;
use lanecast::gpu::implementation::Implementation;
use lanecast::gpu::run;
use lanecast::gpu::run::Checked;
use lanecast::gpu::run::PassOptions;
use lanecast::gpu::run::exchange::Way;
use lanecast::gpu::run::record;
use lanecast::machine::Machine;
use lanecast::model::Model;
use lanecast::plan::Plan;
use lanecast::simulate::Options;
use lanecast::strategy::Context;
use lanecast::strategy::Strategy;
use lanecast::trace::record::Header;
use lanecast::trace::record::Kind;
use lanecast::trace::record::Reader;
use lanecast::trace::record::Record;

/// Model, tokens, ranks.
const PASSES: [(&str, u64, u32); 5] =
    [("kimi-k2.5", 3, 8), ("kimi-k2.5", 1, 2), ("llama-3.1-70b", 4, 8), ("gpt-oss-120b", 3, 8), ("qwen3-235b", 1, 4)];

fn options(pass: (&str, u64, u32)) -> PassOptions {
    let way = Way::Ours { implementation: Implementation::OneShotPushLl, grid: None };
    PassOptions {
        model: pass.0.to_owned(),
        tokens: pass.1,
        context: 100,
        tp: pass.2,
        devices: 1,
        ways: vec![(u64::MAX, way)],
        eager: false,
        repeats: 3,
        total_only: false,
        check: Checked::Kinds,
        seed: 1,
    }
}

/// What any executor's trace of `plan` must be.
fn conforms(plan: &Plan, records: &[Record], who: &str) {
    let expected: BTreeSet<String> = (0..plan.partition.ranks()).flat_map(|rank| plan.expand(rank)).map(|p| p.id.to_string()).collect();
    let found: BTreeSet<String> = records.iter().map(|record| record.op.clone()).collect();
    assert_eq!(found, expected, "{who}: the operations of the plan, each with its id");
    assert_eq!(records.len(), expected.len(), "{who}: each once");
    for rank in 0..plan.partition.ranks() {
        let own: Vec<&Record> = records.iter().filter(|record| record.rank == rank).collect();
        assert!(own.iter().any(|record| record.end > record.start), "{who}: rank {rank} takes time");
        let mut layers: Vec<u32> = own.iter().filter_map(|record| record.layer).collect();
        layers.dedup();
        assert!(layers.windows(2).all(|pair| pair[0] < pair[1]), "{who}: layers in order");
        for planned in plan.expand(rank) {
            let id = planned.id.to_string();
            let one = own.iter().find(|record| record.op == id).expect("compared above");
            let communicates = planned.action.collective().is_some();
            assert_eq!(one.kind == Kind::Communication, communicates, "{who}: {id}");
            assert_eq!(one.detail("kind"), Some(kind_of(planned.action).replace(' ', "_").as_str()), "{who}: {id}");
        }
        // What an operation needs is done before it starts, on the executor's own clock.
        for planned in plan.expand(rank) {
            let (id, all) = (planned.id.to_string(), plan.expand(rank));
            let one = own.iter().find(|record| record.op == id).expect("compared above");
            for need in &planned.needs {
                let before = all[*need as usize].id.to_string();
                let other = own.iter().find(|record| record.op == before).expect("compared above");
                // Placed rows are rounded to picoseconds.
                assert!(other.start.0 <= one.start.0 + 1000, "{who}: {before} before {id}");
            }
            if plan.layers > 40 && planned.id.place.layer().is_some_and(|layer| layer > 2) {
                break;
            }
        }
    }
}

fn read(text: &str) -> Vec<Record> {
    Reader::open("trace", text.as_bytes()).expect("a trace").read_all().expect("its rows")
}

#[test]
fn the_simulator_conforms() {
    for pass in PASSES {
        let options = options(pass);
        let (model, plan) = run::plan_of(&options).expect("a plan");
        let machine = Machine::load("h200-shared-own").expect("embedded");
        let workload = lanecast::model::Workload::new(
            if pass.1 == 1 { lanecast::model::Phase::Decode } else { lanecast::model::Phase::Verify },
            pass.1,
            options.context,
        );
        let question = Question { machine: &machine, model: &model, workload, partition: plan.partition, launch: LaunchMode::Graph };
        let mut context = Context::new(&machine, pass.2 as usize);
        for (name, value) in lanecast::gpu::nccl::SHARED_GPU_ENVIRONMENT {
            context.environment.insert(name.to_owned(), value.to_owned());
        }
        let policy = Policy::single(Strategy::find("one-shot-push").expect("known"));
        let answer = answer(&question, &plan, &policy, &context, Options { reuse: true, records: true }).expect("an answer");
        let text = records::trace(&answer, &question, "one-shot-push", plan.hash()).expect("a trace");
        conforms(&plan, &read(&text), "simulated");
    }
}

#[test]
fn the_gpu_conforms() {
    if !device::driver_present() || device::count().is_err() {
        eprintln!("SKIPPED: this machine has no GPU; the simulated arm ran alone");
        return;
    }
    for pass in PASSES {
        let options = options(pass);
        let (_, plan) = run::plan_of(&options).expect("a plan");
        let mut found = None;
        let tell = &mut |answer| {
            if let lanecast::gpu::answer::Answer::Pass(measured) = answer {
                found = Some(*measured);
            }
        };
        // The libraries are those of this process: NCCL from LD_LIBRARY_PATH.
        match run::pass(&options, tell) {
            Err(fault) if fault.message.contains("cannot have several ranks on one GPU") => {
                eprintln!("SKIPPED: {}; put NCCL 2.30 or later on LD_LIBRARY_PATH, with NCCL_MULTI_RANK_GPU_ENABLE=1", fault.message);
                return;
            }
            outcome => outcome.unwrap_or_else(|fault| panic!("{fault}")),
        }
        let measured = found.expect("measured");
        assert!(measured.checks.iter().all(|row| row.right), "{:?}", measured.checks);
        let text = record::trace(&measured, &plan, &Header::from_source("measured"), u32::MAX, &kind_of).expect("a trace");
        conforms(&plan, &read(&text), "measured");
    }
}

/// A pass that was measured on a GPU, as it was written then.
#[test]
fn a_recorded_pass_conforms() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/run-h200/kimi-t3-nccl-ring-ll.csv");
    let text = std::fs::read_to_string(path).expect("the committed trace");
    let options = PassOptions { context: 128, ..options(("kimi-k2.5", 3, 8)) };
    let (_, plan) = run::plan_of(&options).expect("a plan");
    conforms(&plan, &read(&text), "recorded");
}

/// The GPU's arm up to the GPU: every operation of the plans has kernels, and a
/// pass that was measured becomes a trace that conforms.
#[test]
fn every_plan_has_kernels_and_traces_of_it_conform() {
    for pass in PASSES {
        let options = options(pass);
        let (model, plan) = run::plan_of(&options).expect("a plan");
        run::check_model(&model, &options).expect("kernels for all of it");
        let chains = plan
            .expand(0)
            .iter()
            .map(|p| run::timing::Chain {
                block: p.block.0,
                name: p.id.name.to_owned(),
                count: 1,
                each_us: 2.0,
                low_us: 2.0,
                high_us: 2.0,
                in_pass_us: None,
            })
            .collect();
        let measured = run::Measured {
            totals_us: vec![1000.0],
            total: (1000.0, 1000.0, 1000.0),
            host_us: None,
            fixed_us: None,
            chains,
            boundaries: Vec::new(),
            checks: Vec::new(),
            distinct_experts: None,
            copy_gbps: 0.0,
            clock_ghz: (1.0, 1.0),
            gpu: String::new(),
            nccl: None,
            rank_bytes: 0,
        };
        let text = record::trace(&measured, &plan, &Header::from_source("measured"), u32::MAX, &kind_of).expect("a trace");
        let records = read(&text);
        conforms(&plan, &records, "made up");
        // The last operation ends where the pass does: 1000 us, to a nanosecond.
        let end = records.iter().map(|record| record.end.0).max().expect("rows");
        assert!(end.abs_diff(1_000_000_000) < 1000, "{end}");
        assert!(record::scale(&measured, &plan).is_some());
    }
}

#[test]
fn what_no_kernel_does_is_refused_in_words() {
    for (model, word) in [("qwen3.5-397b", "attention"), ("deepseek-v3", "Fp8")] {
        let options = options((model, 1, 8));
        let refused = Model::load(model).and_then(|model| run::check_model(&model, &options)).expect_err("no kernels");
        assert_eq!(refused.code, "run-model");
        assert!(refused.message.contains(word), "{}", refused.message);
    }
}
