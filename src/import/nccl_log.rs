//! Logs of `NCCL_DEBUG=INFO`: transports, graphs, channels, choices.

use std::io::BufRead;

use crate::error::Fault;
use crate::error::Result;
use crate::import::formats::Format;
use crate::import::formats::Looks;
use crate::import::formats::Read;
use crate::import::nccl_facts::Choice;
use crate::import::nccl_facts::Graph;
use crate::import::nccl_facts::NcclFacts;
use crate::import::outcome::Outcome;
use crate::trace::line::Lines;
use crate::trace::observation::Algorithm;
use crate::trace::observation::Collective;
use crate::trace::observation::Protocol;

/// `NCCL_DEBUG=INFO`.
pub(super) const FORMAT: Format = Format { kind: "nccl-log", looks: Looks::Text(detect), read: Read::Stream(read) };

/// NCCL's numbers of its algorithms, used by logs before 2.24.
const ALGORITHMS: [&str; 7] = ["tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"];

/// NCCL's numbers of its protocols.
const PROTOCOLS: [&str; 3] = ["ll", "ll128", "simple"];

/// Choices kept at most.
const CHOICES_MAX: usize = 100_000;

/// Whether `head` looks like it.
pub fn detect(head: &str) -> bool {
    head.contains("NCCL INFO") || head.contains("NCCL WARN")
}

/// Reads a log of any size.
///
/// # Errors
/// Those of reading lines; `import-nccl-log` where NCCL says nothing.
pub fn read(name: &str, input: impl BufRead) -> Result<Outcome> {
    let mut lines = Lines::new(name, input);
    let mut outcome = Outcome::default();
    let mut said = 0u64;
    while let Some(line) = lines.read()? {
        if let Some(warning) = line.split("NCCL WARN ").nth(1) {
            said += 1;
            if outcome.warnings.len() < 20 {
                outcome.warn(format!("{name}: NCCL warns: {}", shortened(warning)));
            }
            continue;
        }
        if let Some(message) = line.split("NCCL INFO ").nth(1) {
            said += 1;
            take(message.trim(), &mut outcome);
        } else if let Some(version) = line.trim().strip_prefix("NCCL version ") {
            outcome.facts.versions.nccl = Some(bare_version(version));
        }
    }
    if said == 0 {
        return Err(Fault::new("import-nccl-log", format!("{name} holds no line of NCCL")).help("run with NCCL_DEBUG=INFO"));
    }
    let nccl = &mut outcome.facts.nccl;
    nccl.choices.sort();
    nccl.choices.dedup();
    report(name, said, &mut outcome);
    Ok(outcome)
}

fn report(name: &str, said: u64, outcome: &mut Outcome) {
    let nccl = &outcome.facts.nccl;
    let (pairs, graphs, choices) = (nccl.transports.len(), nccl.graphs.len(), nccl.choices.len());
    let staged = nccl.transports.values().filter(|t| t.starts_with("SHM")).count();
    let channels = nccl.collective_channels;
    outcome.understood(format!("{name}: {said} lines of NCCL: {pairs} connections, {graphs} graphs, {choices} choices"));
    if staged > 0 {
        outcome.warn(format!(
            "{name}: {staged} of {pairs} connections go through host memory (SHM): peer access is off or too far by NCCL_P2P_LEVEL"
        ));
    }
    if channels == Some(1) || channels == Some(2) {
        outcome.warn(format!(
            "{name}: collectives have {} channels only: the topology search fell back, or the environment limits it",
            channels.unwrap_or(0)
        ));
    }
}

fn take(message: &str, outcome: &mut Outcome) {
    let nccl = &mut outcome.facts.nccl;
    if let Some(version) = message.strip_prefix("NCCL version ") {
        outcome.facts.versions.nccl = Some(bare_version(version));
    } else if let Some(version) = message.strip_prefix("cudaDriverVersion ") {
        let number: u32 = version.trim().parse().unwrap_or(0);
        if number >= 1000 {
            outcome.facts.versions.cuda = Some(format!("{}.{}", number / 1000, number % 1000 / 10));
        }
    } else if message.starts_with("NCCL_") {
        // `NCCL_ALGO set by environment to Ring`: NCCL's own variables, nothing else.
        if let Some((key, value)) = message.split_once(" set by environment to ") {
            nccl.environment.insert(key.trim().to_owned(), shortened(value.trim_end_matches('.')));
        }
    } else if message.starts_with("Channel ") {
        transport(message, nccl);
    } else if message.contains(" coll channels") {
        nccl.collective_channels = message.split(" coll channels").next().and_then(|n| n.split_whitespace().last()?.parse().ok());
    } else if message.trim_start().starts_with("Pattern ") {
        graph(message, nccl);
    } else if message.contains(" Bytes -> Algo ") {
        if nccl.choices.len() < CHOICES_MAX {
            nccl.choices.extend(choice(message));
        }
    } else if let Some(rest) = message.split(" nranks ").nth(1) {
        let ranks = rest.split_whitespace().next().and_then(|n| n.parse().ok()).filter(|n| *n <= 65536);
        nccl.ranks = nccl.ranks.max(ranks.unwrap_or(0));
    }
}

fn shortened(text: &str) -> String {
    text.trim().chars().filter(|c| !c.is_control()).take(200).collect()
}

fn bare_version(text: &str) -> String {
    text.trim().split(['+', ' ']).next().unwrap_or("").chars().take(32).collect()
}

/// `Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM` or `Channel 00/08 :    0   1   2`.
fn transport(message: &str, nccl: &mut NcclFacts) {
    let Some((_, rest)) = message.split_once(" : ") else { return };
    let Some((from, rest)) = rest.split_once("->") else {
        let order: Option<Vec<u32>> = rest.split_whitespace().map(|w| w.parse().ok()).collect();
        if let Some(order) = order.filter(|o| o.len() > 1) {
            let rings = nccl.graphs.iter_mut().find(|g| g.pattern == 4);
            match rings {
                Some(graph) if !graph.order.contains(&order) && graph.order.len() < 64 => graph.order.push(order),
                Some(_) => {}
                None => nccl.graphs.push(Graph { pattern: 4, order: vec![order], ..Graph::default() }),
            }
        }
        return;
    };
    let rank = |t: &str| t.trim().split(['[', ' ']).next().and_then(|n| n.parse::<u32>().ok()).filter(|n| *n < 65536);
    let via = rest.split_once(" via ").map(|(_, via)| shortened(via.split_whitespace().next().unwrap_or("")));
    if let (Some(from), Some(to), Some(via)) = (rank(from), rank(rest), via) {
        nccl.transports.insert((from, to), via);
    }
}

/// `Pattern 4, crossNic 0, nChannels 2, bw 24.000000/24.000000, type PHB/PIX, sameChannels 1`.
fn graph(message: &str, nccl: &mut NcclFacts) {
    let field = |key: &str| message.split(key).nth(1).map(|r| r.trim_start().split([',', '/', ' ']).next().unwrap_or("").to_owned());
    let number = |key: &str| field(key).and_then(|t| t.parse::<u32>().ok());
    let Some(pattern) = number("Pattern ") else { return };
    let graph = Graph {
        pattern,
        channels: number("nChannels ").unwrap_or(0),
        bandwidth_gbps: field("bw ")
            .or_else(|| field("speed "))
            .and_then(|t| t.parse().ok())
            .filter(|n: &f64| n.is_finite())
            .unwrap_or(0.0),
        path: field("type ").unwrap_or_default(),
        order: Vec::new(),
    };
    // Every rank of a node prints the same graphs.
    if nccl.graphs.iter().all(|g| g.pattern != pattern) {
        nccl.graphs.push(graph);
    } else if let Some(known) = nccl.graphs.iter_mut().find(|g| g.pattern == pattern && g.channels == 0) {
        *known = Graph { order: std::mem::take(&mut known.order), ..graph };
    }
}

/// `AllReduce: 43008 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}`, or
/// before 2.24 `43008 Bytes -> Algo 1 proto 0 time 29.3`.
fn choice(message: &str) -> Option<Choice> {
    let (left, right) = message.split_once(" Bytes -> Algo ")?;
    let mut words = right.split_whitespace();
    let named = |word: &str, names: &[&str]| match word.parse::<usize>() {
        Ok(number) => names.get(number).map(|n| (*n).to_owned()),
        Err(_) => Some(word.to_owned()),
    };
    let algorithm = named(words.next()?, &ALGORITHMS)?;
    let protocol = named(words.nth(1)?, &PROTOCOLS)?;
    let mut left = left.split([' ', ':']).filter(|w| !w.is_empty());
    let bytes = left.next_back()?.parse().ok()?;
    let channels = right
        .split("={")
        .nth(1)
        .and_then(|r| r.trim_end_matches('}').split_once(".."))
        .and_then(|(lo, hi)| Some((lo.trim().parse().ok()?, hi.trim().trim_end_matches('}').parse().ok()?)));
    Some(Choice {
        collective: Collective::from_name(left.next_back().unwrap_or("")).name().to_owned(),
        bytes,
        algorithm: Algorithm::from_name(&algorithm).name().to_owned(),
        protocol: Protocol::from_name(&protocol).name().to_owned(),
        channels,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "node:1:9 [0] NCCL INFO NCCL version 2.29.2+cuda13.0\n\
        node:1:9 [0] NCCL INFO NCCL_P2P_LEVEL set by environment to SYS\n\
        node:1:9 [0] NCCL INFO comm 0x55 rank 0 nranks 8 cudaDev 0 busId 3000 - Init START\n\
        node:1:9 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 2, bw 24.000000/24.000000, type PHB/PIX, sameChannels 1\n\
        node:1:9 [0] NCCL INFO Channel 00/02 :    0   1   3   2\n\
        node:1:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n\
        node:1:9 [3] NCCL INFO Channel 00/0 : 3[3] -> 2[2] via SHM/direct/direct\n\
        node:1:9 [0] NCCL INFO 2 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per peer\n\
        node:1:9 [0] NCCL INFO AllReduce: 43008 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}\n\
        node:1:9 [0] NCCL INFO 4096 Bytes -> Algo 0 proto 2 time 12.0\n\
        node:1:9 [0] misc.cc:1 NCCL WARN Cuda failure 'peer access'\nnot from the library\n";

    #[test]
    fn a_log_is_read() {
        let outcome = read("nccl.log", LOG.as_bytes()).expect("reads");
        let nccl = &outcome.facts.nccl;
        assert_eq!(outcome.facts.versions.nccl.as_deref(), Some("2.29.2"));
        assert_eq!((nccl.ranks, nccl.collective_channels), (8, Some(2)));
        assert_eq!(nccl.environment.get("NCCL_P2P_LEVEL").map(String::as_str), Some("SYS"));
        assert_eq!(nccl.transports.get(&(3, 2)).map(String::as_str), Some("SHM/direct/direct"));
        assert_eq!((nccl.graphs[0].bandwidth_gbps, nccl.graphs[0].order.clone()), (24.0, vec![vec![0, 1, 3, 2]]));
        let choice = &nccl.choices[1];
        assert_eq!(
            (choice.bytes, choice.algorithm.as_str(), choice.protocol.as_str(), choice.channels),
            (43008, "ring", "ll", Some((0, 1)))
        );
        assert_eq!((nccl.choices[0].algorithm.as_str(), nccl.choices[0].protocol.as_str()), ("tree", "simple"));
        assert_eq!(outcome.warnings.len(), 3, "{:?}", outcome.warnings);
    }

    #[test]
    fn other_logs_are_refused() {
        assert_eq!(read("x.log", &b"hello\n"[..]).map(|_| ()).expect_err("no NCCL").code, "import-nccl-log");
    }
}
