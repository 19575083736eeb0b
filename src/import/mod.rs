//! Foreign files: one file a format, each from bytes to an [`Outcome`].
//!
//! Readers take what users have, say what they understood and what they passed
//! over, and hold to limits: no input may take much memory, hang or panic.
//! They know no model, plan or strategy.

pub mod aiconfigurator;
pub mod assumed;
pub mod cabling;
pub mod crossover;
pub mod decimal;
pub mod detect;
pub mod events;
pub mod export;
pub mod facts;
pub mod facts_order;
pub mod facts_toml;
pub mod formats;
pub mod gpu_list;
pub mod host_settings;
pub mod input;
pub mod inspector;
pub mod json;
pub mod json_tree;
pub mod kernel_name;
pub mod kineto;
pub mod lspci;
pub mod machine;
pub mod nccl_facts;
pub mod nccl_graph;
pub mod nccl_log;
pub mod nccl_tests;
pub mod nccl_tests_runs;
pub mod nccl_topology;
pub mod nsys_csv;
#[cfg(feature = "nsys")]
pub mod nsys_sqlite;
pub mod nvbandwidth;
pub mod outcome;
pub mod p2p_test;
pub mod p2pmark;
pub mod pci_tree;
pub mod processor;
pub mod product;
pub mod rates;
pub mod rccl_tests;
pub mod serving;
pub mod summary;
pub mod sysfs;
pub mod topo_matrix;
pub mod xml;

use std::path::Path;
use std::path::PathBuf;

use crate::error::Fault;
use crate::error::Result;
use crate::import::formats::Read;
use crate::import::formats::SQLITE;
use crate::import::input::Input;
use crate::import::json::Json;

pub use formats::ForeignKind;
pub use outcome::Outcome;

/// Reads one file or folder of the given kind, or of the kind that it shows.
///
/// # Errors
/// Those of the reader; `import-unknown` where the kind is not recognised.
pub fn read_path(path: &Path, kind: Option<ForeignKind>) -> Result<Outcome> {
    if path.is_dir() {
        return match kind {
            None => sysfs::read(path),
            Some(kind) if kind.name() == sysfs::FORMAT.kind => sysfs::read(path),
            Some(_) => Err(Fault::new("import-unknown", format!("{} is a folder", path.display())).help("expected a file")),
        };
    }
    let input = Input::open(path)?;
    let Some(kind) = kind else {
        let kind = detect::detect_kind(input.head(), &input.name)?;
        return if kind == ForeignKind::of(SQLITE.kind) && path != Path::new("-") { sqlite(path) } else { read_all_in(input, kind) };
    };
    if kind == ForeignKind::of(SQLITE.kind) && path != Path::new("-") {
        return sqlite(path);
    }
    read_input(input, kind)
}

/// Larger files hold one output; what people paste together is smaller.
const PASTE_BYTES_MAX: u64 = 4 << 20;

/// Reads all outputs that were pasted into one text; `kind` is what it looks like first.
fn read_all_in(mut input: Input, kind: ForeignKind) -> Result<Outcome> {
    let name = input.name.clone();
    let Some(text) = input.whole(PASTE_BYTES_MAX)? else { return read_input(input, kind) };
    let kinds = detect::text_kinds(text);
    if kinds.len() < 2 || !kinds.contains(&kind) {
        return read_input(input, kind);
    }
    let (mut all, mut first_fault, mut read) = (Outcome::default(), None, Vec::new());
    for kind in kinds {
        match read_input(Input::from_bytes(&name, text.as_bytes())?, kind) {
            Ok(outcome) => {
                read.push(kind.name());
                all.merge(outcome);
            }
            Err(fault) => {
                all.warn(format!("{name} looks like {} too, but cannot be read as that: {}", kind.name(), fault.message));
                first_fault = first_fault.or(Some(fault));
            }
        }
    }
    match (first_fault, read.len()) {
        (Some(fault), 0) => return Err(fault),
        (_, 2..) => all.understood(format!("{name} holds several outputs: {}", read.join(", "))),
        _ => {}
    }
    Ok(all)
}

/// Reads bytes that came from `name`; SQLite needs a path.
///
/// # Errors
/// See [`read_path`].
pub fn read_bytes(name: &str, bytes: &[u8], kind: Option<ForeignKind>) -> Result<Outcome> {
    let input = Input::from_bytes(name, bytes)?;
    match kind {
        Some(kind) => read_input(input, kind),
        None => {
            let kind = detect::detect_kind(input.head(), name)?;
            read_all_in(input, kind)
        }
    }
}

/// Reads several files and joins what they say; traces are sorted.
///
/// # Errors
/// Those of the first file that cannot be read.
pub fn read_all(paths: &[PathBuf], kind: Option<ForeignKind>) -> Result<Outcome> {
    let mut all = Outcome::default();
    for path in paths {
        all.merge(read_path(path, kind)?);
    }
    if let Some(trace) = &mut all.trace {
        trace.finish();
    }
    Ok(all)
}

fn read_input(input: Input, kind: ForeignKind) -> Result<Outcome> {
    let name = input.name.clone();
    match kind.format()?.read {
        Read::Text(read) => read(&name, &input.text()?),
        Read::Tree(read) => read(&name, &Json::new(&name, input.stream()).tree()?),
        Read::Stream(read) => read(&name, input.stream()),
        Read::Path(expected) => {
            Err(Fault::new("import-unknown", format!("{name} is not read from bytes as {}", kind.name())).help(expected))
        }
    }
}

#[cfg(feature = "nsys")]
fn sqlite(path: &Path) -> Result<Outcome> {
    nsys_sqlite::read(path)
}

#[cfg(not(feature = "nsys"))]
fn sqlite(path: &Path) -> Result<Outcome> {
    Err(Fault::new("import-nsys", format!("{}: this program was built without SQLite", path.display()))
        .help("export with `nsys stats -r cuda_gpu_trace -f csv`, or build with the feature `nsys`"))
}
