//! Ledgers: the case step by step, and what must hold for any campaign.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::Command;

use lanecast::decide::experiment::CASE;
use lanecast::decide::experiment::append::append;
use lanecast::decide::experiment::append::to_toml;
use lanecast::decide::experiment::difference::differences;
use lanecast::decide::experiment::ledger::Factor;
use lanecast::decide::experiment::ledger::Ledger;
use lanecast::decide::experiment::ledger::Measure;
use lanecast::decide::experiment::ledger::Outcome;
use lanecast::decide::experiment::ledger::Run;
use lanecast::decide::experiment::propose::next;
use lanecast::decide::experiment::verdict::status;
use lanecast::report::experiment::next_rows;
use lanecast::report::experiment::verdict_words;
use proptest::prelude::*;

fn run(id: u64, factors: &[&str], outcome: Outcome) -> Run {
    Run {
        id,
        date: None,
        factors: factors.iter().map(|factor| (*factor).to_owned()).collect(),
        outcome,
        message: String::new(),
        value: None,
        low: None,
        high: None,
        note: String::new(),
        exit: None,
        seconds: None,
        command: String::new(),
        log: String::new(),
        environment: BTreeMap::new(),
        versions: BTreeMap::new(),
        clocks: BTreeMap::new(),
    }
}

fn measured(id: u64, factors: &[&str], value: f64) -> Run {
    Run { value: Some(value), ..run(id, factors, Outcome::Measured) }
}

/// Verdicts and the first proposal, as text.
fn told(ledger: &Ledger) -> String {
    let status = status(ledger);
    let mut out = String::new();
    for verdict in status.factors.iter().take(2) {
        let _ = writeln!(out, "{}: {}", verdict.factor, verdict_words(verdict));
    }
    let last = status.runs.last().expect("a run");
    let _ = writeln!(out, "run {} says: {}", last.run, last.says.join("; "));
    let next = next(ledger, &status).expect("proposed");
    let rows = next_rows(&next);
    let first: Vec<String> = rows.rows[0].iter().map(|cell| cell.field()).collect();
    let _ = writeln!(out, "next: {}; {}; isolates: {}", first[1], first[2], first[3]);
    out
}

/// The owner's own way: the crash clears neither and condemns only what it names; then the four variables alone,
/// first whether they serve, then against 16 channels.
#[test]
fn the_case_is_reasoned_step_by_step() {
    let mut ledger = Ledger::from_toml("case", CASE).expect("reads");
    let mut story = format!("after the crash\n{}", told(&ledger));
    ledger.runs.push(run(3, &["few-channels"], Outcome::Serves));
    let _ = write!(story, "after it served alone\n{}", told(&ledger));
    ledger.runs.push(measured(4, &["few-channels"], 33.5));
    let _ = write!(story, "after it was measured\n{}", told(&ledger));
    insta::assert_snapshot!(story);
}

/// Without a message that names anything, two changes and a crash say nothing of either.
#[test]
fn a_crash_of_two_changes_implicates_neither() {
    let mut ledger = Ledger::from_toml("case", CASE).expect("reads");
    ledger.runs[1].message = "Segmentation fault".to_owned();
    let status = status(&ledger);
    assert!(status.factors[..2].iter().all(|verdict| verdict.is_open() && verdict.isolated.is_none()), "{:?}", status.factors);
    assert!(status.runs[1].says.iter().any(|text| text.contains("implicates none of them and clears none")), "{:?}", status.runs[1]);
}

#[test]
fn what_moved_unnoticed_confounds() {
    let mut ledger = Ledger::from_toml("case", CASE).expect("reads");
    ledger.runs = vec![measured(1, &[], 30.0), measured(2, &["custom"], 20.0)];
    assert!(status(&ledger).factors[2].isolated.is_some());
    ledger.runs[0].versions.insert("driver".to_owned(), "595.58".to_owned());
    ledger.runs[1].versions.insert("driver".to_owned(), "596.01".to_owned());
    let moved = status(&ledger);
    assert!(moved.factors[2].isolated.is_none());
    assert!(
        moved.runs[1].says.iter().any(|text| text.contains("confounded") && text.contains("driver (595.58 -> 596.01)")),
        "{:?}",
        moved.runs
    );
}

#[test]
fn what_stands_in_a_file_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("c.toml");
    let text = format!("{CASE}\n# my own comment, kept\n");
    std::fs::write(&path, &text).expect("written");
    assert_eq!(append(&path, &run(0, &["custom"], Outcome::Hang)).expect("added"), 3);
    let mut odd = measured(0, &["custom"], 14.5);
    odd.note = "quotes \" and\nlines and \\ and ü".to_owned();
    odd.environment.insert("NCCL_PROTO".to_owned(), "LL".to_owned());
    assert_eq!(append(&path, &odd).expect("added"), 4);
    let now = std::fs::read_to_string(&path).expect("there");
    assert!(now.starts_with(&text));
    let ledger = Ledger::from_toml("c", &now).expect("reads");
    assert_eq!(ledger.runs[3], Run { id: 4, ..odd });
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 1, "no lock and no part is left");
    // A run of a factor that is not there is refused, and the file stays.
    assert_eq!(append(&path, &run(0, &["nope"], Outcome::Hang)).expect_err("refused").code, "ledger");
    std::fs::write(folder.path().join("c.toml.lock"), "").expect("written");
    assert_eq!(append(&path, &run(0, &[], Outcome::Hang)).expect_err("locked").code, "ledger-locked");
    assert_eq!(std::fs::read_to_string(&path).expect("there"), now);
}

#[test]
fn commands_are_watched() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("c.toml");
    std::fs::write(&path, CASE).expect("written");
    let launch = |arguments: &[&str], script: &str| {
        let ran = Command::new(env!("CARGO_BIN_EXE_lanecast"))
            .args(["experiment", "run"])
            .arg(&path)
            .args(arguments)
            .args(["--", "sh", "-c", script])
            .env("VLLM_API_KEY", "very-secret")
            .env("NCCL_DEBUG", "WARN")
            .output()
            .expect("ran");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let text = std::fs::read_to_string(&path).expect("there");
        assert!(!text.contains("very-secret"));
        Ledger::from_toml("c", &text).expect("reads").runs.pop().expect("a run")
    };
    let good = launch(&["--factors", "few-channels", "--value-after", "verify:"], "echo verify: 14.25 ms $NCCL_NTHREADS");
    assert_eq!((good.outcome, good.value, good.exit), (Outcome::Measured, Some(14.25), Some(0)));
    assert_eq!(good.environment.get("NCCL_NTHREADS").map(String::as_str), Some("64"));
    assert_eq!(good.environment.get("NCCL_DEBUG").map(String::as_str), Some("WARN"));
    let crash = launch(&["--factors", "fused"], "echo starting; echo 'RuntimeError: No supported CUDA architectures' >&2; exit 3");
    assert_eq!((crash.outcome, crash.exit), (Outcome::Crash, Some(3)));
    assert!(crash.message.contains("No supported CUDA architectures") && crash.log.contains("starting"), "{crash:?}");
    let hang = launch(&["--timeout", "0.5"], "echo waiting; sleep 60");
    assert_eq!(hang.outcome, Outcome::Hang);
    let ready = launch(&["--ready", "server is up"], "echo the server is up; sleep 60");
    assert_eq!(ready.outcome, Outcome::Serves);
}

#[test]
fn what_cannot_be_started_adds_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("c.toml");
    std::fs::write(&path, CASE).expect("written");
    let ran = Command::new(env!("CARGO_BIN_EXE_lanecast"))
        .args(["experiment", "run"])
        .arg(&path)
        .args(["--", "no-such-program"])
        .output()
        .expect("ran");
    assert_eq!(ran.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ran.stderr).contains("launch"));
    assert_eq!(std::fs::read_to_string(&path).expect("there"), CASE);
}

fn any_run() -> impl Strategy<Value = Run> {
    (prop::collection::btree_set(0usize..4, 0..4), 0u8..5, 10.0f64..40.0, prop::option::of(0u8..2)).prop_map(
        |(factors, outcome, value, driver)| {
            let names: Vec<String> = factors.into_iter().map(|factor| format!("f{factor}")).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let mut made = match outcome {
                0 => run(0, &names, Outcome::Crash),
                1 => run(0, &names, Outcome::Hang),
                2 => run(0, &names, Outcome::Serves),
                _ => measured(0, &names, value),
            };
            if let Some(driver) = driver {
                made.versions.insert("driver".to_owned(), format!("59{driver}"));
            }
            made
        },
    )
}

fn ledger_of(runs: Vec<Run>) -> Ledger {
    let factor = |place: usize| Factor {
        id: format!("f{place}"),
        what: String::new(),
        strategy: None,
        environment: BTreeMap::new(),
        named_by: Vec::new(),
        minutes: 10.0,
        chance: None,
    };
    let runs = runs.into_iter().enumerate().map(|(place, run)| Run { id: place as u64 + 1, ..run }).collect();
    Ledger {
        format: 1,
        campaign: String::new(),
        measure: Measure::VerifyMs,
        noise_pct: 3.0,
        question: None,
        factors: (0..4).map(factor).collect(),
        runs,
    }
}

proptest! {
    #[test]
    fn a_confounded_run_never_changes_a_verdict_of_isolation(runs in prop::collection::vec(any_run(), 1..7), more in any_run()) {
        let before = ledger_of(runs.clone());
        let after = ledger_of(runs.into_iter().chain([more]).collect());
        let last = after.runs.last().expect("one");
        prop_assume!(before.runs.iter().all(|run| differences(&after, run, last).len() >= 2));
        let isolated = |ledger: &Ledger| status(ledger).factors.into_iter().map(|verdict| verdict.isolated).collect::<Vec<_>>();
        prop_assert_eq!(isolated(&before), isolated(&after));
    }

    #[test]
    fn the_order_of_entries_does_not_matter(runs in prop::collection::vec(any_run(), 1..8), rotate in 0usize..8) {
        let ledger = ledger_of(runs);
        let mut other = ledger.clone();
        let by = rotate % other.runs.len();
        other.runs.rotate_left(by);
        other.runs.reverse();
        prop_assert_eq!(status(&ledger), status(&other));
        let ids = |ledger: &Ledger| next(ledger, &status(ledger)).expect("proposed");
        prop_assert_eq!(ids(&ledger), ids(&other));
    }

    #[test]
    fn what_is_written_is_read_back(made in any_run()) {
        let text = format!("format = 1\ncampaign = \"x\"\nmeasure = \"verify_ms\"\n[[factors]]\nid = \"f0\"\n[[factors]]\nid = \"f1\"\n[[factors]]\nid = \"f2\"\n[[factors]]\nid = \"f3\"\n{}", to_toml(&made));
        let ledger = Ledger::from_toml("x", &text).expect("reads");
        prop_assert_eq!(&ledger.runs[0], &made);
        let factors: BTreeSet<String> = made.factors.clone();
        prop_assert_eq!(&ledger.runs[0].factors, &factors);
    }

    #[test]
    fn mangled_ledgers_never_panic(at in 0usize..CASE.len(), byte: u8) {
        let mut bytes = CASE.as_bytes().to_vec();
        bytes[at] = byte;
        if let Ok(text) = String::from_utf8(bytes)
            && let Ok(ledger) = Ledger::from_toml("x", &text)
        {
            let _ = status(&ledger);
        }
    }
}

/// Ctrl-C, or a kill that nothing can catch: what was launched ends with all that it started, and the ledger says so.
#[cfg(unix)]
#[test]
fn an_interrupted_run_leaves_no_process_and_is_noted() {
    let is_there =
        |pid: &str| Command::new("kill").args(["-0", pid]).stderr(std::process::Stdio::null()).status().expect("asked").success();
    let until = |what: &str, done: &dyn Fn() -> bool| {
        let started = std::time::Instant::now();
        while !done() {
            assert!(started.elapsed().as_secs() < 120, "waited in vain until {what}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    // Started in the background of a script, this test and its children do not hear an interrupt.
    let state = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = state.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok()).unwrap_or(0);
    let interrupt = if ignored & 2 == 0 { "-INT" } else { "-TERM" };
    for signal in [interrupt, "-KILL"] {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, pids) = (folder.path().join("l.toml"), folder.path().join("pids"));
        std::fs::write(&file, CASE).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_lanecast"));
        command.args(["experiment", "run"]).arg(&file).args(["--factors", "few-channels", "--note", "night", "--", "sh", "-c"]);
        command.arg(format!("sleep 600 & echo $$ $! > {}.new; mv {0}.new {0}; wait", pids.display()));
        let mut child = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().expect("started");
        until("it is launched", &|| pids.exists());
        let id = child.id().to_string();
        assert!(Command::new("kill").args([signal, id.as_str()]).status().expect("sent").success());
        child.wait().expect("ended");
        let launched = std::fs::read_to_string(&pids).expect("there");
        until("its processes are gone", &|| launched.split_whitespace().all(|pid| !is_there(pid)));
        let read = || Ledger::from_toml("l", &std::fs::read_to_string(&file).expect("there")).expect("a ledger");
        until("the run is noted", &|| read().runs.len() > 2);
        let ledger = read();
        let run = ledger.runs.last().expect("a run");
        assert_eq!((run.outcome, run.note.as_str(), run.seconds.is_some()), (Outcome::Interrupted, "night", true));
        let status = status(&ledger);
        assert!(status.runs.last().expect("a run").says[0].contains("proves nothing"));
        let factor = status.factors.iter().find(|verdict| verdict.factor == "few-channels").expect("there");
        assert!(!factor.open_in.contains(&run.id) && factor.isolated.is_none());
    }
}

/// What a command leaves behind would hold the GPUs in the next run.
#[cfg(unix)]
#[test]
fn what_a_command_leaves_behind_is_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, left) = (folder.path().join("l.toml"), folder.path().join("left"));
    std::fs::write(&file, CASE).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanecast"));
    command.args(["experiment", "run", "--quiet"]).arg(&file).args(["--", "sh", "-c"]);
    command.arg(format!("sleep 600 >/dev/null 2>&1 & echo $! > {}", left.display()));
    assert!(command.output().expect("ran").status.success());
    let pid = std::fs::read_to_string(&left).expect("there");
    let there = Command::new("kill").args(["-0", pid.trim()]).stderr(std::process::Stdio::null()).status().expect("asked");
    assert!(!there.success(), "{pid} is still there");
}
