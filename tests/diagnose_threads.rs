//! Problems that people described in public, diagnosed from what they could see.

use std::collections::BTreeMap;
use std::path::PathBuf;

use lanecast::decide::diagnose::facts_file;
use lanecast::decide::diagnose::hypothesis::ALL;
use lanecast::decide::diagnose::scenario::Setup;
use lanecast::decide::diagnose::verdict::diagnose;
use lanecast::machine::Machine;
use lanecast::model::Model;
use lanecast::plan::Partition;
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
