//! `--format` and `--output`, which every command takes.

use std::path::PathBuf;

use clap::Args;
use clap::ValueEnum;

use crate::cli::session::Session;
use crate::error::Result;
use crate::render::screen::Screen;
use crate::render::write::write_file;
use crate::render::write::write_out;
use crate::report::Report;

/// In which form a report is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Sentences and tables for people
    #[default]
    Table,
    /// The rows with a header of keys
    Csv,
    /// The rows or the whole value, keys as in CSV
    Json,
}

/// Where and how the result is written.
#[derive(Args, Clone, Debug, Default)]
pub struct Output {
    /// In which form
    #[arg(long, value_enum, default_value = "table")]
    pub format: Format,

    /// Write to this file instead of stdout; an old file stays until the new one is complete
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// `--html`, which commands with drawings take.
#[derive(Args, Clone, Debug, Default)]
pub struct Pages {
    /// Also write the report with its drawings as one HTML file that needs no network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl Pages {
    /// Are drawings wanted?
    pub fn wanted(&self) -> bool {
        self.html.is_some()
    }

    /// Writes the page, if it was asked for.
    ///
    /// # Errors
    /// `io` when the file cannot be written.
    pub fn emit(&self, report: &Report) -> Result<()> {
        self.html.as_ref().map_or(Ok(()), |path| write_file(path, report.to_html().as_bytes()))
    }
}

impl Output {
    /// A table on stdout.
    pub const STDOUT: Output = Output { format: Format::Table, output: None };

    /// Writes the report. CSV and JSON hold the value alone, so what reproduces
    /// it goes to stderr there. Returns whether every check of it passed.
    ///
    /// # Errors
    /// `io` when the file or stdout cannot be written.
    pub fn emit(&self, report: &Report, session: &Session) -> Result<bool> {
        let screen = if self.output.is_some() { Screen::PLAIN } else { session.stdout };
        let text = match self.format {
            Format::Table => report.to_text(screen),
            Format::Csv => report.to_csv(),
            Format::Json => report.to_json(),
        };
        match &self.output {
            Some(path) => write_file(path, text.as_bytes())?,
            None => write_out(&mut std::io::stdout().lock(), &text)?,
        }
        if self.format != Format::Table {
            for line in report.reproduce.lines() {
                session.note(&line);
            }
        }
        Ok(report.passed)
    }
}
