//! `lanecast export`: a strategy, a policy, a plan or a machine in the forms
//! that NCCL, serving engines and other simulators read.

use std::fmt::Write as _;
use std::path::Path;
use std::path::PathBuf;

use clap::Args;
use clap::ValueEnum;

use crate::case::Policy;
use crate::case::engine;
use crate::case::engine::Engine;
use crate::case::exported;
use crate::case::tuner_rules;
use crate::cli::policy::PolicyArgument;
use crate::cli::question::Loaded;
use crate::cli::question::QuestionArguments;
use crate::cli::session::Session;
use crate::error::Fault;
use crate::error::Result;
use crate::import::export::chakra;
use crate::import::export::topology_xml;
use crate::import::export::tuner;
use crate::nccl::graph_file;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::render::write::write_file;
use crate::report::Report;
use crate::strategy::Context;
use crate::strategy::Executor;
use crate::strategy::Strategy;
use crate::trace::record::Reader;

/// Write a strategy, plan or machine as NCCL, engines and other simulators read it
#[derive(Args, Debug)]
pub struct Arguments {
    /// What to write
    #[arg(value_enum, value_name = "WHAT")]
    what: What,
    #[command(flatten)]
    question: QuestionArguments,
    /// The strategy (`lanecast strategies`)
    #[arg(long, default_value = "nccl-default", conflicts_with = "policy")]
    strategy: String,
    /// Strategies by message size: 64K:nccl-ring-ll,nccl-default
    #[arg(long, value_name = "SIZE:ID,…,ID")]
    policy: Option<PolicyArgument>,
    /// For chakra: this trace (CSV) with its times instead of the plan
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write to this file instead of stdout; for chakra the start of the names, OUT.0.et and so on
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
}

/// What can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// A configuration for NCCL's example tuner plugin
    Tuner,
    /// Variables to source in a shell
    Environment,
    /// A script that starts SGLang
    Sglang,
    /// A script that starts vLLM
    Vllm,
    /// Rings and trees for NCCL_GRAPH_FILE
    Graph,
    /// The machine for NCCL_TOPO_FILE
    Topology,
    /// Execution traces of the plan, one file a rank
    Chakra,
    /// The plan's schedule for LogGOPSim
    Goal,
}

/// Exports.
///
/// # Errors
/// Bad input, strategies that cannot run here, what a format cannot say.
pub fn run(arguments: &Arguments, session: &Session) -> Result<Report> {
    let loaded = arguments.question.load(session)?;
    let policy = match &arguments.policy {
        Some(policy) => policy.policy()?,
        None => Policy::single(Strategy::find(&arguments.strategy)?),
    };
    let mut context = Context::new(&loaded.machine, loaded.partition.tp as usize);
    context.environment.clone_from(&loaded.environment);
    if arguments.what != What::Topology && arguments.trace.is_none() {
        refuse_infeasible(&policy, &context)?;
    }
    if arguments.what == What::Chakra {
        let files = match &arguments.trace {
            Some(path) => chakra::write(&records(path)?),
            None => exported::chakra(&loaded.question(), &exported::plan(&loaded.question(), &policy)?)?,
        };
        write_ranks(arguments, &files, session)?;
        return Ok(report(String::new(), session));
    }
    let text = text(arguments, &loaded, &policy, &context, session)?;
    let Some(path) = &arguments.output else { return Ok(report(text, session)) };
    write_file(path, text.as_bytes())?;
    session.note(&format!("wrote {}", path.display()));
    Ok(report(String::new(), session))
}

fn report(exact: String, session: &Session) -> Report {
    Report {
        title: "Export".to_owned(),
        sections: Vec::new(),
        rows: Table::new(vec![Column::text("file", "file")]),
        exact: Some(exact),
        json: None,
        reproduce: session.reproduce(),
        passed: true,
    }
}

fn refuse_infeasible(policy: &Policy, context: &Context<'_>) -> Result<()> {
    for (_, strategy) in &policy.rows {
        if let Some(reason) = strategy.refusal(context) {
            return Err(Fault::new("strategy-infeasible", format!("{} cannot run here: {reason}", strategy.id)));
        }
    }
    Ok(())
}

fn text(arguments: &Arguments, loaded: &Loaded, policy: &Policy, context: &Context<'_>, session: &Session) -> Result<String> {
    let started = |engine| engine::script(engine, policy, context, &model_name(arguments, loaded), loaded.partition);
    match arguments.what {
        What::Tuner => {
            let (rules, remarks) = tuner_rules::rules(policy, context)?;
            let mut comments = vec![
                format!("{} on {}, {} ranks, NCCL {}", policy_text(policy), loaded.machine.id, context.ranks, context.nccl_version()?),
                "NCCL_TUNER_PLUGIN=libnccl-tuner-example.so NCCL_TUNER_CONFIG_FILE=this file".to_owned(),
            ];
            comments.extend(remarks);
            tuner::write(&comments, &rules)
        }
        What::Environment => environment(policy, context),
        What::Sglang => started(Engine::Sglang),
        What::Vllm => started(Engine::Vllm),
        What::Graph => graph(policy, context, session),
        What::Topology => Ok(topology_xml::write(&loaded.machine)),
        What::Goal => exported::goal(&loaded.question(), &exported::plan(&loaded.question(), policy)?, policy, context),
        What::Chakra => Ok(String::new()),
    }
}

/// The published name of a built-in model, the path of one's own.
fn model_name(arguments: &Arguments, loaded: &Loaded) -> String {
    let path = Path::new(&arguments.question.model);
    if path.is_file() { path.parent().unwrap_or(path).display().to_string() } else { loaded.model.name.clone() }
}

fn policy_text(policy: &Policy) -> String {
    let row = |(most, strategy): &(u64, &'static Strategy)| {
        if *most == u64::MAX { strategy.id.to_owned() } else { format!("{} up to {most} B", strategy.id) }
    };
    policy.rows.iter().map(row).collect::<Vec<_>>().join(", then ")
}

/// Variables with what they need, as a shell reads them.
fn environment(policy: &Policy, context: &Context<'_>) -> Result<String> {
    let (variables, by_rule) = tuner_rules::environment(policy)?;
    let mut out = format!("# {} on {}, {} ranks\n", policy_text(policy), context.machine.id, context.ranks);
    policy.rows.iter().for_each(|(_, strategy)| engine::comments(&mut out, strategy, context));
    for (name, value) in variables {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "export {name}={}", engine::quoted(value));
    }
    if by_rule {
        out.push_str("# What differs by size is in a tuner's file: lanecast export tuner, with the same --policy.\n");
        out.push_str("export NCCL_TUNER_PLUGIN=libnccl-tuner-example.so\nexport NCCL_TUNER_CONFIG_FILE=nccl_tuner.conf\n");
    } else if policy.rows.iter().any(|(_, strategy)| strategy.executor != Executor::Nccl) {
        out.push_str("# Not a matter of variables alone: lanecast export sglang or vllm says what else.\n");
    }
    Ok(out)
}

/// What NCCL would find, as it would dump it.
fn graph(policy: &Policy, context: &Context<'_>, session: &Session) -> Result<String> {
    let [(_, strategy)] = policy.rows.as_slice() else {
        return Err(Fault::new("policy-unsayable", "NCCL has one graph for all sizes").help("give one --strategy"));
    };
    if strategy.executor != Executor::Nccl {
        return Err(
            Fault::new("policy-without-nccl", format!("{} is not carried out by NCCL", strategy.id)).help("give a strategy called nccl-…")
        );
    }
    let communicator = tuner_rules::communicator(context, strategy)?;
    communicator.warnings.iter().for_each(|warning| session.warn(&format!("NCCL would say: {warning}")));
    graph_file::write(&communicator)
}

fn records(path: &Path) -> Result<Vec<crate::trace::record::Record>> {
    let file = std::fs::File::open(path).map_err(|error| Fault::io("open", path, &error))?;
    Reader::open(&path.display().to_string(), std::io::BufReader::new(file))?.read_all()
}

fn write_ranks(arguments: &Arguments, files: &std::collections::BTreeMap<u32, Vec<u8>>, session: &Session) -> Result<()> {
    let Some(prefix) = &arguments.output else {
        return Err(Fault::new("export-needs-output", "Chakra has one file a rank: stdout cannot hold them").help("give --output PREFIX"));
    };
    for (rank, bytes) in files {
        let mut name = prefix.clone().into_os_string();
        name.push(format!(".{rank}.et"));
        write_file(Path::new(&name), bytes)?;
    }
    session.note(&format!("wrote {} files, {}.N.et", files.len(), prefix.display()));
    Ok(())
}
