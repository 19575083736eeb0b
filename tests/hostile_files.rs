//! Files and streams that fail: two uses of one file, full disks, folders that
//! cannot be written, writers that are killed, endless inputs. An answer, or one
//! message and exit 2; what was there stays.

#![cfg(unix)]

use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;

const LANECAST: &str = env!("CARGO_BIN_EXE_lanecast");

/// Address space of a run, in KiB: an endless input that is read whole needs more.
const SPACE_KIB: u64 = 3 << 20;

/// One pass of a small model, a few milliseconds of work.
const SMALL: &str = "simulate --quiet --machine 4x-rtx-5090-direct --model llama-3.1-70b --tp 2 --tokens 1";

/// `lanecast` with words as a shell splits them, in `folder`.
fn run(folder: &Path, words: &str) -> Output {
    shell(folder, &format!("ulimit -v {SPACE_KIB}; exec \"$0\" {words}"))
}

fn shell(folder: &Path, script: &str) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", script, LANECAST]).current_dir(folder).env("NO_COLOR", "1").stdin(Stdio::null());
    command.output().expect("ran")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn refused(folder: &Path, words: &str, code: &str) {
    let output = run(folder, words);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(2), "{words}: {text}");
    assert!(text.contains(code) && !text.contains(" has a bug"), "{words}: {text}");
    assert!(text.len() < 20_000, "{words}: {} bytes of message", text.len());
}

fn done(folder: &Path, words: &str) {
    let output = run(folder, words);
    assert_eq!(output.status.code(), Some(0), "{words}: {}", said(&output));
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name().to_string_lossy().into_owned();
    let mut names: Vec<String> = fs::read_dir(folder).expect("a folder").map(name).collect();
    names.sort();
    names
}

#[test]
fn no_file_is_written_twice_or_while_it_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    refused(at, &format!("{SMALL} --trace x --perfetto x"), "argument-same-file");
    refused(at, &format!("{SMALL} --trace x --html ./x"), "argument-same-file");
    refused(at, &format!("{SMALL} --perfetto x -o x"), "argument-same-file");
    assert!(names(at).is_empty(), "nothing was written: {:?}", names(at));
    let rows = "ranks,bytes,latency_us\n2,1024,5\n";
    fs::write(at.join("rows.csv"), rows).expect("written");
    fs::hard_link(at.join("rows.csv"), at.join("twin.csv")).expect("linked");
    std::os::unix::fs::symlink("rows.csv", at.join("link.csv")).expect("linked");
    for name in ["rows.csv", "./rows.csv", "twin.csv", "link.csv"] {
        refused(at, &format!("validate rows.csv --machine h200-shared -o {name}"), "argument-same-file");
        refused(at, &format!("diagnose --quiet rows.csv -o {name}"), "argument-same-file");
        refused(at, &format!("bundle rows.csv -o {name}"), "argument-same-file");
    }
    assert_eq!(fs::read_to_string(at.join("rows.csv")).expect("there"), rows);
    done(at, "machines --quiet -o mine.toml export h200-shared");
    refused(at, "rank --machine mine.toml -o mine.toml", "argument-same-file");
    refused(at, "simulate --env NCCL_GRAPH_FILE=mine.toml --trace mine.toml", "argument-same-file");
    refused(at, "experiment new l.toml -o l.toml", "argument-same-file");
    refused(at, "sweep mine.toml -o mine.toml", "argument-same-file");
    // Devices may be named as often as one likes.
    done(at, &format!("{SMALL} --trace /dev/null --perfetto /dev/null -o /dev/null"));
}

#[test]
fn full_disks_and_folders_that_cannot_be_written_are_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    for target in ["/dev/full", "/sys/lanecast", "/nonexistent/x", "."] {
        refused(at, &format!("models --quiet -o {target}"), "io");
        refused(at, &format!("{SMALL} --trace {target}"), "io");
        refused(at, &format!("{SMALL} --perfetto {target}"), "io");
        refused(at, &format!("{SMALL} --html {target}"), "io");
    }
    refused(at, "models --quiet >/dev/full", "io");
    refused(at, &format!("{SMALL} --format json >/dev/full"), "io");
    // Errors that nobody can read change nothing but that.
    assert_eq!(run(at, "models --quiet -o /nonexistent/x 2>/dev/full").status.code(), Some(2));
    assert_eq!(run(at, "models 2>/dev/full >/dev/null").status.code(), Some(0));
    assert!(names(at).is_empty(), "{:?}", names(at));
}

/// The system ends a program that writes past its limit, in the middle of the file.
#[test]
fn a_write_that_is_killed_leaves_the_old_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    fs::write(at.join("old.csv"), "old").expect("written");
    let output = shell(at, &format!("ulimit -f 1; exec \"$0\" {SMALL} --trace old.csv"));
    assert!(output.status.signal().is_some() || output.status.code() == Some(2), "{:?}: {}", output.status, said(&output));
    assert_eq!(fs::read_to_string(at.join("old.csv")).expect("there"), "old");
}

/// An import that is killed while it reads has not touched its output.
#[test]
fn a_read_that_is_killed_leaves_the_old_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("old.csv");
    fs::write(&out, "old").expect("written");
    let mut command = Command::new(LANECAST);
    command.args(["import", "--quiet", "--kind", "kineto", "-o"]).arg(&out).arg("-").stdin(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("started");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(b"{\"traceEvents\":[").expect("it listens");
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert_eq!(fs::read_to_string(&out).expect("there"), "old");
    assert_eq!(names(folder.path()), ["old.csv"]);
}

#[test]
fn closed_streams_are_no_bugs() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let code = |script: &str| shell(at, script).status.code();
    assert_eq!(code("exec \"$0\" models <&- >&- 2>&-"), Some(0));
    assert_eq!(code("exec \"$0\" import --quiet - <&-"), Some(2));
    assert_eq!(code("exec \"$0\" nonsense 2>&-"), Some(2));
    assert_eq!(code("\"$0\" strategies | head -c 1 >/dev/null"), Some(0));
    // No terminal, no home, no environment at all.
    assert_eq!(code("exec env -i \"$0\" rank --quiet --strategies one-shot-push >/dev/null"), Some(0));
}

/// Every input has a limit: an endless one is refused without being held.
#[test]
fn endless_inputs_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    for words in [
        "rank --machine /dev/zero",
        "rank --model /dev/zero",
        "rank --env NCCL_GRAPH_FILE=/dev/zero",
        "validate /dev/zero",
        "validate --split /dev/zero x.csv",
        "fit --machine h200-shared /dev/zero",
        "fit --machine h200-shared --split /dev/zero x.csv",
        "diagnose /dev/zero",
        "doctor --from /dev/zero",
        "experiment status /dev/zero",
        "experiment add /dev/zero --outcome serves",
        "bundle /dev/zero",
        "sweep /dev/zero -o rows.csv",
        "import /dev/zero",
        "import --kind lspci /dev/zero",
        "export chakra --trace /dev/zero -o out",
        "speculate --acceptance-file /dev/zero",
        "compare /dev/zero /dev/zero",
        "allreduce --sizes 4K --strategies nccl-default --html page.html --measured /dev/zero",
        "machines show /dev/zero",
    ] {
        let output = run(at, &format!("{words} --quiet"));
        let text = said(&output);
        assert_eq!(output.status.code(), Some(2), "{words}: {text}");
        assert!(!text.contains(" has a bug") && text.len() < 20_000, "{words}: {text}");
    }
}

/// Nothing but what the user named, and no socket: the files of the folder are
/// those that were asked for.
#[test]
fn only_named_files_are_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    done(at, &format!("{SMALL} --trace t.csv --perfetto t.json --html t.html --format json -o t.out"));
    assert_eq!(names(at), ["t.csv", "t.html", "t.json", "t.out"]);
}
