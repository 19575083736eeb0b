//! Series of NCCL measurements in one worker: any number of choices forced by
//! our tuner at each size, NCCL's own among them, our kernels beside them; with
//! what NCCL says it really chose.

use std::fs::File;
use std::io::Read;
use std::io::Seek;
use std::io::SeekFrom;
use std::path::Path;
use std::path::PathBuf;

use crate::error::Result;
use crate::gpu::answer::Answer;
use crate::gpu::collectives;
use crate::gpu::element::Element;
use crate::gpu::group::Message;
use crate::gpu::implementation::Implementation;
use crate::gpu::measure;
use crate::gpu::measure::CHAIN;
use crate::gpu::measure::REPEATS;
use crate::gpu::measure::Spread;
use crate::gpu::nccl;
use crate::gpu::nccl::Communicators;
use crate::gpu::observation::Choice;
use crate::gpu::observation::Observation;
use crate::gpu::threads;
use crate::gpu::tuner;
use crate::gpu::tuner::Asked;

/// What the tuner asks for; empty and 0 leave it to NCCL.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Forced {
    /// `ring` or `tree`.
    pub algorithm: String,
    /// `ll`, `ll128` or `simple`.
    pub protocol: String,
    /// Channels.
    pub channels: u32,
}

impl Forced {
    /// One algorithm and protocol, with a number of channels or 0.
    pub fn new(algorithm: &str, protocol: &str, channels: u32) -> Forced {
        Forced { algorithm: algorithm.to_owned(), protocol: protocol.to_owned(), channels }
    }
}

/// NCCL in one process.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct NcclOptions {
    /// Machine id for the rows.
    pub machine: String,
    /// Ranks.
    pub ranks: u32,
    /// GPUs to spread ranks over.
    pub devices: usize,
    /// Element type.
    pub element: Element,
    /// Message sizes.
    pub sizes: Vec<u64>,
    /// Measured one after the other at each size.
    pub forced: Vec<Forced>,
    /// Columns of the rows, as the environment sets them: `N`, `N-M` or empty.
    pub channels: String,
    /// See `channels`.
    pub threads: String,
    /// See `channels`.
    pub buffer_bytes: String,
    /// Bounds on channels for this communicator, 0 for none.
    pub channels_min: i32,
    /// See `channels_min`.
    pub channels_max: i32,
    /// Ours, measured in the same process right after NCCL at each size.
    pub beside: Vec<Implementation>,
    /// Also launched one by one, from one thread and from one a rank.
    pub eager: bool,
    /// The file that `NCCL_DEBUG_FILE` names, to read its choices from.
    pub debug_file: Option<PathBuf>,
}

/// Measures what `options` name.
///
/// # Errors
/// When NCCL or a device fails.
pub fn nccl(options: &NcclOptions, tell: &mut dyn FnMut(Answer)) -> Result<()> {
    let group = collectives::open(options.ranks, options.devices, options.element, &options.sizes, 0)?;
    let communicators = Communicators::open(&group, options.channels_min, options.channels_max)?;
    let mut log = Log { file: options.debug_file.clone(), read: 0 };
    for &bytes in &options.sizes {
        let message = Message { bytes, set: 0 };
        for forced in &options.forced {
            tuner::force(&forced.algorithm, &forced.protocol, forced.channels);
            log.skip();
            let spread = measure::graph_chain(&group, &|| communicators.enqueue(message))?;
            let chosen = log.last();
            tell(Answer::Choice(choice(options, forced, bytes, chosen.as_ref())));
            if let Err(why) = obeyed(forced, chosen.as_ref(), tuner::asked()) {
                tell(Answer::Note(format!("NCCL {} {}, {} ranks: {why}", forced.algorithm, forced.protocol, options.ranks)));
                continue;
            }
            let mut row = |timing: &str, spread: Spread| tell(Answer::Observation(observation(options, forced, bytes, timing, spread)));
            row("graph_chain", spread);
            if options.eager && spread.0 < measure::LONG_US {
                row("eager_chain_single_thread", measure::eager_chain(&group, &|| communicators.enqueue(message))?);
                row("eager_chain_thread_per_rank", threads::nccl(&group, &communicators, message)?);
            }
        }
        for &implementation in options.beside.iter().filter(|i| group.supports(**i, bytes)) {
            let (grid, spread) = measure::best(&group, implementation, bytes)?;
            tell(Answer::Observation(measure::row(&group, &options.machine, implementation, bytes, grid, "graph_chain", spread)));
        }
    }
    Ok(())
}

/// Whether NCCL did as it was told: its log says so, or, where that is silent,
/// its calls of the tuner. (It may also ask about tables in which the entry is
/// impossible and use another one in the end.)
fn obeyed(forced: &Forced, chosen: Option<&Chosen>, asked: Asked) -> std::result::Result<(), String> {
    if forced.algorithm.is_empty() {
        return Ok(());
    }
    match chosen {
        _ if asked.calls == 0 => Err("NCCL did not ask this program's tuner".to_owned()),
        Some(c) if c.algorithm == forced.algorithm && c.protocol == forced.protocol => Ok(()),
        Some(c) => Err(format!("not possible here, NCCL used {} {}", c.algorithm, c.protocol)),
        None if asked.refused < asked.calls => Ok(()),
        None => Err("not possible here".to_owned()),
    }
}

fn choice(options: &NcclOptions, forced: &Forced, bytes: u64, chosen: Option<&Chosen>) -> Choice {
    let chosen = chosen.cloned().unwrap_or_default();
    Choice {
        ranks: options.ranks,
        asked_algorithm: forced.algorithm.clone(),
        asked_protocol: forced.protocol.clone(),
        asked_channels: channels(options, forced),
        threads: options.threads.clone(),
        buffer_bytes: options.buffer_bytes.clone(),
        bytes,
        algorithm: chosen.algorithm,
        protocol: chosen.protocol,
        channels: chosen.channels,
    }
}

fn channels(options: &NcclOptions, forced: &Forced) -> String {
    if forced.channels > 0 { forced.channels.to_string() } else { options.channels.clone() }
}

fn observation(options: &NcclOptions, forced: &Forced, bytes: u64, timing: &str, spread: Spread) -> Observation {
    Observation {
        machine: options.machine.clone(),
        ranks: options.ranks,
        implementation: "nccl".to_owned(),
        algorithm: forced.algorithm.clone(),
        protocol: forced.protocol.clone(),
        channels: channels(options, forced),
        threads: options.threads.clone(),
        buffer_bytes: options.buffer_bytes.clone(),
        timing: timing.to_owned(),
        bytes,
        dtype: options.element,
        version: nccl::version().map_or_else(String::new, nccl::version_text),
        collective: "all_reduce".to_owned(),
        latency_us: spread.0,
        low_us: spread.1,
        high_us: spread.2,
        source: format!("calibrate, NCCL, out of place, chain of {CHAIN}, {REPEATS} repetitions"),
    }
}

/// NCCL's debug file (`NCCL_DEBUG=INFO`, `NCCL_DEBUG_SUBSYS=TUNING`), which it
/// writes line by line.
struct Log {
    file: Option<PathBuf>,
    read: u64,
}

impl Log {
    /// Passes over what is there.
    fn skip(&mut self) {
        self.read = self.file.as_deref().and_then(|f| std::fs::metadata(f).ok()).map_or(0, |m| m.len());
    }

    /// The last choice after what was passed over.
    fn last(&self) -> Option<Chosen> {
        text_after(self.file.as_deref()?, self.read)?.lines().rev().find_map(Chosen::read)
    }
}

fn text_after(path: &Path, from: u64) -> Option<String> {
    let mut file = File::open(path).ok()?;
    file.seek(SeekFrom::Start(from)).ok()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// What NCCL says it chose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Chosen {
    algorithm: String,
    protocol: String,
    channels: String,
}

impl Chosen {
    /// `AllReduce: 43008 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}`.
    fn read(line: &str) -> Option<Chosen> {
        let (_, rest) = line.split_once("AllReduce: ")?;
        let (_, rest) = rest.split_once(" Bytes -> Algo ")?;
        let (algorithm, rest) = rest.split_once(" proto ")?;
        let mut words = rest.split_whitespace();
        let protocol = words.next()?.to_lowercase();
        let range = words.find_map(|w| w.strip_prefix("channel{Lo..Hi}={")).map(|w| w.trim_end_matches('}'));
        let count = |text: &str| {
            let (low, high) = text.split_once("..")?;
            Some(high.parse::<u32>().ok()?.checked_sub(low.parse().ok()?)? + 1)
        };
        let channels = range.and_then(count).map_or_else(String::new, |n| n.to_string());
        Some(Chosen { algorithm: algorithm.trim().to_lowercase(), protocol, channels })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tuning_line_is_read() {
        let line = "host:1:2 [0] NCCL INFO AllReduce: 43008 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}";
        let expected = Chosen { algorithm: "ring".into(), protocol: "ll".into(), channels: "4".into() };
        assert_eq!(Chosen::read(line), Some(expected.clone()));
        let asked = |calls, refused| Asked { calls, refused };
        assert!(obeyed(&Forced::new("ring", "ll", 1), Some(&expected), asked(8, 4)).is_ok());
        assert!(obeyed(&Forced::new("tree", "ll", 1), Some(&expected), asked(8, 0)).is_err());
        assert!(obeyed(&Forced::new("ring", "ll", 1), Some(&expected), asked(0, 0)).is_err());
        assert!(obeyed(&Forced::new("ring", "ll", 1), None, asked(8, 8)).is_err());
        assert!(obeyed(&Forced::default(), None, asked(0, 0)).is_ok());
        for wrong in ["AllReduce: x Bytes -> Algo RING", "nothing", "AllReduce: 1 Bytes -> Algo "] {
            assert_eq!(Chosen::read(wrong), None, "{wrong}");
        }
        let odd = Chosen::read("AllReduce: 1 Bytes -> Algo TREE proto SIMPLE channel{Lo..Hi}={5..2}").expect("read");
        assert_eq!(odd.channels, "");
    }

    #[test]
    fn only_what_was_written_since_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let line = |algorithm: &str| format!("AllReduce: 8 Bytes -> Algo {algorithm} proto LL channel{{Lo..Hi}}={{0..0}}\n");
        std::fs::write(&path, line("RING")).expect("written");
        let mut log = Log { file: Some(path.clone()), read: 0 };
        assert_eq!(log.last().map(|c| c.algorithm), Some("ring".to_owned()));
        log.skip();
        assert_eq!(log.last(), None);
        std::fs::write(&path, line("RING") + &line("TREE")).expect("written");
        assert_eq!(log.last().map(|c| c.algorithm), Some("tree".to_owned()));
    }

    #[test]
    fn forced_channels_stand_in_the_row() {
        let text = r#"{"machine":"m","ranks":8,"devices":1,"element":"bf16","sizes":[],"forced":[],"channels":"1-8","threads":"","buffer_bytes":"","channels_min":0,"channels_max":0,"beside":[],"eager":false,"debug_file":null}"#;
        let options: NcclOptions = serde_json::from_str(text).expect("read");
        assert_eq!(channels(&options, &Forced::default()), "1-8");
        assert_eq!(channels(&options, &Forced::new("ring", "ll", 4)), "4");
    }
}
