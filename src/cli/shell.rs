//! `lanecast completions` and `lanecast man`: what a shell and `man` want to know
//! of the commands, made from the same arguments that are parsed.

use std::path::Path;
use std::path::PathBuf;

use clap::Args;
use clap::Command;
use clap_complete::Shell;

use crate::cli::output::Output;
use crate::cli::session::Session;
use crate::error::Fault;
use crate::error::Result;
use crate::render::page::Section;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::render::write::write_file;
use crate::report::Report;

/// Print the completions of all commands for a shell
#[derive(Args, Debug)]
#[command(after_help = "bash:  lanecast completions bash > ~/.local/share/bash-completion/completions/lanecast\n\
                        zsh:   lanecast completions zsh > ~/.zfunc/_lanecast, where fpath has ~/.zfunc\n\
                        fish:  lanecast completions fish > ~/.config/fish/completions/lanecast.fish")]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Print the manual page, or write one of each command to a folder
#[derive(Args, Debug)]
#[command(after_help = "lanecast man | man -l -      shows it;      lanecast man ~/.local/share/man/man1      installs all pages")]
pub struct Manual {
    /// The folder for lanecast.1, lanecast-rank.1 and so on; it must be there
    directory: Option<PathBuf>,
    #[command(flatten)]
    pub(super) output: Output,
}

/// The completions as text.
///
/// # Errors
/// None that a user can cause.
pub fn completions(arguments: &Completions, mut program: Command, session: &Session) -> Result<Report> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut program, "lanecast", &mut script);
    Ok(text("Completions", String::from_utf8_lossy(&script).into_owned(), session))
}

/// The main page as text, or all pages in a folder.
///
/// # Errors
/// `io` when a page cannot be written.
pub fn manual(arguments: &Manual, program: Command, session: &Session) -> Result<Report> {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    let Some(folder) = &arguments.directory else {
        return Ok(text("Manual", page(&program)?.1, session));
    };
    let written = pages(&program, folder)?;
    session.note(&format!("wrote {written} pages to {}", folder.display()));
    Ok(text("Manual", String::new(), session))
}

/// Writes the page of a command and of all below it; how many.
fn pages(command: &Command, folder: &Path) -> Result<usize> {
    let (name, text) = page(command)?;
    write_file(&folder.join(name), text.as_bytes())?;
    let below = command.get_subcommands().filter(|below| !below.is_hide_set());
    below.map(|below| pages(below, folder)).try_fold(1, |sum, count| Ok(sum + count?))
}

/// File name and text of one page.
fn page(command: &Command) -> Result<(String, String)> {
    let page = clap_mangen::Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text).map_err(|error| Fault::io("write", Path::new("the manual"), &error))?;
    Ok((page.get_filename(), String::from_utf8_lossy(&text).into_owned()))
}

fn text(title: &str, text: String, session: &Session) -> Report {
    let mut rows = Table::new(vec![Column::text("text", "text")]);
    rows.row(vec![text.as_str().into()]);
    let sections = vec![Section { heading: title.to_owned(), blocks: Vec::new() }];
    Report { title: title.to_owned(), sections, rows, exact: Some(text), json: None, reproduce: session.reproduce(), passed: true }
}
