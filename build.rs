//! Puts every machine of `topologies/` into the program, and exports one symbol
//! of the executables, so that NCCL finds its tuner in the running program
//! (`NCCL_TUNER_PLUGIN=STATIC_PLUGIN`, `src/gpu/tuner.rs`).

use std::fmt::Write;
use std::path::PathBuf;

/// The machine of the case stands first (`machine::library::DEFAULT_ID`).
const FIRST: &str = "8x-rtx-pro-6000-server";

/// Writes the table of ids and texts that `src/machine/library.rs` includes.
fn embed_machines() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=topologies");
    let folder = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("topologies");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|ending| ending == "toml") && !file.ends_with("gpu-kinds.toml"));
    files.sort_by_key(|file| (file.file_stem().is_none_or(|id| id != FIRST), file.clone()));
    let mut table = String::from("&[\n");
    for file in &files {
        let id = file.file_stem().unwrap_or_default().to_string_lossy();
        writeln!(table, "    ({id:?}, include_str!({:?})),", file.display().to_string())?;
    }
    table += "]\n";
    std::fs::write(PathBuf::from(std::env::var("OUT_DIR")?).join("machines.rs"), table)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    embed_machines()?;
    let set = |name: &str| std::env::var_os(name).is_some();
    let target = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if set("CARGO_FEATURE_GPU") && target == "linux" {
        // `-u` keeps it although no code refers to it; the second writes it into
        // the table that `dlsym` searches.
        println!("cargo::rustc-link-arg-bins=-Wl,-u,ncclTunerPlugin_v4");
        println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=ncclTunerPlugin_v4");
    }
    Ok(())
}
