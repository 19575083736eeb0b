//! Measures a machine: quick in about two minutes, or in full.
//!
//! Each part runs in a worker of its own, so that one that fails or hangs costs
//! its own rows only and becomes a note.

use std::path::PathBuf;

use crate::error::Result;
use crate::gpu::SILENCE;
use crate::gpu::answer::Answer;
use crate::gpu::answer::Request;
use crate::gpu::collectives::NcclOptions;
use crate::gpu::collectives::OursOptions;
use crate::gpu::detect::Detected;
use crate::gpu::element::Element;
use crate::gpu::implementation::Implementation;
use crate::gpu::library;
use crate::gpu::nccl;
use crate::gpu::nccl::Choice;
use crate::gpu::observation::Flow;
use crate::gpu::observation::Micro;
use crate::gpu::observation::Observation;
use crate::gpu::worker;

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// All implementations, sizes, rank counts, grids and NCCL settings.
    pub full: bool,
    /// Machine id of the rows.
    pub machine: String,
    /// Numbers of ranks; empty: the GPUs there are, or 2, 4 and 8 on one GPU.
    pub ranks: Vec<u32>,
    /// Element type.
    pub element: Element,
}

/// What was measured.
#[derive(Clone, Debug, Default)]
pub struct Calibration {
    /// The machine, when it could be looked at.
    pub detected: Option<Detected>,
    /// Latencies.
    pub observations: Vec<Observation>,
    /// Rates.
    pub flows: Vec<Flow>,
    /// Micro-benchmarks.
    pub micro: Vec<Micro>,
    /// What NCCL said it chose.
    pub choices: Vec<Choice>,
    /// Parts that failed, with their faults.
    pub notes: Vec<String>,
}

/// One configuration of NCCL: columns of its rows and its variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NcclSetting {
    /// `ring`, `tree` or empty for NCCL's choice.
    pub algorithm: &'static str,
    /// `ll`, `ll128`, `simple` or empty.
    pub protocol: &'static str,
    /// `NCCL_MIN_NCHANNELS` and `NCCL_MAX_NCHANNELS`, 0 where unset.
    pub channels: (u32, u32),
    /// `NCCL_NTHREADS`, 0 where unset.
    pub threads: u32,
    /// `NCCL_BUFFSIZE`, 0 where unset.
    pub buffer_bytes: u32,
}

impl NcclSetting {
    /// NCCL's own choice, but for channels.
    pub fn channels(min: u32, max: u32) -> NcclSetting {
        NcclSetting { algorithm: "", protocol: "", channels: (min, max), threads: 0, buffer_bytes: 0 }
    }

    /// One algorithm and protocol.
    pub fn forced(algorithm: &'static str, protocol: &'static str, channels: u32) -> NcclSetting {
        NcclSetting { algorithm, protocol, channels: (channels, channels), threads: 0, buffer_bytes: 0 }
    }

    fn environment(&self, debug_file: &std::path::Path) -> Vec<(String, String)> {
        let mut all: Vec<(String, String)> = nccl::SHARED_GPU_ENVIRONMENT.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let mut set = |name: &str, value: String| all.push((name.to_owned(), value));
        if !self.algorithm.is_empty() {
            set("NCCL_ALGO", self.algorithm.to_uppercase());
        }
        match self.protocol {
            "" => {}
            "ll" => set("NCCL_PROTO", "LL".to_owned()),
            "ll128" => set("NCCL_PROTO", "LL128".to_owned()),
            _ => set("NCCL_PROTO", "Simple".to_owned()),
        }
        for (name, value) in [
            ("NCCL_MIN_NCHANNELS", self.channels.0),
            ("NCCL_MAX_NCHANNELS", self.channels.1),
            ("NCCL_NTHREADS", self.threads),
            ("NCCL_BUFFSIZE", self.buffer_bytes),
        ] {
            if value > 0 {
                set(name, value.to_string());
            }
        }
        set("NCCL_DEBUG", "INFO".to_owned());
        set("NCCL_DEBUG_SUBSYS", "TUNING".to_owned());
        set("NCCL_DEBUG_FILE", debug_file.display().to_string());
        all
    }

    /// The column for channels: `N`, `N-M` or empty.
    fn channels_text(&self) -> String {
        match self.channels {
            (0, 0) => String::new(),
            (min, max) if min == max => min.to_string(),
            (min, 0) => format!("{min}-"),
            (min, max) => format!("{}-{max}", min.max(1)),
        }
    }
}

/// Measures NCCL under one setting, in a worker of its own.
///
/// # Errors
/// What the worker meets.
pub fn nccl_series(
    setting: &NcclSetting,
    options: &Options,
    ranks: u32,
    sizes: &[u64],
    beside: &[Implementation],
    tell: &mut dyn FnMut(Answer),
) -> Result<()> {
    let folder = library::cache_folder();
    let _ = std::fs::create_dir_all(&folder);
    let debug_file: PathBuf = folder.join(format!("nccl-{}.log", std::process::id()));
    let text = |n: u32| if n == 0 { String::new() } else { n.to_string() };
    let request = Request::Nccl(NcclOptions {
        machine: options.machine.clone(),
        ranks,
        devices: usize::MAX,
        element: options.element,
        sizes: sizes.to_vec(),
        algorithm: setting.algorithm.to_owned(),
        protocol: setting.protocol.to_owned(),
        channels: setting.channels_text(),
        threads: text(setting.threads),
        buffer_bytes: text(setting.buffer_bytes),
        channels_min: 0,
        channels_max: 0,
        beside: beside.to_vec(),
        eager: options.full,
        debug_file: Some(debug_file.clone()),
    });
    let outcome = worker::ask(&request, &setting.environment(&debug_file), SILENCE, tell);
    let _ = std::fs::remove_file(&debug_file);
    outcome
}

/// Measures the machine; `progress` hears one line a part.
///
/// # Errors
/// When not even `detect` works; later parts that fail become notes.
pub fn calibrate(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Calibration> {
    let mut found = Calibration::default();
    progress("looking at the machine");
    worker::ask(&Request::Detect, &[], SILENCE, &mut |answer| found.put(answer))?;
    let gpus = found.detected.as_ref().map_or(1, |d| d.gpus.len().max(1));
    let ranks = ranks(options, gpus);
    let skew_ranks = if gpus == 1 { ranks.clone() } else { Vec::new() };
    progress("flags, reads, fences, copies and launches");
    found.part("micro", &Request::Micro { ordinal: 0, skew_ranks });
    progress("concurrent flows");
    found.part("flows", &Request::Flows { machine: options.machine.clone() });
    let sizes = sizes(options.full);
    for &count in &ranks {
        progress(&format!("all-reduces of our own, {count} ranks"));
        found.part(
            "ours",
            &Request::Ours(OursOptions {
                machine: options.machine.clone(),
                ranks: vec![count],
                devices: usize::MAX,
                element: options.element,
                sizes: sizes.clone(),
                implementations: Vec::new(),
                tune: options.full,
                eager: options.full,
                host_bytes_max: 4 << 20,
            }),
        );
        let per_gpu = count.div_ceil(u32::try_from(gpus).unwrap_or(1));
        for setting in nccl_settings(options.full, per_gpu, &found) {
            progress(&format!("NCCL, {count} ranks, {setting:?}"));
            let mut answers = Vec::new();
            let outcome = nccl_series(&setting, options, count, &sizes, &[], &mut |a| answers.push(a));
            answers.into_iter().for_each(|a| found.put(a));
            if let Err(fault) = outcome {
                found.notes.push(format!("nccl {setting:?}, {count} ranks: {fault}"));
            }
        }
    }
    Ok(found)
}

/// Two ranks at least; several rank counts when they share a GPU.
fn ranks(options: &Options, gpus: usize) -> Vec<u32> {
    match u32::try_from(gpus) {
        _ if !options.ranks.is_empty() => options.ranks.clone(),
        Ok(1) | Err(_) => vec![2, 4, 8],
        Ok(gpus) if options.full => (2..=gpus.min(16)).filter(|n| n.is_power_of_two() || *n == gpus).collect(),
        Ok(gpus) => vec![gpus.min(16)],
    }
}

fn sizes(full: bool) -> Vec<u64> {
    if full {
        vec![256, 1024, 4096, 8192, 14_336, 28_672, 43_008, 57_344, 65_536, 131_072, 262_144, 1 << 20, 4 << 20]
    } else {
        vec![256, 4096, 14_336, 43_008, 57_344, 262_144, 1 << 20]
    }
}

/// Settings of NCCL worth a worker each. Ranks that share a GPU must not take
/// more channels than they have multiprocessors for.
fn nccl_settings(full: bool, ranks_per_gpu: u32, found: &Calibration) -> Vec<NcclSetting> {
    let multiprocessors = found.detected.as_ref().and_then(|d| d.gpus.first()).map_or(32, |g| g.multiprocessors);
    let most = if ranks_per_gpu > 1 { (multiprocessors / ranks_per_gpu / 2).clamp(1, 8) } else { 0 };
    let mut all = vec![NcclSetting::channels(0, most)];
    if full {
        for algorithm in ["ring", "tree"] {
            for protocol in ["ll", "ll128", "simple"] {
                all.extend([1, 4].map(|channels| NcclSetting::forced(algorithm, protocol, channels)));
            }
        }
        all.extend(few_channels(most));
    } else {
        all.push(NcclSetting::forced("ring", "ll", 0));
        all.push(NcclSetting::forced("tree", "ll", 0));
        all.iter_mut().for_each(|s| s.channels.1 = most);
    }
    all
}

/// The variables of the few-channels proposal, one at a time and together:
/// `NCCL_MIN_NCHANNELS=1`, `NCCL_MAX_NCHANNELS=2`, `NCCL_BUFFSIZE=131072`,
/// `NCCL_NTHREADS=64`; before them `most` channels at least and at most, and at
/// most. `most` caps channels where ranks share a GPU.
pub fn few_channels(most: u32) -> Vec<NcclSetting> {
    let base = NcclSetting::channels(0, most);
    vec![
        NcclSetting::channels(most, most),
        base.clone(),
        NcclSetting { channels: (1, most), ..base.clone() },
        NcclSetting { channels: (0, 2), ..base.clone() },
        NcclSetting { buffer_bytes: 131_072, ..base.clone() },
        NcclSetting { threads: 64, ..base.clone() },
        NcclSetting { channels: (1, 2), threads: 64, buffer_bytes: 131_072, ..base },
    ]
}

impl Calibration {
    /// Runs a part; a fault becomes a note.
    fn part(&mut self, name: &str, request: &Request) {
        let environment = nccl::SHARED_GPU_ENVIRONMENT.map(|(k, v)| (k.to_owned(), v.to_owned()));
        let outcome = worker::ask(request, &environment, SILENCE, &mut |a| self.put(a));
        if let Err(fault) = outcome {
            self.notes.push(format!("{name}: {fault}"));
        }
    }

    /// Keeps one answer.
    pub fn put(&mut self, answer: Answer) {
        match answer {
            Answer::Detected(machine) => self.detected = Some(*machine),
            Answer::Micro(row) => self.micro.push(row),
            Answer::Flow(row) => self.flows.push(row),
            Answer::Observation(row) => self.observations.push(row),
            Answer::Choice(choice) => self.choices.push(choice),
            Answer::Progress(_) | Answer::Check(_) | Answer::Pass(_) | Answer::Done | Answer::Fault { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_written_as_observations_have_them() {
        let text = |min, max| NcclSetting::channels(min, max).channels_text();
        assert_eq!([text(0, 0), text(4, 4), text(1, 2), text(0, 2), text(1, 0)], ["", "4", "1-2", "1-2", "1-"]);
    }

    #[test]
    fn a_setting_becomes_its_variables() {
        let all = few_channels(8);
        let variables = all[6].environment(std::path::Path::new("/tmp/x"));
        for (name, value) in
            [("NCCL_MIN_NCHANNELS", "1"), ("NCCL_MAX_NCHANNELS", "2"), ("NCCL_BUFFSIZE", "131072"), ("NCCL_NTHREADS", "64")]
        {
            assert!(variables.contains(&(name.to_owned(), value.to_owned())), "{name}");
        }
        assert!(all[1].environment(std::path::Path::new("/tmp/x")).iter().all(|(k, _)| k != "NCCL_NTHREADS"));
    }
}
