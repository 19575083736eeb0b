//! Which arguments name files that are read or written, and that no file is
//! meant to be both: `--trace x --perfetto x` would keep one of two results,
//! `-o` over an input would destroy what was measured.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::path::PathBuf;

use clap::ArgMatches;
use clap::parser::ValueSource;

use crate::error::Fault;
use crate::error::Result;

/// What happens to the file that an argument names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Only read, or read and replaced by intent (a ledger, a renewed baseline).
    Read,
    /// Written.
    Written,
}

/// Command (empty: any), argument, role. A test compares it with the arguments that take paths.
const ROLES: &[(&str, &str, Role)] = &[
    ("export", "trace", Role::Read),
    ("new", "file", Role::Written),
    ("", "output", Role::Written),
    ("", "html", Role::Written),
    ("", "trace", Role::Written),
    ("", "perfetto", Role::Written),
    ("", "plot", Role::Written),
    ("", "observations", Role::Written),
    ("", "directory", Role::Written),
    ("", "a", Role::Read),
    ("", "acceptance_file", Role::Read),
    ("", "b", Role::Read),
    ("", "baseline", Role::Read),
    ("", "file", Role::Read),
    ("", "files", Role::Read),
    ("", "from", Role::Read),
    ("", "grid", Role::Read),
    ("", "machine", Role::Read),
    ("", "machines", Role::Read),
    ("", "measured", Role::Read),
    ("", "model", Role::Read),
    ("", "split", Role::Read),
];

/// The role of an argument of a command, if it can name a file.
pub fn role(command: &str, argument: &str) -> Option<Role> {
    ROLES.iter().find(|(only, id, _)| (only.is_empty() || *only == command) && *id == argument).map(|(.., role)| *role)
}

/// Refuses a file that two arguments name, if one of them writes it.
///
/// # Errors
/// `argument-same-file`.
pub fn refuse_shared(matches: &ArgMatches) -> Result<()> {
    let mut named = Vec::new();
    let (mut command, mut at) = ("", matches);
    loop {
        collect(command, at, &mut named);
        let Some((name, below)) = at.subcommand() else { break };
        (command, at) = (name, below);
    }
    for (index, one) in named.iter().enumerate() {
        for other in &named[index + 1..] {
            if one.file == other.file && (one.role == Role::Written || other.role == Role::Written) {
                let message = format!("{} and {} are one file, {}", one.argument, other.argument, other.path.display());
                let what =
                    if one.role == other.role { "one result would replace the other" } else { "it would be replaced while it is read" };
                return Err(Fault::new("argument-same-file", format!("{message}: {what}")).help("name another file"));
            }
        }
    }
    Ok(())
}

struct Named {
    argument: String,
    path: PathBuf,
    role: Role,
    file: File,
}

/// Two names of one file are equal.
#[derive(PartialEq, Eq)]
enum File {
    /// Device and inode.
    There(u64, u64),
    /// Its folder, if that exists, and its name.
    New(Option<(u64, u64)>, std::ffi::OsString),
}

fn collect(command: &str, matches: &ArgMatches, named: &mut Vec<Named>) {
    for id in matches.ids() {
        let id = id.as_str();
        if matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let Ok(Some(values)) = matches.try_get_raw(id) else { continue };
        for value in values {
            let graph = if id == "env" { graph_file(value) } else { None };
            let role = if graph.is_some() { Some(Role::Read) } else { role(command, id) };
            let (Some(role), path) = (role, graph.unwrap_or(Path::new(value))) else { continue };
            if let Some(file) = file(path, role) {
                let option = matches!(id, "a" | "b" | "file" | "files" | "grid");
                let argument = if option { format!("`{}`", path.display()) } else { format!("--{}", id.replace('_', "-")) };
                named.push(Named { argument, path: path.to_owned(), role, file });
            }
        }
    }
}

/// The file that a variable of `--env` names.
fn graph_file(pair: &OsStr) -> Option<&Path> {
    pair.to_str()?.strip_prefix("NCCL_GRAPH_FILE=").filter(|path| !path.is_empty()).map(Path::new)
}

/// None for standard input, devices and pipes, which may be named twice, and for ids that are no files.
fn file(path: &Path, role: Role) -> Option<File> {
    if path == Path::new("-") {
        return None;
    }
    match std::fs::metadata(path) {
        Ok(known) if known.is_file() => Some(File::There(known.dev(), known.ino())),
        Ok(_) => None,
        Err(_) if role == Role::Read => None,
        Err(_) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let folder = std::fs::metadata(folder).ok().map(|folder| (folder.dev(), folder.ino()));
            Some(File::New(folder, path.file_name()?.to_owned()))
        }
    }
}
