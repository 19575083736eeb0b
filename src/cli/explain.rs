//! `lanecast explain`: what the code of an error means and what to do about it.

use clap::Args;

use crate::cli::arguments::unknown;
use crate::cli::output::Output;
use crate::cli::session::Session;
use crate::error::Result;
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
    /// The code, as an error shows it; without one, all codes
    pub code: Option<String>,

    #[command(flatten)]
    pub(super) output: Output,
}

/// The code's meaning and remedy, or all of them.
///
/// # Errors
/// `explain-unknown-code` when no error has that code.
pub fn run(arguments: &Arguments, session: &Session) -> Result<Report> {
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
        json: None,
        reproduce: session.reproduce(),
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
        let session = Session::from_environment(&["lanecast".into(), "explain".into()], ColorChoice::Never, true, false);
        run(&Arguments { code: code.map(str::to_owned), output: Output::default() }, &session)
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
