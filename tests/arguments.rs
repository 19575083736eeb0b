//! Random combinations of arguments of every command: an answer with 0, a failed
//! check with 1, or a message with 2; never a panic, a hang or endless memory.

#![cfg(unix)]

use std::collections::BTreeSet;
use std::io::Read as _;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use proptest::prelude::*;

const LANECAST: &str = env!("CARGO_BIN_EXE_lanecast");

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Address space of a run, in KiB.
const SPACE_KIB: u64 = 4 << 20;

/// An option with values that it may meet, good ones first.
type Choice = (&'static str, &'static [&'static str]);

const NUMBERS: &[&str] = &["1", "2", "0", "-1", "4294967296", "18446744073709551616", "1e3", "NaN", "inf", "", "١"];

const EVERYWHERE: &[Choice] = &[
    ("--format", &["csv", "json", "table", "xml", ""]),
    ("--output", &["/dev/null", "/dev/full", "/nonexistent/x", "."]),
    ("--color", &["always", "never", "sometimes"]),
    ("--quiet", &[]),
    ("--verbose", &[]),
];

/// What is asked of one pass.
const QUESTION: &[Choice] = &[
    ("--machine", &["h200-shared", "4x-rtx-5090-direct", "8x-rtx-pro-6000-switchtec3", "nonsense", "", "/dev/null", "."]),
    ("--model", &["llama-3.1-70b", "gpt-oss-120b", "qwen3.5-397b", "nonsense", "", "/dev/null", "."]),
    ("--tokens", NUMBERS),
    ("--context", &["0", "128", "8192", "16777217", "-1", "x"]),
    ("--batch", NUMBERS),
    ("--tp", &["1", "2", "4", "8", "0", "3", "64", "4097"]),
    ("--phase", &["decode", "verify", "prefill", "none"]),
    ("--launch", &["graph", "eager", "none"]),
    ("--cabling", &["direct", "one-switch", "two-switches", "three-switch-tree", "none"]),
    (
        "--set",
        &["fabric.host_read_gbps=40", "fabric.host_read_gbps=1e308", "workload.tokens=nan", "x=1", "=", "speculation.acceptance=0.5"],
    ),
    (
        "--env",
        &[
            "NCCL_PROTO=LL",
            "NCCL_ALGO=Tree",
            "NCCL_ALGO=Foo",
            "NCCL_MAX_NCHANNELS=1",
            "A=b",
            "=",
            "NCCL_GRAPH_FILE=/dev/null",
            "NCCL_BUFFSIZE=1",
        ],
    ),
];

const STRATEGIES: &[&str] =
    &["nccl-default", "one-shot-push", "hierarchical", "tp4-pp2", "expert-parallel", "free-communication", "nonsense", "", ","];

/// Command, its own options, whether it takes a question.
const COMMANDS: &[(&[&str], &[Choice], bool)] = &[
    (
        &["rank"],
        &[
            ("--strategies", &["one-shot-push,nccl-default", "nccl-tree-ll", "nonsense", ","]),
            ("--baseline", STRATEGIES),
            ("--observed", &["verify_ms=30", "decode_tps=1e99", "x=1", "verify_ms=-1"]),
            ("--samples", &["20", "0", "1e9"]),
            ("--seed", NUMBERS),
            ("--html", &["/dev/null", "."]),
        ],
        true,
    ),
    (
        &["simulate"],
        &[
            ("--strategy", STRATEGIES),
            ("--trace", &["/dev/null", "."]),
            ("--perfetto", &["/dev/null", "."]),
            ("--no-reuse", &[]),
            ("--html", &["/dev/null"]),
        ],
        true,
    ),
    (
        &["run", "--dry-run"],
        &[("--strategy", STRATEGIES), ("--repeats", NUMBERS), ("--ranks-per-gpu", NUMBERS), ("--check", &["none", "all", "x"])],
        true,
    ),
    (&["plan", "show"], &[("--strategy", STRATEGIES), ("--view", &["summary", "operations", "dot", "x"])], true),
    (
        &["allreduce"],
        &[
            ("--machine", &["h200-shared", "4x-rtx-5090-direct", "nonsense"]),
            ("--ranks", &["2", "4", "0", "1", "65"]),
            ("--sizes", &["4K", "43008,1M", "0", "1G", "17", ","]),
            ("--strategies", STRATEGIES),
            ("--against", STRATEGIES),
            ("--launch", &["graph", "eager", "eager-single-thread"]),
            ("--variables", STRATEGIES),
        ],
        false,
    ),
    (
        &["validate"],
        &[
            ("--machine", &["h200-shared", "x"]),
            ("--worst", NUMBERS),
            ("--median", NUMBERS),
            ("--allow-skipped", &[]),
            ("--baseline", &[]),
            ("traces/observations/field-ring-8gpu.csv", &[]),
            ("/dev/null", &[]),
        ],
        false,
    ),
    (
        &["fit"],
        &[
            ("--machine", &["h200-shared", "x"]),
            ("--rows", &["protocol=ll", "ranks<=4", "=", ""]),
            ("--holdout", &["ranks=8", "x=y"]),
            ("--constants", &["fabric.host_read_gbps", "x", ""]),
            ("/dev/null", &[]),
        ],
        false,
    ),
    (&["diagnose"], &[("--strategy", STRATEGIES), ("--observed", &["verify_ms=30", "x=1"]), ("--noise", NUMBERS)], true),
    (&["experiment", "status"], &[("/dev/null", &[]), ("nonsense", &[])], false),
    (&["experiment", "next"], &[("/dev/null", &[]), ("nonsense", &[])], false),
    (&["doctor"], &[("--from", &["/dev/null", "."]), ("--noise", NUMBERS), ("--baseline", &["/dev/null"])], true),
    (&["bundle"], &[("--hide", &["a,b", ",", ""]), ("/dev/null", &[]), (".", &[])], false),
    (
        &["sweep"],
        &[("/dev/null", &[]), ("nonsense", &[]), ("--shard", &["1/2", "0/0", "x"]), ("--threads", NUMBERS), ("--group", &["strategy", ""])],
        false,
    ),
    (
        &["optimize", "--strategies", "one-shot-push,nccl-default", "--machine", "4x-rtx-5090-direct"],
        &[
            ("--model", &["llama-3.1-70b", "x"]),
            ("--drafts", &["0", "1,2", "1048576", "-1"]),
            ("--channels", &["0", "2", "4294967295", "-1"]),
            ("--acceptance", NUMBERS),
            ("--partitions", &["2x1x1", "1x2x1", "0x0x0", "x"]),
            ("--batch", NUMBERS),
        ],
        false,
    ),
    (
        &["import"],
        &[
            ("--kind", &["lspci", "kineto", "x"]),
            ("--as", &["machine", "trace", "x"]),
            ("--pass", NUMBERS),
            ("/dev/null", &[]),
            (".", &[]),
            ("-", &[]),
        ],
        false,
    ),
    (&["export", "environment"], &[("--strategy", STRATEGIES), ("--policy", &["64K:one-shot-push,nccl-default", ":", ""])], true),
    (&["export", "tuner"], &[("--strategy", STRATEGIES), ("--policy", &["64K:one-shot-push,nccl-default", "0:nccl-default"])], true),
    (
        &["speculate", "--strategies", "one-shot-push,nccl-default"],
        &[
            ("--draft", &["auto", "mtp", "ngram", "none", "x"]),
            ("--drafts", &["1", "2", "0", "33"]),
            ("--width", NUMBERS),
            ("--tree", NUMBERS),
            ("--acceptance", &["0.7", "0.7,0.5", "2", "NaN", ""]),
            ("--batches", &["1", "1,8", "0", ","]),
            ("--verify-launch", &["eager"]),
        ],
        true,
    ),
    (&["detect"], &[("--id", &["x", "", "a/b"]), ("--ranks-per-gpu", NUMBERS)], false),
    (
        &["calibrate", "--output", "/nonexistent/x"],
        &[("--quick", &[]), ("--ranks", &["2", "0,0", "x"]), ("--sizes", &["43008", "3"]), ("--only", &["micro", "x"])],
        false,
    ),
    (
        &["compare"],
        &[
            ("traces/run-h200/gpt-oss-120b-t3-nccl-ring-ll.csv", &[]),
            ("/dev/null", &[]),
            ("--passes", NUMBERS),
            ("--tolerance", NUMBERS),
            ("--anyway", &[]),
            ("--by-order", &[]),
        ],
        false,
    ),
    (&["machines"], &[("show", &["h200-shared", "x"]), ("export", &["h200-shared", "/dev/null"])], false),
    (&["models"], &[], false),
    (&["strategies"], &[("--machine", &["h200-shared", "x"])], false),
    (&["explain"], &[("io", &[]), ("knobs", &[]), ("nonsense", &[])], false),
    (&["completions"], &[("bash", &[]), ("zsh", &[]), ("fish", &[]), ("x", &[])], false),
    (&["man"], &[("/nonexistent/x", &[])], false),
];

/// Exit code and stderr under a limit of memory and time.
fn run(words: &[String]) -> (Option<i32>, Vec<u8>, String) {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v {SPACE_KIB}; exec \"$0\" \"$@\""), LANECAST]).args(words);
    command.current_dir(env!("CARGO_MANIFEST_DIR")).env("NO_COLOR", "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("started");
    let (mut out, mut err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let (told, said) = (
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = out.read_to_end(&mut bytes);
            bytes
        }),
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = err.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        }),
    );
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("asked") {
            break status;
        }
        assert!(started.elapsed() < PATIENCE, "{words:?} hangs");
        std::thread::sleep(Duration::from_millis(2));
    };
    (status.code(), told.join().expect("read"), said.join().expect("read"))
}

fn holds(words: &[String]) {
    let (code, told, said) = run(words);
    assert!(matches!(code, Some(0..=2)), "{words:?}: {code:?}: {said}");
    assert!(!said.contains(" has a bug"), "{words:?}: {said}");
    assert!(said.len() < 100_000, "{words:?}: {} bytes of messages", said.len());
    if code == Some(2) {
        assert!(told.is_empty(), "{words:?} refused and printed a result");
        assert!(!said.trim().is_empty(), "{words:?} refused without a word");
    }
}

/// A command of which some options are set, each to one of its values.
fn commands() -> impl Strategy<Value = Vec<String>> {
    (0..COMMANDS.len(), prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..6)).prop_map(
        |(which, picks)| {
            let (command, own, is_question) = COMMANDS[which];
            let mut words: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
            let all: Vec<&Choice> = own.iter().chain(if is_question { QUESTION } else { &[] }).chain(EVERYWHERE).collect();
            for (option, value) in picks {
                let (name, values) = option.get(&all);
                words.push((*name).to_owned());
                if !values.is_empty() {
                    words.push((*value.get(values)).to_owned());
                }
            }
            words
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 4, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_arguments_are_answered_or_refused(words in commands()) {
        holds(&words);
    }
}

/// A new command must be added above.
#[test]
fn every_command_is_tried() {
    let (_, told, _) = run(&["--help".to_owned()]);
    let help = String::from_utf8(told).expect("text");
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let listed: BTreeSet<&str> = listed.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect();
    let tried: BTreeSet<&str> = COMMANDS.iter().map(|(words, ..)| words[0]).collect();
    let missing: Vec<&&str> = listed.difference(&tried).collect();
    assert!(missing.is_empty() && listed.len() > 15, "{missing:?}");
}
