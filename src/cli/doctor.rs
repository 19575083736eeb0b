//! `lanecast doctor`: look, measure for a minute, diagnose, say what to do.

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;

use clap::Args;

use crate::cli::diagnose::headline;
use crate::cli::diagnose::scatter;
use crate::cli::diagnose::setup;
use crate::cli::launch;
use crate::cli::output::Output;
use crate::cli::question::Loaded;
use crate::cli::question::QuestionArguments;
use crate::cli::session::Session;
use crate::decide::baseline::Baseline;
use crate::decide::detected::Health;
use crate::decide::diagnose::gather::Gathered;
use crate::decide::diagnose::observed::parse;
use crate::decide::diagnose::verdict::diagnose;
use crate::error::Result;
use crate::render::write::write_file;
use crate::report::Report;
use crate::report::doctor as page;
use crate::trace::table::read_text;

/// Look at this machine, measure for a minute, diagnose, and say what to do
#[derive(Args, Debug)]
pub struct Arguments {
    /// Read these in place of looking and measuring: a stored `detect --format json`, observations, logs, settings
    #[arg(long, value_name = "FILE")]
    from: Vec<PathBuf>,
    /// What was observed besides, as `diagnose` takes it
    #[arg(long, value_name = "NAME=NUMBER")]
    observed: Vec<String>,
    /// A dated baseline: compared with if it is there, written if not
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Write the baseline anew
    #[arg(long, requires = "baseline")]
    renew: bool,
    /// How the all-reduces are believed to run
    #[arg(long, default_value = "nccl-default")]
    strategy: String,
    /// What a measurement scatters by, percent
    #[arg(long, default_value_t = 3.0, value_name = "PERCENT")]
    noise: f64,
    #[command(flatten)]
    question: QuestionArguments,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Looks, measures, diagnoses. The exit code is 1 where something is to be looked at.
///
/// # Errors
/// `gpu-none` without a GPU and without `--from`; bad input.
pub fn run(arguments: &Arguments, session: &Session) -> Result<Report> {
    let mut loaded = arguments.question.load(session)?;
    let scatter = scatter(arguments.noise)?;
    let mut gathered = Gathered::default();
    if arguments.from.is_empty() {
        measured::measure(&mut loaded, &mut gathered, scatter, session)?;
    }
    if !arguments.from.is_empty() && arguments.question.machine == crate::cli::question::DEFAULT_MACHINE {
        session.warn(&format!("the figures are held against {}; say --machine for the one that they are of", loaded.machine.id));
    }
    let setup = setup(&loaded, &arguments.strategy)?;
    for text in &arguments.observed {
        let observed = parse(text, "--observed", scatter, setup.partition.tp)?;
        gathered.notes.extend(gathered.observations.add(observed));
    }
    for file in &arguments.from {
        gathered.read(file, &setup, scatter)?;
    }
    gathered.notes.iter().for_each(|note| session.note(note));
    let versions = versions(&gathered, arguments.from.is_empty());
    let mut sections = page::checks(&gathered.checks);
    let mut passed = gathered.checks.iter().all(|check| check.health != Health::Bad);
    if let Some(path) = &arguments.baseline {
        let known = if path.exists() && !arguments.renew { Some(known(path)?) } else { None };
        match known {
            Some(known) => {
                let (drifts, moved) = (known.drifts(&gathered.observations), known.moved(&versions));
                passed &= !drifts.iter().any(|drift| drift.real && drift.worse);
                sections.push(page::drift(&known, &drifts, &moved));
            }
            None => {
                let fresh = Baseline::new(&launch::date(), versions, &gathered.observations);
                write_file(path, fresh.to_toml().as_bytes())?;
                session.note(&format!("wrote {}", path.display()));
            }
        }
    }
    let rows = page::rows(&gathered.checks);
    if gathered.observations.0.is_empty() {
        sections.push(page::nothing_measured());
    } else {
        let diagnosis = diagnose(&setup, gathered.observations, &gathered.facts)?;
        passed &= diagnosis.is_healthy();
        sections.extend(crate::report::diagnose::sections(&diagnosis, &setup, &headline(&loaded, setup.strategy)));
    }
    let reproduce = session.reproduce().input("machine", loaded.machine.to_toml().as_bytes());
    Ok(Report { title: "Doctor".to_owned(), sections, rows, exact: None, json: None, reproduce, passed })
}

fn known(path: &Path) -> Result<Baseline> {
    Baseline::from_toml(&path.display().to_string(), &read_text(path)?)
}

/// Those of files; of this machine too where it was looked at.
fn versions(gathered: &Gathered, here: bool) -> BTreeMap<String, String> {
    let mut versions = if here { launch::versions() } else { BTreeMap::new() };
    let facts = &gathered.facts.versions;
    for (name, value) in [("driver", &facts.driver), ("cuda", &facts.cuda), ("nccl", &facts.nccl), ("engine", &facts.engine)] {
        if let Some(value) = value {
            versions.insert(name.to_owned(), value.clone());
        }
    }
    versions
}

#[cfg(feature = "gpu")]
mod measured {
    use super::Gathered;
    use super::Loaded;
    use super::Session;
    use crate::decide::detected;
    use crate::error::Fault;
    use crate::error::Result;
    use crate::gpu;
    use crate::gpu::parts::Event;
    use crate::gpu::parts::Options;
    use crate::gpu::parts::Part;
    use crate::trace::observation;

    /// Looks and measures copies and NCCL: about a minute.
    pub fn measure(loaded: &mut Loaded, gathered: &mut Gathered, scatter: f64, session: &Session) -> Result<()> {
        let found = gpu::detect()?;
        let json = serde_json::to_string(&found).map_err(|error| Fault::new("detected", error.to_string()))?;
        let read = detected::read("this machine", &json)?;
        gathered.checks.extend(read.checks);
        gathered.facts.merge(read.facts);
        let count = found.gpus.len() as u32;
        if count < 2 {
            session.note("one GPU: nothing to communicate with, so nothing is measured");
            return Ok(());
        }
        // As it should be: what the links could do, not what they were measured to do.
        loaded.0.machine = gpu::machine(&found, &[], &[], "this-machine", 1)?;
        loaded.0.partition = crate::plan::Partition::tensor(count);
        let verify = loaded.workload.batch * loaded.workload.tokens * loaded.model.hidden * 2;
        let options = Options {
            parts: vec![Part::Flows, Part::Versus],
            ranks: vec![count],
            sizes: vec![verify, crate::decide::diagnose::scenario::LARGE_BYTES],
            ..Options::default()
        };
        let calibration = gpu::calibrate(&options, &mut |event| {
            if let Event::Begins(_, _, what) = event {
                session.note(&format!("measuring: {what}"));
            }
            Ok(())
        })?;
        gathered.notes.extend(calibration.notes);
        let copies: Vec<(String, f64)> =
            calibration.flows.iter().filter(|flow| flow.access == "copy").map(|flow| (flow.flows.clone(), flow.total_gbps)).collect();
        gathered.copies(&copies, &loaded.machine, scatter, "measured");
        let mut csv = format!("{}\n", gpu::observation::OBSERVATION_HEADER);
        for row in &calibration.observations {
            csv += &row.csv();
            csv.push('\n');
        }
        let rows = observation::read_bytes("measured", csv.as_bytes())?;
        let setup = crate::cli::diagnose::setup(loaded, "nccl-default")?;
        gathered.collectives(&rows, &setup, scatter, "measured");
        Ok(())
    }
}

#[cfg(not(feature = "gpu"))]
mod measured {
    use super::Gathered;
    use super::Loaded;
    use super::Session;
    use crate::error::Result;

    /// Says that this program has no GPU side.
    pub fn measure(_: &mut Loaded, _: &mut Gathered, _: f64, _: &Session) -> Result<()> {
        Err(crate::cli::calibrate::no_gpu_side())
    }
}
