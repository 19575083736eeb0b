//! `lanecast compare`: two traces side by side.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::path::PathBuf;

use clap::Args;

use crate::cli::output::Output;
use crate::cli::output::Pages;
use crate::cli::session::Session;
use crate::compare::Input;
use crate::compare::Options;
use crate::compare::compare;
use crate::compare::names_differ;
use crate::error::Fault;
use crate::error::Result;
use crate::import::input::Input as Zipped;
use crate::import::input::Stream;
use crate::report::Report;
use crate::report::compare::Tolerances;
use crate::report::compare::report;
use crate::trace::record::Reader;
use crate::trace::record::Record;

/// Records of a pass that are drawn.
const DRAWN_MAX: usize = 100_000;
/// Bytes of a file that are read at once.
const BUFFER_BYTES: usize = 1 << 18;

/// Lay two traces side by side: what differs, by how much, and why
#[derive(Args, Debug)]
pub struct Arguments {
    /// The trace that is compared with (CSV): simulated, measured or imported
    a: PathBuf,
    /// The trace that is compared (CSV)
    b: PathBuf,
    /// Only these passes, by their numbers in the files
    #[arg(long, value_name = "A,B", value_delimiter = ',', num_args = 1)]
    passes: Vec<u32>,
    /// Also traces of other models, plans or ranks, and files that end early
    #[arg(long)]
    anyway: bool,
    /// Join the n-th collective with the n-th and the kernels between them, whatever they are called;
    /// without it only where few names are common
    #[arg(long)]
    by_order: bool,
    /// Exit with 1 when the passes differ by more than this
    #[arg(long, value_name = "PERCENT")]
    tolerance: Option<f64>,
    /// Exit with 1 when the mean of any kind of collective differs by more, from the last arrival on
    #[arg(long, value_name = "PERCENT")]
    tolerance_collective: Option<f64>,
    /// Exit with 1 when compute, transfer, skew or launch gaps differ by more of the pass
    #[arg(long, value_name = "PERCENT")]
    tolerance_part: Option<f64>,
    /// Exit with 1 when more operations than this find no counterpart
    #[arg(long, value_name = "COUNT")]
    tolerance_unmatched: Option<usize>,
    #[command(flatten)]
    pub(super) pages: Pages,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Compares.
///
/// # Errors
/// Files that cannot be read, and traces that do not belong together.
pub fn run(arguments: &Arguments, session: &Session) -> Result<Report> {
    let paths = [&arguments.a, &arguments.b];
    for limit in [arguments.tolerance, arguments.tolerance_collective, arguments.tolerance_part].into_iter().flatten() {
        if !limit.is_finite() || limit < 0.0 {
            return Err(Fault::new("compare-tolerance", format!("{limit} is no tolerance")).help("give percent, 0 or more"));
        }
    }
    let pass = match arguments.passes[..] {
        [] => [None, None],
        [both] => [Some(both), Some(both)],
        [a, b] => [Some(a), Some(b)],
        _ => return Err(Fault::new("compare-passes", "--passes takes one number for each trace").help("for example --passes 0,3")),
    };
    let by_order = arguments.by_order || names_differ(|side| open(paths[side]))?;
    if by_order && !arguments.by_order {
        session.note("few operations have the same name in both traces: they are joined by their order");
    }
    let inputs = [0, 1].map(|side: usize| Input { name: paths[side].display().to_string(), pass: pass[side] });
    let readers = [open(paths[0])?, open(paths[1])?];
    let comparison = compare(inputs, readers, Options { anyway: arguments.anyway, by_order })?;
    let tolerances = Tolerances {
        pass_pct: arguments.tolerance,
        collective_pct: arguments.tolerance_collective,
        part_pct: arguments.tolerance_part,
        unmatched: arguments.tolerance_unmatched,
    };
    let mut reproduce = session.reproduce();
    for (name, path) in [("A", paths[0]), ("B", paths[1])] {
        reproduce = reproduce.hash(name, hash(path)?);
    }
    let drawn = match arguments.pages.wanted() {
        true => Some([one_pass(paths[0], pass[0])?, one_pass(paths[1], pass[1])?]),
        false => None,
    };
    Ok(report(&comparison, &tolerances, reproduce, drawn.as_ref()))
}

/// The records of one pass for drawing, of the first where none is named; none
/// where they are more than a drawing can show.
fn one_pass(path: &Path, pass: Option<u32>) -> Result<Vec<Record>> {
    let mut reader = open(path)?;
    let mut wanted = pass;
    let mut records = Vec::new();
    while let Some(record) = reader.read()? {
        if *wanted.get_or_insert(record.pass) == record.pass {
            records.push(record);
        }
        if records.len() > DRAWN_MAX {
            return Ok(Vec::new());
        }
    }
    Ok(records)
}

/// A trace, plain or (`….gz`) zipped.
fn open(path: &Path) -> Result<Reader<Stream>> {
    let name = path.display().to_string();
    if path.extension().is_some_and(|ending| ending == "gz") {
        return Reader::open(&name, Zipped::open(path)?.stream());
    }
    let file = File::open(path).map_err(|error| Fault::io("open", path, &error))?;
    Reader::open(&name, BufReader::with_capacity(BUFFER_BYTES, Box::new(file)))
}

/// FNV-1a 64 of a file, in pieces.
fn hash(path: &Path) -> Result<u64> {
    use std::io::Read;
    let mut file = File::open(path).map_err(|error| Fault::io("open", path, &error))?;
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut hash = crate::report::reproduce::FNV_START;
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hash),
            Ok(count) => hash = crate::report::reproduce::fnv1a_64_on(hash, &buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Fault::io("read", path, &error)),
        }
    }
}
