//! The rules of CONTRIBUTING.md that a reader of text can check. Each failure
//! is one line: file, line, rule, and why the rule is there.

use std::fs;
use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 400;
const FUNCTION_LINES_MAX: usize = 70;

/// Modules in which the order of a hash map could reach a result.
const ORDERED: [&str; 5] = ["src/simulate/", "src/plan/", "src/collective/", "src/strategy/", "src/case/"];

/// One Rust file: its path from the root with `/`, and its lines.
struct Source {
    path: String,
    lines: Vec<String>,
    /// From this line on the file is its test module.
    tests_from: usize,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Files below `folder`, by path; what git ignores by convention is left out.
fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).expect("readable").map(|entry| entry.expect("entry").path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_symlink() || ["target", ".git", ".cuda", "shared"].contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            files_below(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Every file of the repository that is text, with its path from the root.
fn texts() -> Vec<(String, String)> {
    let mut files = Vec::new();
    files_below(&root(), &mut files);
    let relative = |path: &Path| path.strip_prefix(root()).expect("below the root").to_string_lossy().replace('\\', "/");
    files.iter().filter_map(|path| Some((relative(path), fs::read_to_string(path).ok()?))).collect()
}

fn sources() -> Vec<Source> {
    let rust = texts().into_iter().filter(|(path, _)| path.ends_with(".rs"));
    let all: Vec<Source> = rust.map(|(path, text)| source(path, &text)).collect();
    assert!(all.len() > 10, "the walk found only {} Rust files", all.len());
    all
}

fn source(path: String, text: &str) -> Source {
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let whole = path.starts_with("tests/") || path.starts_with("benches/") || path.ends_with("/tests.rs") || path.contains("/tests/");
    let mark = lines.iter().position(|line| line.starts_with("#[cfg(test)]"));
    Source { path, tests_from: if whole { 0 } else { mark.unwrap_or(lines.len()) }, lines }
}

/// The line without its comment; a `//` inside a string cuts too much, which
/// hides at most the rest of that line.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or("")
}

fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

/// Lines of code outside the test module that `is_wrong` objects to.
fn offending<'a>(source: &'a Source, is_wrong: impl Fn(&str) -> bool + 'a) -> impl Iterator<Item = usize> + 'a {
    source.lines[..source.tests_from].iter().enumerate().filter(move |(_, line)| is_wrong(code(line))).map(|(at, _)| at + 1)
}

fn report(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} broken rules\n{}", wrong.len(), wrong.join("\n"));
}

/// Starts (counted from 1) and lengths of the functions. rustfmt puts a
/// function's closing brace alone at the indent of its first line.
fn functions(lines: &[String]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let text = line.trim_start();
        let signature = ["pub ", "pub(crate) ", "pub(super) ", "const ", "unsafe ", "extern \"C\" "]
            .iter()
            .fold(text, |rest, prefix| rest.strip_prefix(prefix).unwrap_or(rest));
        if !signature.starts_with("fn ") || text.ends_with('}') {
            continue;
        }
        // A declaration in a trait has no body: its `;` comes before any `{`.
        let Some(opening) = lines[start..].iter().find(|l| l.ends_with('{') || l.ends_with(';')) else { continue };
        if opening.ends_with(';') {
            continue;
        }
        let closing = format!("{}}}", " ".repeat(line.len() - text.len()));
        let end = lines[start..].iter().position(|l| *l == closing).unwrap_or(0);
        found.push((start + 1, end + 1));
    }
    found
}

#[test]
fn files_and_functions_stay_short() {
    let mut wrong = Vec::new();
    for source in sources() {
        if source.lines.len() > FILE_LINES_MAX {
            wrong.push(format!("{}: {} lines, at most {FILE_LINES_MAX}: one file has one purpose", source.path, source.lines.len()));
        }
        for (start, length) in functions(&source.lines) {
            if length > FUNCTION_LINES_MAX {
                wrong.push(format!("{}:{start}: a function of {length} lines, at most {FUNCTION_LINES_MAX}: a screen", source.path));
            }
        }
    }
    report(&wrong);
}

#[test]
fn the_function_counter_counts() {
    let text = "impl A {\n    pub fn a() {\n        if x {\n        }\n    }\n}\n\nfn b() {}\n\nfn c(\n    x: u8,\n) -> u8 {\n    x\n}\nfn d()\nwhere\n    Self: Sized;\n";
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    assert_eq!(functions(&lines), [(2, 4), (10, 5)]);
}

#[test]
fn each_file_says_what_it_is_for() {
    let first = |s: &Source| s.lines.first().is_some_and(|line| line.starts_with("//!"));
    let silent = sources().into_iter().filter(|s| !first(s));
    let wrong: Vec<String> = silent.map(|s| format!("{}:1: starts with `//!` and what the file is for", s.path)).collect();
    report(&wrong);
}

#[test]
fn code_that_users_run_does_not_panic_by_design() {
    let mut wrong = Vec::new();
    for source in sources() {
        for line in offending(&source, |line| line.contains(concat!(".unw", "rap()"))) {
            wrong
                .push(format!("{}:{line}: unwrap outside tests: no input may panic; expect() an invariant or return a Fault", source.path));
        }
        for (at, line) in source.lines.iter().enumerate() {
            if code(line).contains(concat!("to", "do!(")) || code(line).contains(concat!("unimple", "mented!(")) {
                wrong.push(format!("{}:{}: unfinished code: what exists works", source.path, at + 1));
            }
        }
    }
    report(&wrong);
}

#[test]
fn results_do_not_depend_on_hashing_or_floats() {
    let mut wrong = Vec::new();
    for source in sources() {
        if ORDERED.iter().any(|folder| source.path.starts_with(folder)) {
            for line in offending(&source, |line| has_word(line, "HashMap") || has_word(line, "HashSet")) {
                wrong.push(format!("{}:{line}: a hash map's order differs from run to run; BTreeMap or Vec", source.path));
            }
        }
        if source.path.starts_with("src/simulate/") {
            for line in offending(&source, |line| has_word(line, "f64") || has_word(line, "f32")) {
                wrong.push(format!("{}:{line}: a float in simulated time: same inputs must give the same bytes anywhere", source.path));
            }
        }
    }
    report(&wrong);
}

/// Is there a `// SAFETY:` on the line, or in the comments and attributes above?
fn is_justified(lines: &[String], at: usize) -> bool {
    let mark = concat!("// SAF", "ETY:");
    if lines[at].contains(mark) {
        return true;
    }
    let above = lines[..at].iter().rev().take_while(|line| {
        let text = line.trim_start();
        text.starts_with("//") || text.starts_with("#[")
    });
    above.into_iter().any(|line| line.contains(mark) || line.contains("# Safety"))
}

#[test]
fn unsafe_code_stays_below_gpu_and_says_why_it_is_sound() {
    let word = concat!("uns", "afe");
    let mut wrong = Vec::new();
    for source in sources() {
        for (at, line) in source.lines.iter().enumerate() {
            if !has_word(code(line), word) || code(line).contains('"') {
                continue;
            }
            if !source.path.starts_with("src/gpu/") {
                wrong.push(format!("{}:{}: {word} outside src/gpu: everything else is checked by the compiler", source.path, at + 1));
            } else if !is_justified(&source.lines, at) {
                wrong.push(format!("{}:{}: {word} without `// SAFETY:` and the reason above it", source.path, at + 1));
            }
        }
    }
    report(&wrong);
}

#[test]
fn the_repository_speaks_of_itself_alone() {
    // In pieces, so that this file does not hold what it looks for.
    let words =
        [["/wo", "rk/"], ["/ro", "ot/"], ["/ho", "me/"], [".lib", "rary/"], ["shared/", "design"], ["shared/", "reference"], ["TO", "DO:"]];
    let mut wrong = Vec::new();
    for (path, text) in texts() {
        for (at, line) in text.lines().enumerate() {
            for word in words.iter().map(|pieces| pieces.concat()).filter(|word| line.contains(word.as_str())) {
                wrong.push(format!("{path}:{}: `{word}`: nothing of one machine or of unfinished work", at + 1));
            }
        }
    }
    report(&wrong);
}

#[test]
fn the_lock_file_names_one_registry() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock is committed");
    let expected = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
    let sources = lock.lines().filter(|line| line.starts_with("source = "));
    let wrong: Vec<String> = sources.filter(|line| *line != expected).map(|line| format!("Cargo.lock: {line}: not crates.io")).collect();
    report(&wrong);
}
