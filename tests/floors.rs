//! A file imports only from floors below its own, siblings of one module aside.

use std::fs;
use std::path::{Path, PathBuf};

/// Floor of each module; the map in `src/lib.rs` says what they are.
const FLOORS: [(&str, u32); 22] = [
    ("units", 1),
    ("error", 1),
    ("knob", 1),
    ("machine", 2),
    ("model", 2),
    ("collective", 2),
    ("trace", 2),
    ("render", 2),
    ("plan", 3),
    ("nccl", 3),
    ("cost", 3),
    ("strategy", 4),
    ("simulate", 4),
    ("gpu", 4),
    ("compare", 4),
    ("import", 4),
    ("case", 5),
    ("fit", 6),
    ("decide", 7),
    ("report", 8),
    ("cli", 9),
    ("main", 9),
];

fn floor_of(module: &str) -> Option<u32> {
    FLOORS.iter().find(|(name, _)| *name == module).map(|(_, floor)| *floor)
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("src is readable") {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// Every `crate::x` in the text, with the module's name. Grouped imports
/// (`crate::{a, b}`) are not used in this tree, so that this stays simple.
fn imports(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| line.match_indices("crate::").map(move |(at, _)| &line[at + 7..]))
        .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(""))
}

#[test]
fn files_import_only_from_floors_below() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&source, &mut files);
    let mut wrong = Vec::new();
    for file in files {
        let relative = file.strip_prefix(&source).expect("below src");
        let first = relative.components().next().expect("a name").as_os_str().to_string_lossy().into_owned();
        let module = first.trim_end_matches(".rs").to_owned();
        if module == "lib" {
            continue;
        }
        let own = floor_of(&module).unwrap_or_else(|| panic!("{} has no floor: add it to FLOORS", relative.display()));
        let text = fs::read_to_string(&file).expect("readable");
        assert!(!text.contains("use crate::{"), "{}: one `use` a module, please", relative.display());
        for import in imports(&text) {
            let Some(floor) = floor_of(import) else { continue };
            if floor >= own && import != module {
                wrong.push(format!("{} (floor {own}) imports {import} (floor {floor})", relative.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
