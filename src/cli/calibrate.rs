//! `lanecast calibrate`: measures this machine and writes what came out.

use std::path::PathBuf;

use clap::Args;
use clap::ValueEnum;

use crate::cli::arguments::Size;
use crate::cli::output::Format;
use crate::cli::output::Output;
#[cfg(not(feature = "gpu"))]
use crate::cli::session::Session;
#[cfg(not(feature = "gpu"))]
use crate::error::{Fault, Result};
#[cfg(not(feature = "gpu"))]
use crate::report::Report;

/// What `--only` takes; the GPU side knows the same names.
const PARTS: [&str; 11] = ["micro", "skew", "flows", "check", "stop", "ours", "host", "nccl", "versus", "variables", "green"];

/// The element types that the kernels sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Dtype {
    /// 8 bits of exponent, 7 of fraction
    Bf16,
    /// IEEE half precision
    Fp16,
}

/// Measure this machine, and check the kernels on it
#[derive(Args, Debug)]
pub struct Arguments {
    /// Two minutes at most: few sizes, one grid a kernel (this is the default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// All sizes, several grids a kernel, every choice of NCCL, eager launches, every part
    #[arg(long)]
    full: bool,
    /// Folder for the files, made if there is none
    #[arg(short, long, value_name = "DIR", default_value = "calibration")]
    output: PathBuf,
    /// What the machine is called in its files
    #[arg(long, value_name = "ID", default_value = "this-machine")]
    id: String,
    /// Only these parts, separated by commas
    #[arg(long, value_name = "PARTS", value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(PARTS))]
    only: Vec<String>,
    /// Check every kernel against double precision, and nothing else
    #[arg(long, conflicts_with = "only")]
    check: bool,
    /// Numbers of ranks; by default the GPUs there are, or 2, 4 and 8 on one GPU
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=16))]
    ranks: Vec<u32>,
    /// Message sizes, even: 43008, 42K, 1M
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    sizes: Vec<Size>,
    /// With --full: channels that NCCL is made to use, one after the other
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,4", value_parser = clap::value_parser!(u32).range(1..=64))]
    channels: Vec<u32>,
    /// Element type of the measurements; checks take both
    #[arg(long, value_enum, default_value = "bf16")]
    dtype: Dtype,
    /// Calls of the check's long chains at 42 B, 43,008 B and 1 MiB
    #[arg(long, value_name = "CALLS", default_value_t = 96)]
    soak: u64,
    /// Calls of its chains at other sizes
    #[arg(long, value_name = "CALLS", default_value_t = 48)]
    calls: u64,
    /// Names the check's random inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long a checked call may wait for another rank; more under tools that slow kernels down
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    timeout_ms: u64,
    /// Begin nothing more after so many minutes, and say what was left out
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    minutes: Option<u64>,
    /// In which form
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

impl Arguments {
    /// Always to stdout: `--output` is the folder of the files.
    pub(super) fn output(&self) -> Output {
        Output { format: self.format, output: None }
    }
}

/// Says that this program has no GPU side.
///
/// # Errors
/// `gpu-feature`, always.
#[cfg(not(feature = "gpu"))]
pub fn run(_arguments: &Arguments, _session: &Session) -> Result<Report> {
    Err(no_gpu_side())
}

/// The fault of a program without the feature.
#[cfg(not(feature = "gpu"))]
pub fn no_gpu_side() -> Box<Fault> {
    Fault::new("gpu-feature", "this program was built without its GPU side").help("build it with the feature `gpu`, which is on by default")
}

#[cfg(feature = "gpu")]
pub use measured::run;

#[cfg(feature = "gpu")]
mod measured {
    use std::fs;
    use std::time::Duration;
    use std::time::Instant;

    use indicatif::ProgressBar;
    use indicatif::ProgressStyle;

    use super::Arguments;
    use super::Dtype;
    use crate::cli::session::Session;
    use crate::error::Fault;
    use crate::error::Result;
    use crate::gpu;
    use crate::gpu::element::Element;
    use crate::gpu::parts::Calibration;
    use crate::gpu::parts::Event;
    use crate::gpu::parts::Options;
    use crate::gpu::parts::Part;
    use crate::render::write::write_file;
    use crate::report::Report;
    use crate::report::calibrate as report;

    /// Rows are not written more often than this.
    const WRITE_EVERY: Duration = Duration::from_secs(3);

    /// Measures the machine. Files are written as rows come, so that a run that
    /// is cut short leaves what it measured.
    ///
    /// # Errors
    /// `gpu-none` without a driver or a GPU, bad sizes, `io`.
    pub fn run(arguments: &Arguments, session: &Session) -> Result<Report> {
        let options = options(arguments)?;
        let folder = &arguments.output;
        let bar = progress(session);
        let mut machine = None;
        let mut written = Instant::now();
        let outcome = gpu::calibrate(&options, &mut |event| {
            match event {
                Event::Begins(at, of, text) => {
                    bar.set_length(of as u64);
                    bar.set_position(at as u64);
                    bar.set_message(text.to_owned());
                }
                Event::Grew(_) if written.elapsed() < WRITE_EVERY => {}
                Event::Grew(found) | Event::Ended(found) => {
                    machine = write_files(found, arguments, session)?;
                    written = Instant::now();
                }
            }
            Ok(())
        });
        bar.finish_and_clear();
        let found = outcome?;
        found.answered()?;
        for note in &found.notes {
            session.warn(note);
        }
        let reproduce = session.reproduce();
        let reproduce = match &machine {
            Some(text) => reproduce.input("machine", text.as_bytes()),
            None => reproduce,
        };
        Ok(report::report(&found, &folder.display().to_string(), reproduce))
    }

    /// Rows so far, and the machine with what is known of it; returns the latter.
    fn write_files(found: &Calibration, arguments: &Arguments, session: &Session) -> Result<Option<String>> {
        let folder = &arguments.output;
        fs::create_dir_all(folder).map_err(|e| Fault::io("create", folder, &e))?;
        let command = session.reproduce().lines().join("; ");
        for (name, text) in report::files(found, &command) {
            write_file(&folder.join(name), text.as_bytes())?;
        }
        let Some(detected) = &found.detected else { return Ok(None) };
        let sharing = found.ranks_most().div_ceil(u32::try_from(detected.gpus.len()).unwrap_or(1).max(1));
        let machine = gpu::machine(detected, &found.micro, &found.flows, &arguments.id, sharing)?.to_toml();
        write_file(&folder.join("machine.toml"), machine.as_bytes())?;
        Ok(Some(machine))
    }

    fn options(arguments: &Arguments) -> Result<Options> {
        let sizes: Vec<u64> = arguments.sizes.iter().map(|size| size.0.0).collect();
        if let Some(odd) = sizes.iter().find(|bytes| **bytes < 2 || !bytes.is_multiple_of(2)) {
            return Err(Fault::new("gpu-message", format!("a message of {odd} bytes holds no whole number of 16-bit elements")));
        }
        let named = |name: &str| Part::ALL.into_iter().find(|part| part.name() == name);
        let mut parts: Vec<Part> = arguments.only.iter().filter_map(|name| named(name)).collect();
        if arguments.check {
            parts.push(Part::Check);
        }
        Ok(Options {
            parts,
            full: arguments.full && !arguments.quick,
            machine: arguments.id.clone(),
            ranks: arguments.ranks.clone(),
            sizes,
            element: match arguments.dtype {
                Dtype::Bf16 => Element::Bf16,
                Dtype::Fp16 => Element::F16,
            },
            soak_calls: arguments.soak,
            calls: arguments.calls,
            seed: arguments.seed,
            timeout_ms: arguments.timeout_ms,
            channels: arguments.channels.clone(),
            own_choice_only: false,
            seconds_max: arguments.minutes.map(|minutes| minutes * 60),
        })
    }

    /// Drawn on terminals only.
    fn progress(session: &Session) -> ProgressBar {
        if session.quiet {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::new(1);
        if let Ok(style) = ProgressStyle::with_template("{bar:20} {pos}/{len} {elapsed} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }

    #[cfg(test)]
    mod tests {
        use super::super::PARTS;
        use super::*;

        #[test]
        fn the_command_line_names_every_part() {
            assert_eq!(PARTS.to_vec(), Part::ALL.map(Part::name).to_vec());
            assert!(Part::QUICK.iter().all(|part| Part::ALL.contains(part)));
        }
    }
}
