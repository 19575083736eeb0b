//! `lanecast machines`, `models` and `strategies`: what there is.

use clap::Args;
use clap::Subcommand;

use crate::cli::output::Output;
use crate::cli::session::Session;
use crate::error::Result;
use crate::machine::Cabling;
use crate::machine::Machine;
use crate::model::Model;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::report::Report;
use crate::strategy::Context;

/// List machines, show one, or export it as a file to change
#[derive(Args, Debug)]
pub struct Machines {
    #[command(subcommand)]
    command: Option<MachinesCommand>,
    #[command(flatten)]
    pub(super) output: Output,
}

#[derive(Debug, Subcommand)]
enum MachinesCommand {
    /// What a machine is: notes, labels between GPUs, links, numbers with their sources
    Show {
        /// A built-in machine or a file
        machine: String,
    },
    /// The machine as TOML, to stdout or with --output to a file
    Export {
        /// A built-in machine or a file
        machine: String,
    },
    /// The same GPUs on other cabling, as TOML: what a switch, or taking one out, would change
    Recable {
        /// A built-in machine or a file
        machine: String,
        /// direct, one-switch, two-switches or three-switch-tree
        cabling: String,
    },
}

/// Lists, shows or exports machines.
///
/// # Errors
/// Unknown names and bad files.
pub fn machines(arguments: &Machines, session: &Session) -> Result<Report> {
    match &arguments.command {
        None => list_machines(session),
        Some(MachinesCommand::Show { machine }) => show_machine(&Machine::load(machine)?, session),
        Some(MachinesCommand::Export { machine }) => export(&Machine::load(machine)?, session),
        Some(MachinesCommand::Recable { machine, cabling }) => {
            export(&Machine::load(machine)?.recable(cabling.parse::<Cabling>()?)?, session)
        }
    }
}

fn export(machine: &Machine, session: &Session) -> Result<Report> {
    Ok(Report { exact: Some(machine.to_toml()), ..show_machine(machine, session)? })
}

fn list_machines(session: &Session) -> Result<Report> {
    let mut rows = Table::new(vec![Column::text("id", "id"), Column::number("gpus", "GPUs"), Column::text("name", "name")]);
    for id in Machine::ids() {
        let machine = Machine::load(id)?;
        rows.row(vec![machine.id.as_str().into(), Number::integer(machine.gpus.len() as u64).into(), machine.name.as_str().into()]);
    }
    Ok(list("Machines", rows, session))
}

fn show_machine(machine: &Machine, session: &Session) -> Result<Report> {
    let mut labels = Table::new(
        std::iter::once(Column::text("gpu", ""))
            .chain((0..machine.gpus.len()).map(|g| Column::text(&format!("gpu{g}"), &format!("GPU{g}"))))
            .collect(),
    );
    for from in 0..machine.gpus.len() {
        let mut row = vec![format!("GPU{from}").into()];
        row.extend((0..machine.gpus.len()).map(|to| machine.smi_label(from, to).unwrap_or_default().into()));
        labels.row(row);
    }
    let mut rows = Table::new(vec![
        Column::text("path", "number"),
        Column::number("value", "value"),
        Column::number("low", "low"),
        Column::number("high", "high"),
        Column::text("unit", "unit"),
        Column::text("source", "source"),
    ]);
    for (path, spec, quantity) in machine.knobs() {
        rows.row(vec![
            path.as_str().into(),
            Number::new(quantity.value, 3).into(),
            Number::new(quantity.low, 3).into(),
            Number::new(quantity.high, 3).into(),
            spec.unit.into(),
            quantity.source.as_str().into(),
        ]);
    }
    let blocks =
        vec![Block::Text(machine.name.clone()), Block::List(machine.notes.clone()), Block::Table(labels), Block::Table(rows.clone())];
    Ok(Report { sections: vec![Section { heading: machine.id.clone(), blocks }], ..list("Machine", rows, session) })
}

/// List models
#[derive(Args, Debug)]
pub struct Models {
    #[command(flatten)]
    pub(super) output: Output,
}

/// Lists models.
///
/// # Errors
/// None that a user can cause.
pub fn models(_: &Models, session: &Session) -> Result<Report> {
    let mut rows = Table::new(vec![
        Column::text("id", "id"),
        Column::text("name", "name"),
        Column::number("parameters_billion", "parameters, 10^9"),
        Column::number("weights_gb", "weights, GB"),
        Column::number("layers", "layers"),
        Column::text("not_modelled", "not modelled"),
    ]);
    for entry in crate::model::CATALOG {
        let model = Model::load(entry.id)?;
        let totals = model.parameters().text;
        rows.row(vec![
            entry.id.into(),
            entry.name.into(),
            Number::new(totals.parameters as f64 / 1e9, 1).into(),
            Number::new(totals.bytes as f64 / 1e9, 1).into(),
            Number::integer(model.layers.len() as u64).into(),
            model.not_modelled.join("; ").into(),
        ]);
    }
    Ok(list("Models", rows, session))
}

/// List strategies, with what keeps each from running on a machine
#[derive(Args, Debug)]
pub struct Strategies {
    /// The machine that gates are asked about
    #[arg(long, default_value = "8x-rtx-pro-6000-server")]
    machine: String,
    /// Ranks of the group
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    tp: u32,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Lists strategies.
///
/// # Errors
/// Unknown machines.
pub fn strategies(arguments: &Strategies, session: &Session) -> Result<Report> {
    let machine = Machine::load(&arguments.machine)?;
    let context = Context::new(&machine, arguments.tp as usize);
    let mut rows = Table::new(vec![
        Column::text("strategy", "strategy"),
        Column::text("executor", "executor"),
        Column::text("effort", "effort"),
        Column::text("risk", "risk"),
        Column::text("summary", "how it works"),
        Column::text("refused", "refused here because"),
    ]);
    for strategy in crate::strategy::all() {
        let refused = strategy.refusal(&context).unwrap_or_default();
        rows.row(vec![
            strategy.id.into(),
            strategy.executor.name().into(),
            strategy.effort.name().into(),
            strategy.risk.name().into(),
            strategy.summary.into(),
            refused.into(),
        ]);
    }
    Ok(list("Strategies", rows, session))
}

fn list(title: &str, rows: Table, session: &Session) -> Report {
    Report {
        title: title.to_owned(),
        sections: vec![Section { heading: title.to_owned(), blocks: vec![Block::Table(rows.clone())] }],
        rows,
        json: None,
        exact: None,
        reproduce: session.reproduce(),
        passed: true,
    }
}
