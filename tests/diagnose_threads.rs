//! Problems that people described in public, diagnosed from what they could see.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lanecast::cli::diagnose::CASE;
use lanecast::decide::diagnose::facts_file;
use lanecast::decide::diagnose::hypothesis::ALL;
use lanecast::decide::diagnose::kind::Kind;
use lanecast::decide::diagnose::observed::Observations;
use lanecast::decide::diagnose::observed::parse;
use lanecast::decide::diagnose::scenario::Setup;
use lanecast::decide::diagnose::verdict::diagnose;
use lanecast::decide::diagnose::verdict::title;
use lanecast::import::facts::Facts;
use lanecast::machine::Machine;
use lanecast::model::Model;
use lanecast::plan::Partition;
use lanecast::report::diagnose::sections;
use lanecast::strategy::Strategy;

#[derive(serde::Deserialize)]
struct File {
    thread: Thread,
}

#[derive(serde::Deserialize)]
struct Thread {
    number: u32,
    machine: String,
    model: String,
    tp: u32,
    tokens: u64,
    context: u64,
    strategy: String,
    /// Ids, one of which must be part of the explanation.
    expected: Vec<String>,
    /// Within so many explanations.
    among: usize,
}

#[test]
fn threads_are_explained() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("validation/threads");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).expect("there").map(|entry| entry.expect("entry").path()).collect();
    files.sort();
    let mut numbers = Vec::new();
    let mut wrong = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("readable");
        let thread = toml::from_str::<File>(&text).expect("a thread").thread;
        let mut machine = Machine::load(&thread.machine).expect("built in");
        // A machine file may state a fault as known; the user did not know it.
        machine.collapses.clear();
        let model = Model::load(&thread.model).expect("built in");
        let setup = Setup {
            machine: &machine,
            model: &model,
            partition: Partition::tensor(thread.tp),
            batch: 1,
            tokens: thread.tokens,
            context: thread.context,
            strategy: Strategy::find(&thread.strategy).expect("known"),
            environment: BTreeMap::new(),
        };
        let read = facts_file::read("thread.toml", &text, 0.03, thread.tp).expect("reads");
        let diagnosis = diagnose(&setup, read.observations, &read.facts).expect("diagnosed");
        let names = |place: usize| diagnosis.found.ranked[place].faults.iter().map(|fault| ALL[fault.0].id).collect::<Vec<_>>();
        let right = (0..thread.among).any(|place| names(place).iter().any(|id| thread.expected.iter().any(|known| known == id)));
        if !right {
            let first: Vec<_> = (0..4).map(|place| (names(place), diagnosis.found.ranked[place].score)).collect();
            wrong.push(format!("thread {}: {first:?}, healthy {:?}", thread.number, diagnosis.healthy));
        }
        assert!(diagnosis.first_check().is_some(), "thread {} gets no check", thread.number);
        numbers.push(thread.number);
    }
    assert_eq!(numbers, [2, 3, 6, 10, 11, 22]);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The case: 82 tokens/s are a step of 12.20 ms, so one of its 122 all-reduces takes at most 100 us; a profile's 150 to
/// 300 us contradict that unless it counts waiting. What remains is a verify pass outside the graph; a check comes first.
#[test]
fn the_case_is_explained() {
    let machine = Machine::load("8x-rtx-pro-6000-server").expect("built in");
    let model = Model::load("kimi-k2.5").expect("built in");
    let setup = Setup {
        machine: &machine,
        model: &model,
        partition: Partition::tensor(8),
        batch: 1,
        tokens: 3,
        context: 128,
        strategy: Strategy::find("nccl-16-channels").expect("known"),
        environment: BTreeMap::new(),
    };
    let mut observations = Observations::default();
    for text in CASE {
        observations.add(parse(text, "the case", 0.03, 8).expect("reads"));
    }
    let diagnosis = diagnose(&setup, observations, &Facts::default()).expect("diagnosed");
    assert_eq!(title(diagnosis.best()), "verify-outside-graph + profiler-counts-waiting");
    assert!(diagnosis.is_explained() && !diagnosis.is_healthy());
    let joined = |a: Kind, b: Kind| {
        let pair = diagnosis.contradictions.iter().find(|one| one.kinds == [a, b]);
        pair.map(|pair| pair.joined_by.clone()).unwrap_or_else(|| panic!("{a} and {b} are not named"))
    };
    assert_eq!(joined(Kind::DecodeTps, Kind::VerifyMs), ["verify-outside-graph"]);
    assert_eq!(joined(Kind::DecodeTps, Kind::ProfiledUs), ["profiler-counts-waiting"]);
    let page: String = sections(&diagnosis, &setup, "").iter().flat_map(|section| &section.blocks).map(|block| format!("{block:?}")).collect();
    assert!(page.contains("12.20 ms / 122 = 100.0 us"), "{page}");
    assert!(diagnosis.first_check().expect("a check").command.contains("SERVER_LOG"), "{:?}", diagnosis.first_check());
}
