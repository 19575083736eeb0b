//! The machines and kinds of GPU that come with the program.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::sync::OnceLock;

use crate::error::Fault;
use crate::error::Result;
use crate::machine::GpuKind;
use crate::machine::Machine;
use crate::machine::read;

/// The machine of the case: its cabling is an assumption.
pub const DEFAULT_ID: &str = "8x-rtx-pro-6000-server";

/// Id and text of each machine of `topologies/`, the default first (`build.rs`).
pub const EMBEDDED: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/machines.rs"));

const KINDS: &str = include_str!("../../topologies/gpu-kinds.toml");

/// The kinds of GPU that machine files may name without describing them.
///
/// # Errors
/// Those of reading; a test reads the embedded file.
pub fn kinds() -> Result<&'static BTreeMap<String, GpuKind>> {
    static READ: OnceLock<BTreeMap<String, GpuKind>> = OnceLock::new();
    if let Some(kinds) = READ.get() {
        return Ok(kinds);
    }
    let kinds = read::kinds_from_toml("gpu-kinds.toml", KINDS)?;
    Ok(READ.get_or_init(|| kinds))
}

impl Machine {
    /// Ids of the embedded machines, the default first.
    pub fn ids() -> impl Iterator<Item = &'static str> {
        EMBEDDED.iter().map(|(id, _)| *id)
    }

    /// An embedded machine by its id, or a machine file by its path.
    ///
    /// # Errors
    /// `machine-unknown`, `machine-too-large`, `io`, and those of [`Machine::from_toml`].
    pub fn load(id_or_path: &str) -> Result<Machine> {
        if let Some((id, text)) = EMBEDDED.iter().find(|(id, _)| *id == id_or_path) {
            return Machine::from_toml(&format!("{id}.toml"), text);
        }
        let path = Path::new(id_or_path);
        let looks_like_path = path.extension().is_some() || path.components().count() > 1 || path.exists();
        if !looks_like_path {
            let known: Vec<&str> = Machine::ids().collect();
            return Err(Fault::new("machine-unknown", format!("no machine is called `{id_or_path}`"))
                .help(format!("give a TOML file or one of {}", known.join(", "))));
        }
        let size = fs::metadata(path).map_err(|error| Fault::io("read", path, &error))?.len();
        if size > read::SIZE_LIMIT {
            let message = format!("{id_or_path} has {size} bytes; machine files have at most {}", read::SIZE_LIMIT);
            return Err(Fault::new("machine-too-large", message));
        }
        // A pipe or a device has no size to ask for.
        let mut text = String::new();
        let file = fs::File::open(path).map_err(|error| Fault::io("read", path, &error))?;
        file.take(read::SIZE_LIMIT + 1).read_to_string(&mut text).map_err(|error| Fault::io("read", path, &error))?;
        if text.len() as u64 > read::SIZE_LIMIT {
            return Err(Fault::new("machine-too-large", format!("{id_or_path} has more than {} bytes", read::SIZE_LIMIT)));
        }
        Machine::from_toml(id_or_path, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_first_and_files_are_called_by_their_ids() {
        assert_eq!(EMBEDDED[0].0, DEFAULT_ID);
        for (id, text) in EMBEDDED {
            assert_eq!(Machine::from_toml(id, text).expect("embedded").id, *id);
        }
    }
}
