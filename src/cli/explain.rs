//! `lanecast explain`: what the code of an error means and what to do about
//! it; `lanecast explain knobs`: every number that a case can change.

use clap::Args;

use crate::case::Case;
use crate::case::LaunchMode;
use crate::cli::arguments::unknown;
use crate::cli::output::Output;
use crate::cli::session::Session;
use crate::error::Fault;
use crate::error::Result;
use crate::machine::Machine;
use crate::model::Model;
use crate::model::Workload;
use crate::plan::Partition;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::report::Report;

/// The codes as documented; `tests/errors.rs` compares them with the source.
const DOCUMENTED: &str = include_str!("../../docs/errors.md");

/// Say what the code of an error means and what to do about it
#[derive(Args, Debug)]
pub struct Arguments {
    /// The code, as an error shows it; without one, all codes; `knobs` for the numbers of a case
    pub code: Option<String>,
    /// With `knobs`: only paths that contain this
    pub path: Option<String>,
    /// With `knobs`: a built-in machine or a machine file
    #[arg(long, default_value = "8x-rtx-pro-6000-server")]
    pub machine: String,
    /// With `knobs`: a built-in model or a config.json
    #[arg(long, default_value = "kimi-k2.5")]
    pub model: String,

    #[command(flatten)]
    pub(super) output: Output,
}

/// The code's meaning and remedy, or all of them.
///
/// # Errors
/// `explain-unknown-code` when no error has that code.
pub fn run(arguments: &Arguments, session: &Session) -> Result<Report> {
    if arguments.code.as_deref() == Some("knobs") {
        return knobs(arguments, session);
    }
    let mut rows = Table::new(vec![Column::text("code", "code"), Column::text("meaning", "meaning"), Column::text("remedy", "what to do")]);
    let all: Vec<[&str; 3]> = documented(DOCUMENTED).collect();
    for [code, meaning, remedy] in &all {
        if arguments.code.as_deref().is_none_or(|wanted| wanted == *code) {
            rows.row(vec![(*code).into(), (*meaning).into(), (*remedy).into()]);
        }
    }
    if let (true, Some(code)) = (rows.rows.is_empty(), &arguments.code) {
        return Err(unknown("explain-unknown-code", "error code", code, all.iter().map(|row| row[0])));
    }
    Ok(Report {
        title: "Errors of lanecast".to_owned(),
        sections: vec![Section { heading: String::new(), blocks: vec![Block::Table(rows.clone())] }],
        rows,
        exact: None,
        json: None,
        reproduce: session.reproduce(),
        passed: true,
    })
}

/// Every number of a case, with what is known about it.
fn knobs(arguments: &Arguments, session: &Session) -> Result<Report> {
    let (machine, model) = (Machine::load(&arguments.machine)?, Model::load(&arguments.model)?);
    let case = Case::new(machine, model, Workload::verify(3, 128), Partition::tensor(8), LaunchMode::Graph);
    let numbers = ["value", "low", "high"].map(|key| Column::number(key, key));
    let bounds = [Column::number("least", "least"), Column::number("most", "most")];
    let columns = std::iter::once(Column::text("path", "path")).chain(numbers);
    let mut columns: Vec<Column> = columns.chain([Column::text("unit", "unit")]).chain(bounds).collect();
    columns.extend([Column::text("meaning", "meaning"), Column::text("source", "source")]);
    let mut rows = Table::new(columns);
    let wanted = arguments.path.as_deref().unwrap_or("");
    for knob in case.knobs().iter().filter(|knob| knob.path.contains(wanted)) {
        let decimals = if knob.is_whole { 0 } else { 3 };
        let number = |value: f64| Number::new(value, decimals).into();
        rows.row(vec![
            knob.path.as_str().into(),
            number(knob.quantity.value),
            number(knob.quantity.low),
            number(knob.quantity.high),
            knob.spec.unit.into(),
            number(*knob.spec.bounds.start()),
            number(*knob.spec.bounds.end()),
            knob.spec.meaning.trim().into(),
            knob.quantity.source.as_str().into(),
        ]);
    }
    if rows.rows.is_empty() {
        return Err(case
            .knob(wanted)
            .map(|_| ())
            .err()
            .unwrap_or_else(|| Fault::new("knob-unknown", format!("no path contains {wanted}"))));
    }
    let words = "Every number of a case by its path: --set PATH=NUMBER changes it. value, low and high are the estimate and its 90 % interval; least and most are what is accepted.";
    Ok(Report {
        title: "Numbers of a case".to_owned(),
        sections: vec![Section { heading: String::new(), blocks: vec![Block::Text(words.to_owned()), Block::Table(rows.clone())] }],
        rows,
        exact: None,
        json: None,
        reproduce: session.reproduce().input("machine", case.machine.to_toml().as_bytes()),
        passed: true,
    })
}

/// The rows ``| `code` | meaning | remedy |`` of the document.
fn documented(text: &str) -> impl Iterator<Item = [&str; 3]> {
    text.lines().filter_map(|line| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        let code = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
        Some([code, cells.next()?, cells.next()?])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::session::ColorChoice;

    fn explain(code: Option<&str>) -> Result<Report> {
        explain_path(code, None)
    }

    fn explain_path(code: Option<&str>, path: Option<&str>) -> Result<Report> {
        let session = Session::from_environment(&["lanecast".into(), "explain".into()], ColorChoice::Never, true, false);
        let (machine, model) = ("8x-rtx-pro-6000-server".to_owned(), "kimi-k2.5".to_owned());
        run(
            &Arguments { code: code.map(str::to_owned), path: path.map(str::to_owned), machine, model, output: Output::default() },
            &session,
        )
    }

    #[test]
    fn knobs_are_listed_with_their_sources() {
        let report = explain_path(Some("knobs"), Some("poll_ns")).expect("known");
        assert!(report.rows.rows.len() >= 2 && report.rows.to_csv().contains("kinds.rtx-pro-6000.protocol.poll_ns"));
        assert_eq!(explain_path(Some("knobs"), Some("no such")).expect_err("unknown").code, "knob-unknown");
    }

    #[test]
    fn one_code_or_all() {
        assert_eq!(explain(Some("io")).expect("known").rows.rows.len(), 1);
        assert!(explain(None).expect("all").rows.rows.len() > 1);
        assert_eq!(explain(Some("iox")).expect_err("unknown").help.as_deref(), Some("did you mean io?"));
    }

    #[test]
    fn only_rows_with_a_code_count() {
        let text = "# x\n| code | meaning | remedy |\n|---|---|---|\n| `a-b` | m | r |\n| `broken\n";
        assert_eq!(documented(text).collect::<Vec<_>>(), [["a-b", "m", "r"]]);
    }
}
