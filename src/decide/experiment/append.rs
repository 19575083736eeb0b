//! A run put behind what is in the file. What stands there is kept byte by byte,
//! comments included; the file is replaced whole or not at all.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::path::PathBuf;

use toml::Value;

use crate::error::Fault;
use crate::error::Result;
use crate::render::write::write_file;
use crate::trace::table::read_text;

use super::ledger::Ledger;
use super::ledger::Run;

/// One run as a table of the file.
pub fn to_toml(run: &Run) -> String {
    let mut out = format!("[[runs]]\nid = {}\n", run.id);
    let text = |text: &str| Value::String(text.to_owned()).to_string();
    let mut line = |key: &str, value: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{key} = {value}");
    };
    if let Some(date) = &run.date {
        line("date", text(date));
    }
    line("factors", format!("[{}]", run.factors.iter().map(|id| text(id)).collect::<Vec<_>>().join(", ")));
    line("outcome", text(run.outcome.name()));
    for (key, value) in [("message", &run.message), ("note", &run.note), ("command", &run.command), ("log", &run.log)] {
        if !value.is_empty() {
            line(key, text(value));
        }
    }
    for (key, value) in [("value", run.value), ("low", run.low), ("high", run.high), ("seconds", run.seconds)] {
        if let Some(value) = value {
            line(key, Value::Float(value).to_string());
        }
    }
    if let Some(exit) = run.exit {
        line("exit", exit.to_string());
    }
    for (key, entries) in [("environment", &run.environment), ("versions", &run.versions), ("clocks", &run.clocks)] {
        if !entries.is_empty() {
            let entries: Vec<String> = entries.iter().map(|(name, value)| format!("{} = {}", text(name), text(value))).collect();
            line(key, format!("{{ {} }}", entries.join(", ")));
        }
    }
    out
}

/// Puts a run behind the others; its id becomes the next free one, which is returned.
///
/// # Errors
/// `ledger-locked` while another writes, `ledger` when the file is none, `io`.
pub fn append(path: &Path, run: &Run) -> Result<u64> {
    let lock = Lock::take(path)?;
    let old = read_text(path)?;
    let name = path.display().to_string();
    let before = Ledger::from_toml(&name, &old)?;
    let id = before.runs.iter().map(|run| run.id).max().unwrap_or(0) + 1;
    let gap = if old.is_empty() || old.ends_with("\n\n") {
        ""
    } else if old.ends_with('\n') {
        "\n"
    } else {
        "\n\n"
    };
    let new = format!("{old}{gap}{}", to_toml(&Run { id, ..run.clone() }));
    // What is about to be written must hold all that was there, and one run more.
    let after = Ledger::from_toml(&name, &new)?;
    if after.runs.len() != before.runs.len() + 1 || after.runs[..before.runs.len()] != before.runs[..] {
        return Err(Fault::new("ledger", format!("{name}: the run cannot be put behind the others"))
            .help("`runs` must be written as [[runs]] tables at the end of the file"));
    }
    write_file(path, new.as_bytes())?;
    drop(lock);
    Ok(id)
}

/// Keeps two writers apart.
struct Lock(PathBuf);

impl Lock {
    fn take(path: &Path) -> Result<Lock> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".lock");
        let lock = path.with_file_name(name);
        match fs::File::create_new(&lock) {
            Ok(_) => Ok(Lock(lock)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(Fault::new("ledger-locked", format!("{} is being written by another", path.display()))
                    .help(format!("if none runs any more, remove {}", lock.display())))
            }
            Err(error) => Err(Fault::io("lock", path, &error)),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A lock that is left behind is named by the next writer's message.
        let _ = fs::remove_file(&self.0);
    }
}
