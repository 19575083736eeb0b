//! `lanecast sweep` as a process: order, shards, kills, bad grids, full disks.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::process::Output;
use std::thread;
use std::time::Duration;

const GRID: &str = r#"format = 1
[base]
machine = "4x-rtx-pro-6000-one-chip"
tp = 4
[grid]
"links.*_gbps" = ["x0.5", "x1"]
strategy = ["one-shot-push", "free-communication", "flashinfer-fused"]
drafts = [0, 2]
batch = { from = 1, to = 16, count = 5, scale = "log" }
"#;

fn sweep(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().expect("it starts")
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanecast"));
    command.current_dir(folder).arg("sweep").args(arguments);
    command
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("grid.toml"), GRID).expect("written");
    folder
}

fn text(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).expect("it is there")
}

#[test]
fn rows_are_in_order_whatever_the_threads_and_shards() {
    let folder = folder();
    let path = folder.path();
    let one = sweep(path, &["grid.toml", "-o", "one.csv", "--threads", "1", "--plot", "plot.svg"]);
    assert!(one.status.success(), "{}", String::from_utf8_lossy(&one.stderr));
    let whole = text(path, "one.csv");
    let mut rows = csv::Reader::from_reader(whole.as_bytes());
    assert_eq!(&rows.headers().expect("a header").iter().take(5).collect::<Vec<_>>().join(" "), "case links.*_gbps strategy drafts batch");
    let rows: Vec<csv::StringRecord> = rows.records().collect::<Result<_, _>>().expect("rows");
    assert_eq!(rows.len(), 60);
    assert!(rows.iter().enumerate().all(|(at, row)| row[0] == at.to_string()));
    // The last axis changes fastest.
    assert_eq!(rows[7].iter().skip(1).take(4).collect::<Vec<_>>(), ["x0.5", "one-shot-push", "2", "4"]);
    // What a gate refuses is a row with its reason.
    assert!(rows.iter().all(|row| (&row[5] == "true") == row[16].is_empty()));
    assert!(rows.iter().any(|row| &row[5] == "false") && rows.iter().any(|row| &row[5] == "true"));
    assert!(text(path, "plot.svg").starts_with("<svg"));
    let said = String::from_utf8_lossy(&one.stdout);
    assert!(said.contains("60 cases") && said.contains("Most tokens per second for each strategy"), "{said}");

    assert!(sweep(path, &["grid.toml", "-o", "three.csv", "--threads", "3"]).status.success());
    assert_eq!(text(path, "three.csv"), whole);
    let parts: String = (1..=4)
        .map(|shard| {
            let name = format!("shard{shard}.csv");
            assert!(sweep(path, &["grid.toml", "-o", &name, "--shard", &format!("{shard}/4")]).status.success());
            text(path, &name)
        })
        .collect();
    assert_eq!(parts, whole);
    let left: Vec<_> = fs::read_dir(path).expect("readable").filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    assert!(left.iter().all(|name| !name.contains(".part")), "{left:?}");
}

#[test]
fn a_row_says_what_simulate_says() {
    let folder = folder();
    let path = folder.path();
    fs::write(path.join("list.toml"), "format = 1\n[[list]]\nstrategy = \"nccl-ring-ll\"\ntokens = 3\n").expect("written");
    assert!(sweep(path, &["list.toml", "-o", "list.csv"]).status.success());
    let rows = text(path, "list.csv");
    let pass: f64 = rows.lines().nth(1).and_then(|row| row.split(',').nth(4)).and_then(|cell| cell.parse().ok()).expect("a pass");
    let simulate = Command::new(env!("CARGO_BIN_EXE_lanecast")).args(["simulate", "--strategy", "nccl-ring-ll"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&simulate.stdout);
    assert!(said.contains(&format!("nccl-ring-ll: {pass:.3} ms")), "{pass} in {said}");
}

#[test]
fn a_killed_sweep_goes_on_without_losing_or_repeating_a_row() {
    let folder = folder();
    let path = folder.path();
    assert!(sweep(path, &["grid.toml", "-o", "whole.csv"]).status.success());
    let whole = text(path, "whole.csv");
    let mut kills = 0;
    for rows in [3, 11, 30] {
        let mut child = command(path, &["grid.toml", "-o", "out.csv", "--threads", "1"]).spawn().expect("it starts");
        for _ in 0..6000 {
            let grown = fs::read_to_string(path.join("out.csv.part")).is_ok_and(|text| text.lines().count() > rows + 2);
            if grown || child.try_wait().expect("it can be asked").is_some() {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        if child.try_wait().expect("it can be asked").is_none() {
            child.kill().expect("it runs");
            kills += 1;
        }
        child.wait().expect("it ends");
    }
    assert!(kills > 0, "no run was slow enough to be killed");
    // Torn within a row, as a kill in the middle of a write leaves it.
    if let Ok(mut torn) = fs::read_to_string(path.join("out.csv.part")) {
        torn.push_str("59,x0");
        fs::write(path.join("out.csv.part"), torn).expect("written");
    }
    // Another grid does not go on with it.
    fs::write(path.join("other.toml"), GRID.replace("drafts = [0, 2]", "drafts = [0, 3]")).expect("written");
    if path.join("out.csv.part").exists() {
        let other = sweep(path, &["other.toml", "-o", "out.csv"]);
        assert_eq!(other.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&other.stderr).contains("sweep-part-differs"));
    }
    assert!(sweep(path, &["grid.toml", "-o", "out.csv"]).status.success());
    assert_eq!(text(path, "out.csv"), whole);
    assert!(!path.join("out.csv.part").exists());
}

#[test]
fn random_cases_follow_from_the_seed() {
    let folder = folder();
    let path = folder.path();
    let random = "format = 1\n[random]\ncount = 12\nseed = 7\n[random.axes]\nstrategy = [\"free-communication\", \"one-shot-push\"]\n\
                  batch = { low = 1, high = 8 }\n\"links.*_gbps\" = [\"x0.5\", \"x1\"]\n\"fabric.host_memory_latency_ns\" = { low = 200.0, high = 900.0, scale = \"log\" }\n";
    fs::write(path.join("random.toml"), random).expect("written");
    fs::write(path.join("other.toml"), random.replace("seed = 7", "seed = 8")).expect("written");
    for (grid, out) in [("random.toml", "a.csv"), ("random.toml", "b.csv"), ("other.toml", "c.csv")] {
        let done = sweep(path, &[grid, "-o", out]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    assert_eq!(text(path, "a.csv"), text(path, "b.csv"));
    assert!(text(path, "a.csv") != text(path, "c.csv"));
    let shard: String = ["1/2", "2/2"]
        .map(|shard| {
            assert!(sweep(path, &["random.toml", "-o", "shard.csv", "--shard", shard]).status.success());
            text(path, "shard.csv")
        })
        .concat();
    assert_eq!(shard, text(path, "a.csv"));
}

#[test]
fn bad_grids_end_with_2_and_the_place() {
    let folder = folder();
    let path = folder.path();
    let cases = [
        ("format = 1\n[grid\n", "sweep-syntax", ":2:"),
        ("[grid]\nbatch = [1]\n", "sweep-bad-grid", ":1:1"),
        ("format = 2\n[grid]\nbatch = [1]\n", "sweep-bad-grid", ":1:10"),
        ("format = 1\n", "sweep-bad-grid", ":1:1"),
        ("format = 1\ncolour = 3\n[grid]\nbatch = [1]\n", "sweep-bad-grid", ":2:1"),
        ("format = 1\n[grid]\ncolour = [3]\n", "sweep-unknown-axis", ":3:1"),
        ("format = 1\n[grid]\nbatch = [1, 0]\n", "sweep-bad-value", ":3:13"),
        ("format = 1\n[grid]\nbatch = []\n", "sweep-bad-grid", ":3:9"),
        ("format = 1\n[grid]\nbatch = [1, true]\n", "sweep-bad-grid", ":3:13"),
        ("format = 1\n[grid]\nstrategy = [\"one-shot-push\", \"warp\"]\n", "strategy-unknown", ":3:30"),
        ("format = 1\n[grid]\nmachine = [\"9x-nothing\"]\n", "machine-unknown", ":3:12"),
        ("format = 1\n[base]\nmodel = \"gpt-9\"\n[grid]\nbatch = [1]\n", "model-unknown", ":3:9"),
        ("format = 1\n[grid]\n\"fabric.nothing\" = [1]\n", "knob-unknown", ":3:21"),
        ("format = 1\n[grid]\n\"links.*_gbps\" = [\"x2\", \"x1e9\"]\n", "knob-bounds", ":3:25"),
        ("format = 1\n[grid]\nbatch = { from = 4, to = 1, count = 3 }\n", "sweep-bad-grid", ":3:9"),
        ("format = 1\n[grid]\nbatch = [1]\n[random]\ncount = 1\n", "sweep-bad-grid", ":4:"),
        ("format = 1\n[base]\nbatch = 2\n[grid]\nbatch = [1]\n", "sweep-bad-grid", ":5:1"),
        ("format = 1\n[[list]]\nbatch = 1\n[[list]]\ntokens = 1\n", "sweep-bad-grid", ":4:"),
        ("format = 1\n[random]\ncount = 1\nseed = 1\n", "sweep-bad-grid", ":2:"),
        ("format = 1\n[random]\ncount = 0\nseed = 1\n[random.axes]\nbatch = [1]\n", "sweep-bad-grid", ":3:9"),
        ("format = 1\nlist = []\n", "sweep-bad-grid", ":2:8"),
        ("format = 1\n[grid]\n", "sweep-bad-grid", ":2:1"),
        ("format = 1\n[grid]\nbatch = [1]\nbatch = [2]\n", "sweep-syntax", ":4:1"),
        ("format = 1\n[grid]\ntokens = [1]\ndrafts = [2]\n", "sweep-bad-grid", ":4:1"),
        ("format = 1\n[base]\n\"workload.batch\" = 2\n[grid]\nbatch = [1]\n", "sweep-bad-grid", ":5:1"),
        ("format = 1\n[grid]\nchannels = [1]\n\"env.NCCL_MAX_NCHANNELS\" = [2]\n", "sweep-bad-grid", ":4:1"),
        ("format = 1\n[grid]\n\"fabric.host_memory_latency_ns\" = [nan]\n", "sweep-bad-grid", ":3:"),
        ("format = 1\n[grid]\nbatch = [inf]\n", "sweep-bad-grid", ":3:10"),
        ("format = 1\n[grid]\n\"links.*_gbps\" = [\"xnan\"]\n", "sweep-bad-value", ":3:"),
        ("format = 1\n[grid]\n\"workload.nothing\" = [1]\n", "knob-unknown", ":3:"),
        ("format = 1\n[grid]\n\"model.layers\" = [1.5]\n", "knob-whole", ":3:"),
        ("format = 1\n[grid]\n\"partition.pp\" = [0]\n", "knob-bounds", ":3:"),
    ];
    for (grid, code, place) in cases {
        fs::write(path.join("bad.toml"), grid).expect("written");
        let done = sweep(path, &["bad.toml", "-o", "bad.csv"]);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(2), "{grid}\n{said}");
        assert!(said.contains(code) && said.contains(&format!("bad.toml{place}")), "{code} {place}\n{grid}\n{said}");
        assert!(!path.join("bad.csv").exists() && !path.join("bad.csv.part").exists(), "{grid}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn places_that_cannot_be_written_end_with_2() {
    let folder = folder();
    let path = folder.path();
    for out in ["/proc/out.csv", "missing/out.csv", "."] {
        let done = sweep(path, &["grid.toml", "-o", out]);
        assert_eq!(done.status.code(), Some(2), "{out}");
        assert!(String::from_utf8_lossy(&done.stderr).contains("io"), "{out}");
    }
    // A file may have one block of 512 or 1024 bytes, as on a full disk; the write fails, and is gone on with later.
    let line = format!("ulimit -f 1; trap '' XFSZ; exec {} sweep grid.toml -o full.csv", env!("CARGO_BIN_EXE_lanecast"));
    let done = Command::new("sh").current_dir(path).args(["-c", &line]).output().expect("a shell");
    assert_eq!(done.status.code(), Some(2), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(!path.join("full.csv").exists() && path.join("full.csv.part").exists());
    assert!(sweep(path, &["grid.toml", "-o", "full.csv"]).status.success());
    assert!(sweep(path, &["grid.toml", "-o", "whole.csv"]).status.success());
    assert_eq!(text(path, "full.csv"), text(path, "whole.csv"));
}

/// Every number of a case can vary, and a row is what `simulate` and `speculate` say of that case.
#[test]
fn any_number_of_a_case_is_an_axis() {
    let folder = folder();
    let path = folder.path();
    let grid = "format = 1\n[base]\nmachine = \"4x-rtx-pro-6000-one-chip\"\nmodel = \"llama-3.1-70b\"\nstrategy = \"nccl-ring-ll\"\n\
                context = 256\ntp = 2\n\"model.layers\" = 6\n\"speculation.acceptance\" = 0.6\n\
                [grid]\n\"partition.pp\" = [1, 2]\n\"speculation.draft_steps\" = [0, 2]\n\"strategy.nccl_max_channels\" = [0, 1]\n\
                \"kinds.*.launch.graph_gap_ns\" = [\"x1\", \"x2\"]\n\"speculation.cycle_host_us\" = [100, \"x3\"]\n";
    fs::write(path.join("knobs.toml"), grid).expect("written");
    let done = sweep(path, &["knobs.toml", "-o", "knobs.csv", "--threads", "2"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let rows: Vec<csv::StringRecord> =
        csv::Reader::from_reader(text(path, "knobs.csv").as_bytes()).records().collect::<Result<_, _>>().expect("rows");
    assert_eq!(rows.len(), 32);
    let row = |pp: &str, drafts: &str, channels: &str, gap: &str, host: &str| {
        let wanted = [pp, drafts, channels, gap, host];
        rows.iter().find(|row| row.iter().skip(1).take(5).eq(wanted)).unwrap_or_else(|| panic!("no row {wanted:?}"))
    };
    let number = |row: &csv::StringRecord, column: usize| row[column].parse::<f64>().unwrap_or_else(|_| panic!("{row:?}"));
    let say = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_lanecast")).args(arguments).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let common =
        ["--machine", "4x-rtx-pro-6000-one-chip", "--model", "llama-3.1-70b", "--tp", "2", "--context", "256", "--set", "model.layers=6"];
    // A pass of two stages.
    let staged = row("2", "0", "1", "x1", "100");
    let told = say(&[
        &["simulate", "--strategy", "nccl-ring-ll", "-t", "1", "--set", "partition.pp=2", "--set", "strategy.nccl_max_channels=1"],
        &common[..],
    ]
    .concat());
    assert!(told.contains(&format!(": {:.3} ms, of it", number(staged, 7))), "{staged:?}\n{told}");
    assert!(number(staged, 7) > number(row("1", "0", "1", "x1", "100"), 7));
    // Draft steps of more than one stage are not planned: a row with its reason.
    assert!(row("2", "2", "0", "x1", "100")[17].contains("one pipeline stage"));
    // Tokens per second with drafts are those of `speculate`.
    let drafted = row("1", "2", "0", "x1", "100");
    let words = "speculate --format csv -t 3 --drafts 2 --batches 1 --acceptance 0.6 --baseline nccl-ring-ll \
                 --strategies nccl-ring-ll --set speculation.cycle_host_us=100";
    let told = say(&words.split(' ').chain(common).collect::<Vec<_>>());
    let mut told = csv::Reader::from_reader(told.as_bytes());
    let place = |headers: &csv::StringRecord, name: &str| {
        headers.iter().position(|known| known == name).unwrap_or_else(|| panic!("{name} in {headers:?}"))
    };
    let headers = told.headers().expect("a header").clone();
    let cells: Vec<csv::StringRecord> = told.records().collect::<Result<_, _>>().expect("cells");
    let cell = cells
        .iter()
        .find(|cell| &cell[place(&headers, "drafts")] == "2" && &cell[place(&headers, "strategy")] == "nccl-ring-ll")
        .expect("a cell");
    let near = |ours: f64, name: &str| {
        let theirs = cell[place(&headers, name)].parse::<f64>().expect("a number");
        assert!((ours / theirs - 1.0).abs() < 0.01, "{name}: {ours} and {theirs}");
    };
    near(number(drafted, 15), "draft_ms");
    near(number(drafted, 16), "tokens_per_s");
    assert!(
        number(row("1", "2", "0", "x1", "x3"), 16) < number(drafted, 16) && number(row("1", "2", "0", "x2", "100"), 7) > number(drafted, 7)
    );
}

#[test]
fn a_shard_without_cases_is_an_empty_file() {
    let folder = folder();
    let path = folder.path();
    fs::write(path.join("two.toml"), "format = 1\n[[list]]\nstrategy = \"free-communication\"\n[[list]]\nstrategy = \"one-shot-push\"\n")
        .expect("written");
    let done = sweep(path, &["two.toml", "-o", "none.csv", "--shard", "2/5", "--plot", "none.svg"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(text(path, "none.csv"), "");
    assert!(text(path, "none.svg").starts_with("<svg"));
}
