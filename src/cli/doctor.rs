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
use crate::cli::question::DEFAULT_MACHINE;
use crate::cli::question::Loaded;
use crate::cli::question::QuestionArguments;
use crate::cli::session::Session;
use crate::decide::baseline::Baseline;
use crate::decide::detected::Health;
use crate::decide::diagnose::gather::Gathered;
use crate::decide::diagnose::observed::parse;
use crate::decide::diagnose::verdict::diagnose;
use crate::error::Result;
use crate::render::page::Section;
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
    /// Ranks on one GPU, to measure NCCL where there is one GPU only
    #[arg(long, value_name = "R", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    ranks_per_gpu: u32,
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
        let own = arguments.question.machine != DEFAULT_MACHINE;
        measured::measure(&mut loaded, &mut gathered, (scatter, arguments.ranks_per_gpu, own), session)?;
    }
    if !arguments.from.is_empty() && arguments.question.machine == DEFAULT_MACHINE {
        session.warn(&format!("the figures are held against {}; say --machine for the one that they are of", loaded.machine.id));
    }
    if loaded.partition.tp < 2 {
        return alone(arguments, session, &gathered, scatter);
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
    let (mut sections, mut passed) = looked_at(arguments, session, &gathered, versions, scatter)?;
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

/// One GPU by itself: checks, readings and drift; nobody to communicate with.
fn alone(arguments: &Arguments, session: &Session, gathered: &Gathered, scatter: f64) -> Result<Report> {
    gathered.notes.iter().for_each(|note| session.note(note));
    if !arguments.observed.is_empty() {
        session.warn("--observed is passed over: of one GPU by itself nothing is diagnosed; say --machine for the server that it is of");
    }
    let (mut sections, passed) = looked_at(arguments, session, gathered, versions(gathered, true), scatter)?;
    sections.push(page::one_gpu());
    let rows = page::rows(&gathered.checks);
    Ok(Report { title: "Doctor".to_owned(), sections, rows, exact: None, json: None, reproduce: session.reproduce(), passed })
}

/// Checks, readings, and what drifted since the baseline, or a new one written. False when something is bad.
fn looked_at(
    arguments: &Arguments,
    session: &Session,
    gathered: &Gathered,
    versions: BTreeMap<String, String>,
    scatter: f64,
) -> Result<(Vec<Section>, bool)> {
    let mut sections = page::checks(&gathered.checks);
    sections.extend(page::measured(&gathered.readings));
    let mut passed = gathered.checks.iter().all(|check| check.health != Health::Bad);
    let Some(path) = &arguments.baseline else { return Ok((sections, passed)) };
    if path.exists() && !arguments.renew {
        let known = known(path)?;
        let (mut drifts, moved) = (known.drifts(&gathered.observations), known.moved(&versions));
        drifts.extend(known.drifts_of(&gathered.readings, scatter));
        passed &= !drifts.iter().any(|drift| drift.real && drift.worse);
        sections.push(page::drift(&known, &drifts, &moved));
    } else {
        let fresh = Baseline::new(&launch::date(), versions, &gathered.observations, &gathered.readings);
        write_file(path, fresh.to_toml().as_bytes())?;
        session.note(&format!("wrote {}", path.display()));
    }
    Ok((sections, passed))
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
    use crate::decide::readings;
    use crate::decide::readings::Reading;
    use crate::error::Fault;
    use crate::error::Result;
    use crate::gpu;
    use crate::gpu::parts::Calibration;
    use crate::gpu::parts::Event;
    use crate::gpu::parts::Options;
    use crate::gpu::parts::Part;
    use crate::trace::observation;

    /// Micro-benchmarks that tell a machine's state, of the many that `calibrate` takes.
    const TELLING: [&str; 8] = [
        "clock_ghz",
        "eager_launch_us",
        "graph_gap_us",
        "pingpong_l2_fence0_oneway_ns",
        "l2_read_latency_ns",
        "memory_read_latency_ns",
        "host_read_latency_ns",
        "fence_sys_ns",
    ];

    /// Looks, and measures launches, latencies, copies and, between ranks, NCCL: about a minute. Without a
    /// machine of the user's `own` the figures are held against this one as it should be.
    pub fn measure(
        loaded: &mut Loaded,
        gathered: &mut Gathered,
        (scatter, sharing, own): (f64, u32, bool),
        session: &Session,
    ) -> Result<()> {
        let found = gpu::detect()?;
        let json = serde_json::to_string(&found).map_err(|error| Fault::new("detected", error.to_string()))?;
        let read = detected::read("this machine", &json)?;
        gathered.checks.extend(read.checks);
        gathered.facts.merge(read.facts);
        let ranks = found.gpus.len() as u32 * sharing;
        if !own {
            // As it should be: what the links could do, not what they were measured to do.
            loaded.0.machine = gpu::machine(&found, &[], &[], "this-machine", sharing)?;
            loaded.0.partition = crate::plan::Partition::tensor(ranks);
            if sharing > 1 {
                loaded.0.environment.insert("NCCL_MULTI_RANK_GPU_ENABLE".to_owned(), "1".to_owned());
            }
        }
        let verify = loaded.workload.batch * loaded.workload.tokens * loaded.model.hidden * 2;
        let mut parts = vec![Part::Micro, Part::Flows];
        if ranks > 1 {
            parts.push(Part::Nccl);
            if sharing > 1 {
                session.note("ranks share a GPU: they talk through its memory, so nothing here tells of links between GPUs");
            }
        } else {
            session.note("one GPU: NCCL has nobody to talk to; --ranks-per-gpu 8 measures ranks that share it");
        }
        let options = Options {
            parts,
            ranks: vec![ranks.max(2)],
            // Ranks that share a GPU have no link that a long message would show.
            sizes: if sharing > 1 { vec![verify] } else { vec![verify, crate::decide::diagnose::scenario::LARGE_BYTES] },
            own_choice_only: true,
            ..Options::default()
        };
        let calibration = gpu::calibrate(&options, &mut |event| {
            if let Event::Begins(_, _, what) = event {
                session.note(&format!("measuring: {what}"));
            }
            Ok(())
        })?;
        gathered.notes.extend(calibration.notes.iter().cloned());
        gathered.readings = readings_of(&calibration);
        gathered.checks.extend(readings::checks(&gathered.readings, &gathered.facts, read.clock_ghz));
        if loaded.partition.tp < 2 {
            return Ok(());
        }
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

    /// The telling micro-benchmarks, and the slowest GPU's copies to and from the host.
    fn readings_of(calibration: &Calibration) -> Vec<Reading> {
        let micro = TELLING.iter().filter_map(|name| calibration.micro.iter().find(|row| row.name == *name));
        let mut all: Vec<Reading> =
            micro.map(|row| Reading { name: row.name.clone(), value: row.value, low: row.low, high: row.high }).collect();
        type Way = fn(&str) -> bool;
        let ways: [(&str, Way); 2] =
            [("copy_host_to_gpu_gbps", |flow| flow.starts_with("h>")), ("copy_gpu_to_host_gbps", |flow| flow.ends_with(">h"))];
        for (name, is) in ways {
            let single = |flow: &&gpu::observation::Flow| flow.access == "copy" && !flow.flows.contains(';') && is(&flow.flows);
            if let Some(gbps) = calibration.flows.iter().filter(single).map(|flow| flow.total_gbps).reduce(f64::min) {
                all.push(Reading { name: name.to_owned(), value: gbps, low: gbps, high: gbps });
            }
        }
        all
    }
}

#[cfg(not(feature = "gpu"))]
mod measured {
    use super::Gathered;
    use super::Loaded;
    use super::Session;
    use crate::error::Result;

    /// Says that this program has no GPU side.
    pub fn measure(_: &mut Loaded, _: &mut Gathered, _: (f64, u32, bool), _: &Session) -> Result<()> {
        Err(crate::cli::calibrate::no_gpu_side())
    }
}
