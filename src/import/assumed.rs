//! What no file tells of a machine and is defaulted, each in one sentence that
//! says ASSUMED and how to tell.

use crate::import::cabling::Cabling;
use crate::import::facts::Facts;
use crate::import::machine;
use crate::machine::CpuVendor;

/// The version of NCCL that is taken where a machine does not say one.
const NCCL: &str = "2.29.2";

/// The sentences; `chosen`: the user has said the kind of GPU.
pub(super) fn notes(facts: &Facts, tree: &Cabling, chosen: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if !chosen {
        notes.extend(kinds(facts));
    }
    notes.extend(processors(facts, tree));
    if facts.versions.nccl.is_none() {
        notes.push(format!("NCCL {NCCL} is ASSUMED: no file tells the version (a log of NCCL_DEBUG=INFO does)."));
    }
    let shown = facts.bandwidth.iter().any(|m| m.peer_access) || !facts.nccl.transports.is_empty();
    if !shown && tree.gpus.len() > 1 {
        notes.push(
            "Direct peer access is ASSUMED: no file shows it (p2pBandwidthLatencyTest with its P2P=Enabled and P2P=Disabled matrices does)."
                .to_owned(),
        );
    }
    notes
}

fn kinds(facts: &Facts) -> Option<String> {
    let assumed = machine::KIND_ASSUMED;
    if facts.gpus.iter().all(|gpu| machine::kind_of(facts, gpu).is_some()) && !facts.gpus.is_empty() {
        return None;
    }
    let mut unknown: Vec<&str> = facts.gpus.iter().filter(|g| machine::kind_of(facts, g).is_none()).map(|g| g.name.as_str()).collect();
    unknown.retain(|name| !name.is_empty());
    unknown.sort_unstable();
    unknown.dedup();
    Some(if unknown.is_empty() {
        format!("The kind of GPU is ASSUMED ({assumed}): no file names it; say it with --gpu.")
    } else {
        format!("The kind of GPU is ASSUMED ({assumed}) for {}: no such kind is known; say the nearest with --gpu.", unknown.join(", "))
    })
}

/// Only the link between sockets depends on who made them.
fn processors(facts: &Facts, tree: &Cabling) -> Option<String> {
    let known = |numa: &u32| facts.cpus.iter().find(|c| c.numa == *numa).filter(|c| c.vendor != CpuVendor::Unknown);
    let told: Vec<_> = tree.sockets.iter().map(known).collect();
    if told.iter().any(Option::is_none) {
        let weight = if tree.sockets.len() > 1 { ": what NCCL believes of the link between sockets depends on it" } else { "" };
        return Some(format!(
            "The processors' maker is not known; ASSUMED is one that limits NCCL's search nowhere{weight} (say --cpu amd-zen5, …, or add `lspci -vv`)."
        ));
    }
    let vague = told.iter().flatten().any(|c| matches!(c.vendor, CpuVendor::Amd | CpuVendor::Intel) && c.model == 0);
    (vague && tree.sockets.len() > 1)
        .then(|| "The processors' generation is not known: NCCL's oldest class of the maker is ASSUMED (say --cpu amd-zen5, …).".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::cabling;
    use crate::import::facts::Cpu;
    use crate::import::facts::Gpu;

    #[test]
    fn each_gap_is_named_until_it_is_filled() {
        let gpu = Gpu { name: "NVIDIA RTX A6000".into(), numa: Some(0), ..Gpu::default() };
        let mut facts = Facts { gpus: vec![gpu; 2], ..Facts::default() };
        let tree = cabling::cabling(&facts).expect("a tree");
        let first = notes(&facts, &tree, false);
        for word in ["NVIDIA RTX A6000", "maker", "NCCL 2.29.2", "peer access"] {
            assert!(first.iter().any(|note| note.contains(word) && note.contains("ASSUMED")), "{word}: {first:?}");
        }
        facts.gpus.iter_mut().for_each(|g| g.name = "NVIDIA L40S".into());
        facts.versions.nccl = Some("2.27.7".into());
        facts.cpus = vec![Cpu { numa: 0, vendor: CpuVendor::Amd, family: 0x1A, model: 2 }];
        facts.nccl.transports.insert((0, 1), "P2P/CUMEM".into());
        assert!(notes(&facts, &tree, false).is_empty(), "{:?}", notes(&facts, &tree, false));
    }
}
