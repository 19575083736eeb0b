//! What the program prints, word for word: `tests/cmd/*.trycmd` and the
//! examples of README.md. `TRYCMD=overwrite cargo test --test commands`
//! rewrites them; read the difference before committing it.

use std::io::Read;
use std::process::{Command, Stdio};

#[test]
fn snapshots() {
    trycmd::TestCases::new()
        .env("NO_COLOR", "1")
        .env("COLUMNS", "100")
        .insert_var("[VERSION]", env!("CARGO_PKG_VERSION"))
        .expect("a valid variable")
        .case("tests/cmd/*.trycmd")
        .case("README.md");
}

fn lanecast() -> Command {
    Command::new(env!("CARGO_BIN_EXE_lanecast"))
}

#[test]
fn a_reader_that_goes_away_is_a_success() {
    let mut child = lanecast().args(["explain", "--quiet"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    drop(child.stdout.take());
    let mut noise = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut noise).expect("text");
    assert_eq!((child.wait().expect("ended").code(), noise.as_str()), (Some(0), ""));
}

#[test]
fn a_file_holds_what_stdout_would() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("codes.csv");
    let to_file = lanecast().args(["explain", "--quiet", "--format", "csv", "--output"]).arg(&file).output().expect("ran");
    let to_stdout = lanecast().args(["explain", "--quiet", "--format", "csv"]).output().expect("ran");
    assert!(to_file.status.success() && to_file.stdout.is_empty() && to_file.stderr.is_empty());
    assert_eq!(std::fs::read(&file).expect("written"), to_stdout.stdout);
    assert!(to_stdout.stdout.starts_with(b"code,meaning,remedy\nargument-environment,"));
}

#[test]
fn a_file_that_cannot_be_written_is_exit_2() {
    let ran = lanecast().args(["explain", "--output", "no/such/folder/x"]).output().expect("ran");
    let text = String::from_utf8(ran.stderr).expect("text");
    assert_eq!(ran.status.code(), Some(2));
    assert!(text.contains("io") && text.contains("no/such/folder/x"), "{text}");
}
