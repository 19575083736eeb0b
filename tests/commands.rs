//! What the program prints, word for word: `tests/cmd/*.trycmd` and the
//! examples of README.md. `TRYCMD=overwrite cargo test --test commands`
//! rewrites them; read the difference before committing it.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn snapshots() {
    trycmd::TestCases::new()
        .env("NO_COLOR", "1")
        .env("COLUMNS", "100")
        .insert_var("[VERSION]", env!("CARGO_PKG_VERSION"))
        .expect("a valid variable")
        .case("tests/cmd/*.trycmd")
        .case("README.md")
        .run();
    the_readme_shows_the_import();
}

/// The README's two commands need files beside them, so they run as a case of
/// their own; what the README shows is that case's text.
fn the_readme_shows_the_import() {
    const BEFORE: &str = "<!-- as in tests/cmd/import.trycmd -->\n```text\n";
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| std::fs::read_to_string(root.join(name)).expect(name).replace("\r\n", "\n");
    let case = read("tests/cmd/import.trycmd");
    let case = case.trim_start_matches("```\n").trim_end_matches("```\n");
    let readme = read("README.md");
    let (head, rest) = readme.split_once(BEFORE).expect("the README has the place");
    let (shown, tail) = rest.split_once("```\n").expect("it ends");
    if std::env::var("TRYCMD").is_ok_and(|mode| mode == "overwrite") {
        std::fs::write(root.join("README.md"), format!("{head}{BEFORE}{case}```\n{tail}")).expect("written");
        return;
    }
    assert_eq!(shown, case, "TRYCMD=overwrite cargo test --test commands copies it");
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
