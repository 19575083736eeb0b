//! What surrounds one run of the program: the terminal, how much to say, and
//! the command as it was typed. The only file that reads the environment.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::io::Write;

use clap::ValueEnum;
use miette::GraphicalReportHandler;
use miette::GraphicalTheme;

use crate::error::Fault;
use crate::error::visible;
use crate::render::screen::Ink;
use crate::render::screen::Screen;
use crate::report::reproduce::Reproduce;

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

/// The surroundings of a run.
#[derive(Clone, Debug)]
pub struct Session {
    /// Where results go.
    pub stdout: Screen,
    /// Where notes and faults go.
    pub stderr: Screen,
    /// Results only?
    pub quiet: bool,
    /// More notes?
    pub verbose: bool,
    arguments: Vec<String>,
}

impl Session {
    /// From the process's environment.
    pub fn from_environment(typed: &[OsString], color: ColorChoice, quiet: bool, verbose: bool) -> Session {
        let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let forbidden = text("NO_COLOR").is_some() || text("TERM").as_deref() == Some("dumb");
        let columns = text("COLUMNS").and_then(|value| value.parse().ok());
        let screen = |is_terminal| screen(color, forbidden, columns, is_terminal);
        Session {
            stdout: screen(std::io::stdout().is_terminal()),
            stderr: screen(std::io::stderr().is_terminal()),
            quiet,
            verbose,
            arguments: typed.iter().map(|argument| argument.to_string_lossy().into_owned()).collect(),
        }
    }

    /// The start of a report's footer; the command adds its inputs.
    pub fn reproduce(&self) -> Reproduce {
        Reproduce::new(self.arguments.iter().cloned())
    }

    /// One line beside the result.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            say(&format!("{} {}\n", self.stderr.paint(Ink::Faint, "note:"), visible(text)));
        }
    }

    /// One line for those who asked for more.
    pub fn detail(&self, text: &str) {
        if self.verbose {
            self.note(text);
        }
    }

    /// One line that may change what the reader does with the result.
    pub fn warn(&self, text: &str) {
        say(&format!("{} {}\n", self.stderr.paint(Ink::Warn, "warning:"), visible(text)));
    }

    /// The fault with its code, place and help.
    pub fn show_fault(&self, fault: &Fault) {
        say(&fault_text(fault, self.stderr));
    }
}

/// To stderr. Where nobody reads it the exit code alone tells.
pub fn say(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Lines are broken for terminals only; a terminal of unknown width has 100 columns.
fn screen(color: ColorChoice, forbidden: bool, columns: Option<u16>, is_terminal: bool) -> Screen {
    let color = match color {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => is_terminal && !forbidden,
    };
    Screen { width: is_terminal.then(|| columns.unwrap_or(100).max(40)), color }
}

/// A fault as people read it.
pub fn fault_text(fault: &Fault, screen: Screen) -> String {
    let theme = if screen.color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let handler = GraphicalReportHandler::new_themed(theme).with_links(false).with_width(screen.width.map_or(100, usize::from));
    let mut text = String::new();
    match handler.render_report(&mut text, fault) {
        Ok(()) => text,
        Err(_) => format!("{}: {}\n", fault.code, fault.message),
    }
}

/// What a panic prints: it is our mistake, not the user's.
pub fn bug_line(panic: &str) -> String {
    let one_line = panic.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("lanecast {} has a bug, please report it with the command and its inputs: {one_line}", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_follow_the_choice_then_the_environment_then_the_terminal() {
        let color = |choice, forbidden, terminal| screen(choice, forbidden, None, terminal).color;
        assert!(color(ColorChoice::Auto, false, true));
        assert!(!color(ColorChoice::Auto, true, true));
        assert!(!color(ColorChoice::Auto, false, false));
        assert!(color(ColorChoice::Always, true, false));
        assert!(!color(ColorChoice::Never, false, true));
    }

    #[test]
    fn only_terminals_have_a_width() {
        let width = |columns, terminal| screen(ColorChoice::Auto, false, columns, terminal).width;
        assert_eq!(width(Some(120), false), None);
        assert_eq!(width(Some(120), true), Some(120));
        assert_eq!(width(Some(3), true), Some(40));
        assert_eq!(width(None, true), Some(100));
    }

    #[test]
    fn a_fault_shows_code_place_and_help() {
        let text = "a = 1\nb = x\n";
        let fault = Fault::new("machine-bad-number", "expected a number").at("m.toml", text, 10..11, "this").help("write 5");
        let shown = fault_text(&fault, Screen::PLAIN);
        for part in ["machine-bad-number", "expected a number", "m.toml:2:5", "this", "help: write 5"] {
            assert!(shown.contains(part), "{part} in\n{shown}");
        }
        assert!(!shown.contains('\u{1b}'));
    }

    #[test]
    fn a_bug_is_one_line() {
        let line = bug_line("panicked at src/x.rs:1:2:\nindex out of bounds");
        assert_eq!(line.lines().count(), 1);
        assert!(line.contains("report it") && line.ends_with("panicked at src/x.rs:1:2: index out of bounds"));
    }
}
