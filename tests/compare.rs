//! Simulated passes of the case with one thing changed: compare names it.

use std::process::Command;

use lanecast::case::answer::run;
use lanecast::case::assemble::{Assembled, assemble};
use lanecast::case::records::trace;
use lanecast::case::{LaunchMode, Policy, Question};
use lanecast::compare::{Comparison, Input, Options, Portion, What, compare};
use lanecast::machine::Machine;
use lanecast::model::{Model, Phase, Workload};
use lanecast::plan::{Partition, Place};
use lanecast::simulate::program::Run;
use lanecast::simulate::{Operation, Template};
use lanecast::strategy::{Context, Strategy};
use lanecast::trace::record::Reader;

/// The trace of the case's pass on a machine, after `change`.
fn traced(machine: &Machine, change: impl Fn(&mut Assembled)) -> String {
    traced_with(machine, "nccl-16-channels", change)
}

fn traced_with(machine: &Machine, strategy: &str, change: impl Fn(&mut Assembled)) -> String {
    let model = Model::load("kimi-k2.5").expect("built in");
    let workload = Workload::new(Phase::Verify, 3, 128);
    let question = Question { machine, model: &model, workload, partition: Partition::tensor(8), launch: LaunchMode::Graph };
    let plan = question.plan().expect("divides");
    let policy = Policy::single(Strategy::find(strategy).expect("known"));
    let mut assembled = assemble(&question, &plan, &policy, &Context::new(machine, 8)).expect("assembles");
    change(&mut assembled);
    let answer = run(assembled, lanecast::simulate::Options { reuse: true, records: true }).expect("runs");
    trace(&answer, &question, strategy, plan.hash()).expect("written")
}

fn case() -> Machine {
    Machine::load("8x-rtx-pro-6000-server").expect("built in")
}

fn compared(a: &str, b: &str) -> Comparison {
    let inputs = ["a.csv", "b.csv"].map(|name| Input { name: name.to_owned(), pass: None });
    let readers = [a, b].map(|text| Reader::open("t.csv", text.as_bytes()).expect("a trace"));
    let compared = compare(inputs, readers, Options::default()).expect("belong together");
    for side in &compared.sides {
        let (mean, path): (f64, f64) = (side.spent.iter().sum(), side.path.iter().sum());
        assert!((mean - side.pass_us).abs() < 1e-3 && (path - side.pass_us).abs() < 1e-3, "{mean} {path} {}", side.pass_us);
    }
    compared
}

/// Changes one template's single repetition: layer `layer` gets operations of its own.
fn split_layer(assembled: &mut Assembled, layer: u32) -> usize {
    let entry = (assembled.program.sequence.iter().zip(&assembled.places))
        .position(|(run, place)| place.layer().is_some_and(|first| (first..first + run.repeats).contains(&layer)))
        .expect("a layer of the model");
    let (run, place) = (assembled.program.sequence[entry], assembled.places[entry]);
    let before = layer - place.layer().expect("a layer");
    let template = assembled.program.templates[run.template as usize].clone();
    let labels = assembled.labels[run.template as usize].clone();
    assembled.program.templates.push(template);
    assembled.labels.push(labels);
    let own = assembled.program.templates.len() - 1;
    let parts = [
        (run.template, before, place),
        (own as u32, 1, Place::Layer(layer)),
        (run.template, run.repeats - before - 1, Place::Layer(layer + 1)),
    ];
    let kept: Vec<(u32, u32, Place)> = parts.into_iter().filter(|(_, repeats, _)| *repeats > 0).collect();
    assembled
        .program
        .sequence
        .splice(entry..=entry, kept.iter().map(|(template, repeats, _)| Run { template: *template, repeats: *repeats, ..run }));
    assembled.places.splice(entry..=entry, kept.iter().map(|(_, _, place)| *place));
    own
}

#[test]
fn a_trace_against_itself_is_zero() {
    let trace = traced(&case(), |_| {});
    let compared = compared(&trace, &trace);
    assert_eq!(compared.difference_us(), 0.0);
    assert!(compared.causes.is_empty() && compared.unmatched.is_empty() && compared.largest.is_empty());
    let lines = [&compared.operations, &compared.kinds, &compared.layers, &compared.ranks].into_iter().flatten();
    assert!(lines.into_iter().all(|line| line.spent[0] == line.spent[1]));
    let layers = compared.ledger.iter().filter(|line| line.name.ends_with("_allreduce") && line.name != "embed_allreduce");
    assert_eq!(layers.map(|line| line.count[0]).sum::<f64>(), 122.0);
}

/// The traces' links carry what the simulator's links carried.
#[test]
fn links_of_a_trace_add_up_to_what_was_carried() {
    let machine = case();
    let model = Model::load("kimi-k2.5").expect("built in");
    let workload = Workload::new(Phase::Verify, 3, 128);
    let question = Question { machine: &machine, model: &model, workload, partition: Partition::tensor(8), launch: LaunchMode::Graph };
    let plan = question.plan().expect("divides");
    for strategy in ["nccl-16-channels", "one-shot-pull", "host-staged"] {
        let policy = Policy::single(Strategy::find(strategy).expect("known"));
        let assembled = assemble(&question, &plan, &policy, &Context::new(&machine, 8)).expect("assembles");
        let answer = run(assembled, lanecast::simulate::Options::default()).expect("runs");
        let mut counts = std::collections::BTreeMap::new();
        for planned in plan.expand(0) {
            if let Some(collective) = planned.action.collective() {
                *counts.entry((collective.role.name().to_owned(), collective.bytes)).or_insert(0) += 1;
            }
        }
        for link in lanecast::case::loads::link_loads(&answer.assembled) {
            let sum: u64 = link.loads.iter().map(|(key, bytes)| bytes * counts[key]).sum();
            let place = answer.assembled.links.iter().position(|name| *name == link.name).expect("a link");
            assert_eq!(sum, answer.outcome.carried[place], "{strategy}: {}", link.name);
        }
    }
}

#[test]
fn a_slow_link_is_named_with_its_collectives() {
    let mut machine = case();
    let slow = machine.links.iter().position(|link| {
        let ends = [&machine.nodes[link.a.0].id, &machine.nodes[link.b.0].id];
        ends.contains(&&"switch0".to_owned()) && ends.contains(&&"root0".to_owned())
    });
    let link = &mut machine.links[slow.expect("they are joined")];
    "slow".clone_into(&mut link.class);
    for rate in [&mut link.forward_gbps, &mut link.backward_gbps] {
        (rate.value, rate.low, rate.high) = (rate.value * 0.8, rate.low * 0.8, rate.high * 0.8);
    }
    // Through a file, as a user would.
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("slow.toml");
    std::fs::write(&file, machine.to_toml()).expect("written");
    let slow = Machine::load(&file.to_string_lossy()).expect("reads");
    // Four GPUs' reads of the other four fill the switch's way up; a ring's lines hardly do.
    let [before, after] = [case(), slow].map(|machine| traced_with(&machine, "one-shot-pull", |_| {}));
    let compared = compared(&before, &after);
    assert!(compared.difference_us() > 0.0);
    let What::Link { links, gbps, operations } = &compared.causes[0].what else { panic!("{:?}", compared.causes) };
    assert!(links.iter().all(|name| name.contains("root0")), "{links:?}");
    assert!((gbps[1] / gbps[0] - 0.8).abs() < 1e-3);
    assert!(["attn_allreduce", "mlp_allreduce"].iter().all(|name| operations.iter().any(|o| o == name)), "{operations:?}");
    let share = compared.share_pct(compared.causes[0].us).expect("a difference");
    assert!((80.0..=125.0).contains(&share), "{share}");
}

#[test]
fn a_layer_whose_compute_doubled_is_named() {
    let doubled = traced(&case(), |assembled| {
        let own = split_layer(assembled, 30);
        for operation in &mut assembled.program.templates[own].operations {
            if let Operation::Compute { ps, .. } = operation {
                ps.iter_mut().for_each(|ps| *ps *= 2);
            }
        }
    });
    let compared = compared(&traced(&case(), |_| {}), &doubled);
    let What::Layer { layer, portion, us, .. } = &compared.causes[0].what else { panic!("{:?}", compared.causes) };
    assert_eq!((*layer, *portion), (30, Portion::Compute));
    assert!((us[1] / us[0] - 2.0).abs() < 1e-6, "{us:?}");
    let share = compared.share_pct(compared.causes[0].us).expect("a difference");
    assert!((99.0..=101.0).contains(&share), "{share}");
}

#[test]
fn a_rank_that_is_late_is_named_with_the_skew_it_causes() {
    let late = traced(&case(), |assembled| {
        let operations = vec![Operation::Compute { ps: vec![100_000_000], launches: 0 }];
        assembled.program.templates.push(Template { operations });
        assembled.labels.push(vec![lanecast::case::assemble::Label { name: "late", kind: "late", bytes: 0, half: None, ahead: false }]);
        let template = (assembled.program.templates.len() - 1) as u32;
        assembled.program.sequence.insert(1, Run { template, repeats: 1, members: 1 << 5 });
        assembled.places.insert(1, Place::Embedding);
    });
    // What held the rank up is no operation of the pass.
    let late: String = late.lines().filter(|line| !line.contains("EMB.late")).map(|line| format!("{line}\n")).collect();
    let compared = compared(&traced(&case(), |_| {}), &late);
    assert!((90.0..=110.0).contains(&compared.difference_us()), "{}", compared.difference_us());
    let What::Rank { rank, own, latest, caused } = &compared.causes[0].what else { panic!("{:?}", compared.causes) };
    assert_eq!(*rank, 5);
    assert_eq!(own.map(|(portion, _)| portion), Some(Portion::Launch));
    // Seven of eight ranks wait 100 us.
    assert!((caused[1] - caused[0] - 87.5).abs() < 5.0, "{caused:?}");
    assert!(latest.as_ref().is_some_and(|(by, op)| *by > 90.0 && op.ends_with(".r5")), "{latest:?}");
    let share = compared.share_pct(compared.causes[0].us).expect("a difference");
    assert!((90.0..=110.0).contains(&share), "{share}");
}

fn lanecast(arguments: &[&str]) -> (Option<i32>, String, String) {
    let ran = Command::new(env!("CARGO_BIN_EXE_lanecast")).args(arguments).env("NO_COLOR", "1").output().expect("ran");
    (ran.status.code(), String::from_utf8_lossy(&ran.stdout).into_owned(), String::from_utf8_lossy(&ran.stderr).into_owned())
}

#[test]
fn the_command_refuses_explains_and_checks() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (a, b, other, cut, page) = (path("a.csv"), path("b.csv"), path("other.csv"), path("cut.csv"), path("page.html"));
    assert_eq!(lanecast(&["simulate", "--trace", &a]).0, Some(0));
    assert_eq!(lanecast(&["simulate", "--strategy", "nccl-p2p-sys", "--trace", &b]).0, Some(0));
    assert_eq!(lanecast(&["simulate", "--tokens", "4", "--trace", &other]).0, Some(0));
    let text = std::fs::read_to_string(&a).expect("written");
    let lines: Vec<&str> = text.lines().collect();
    std::fs::write(&cut, lines[..lines.len() / 2].join("\n") + "\n").expect("written");

    let (code, text, _) = lanecast(&["compare", &a, &b, "--html", &page]);
    assert_eq!(code, Some(0));
    assert!(text.contains("shorter") && text.contains("its transfer is"), "{text}");
    let html = std::fs::read_to_string(&page).expect("written");
    assert!(html.len() < 1_500_000 && html.contains("Timeline of B") && !html.contains("http://") | html.contains("www.w3.org"));

    assert_eq!(lanecast(&["compare", &a, &a, "--tolerance", "0", "--tolerance-part", "0", "--tolerance-unmatched", "0"]).0, Some(0));
    let (code, text, _) = lanecast(&["compare", &a, &b, "--tolerance", "1"]);
    assert!(code == Some(1) && text.contains("OUTSIDE"), "{text}");
    for (files, word) in [([&a, &other], "compare-other-plan"), ([&a, &cut], "compare-cut"), ([&cut, &a], "compare-cut")] {
        let (code, _, said) = lanecast(&["compare", files[0], files[1]]);
        assert!(code == Some(2) && said.contains(word) && said.contains("--anyway"), "{said}");
        assert_eq!(lanecast(&["compare", files[0], files[1], "--anyway", "--format", "json"]).0, Some(0));
    }
    let (_, json, _) = lanecast(&["compare", &a, &cut, "--anyway", "--format", "json"]);
    assert!(json.contains("\"unmatched\": [\n"), "listed, not dropped");
    let (_, csv, _) = lanecast(&["compare", &a, &cut, "--anyway", "--format", "csv"]);
    let listed = csv.lines().filter(|line| line.starts_with("only-a,")).count();
    assert_eq!(listed, lines.len() - lines.len() / 2, "every operation that the cut file lacks");
}
