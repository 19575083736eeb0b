//! `lanecast run`: the plan of a pass on real GPUs.

use std::path::PathBuf;

use clap::Args;
use clap::ValueEnum;

use crate::case::LaunchMode;
use crate::case::kind_of;
use crate::cli::output::Format;
use crate::cli::output::Output;
use crate::cli::question::Loaded;
use crate::cli::question::QuestionArguments;
use crate::cli::session::Session;
use crate::error::Fault;
use crate::error::Result;
use crate::gpu::implementation::Grid;
use crate::gpu::implementation::Implementation;
use crate::gpu::run;
use crate::gpu::run::Checked;
use crate::gpu::run::Measured;
use crate::gpu::run::PassOptions;
use crate::gpu::run::exchange::Way;
use crate::gpu::run::record;
use crate::plan::Kind;
use crate::plan::Plan;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::render::write::write_file;
use crate::report::Report;
use crate::strategy::Context;
use crate::strategy::Executor;
use crate::strategy::Kernel;
use crate::strategy::Logical;
use crate::strategy::Strategy;
use crate::trace::record::Header;

/// What of the numbers is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CheckArgument {
    /// Nothing
    None,
    /// Embedding, head, the first layer of each kind and the last
    Kinds,
    /// Every layer
    All,
}

/// Run one pass on the GPUs of this machine and write what was measured as a trace
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    question: QuestionArguments,
    /// The strategy (`lanecast strategies`); those of other projects' kernels cannot be run
    #[arg(long, default_value = "nccl-default")]
    strategy: String,
    /// Ranks on one GPU; by default they are spread over all GPUs
    #[arg(long, value_name = "R")]
    ranks_per_gpu: Option<u32>,
    /// Repetitions of the pass
    #[arg(long, default_value_t = 15)]
    repeats: usize,
    /// Which numbers are checked against double precision
    #[arg(long, value_enum, default_value = "kinds")]
    check: CheckArgument,
    /// Time the whole pass only, not its parts
    #[arg(long)]
    total_only: bool,
    /// Names the random weights
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the pass as a trace (CSV)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Ranks that the trace shows
    #[arg(long, value_name = "N", default_value_t = 64)]
    trace_ranks: u32,
    /// Say what would be run, and stop
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Runs one pass.
///
/// # Errors
/// Bad input, a strategy that cannot run, no GPU, what the device meets.
pub fn run(arguments: &Arguments, session: &Session) -> Result<Report> {
    let loaded = arguments.question.load(session)?;
    let question = loaded.question();
    let plan = question.plan()?;
    let strategy = Strategy::find(&arguments.strategy)?;
    let (options, environment) = prepare(arguments, &loaded, &plan, strategy)?;
    let (model, planned) = run::plan_of(&options)?;
    run::shape_of(&model, &options)?;
    run::check_model(&model, &options)?;
    if planned.hash() != plan.hash() {
        return Err(Fault::new("run-model", "only plain tensor-parallel decode and verify passes of one sequence are run")
            .help("leave out --phase, --batch"));
    }
    if arguments.dry_run {
        return Ok(dry_report(session, &loaded, &plan, &options, &environment, strategy));
    }
    let measured = run::measure(&options, &environment, &mut |text| session.detail(text))?;
    let scale = record::scale(&measured, &plan);
    if let Some(off) = scale.filter(|s| (s - 1.0).abs() > record::SCALE_OFF) {
        session
            .warn(&format!("the pass takes {off:.3} of the sum of its operations: kinds are placed, not measured, by more than a tenth"));
    }
    if let Some(path) = &arguments.trace {
        let header = header(&loaded, &options, &measured, strategy, &plan, scale);
        write_file(path, record::trace(&measured, &plan, &header, arguments.trace_ranks, &kind_of)?.as_bytes())?;
    }
    Ok(report(arguments, session, &loaded, &plan, &measured, strategy, scale))
}

/// What the worker is asked, with NCCL's variables.
fn prepare(
    arguments: &Arguments,
    loaded: &Loaded,
    plan: &Plan,
    strategy: &'static Strategy,
) -> Result<(PassOptions, Vec<(String, String)>)> {
    if strategy.executor == Executor::ModelledOnly {
        return Err(Fault::new("strategy-modelled-only", format!("{} can be simulated, not run: {}", strategy.id, strategy.summary))
            .help("`lanecast strategies` says who can run each"));
    }
    let tp = loaded.partition.tp;
    let mut context = Context::new(&loaded.machine, tp as usize);
    context.environment.clone_from(&loaded.environment);
    let mut ways: Vec<(u64, Way)> = Vec::new();
    if tp > 1 {
        for bytes in sizes(plan) {
            ways.push((bytes, way(strategy, &context, bytes)?));
        }
    }
    let mut environment: Vec<(String, String)> = strategy.environment.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    environment.extend(loaded.environment.iter().map(|(n, v)| (n.clone(), v.clone())));
    let sharing = arguments.ranks_per_gpu.unwrap_or(1).max(1);
    let options = PassOptions {
        model: arguments.question.model.clone(),
        tokens: loaded.workload.tokens,
        context: loaded.workload.context,
        tp,
        devices: tp.div_ceil(sharing) as usize,
        ways,
        eager: loaded.launch == LaunchMode::Eager,
        repeats: arguments.repeats.max(1),
        total_only: arguments.total_only,
        check: match arguments.check {
            CheckArgument::None => Checked::None,
            CheckArgument::Kinds => Checked::Kinds,
            CheckArgument::All => Checked::All,
        },
        seed: arguments.seed,
    };
    Ok((options, environment))
}

/// Sizes of the plan's all-reduces, ascending.
fn sizes(plan: &Plan) -> Vec<u64> {
    let all: std::collections::BTreeSet<u64> = plan
        .expand(0)
        .iter()
        .filter_map(|planned| planned.action.collective())
        .filter(|collective| collective.kind == Kind::AllReduce)
        .map(|collective| collective.bytes)
        .collect();
    all.into_iter().collect()
}

/// How a strategy exchanges a message: as its lowering says, with the same grid.
fn way(strategy: &'static Strategy, context: &Context<'_>, bytes: u64) -> Result<Way> {
    if strategy.executor == Executor::Nccl {
        return Ok(Way::Nccl);
    }
    let lowering = (strategy.lower)(context, strategy, Logical::AllReduce, bytes)?;
    if lowering.kernel == Kernel::Nccl {
        return Ok(Way::Nccl);
    }
    if strategy.fuses_norm {
        return Ok(Way::Fused);
    }
    let implementation = match strategy.id {
        "one-shot-pull" => Implementation::OneShotPull,
        "one-shot-push" => Implementation::OneShotPushLl,
        "two-shot" => Implementation::TwoShotPull,
        "two-shot-push" | "mscclpp-packet" => Implementation::TwoShotLl,
        "host-staged" => Implementation::HostStaged,
        "copy-engine-ring" => Implementation::CopyEngineRing,
        "hierarchical" => Implementation::HierarchicalLl,
        "mscclpp-allpair" => Implementation::PacketAllPair,
        "nccl-symmetric" => Implementation::SymmetricLl,
        other => return Err(Fault::new("strategy-modelled-only", format!("no kernel here does {other}"))),
    };
    let blocks: Vec<_> = lowering.schedule.blocks.iter().filter(|block| block.rank == 0).collect();
    let threads = blocks.iter().map(|block| block.block_threads).max().unwrap_or(0);
    // Islands, packets and copies deal their work in another way than the schedule's blocks.
    let same = matches!(
        implementation,
        Implementation::OneShotPull | Implementation::OneShotPushLl | Implementation::TwoShotPull | Implementation::SymmetricLl
    );
    let grid = Grid { blocks: blocks.len() as u32, threads: threads.next_multiple_of(32).min(512) };
    Ok(Way::Ours { implementation, grid: (same && threads > 0).then_some(grid) })
}

/// How a trace was timed.
const TIMING: &str = "the total without instruments; starts of blocks from event nodes of one rank at a time, stretched to the total; \
operations inside placed by what they add to the pass (in_pass_us: the pass against the pass without them, experts chosen by fixed random \
scores in both) or, collectives and operations of which there are fewer than 8, by chains of 32 against 16 (chain_us), stretched to their block";

fn header(loaded: &Loaded, options: &PassOptions, measured: &Measured, strategy: &Strategy, plan: &Plan, scale: Option<f64>) -> Header {
    let mut header = Header::from_source("measured");
    let list: Vec<String> = measured.totals_us.iter().map(|us| format!("{us:.1}")).collect();
    let worst = measured.checks.iter().map(|row| row.relative_error).fold(0.0, f64::max);
    let wrong = measured.checks.iter().filter(|row| !row.right).count();
    let entries = [
        ("strategy", strategy.id.to_owned()),
        ("plan", format!("{:016x}", plan.hash())),
        ("machine", loaded.machine.id.clone()),
        ("model", loaded.model.id.clone()),
        ("ranks", options.tp.to_string()),
        ("ranks_per_gpu", options.tp.div_ceil(options.devices.max(1) as u32).to_string()),
        ("tokens", options.tokens.to_string()),
        ("context", options.context.to_string()),
        ("launch", if options.eager { "eager" } else { "graph" }.to_owned()),
        ("seed", options.seed.to_string()),
        ("program", format!("lanecast {}", env!("CARGO_PKG_VERSION"))),
        ("gpu", measured.gpu.clone()),
        ("nccl", measured.nccl.clone().unwrap_or_default()),
        ("total_us", format!("{:.1}", measured.total.0)),
        ("total_low_us", format!("{:.1}", measured.total.1)),
        ("total_high_us", format!("{:.1}", measured.total.2)),
        ("totals_us", list.join(" ")),
        ("scale", scale.map_or_else(String::new, |s| format!("{s:.4}"))),
        ("scale_alone", record::scale_alone(measured, plan).map_or_else(String::new, |s| format!("{s:.4}"))),
        ("timing", TIMING.to_owned()),
        ("total_fixed_choices_us", measured.fixed_us.map_or_else(String::new, |us| format!("{us:.1}"))),
        ("weights", format!("random, from pools of {} bytes a rank that layers share", measured.rank_bytes)),
        ("clock_ghz", format!("{:.3} {:.3}", measured.clock_ghz.0, measured.clock_ghz.1)),
        ("copy_gbps", format!("{:.0}", measured.copy_gbps)),
        ("distinct_experts", measured.distinct_experts.map_or_else(String::new, |n| format!("{n:.2}"))),
        ("checked", format!("{} buffers, {wrong} wrong, largest relative error {worst:.5}", measured.checks.len())),
    ];
    entries.into_iter().filter(|(_, value)| !value.is_empty()).for_each(|(key, value)| header.set(key, &value));
    if let Some(host) = measured.host_us {
        header.set("host_us", &format!("{host:.1}"));
    }
    header
}

fn dry_report(
    session: &Session,
    loaded: &Loaded,
    plan: &Plan,
    options: &PassOptions,
    environment: &[(String, String)],
    strategy: &Strategy,
) -> Report {
    let mut table =
        Table::new(vec![Column::text("operation", "operation"), Column::text("how", "how"), Column::number("count", "in a pass")]);
    for way in &options.ways {
        let count =
            plan.expand(0).iter().filter_map(|p| p.action.collective()).filter(|c| c.kind == Kind::AllReduce && c.bytes == way.0).count();
        table.row(vec![format!("all-reduce of {} B", way.0).into(), words(&way.1).into(), Number::integer(count as u64).into()]);
    }
    if options.tp > 1 {
        table.row(vec!["all-gather of the logits".into(), "NCCL".into(), Number::integer(1).into()]);
    }
    let kernels: u64 = plan.expand(0).iter().filter_map(|p| p.action.compute()).map(|op| u64::from(op.launches)).sum();
    table.row(vec!["computations".into(), "our kernels".into(), Number::integer(kernels).into()]);
    let set: Vec<String> = environment.iter().map(|(n, v)| format!("{n}={v}")).collect();
    let text = format!("{} {} rank(s) on {} GPU(s).", loaded.headline(), options.tp, options.devices);
    let mut blocks = vec![Block::Text(text), Block::Table(table.clone())];
    if !set.is_empty() {
        blocks.push(Block::List(set));
    }
    Report {
        title: format!("What {} would run", strategy.id),
        sections: vec![Section { heading: "Pass".to_owned(), blocks }],
        rows: table,
        exact: None,
        json: None,
        reproduce: session.reproduce().hash("plan", plan.hash()),
        passed: true,
    }
}

fn words(way: &Way) -> String {
    match way {
        Way::Nccl => "NCCL".to_owned(),
        Way::Fused => "our kernel with the norm behind it".to_owned(),
        Way::Ours { implementation, .. } => format!("our kernel {}", implementation.kernel()),
    }
}

/// Time by kind from chains, and the pass.
fn report(
    arguments: &Arguments,
    session: &Session,
    loaded: &Loaded,
    plan: &Plan,
    measured: &Measured,
    strategy: &Strategy,
    scale: Option<f64>,
) -> Report {
    let mut table = Table::new(vec![
        Column::text("operation", "operation"),
        Column::text("kind", "kind"),
        Column::number("count", "in a pass"),
        Column::number("each_us", "by itself, us"),
        Column::number("in_pass_us", "in the pass, us"),
        Column::number("total_ms", "all, ms"),
        Column::number("gbps", "weights and cache, GB/s"),
    ]);
    let planned = plan.expand(0);
    for chain in &measured.chains {
        let Some(one) = planned.iter().find(|p| p.block.0 == chain.block && p.id.name == chain.name) else { continue };
        let bytes = one.action.compute().map_or(0, |op| op.weight_bytes + op.cache_bytes) * u64::from(plan.partition.ranks());
        let block = plan.block(one.block).kind.name();
        let rate = if chain.each_us > 0.0 { bytes as f64 / chain.each_us / 1e3 } else { 0.0 };
        table.row(vec![
            format!("{block}.{}", chain.name).into(),
            kind_of(one.action).into(),
            Number::integer(chain.count).into(),
            Number::new(chain.each_us, 2).into(),
            chain.in_pass_us.map_or_else(|| "".into(), |us| Number::new(us, 2).into()),
            Number::new(chain.in_pass_us.unwrap_or(chain.each_us) * chain.count as f64 / 1e3, 3).into(),
            Number::new(rate, 0).into(),
        ]);
    }
    let wrong: Vec<String> = (measured.checks.iter())
        .filter(|row| !row.right || arguments.output.format == Format::Json || session.verbose)
        .map(|row| format!("{}: relative error {:.5}{}", row.what, row.relative_error, if row.right { "" } else { ", WRONG" }))
        .collect();
    let passed = measured.checks.iter().all(|row| row.right);
    let mut blocks = vec![Block::Text(loaded.headline()), Block::Text(summary(measured, strategy, scale)), Block::Table(table.clone())];
    if !wrong.is_empty() {
        blocks.push(Block::List(wrong));
    }
    Report {
        title: "One pass, measured".to_owned(),
        sections: vec![Section { heading: "Pass".to_owned(), blocks }],
        rows: table,
        exact: None,
        json: None,
        reproduce: session.reproduce().hash("plan", plan.hash()),
        passed,
    }
}

fn summary(measured: &Measured, strategy: &Strategy, scale: Option<f64>) -> String {
    let (median, low, high) = measured.total;
    let marked: Vec<f64> = measured.boundaries.iter().map(|b| b.total_us).collect();
    let slower = marked.iter().sum::<f64>() / marked.len().max(1) as f64 / median.max(1e-9);
    let mut text = format!(
        "{} on {}: {} ms (from {} to {}, {} passes) after warm-up. {} buffers checked. Clock {} GHz; a copy of 1 GiB moves {} GB/s.",
        strategy.id,
        measured.gpu,
        Number::new(median / 1e3, 3).digits(),
        Number::new(low / 1e3, 3).digits(),
        Number::new(high / 1e3, 3).digits(),
        measured.totals_us.len(),
        measured.checks.len(),
        Number::new(measured.clock_ghz.1, 2).digits(),
        Number::new(measured.copy_gbps, 0).digits(),
    );
    if let Some(scale) = scale {
        text += &format!(" The pass takes {scale:.3} of the sum of its operations; with event nodes {slower:.3} of itself.");
    }
    if let Some(host) = measured.host_us {
        text += &format!(" The slowest thread launched for {} ms.", Number::new(host / 1e3, 3).digits());
    }
    text
}
