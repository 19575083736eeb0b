//! Speculation against public before/after pairs: Kimi-K2.6 on eight GPUs with
//! EAGLE-3 and without, and before and after its verify pass got into a graph.
//!
//! The source does not state the cabling. The machine taken is the built-in one
//! whose all-reduces are nearest to those measured on the same rig (NCCL 24.5 us
//! at 57,344 B, 39 at 256 KiB, 61 at 512 KiB; a fused kernel 59 us at 172,032 B
//! and 147 at 458,752 B). One number is fitted, on the plain rows of short
//! prompts alone: how skewed the experts' popularity is. No row with speculation
//! is fitted.

use lanecast::case::Case;
use lanecast::case::LaunchMode;
use lanecast::case::SpeculationConstants;
use lanecast::decide::speculate::Answer;
use lanecast::decide::speculate::Drafter;
use lanecast::decide::speculate::Request;
use lanecast::decide::speculate::acceptance::ByBatch;
use lanecast::decide::speculate::acceptance::Shape;
use lanecast::decide::speculate::speculate;
use lanecast::import::serving;
use lanecast::machine::Machine;
use lanecast::model::Draft;
use lanecast::model::Dtype;
use lanecast::model::Eagle3;
use lanecast::model::Model;
use lanecast::model::Workload;
use lanecast::plan::Partition;
use lanecast::strategy::Strategy;

/// Effects below this are not claimed.
const EFFECT_PCT: f64 = 5.0;

struct Row {
    config: String,
    context: u64,
    /// Concurrency and tokens per second.
    speeds: Vec<(u64, f64)>,
}

fn field() -> Vec<Row> {
    let text = include_str!("fixtures/speculation/kimi-k2.6-eagle3.csv");
    let lines = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            let context = cells[1].trim_end_matches('k').parse::<u64>().expect("a number") * if cells[1].ends_with('k') { 1024 } else { 1 };
            let speed = |(at, cell): (usize, &&str)| Some((1 << at, cell.parse().ok()?));
            Row { config: cells[0].to_owned(), context, speeds: cells[2..].iter().enumerate().filter_map(speed).collect() }
        })
        .collect()
}

/// The acceptance that the source states: of three drafts, 0.316 at one request and 0.430 at 128.
fn acceptance() -> ByBatch {
    let csv = "engine,concurrency,acceptance_pct,drafts,draft_tokens\nvllm,1,31.6,1,3\nvllm,128,43.0,1,3\n";
    let runs = serving::read_csv("acceptance", csv.as_bytes()).expect("reads");
    ByBatch::observed(&runs, 3, &SpeculationConstants::default()).expect("tells")
}

/// Three drafts at these batches under NCCL as it comes.
fn forecast(skew: f64, context: u64, batches: Vec<u64>, verify_launch: LaunchMode) -> Answer {
    let (machine, model) = (Machine::load("8x-rtx-pro-6000-switchtec3").expect("built in"), Model::load("kimi-k2.5").expect("built in"));
    let draft = Draft::Eagle3(Eagle3::for_model(&model));
    // Prompts of the rows "0" are short: the mean over the first few hundred tokens.
    let mut workload = Workload::verify(4, context + 128);
    workload.cache_dtype = Some(Dtype::Fp8);
    let mut case = Case::new(machine, model, workload, Partition::tensor(8), LaunchMode::Graph);
    case.set("workload.expert_skew", skew).expect("within bounds");
    let baseline = Strategy::find("nccl-default").expect("known");
    let request = Request {
        case: &case,
        drafter: Drafter::Model(draft),
        asked: Shape::chain(3),
        shapes: vec![Shape::chain(3)],
        batches,
        acceptance: acceptance(),
        verify_launch,
        strategies: vec![baseline],
        baseline,
    };
    speculate(&request).expect("runs")
}

fn gain(answer: &Answer, batch: u64) -> f64 {
    answer.of(batch, "nccl-default").next().expect("a cell").gain_pct()
}

/// The skew, in steps of 0.1, with which the plain rows of short prompts are met best.
fn fitted_skew(rows: &[Row]) -> f64 {
    let plain = rows.iter().find(|row| row.config == "v2 plain" && row.context == 0).expect("a row");
    let batches: Vec<u64> = plain.speeds.iter().map(|speed| speed.0).collect();
    let loss = |skew: f64| {
        let answer = forecast(skew, 0, batches.clone(), LaunchMode::Graph);
        let error =
            |(batch, speed): &(u64, f64)| libm::log(answer.of(*batch, "nccl-default").next().expect("a cell").plain_tokens_per_s() / speed);
        plain.speeds.iter().map(|row| error(row) * error(row)).sum::<f64>()
    };
    let losses: Vec<(f64, f64)> = (0..=12).map(|step| f64::from(step) / 10.0).map(|skew| (loss(skew), skew)).collect();
    losses.iter().fold(losses[0], |best, one| if one.0 < best.0 { *one } else { best }).1
}

/// Every pair of one context and concurrency whose effect exceeds 5 %.
#[test]
fn the_sign_of_every_pair_is_right() {
    let rows = field();
    let skew = fitted_skew(&rows);
    println!("skew {skew}");
    assert!((0.5..=1.0).contains(&skew), "{skew}");
    let mut pairs = 0;
    for plain in rows.iter().filter(|row| row.config == "v2 plain") {
        let with = rows.iter().find(|row| row.config == "v2 MTP3" && row.context == plain.context).expect("a pair");
        let batches: Vec<u64> = plain.speeds.iter().map(|speed| speed.0).collect();
        let answer = forecast(skew, plain.context, batches, LaunchMode::Graph);
        for (before, after) in plain.speeds.iter().zip(&with.speeds) {
            assert_eq!(before.0, after.0);
            let observed = (after.1 / before.1 - 1.0) * 100.0;
            let forecast = gain(&answer, before.0);
            println!("context {} batch {}: observed {observed:+.1} %, forecast {forecast:+.1} %", plain.context, before.0);
            if observed.abs() > EFFECT_PCT {
                pairs += 1;
                assert!(observed * forecast > 0.0, "context {} batch {}: {observed} against {forecast}", plain.context, before.0);
            }
        }
    }
    assert_eq!(pairs, 15, "pairs with an effect");
}

/// Piecewise graphs left the verify pass to the host: 25.3 tokens/s, far below the 71 of plain decoding
/// at 32k; with full graphs 107.5. The forecast has every kernel of the pass launched from the host.
#[test]
fn a_verify_pass_outside_the_graph_turns_the_sign() {
    let rows = field();
    let speed = |config: &str| rows.iter().find(|row| row.config.starts_with(config)).expect("a row").speeds[0].1;
    let (before, after) = (speed("TRITON_MLA piecewise"), speed("TRITON_MLA full"));
    let plain = rows.iter().find(|row| row.config == "v2 plain" && row.context == 32 << 10).expect("a row").speeds[0].1;
    assert!(before < plain && after > plain, "the observation");
    let (eager, graph) = (forecast(0.0, 30 << 10, vec![1], LaunchMode::Eager), forecast(0.0, 30 << 10, vec![1], LaunchMode::Graph));
    println!("forecast: {:+.1} % outside the graph, {:+.1} % inside", gain(&eager, 1), gain(&graph, 1));
    assert!(gain(&eager, 1) < -EFFECT_PCT && gain(&graph, 1) > EFFECT_PCT, "{} {}", gain(&eager, 1), gain(&graph, 1));
}

/// A verify iteration with three drafts takes 19 to 21 ms from 2k to 30k of context.
#[test]
fn the_cycle_lands_near_the_field() {
    for context in [2 << 10, 30 << 10] {
        let answer = forecast(0.0, context, vec![1], LaunchMode::Graph);
        let cycle = answer.of(1, "nccl-default").next().expect("a cell").cycle_ms();
        println!("context {context}: cycle {cycle:.2} ms");
        assert!((cycle / 20.0 - 1.0).abs() < 0.2, "{cycle}");
    }
}
