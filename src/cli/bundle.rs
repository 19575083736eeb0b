//! `lanecast bundle`: a scrubbed report to paste into a public issue.

use std::path::PathBuf;

use clap::Args;

use crate::cli::launch;
use crate::cli::output::Output;
use crate::cli::session::Session;
use crate::decide::scrub;
use crate::decide::scrub::Scrubber;
use crate::error::Fault;
use crate::error::Result;
use crate::import::input::Input;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::report::Report;

/// Letters of one file that are taken: its beginning and its end.
const FILE_LETTERS: usize = 12_000;

/// Make a report to paste into a public issue: no names, folders, addresses or secrets
#[derive(Args, Debug)]
pub struct Arguments {
    /// Texts to put in: logs, ledgers, output of `detect`, `doctor` or `diagnose`
    files: Vec<PathBuf>,
    /// More names to take out: hosts, users, customers; separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    hide: Vec<String>,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Collects and scrubs.
///
/// # Errors
/// `io`, `bundle-binary` for files that are no text.
pub fn run(arguments: &Arguments, session: &Session) -> Result<Report> {
    let scrubber = launch::scrubber().and(&arguments.hide);
    let mut rows = Table::new(vec![Column::text("part", "part"), Column::text("text", "text")]);
    let mut parts: Vec<(String, String)> = vec![
        ("Program".to_owned(), format!("lanecast {}\n", env!("CARGO_PKG_VERSION"))),
        ("Versions".to_owned(), lines(launch::versions().iter())),
        ("Host".to_owned(), host(&scrubber)),
        ("Variables".to_owned(), lines(scrub::environment(std::env::vars(), &scrubber).iter())),
    ];
    for path in &arguments.files {
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        parts.push((scrubber.text(&name), cut(&scrubber.text(&text_of(path)?))));
    }
    parts.retain(|(_, text)| !text.trim().is_empty());
    let mut page = String::from("<!-- made by `lanecast bundle`: read it before you publish it -->\n");
    for (title, text) in &parts {
        let fence = "`".repeat(longest_ticks(text).max(2) + 1);
        page += &format!("\n### {title}\n\n{fence}text\n{}\n{fence}\n", text.trim_end());
        rows.row(vec![title.as_str().into(), text.trim_end().into()]);
    }
    session.note("read it before you publish it: no program knows all that is private");
    let sections = vec![Section { heading: String::new(), blocks: vec![Block::Code(page.clone())] }];
    Ok(Report { title: "Bundle".to_owned(), sections, rows, exact: Some(page), json: None, reproduce: session.reproduce(), passed: true })
}

fn text_of(path: &std::path::Path) -> Result<String> {
    let text = Input::open(path)?.text()?;
    if text.contains('\0') {
        return Err(Fault::new("bundle-binary", format!("{} is no text", path.display())).help("give texts: logs, tables, TOML, JSON"));
    }
    Ok(text)
}

fn lines<'a>(entries: impl Iterator<Item = (&'a String, &'a String)>) -> String {
    entries.map(|(name, value)| format!("{name}={value}\n")).collect()
}

/// What of the kernel and the driver bears on peer access.
fn host(scrubber: &Scrubber) -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let telling = ["iommu", "pci", "acs", "mitigations", "isolcpus", "nohz", "numa"];
    let options: Vec<String> = read("/proc/cmdline")
        .split_whitespace()
        .filter(|option| telling.iter().any(|word| option.contains(word)))
        .map(str::to_owned)
        .collect();
    let driver: Vec<String> = (read("/proc/driver/nvidia/params").lines())
        .filter(|line| ["RegistryDwords", "GrdmaPciTopoCheckOverride", "EnableResizableBar"].iter().any(|name| line.starts_with(name)))
        .map(str::to_owned)
        .collect();
    let mut text = String::new();
    if !options.is_empty() {
        text += &format!("kernel options: {}\n", options.join(" "));
    }
    for line in driver {
        text += &format!("{line}\n");
    }
    scrubber.text(&text)
}

/// Beginning and end of a long text, at whole lines.
fn cut(text: &str) -> String {
    if text.chars().count() <= FILE_LETTERS {
        return text.to_owned();
    }
    let half = FILE_LETTERS / 2;
    let first: String = text.chars().take(half).collect();
    let last: String = text.chars().skip(text.chars().count() - half).collect();
    let first = first.rsplit_once('\n').map_or(first.as_str(), |(whole, _)| whole);
    let last = last.split_once('\n').map_or(last.as_str(), |(_, whole)| whole);
    format!("{first}\n[…]\n{last}")
}

fn longest_ticks(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_keep_both_ends() {
        let long: String = (0..5000).map(|line| format!("line {line}\n")).collect();
        let short = cut(&long);
        assert!(short.starts_with("line 0\n") && short.ends_with("line 4999\n") && short.contains("[…]"));
        assert!(short.chars().count() <= FILE_LETTERS + 10);
        assert_eq!(cut("short\n"), "short\n");
    }

    #[test]
    fn fences_are_longer_than_what_they_hold() {
        assert_eq!(longest_ticks("a ``` b `c`"), 3);
    }
}
