//! Ends what `experiment run` launched when the program itself is ended: by
//! Ctrl-C, a closed terminal or a kill that nothing can catch.
//!
//! The guard is this program once more, in a process group of its own, so that
//! Ctrl-C does not reach it. It reads from the program that started it; when
//! that pipe closes without a word, its writer is gone: the command's group is
//! ended and the run goes into the ledger as interrupted.

use std::io::BufRead;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Child;
use std::process::ChildStdin;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use serde::Deserialize;

use crate::cli::session::Session;
use crate::decide::experiment::append::append;
use crate::decide::experiment::append::to_toml;
use crate::decide::experiment::ledger::Run;
use crate::error::Fault;
use crate::error::Result;

/// Seconds that a command has to end after it was asked to.
pub const GRACE: Duration = Duration::from_secs(10);

/// The last line of a writer that has no need of the guard any more.
const DISMISSED: &str = "dismissed";

/// A guard that waits.
pub struct Guard {
    process: Child,
    pipe: ChildStdin,
}

impl Guard {
    /// Starts one that knows of nothing yet.
    ///
    /// # Errors
    /// `launch` when this program cannot be started once more.
    pub fn start(ledger: &Path) -> Result<Guard> {
        let fault = |error: std::io::Error| {
            Fault::new("launch", format!("cannot start the guard of the command: {error}")).help("nothing was launched")
        };
        let program = std::env::current_exe().map_err(fault)?;
        let mut command = Command::new(program);
        command.args(["experiment", "guard", "--"]).arg(ledger).stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        let mut process = command.spawn().map_err(fault)?;
        match process.stdin.take() {
            Some(pipe) => Ok(Guard { process, pipe }),
            None => Err(fault(std::io::Error::from(std::io::ErrorKind::BrokenPipe))),
        }
    }

    /// Tells it which group to end, and what to note then. A guard that is gone guards nothing, and the run goes on.
    pub fn watch(&mut self, group: u32, run: &Run) {
        let _ = write!(self.pipe, "{group}\n{}", to_toml(run)).and_then(|()| self.pipe.flush());
    }

    /// The command has ended in its own way.
    pub fn dismiss(mut self) {
        let _ = writeln!(self.pipe, "{DISMISSED}");
        drop(self.pipe);
        let _ = self.process.wait();
    }
}

/// The guard's own life.
///
/// # Errors
/// Those of appending to the ledger.
pub fn stand(ledger: &Path, session: &Session) -> Result<()> {
    let started = Instant::now();
    let lines: Vec<String> = std::io::stdin().lock().lines().map_while(std::result::Result::ok).collect();
    let Some(group) = lines.first().and_then(|line| line.parse::<u32>().ok()) else { return Ok(()) };
    if lines.last().is_some_and(|line| line == DISMISSED) {
        return Ok(());
    }
    end_group(group);
    let Some(mut run) = run_of(&lines[1..].join("\n")) else { return Ok(()) };
    run.seconds = Some((started.elapsed().as_secs_f64() * 10.0).round() / 10.0);
    let id = append(ledger, &run)?;
    session.warn(&format!("interrupted: the command and what it started were ended; run {id} of {} says so", ledger.display()));
    Ok(())
}

#[derive(Deserialize)]
struct Runs {
    runs: Vec<Run>,
}

fn run_of(text: &str) -> Option<Run> {
    toml::from_str::<Runs>(text).ok()?.runs.pop()
}

/// Asks all processes of a group to end, and ends those that have not after [`GRACE`].
pub fn end_group(group: u32) {
    let asked = Instant::now();
    let mut there = signal(group, "-TERM");
    while there && asked.elapsed() < GRACE {
        std::thread::sleep(Duration::from_millis(50));
        there = signal(group, "-0");
    }
    if there {
        signal(group, "-KILL");
    }
}

/// To the whole group, so that workers of a server end too; whether there is such a group.
fn signal(group: u32, name: &str) -> bool {
    let sent = Command::new("kill").args([name, "--", &format!("-{group}")]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    sent.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::experiment::ledger::Outcome;

    #[test]
    fn a_run_crosses_the_pipe() {
        let text = "[[runs]]\nid = 0\nfactors = [\"a\"]\noutcome = \"interrupted\"\ncommand = \"serve \\\"x\\\"\"\n";
        let run = run_of(text).expect("a run");
        assert_eq!((run.outcome, run.command.as_str()), (Outcome::Interrupted, "serve \"x\""));
        assert_eq!(run_of(&to_toml(&run)), Some(run));
        assert_eq!(run_of("[[runs]]\nid = "), None);
    }

    #[test]
    fn a_group_that_is_gone_is_none() {
        let mut child = Command::new("true").process_group(0).spawn().expect("started");
        child.wait().expect("ended");
        assert!(!signal(child.id(), "-0"));
    }
}
