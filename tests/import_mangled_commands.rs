//! Spoiled files through the program itself: an answer or exit code 2 with a
//! message of readable length, in bounded time and memory, never a panic.

#[path = "samples/nasty.rs"]
mod nasty;
mod samples;

use std::fs;
use std::io::Read as _;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use lanecast::import::ForeignKind;
use nasty::NASTY;
use proptest::prelude::*;
use samples::SAMPLES;

/// Longer than any small file takes on a busy machine: what goes on for longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Address space of a run, in KiB: reading one line of a gigabyte whole would need more.
const SPACE_KIB: u64 = 1 << 20;

/// What `import` says of `bytes`: exit code and stderr. The output lies in `folder`.
fn import(folder: &Path, kind: Option<ForeignKind>, bytes: &[u8]) -> (i32, String) {
    let (input, output) = (folder.join("input"), folder.join("output"));
    fs::write(&input, bytes).expect("written");
    let _ = fs::remove_file(&output);
    let mut command = limited();
    command.args(["import", "--quiet", "-o"]).arg(&output).arg(&input).stdin(Stdio::null());
    if let Some(kind) = kind {
        command.args(["--kind", kind.name()]);
    }
    let (code, said) = finish(command);
    assert_eq!(output.exists(), code == 0, "there is an output just where there is an answer: {said}");
    (code, said)
}

/// The program under a limit of memory, where there is a shell to set one.
fn limited() -> Command {
    let program = env!("CARGO_BIN_EXE_lanecast");
    if !cfg!(unix) {
        return Command::new(program);
    }
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v {SPACE_KIB}; exec \"$0\" \"$@\""), program]);
    command
}

fn finish(mut command: Command) -> (i32, String) {
    let mut child = command.env("NO_COLOR", "1").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("started");
    let mut pipe = child.stderr.take().expect("piped");
    let reader = std::thread::spawn(move || {
        let mut said = String::new();
        let _ = pipe.read_to_string(&mut said);
        said
    });
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("asked") {
            break status;
        }
        if started.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("it hangs");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    (status.code().unwrap_or(-1), reader.join().expect("read"))
}

/// Done, or refused in words.
fn holds(what: &str, (code, said): (i32, String)) -> i32 {
    assert!(code == 0 || code == 2, "{what}: exit code {code}: {said}");
    assert!(code == 0 || !said.trim().is_empty(), "{what}: refused without a word");
    assert!(said.len() < 20_000 && !said.contains(" has a bug"), "{what}: {} bytes: {:.2000}", said.len(), said);
    code
}

fn refuses(what: &str, answer: (i32, String)) {
    assert_eq!(holds(what, answer), 2, "{what} is no input");
}

#[test]
fn samples_are_read_and_foreign_bytes_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    for (kind, text) in SAMPLES {
        let name = kind.name();
        assert_eq!(holds(name, import(folder.path(), None, text.as_bytes())), 0, "{name} is recognised and written");
        let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        refuses(name, import(folder.path(), Some(*kind), &[&b"\xff\xfe"[..], &utf16].concat()));
        refuses(name, import(folder.path(), Some(*kind), &utf16));
        refuses(name, import(folder.path(), Some(*kind), &[&b"\0\0"[..], text.as_bytes()].concat()));
        refuses(name, import(folder.path(), Some(*kind), b""));
        for cut in [text.len() / 4, text.len() / 2, text.len() - 2] {
            holds(name, import(folder.path(), Some(*kind), text.as_bytes().get(..cut).unwrap_or_default()));
        }
    }
}

#[test]
fn bombs_and_depths_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    (0..96).for_each(|_| encoder.write_all(&vec![b' '; 1 << 20]).expect("memory"));
    let gzip = encoder.finish().expect("memory");
    let entities = "<?xml version=\"1.0\"?><!DOCTYPE a [<!ENTITY b \"bbbbbbbbbb\"><!ENTITY c \"&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;\"><!ENTITY d \"&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;\">]><system version=\"1\"><cpu numaid=\"&d;\"/></system>";
    refuses("entities", import(folder.path(), None, entities.as_bytes()));
    let deep = [
        "[".repeat(1 << 20),
        "{\"a\":".repeat(1 << 18),
        "{\"traceEvents\":[".repeat(1 << 16),
        "<system version=\"1\"><cpu>".to_owned() + &"<pci busid=\"1:1.0\">".repeat(1 << 16),
    ];
    for (kind, _) in SAMPLES {
        refuses(&format!("{}: gzip", kind.name()), import(folder.path(), Some(*kind), &gzip));
        for text in &deep {
            holds(kind.name(), import(folder.path(), Some(*kind), text.as_bytes()));
        }
    }
    for text in &deep {
        refuses("deep", import(folder.path(), None, text.as_bytes()));
    }
}

/// Feeds one line of that many bytes after the start of a sample; a reader that has seen enough goes away.
fn one_line(kind: ForeignKind, start: &str, bytes: u64) -> (i32, String) {
    let mut command = limited();
    command.args(["import", "--quiet", "--kind", kind.name(), "-"]).stdin(Stdio::piped());
    let mut child = command.env("NO_COLOR", "1").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("started");
    let mut input = child.stdin.take().expect("piped");
    let start = start.as_bytes().to_vec();
    let feeder = std::thread::spawn(move || {
        let chunk = vec![b'7'; 1 << 20];
        let mut fed = input.write_all(&start);
        for _ in 0..bytes >> 20 {
            if fed.is_err() {
                break;
            }
            fed = input.write_all(&chunk);
        }
    });
    let output = child.wait_with_output().expect("ended");
    feeder.join().expect("fed");
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn all_long_lines(bytes: u64) {
    for (kind, text) in SAMPLES.iter().filter(|(kind, _)| *kind != ForeignKind::of("nsys-sqlite")) {
        // From the middle of the sample on, and inside the first string that is open there.
        let middle = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let opened = text.find('"').map_or(0, |at| at + 1);
        for start in ["", &text[..middle], &text[..opened]] {
            refuses(kind.name(), one_line(*kind, start, bytes));
        }
    }
}

#[test]
fn a_line_of_eighty_megabytes_is_refused() {
    all_long_lines(80 << 20);
}

/// As above at full size: `cargo test --release --test import_mangled_commands -- --ignored`.
#[test]
#[ignore = "reads 60 GB through pipes"]
fn a_line_of_a_gigabyte_is_refused() {
    all_long_lines(1 << 30);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 0, ..ProptestConfig::default() })]
    #[test]
    fn mangled_files_are_answered_or_refused(
        which in 0..SAMPLES.len(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        nasty in 0..NASTY.len(),
        at: prop::sample::Index,
        told: bool,
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let (kind, text) = SAMPLES[which];
        let mut bytes = text.as_bytes().to_vec();
        for (place, byte) in edits {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let at = at.index(bytes.len());
        bytes.splice(at..at, NASTY[nasty].bytes());
        holds(kind.name(), import(folder.path(), told.then_some(kind), &bytes));
    }
}
