//! `docs/errors.md` holds each error code of the source, and no other.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("readable") {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The source without the test modules, all files in one.
fn source() -> String {
    let mut files = Vec::new();
    rust_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let text = |file: &PathBuf| fs::read_to_string(file).expect("readable");
    let outside_tests = |text: String| text.split("\n#[cfg(test)]").next().unwrap_or_default().to_owned();
    files.iter().map(|file| outside_tests(text(file))).collect()
}

fn is_code(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// The literals that faults are made with: `Fault::new("code", …)`.
fn made(source: &str) -> BTreeSet<&str> {
    let rest = source.match_indices("Fault::new(").map(|(at, call)| source[at + call.len()..].trim_start());
    rest.filter_map(|text| text.strip_prefix('"')?.split('"').next()).filter(|code| is_code(code)).collect()
}

fn documented(text: &str) -> BTreeSet<&str> {
    text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect()
}

#[test]
fn the_document_and_the_source_have_the_same_codes() {
    let source = source();
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/errors.md")).expect("readable");
    let (made, documented) = (made(&source), documented(&text));
    assert!(made.contains("io"), "the search finds what is there");
    let missing: Vec<String> = made.difference(&documented).map(|code| format!("| `{code}` | meaning | what to do |")).collect();
    assert!(missing.is_empty(), "docs/errors.md lacks these rows:\n{}", missing.join("\n"));
    // A code may also reach Fault::new through a helper's argument, so any literal counts here.
    let stale: Vec<&&str> = documented.iter().filter(|code| !source.contains(&format!("\"{code}\""))).collect();
    assert!(stale.is_empty(), "docs/errors.md has codes that no source has: {stale:?}");
}

#[test]
fn the_document_is_sorted_and_its_codes_are_kebab_case() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/errors.md")).expect("readable");
    let codes: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let mut sorted = codes.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(codes, sorted);
    assert!(codes.iter().all(|code| is_code(code)), "{codes:?}");
}
