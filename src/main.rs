//! The program: arguments in, exit code out; or a worker of the GPU side, which
//! takes no arguments of the command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(feature = "gpu")]
    if std::env::args_os().nth(1).is_some_and(|first| first == lanecast::gpu::WORKER_COMMAND) {
        return ExitCode::from(u8::try_from(lanecast::gpu::worker_main()).unwrap_or(2));
    }
    lanecast::cli::main(std::env::args_os())
}
