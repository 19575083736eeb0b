//! Hashes of what the program computes, committed: the same bytes on any number
//! of threads, in any profile (`cargo test` and `cargo test --release` read the
//! same file), on any machine. A change that moves a forecast moves a hash:
//! `LANECAST_BLESS=1 cargo test --test golden` rewrites `tests/golden.txt`, and
//! the commit says why.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use lanecast::report::fnv1a_64;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden.txt");

/// Name and words; `FILE` is where a result goes that is hashed in place of stdout.
const CASES: &[(&str, &str)] = &[
    ("trace of the case", "simulate --trace FILE"),
    ("trace of the case, every block simulated", "simulate --no-reuse --trace FILE"),
    (
        "trace, one-shot push on switches, eager",
        "simulate --machine 8x-rtx-pro-6000-switchtec3 --strategy one-shot-push --launch eager --trace FILE",
    ),
    ("trace, stages", "simulate --strategy tp4-pp2 --trace FILE"),
    (
        "trace, experts on ranks",
        "simulate --machine 8x-rtx-pro-6000-turin-direct --model qwen3-235b --strategy expert-parallel --trace FILE",
    ),
    (
        "trace, prefill",
        "simulate --machine 4x-rtx-pro-6000-one-chip --model gpt-oss-120b --strategy two-shot-push --tp 4 --phase prefill --tokens 512 --trace FILE",
    ),
    ("perfetto of the case", "simulate --perfetto FILE"),
    ("plan", "plan show --format json"),
    ("ranking of the case", "rank --format json"),
    ("samples of the case", "rank --format csv --samples 20 --seed 3 --strategies nccl-default,one-shot-push,hierarchical"),
    ("all-reduces", "allreduce --sizes 4K,43008 --strategies nccl-default,one-shot-push,two-shot,hierarchical,mscclpp-packet --format csv"),
    ("speculation", "speculate --drafts 1 --batches 1,8 --strategies nccl-default,one-shot-push --format json"),
    ("sweep", "sweep GRID -o FILE"),
];

const GRID: &str = "format = 1\n[grid]\nmachine = [\"8x-rtx-pro-6000-server\", \"4x-rtx-5090-direct\"]\n\
                    model = [\"llama-3.1-70b\"]\ntp = [4]\ntokens = [1, 3]\nstrategy = [\"nccl-default\", \"one-shot-push\"]\n";

fn hash(words: &str, threads: &str) -> u64 {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, grid) = (folder.path().join("result"), folder.path().join("grid.toml"));
    std::fs::write(&grid, GRID).expect("written");
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let words = words.replace("FILE", &path(&file)).replace("GRID", &path(&grid));
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanecast"));
    command.args(words.split_whitespace()).arg("--quiet").env("RAYON_NUM_THREADS", threads).env("COLUMNS", "100");
    let ran = command.output().expect("ran");
    assert_eq!(ran.status.code(), Some(0), "{words}: {}", String::from_utf8_lossy(&ran.stderr));
    fnv1a_64(&if file.exists() { std::fs::read(&file).expect("written") } else { ran.stdout })
}

#[test]
fn results_are_the_bytes_that_were_committed() {
    let mut lines = String::new();
    for (name, words) in CASES {
        let one = hash(words, "1");
        assert_eq!(one, hash(words, "4"), "{name}: one thread and four");
        let _ = writeln!(lines, "{one:016x}  {name}: lanecast {words}");
    }
    // What repeats may be skipped, and nothing else changes.
    let of = |place: usize| lines.lines().nth(place).and_then(|line| line.split(' ').next()).expect("a line").to_owned();
    assert_eq!(of(0), of(1), "with reuse and without");
    if std::env::var_os("LANECAST_BLESS").is_some() {
        std::fs::write(GOLDEN, &lines).expect("written");
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap_or_default().replace("\r\n", "\n");
    let moved: Vec<&str> = lines.lines().filter(|line| !golden.lines().any(|known| known == *line)).collect();
    assert!(
        moved.is_empty() && golden.lines().count() == CASES.len(),
        "these moved; LANECAST_BLESS=1 if that is meant:\n{}",
        moved.join("\n")
    );
}
