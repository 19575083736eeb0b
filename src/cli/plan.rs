//! `lanecast plan show`: what a pass does, before anything is priced.

use clap::Args;
use clap::Subcommand;
use clap::ValueEnum;

use crate::cli::output::Output;
use crate::cli::question::QuestionArguments;
use crate::cli::session::Session;
use crate::error::Result;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Cell;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::report::Report;
use crate::strategy::Strategy;

/// Show what a pass does
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(subcommand)]
    command: PlanCommand,
}

#[derive(Debug, Subcommand)]
enum PlanCommand {
    /// Counts, operations of one rank, or the graph
    Show(Show),
}

#[derive(Args, Debug)]
struct Show {
    #[command(flatten)]
    question: QuestionArguments,
    /// Split the model as this strategy does (`lanecast strategies`); most split nothing but tensors
    #[arg(long, value_name = "ID")]
    strategy: Option<String>,
    /// The counts, every operation of rank 0, or the template graphs for Graphviz
    #[arg(long, value_enum, default_value = "summary")]
    view: View,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum View {
    Summary,
    Operations,
    Dot,
}

impl Arguments {
    pub(super) fn output(&self) -> &Output {
        match &self.command {
            PlanCommand::Show(show) => &show.output,
        }
    }
}

/// Shows a plan.
///
/// # Errors
/// Bad input.
pub fn run(arguments: &Arguments, session: &Session) -> Result<Report> {
    let PlanCommand::Show(show) = &arguments.command;
    let loaded = show.question.load(session)?;
    let question = match &show.strategy {
        Some(id) => loaded.question().under(Strategy::find(id)?),
        None => loaded.question(),
    };
    let plan = question.plan()?;
    let mut rows = Table::new(vec![
        Column::text("op", "operation"),
        Column::text("kind", "kind"),
        Column::number("bytes", "bytes"),
        Column::number("flops", "FLOP"),
        Column::number("launches", "launches"),
    ]);
    for planned in plan.expand(0) {
        let number = |value: u64| Cell::from(crate::render::number::Number::integer(value));
        let (kind, bytes, flops, launches) = match (planned.action.compute(), planned.action.collective()) {
            (Some(op), _) => ("compute", op.weight_bytes + op.cache_bytes + op.activation_bytes, number(op.flops), op.launches),
            (None, Some(collective)) => (collective.kind.name(), collective.bytes, Cell::Empty, 1),
            (None, None) => continue,
        };
        rows.row(vec![planned.id.to_string().into(), kind.into(), number(bytes), flops, number(u64::from(launches))]);
    }
    let blocks = match show.view {
        View::Summary => vec![Block::Text(loaded.headline()), Block::Code(plan.summary().to_string())],
        View::Operations => vec![Block::Table(rows.clone())],
        View::Dot => vec![Block::Code(plan.to_dot())],
    };
    Ok(Report {
        title: "What a pass does".to_owned(),
        sections: vec![Section { heading: String::new(), blocks }],
        rows,
        exact: None,
        json: Some(plan.to_json()),
        reproduce: session.reproduce().hash("plan", plan.hash()),
        passed: true,
    })
}
