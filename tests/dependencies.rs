//! What is built in: licences that `deny.toml` allows, crates from the registry
//! alone, none that needs a newer Rust than ours. `cargo deny check` says the
//! same where it is installed, and looks for advisories too.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn metadata() -> Value {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    command.args(["metadata", "--format-version", "1", "--locked", "--offline"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let ran = command.output().expect("cargo is there");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    serde_json::from_slice(&ran.stdout).expect("JSON")
}

fn packages(metadata: &Value) -> impl Iterator<Item = (&str, &Value)> {
    metadata["packages"].as_array().expect("packages").iter().map(|package| (package["name"].as_str().unwrap_or(""), package))
}

fn allowed() -> BTreeSet<String> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("deny.toml")).expect("readable");
    let file: toml::Value = toml::from_str(&text).expect("TOML");
    let list = file["licenses"]["allow"].as_array().expect("a list");
    list.iter().filter_map(|licence| licence.as_str().map(str::to_owned)).collect()
}

/// Whether an SPDX expression can be met: `OR` of `AND`s, in parentheses too.
fn is_met(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let plain = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ").replace(" WITH ", "-WITH-");
    let words: Vec<&str> = plain.split_whitespace().collect();
    let mut at = 0;
    either(&words, &mut at, allowed)
}

fn either(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut met = both(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        met |= both(words, at, allowed);
    }
    met
}

fn both(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut met = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(words, at, allowed);
    }
    met
}

fn one(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let word = words.get(*at).copied().unwrap_or("");
    *at += 1;
    if word != "(" {
        return allowed.contains(word);
    }
    let met = either(words, at, allowed);
    *at += 1;
    met
}

#[test]
fn expressions_are_read() {
    let allowed: BTreeSet<String> = ["MIT", "Unicode-3.0"].map(str::to_owned).into();
    for (expression, met) in [
        ("MIT", true),
        ("Apache-2.0 OR MIT", true),
        ("GPL-3.0-only", false),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("MIT AND GPL-2.0-only", false),
        ("Unlicense/MIT", true),
        ("Apache-2.0 WITH LLVM-exception OR MIT", true),
        ("", false),
    ] {
        assert_eq!(is_met(expression, &allowed), met, "{expression}");
    }
}

#[test]
fn licences_are_allowed_and_crates_come_from_the_registry() {
    let (metadata, allowed) = (metadata(), allowed());
    for (name, package) in packages(&metadata) {
        let licence = package["license"].as_str().unwrap_or("");
        assert!(is_met(licence, &allowed), "{name}: `{licence}` is not in deny.toml");
        let source = package["source"].as_str();
        let is_registry = source == Some("registry+https://github.com/rust-lang/crates.io-index");
        assert!(is_registry || (name == "lanecast" && source.is_none()), "{name}: {source:?}");
    }
}

/// `rust-version` is what the crates need; clippy (`incompatible_msrv`) holds our own code to it.
#[test]
fn no_crate_needs_a_newer_rust() {
    let number = |text: &str| {
        let mut parts = text.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    };
    let metadata = metadata();
    let of = |package: &Value| package["rust_version"].as_str().map(number);
    let ours = packages(&metadata).find(|(name, _)| *name == "lanecast").and_then(|(_, package)| of(package)).expect("it says so");
    let newer: Vec<&str> = packages(&metadata).filter(|(_, package)| of(package) > Some(ours)).map(|(name, _)| name).collect();
    assert!(newer.is_empty(), "newer than {ours:?}: {newer:?}");
    let most = packages(&metadata).filter(|(name, _)| *name != "lanecast").filter_map(|(_, package)| of(package)).max();
    assert_eq!(most, Some(ours), "rust-version could be lower");
}
