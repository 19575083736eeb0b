//! The program: arguments in, exit code out.

use std::process::ExitCode;

fn main() -> ExitCode {
    lanecast::cli::main(std::env::args_os())
}
