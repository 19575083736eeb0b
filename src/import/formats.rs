//! The table of foreign formats: what each is called, what it looks like, who reads it.
//!
//! A row stands in the file of its importer; to add one is to write that file,
//! its `mod` line and its line below.

use serde_json::Value;

use crate::error::Fault;
use crate::error::Result;
use crate::import::aiconfigurator;
use crate::import::crossover;
use crate::import::host_settings;
use crate::import::input::Stream;
use crate::import::inspector;
use crate::import::kineto;
use crate::import::lspci;
use crate::import::nccl_graph;
use crate::import::nccl_log;
use crate::import::nccl_tests;
use crate::import::nccl_topology;
use crate::import::nsys_csv;
use crate::import::nvbandwidth;
use crate::import::outcome::Outcome;
use crate::import::p2p_test;
use crate::import::p2pmark;
use crate::import::rccl_tests;
use crate::import::serving;
use crate::import::summary;
use crate::import::sysfs;
use crate::import::topo_matrix;

/// One foreign format.
#[derive(Clone, Copy)]
pub struct Format {
    /// What `--kind` takes.
    pub kind: &'static str,
    /// How it is told from others.
    pub looks: Looks,
    /// How it is read.
    pub read: Read,
}

/// Whether a key is among the first of a JSON text.
pub type HasKey<'a> = &'a dyn Fn(&str) -> bool;

/// How a format is told.
#[derive(Clone, Copy)]
pub enum Looks {
    /// A text for which this holds.
    Text(fn(&str) -> bool),
    /// JSON whose first keys are such: the test asks whether a key is there.
    Json(fn(HasKey<'_>) -> bool),
    /// XML that begins with this element.
    Xml(&'static str),
    /// Not by its first bytes.
    Nothing,
}

/// How a format is read, from its name and content.
#[derive(Clone, Copy)]
pub enum Read {
    /// As one text of bounded size.
    Text(fn(&str, &str) -> Result<Outcome>),
    /// As one JSON value of bounded size.
    Tree(fn(&str, &Value) -> Result<Outcome>),
    /// Piece by piece, of any size.
    Stream(fn(&str, Stream) -> Result<Outcome>),
    /// From its path alone; what is expected where bytes are given.
    Path(&'static str),
}

/// SQLite exports of Nsight Systems; their reader is behind the feature `nsys`.
pub const SQLITE: Format = Format {
    kind: "nsys-sqlite",
    looks: Looks::Nothing,
    read: Read::Path("save it to a file, decompressed: SQLite is read from a file only"),
};

/// Every format. Of texts the first that fits is what a text looks like: those
/// that may stand between lines of another come before that one.
pub const FORMATS: &[Format] = &[
    nsys_csv::FORMAT,
    summary::FORMAT,
    aiconfigurator::FORMAT,
    p2p_test::FORMAT,
    nvbandwidth::FORMAT_TEXT,
    p2pmark::FORMAT,
    nccl_tests::FORMAT_TEXT,
    crossover::FORMAT,
    nccl_log::FORMAT,
    topo_matrix::FORMAT,
    lspci::FORMAT,
    host_settings::FORMAT_PARAMS,
    host_settings::FORMAT_CMDLINE,
    // JSON, in the order in which keys are looked for.
    kineto::FORMAT,
    nvbandwidth::FORMAT_JSON,
    inspector::FORMAT,
    rccl_tests::FORMAT,
    nccl_tests::FORMAT_JSON,
    serving::FORMAT,
    // XML.
    nccl_graph::FORMAT,
    nccl_topology::FORMAT,
    // By path.
    sysfs::FORMAT,
    SQLITE,
];

/// A foreign format by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForeignKind(&'static str);

impl ForeignKind {
    /// The format of that name; reading faults where there is none.
    pub const fn of(name: &'static str) -> ForeignKind {
        ForeignKind(name)
    }

    /// All there are.
    pub fn all() -> impl Iterator<Item = ForeignKind> {
        FORMATS.iter().map(|format| ForeignKind(format.kind))
    }

    /// The name that `--kind` takes.
    pub fn name(self) -> &'static str {
        self.0
    }

    /// From the name that `--kind` takes.
    ///
    /// # Errors
    /// `import-unknown` naming all kinds.
    pub fn from_name(name: &str) -> Result<ForeignKind> {
        ForeignKind::all().find(|kind| kind.name() == name).ok_or_else(|| {
            Fault::new("import-unknown", format!("no kind of file is called `{name}`")).help(format!("expected one of {}", names()))
        })
    }

    /// Its row.
    ///
    /// # Errors
    /// As [`ForeignKind::from_name`].
    pub fn format(self) -> Result<&'static Format> {
        ForeignKind::from_name(self.0)?;
        Ok(FORMATS.iter().find(|format| format.kind == self.0).unwrap_or(&FORMATS[0]))
    }
}

/// The names of all, sorted.
pub fn names() -> String {
    let mut names: Vec<&str> = ForeignKind::all().map(ForeignKind::name).collect();
    names.sort_unstable();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_are_unique() {
        for kind in ForeignKind::all() {
            assert_eq!(ForeignKind::from_name(kind.name()).expect("its own name"), kind);
            assert_eq!(kind.format().expect("a format").kind, kind.name());
            assert_eq!(ForeignKind::all().filter(|other| *other == kind).count(), 1, "{}", kind.name());
        }
        assert!(ForeignKind::from_name("x").is_err() && ForeignKind::of("x").format().is_err());
    }
}
