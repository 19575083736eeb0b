//! `NCCL_ALGO` and `NCCL_PROTO`: lists of what may be used.
//!
//! [S] Lists with `^` (all but these), and since 2.24 prefixes for one function
//! (`ring;allreduce:tree`). A list gives every protocol a plain yes or no, so that LL128, which is
//! "only on NVLink" by default, loses its platform check as soon as a list lets it in (tuning.cc:444-536).

use crate::error::Fault;
use crate::error::Result;

use super::kinds::Algorithm;
use super::kinds::Collective;
use super::kinds::Protocol;
use super::version::Version;

/// The functions that lists can name, in NCCL's order.
const FUNCTIONS: [&str; 5] = ["Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"];
const ALGORITHMS: [&str; 7] = ["Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT"];
const PROTOCOLS: [&str; 3] = ["LL", "LL128", "Simple"];

fn function_index(collective: Collective) -> usize {
    match collective {
        Collective::AllGather => 2,
        Collective::ReduceScatter => 3,
        Collective::AllReduce | Collective::AllToAll => 4,
    }
}

/// Which algorithms `NCCL_ALGO` lets through.
#[derive(Clone, Debug, PartialEq)]
pub struct AlgorithmFilter {
    enabled: Vec<Option<bool>>,
}

/// Which protocols `NCCL_PROTO` lets through.
#[derive(Clone, Debug, PartialEq)]
pub struct ProtocolFilter {
    enabled: Vec<Option<bool>>,
}

impl Default for AlgorithmFilter {
    fn default() -> Self {
        AlgorithmFilter { enabled: vec![None; FUNCTIONS.len() * ALGORITHMS.len()] }
    }
}

impl Default for ProtocolFilter {
    fn default() -> Self {
        ProtocolFilter { enabled: vec![None; FUNCTIONS.len() * PROTOCOLS.len()] }
    }
}

impl AlgorithmFilter {
    /// Reads `NCCL_ALGO`.
    ///
    /// # Errors
    /// `nccl-environment` where NCCL of that version refuses the list.
    pub fn parse(text: &str, version: Version) -> Result<AlgorithmFilter> {
        Ok(AlgorithmFilter { enabled: parse_list("NCCL_ALGO", text, &ALGORITHMS, version)? })
    }

    /// Whether the algorithm may be used. Ring is never taken away from all-gather and reduce-scatter,
    /// so that programs run with `NCCL_ALGO=Tree` (older tuning.cc says so in a comment) [D for 2.24 on].
    pub fn allows(&self, collective: Collective, algorithm: Algorithm) -> bool {
        if algorithm == Algorithm::Ring && collective != Collective::AllReduce {
            return true;
        }
        let at = function_index(collective) * ALGORITHMS.len() + algorithm as usize;
        self.enabled.get(at).copied().flatten().unwrap_or(true)
    }
}

impl ProtocolFilter {
    /// Reads `NCCL_PROTO`.
    ///
    /// # Errors
    /// `nccl-environment` where NCCL of that version refuses the list.
    pub fn parse(text: &str, version: Version) -> Result<ProtocolFilter> {
        Ok(ProtocolFilter { enabled: parse_list("NCCL_PROTO", text, &PROTOCOLS, version)? })
    }

    /// `None` where no list speaks of the collective: then LL128 is subject to its platform check.
    pub fn verdict(&self, collective: Collective, protocol: Protocol) -> Option<bool> {
        let at = function_index(collective) * PROTOCOLS.len() + protocol as usize;
        self.enabled.get(at).copied().flatten()
    }

    /// Whether a list lets LL128 past its platform check.
    pub fn forces_ll128(&self) -> bool {
        [Collective::AllReduce, Collective::AllGather, Collective::ReduceScatter]
            .into_iter()
            .any(|collective| self.verdict(collective, Protocol::Ll128) == Some(true))
    }
}

fn refuse(name: &str, text: &str, why: &str, elements: &[&str]) -> Box<Fault> {
    Fault::new("nccl-environment", format!("{name}={text:?}: {why}")).help(format!(
        "a list such as {}, or ^ and what to leave out; NCCL 2.24 and later stop with \"invalid usage\" here",
        elements.join(",")
    ))
}

/// `parseList`: per function and element yes, no or unmentioned.
fn parse_list(name: &str, text: &str, elements: &[&str], version: Version) -> Result<Vec<Option<bool>>> {
    let width = elements.len();
    let mut list = vec![None; FUNCTIONS.len() * width];
    if !version.since(24) {
        let (named, rest) = polarity(text);
        for row in list.chunks_mut(width) {
            fill(row, rest, elements, named);
        }
        return Ok(list);
    }
    for (at, group) in text.split(';').filter(|group| !group.is_empty()).enumerate() {
        let mut words = group.split(':').filter(|word| !word.is_empty());
        let (prefix, tokens) = match (words.next(), words.next()) {
            (Some(prefix), Some(tokens)) => (Some(prefix), tokens),
            (Some(tokens), None) if at == 0 => (None, tokens),
            (Some(_), None) => return Err(refuse(name, text, "all entries except the first must have a prefix", elements)),
            (None, _) => continue,
        };
        let (named, rest) = polarity(tokens);
        let mut found = false;
        for (function, row) in FUNCTIONS.iter().zip(list.chunks_mut(width)) {
            if prefix.is_some_and(|prefix| !prefix.eq_ignore_ascii_case(function)) {
                continue;
            }
            found = true;
            if let Some(unknown) = fill(row, rest, elements, named) {
                return Err(refuse(name, text, &format!("unrecognized element token {unknown:?}"), elements));
            }
        }
        if !found {
            return Err(refuse(name, text, &format!("unrecognized prefix token {:?}", prefix.unwrap_or("")), elements));
        }
    }
    Ok(list)
}

/// Whether named elements are let in, and the list without its `^`.
fn polarity(text: &str) -> (bool, &str) {
    match text.strip_prefix('^') {
        Some(rest) => (false, rest),
        None => (true, text),
    }
}

/// Sets one function's row; returns the first word that names nothing.
fn fill<'a>(row: &mut [Option<bool>], tokens: &'a str, elements: &[&str], named: bool) -> Option<&'a str> {
    row.fill(Some(!named));
    let mut unknown = None;
    for token in tokens.split(',').filter(|token| !token.is_empty()) {
        match elements.iter().position(|element| element.eq_ignore_ascii_case(token)) {
            Some(at) => row[at] = Some(named),
            None => unknown = unknown.or(Some(token)),
        }
    }
    unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Version = Version::new(2, 30, 7);
    const OLD: Version = Version::new(2, 23, 4);

    #[test]
    fn a_list_lets_in_what_it_names() {
        let filter = ProtocolFilter::parse("LL,simple", NEW).expect("a list");
        assert_eq!(filter.verdict(Collective::AllReduce, Protocol::Ll), Some(true));
        assert_eq!(filter.verdict(Collective::AllReduce, Protocol::Ll128), Some(false));
        assert!(!filter.forces_ll128());
        assert_eq!(ProtocolFilter::default().verdict(Collective::AllReduce, Protocol::Ll128), None);
        assert!(ProtocolFilter::parse("LL128", NEW).expect("a list").forces_ll128());
        assert!(!ProtocolFilter::parse("^LL128", NEW).expect("a list").forces_ll128());
        assert!(ProtocolFilter::parse("^Simple", NEW).expect("a list").forces_ll128());
    }

    #[test]
    fn prefixes_choose_the_function_since_2_24() {
        let filter = AlgorithmFilter::parse("ring;allreduce:tree", NEW).expect("a list");
        assert!(filter.allows(Collective::AllReduce, Algorithm::Tree));
        assert!(!filter.allows(Collective::AllReduce, Algorithm::Ring));
        assert!(!filter.allows(Collective::AllGather, Algorithm::Tree));
        assert!(AlgorithmFilter::parse("ring;tree", NEW).is_err());
        assert!(AlgorithmFilter::parse("allreduce:ring;sum:tree", NEW).is_err());
        assert!(AlgorithmFilter::parse("rings", NEW).is_err());
        let old = AlgorithmFilter::parse("rings", OLD).expect("older versions pass over unknown words");
        assert!(!old.allows(Collective::AllReduce, Algorithm::Ring) && !old.allows(Collective::AllReduce, Algorithm::Tree));
    }
}
