//! What shells and `man` get: scripts that the shell accepts, a page of each command.

use std::process::Command;

fn lanecast(words: &[&str]) -> String {
    let ran = Command::new(env!("CARGO_BIN_EXE_lanecast")).args(words).output().expect("ran");
    assert!(ran.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).expect("text")
}

#[test]
fn shells_complete_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = lanecast(&["completions", shell]);
        for word in ["rank", "allreduce", "experiment", "completions", "--perfetto", "--observed"] {
            assert!(script.contains(word.trim_start_matches('-')), "{shell} does not know {word}");
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lanecast.bash");
    lanecast(&["completions", "bash", "--output", &file.to_string_lossy()]);
    let checked = Command::new("bash").arg("-n").arg(&file).output().expect("there is a bash");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn every_command_has_a_page() {
    assert!(lanecast(&["man"]).contains(".TH lanecast 1"));
    let folder = tempfile::tempdir().expect("a folder");
    lanecast(&["man", &folder.path().to_string_lossy()]);
    for page in ["lanecast.1", "lanecast-rank.1", "lanecast-experiment-run.1", "lanecast-machines-export.1"] {
        let text = std::fs::read_to_string(folder.path().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.contains(".SH NAME") && text.contains(".SH OPTIONS"), "{page}");
    }
    assert!(!folder.path().join("lanecast-experiment-guard.1").exists(), "what is hidden has no page");
}
