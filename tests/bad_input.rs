//! Bad input gives one clear message and exit 2, never a panic.

use std::fs;
use std::process::Command;

/// Runs the program; exit code, stdout and stderr.
fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let ran = Command::new(env!("CARGO_BIN_EXE_lanecast")).args(arguments).env("NO_COLOR", "1").output().expect("ran");
    (ran.status.code(), String::from_utf8_lossy(&ran.stdout).into_owned(), String::from_utf8_lossy(&ran.stderr).into_owned())
}

fn refused(arguments: &[&str], words: &[&str]) {
    let (code, stdout, stderr) = run(arguments);
    assert_eq!(code, Some(2), "{arguments:?}: {stderr}");
    assert!(stdout.is_empty(), "{arguments:?} printed a result: {stdout}");
    for word in words {
        assert!(stderr.contains(word), "{arguments:?} does not say {word}: {stderr}");
    }
}

#[test]
fn questions_that_have_no_answer() {
    refused(&["rank", "--tokens", "0"], &["workload-bad-value", "tokens"]);
    refused(&["rank", "--tp", "7"], &["model-tp-indivisible"]);
    refused(&["rank", "--tp", "16"], &[]);
    refused(&["rank", "--machine", "8x-rtx-pro-6000-sever"], &["machine-unknown"]);
    refused(&["simulate", "--strategy", "nccl-ring-lll"], &["strategy-unknown"]);
    refused(&["simulate", "--strategy", "torch-symmetric"], &["strategy-infeasible", "multicast"]);
    refused(&["rank", "--observed", "verify_ms=-3"], &["observed-bad-value"]);
    refused(&["rank", "--observed", "speed=3"], &["observed-unknown"]);
    refused(&["rank", "--set", "fabric.host_read_gbps=-1"], &["knob-bounds"]);
    refused(&["rank", "--env", "NCCL_PROTO"], &["argument-environment"]);
    refused(&["validate", "no-such-file.csv"], &["io"]);
    refused(&["nonsense"], &["nonsense"]);
}

#[test]
fn files_that_are_something_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    fs::write(path("config.json"), "<!DOCTYPE html><html><body>Sign in</body></html>").expect("written");
    refused(&["rank", "--model", &path("config.json")], &["model-not-json"]);
    fs::File::create(path("huge.json")).and_then(|file| file.set_len(100 << 20)).expect("written");
    refused(&["rank", "--model", &path("huge.json")], &["model-too-large"]);
    fs::File::create(path("huge.toml")).and_then(|file| file.set_len(100 << 20)).expect("written");
    refused(&["rank", "--machine", &path("huge.toml")], &["machine-too-large"]);
    fs::write(path("observations.csv"), "machine,ranks,bytes,latency_us\nx,two,512,3\n").expect("written");
    refused(&["validate", &path("observations.csv")], &["observations.csv", "ranks"]);
}

/// Faults of a machine file point into it.
#[test]
fn machine_files_with_mistakes() {
    let (_, toml, _) = run(&["machines", "--quiet", "export", "8x-rtx-pro-6000-turin-direct"]);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mine.toml").to_string_lossy().into_owned();
    fs::write(&path, &toml).expect("written");
    let (code, _, stderr) = run(&["simulate", "--quiet", "--machine", &path]);
    assert_eq!(code, Some(0), "what was exported is read: {stderr}");
    for (from, to) in [("a = \"gpu0\"", "a = \"gpu77\""), ("peer_access", "pear_access"), ("format = 1", "format = 99")] {
        assert!(toml.contains(from), "{from}");
        fs::write(&path, toml.replacen(from, to, 1)).expect("written");
        refused(&["simulate", "--machine", &path], &["mine.toml"]);
    }
}

/// The same question gives the same bytes, on one thread and on two.
#[test]
fn the_same_bytes_on_any_number_of_threads() {
    let json = |threads: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lanecast"));
        let ran = command.args(["rank", "--quiet", "--format", "json"]).env("RAYON_NUM_THREADS", threads).output().expect("ran");
        assert_eq!(ran.status.code(), Some(0), "{}", String::from_utf8_lossy(&ran.stderr));
        ran.stdout
    };
    let one = json("1");
    assert_eq!(one, json("2"));
    assert_eq!(one, json("2"));
    let rows: serde_json::Value = serde_json::from_slice(&one).expect("JSON");
    assert!(rows.as_array().is_some_and(|rows| rows.len() > 15));
}
