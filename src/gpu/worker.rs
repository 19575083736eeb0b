//! The parent that never loads CUDA, and the workers it starts.
//!
//! A worker is this program again with [`COMMAND`] as its only argument and the
//! environment that the libraries need, read by the loader at start. It gets
//! one request as a line of JSON on stdin and answers with marked lines on
//! stdout. Its stdin stays open as long as the parent lives: when it ends (a
//! Ctrl-C included), the worker ends, and with it whatever its kernels wait for.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use crate::error::{Fault, Result};
use crate::gpu::answer;
use crate::gpu::answer::Answer;
use crate::gpu::answer::Request;
use crate::gpu::library;
use crate::gpu::library::Libraries;

/// The hidden subcommand.
pub const COMMAND: &str = "gpu-worker";
/// What marks an answer among other lines (NCCL writes to stdout too).
const MARK: &str = "\u{2}lanecast ";

// SAFETY: `_exit` of the C library that std links too; it takes an int and never returns.
unsafe extern "C" {
    safe fn _exit(code: i32) -> !;
}

/// Kills the worker when the parent leaves early.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a worker for `request`, with further variables, and tells each answer
/// as it comes. Silence longer than `silence` ends the worker.
///
/// # Errors
/// The worker's fault; `gpu-worker` when it dies or falls silent.
pub fn ask(request: &Request, environment: &[(String, String)], silence: Duration, tell: &mut dyn FnMut(Answer)) -> Result<()> {
    let program = std::env::current_exe().map_err(|e| Fault::new("gpu-worker", format!("cannot find this program's file: {e}")))?;
    let libraries = Libraries::find();
    let mut command = Command::new(&program);
    command.arg(COMMAND).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.envs(libraries.environment(&library::cache_folder())?);
    command.envs(environment.iter().map(|(k, v)| (k, v)));
    let child = command.spawn().map_err(|e| Fault::new("gpu-worker", format!("cannot start a worker: {e}")))?;
    let mut guard = Guard(child);
    let line = serde_json::to_string(request).map_err(|e| Fault::new("gpu-worker", format!("cannot write the request: {e}")))?;
    let mut stdin = guard.0.stdin.take().ok_or_else(|| Fault::new("gpu-worker", "the worker has no input"))?;
    let stdout = guard.0.stdout.take().ok_or_else(|| Fault::new("gpu-worker", "the worker has no output"))?;
    writeln!(stdin, "{line}").map_err(|e| Fault::new("gpu-worker", format!("cannot reach the worker: {e}")))?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(std::result::Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let outcome = listen(&receiver, silence, tell);
    drop(stdin);
    outcome
}

fn listen(receiver: &mpsc::Receiver<String>, silence: Duration, tell: &mut dyn FnMut(Answer)) -> Result<()> {
    loop {
        let line = receiver.recv_timeout(silence).map_err(|error| match error {
            mpsc::RecvTimeoutError::Timeout => {
                Fault::new("gpu-worker", format!("the worker said nothing for {} s and was ended", silence.as_secs()))
                    .help("a kernel or NCCL hangs: run with NCCL_DEBUG=INFO, and check that all ranks' blocks fit the GPU")
            }
            mpsc::RecvTimeoutError::Disconnected => Fault::new("gpu-worker", "the worker died without an answer"),
        })?;
        let Some(text) = line.strip_prefix(MARK) else {
            use std::io::Write as _;
            let _ = writeln!(std::io::stderr(), "{line}");
            continue;
        };
        let answer =
            serde_json::from_str(text).map_err(|e| Fault::new("gpu-worker", format!("the worker's answer cannot be read: {e}")))?;
        match answer {
            Answer::Done => return Ok(()),
            Answer::Fault { code, message, help } => {
                let fault = Fault::new(answer::known_code(&code), message);
                return Err(match help {
                    Some(help) => fault.help(help),
                    None => fault,
                });
            }
            other => tell(other),
        }
    }
}

/// What the program does when started as a worker. Returns its exit code.
pub fn worker_main() -> i32 {
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line).is_err() {
        return 2;
    }
    // The parent holds the other end; it never writes more.
    std::thread::spawn(|| {
        let mut rest = String::new();
        while matches!(std::io::stdin().read_line(&mut rest), Ok(n) if n > 0) {
            rest.clear();
        }
        // Not `exit`: the driver's clean-up would wait for kernels that wait for each other.
        _exit(3);
    });
    let request = match serde_json::from_str::<Request>(&line) {
        Ok(request) => request,
        Err(error) => {
            send(&Answer::Fault { code: "gpu-worker".into(), message: format!("the request cannot be read: {error}"), help: None });
            return 2;
        }
    };
    // cudarc panics on a missing symbol: an old driver, not a bug of ours.
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| answer::answer(&request, &mut |a| send(&a))));
    match outcome {
        Ok(Ok(())) => {
            send(&Answer::Done);
            0
        }
        Ok(Err(fault)) => {
            send(&Answer::Fault { code: fault.code.into(), message: fault.message.clone(), help: fault.help.clone() });
            2
        }
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            send(&Answer::Fault {
                code: "gpu-worker".into(),
                message: format!("the worker broke: {}", text.unwrap_or_default()),
                help: None,
            });
            2
        }
    }
}

fn send(answer: &Answer) {
    let Ok(text) = serde_json::to_string(answer) else { return };
    let mut out = std::io::stdout().lock();
    // A parent that is gone needs no answer.
    let _ = writeln!(out, "{MARK}{text}").and_then(|()| out.flush());
}
