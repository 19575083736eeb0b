//! `lanecast speculate`: does speculative decoding pay, and with what.

use std::path::Path;
use std::path::PathBuf;

use clap::Args;
use clap::ValueEnum;

use crate::case::Case;
use crate::case::LaunchMode;
use crate::case::Policy;
use crate::case::SpeculationConstants;
use crate::cli::arguments::Assignment;
use crate::cli::output::Output;
use crate::cli::question::Launch;
use crate::cli::question::QuestionArguments;
use crate::cli::question::observed_pair;
use crate::cli::question::strategies;
use crate::cli::session::Session;
use crate::decide::settings::Speculation;
use crate::decide::settings::advise;
use crate::decide::speculate::Answer;
use crate::decide::speculate::Cell;
use crate::decide::speculate::Drafter;
use crate::decide::speculate::Request;
use crate::decide::speculate::acceptance::Acceptance;
use crate::decide::speculate::acceptance::ByBatch;
use crate::decide::speculate::acceptance::Shape;
use crate::decide::speculate::speculate;
use crate::error::Fault;
use crate::error::Result;
use crate::import::input::Input;
use crate::import::serving;
use crate::model::Draft;
use crate::model::Eagle3;
use crate::render::chart::line_chart;
use crate::render::drawing::WIDE;
use crate::render::number::Number;
use crate::render::page::Section;
use crate::render::table::Column;
use crate::render::write::write_file;
use crate::report::Report;
use crate::report::speculate::Observed;
use crate::strategy::Context;
use crate::strategy::Effort;
use crate::strategy::Strategy;

/// Who drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DraftArgument {
    /// The model's own layer where it has one, else EAGLE-3
    Auto,
    /// One Llama layer over the target's hidden states, with its own head
    Eagle3,
    /// The model's own multi-token-prediction layer
    Mtp,
    /// A look-up of the prompt, on the host
    Ngram,
    /// Nobody
    None,
}

/// Say whether speculative decoding pays; without arguments, the case
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    question: QuestionArguments,
    /// Who drafts
    #[arg(long, value_enum, default_value = "auto")]
    draft: DraftArgument,
    /// Compare up to this many drafts a cycle; the asked one is --tokens - 1
    #[arg(long, default_value_t = 6)]
    drafts: u64,
    /// Candidates kept at each place of a tree; 1 is a chain
    #[arg(long, default_value_t = 1)]
    width: u64,
    /// Tokens of a tree in the verify pass, the root included
    #[arg(long, value_name = "TOKENS")]
    tree: Option<u64>,
    /// Chance of each draft (one number), or the share of cycles in which each position is accepted, as vLLM prints it: 0.7,0.45,0.3
    #[arg(long, value_name = "RATES", conflicts_with = "acceptance_file")]
    acceptance: Option<String>,
    /// A benchmark: vLLM's or SGLang's JSON, or the CSV of serving observations; the run of the nearest concurrency counts
    #[arg(long, value_name = "FILE")]
    acceptance_file: Option<PathBuf>,
    /// Compare these batches too
    #[arg(long, value_name = "LIST", default_value = "1,2,4,8,16,32,64,128")]
    batches: String,
    /// How verify passes are launched, if not as the rest
    #[arg(long, value_enum)]
    verify_launch: Option<Launch>,
    /// Only these strategies, separated by commas
    #[arg(long, value_name = "IDS")]
    strategies: Option<String>,
    /// The strategy that is in use
    #[arg(long, default_value = "nccl-16-channels")]
    baseline: String,
    /// What was measured: decode_tps=82, verify_ms=30; the case's numbers by default where the question is the case
    #[arg(long, value_name = "NAME=NUMBER")]
    observed: Vec<Assignment>,
    /// Also write the gain over drafts and batches as a drawing (SVG)
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Compares speculation with plain decoding.
///
/// # Errors
/// Bad input, or nothing that can run.
pub fn run(arguments: &Arguments, session: &Session) -> Result<Report> {
    let loaded = arguments.question.load(session)?;
    let case = &loaded.0;
    let (asked, shapes) = shapes(arguments)?;
    let request = Request {
        case,
        drafter: drafter(arguments.draft, case)?,
        acceptance: acceptance(arguments, case, asked.steps)?,
        asked,
        shapes,
        batches: batches(&arguments.batches, case.workload.batch)?,
        verify_launch: match arguments.verify_launch {
            None => case.launch,
            Some(Launch::Graph) => LaunchMode::Graph,
            Some(Launch::Eager) => LaunchMode::Eager,
        },
        strategies: strategies(arguments.strategies.as_deref())?,
        baseline: Strategy::find(&arguments.baseline)?,
    };
    let answer = speculate(&request)?;
    if let Some(path) = &arguments.plot {
        write_file(path, line_chart(&crate::report::speculate::chart(&request, &answer), WIDE).as_bytes())?;
    }
    let observed = observed(arguments)?;
    let mut sections = crate::report::speculate::sections(&request, &answer, &observed, &loaded.headline());
    sections.extend(settings(&request, &answer));
    let mut rows = crate::report::speculate::data::csv_table(&answer);
    rows.fill(Column::text("fits_memory", "fits memory"), loaded.fits_memory());
    Ok(Report {
        title: "Does speculation pay?".to_owned(),
        sections,
        rows,
        exact: None,
        json: Some(crate::report::speculate::data::json(&answer, loaded.fits_memory())),
        reproduce: session.reproduce().input("machine", case.machine.to_toml().as_bytes()),
        passed: true,
    })
}

/// Settings for the fastest that needs no more than variables and flags.
fn settings(request: &Request<'_>, answer: &Answer) -> Option<Section> {
    let batch = request.batches.first().copied()?;
    let quick = |id: &str| Strategy::find(id).is_ok_and(|strategy| strategy.effort == Effort::Minutes);
    let ids: std::collections::BTreeSet<&str> = answer.cells.iter().map(|cell| cell.strategy).filter(|id| quick(id)).collect();
    let best = ids.iter().filter_map(|id| answer.best_shape(batch, id));
    let best = best.fold(None, |best: Option<&Cell>, cell| match best {
        Some(known) if known.tokens_per_s() >= cell.tokens_per_s() => best,
        _ => Some(cell),
    })?;
    let strategy = Strategy::find(best.strategy).ok()?;
    let context = Context::new(&request.case.machine, request.case.partition.ranks() as usize);
    let speculation =
        Speculation { drafter: &request.drafter, shape: best.shape, break_even_tokens: best.cycle_ms() / best.plain_ms.max(1e-9), batch };
    let advice = advise(&Policy::single(strategy), &context, Some(speculation));
    let words = format!(
        "The fastest that needs no more than variables and flags: {} with {} draft(s), forecast at {} tokens/s at batch {batch}. Two steps, two runs: first the flags, then the variables.",
        best.strategy,
        best.shape.steps,
        Number::new(best.tokens_per_s(), 1).grouped()
    );
    Some(crate::report::settings::section(&advice, words))
}

/// The asked shape, and all by number of drafts.
fn shapes(arguments: &Arguments) -> Result<(Shape, Vec<Shape>)> {
    let most = arguments.drafts;
    if most > 32 || arguments.width > 16 || arguments.width == 0 || arguments.tree.is_some_and(|tokens| !(2..=256).contains(&tokens)) {
        return Err(Fault::new("speculate-shape", "at most 32 drafts, 1 to 16 candidates a place, trees of 2 to 256 tokens")
            .help("for example --drafts 6, or --drafts 4 --width 4 --tree 16"));
    }
    if arguments.width > 1 && arguments.tree.is_none() {
        return Err(Fault::new("speculate-shape", "a tree with several candidates a place needs its size")
            .help("add --tree TOKENS, for example 16"));
    }
    let shape = |steps: u64| match arguments.tree {
        Some(verified) => Shape { steps, width: arguments.width, verified },
        None => Shape::chain(steps),
    };
    let asked = arguments.question.tokens.saturating_sub(1).clamp(1, most.max(1));
    Ok((shape(asked), (1..=most).map(shape).collect()))
}

/// Who drafts for a case.
///
/// # Errors
/// None so far.
pub(super) fn drafter(argument: DraftArgument, case: &Case) -> Result<Drafter> {
    let eagle = || Drafter::Model(Draft::Eagle3(Eagle3::for_model(&case.model)));
    Ok(match argument {
        DraftArgument::None => Drafter::None,
        DraftArgument::Ngram => Drafter::NGram,
        DraftArgument::Mtp => Drafter::Model(Draft::Mtp),
        DraftArgument::Auto if case.model.mtp.is_some() => Drafter::Model(Draft::Mtp),
        DraftArgument::Auto | DraftArgument::Eagle3 => eagle(),
    })
}

fn acceptance(arguments: &Arguments, case: &Case, drafts: u64) -> Result<ByBatch> {
    let constants = &case.speculation;
    if let Some(path) = &arguments.acceptance_file {
        return ByBatch::observed(&serving_runs(path)?, drafts, constants);
    }
    Ok(ByBatch::same(rates(arguments.acceptance.as_deref(), constants)?))
}

/// One chance, or the share of each position; by default the constants'.
///
/// # Errors
/// `speculate-acceptance`.
pub(super) fn rates(text: Option<&str>, constants: &SpeculationConstants) -> Result<Acceptance> {
    let Some(text) = text else { return Ok(Acceptance::rate(constants)) };
    let rates: Vec<f64> = (text.split(',').map(str::trim).filter(|part| !part.is_empty()))
        .map(|part| part.parse::<f64>().ok().filter(|rate| (0.0..=1.0).contains(rate)))
        .collect::<Option<_>>()
        .ok_or_else(|| {
            Fault::new("speculate-acceptance", format!("`{text}` holds no shares"))
                .help("expected numbers from 0 to 1: 0.6 or 0.7,0.45,0.3")
        })?;
    match *rates.as_slice() {
        [rate] => Ok(Acceptance::at(constants, rate)),
        _ => Acceptance::shares(&rates, constants),
    }
}

/// Runs of a benchmark file, whatever its form.
fn serving_runs(path: &Path) -> Result<Vec<serving::ServingObservation>> {
    let text = Input::open(path)?.text()?;
    let name = path.to_string_lossy();
    let is_json = text.trim_start().starts_with(['{', '[']);
    if is_json { Ok(serving::read(&name, text.as_bytes())?.serving) } else { serving::read_csv(&name, text.as_bytes()) }
}

/// The asked batch first, then the others of the list.
fn batches(list: &str, asked: u64) -> Result<Vec<u64>> {
    let mut all = vec![asked];
    for part in list.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let batch = part.parse::<u64>().ok().filter(|batch| (1..=1024).contains(batch));
        let batch = batch.ok_or_else(|| {
            Fault::new("speculate-batches", format!("`{part}` is no batch")).help("expected whole numbers from 1 to 1024: --batches 1,8,64")
        })?;
        if !all.contains(&batch) {
            all.push(batch);
        }
    }
    if all.len() > 32 {
        return Err(Fault::new("speculate-batches", "more than 32 batches").help("give fewer"));
    }
    Ok(all)
}

/// What was observed; the case's own figures when nothing of the case was changed.
fn observed(arguments: &Arguments) -> Result<Observed> {
    if arguments.observed.is_empty() && arguments.question.is_case() {
        return Ok(Observed { decode_tps: Some(82.0), verify_ms: Some(30.0), target_ms: Some((12.0, 15.0)) });
    }
    let pair = observed_pair(&arguments.observed)?;
    Ok(Observed { decode_tps: pair.decode_tps, verify_ms: pair.verify_ms, ..Observed::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_asked_batch_comes_first() {
        assert_eq!(batches("1,8, 64", 8).expect("a list"), [8, 1, 64]);
        for wrong in ["0", "x", "1,,9999", "-1"] {
            assert!(batches(wrong, 1).is_err(), "{wrong}");
        }
    }

    #[test]
    fn benchmark_files_are_told_by_their_start() {
        let folder = tempfile::tempdir().expect("a folder");
        let json = folder.path().join("run");
        std::fs::write(
            &json,
            " {\"max_concurrency\":4,\"completed\":8,\"mean_e2e_latency_ms\":900.0,\"output_throughput\":80.5,\"mean_itl_ms\":20.0,\"accept_length\":2.1}",
        )
        .expect("written");
        let csv = folder.path().join("runs.csv");
        std::fs::write(&csv, "engine,concurrency,accepted_length\nvllm,4,2.1\n").expect("written");
        for path in [json, csv] {
            let runs = serving_runs(&path).expect("reads");
            assert_eq!((runs[0].number("concurrency"), runs[0].number("accepted_length")), (Some(4.0), Some(2.1)), "{path:?}");
        }
        assert_eq!(serving_runs(Path::new("no/such")).expect_err("missing").code, "io");
    }
}
