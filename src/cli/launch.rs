//! Launches a command for `experiment run`: watches it, ends it when its time is
//! up, and records what bears on the result.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::mpsc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;
use std::time::Instant;

use crate::cli::guard::Guard;
use crate::cli::guard::end_group;
use crate::cli::session::Session;
use crate::decide::experiment::ledger::Outcome;
use crate::decide::experiment::ledger::Run;
use crate::decide::scrub;
use crate::decide::scrub::Scrubber;
use crate::error::Fault;
use crate::error::Result;

/// Lines of the log that are kept, and letters of a line.
const TAIL_LINES: usize = 40;
const TAIL_LETTERS: usize = 400;

/// What to launch.
pub struct Wish<'a> {
    /// Program and arguments.
    pub command: &'a [OsString],
    /// Variables to set.
    pub environment: &'a BTreeMap<String, String>,
    /// Seconds until it counts as hanging.
    pub timeout_s: f64,
    /// Text before the value.
    pub value_after: Option<&'a str>,
    /// Text that says that it serves.
    pub ready: Option<&'a str>,
    /// Factors that are on.
    pub factors: BTreeSet<String>,
    /// Free text.
    pub note: &'a str,
    /// Versions that the user named.
    pub versions: BTreeMap<String, String>,
    /// Where the run will stand.
    pub ledger: &'a Path,
}

/// Host and user of this machine, to take out of texts.
pub fn scrubber() -> Scrubber {
    let read = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    let hosts: Vec<String> = read("/proc/sys/kernel/hostname").into_iter().chain(std::env::var("HOSTNAME").ok()).collect();
    let users: Vec<String> =
        ["USER", "LOGNAME", "SUDO_USER"].iter().filter_map(|name| std::env::var(name).ok()).filter(|u| u != "root").collect();
    Scrubber::new(&hosts, &users)
}

/// Launches and watches. If this program is ended meanwhile, the command is
/// ended too and the run stands in the ledger as interrupted.
///
/// # Errors
/// `launch` when the command cannot be started.
pub fn watch(wish: &Wish<'_>, session: &Session) -> Result<Run> {
    let scrubber = scrubber();
    let started = Instant::now();
    let (Some(program), arguments) = (wish.command.first(), wish.command.get(1..).unwrap_or_default()) else {
        return Err(Fault::new("launch", "there is no command").help("write it behind --"));
    };
    let template = template(wish, &scrubber);
    let mut guard = Guard::start(wish.ledger)?;
    let mut command = Command::new(program);
    command.args(arguments).envs(wish.environment).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|error| {
        Fault::new("launch", format!("cannot start {}: {error}", program.to_string_lossy())).help("nothing was added to the ledger")
    })?;
    guard.watch(child.id(), &template);
    let (send, lines) = mpsc::channel();
    for stream in [child.stdout.take().map(|s| Box::new(s) as Box<dyn Read + Send>), child.stderr.take().map(|s| Box::new(s) as _)] {
        let send = send.clone();
        std::thread::spawn(move || {
            for line in stream.into_iter().flat_map(|stream| BufReader::new(stream).split(b'\n')).map_while(std::result::Result::ok) {
                if send.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
            }
        });
    }
    drop(send);
    let mut watched = Watched { tail: VecDeque::new(), value: None, ready: false };
    let timed_out = follow(&mut child, wish, &lines, started, &mut watched, session);
    let exit = end(&mut child);
    guard.dismiss();
    // What was printed just before the end.
    while let Ok(line) = lines.recv_timeout(Duration::from_millis(200)) {
        watched.take(&line, wish);
    }
    let tail: Vec<String> = watched.tail.iter().map(|line| scrubber.text(line)).collect();
    let outcome = outcome(&watched, exit, timed_out, wish);
    Ok(Run {
        outcome,
        message: if outcome == Outcome::Crash { message(&tail) } else { String::new() },
        value: watched.value.filter(|_| outcome == Outcome::Measured),
        exit: exit.map(i64::from),
        seconds: Some((started.elapsed().as_secs_f64() * 10.0).round() / 10.0),
        log: if outcome.works() { String::new() } else { tail.join("\n") },
        ..template
    })
}

/// The run as it stands before anything came of it.
fn template(wish: &Wish<'_>, scrubber: &Scrubber) -> Run {
    let words: Vec<String> = wish.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let set = wish.environment.iter().map(|(name, value)| (name.clone(), value.clone()));
    let mut versions = versions();
    versions.extend(wish.versions.clone());
    Run {
        id: 0,
        date: Some(date()),
        factors: wish.factors.clone(),
        outcome: Outcome::Interrupted,
        message: String::new(),
        value: None,
        low: None,
        high: None,
        note: wish.note.to_owned(),
        exit: None,
        seconds: None,
        command: scrubber.text(&words.join(" ")),
        log: String::new(),
        environment: scrub::environment(std::env::vars().chain(set), scrubber),
        versions,
        clocks: clocks(),
    }
}

struct Watched {
    tail: VecDeque<String>,
    value: Option<f64>,
    ready: bool,
}

impl Watched {
    fn take(&mut self, line: &str, wish: &Wish<'_>) {
        if let Some(value) = wish.value_after.and_then(|text| number_after(line, text)) {
            self.value = Some(value);
        }
        self.ready |= wish.value_after.is_none() && wish.ready.is_some_and(|text| line.contains(text));
        self.tail.push_back(line.chars().filter(|c| !c.is_control() || *c == '\t').take(TAIL_LETTERS).collect());
        if self.tail.len() > TAIL_LINES {
            self.tail.pop_front();
        }
    }
}

/// Until it ends, says that it serves, or its time is up; whether the latter.
fn follow(
    child: &mut Child,
    wish: &Wish<'_>,
    lines: &mpsc::Receiver<String>,
    started: Instant,
    watched: &mut Watched,
    session: &Session,
) -> bool {
    let limit = Duration::from_secs_f64(wish.timeout_s);
    loop {
        match lines.recv_timeout(Duration::from_millis(50)) {
            Ok(line) => {
                session.detail(&line);
                watched.take(&line, wish);
                if watched.ready {
                    return false;
                }
            }
            // Both streams closed, or silence: look whether it is still there.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(Duration::from_millis(20)),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if child.try_wait().ok().flatten().is_some() {
            return false;
        }
        if started.elapsed() >= limit {
            return true;
        }
    }
}

/// Ends the command, unless it has ended, and all that it started and left
/// behind, which would hold the GPUs; its exit code.
fn end(child: &mut Child) -> Option<i32> {
    let group = child.id();
    let ending = std::thread::spawn(move || end_group(group));
    let status = child.wait().ok().and_then(|status| status.code());
    let _ = ending.join();
    status
}

fn outcome(watched: &Watched, exit: Option<i32>, timed_out: bool, wish: &Wish<'_>) -> Outcome {
    match (timed_out, exit) {
        _ if watched.ready => Outcome::Serves,
        (true, _) if watched.value.is_some() => Outcome::Measured,
        (true, _) => Outcome::Hang,
        (false, Some(0)) if watched.value.is_some() => Outcome::Measured,
        // It ended well, but what it was run for is missing.
        (false, Some(0)) if wish.ready.is_some() => Outcome::Crash,
        (false, Some(0)) => Outcome::Serves,
        _ => Outcome::Crash,
    }
}

/// The first number behind `text`, with sign, exponent and thousands; none
/// unless it is finite and above zero.
fn number_after(line: &str, text: &str) -> Option<f64> {
    let rest = line.split_once(text)?.1;
    let start = rest.find(|c: char| c.is_ascii_digit())?;
    let negative = rest[..start].ends_with('-');
    let mut number = String::new();
    let mut letters = rest[start..].chars().peekable();
    while let Some(letter) = letters.next() {
        let next = letters.peek().copied();
        match letter {
            '0'..='9' | '.' => number.push(letter),
            ',' if next.is_some_and(|c| c.is_ascii_digit()) => {}
            'e' | 'E' if next.is_some_and(|c| c.is_ascii_digit() || c == '-' || c == '+') => number.push(letter),
            '-' | '+' if number.ends_with(['e', 'E']) => number.push(letter),
            _ => break,
        }
    }
    let value = number.trim_end_matches('.').parse::<f64>().ok()?;
    (value.is_finite() && value > 0.0 && !negative).then_some(value)
}

/// The line that tells most: the last that speaks of an error, or the last.
fn message(tail: &[String]) -> String {
    let speaks = |line: &&String| {
        ["error", "exception", "fatal", "no supported", "failed", "abort"].iter().any(|word| line.to_lowercase().contains(word))
    };
    tail.iter().rev().find(speaks).or(tail.last()).cloned().unwrap_or_default()
}

/// What the command prints, or nothing where it is not there or does not end well.
fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    let ran = Command::new(program).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    ran.status.success().then(|| String::from_utf8_lossy(&ran.stdout).trim().to_owned())
}

/// Today, in UTC.
pub fn date() -> String {
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    day(seconds / 86400)
}

/// Days since 1970 as a date. Source: H. Hinnant, chrono-compatible low-level date algorithms.
fn day(days: u64) -> String {
    let z = days + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, year) = if month < 10 { (month + 3, year_of_era + era * 400) } else { (month - 9, year_of_era + era * 400 + 1) };
    format!("{year:04}-{month:02}-{day:02}")
}

/// Kernel and driver.
pub fn versions() -> BTreeMap<String, String> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|text| text.trim().to_owned());
    let driver = std::fs::read_to_string("/proc/driver/nvidia/version").ok().and_then(|text| {
        let is_version = |word: &&str| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit());
        text.split_whitespace().find(is_version).map(str::to_owned)
    });
    [("kernel", kernel), ("driver", driver)].into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?))).collect()
}

/// Clock and power limits of the GPUs, as `nvidia-smi` has them.
fn clocks() -> BTreeMap<String, String> {
    let asked = ["--query-gpu=clocks.max.sm,clocks.max.mem,power.limit", "--format=csv,noheader"];
    let Some(text) = output_of("nvidia-smi", &asked) else { return BTreeMap::new() };
    let names = ["max sm", "max memory", "power limit"];
    let lines = text.lines().enumerate();
    lines
        .flat_map(|(gpu, line)| {
            line.split(',').zip(names).map(move |(value, name)| (format!("gpu{gpu} {name}"), value.trim().to_owned())).collect::<Vec<_>>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_behind_a_text() {
        assert_eq!(number_after("verify: 14.25 ms", "verify:"), Some(14.25));
        assert_eq!(number_after("tok/s = 82.", "tok/s"), Some(82.0));
        assert_eq!(number_after("tok/s none", "tok/s"), None);
    }

    #[test]
    fn days_are_dates() {
        assert_eq!((day(0), day(19_782), day(20_788)), ("1970-01-01".to_owned(), "2024-02-29".to_owned(), "2026-12-01".to_owned()));
    }

    #[test]
    fn numbers_are_read_whole() {
        let read = |text: &str| number_after(text, "x=");
        assert_eq!(read("tok/s x= 82.5."), Some(82.5));
        assert_eq!(read("x=1e2"), Some(100.0));
        assert_eq!(read("x=1.5e-3 s"), Some(0.0015));
        assert_eq!(read("x=1,234.5, more"), Some(1234.5));
        for none in ["x=-5", "x=1e999", "x=0", "x=", "y=5"] {
            assert_eq!(read(none), None, "{none}");
        }
    }
}
