//! What measurements give: rows of the observation, flow, micro and check
//! files, written as CSV.

use crate::gpu::element::Element;

/// One latency of a collective, a row of an observation file.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Observation {
    /// Machine id.
    pub machine: String,
    /// Ranks.
    pub ranks: u32,
    /// `nccl`, `one_shot_push`, ….
    pub implementation: String,
    /// `ring`, `tree` or empty.
    pub algorithm: String,
    /// `ll`, `ll128`, `simple` or empty.
    pub protocol: String,
    /// Channels or blocks of a rank: `N`, `N-M` or empty.
    pub channels: String,
    /// Threads of a block, empty for the default.
    pub threads: String,
    /// `NCCL_BUFFSIZE`, empty for the default.
    pub buffer_bytes: String,
    /// `graph_chain`, `eager_chain_single_thread`, ….
    pub timing: String,
    /// Message bytes of one rank.
    pub bytes: u64,
    /// Element type.
    pub dtype: Element,
    /// Of NCCL, or of this program.
    pub version: String,
    /// `all_reduce` unless said otherwise.
    pub collective: String,
    /// Median.
    pub latency_us: f64,
    /// Least of the repetitions.
    pub low_us: f64,
    /// Most of the repetitions.
    pub high_us: f64,
    /// How and where.
    pub source: String,
}

/// Column names of [`Observation::csv`].
pub const OBSERVATION_HEADER: &str = "machine,ranks,implementation,algorithm,protocol,channels,threads,buffer_bytes,timing,bytes,dtype,version,collective,latency_us,low_us,high_us,source";

impl Observation {
    /// The row, fields quoted where they must be.
    pub fn csv(&self) -> String {
        let words = [
            &self.machine,
            &self.ranks.to_string(),
            &self.implementation,
            &self.algorithm,
            &self.protocol,
            &self.channels,
            &self.threads,
            &self.buffer_bytes,
            &self.timing,
            &self.bytes.to_string(),
            &self.dtype.name().to_owned(),
            &self.version,
            &self.collective,
            &format!("{:.2}", self.latency_us),
            &format!("{:.2}", self.low_us),
            &format!("{:.2}", self.high_us),
            &self.source,
        ];
        words.map(|w| quoted(w)).join(",")
    }
}

/// A total rate of concurrent flows, a row of a flow file.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Flow {
    /// Machine id.
    pub machine: String,
    /// `write`, `read` or `copy`.
    pub access: String,
    /// `0>4;1>6`; `h` is the host: `0>h`.
    pub flows: String,
    /// All flows together.
    #[serde(rename = "total_GBps")]
    pub total_gbps: f64,
    /// How and where.
    pub source: String,
}

/// Column names of [`Flow::csv`].
pub const FLOW_HEADER: &str = "machine,access,flows,total_GBps,source";

impl Flow {
    /// The row.
    pub fn csv(&self) -> String {
        format!("{},{},{},{:.2},{}", quoted(&self.machine), self.access, self.flows, self.total_gbps, quoted(&self.source))
    }
}

/// One named number of a micro-benchmark.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Micro {
    /// Name with the unit last, e.g. `l2_read_latency_ns`.
    pub name: String,
    /// Median.
    pub value: f64,
    /// Least of the repetitions.
    pub low: f64,
    /// Most of the repetitions.
    pub high: f64,
}

/// Column names of [`Micro::csv`].
pub const MICRO_HEADER: &str = "name,value,low,high";

impl Micro {
    /// The row.
    pub fn csv(&self) -> String {
        format!("{},{:.3},{:.3},{:.3}", self.name, self.value, self.low, self.high)
    }
}

/// What NCCL says it chose for one size, and what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Choice {
    /// Ranks.
    pub ranks: u32,
    /// Forced on it, empty where it was free.
    pub asked_algorithm: String,
    /// See `asked_algorithm`.
    pub asked_protocol: String,
    /// Channels: `N` forced, `N-M` allowed, or empty.
    pub asked_channels: String,
    /// `NCCL_NTHREADS`, empty for the default.
    pub threads: String,
    /// `NCCL_BUFFSIZE`, empty for the default.
    pub buffer_bytes: String,
    /// Message bytes.
    pub bytes: u64,
    /// `ring`, `tree`, …; empty where it said nothing.
    pub algorithm: String,
    /// `ll`, `ll128`, `simple`.
    pub protocol: String,
    /// Channels used.
    pub channels: String,
}

/// Column names of [`Choice::csv`].
pub const CHOICE_HEADER: &str =
    "ranks,asked_algorithm,asked_protocol,asked_channels,threads,buffer_bytes,bytes,algorithm,protocol,channels";

impl Choice {
    /// The row.
    pub fn csv(&self) -> String {
        let (ranks, bytes) = (self.ranks.to_string(), self.bytes.to_string());
        let words = [
            &ranks,
            &self.asked_algorithm,
            &self.asked_protocol,
            &self.asked_channels,
            &self.threads,
            &self.buffer_bytes,
            &bytes,
            &self.algorithm,
            &self.protocol,
            &self.channels,
        ];
        words.map(|w| quoted(w)).join(",")
    }
}

/// One kernel checked against the reference.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Check {
    /// Kernel or implementation.
    pub name: String,
    /// Ranks.
    pub ranks: u32,
    /// Element type.
    pub dtype: Element,
    /// Message bytes of one rank.
    pub bytes: u64,
    /// Calls made.
    pub calls: u64,
    /// Elements outside the bound, unwritten, or not alike on all ranks.
    pub wrong: u64,
    /// ‖out − reference‖ / ‖reference‖.
    pub relative_error: f64,
}

/// Column names of [`Check::csv`].
pub const CHECK_HEADER: &str = "name,ranks,dtype,bytes,calls,wrong,relative_error";

impl Check {
    /// The row.
    pub fn csv(&self) -> String {
        let Check { name, ranks, dtype, bytes, calls, wrong, relative_error } = self;
        format!("{name},{ranks},{},{bytes},{calls},{wrong},{relative_error:.3e}", dtype.name())
    }
}

/// Median, least and most; zeros for nothing.
pub fn spread(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some((low, high)) = sorted.first().zip(sorted.last()) else { return (0.0, 0.0, 0.0) };
    let middle = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
    (median, *low, *high)
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(spread(&[3.0, 1.0, 2.0]), (2.0, 1.0, 3.0));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]), (2.5, 1.0, 4.0));
        assert_eq!(spread(&[]), (0.0, 0.0, 0.0));
    }

    #[test]
    fn fields_with_commas_are_quoted() {
        let row = Observation {
            machine: "h200-shared".into(),
            ranks: 8,
            implementation: "nccl".into(),
            algorithm: "ring".into(),
            protocol: "ll".into(),
            channels: "1-4".into(),
            threads: String::new(),
            buffer_bytes: String::new(),
            timing: "graph_chain".into(),
            bytes: 43_008,
            dtype: Element::F16,
            version: "2.31.2".into(),
            collective: "all_reduce".into(),
            latency_us: 25.137,
            low_us: 24.93,
            high_us: 26.36,
            source: "a, \"b\"".into(),
        };
        let expected = "h200-shared,8,nccl,ring,ll,1-4,,,graph_chain,43008,fp16,2.31.2,all_reduce,25.14,24.93,26.36,\"a, \"\"b\"\"\"";
        assert_eq!(row.csv(), expected);
        assert_eq!(row.csv().split(',').count(), OBSERVATION_HEADER.split(',').count() + 1);
    }
}
