//! The `NCCL_*` variables, typed: what each means, what NCCL would refuse or ignore.
//!
//! [S] ranges and defaults of channels, threads, buffers and levels (tuning.cc, init.cc, connect.cc,
//! paths.cc). A number that is no number is an error here, where NCCL's `strtoll` would silently take 0.

use std::collections::BTreeMap;

use crate::error::Fault;
use crate::error::Result;
use crate::error::near;

use super::filter::AlgorithmFilter;
use super::filter::ProtocolFilter;
use super::kinds::Algorithm;
use super::kinds::PathType;
use super::kinds::Protocol;
use super::version::Version;

/// What the variables ask for; `None` where the default holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Environment {
    /// `NCCL_ALGO`.
    pub algorithms: AlgorithmFilter,
    /// `NCCL_PROTO`.
    pub protocols: ProtocolFilter,
    /// `NCCL_P2P_LEVEL`, or LOC by `NCCL_P2P_DISABLE=1`.
    pub p2p_level: Option<PathType>,
    /// `NCCL_P2P_DISABLE=1`.
    pub p2p_disable: bool,
    /// `NCCL_P2P_READ_ENABLE`.
    pub p2p_read: Option<bool>,
    /// `NCCL_P2P_DIRECT_DISABLE=1`: no direct pointers inside one process.
    pub p2p_direct_disable: bool,
    /// `NCCL_SHM_DISABLE=1`.
    pub shm_disable: bool,
    /// `NCCL_SHM_LOCALITY=1`: buffers of the SHM transport on the sender's side.
    pub shm_sender_side: bool,
    /// `NCCL_CUMEM_ENABLE`.
    pub cumem: Option<bool>,
    /// `NCCL_CUMEM_HOST_ENABLE`.
    pub cumem_host: Option<bool>,
    /// `NCCL_IGNORE_DISABLED_P2P`: NVML's verdict is not asked.
    pub ignore_disabled_p2p: bool,
    /// `NCCL_MIN_NCHANNELS` and its older and newer names.
    pub channels_min: Option<u32>,
    /// `NCCL_MAX_NCHANNELS` and its older and newer names.
    pub channels_max: Option<u32>,
    /// `NCCL_NTHREADS`, within 64..=512 and a multiple of 32.
    pub threads: Option<u32>,
    /// `NCCL_LL128_NTHREADS`, within 160..=640 and a multiple of 32.
    pub threads_ll128: Option<u32>,
    /// `NCCL_THREAD_THRESHOLDS` in bytes a thread: tree LL, LL128, Simple, then ring.
    pub thread_thresholds: [Option<u64>; 6],
    /// `NCCL_BUFFSIZE` in bytes.
    pub buffer_bytes: Option<u64>,
    /// `NCCL_LL_BUFFSIZE` in bytes.
    pub buffer_bytes_ll: Option<u64>,
    /// `NCCL_LL128_BUFFSIZE` in bytes.
    pub buffer_bytes_ll128: Option<u64>,
    /// `NCCL_GRAPH_FILE`; the caller reads it and hands its text on.
    pub graph_file: Option<String>,
    /// `NCCL_MULTI_RANK_GPU_ENABLE=1`.
    pub multi_rank_gpu: bool,
    /// What NCCL would say of values that it changes or ignores, and what is not modelled.
    pub warnings: Vec<String>,
}

/// Variables that change nothing of what is decided here.
const WITHOUT_EFFECT: [&str; 14] = [
    "NCCL_DEBUG",
    "NCCL_IB_",
    "NCCL_SOCKET_",
    "NCCL_NET",
    "NCCL_TOPO_DUMP_FILE",
    "NCCL_GRAPH_DUMP_FILE",
    "NCCL_CONF_FILE",
    "NCCL_COMM_BLOCKING",
    "NCCL_SET_STACK_SIZE",
    "NCCL_LAUNCH_",
    "NCCL_CHECK",
    "NCCL_NVLS_ENABLE",
    // Of several nodes only.
    "NCCL_CROSS_NIC",
    "NCCL_HOSTID",
];

const KNOWN: [&str; 25] = [
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_P2P_LEVEL",
    "NCCL_P2P_DISABLE",
    "NCCL_P2P_READ_ENABLE",
    "NCCL_P2P_DIRECT_DISABLE",
    "NCCL_SHM_DISABLE",
    "NCCL_SHM_LOCALITY",
    "NCCL_CUMEM_ENABLE",
    "NCCL_CUMEM_HOST_ENABLE",
    "NCCL_IGNORE_DISABLED_P2P",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_NRINGS",
    "NCCL_MAX_NRINGS",
    "NCCL_MIN_CTAS",
    "NCCL_MAX_CTAS",
    "NCCL_NTHREADS",
    "NCCL_LL128_NTHREADS",
    "NCCL_THREAD_THRESHOLDS",
    "NCCL_BUFFSIZE",
    "NCCL_LL_BUFFSIZE",
    "NCCL_LL128_BUFFSIZE",
    "NCCL_GRAPH_FILE",
    "NCCL_MULTI_RANK_GPU_ENABLE",
];

impl Environment {
    /// Reads the variables as `version` would. Names that do not begin with `NCCL_` are passed over.
    ///
    /// # Errors
    /// `nccl-environment` when a value is no number, a list names what NCCL does not know (2.24 and later
    /// refuse it), or a buffer is too small to hold one step.
    pub fn parse(variables: &BTreeMap<String, String>, version: Version) -> Result<Environment> {
        let mut environment = Environment::default();
        let mut reader = Reader { variables, warnings: Vec::new() };
        if let Some(text) = variables.get("NCCL_ALGO") {
            environment.algorithms = AlgorithmFilter::parse(text, version)?;
        }
        if let Some(text) = variables.get("NCCL_PROTO") {
            environment.protocols = ProtocolFilter::parse(text, version)?;
            if environment.protocols.forces_ll128() {
                reader.warnings.push(
                    "NCCL_PROTO enables LL128 past its platform check: on PCIe its 128 B stores may arrive torn, and NCCL's guide warns of silent data corruption".to_owned(),
                );
            }
        }
        environment.read_transports(&mut reader)?;
        environment.read_channels(&mut reader, version)?;
        environment.read_threads(&mut reader)?;
        environment.buffer_bytes = reader.buffer("NCCL_BUFFSIZE", 8 * 512)?;
        environment.buffer_bytes_ll = reader.buffer("NCCL_LL_BUFFSIZE", 8 * 32)?;
        environment.buffer_bytes_ll128 = reader.buffer("NCCL_LL128_BUFFSIZE", 8 * 2048)?;
        environment.graph_file = variables.get("NCCL_GRAPH_FILE").filter(|path| !path.is_empty()).cloned();
        environment.multi_rank_gpu = reader.flag("NCCL_MULTI_RANK_GPU_ENABLE")?.unwrap_or(false);
        for name in variables.keys().filter(|name| name.starts_with("NCCL_")) {
            let known = KNOWN.contains(&name.as_str()) || WITHOUT_EFFECT.iter().any(|prefix| name.starts_with(prefix));
            if !known {
                let help = near(name, &KNOWN).first().map_or(String::new(), |known| format!("; did you mean {known}?"));
                reader.warnings.push(format!("{name} is not modelled and ignored{help}"));
            }
        }
        environment.warnings = reader.warnings;
        Ok(environment)
    }

    fn read_transports(&mut self, reader: &mut Reader) -> Result<()> {
        self.p2p_disable = reader.integer("NCCL_P2P_DISABLE")? == Some(1);
        if let Some(text) = reader.variables.get("NCCL_P2P_LEVEL") {
            self.p2p_level = level(text);
            if self.p2p_level.is_none() {
                reader.warnings.push(format!("NCCL_P2P_LEVEL={text:?} is no level (LOC NVL NVB PIX PXB PHB SYS or 0 to 5) and ignored"));
            }
        }
        if self.p2p_disable {
            if self.p2p_level.is_some() {
                reader.warnings.push("NCCL_P2P_DISABLE=1 overrides NCCL_P2P_LEVEL".to_owned());
            }
            self.p2p_level = Some(PathType::Loc);
        }
        self.p2p_read = reader.flag("NCCL_P2P_READ_ENABLE")?;
        self.p2p_direct_disable = reader.flag("NCCL_P2P_DIRECT_DISABLE")?.unwrap_or(false);
        self.shm_disable = reader.integer("NCCL_SHM_DISABLE")? == Some(1);
        self.shm_sender_side = reader.integer("NCCL_SHM_LOCALITY")? == Some(1);
        self.cumem = reader.flag("NCCL_CUMEM_ENABLE")?;
        self.cumem_host = reader.flag("NCCL_CUMEM_HOST_ENABLE")?;
        self.ignore_disabled_p2p = reader.flag("NCCL_IGNORE_DISABLED_P2P")?.unwrap_or(false);
        Ok(())
    }

    fn read_channels(&mut self, reader: &mut Reader, version: Version) -> Result<()> {
        let limit = i64::from(version.channels_max());
        let newer_or_older = |reader: &Reader, newer: &str, older: &str| -> Result<Option<i64>> {
            Ok(reader.integer(newer)?.or(reader.integer(older)?).filter(|n| *n != -2))
        };
        if let Some(count) = newer_or_older(reader, "NCCL_MIN_NCHANNELS", "NCCL_MIN_NRINGS")? {
            if count > limit {
                reader.warnings.push(format!("User asked for a minimum of {count} channels, limiting to {limit}"));
            }
            self.channels_min = Some(count.clamp(0, limit) as u32);
        }
        if let Some(count) = newer_or_older(reader, "NCCL_MAX_NCHANNELS", "NCCL_MAX_NRINGS")? {
            if count < 1 {
                reader.warnings.push(format!("User asked for a maximum of {count} channels, setting it to 1"));
            }
            self.channels_max = Some(count.clamp(1, limit) as u32);
        }
        for (name, minimum) in [("NCCL_MIN_CTAS", true), ("NCCL_MAX_CTAS", false)] {
            let Some(count) = reader.integer(name)? else { continue };
            if !(1..=limit).contains(&count) {
                reader.warnings.push(format!("{name}={count} is outside 1..{limit} and ignored"));
            } else if minimum {
                self.channels_min = Some(self.channels_min.unwrap_or(0).max(count as u32));
            } else {
                self.channels_max = Some(self.channels_max.unwrap_or(u32::MAX).min(count as u32));
            }
        }
        if let (Some(low), Some(high)) = (self.channels_min, self.channels_max)
            && low > high
        {
            reader.warnings.push(format!(
                "the minimum of {low} channels exceeds the maximum of {high}: NCCL keeps the first {high} and copies them up to {low}"
            ));
        }
        Ok(())
    }

    fn read_threads(&mut self, reader: &mut Reader) -> Result<()> {
        self.threads = reader.threads("NCCL_NTHREADS", 64, 512)?;
        self.threads_ll128 = reader.threads("NCCL_LL128_NTHREADS", 160, 640)?;
        let Some(text) = reader.variables.get("NCCL_THREAD_THRESHOLDS") else { return Ok(()) };
        // sscanf stops at the first word that is no number and leaves the rest alone.
        for (slot, word) in self.thread_thresholds.iter_mut().zip(text.split_whitespace()) {
            let number: i64 = word.parse().map_err(|_| {
                bad("NCCL_THREAD_THRESHOLDS", text, "six whole numbers: tree LL, LL128, Simple, then ring LL, LL128, Simple")
            })?;
            *slot = u64::try_from(number).ok();
        }
        Ok(())
    }

    /// The threshold in bytes a thread, if the environment sets it.
    pub fn thread_threshold(&self, algorithm: Algorithm, protocol: Protocol) -> Option<u64> {
        self.thread_thresholds[algorithm as usize * 3 + protocol as usize]
    }
}

/// `NCCL_P2P_LEVEL`: a name, or the numbers of before 2.5.
fn level(text: &str) -> Option<PathType> {
    const OLD: [PathType; 6] = [PathType::Loc, PathType::Pix, PathType::Pxb, PathType::Phb, PathType::Sys, PathType::Sys];
    if let Some(path) = PathType::from_name(text).filter(|path| *path <= PathType::Sys) {
        return Some(path);
    }
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    if digits.is_empty() {
        return None;
    }
    let number = digits.parse::<usize>().unwrap_or(usize::MAX);
    OLD.get(number.min(OLD.len() - 1)).copied()
}

fn bad(name: &str, text: &str, expected: &str) -> Box<Fault> {
    Fault::new("nccl-environment", format!("{name}={text:?} is not {expected}"))
        .help("correct the variable or remove it; NCCL itself may take it as 0 without a word")
}

struct Reader<'a> {
    variables: &'a BTreeMap<String, String>,
    warnings: Vec<String>,
}

impl Reader<'_> {
    fn integer(&self, name: &str) -> Result<Option<i64>> {
        let Some(text) = self.variables.get(name) else { return Ok(None) };
        let plain = text.trim();
        if plain.is_empty() {
            return Ok(None);
        }
        // strtoll with base 0 also reads hexadecimal.
        let number = match plain.strip_prefix("0x").or_else(|| plain.strip_prefix("0X")) {
            Some(digits) => i64::from_str_radix(digits, 16),
            None => plain.parse(),
        };
        number.map(Some).map_err(|_| bad(name, text, "a whole number"))
    }

    fn flag(&self, name: &str) -> Result<Option<bool>> {
        Ok(self.integer(name)?.filter(|n| *n >= 0).map(|n| n != 0))
    }

    /// `getNthreads` of tuning.cc.
    fn threads(&mut self, name: &str, low: i64, high: i64) -> Result<Option<u32>> {
        let Some(asked) = self.integer(name)?.filter(|n| *n > 0) else { return Ok(None) };
        let taken = if asked % 32 != 0 {
            self.warnings.push(format!("Invalid {name} {asked} (must be a multiple of 32): {high} is used"));
            high
        } else if asked > high {
            self.warnings.push(format!("Invalid {name} {asked} (maximum {high})."));
            high
        } else if asked < low {
            self.warnings.push(format!("Invalid {name} {asked} (minimum {low})."));
            low
        } else {
            asked
        };
        Ok(Some(taken as u32))
    }

    /// A buffer must hold eight steps of at least one grain; NCCL does not check and would loop for ever.
    fn buffer(&self, name: &str, least: i64) -> Result<Option<u64>> {
        let Some(bytes) = self.integer(name)?.filter(|n| *n != -2) else { return Ok(None) };
        if bytes < least || bytes > 1 << 31 {
            return Err(bad(name, &bytes.to_string(), &format!("a size between {least} and {} bytes", 1i64 << 31)));
        }
        Ok(Some(bytes as u64))
    }
}
