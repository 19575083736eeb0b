//! `lanecast detect`: what this machine is, and its file for `--machine`.

use std::path::PathBuf;

use clap::Args;

use crate::cli::output::Format;
use crate::cli::output::Output;
use crate::cli::session::Session;
use crate::error::Result;
use crate::report::Report;

/// Look at this machine: GPUs, links, peer access as claimed and as proved
#[derive(Args, Debug)]
pub struct Arguments {
    /// Write the machine as TOML to this file, for --machine of other commands
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What the machine is called in its file
    #[arg(long, value_name = "ID", default_value = "this-machine")]
    id: String,
    /// Ranks that are to share one GPU, in its file
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    ranks_per_gpu: u32,
    /// In which form
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl Arguments {
    /// Always to stdout: `--output` is the machine's file.
    pub(super) fn output(&self) -> Output {
        Output { format: self.format, output: None }
    }
}

/// Looks at the machine.
///
/// # Errors
/// `gpu-none` without a driver or a GPU, `gpu-feature` without the GPU side.
#[cfg(feature = "gpu")]
pub fn run(arguments: &Arguments, session: &Session) -> Result<Report> {
    let found = crate::gpu::detect()?;
    let machine = crate::gpu::machine(&found, &[], &[], &arguments.id, arguments.ranks_per_gpu)?;
    let toml = machine.to_toml();
    if let Some(path) = &arguments.output {
        crate::render::write::write_file(path, toml.as_bytes())?;
        session.note(&format!("wrote {}", path.display()));
    }
    Ok(crate::report::detect::report(&found, session.reproduce().input("machine", toml.as_bytes())))
}

/// Says that this program has no GPU side.
///
/// # Errors
/// `gpu-feature`, always.
#[cfg(not(feature = "gpu"))]
pub fn run(_arguments: &Arguments, _session: &Session) -> Result<Report> {
    Err(crate::cli::calibrate::no_gpu_side())
}
