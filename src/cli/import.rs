//! `lanecast import`: from what users have to what the program reads.
//!
//! The one command that writes its result itself: a trace may be larger than
//! memory. What was understood goes to stderr, the product to a file or stdout.

use std::io;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;

use clap::Args;
use clap::ValueEnum;
use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser;

use crate::cli::session::Session;
use crate::error::Fault;
use crate::error::Result;
use crate::import;
use crate::import::ForeignKind;
use crate::import::Outcome;
use crate::import::machine;
use crate::import::machine::Wish;
use crate::import::product;
use crate::import::product::Product;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::render::write::write_file_with;
use crate::report::Report;

/// Turn what you have into a machine, observations, a trace or facts
#[derive(Args, Debug)]
#[command(after_long_help = "The kind of each file is told by its first bytes; gzip is accepted. docs/importing.md describes every kind.")]
pub struct Arguments {
    /// Files or folders (`-`: standard input); what they say of one machine is merged
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// What all files are, where they do not show it themselves
    #[arg(long, value_name = "KIND", hide_possible_values = true, value_parser = kinds())]
    kind: Option<ForeignKind>,
    /// Write to this file instead of stdout; an old file stays until the new one is complete
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// What to write; by default the first of these that the files give and that OUT's ending (csv, toml) is for
    #[arg(long = "as", value_name = "PRODUCT", value_enum)]
    product: Option<Wanted>,
    /// The machine's id in what is written; of a machine by default the name of OUT
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// The kind of all GPUs, where no file names it: rtx-pro-6000, rtx-5090, h100-pcie, …
    #[arg(long, value_name = "GPU")]
    gpu: Option<String>,
    /// The processors, where no file names them: amd-zen2 to amd-zen5, intel-skylake, intel-ice-lake,
    /// intel-sapphire-rapids, intel-emerald-rapids, intel-granite-rapids
    #[arg(long, value_name = "CPU")]
    cpu: Option<String>,
    /// Only this pass of a trace, from 0
    #[arg(long, value_name = "N")]
    pass: Option<u32>,
}

/// What an import can write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Wanted {
    /// What happened on the GPUs, event by event
    Trace,
    /// Measured collectives
    Observations,
    /// Serving benchmarks
    Serving,
    /// Sums by kernel
    Summary,
    /// A machine to rank on
    Machine,
    /// Everything learnt of machine and NCCL
    Facts,
}

impl Wanted {
    fn product(self) -> Product {
        match self {
            Wanted::Trace => Product::Trace,
            Wanted::Observations => Product::Observations,
            Wanted::Serving => Product::Serving,
            Wanted::Summary => Product::Summary,
            Wanted::Machine => Product::Machine,
            Wanted::Facts => Product::Facts,
        }
    }

    fn name(product: Product) -> String {
        let wanted = Wanted::value_variants().iter().find(|wanted| wanted.product() == product);
        wanted.and_then(ValueEnum::to_possible_value).map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

fn kinds() -> impl TypedValueParser<Value = ForeignKind> {
    PossibleValuesParser::new(ForeignKind::all().map(ForeignKind::name)).try_map(|name| ForeignKind::from_name(&name))
}

/// Imports.
///
/// # Errors
/// Those of the readers and of making a machine; `import-nothing`, `import-pass`, `io`.
pub fn run(arguments: &Arguments, session: &Session) -> Result<Report> {
    let outcome = import::read_all(&arguments.files, arguments.kind)?;
    say(&outcome, session);
    let all = product::products(&outcome);
    let product = choose(arguments, &all)?;
    check_pass(arguments, product, &outcome)?;
    let wish = wish(arguments, product);
    let mut gpus = 0;
    if product == Product::Machine {
        let machine = machine::machine(&outcome.facts, &wish)?;
        machine.notes.iter().for_each(|note| session.note(&format!("the machine: {note}")));
        gpus = machine.gpus.len();
    }
    match &arguments.output {
        Some(path) => write_file_with(path, |file| product::write(&outcome, product, &wish, arguments.pass, file))?,
        None => {
            let mut out = Forgiving { out: io::stdout().lock(), gone: false };
            product::write(&outcome, product, &wish, arguments.pass, &mut out)?;
            out.flush().map_err(|error| Fault::io("write", Path::new("standard output"), &error))?;
        }
    }
    conclude(arguments, product, &all, session);
    if let Some(path) = &arguments.output {
        advise(arguments, product, path, gpus, session);
    }
    Ok(Report {
        title: "Import".to_owned(),
        sections: Vec::new(),
        rows: Table::new(vec![Column::text("file", "file")]),
        exact: Some(String::new()),
        json: None,
        reproduce: session.reproduce(),
        passed: true,
    })
}

fn say(outcome: &Outcome, session: &Session) {
    outcome.understood.iter().for_each(|text| session.note(text));
    outcome.skipped.iter().for_each(|text| session.note(&format!("left out: {text}")));
    outcome.warnings.iter().for_each(|text| session.warn(text));
}

/// What was written, what else there is, and what to do with it.
fn conclude(arguments: &Arguments, product: Product, all: &[Product], session: &Session) {
    let others: Vec<String> = all.iter().filter(|other| **other != product).map(|other| format!("--as {}", Wanted::name(*other))).collect();
    let (what, ending) = product.describe();
    let others = if others.is_empty() { String::new() } else { format!("; the files also give: {}", others.join(", ")) };
    let Some(path) = &arguments.output else {
        return session.note(&format!("wrote {what} to standard output{others}"));
    };
    session.note(&format!("wrote {what} to {}{others}", path.display()));
    if path.extension().is_none_or(|found| found != ending) && path.is_file() {
        session.warn(&format!("{} should end with .{ending}: other commands tell files by it", path.display()));
    }
}

/// The command to go on with.
fn advise(arguments: &Arguments, product: Product, path: &Path, gpus: usize, session: &Session) {
    let path = path.display();
    match product {
        Product::Machine => {
            // Models split over powers of two.
            let ranks = (0..).map(|log2| 1usize << log2).take_while(|ranks| *ranks <= gpus.clamp(1, 64)).last().unwrap_or(1);
            session.note(&format!("next: lanecast rank --machine {path} --tp {ranks}"));
        }
        Product::Observations if arguments.id.is_none() => {
            session.note("next: give the machine's id with --id, then lanecast validate compares with forecasts");
        }
        Product::Observations => session.note(&format!("next: lanecast validate {path}")),
        _ => {}
    }
}

/// What was asked for; else the first product that OUT's ending is for; else the first.
fn choose(arguments: &Arguments, all: &[Product]) -> Result<Product> {
    if let Some(wanted) = arguments.product {
        return Ok(wanted.product());
    }
    let ending = arguments.output.as_deref().and_then(Path::extension);
    let fits = all.iter().find(|product| ending.is_some_and(|ending| ending == product.describe().1));
    let chosen = fits.or_else(|| all.first()).copied();
    chosen.ok_or_else(|| Fault::new("import-nothing", "the files hold nothing that can be written"))
}

/// A machine is called after its file unless it is told otherwise; a file of
/// measurements does not tell the machine by its name.
fn wish(arguments: &Arguments, product: Product) -> Wish {
    let stem = arguments.output.as_ref().filter(|_| product == Product::Machine).and_then(|path| path.file_stem());
    let id = arguments.id.clone().or_else(|| stem.map(|stem| stem.to_string_lossy().into_owned()));
    Wish { id: id.unwrap_or_default(), gpu: arguments.gpu.clone(), cpu: arguments.cpu.clone() }
}

fn check_pass(arguments: &Arguments, product: Product, outcome: &Outcome) -> Result<()> {
    let (Some(pass), Some(trace), Product::Trace) = (arguments.pass, &outcome.trace, product) else { return Ok(()) };
    let passes = trace.pass_count();
    if pass < passes {
        return Ok(());
    }
    Err(Fault::new("import-pass", format!("there is no pass {pass}: the trace has {passes}")).help("passes are counted from 0"))
}

/// A stdout whose reader may go away: that is a success.
struct Forgiving<W> {
    out: W,
    gone: bool,
}

impl<W: Write> Forgiving<W> {
    fn forgive<T>(&mut self, done: io::Result<T>, otherwise: T) -> io::Result<T> {
        match done {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.gone = true;
                Ok(otherwise)
            }
            done => done,
        }
    }
}

impl<W: Write> Write for Forgiving<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.gone {
            return Ok(bytes.len());
        }
        let done = self.out.write(bytes);
        self.forgive(done, bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.gone {
            return Ok(());
        }
        let done = self.out.flush();
        self.forgive(done, ())
    }
}
