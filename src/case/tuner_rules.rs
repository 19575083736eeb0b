//! A policy as rules of NCCL's tuner plugin and as environment variables: what
//! each can say of it, and what neither can.

use std::collections::BTreeMap;

use crate::error::Fault;
use crate::error::Result;
use crate::import::export::tuner::TunerRule;
use crate::nccl;
use crate::strategy::Context;
use crate::strategy::Executor;
use crate::strategy::Strategy;
use crate::strategy::nccl_graph;
use crate::trace::observation::Algorithm;
use crate::trace::observation::Collective;
use crate::trace::observation::Protocol;

use super::Policy;

/// Sizes are looked at up to here: no engine reduces more at once.
const SIZE_LOG2_MAX: u32 = 36;

/// Variables that a tuner's rule can stand for.
pub const BY_RULE: [&str; 4] = ["NCCL_ALGO", "NCCL_PROTO", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"];

/// What NCCL decides for one size, as far as a rule can say it.
type Decision = (nccl::Algorithm, nccl::Protocol);

/// The rules of `policy`, and in words what they cannot say.
///
/// # Errors
/// Those of NCCL's decisions; `policy-without-nccl` where no row is NCCL's.
pub fn rules(policy: &Policy, context: &Context<'_>) -> Result<(Vec<TunerRule>, Vec<String>)> {
    let (mut rules, mut remarks) = (Vec::new(), Vec::new());
    let mut first = 0u64;
    for &(most, strategy) in &policy.rows {
        if strategy.executor == Executor::Nccl {
            for collective in [nccl::Collective::AllReduce, nccl::Collective::AllGather, nccl::Collective::ReduceScatter] {
                rules.extend(of_row(context, strategy, collective, (first, most), policy.rows.len() > 1)?);
            }
            remarks.extend(unsaid(strategy));
        } else {
            remarks.push(format!("{} serves {first} to {most} B: no rule of NCCL's is asked for there", strategy.id));
        }
        first = most.saturating_add(1);
    }
    if rules.is_empty() {
        return Err(Fault::new("policy-without-nccl", "no row of the policy is carried out by NCCL")
            .help("a tuner file is for strategies called nccl-…; lanecast strategies lists them"));
    }
    remarks.dedup();
    Ok((rules, remarks))
}

/// What else the strategy sets: rules know nothing of it.
fn unsaid(strategy: &Strategy) -> Option<String> {
    let other: Vec<String> =
        strategy.environment.iter().filter(|(name, _)| !BY_RULE.contains(name)).map(|(n, v)| format!("{n}={v}")).collect();
    let ll128 = strategy.environment.iter().any(|(name, value)| *name == "NCCL_PROTO" && value.contains("LL128"));
    let mut words = Vec::new();
    if !other.is_empty() {
        words.push(format!("{} also needs {} in the environment", strategy.id, other.join(" ")));
    }
    if ll128 {
        words.push(format!("{} needs NCCL_PROTO to name LL128 too: a plugin cannot open it over PCIe", strategy.id));
    }
    (!words.is_empty()).then(|| words.join("; "))
}

fn of_row(
    context: &Context<'_>,
    strategy: &Strategy,
    collective: nccl::Collective,
    (first, last): (u64, u64),
    several: bool,
) -> Result<Vec<TunerRule>> {
    let communicator = communicator(context, strategy)?;
    let decide = |bytes: u64| -> Result<Option<Decision>> {
        match communicator.choose(collective, bytes.max(1), &nccl::Force::default()) {
            Ok(choice) => Ok(Some((choice.algorithm, choice.protocol))),
            // NCCL_ALGO=Tree leaves nothing for the others: no rule for them.
            Err(fault) if fault.code == "nccl-nothing-allowed" && collective != nccl::Collective::AllReduce => Ok(None),
            Err(fault) => Err(fault),
        }
    };
    let fixed = strategy.environment.iter().find(|(name, _)| *name == "NCCL_MAX_NCHANNELS").and_then(|(_, value)| value.parse().ok());
    let mut found = Vec::new();
    for (range, decision) in ranges(first, last, decide)? {
        let Some((algorithm, protocol)) = decision else { continue };
        found.push(TunerRule {
            collective: Collective::from_name(collective_name(collective)),
            min_bytes: range.0,
            max_bytes: range.1,
            algorithm: Algorithm::from_name(algorithm.name()),
            protocol: Protocol::from_name(protocol.name()),
            // One strategy's bounds are variables; only several need them by size.
            channels: fixed.filter(|_| several),
            nodes: Some(1),
            ranks: u32::try_from(context.ranks).ok(),
        });
    }
    Ok(found)
}

/// NCCL as the strategy has it: with its variables, a graph file, or a newer version.
///
/// # Errors
/// As [`Context::communicator`].
pub fn communicator(context: &Context<'_>, strategy: &Strategy) -> Result<nccl::Communicator> {
    let version = context.nccl_version()?;
    if strategy.environment.iter().any(|(name, _)| *name == "NCCL_GRAPH_FILE") {
        let text = nccl_graph::graph_text(context)?;
        return context.communicator_of(version, strategy.environment, Some(&text));
    }
    let version = if strategy.id == "nccl-newer" { version.max(nccl::Version::NEWEST_READ) } else { version };
    context.communicator_of(version, strategy.environment, None)
}

fn collective_name(collective: nccl::Collective) -> &'static str {
    match collective {
        nccl::Collective::AllReduce => "all_reduce",
        nccl::Collective::AllGather => "all_gather",
        nccl::Collective::ReduceScatter => "reduce_scatter",
        nccl::Collective::AllToAll => "all_to_all",
    }
}

/// Ranges of sizes with one decision: looked at by powers of two, the change between two halved down to the byte.
fn ranges<D: PartialEq + Copy>(first: u64, last: u64, decide: impl Fn(u64) -> Result<D>) -> Result<Vec<((u64, u64), D)>> {
    let mut points: Vec<u64> = (0..=SIZE_LOG2_MAX).map(|log2| 1u64 << log2).filter(|size| (first..=last).contains(size)).collect();
    points.insert(0, first);
    points.push(last.min(1 << SIZE_LOG2_MAX).max(first));
    points.sort_unstable();
    points.dedup();
    let mut found: Vec<((u64, u64), D)> = vec![((first, last), decide(points[0])?)];
    for pair in points.windows(2) {
        let (mut low, mut high) = (pair[0], pair[1]);
        let (before, after) = (decide(low)?, decide(high)?);
        if before == after {
            continue;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if decide(middle)? == before { low = middle } else { high = middle }
        }
        if let Some(open) = found.last_mut() {
            open.0.1 = low;
        }
        found.push(((high, last), after));
    }
    Ok(found)
}

/// Variables for a policy: those that hold for every size, and whether the rest
/// needs a tuner's file.
///
/// # Errors
/// `policy-unsayable` where a variable that no rule stands for differs by size.
pub fn environment(policy: &Policy) -> Result<(BTreeMap<&'static str, &'static str>, bool)> {
    let nccl: Vec<&Strategy> = policy.rows.iter().map(|(_, strategy)| *strategy).filter(|s| s.executor == Executor::Nccl).collect();
    let mut common: BTreeMap<&str, &str> = BTreeMap::new();
    let mut differs = false;
    for strategy in &nccl {
        for &(name, value) in strategy.environment {
            let everywhere = nccl.iter().all(|other| other.environment.contains(&(name, value)));
            if everywhere {
                common.insert(name, value);
            } else if BY_RULE.contains(&name) {
                differs = true;
            } else {
                return Err(Fault::new(
                    "policy-unsayable",
                    format!("{name}={value} of {} would hold for every size: NCCL cannot change it by size", strategy.id),
                )
                .help("take strategies that differ in algorithm, protocol or channels only"));
            }
        }
    }
    differs |= nccl.len() > 1 && nccl.iter().any(|strategy| strategy.id != nccl[0].id);
    Ok((common, differs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    fn policy(rows: &[(u64, &str)]) -> Policy {
        Policy { rows: rows.iter().map(|(most, id)| (*most, Strategy::find(id).expect(id))).collect() }
    }

    #[test]
    fn ranges_end_where_decisions_change() {
        let decide = |bytes: u64| Ok(u8::from(bytes > 5000) + u8::from(bytes > 70_001));
        let found = ranges(0, u64::MAX, decide).expect("ranges");
        assert_eq!(found, [((0, 5000), 0), ((5001, 70_001), 1), ((70_002, u64::MAX), 2)]);
        assert_eq!(ranges(300, 400, |_| Ok(7)).expect("one"), [((300, 400), 7)]);
    }

    /// What a rule says for a size is what NCCL would choose.
    #[test]
    fn rules_say_what_nccl_decides() {
        let machine = Machine::load("8x-rtx-pro-6000-server").expect("embedded");
        let context = Context::new(&machine, 8);
        let strategy = Strategy::find("nccl-default").expect("known");
        let (rules, remarks) = rules(&Policy::single(strategy), &context).expect("rules");
        assert!(remarks.is_empty(), "{remarks:?}");
        let communicator = context.communicator(&[]).expect("a communicator");
        for bytes in [1, 14_336, 43_008, 262_144, 262_145, 1 << 20, 29_360_128, 1 << 30] {
            let choice = communicator.choose(nccl::Collective::AllReduce, bytes, &nccl::Force::default()).expect("a choice");
            let rule = rules.iter().find(|r| r.collective == Collective::AllReduce && (r.min_bytes..=r.max_bytes).contains(&bytes));
            let rule = rule.expect("every size has a rule");
            let decided = (Algorithm::from_name(choice.algorithm.name()), Protocol::from_name(choice.protocol.name()));
            assert_eq!((rule.algorithm.clone(), rule.protocol.clone()), decided, "{bytes}");
        }
        let text = crate::import::export::tuner::write(&[], &rules).expect("sayable");
        assert_eq!(crate::import::export::tuner::read("t.conf", &text).expect("reads"), rules);
    }

    #[test]
    fn policies_keep_their_bounds() {
        let machine = Machine::load("8x-rtx-pro-6000-server").expect("embedded");
        let context = Context::new(&machine, 8);
        let policy = policy(&[(65_536, "nccl-ring-ll"), (1 << 20, "one-shot-push"), (u64::MAX, "nccl-16-channels")]);
        let (rules, remarks) = rules(&policy, &context).expect("rules");
        let reduce: Vec<_> = rules.iter().filter(|r| r.collective == Collective::AllReduce).collect();
        assert_eq!((reduce[0].min_bytes, reduce[0].max_bytes, reduce[0].channels), (0, 65_536, None));
        assert_eq!((reduce[1].min_bytes, reduce.last().map(|r| (r.max_bytes, r.channels))), ((1 << 20) + 1, Some((u64::MAX, Some(16)))));
        assert!(remarks.iter().any(|r| r.starts_with("one-shot-push serves 65537")), "{remarks:?}");
    }

    #[test]
    fn variables_that_differ_by_size_need_rules() {
        let (common, rules) = environment(&policy(&[(u64::MAX, "nccl-p2p-sys")])).expect("sayable");
        assert_eq!((common.get("NCCL_P2P_LEVEL"), rules), (Some(&"SYS"), false));
        let (common, rules) = environment(&policy(&[(65_536, "nccl-ring-ll"), (u64::MAX, "nccl-ring-simple")])).expect("sayable");
        assert_eq!((common.get("NCCL_ALGO"), common.get("NCCL_PROTO"), rules), (Some(&"Ring"), None, true));
        let fault = environment(&policy(&[(65_536, "nccl-p2p-sys"), (u64::MAX, "nccl-host-staged")])).expect_err("by size");
        assert_eq!(fault.code, "policy-unsayable");
        assert!(environment(&policy(&[(65_536, "nccl-default"), (u64::MAX, "nccl-ring-simple")])).expect("rules").1);
    }
}
