//! Settings out: what to set for a strategy or a policy, with or without
//! speculation, what must be true and how to check it, the way back, the risk.

use std::collections::BTreeMap;

use crate::case::Policy;
use crate::model::Draft;
use crate::strategy::Context;
use crate::strategy::Executor;
use crate::strategy::Need;
use crate::strategy::Strategy;

use super::speculate::Drafter;
use super::speculate::acceptance::Shape;

/// Something that must be true, and how to see whether it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What must be true.
    pub must: String,
    /// A command, or where to look.
    pub how: String,
}

/// Everything that a person needs to try it, and to go back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Advice {
    /// Variables that hold for all sizes.
    pub environment: BTreeMap<String, String>,
    /// SGLang's flags.
    pub sglang: Vec<String>,
    /// vLLM's flags.
    pub vllm: Vec<String>,
    /// What else is to be done: patches, versions, files to write.
    pub steps: Vec<String>,
    /// What must be true.
    pub checks: Vec<Check>,
    /// What can go wrong.
    pub risks: Vec<String>,
    /// How to go back.
    pub way_back: Vec<String>,
}

/// What speculation adds.
#[derive(Clone, Copy)]
pub struct Speculation<'a> {
    /// Who drafts.
    pub drafter: &'a Drafter,
    /// What is drafted and verified.
    pub shape: Shape,
    /// Tokens a cycle at which plain decoding is as fast.
    pub break_even_tokens: f64,
    /// Sequences in a pass.
    pub batch: u64,
}

/// Settings for a policy, with speculation where it is given.
pub fn advise(policy: &Policy, context: &Context<'_>, speculation: Option<Speculation<'_>>) -> Advice {
    let mut advice = Advice::default();
    variables(&mut advice, policy);
    let single = policy.rows.len() == 1;
    for (most, strategy) in &policy.rows {
        let size = if single { String::new() } else { format!("{}: ", size(*most)) };
        advice.steps.extend(strategy.flags.iter().map(|flag| format!("{size}{}: {flag}", strategy.id)));
        for need in strategy.needs {
            push(&mut advice.checks, check(need, context));
        }
        advice.risks.push(format!("{}: {}", strategy.id, strategy.risk_words));
        advice.way_back.push(format!("{}: {}", strategy.id, strategy.way_back));
        advice.steps.extend(strategy.notes(context).iter().map(|note| format!("mind: {note}")));
    }
    if let Some(speculation) = speculation {
        speculate(&mut advice, speculation);
    }
    advice.steps.push(format!("scripts and files: lanecast export sglang (vllm, tuner, environment) --policy {}", policy_text(policy)));
    if !advice.environment.is_empty() {
        let names: Vec<&str> = advice.environment.keys().map(String::as_str).collect();
        let must = format!("NCCL sees {}", names.join(", "));
        push(
            &mut advice.checks,
            Check {
                must,
                how: "start with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,TUNING and look for \"set by environment\"".to_owned(),
            },
        );
    }
    advice.risks.sort_unstable();
    advice.risks.dedup();
    advice.way_back.dedup();
    advice
}

/// Variables that all of NCCL's rows share are set; those that differ need a file of rules.
fn variables(advice: &mut Advice, policy: &Policy) {
    let of_nccl: Vec<&Strategy> =
        policy.rows.iter().map(|(_, strategy)| *strategy).filter(|s| s.executor == Executor::Nccl || policy.rows.len() == 1).collect();
    let Some(first) = of_nccl.first() else { return };
    for pair in first.environment {
        if of_nccl.iter().all(|strategy| strategy.environment.contains(pair)) {
            advice.environment.insert(pair.0.to_owned(), pair.1.to_owned());
        }
    }
    let differs = of_nccl.iter().any(|strategy| strategy.environment.len() != advice.environment.len());
    if differs {
        advice
            .steps
            .push("NCCL's choice differs by size: it goes into a tuner's file (lanecast export tuner), not into variables".to_owned());
    }
    if policy.rows.iter().any(|(_, strategy)| strategy.executor != Executor::Nccl) && !of_nccl.is_empty() && policy.rows.len() > 1 {
        advice.steps.push("the engine must switch between its own kernel and NCCL by the size of the message".to_owned());
    }
}

fn push(checks: &mut Vec<Check>, check: Check) {
    if !checks.contains(&check) {
        checks.push(check);
    }
}

/// How to see whether a need holds.
pub fn check(need: &Need, context: &Context<'_>) -> Check {
    let how = match need {
        Need::PeerAccess | Need::Mesh => {
            "nvidia-smi topo -p2p rw, then a check that the bytes arrive: lanecast detect, which checks them".to_owned()
        }
        Need::StagedByDriver => "grep RegistryDwords /proc/driver/nvidia/params, and peer reads far below those of the link".to_owned(),
        Need::Islands | Need::Nvlink { .. } | Need::Multicast { .. } => "nvidia-smi topo -m".to_owned(),
        Need::Nccl { .. } => "python -c 'import torch; print(torch.cuda.nccl.version())'".to_owned(),
        Need::FlashInfer { .. } | Need::FlashInferSm12 { .. } => "pip show flashinfer-python".to_owned(),
        Need::Majors { .. } => "nvidia-smi --query-gpu=compute_cap --format=csv".to_owned(),
        Need::Ranks(_) => format!("the group has {} ranks", context.ranks),
        Need::Check(_) => "the engine's start-up log, and a profile of one pass".to_owned(),
    };
    Check { must: need.words(), how }
}

/// Flags of both engines, what to look at, what it risks.
fn speculate(advice: &mut Advice, speculation: Speculation<'_>) {
    let Speculation { drafter, shape, .. } = speculation;
    let Some((sglang, vllm)) = flags(drafter, shape) else { return };
    advice.sglang.extend(sglang);
    advice.vllm.extend(vllm);
    let how = "SGLang: the log's capture of the target's verify graphs; vLLM: FULL graphs captured for uniform decode, or cudagraph_mode FULL_AND_PIECEWISE; else count launches in a profile of one cycle";
    let tokens = speculation.batch * shape.verified;
    push(
        &mut advice.checks,
        Check {
            must: format!("verify passes of {} tokens a sequence ({tokens} in all) run inside a CUDA graph", shape.verified),
            how: how.to_owned(),
        },
    );
    let how = "SGLang: \"accept len\" of the decode log; vLLM: 1 + vllm:spec_decode_num_accepted_tokens_total / vllm:spec_decode_num_drafts_total";
    let must = format!(
        "a cycle yields more than {:.2} tokens at batch {}: below, plain decoding is faster",
        speculation.break_even_tokens, speculation.batch
    );
    push(&mut advice.checks, Check { must, how: how.to_owned() });
    advice.risks.push(
        "speculation: acceptance near zero without an error means wrong data (peer access, missing barrier), not a bad draft".to_owned(),
    );
    advice.risks.push("speculation: it costs throughput at batches where no number of drafts pays".to_owned());
    advice.way_back.push("speculation: remove its flags and restart; nothing else changes".to_owned());
}

/// Flags of SGLang and vLLM; None where nobody drafts.
pub fn flags(drafter: &Drafter, shape: Shape) -> Option<(Vec<String>, Vec<String>)> {
    let (steps, verified) = (shape.steps, shape.verified);
    let numbers = || {
        vec![
            format!("--speculative-num-steps {steps}"),
            format!("--speculative-eagle-topk {}", shape.width.max(1)),
            format!("--speculative-num-draft-tokens {verified}"),
        ]
    };
    let (algorithm, method, with_draft) = match drafter {
        Drafter::None => return None,
        Drafter::NGram => {
            let sglang = vec!["--speculative-algorithm NGRAM".to_owned(), format!("--speculative-num-draft-tokens {verified}")];
            let vllm =
                format!("--speculative-config '{{\"method\": \"ngram\", \"num_speculative_tokens\": {steps}, \"prompt_lookup_max\": 4}}'");
            return Some((sglang, vec![vllm]));
        }
        Drafter::Model(Draft::Eagle3(_)) => ("EAGLE3", "eagle3", true),
        Drafter::Model(Draft::Mtp) => ("EAGLE", "mtp", false),
    };
    let mut sglang = vec![format!("--speculative-algorithm {algorithm}")];
    let model = if with_draft { ", \"model\": \"DRAFT\"" } else { "" };
    if with_draft {
        sglang.push("--speculative-draft-model-path DRAFT".to_owned());
    }
    sglang.extend(numbers());
    // vLLM's drafts are chains: trees are SGLang's.
    let vllm = if shape.width > 1 {
        Vec::new()
    } else {
        vec![format!("--speculative-config '{{\"method\": \"{method}\", \"num_speculative_tokens\": {steps}{model}}}'")]
    };
    Some((sglang, vllm))
}

fn size(most: u64) -> String {
    if most == u64::MAX { "every other size".to_owned() } else { format!("up to {most} B") }
}

/// As `lanecast export --policy` takes it.
pub fn policy_text(policy: &Policy) -> String {
    let row = |(most, strategy): &(u64, &'static Strategy)| {
        if *most == u64::MAX { strategy.id.to_owned() } else { format!("{most}:{}", strategy.id) }
    };
    policy.rows.iter().map(row).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    fn strategy(id: &str) -> &'static Strategy {
        Strategy::find(id).expect("known")
    }

    #[test]
    fn one_strategy_is_its_variables_and_their_check() {
        let machine = Machine::load("8x-rtx-pro-6000-server").expect("built in");
        let advice = advise(&Policy::single(strategy("nccl-16-channels")), &Context::new(&machine, 8), None);
        assert_eq!(advice.environment.get("NCCL_MIN_NCHANNELS").map(String::as_str), Some("16"));
        assert!(advice.checks.iter().any(|check| check.must.contains("NCCL_MAX_NCHANNELS") && check.how.contains("NCCL_DEBUG")));
        assert_eq!(advice.way_back.len(), 1);
        assert!(advice.sglang.is_empty());
    }

    #[test]
    fn what_differs_by_size_is_no_variable() {
        let machine = Machine::load("8x-rtx-pro-6000-server").expect("built in");
        let policy = Policy { rows: vec![(65536, strategy("nccl-ring-ll")), (u64::MAX, strategy("nccl-ring-simple"))] };
        let advice = advise(&policy, &Context::new(&machine, 8), None);
        // The algorithm is shared, the protocol is not.
        assert_eq!(advice.environment.keys().map(String::as_str).collect::<Vec<_>>(), ["NCCL_ALGO"]);
        assert!(advice.steps.iter().any(|step| step.contains("tuner")));
        assert_eq!(policy_text(&policy), "65536:nccl-ring-ll,nccl-ring-simple");
        let mixed = Policy { rows: vec![(65536, strategy("one-shot-push")), (u64::MAX, strategy("nccl-default"))] };
        let advice = advise(&mixed, &Context::new(&machine, 8), None);
        assert!(
            advice.steps.iter().any(|step| step.contains("must switch"))
                && advice.checks.iter().any(|check| check.how.contains("topo -p2p"))
        );
    }

    #[test]
    fn speculation_has_flags_and_a_number_to_watch() {
        let shape = Shape { steps: 3, width: 4, verified: 8 };
        let (sglang, vllm) = flags(&Drafter::NGram, Shape::chain(3)).expect("drafts");
        assert!(sglang[0].contains("NGRAM") && vllm[0].contains("\"num_speculative_tokens\": 3"));
        let (sglang, vllm) = flags(&Drafter::Model(Draft::Mtp), shape).expect("drafts");
        assert!(sglang.contains(&"--speculative-eagle-topk 4".to_owned()) && vllm.is_empty(), "vLLM drafts no trees");
        assert!(flags(&Drafter::None, shape).is_none());
        let machine = Machine::load("8x-rtx-pro-6000-server").expect("built in");
        let drafter = Drafter::Model(Draft::Mtp);
        let speculation = Speculation { drafter: &drafter, shape: Shape::chain(3), break_even_tokens: 1.4, batch: 2 };
        let advice = advise(&Policy::single(strategy("nccl-default")), &Context::new(&machine, 8), Some(speculation));
        assert!(
            advice.checks.iter().any(|check| check.must.contains("1.40 tokens"))
                && advice.checks.iter().any(|check| check.must.contains("8 in all"))
        );
    }
}
