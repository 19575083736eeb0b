//! `docs/schema/*.json` against what the program prints with `--format json`: a
//! key that is not described, or missing where it is required, fails.
//!
//! The schemas are JSON Schema 2020-12, of which they use only what is checked
//! here; any other keyword fails too, so that nothing stands there unchecked.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// A schema and the commands whose output it describes, `FOLDER` with `a.csv` and `b.csv`, two traces.
const OUTPUTS: &[(&str, &[&str])] = &[
    ("allreduce", &["allreduce --sizes 4K,64K --strategies nccl-default,one-shot-push,torch-symmetric"]),
    ("bundle", &["bundle", "bundle Cargo.toml"]),
    ("compare", &["compare FOLDER/a.csv FOLDER/b.csv --tolerance 99 --tolerance-part 99", "compare FOLDER/a.csv FOLDER/a.csv"]),
    ("detect", &[]),
    ("diagnose", &["diagnose", "diagnose --observed verify_ms=17"]),
    ("doctor", &["doctor --from traces/h200-measured/detect.json"]),
    ("experiment-next", &["experiment next"]),
    ("experiment-status", &["experiment status"]),
    ("explain", &["explain", "explain io"]),
    ("explain-knobs", &["explain knobs", "explain knobs host_read"]),
    (
        "fit",
        &[
            "fit --machine h200-shared --rows protocol=ll,ranks=2 --constants kinds.h200.protocol.poll_ns traces/observations/h200-nccl-graph.csv",
        ],
    ),
    ("machines", &["machines"]),
    ("machines-show", &["machines show 4x-rtx-5090-direct"]),
    ("models", &["models"]),
    (
        "optimize",
        &[
            "optimize --drafts 0,1 --strategies nccl-default,one-shot-push",
            "optimize --drafts 0 --channels 0 --machine 4x-rtx-5090-direct --model kimi-k2.5 --strategies nccl-default",
        ],
    ),
    ("plan", &["plan show", "plan show --strategy tp4-pp2", "plan show --model gpt-oss-120b --strategy expert-parallel --tokens 1"]),
    (
        "rank",
        &[
            "rank",
            "rank --samples 20 --strategies nccl-default,one-shot-push",
            "rank --tp 4 --machine 4x-rtx-5090-direct --strategies nccl-tree-ll,one-shot-push",
        ],
    ),
    ("run-plan", &["run --dry-run"]),
    ("simulate", &["simulate", "simulate --strategy expert-parallel --launch eager"]),
    ("speculate", &["speculate --drafts 2 --batches 1", "speculate --drafts 1 --batches 1 --draft ngram --strategies nccl-default"]),
    ("strategies", &["strategies", "strategies --machine 4x-rtx-5090-direct --tp 4"]),
    ("validate", &["validate traces/observations/field-ring-8gpu.csv", "validate traces/observations/field-one-shot-4gpu.csv --worst 2"]),
];

/// Commands that print JSON and have no schema, and why.
const NO_SCHEMA: &[&str] = &[
    "calibrate", // needs a GPU; its results are files whose formats docs/formats.md describes
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn schema(name: &str) -> Value {
    let text = fs::read_to_string(root().join(format!("docs/schema/{name}.json"))).unwrap_or_else(|error| panic!("{name}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn printed(words: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanecast"));
    let (command_words, options) = (words.split_whitespace(), ["--quiet", "--format", "json"]);
    // `machines show X` takes its options before the subcommand.
    let mut words: Vec<&str> = command_words.collect();
    let at = if words.get(1) == Some(&"show") && words[0] == "machines" { 1 } else { words.len() };
    words.splice(at..at, options);
    let ran = command.args(&words).current_dir(root()).output().expect("ran");
    assert!(matches!(ran.status.code(), Some(0 | 1)), "{words:?}: {}", String::from_utf8_lossy(&ran.stderr));
    serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// What of `value` is not as `schema` says.
fn misfits(schema: &Value, value: &Value, place: &str, found: &mut Vec<String>) {
    const KNOWN: [&str; 10] =
        ["$schema", "title", "description", "type", "items", "properties", "required", "additionalProperties", "enum", "minimum"];
    let keywords = schema.as_object().unwrap_or_else(|| panic!("{place}: a schema is an object"));
    for keyword in keywords.keys() {
        assert!(KNOWN.contains(&keyword.as_str()), "{place}: the keyword {keyword} is not checked");
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let is = type_of(value);
    let fits = types.is_empty() || types.contains(&is) || (is == "integer" && types.contains(&"number"));
    if !fits {
        return found.push(format!("{place} is {is}, expected {}", types.join(" or ")));
    }
    if schema["enum"].as_array().is_some_and(|names| !names.contains(value)) {
        found.push(format!("{place} is {value}"));
    }
    if let (Some(least), Some(number)) = (schema["minimum"].as_f64(), value.as_f64())
        && number < least
    {
        found.push(format!("{place} is {number}, below {least}"));
    }
    match value {
        Value::Array(entries) if schema.get("items").is_some() => {
            entries.iter().enumerate().for_each(|(at, entry)| misfits(&schema["items"], entry, &format!("{place}[{at}]"), found));
        }
        Value::Object(entries) => {
            for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                if !entries.contains_key(name) {
                    found.push(format!("{place} lacks {name}"));
                }
            }
            for (name, entry) in entries {
                let place = format!("{place}.{name}");
                match (schema["properties"].get(name), schema.get("additionalProperties")) {
                    (Some(schema), _) => misfits(schema, entry, &place, found),
                    (None, Some(Value::Bool(false))) => found.push(format!("{place} is not described")),
                    (None, Some(schema @ Value::Object(_))) => misfits(schema, entry, &place, found),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

fn holds(name: &str, schema: &Value, value: &Value, what: &str) {
    let mut found = Vec::new();
    misfits(schema, value, "$", &mut found);
    found.truncate(20);
    assert!(found.is_empty(), "{what} is not as docs/schema/{name}.json says:\n{}", found.join("\n"));
}

#[test]
fn outputs_are_as_described() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, strategy) in [("a.csv", "nccl-ring-ll"), ("b.csv", "one-shot-push")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lanecast"));
        command.args(["simulate", "--quiet", "--model", "llama-3.1-70b", "--strategy", strategy, "--trace"]).arg(folder.path().join(name));
        assert!(command.output().expect("ran").status.success());
    }
    let folder = folder.path().to_string_lossy().into_owned();
    for (name, commands) in OUTPUTS {
        let schema = schema(name);
        for words in *commands {
            holds(name, &schema, &printed(&words.replace("FOLDER", &folder)), words);
        }
    }
    // What `detect --format json` printed on an H200.
    let text = fs::read_to_string(root().join("traces/h200-measured/detect.json")).expect("readable");
    holds("detect", &schema("detect"), &serde_json::from_str(&text).expect("JSON"), "detect.json");
}

#[test]
fn every_schema_is_used_and_every_command_has_one() {
    let files: BTreeSet<String> = fs::read_dir(root().join("docs/schema"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path().file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    let used: BTreeSet<String> = OUTPUTS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(files, used);
    let help = |command: &str| {
        let ran = Command::new(env!("CARGO_BIN_EXE_lanecast")).args(command.split_whitespace()).arg("--help").output().expect("ran");
        String::from_utf8(ran.stdout).expect("text")
    };
    let all = help("");
    let commands = all.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    for command in commands.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help") {
        let takes_json = help(command).contains("--format <FORMAT>") && !["completions", "man"].contains(&command);
        let has = used.iter().any(|name| name.split('-').next() == Some(command)) || NO_SCHEMA.contains(&command);
        assert!(!takes_json || has, "{command} has no schema");
    }
}

#[test]
fn misfits_are_found() {
    let schema = serde_json::json!({
        "type": "array",
        "items": {
            "type": "object",
            "properties": { "a": { "type": ["number", "null"] }, "b": { "type": "string", "enum": ["x", "y"] } },
            "required": ["a"],
            "additionalProperties": false
        }
    });
    let count = |value: Value| {
        let mut found = Vec::new();
        misfits(&schema, &value, "$", &mut found);
        found.len()
    };
    assert_eq!(count(serde_json::json!([{ "a": 1 }, { "a": null, "b": "x" }])), 0);
    assert_eq!(count(serde_json::json!([{ "a": "1" }, { "b": "z" }, { "a": 1.5, "c": 1 }, 7])), 5);
    assert_eq!(count(serde_json::json!({})), 1);
}
