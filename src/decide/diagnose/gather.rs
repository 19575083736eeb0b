//! Observations and facts from files: observation CSV, TOML, and every foreign
//! format that an importer reads.

use std::path::Path;

use crate::error::Fault;
use crate::error::Result;
use crate::import;
use crate::import::facts::Facts;
use crate::import::facts::Matrix;
use crate::machine::Endpoint;
use crate::machine::Machine;
use crate::machine::PathType;
use crate::trace::observation;
use crate::trace::observation::Algorithm;
use crate::trace::observation::Collective;
use crate::trace::observation::Implementation;
use crate::trace::observation::Observation;
use crate::trace::observation::Protocol;

use crate::decide::detected;
use crate::decide::detected::Checked;
use crate::decide::readings::Reading;

use super::facts_file;
use super::kind::Kind;
use super::observed::Observations;
use super::observed::Observed;
use super::scenario::LARGE_BYTES;
use super::scenario::Setup;

/// Everything that was read.
#[derive(Default)]
pub struct Gathered {
    /// What was observed.
    pub observations: Observations,
    /// What files say of the machine.
    pub facts: Facts,
    /// What detections show.
    pub checks: Vec<Checked>,
    /// What was measured besides what a diagnosis weighs.
    pub readings: Vec<Reading>,
    /// What was passed over or may mislead, in sentences.
    pub notes: Vec<String>,
}

impl Gathered {
    /// Adds an observation; a second one of its kind becomes a note.
    pub fn add(&mut self, kind: Kind, value: f64, scatter: f64, source: &str) {
        if !(value.is_finite() && value > 0.0) {
            return;
        }
        self.notes.extend(self.observations.add(Observed { kind, value, scatter, source: source.to_owned() }));
    }

    /// Reads one file, whatever it is.
    ///
    /// # Errors
    /// Those of the reader; `diagnose-nothing` when it holds nothing that bears on a diagnosis.
    pub fn read(&mut self, path: &Path, setup: &Setup<'_>, scatter: f64) -> Result<()> {
        let before = (self.observations.0.len(), self.facts.clone(), self.notes.len() + self.checks.len());
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let text = if path.is_file() && !is_large(path) { std::fs::read_to_string(path).ok() } else { None };
        match text {
            Some(text) if name.ends_with(".toml") => {
                let read = facts_file::read(&name, &text, scatter, setup.partition.tp)?;
                for observed in read.observations.0.into_values() {
                    self.notes.extend(self.observations.add(observed));
                }
                self.facts.merge(read.facts);
            }
            Some(text) if detected::is_detection(&text) => {
                let read = detected::read(&name, &text)?;
                self.checks.extend(read.checks);
                self.facts.merge(read.facts);
            }
            Some(text) if is_observation_csv(&text) => {
                self.collectives(&observation::read_bytes(&name, text.as_bytes())?, setup, scatter, &name)
            }
            _ => {
                let outcome = import::read_path(path, None)?;
                self.notes.extend(outcome.warnings.iter().map(|warning| format!("{name}: {warning}")));
                self.collectives(&outcome.observations, setup, scatter, &name);
                self.matrices(&outcome.facts, setup.machine, scatter, &name);
                for run in outcome.serving.iter().filter(|run| run.number("concurrency").is_none_or(|n| n <= 1.0)) {
                    self.serving(run, setup, scatter, &name);
                }
                self.facts.merge(outcome.facts);
            }
        }
        if before == (self.observations.0.len(), self.facts.clone(), self.notes.len() + self.checks.len()) {
            return Err(Fault::new("diagnose-nothing", format!("{name} holds nothing that bears on a diagnosis"))
                .help("expected measurements of all-reduces, bandwidths or serving, logs of NCCL, lspci, kernel or driver settings"));
        }
        Ok(())
    }

    /// Rates of single copies: `0>1` between GPUs, `h>0` from the host; others are passed over.
    pub fn copies(&mut self, rates: &[(String, f64)], machine: &Machine, scatter: f64, source: &str) {
        let count = machine.gpus.len();
        let mut cells = vec![vec![None; count]; count];
        let mut host = f64::INFINITY;
        for (flow, gbps) in rates {
            match flow.split_once('>').map(|(from, to)| (from.parse::<usize>(), to.parse::<usize>(), from)) {
                Some((Ok(from), Ok(to), _)) if from < count && to < count => cells[from][to] = Some(*gbps),
                Some((_, Ok(_), "h")) => host = host.min(*gbps),
                _ => {}
            }
        }
        if host.is_finite() {
            self.add(Kind::HostGbps, host, scatter, source);
        }
        if cells.iter().flatten().any(Option::is_some) {
            let matrix = Matrix { title: source.to_owned(), peer_access: true, bidirectional: false, reads: false, cells };
            self.matrices(&Facts { bandwidth: vec![matrix], ..Facts::default() }, machine, scatter, source);
        }
    }

    /// NCCL's own all-reduces: the size nearest the verify pass's and the largest.
    pub fn collectives(&mut self, rows: &[Observation], setup: &Setup<'_>, scatter: f64, source: &str) {
        let fits = |row: &&Observation| {
            let own_choice = row.algorithm == Algorithm::Auto && row.protocol == Protocol::Auto;
            let is_nccl = row.implementation == Implementation::Nccl && row.collective == Collective::AllReduce;
            is_nccl && own_choice && row.ranks == setup.partition.tp
        };
        let rows: Vec<&Observation> = rows.iter().filter(fits).collect();
        let distance = |row: &&&Observation, bytes: u64| (libm::fabs(libm::log(row.bytes.max(1) as f64 / bytes as f64)) * 1e6) as u64;
        for wanted in [setup.verify_bytes(), LARGE_BYTES] {
            // Another size says as much, as long as it is of the same regime.
            let near = rows.iter().min_by_key(|row| (distance(row, wanted), row.bytes)).filter(|row| distance(row, wanted) < 2_000_000);
            if let Some(row) = near {
                let spread = match (row.low_us, row.high_us) {
                    (Some(low), Some(high)) if low > 0.0 && high > low => (libm::log(high / low) / 2.0 / 1.645).max(scatter),
                    _ => scatter,
                };
                if self.observations.value(Kind::AllreduceUs(row.bytes)).is_none() {
                    self.add(Kind::AllreduceUs(row.bytes), row.latency_us, spread, source);
                }
            }
        }
    }

    /// Bandwidths and latencies between GPUs, by what `nvidia-smi` shows between them.
    fn matrices(&mut self, facts: &Facts, machine: &Machine, scatter: f64, source: &str) {
        let count = machine.gpus.len();
        let label = |a: usize, b: usize| machine.route(Endpoint::Gpu(a), Endpoint::Gpu(b)).map(|route| route.label);
        let pairs: Vec<(usize, usize, PathType)> =
            (0..count).flat_map(|a| (0..count).filter(move |b| *b != a).filter_map(move |b| Some((a, b, label(a, b)?)))).collect();
        let (Some(near), Some(far)) = (pairs.iter().map(|p| p.2).min(), pairs.iter().map(|p| p.2).max()) else { return };
        let slowest = |matrix: &Matrix, wanted: PathType, latency: bool| {
            let cell = |(a, b, _): &(usize, usize, PathType)| matrix.cells.get(*a)?.get(*b).copied().flatten();
            let cells = pairs.iter().filter(|pair| pair.2 == wanted).filter_map(cell);
            if latency { cells.fold(0.0, f64::max) } else { cells.fold(f64::INFINITY, f64::min) }
        };
        let (direct, other): (Vec<&Matrix>, Vec<&Matrix>) = facts.bandwidth.iter().partition(|matrix| matrix.peer_access);
        for matrix in direct {
            if matrix.cells.len() != count {
                self.notes.push(format!("{source}: a matrix of {} GPUs is passed over, the machine has {count}", matrix.cells.len()));
            } else if matrix.bidirectional {
                self.add(Kind::P2pBothGbps, slowest(matrix, near, false), scatter, source);
            } else {
                self.add(Kind::P2pNearGbps, slowest(matrix, near, false), scatter, source);
                self.add(Kind::P2pFarGbps, slowest(matrix, far, false), scatter, source);
            }
        }
        if !other.is_empty() {
            self.notes.push(format!("{source}: bandwidths without peer access are passed over"));
        }
        for matrix in facts.latency.iter().filter(|matrix| matrix.peer_access && matrix.cells.len() == count) {
            self.add(Kind::P2pNearUs, slowest(matrix, near, true), scatter, source);
            self.add(Kind::P2pFarUs, slowest(matrix, far, true), scatter, source);
        }
    }

    /// One sequence at a time: tokens per second, and acceptance where drafts are counted.
    fn serving(&mut self, run: &import::serving::ServingObservation, setup: &Setup<'_>, scatter: f64, source: &str) {
        let speed = run.number("output_tokens_per_s").or(run.number("tpot_ms").map(|ms| 1e3 / ms));
        let length = run.number("accepted_length").filter(|length| *length > 1.0);
        match (speed, length) {
            (Some(speed), Some(length)) => {
                self.add(Kind::SpecTps, speed, scatter, source);
                self.add(Kind::Acceptance, acceptance_of(length, setup.tokens - 1), scatter, source);
            }
            (Some(speed), None) => self.add(Kind::DecodeTps, speed, scatter, source),
            _ => {}
        }
    }
}

/// The chance per token that gives a cycle of that many tokens, found by halving.
pub fn acceptance_of(length: f64, drafts: u64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..50 {
        let middle = (low + high) / 2.0;
        if super::forecast::tokens_per_cycle(middle, drafts) < length { low = middle } else { high = middle }
    }
    low
}

fn is_large(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|data| data.len() > 16 << 20)
}

/// Whether the first line that is no comment has the columns of an observation CSV.
fn is_observation_csv(text: &str) -> bool {
    let header = text.lines().find(|line| !line.starts_with('#') && !line.trim().is_empty()).unwrap_or("");
    let has = |name: &str| header.split(',').any(|column| column.trim() == name);
    has("ranks") && has("bytes") && has("latency_us")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 + a + a² = 1.75 at a = 0.5.
    #[test]
    fn acceptance_follows_from_the_accepted_length() {
        assert!((acceptance_of(1.75, 2) - 0.5).abs() < 1e-9);
        assert!(acceptance_of(3.0, 2) > 0.999);
    }

    #[test]
    fn tables_of_collectives_are_known_by_their_header() {
        assert!(is_observation_csv("# c\nranks,bytes,latency_us\n"));
        assert!(!is_observation_csv("a,b\n") && !is_observation_csv(""));
    }
}
