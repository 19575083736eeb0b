//! The search for the best policy against a plain look at every policy, against
//! `speculate`, and against what its settings give when they are fed back.

use std::collections::BTreeMap;
use std::process::Command;

use proptest::prelude::*;

use lanecast::case::Case;
use lanecast::case::LaunchMode;
use lanecast::case::Policy;
use lanecast::case::assemble::assemble;
use lanecast::case::pieces::summed;
use lanecast::case::tuner_rules;
use lanecast::decide::optimize::Found;
use lanecast::decide::optimize::Request;
use lanecast::decide::optimize::optimize;
use lanecast::decide::speculate;
use lanecast::decide::speculate::Drafter;
use lanecast::decide::speculate::acceptance::Acceptance;
use lanecast::decide::speculate::acceptance::ByBatch;
use lanecast::decide::speculate::acceptance::Shape;
use lanecast::decide::speculate::grid::cycle_of;
use lanecast::machine::Machine;
use lanecast::model::Draft;
use lanecast::model::Eagle3;
use lanecast::model::Model;
use lanecast::model::Phase;
use lanecast::model::Workload;
use lanecast::plan::Partition;
use lanecast::strategy::Context;
use lanecast::strategy::Executor;
use lanecast::strategy::Kernel;
use lanecast::strategy::Logical;
use lanecast::strategy::Strategy;

fn case(machine: &str, model: &str, batch: u64, layers: f64) -> Case {
    let (machine, model) = (Machine::load(machine).expect("built in"), Model::load(model).expect("built in"));
    let ranks = machine.gpus.len() as u32;
    let workload = Workload { batch, ..Workload::new(Phase::Decode, 1, 256) };
    let case = Case::new(machine, model, workload, Partition::tensor(ranks), LaunchMode::Graph);
    case.with("model.layers", layers).expect("some layers")
}

fn named(ids: &[&str]) -> Vec<&'static Strategy> {
    ids.iter().map(|id| Strategy::find(id).expect("known")).collect()
}

fn request<'a>(case: &'a Case, strategies: &[&str], drafts: &[u64], channels: &[u32], partitions: &[Partition]) -> Request<'a> {
    Request {
        case,
        drafter: Drafter::Model(Draft::Eagle3(Eagle3::for_model(&case.model))),
        acceptance: Acceptance::at(&case.speculation, 0.7),
        drafts: drafts.to_vec(),
        partitions: partitions.to_vec(),
        strategies: named(strategies),
        channels: channels.to_vec(),
    }
}

/// Every policy of a request that NCCL's variables and rules can say: tokens per second of the best.
fn best_of_all(request: &Request<'_>) -> f64 {
    let mut best = 0.0f64;
    for &drafts in &request.drafts {
        for &partition in &request.partitions {
            let cycle = (drafts > 0).then(|| Shape::chain(drafts));
            let mut question = request.case.question();
            question.partition = partition;
            // Draft steps are planned for one stage only.
            let Ok((question, plan)) = cycle_of(&question, &request.drafter, cycle) else { continue };
            let beside = speculate::beside(&request.case.speculation, &request.drafter, &request.acceptance, cycle);
            for &channels in &request.channels {
                let mut context = Context::new(&request.case.machine, partition.ranks() as usize);
                if channels > 0 {
                    for name in ["NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"] {
                        context.environment.insert(name.to_owned(), channels.to_string());
                    }
                }
                let mut sizes: Vec<(u64, Vec<Logical>)> = Vec::new();
                for placed in (0..partition.ranks()).flat_map(|rank| plan.expand(rank)) {
                    let Some(collective) = placed.action.collective() else { continue };
                    let logical = Logical::from(collective.kind);
                    match sizes.iter_mut().find(|(bytes, _)| *bytes == collective.bytes) {
                        Some((_, kinds)) => kinds.push(logical),
                        None => sizes.push((collective.bytes, vec![logical])),
                    }
                }
                sizes.sort();
                let count = request.strategies.len();
                for number in 0..count.pow(sizes.len() as u32) {
                    let chosen = (0..sizes.len()).map(|size| request.strategies[number / count.pow(size as u32) % count]);
                    let policy = Policy { rows: sizes.iter().map(|(bytes, _)| *bytes).zip(chosen).collect() };
                    if !is_possible(&policy, &sizes, &context) {
                        continue;
                    }
                    let Ok(assembled) = assemble(&question, &plan, &policy, &context) else { continue };
                    let total = summed(&assembled).expect("runs");
                    let tokens = question.workload.batch as f64 * beside.1 * 1e3 / (total.ms() + beside.0);
                    best = best.max(tokens);
                }
            }
        }
    }
    best
}

/// Whether one process can do it: variables that no rule stands for are the same for all messages of NCCL,
/// those that kernels of one's own leave to it included.
fn is_possible(policy: &Policy, sizes: &[(u64, Vec<Logical>)], context: &Context<'_>) -> bool {
    if policy.rows.iter().any(|(_, strategy)| strategy.refusal(context).is_some()) {
        return false;
    }
    let Ok((variables, _)) = tuner_rules::environment(policy) else { return false };
    let differs = |name: &str| !tuner_rules::BY_RULE.contains(&name);
    let nccl: Vec<&Strategy> = policy.rows.iter().map(|(_, strategy)| *strategy).filter(|s| s.executor == Executor::Nccl).collect();
    // Each row of NCCL has all variables of the process.
    let of_process = nccl.iter().flat_map(|strategy| strategy.environment).filter(|(name, _)| differs(name)).count();
    if of_process == 0 {
        return true;
    }
    let own = policy.rows.iter().zip(sizes).filter(|((_, strategy), _)| strategy.executor != Executor::Nccl).all(
        |((bytes, strategy), (_, kinds))| {
            kinds
                .iter()
                .all(|kind| (strategy.lower)(context, strategy, *kind, *bytes).is_ok_and(|lowering| lowering.kernel != Kernel::Nccl))
        },
    );
    own && variables.keys().any(|name| differs(name))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 0, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn it_finds_the_best_of_all_policies_of_small_spaces(
        picks in prop::sample::subsequence(
            vec!["nccl-default", "nccl-ring-ll", "nccl-tree-ll", "nccl-host-staged", "nccl-few-channels", "one-shot-push", "two-shot", "fused-one-shot"],
            2..=3,
        ),
        drafts in prop::sample::subsequence(vec![0u64, 1, 3], 1..=2),
        channels in prop::sample::subsequence(vec![0u32, 1, 4], 1..=2),
        // Small enough that a collective is simulated whole, not by its first loops.
        batch in prop::sample::select(vec![1u64, 2, 3]),
        stages in any::<bool>(),
    ) {
        let case = case("4x-rtx-pro-6000-one-chip", "llama-3.1-70b", batch, 4.0);
        let split = if stages { Partition { pp: 2, ..Partition::tensor(2) } } else { Partition::tensor(4) };
        let request = request(&case, &picks, &drafts, &channels, &[split]);
        let wanted = best_of_all(&request);
        match optimize(&request, false) {
            Ok(found) => prop_assert_eq!(found.best.tokens_per_s, wanted),
            Err(fault) => prop_assert!(wanted == 0.0, "{}", fault.message),
        }
    }
}

fn found(request: &Request<'_>, exhaustive: bool) -> Found {
    optimize(request, exhaustive).expect("something runs")
}

/// Whole experts, stages and one group: the bounds leave out nothing that is better.
#[test]
fn what_bounds_leave_out_is_not_better() {
    let case = case("4x-rtx-pro-6000-one-chip", "gpt-oss-120b", 2, 4.0);
    let of = |tp, pp, ep| Partition { pp, ep, ..Partition::tensor(tp) };
    let strategies = ["nccl-default", "nccl-ring-ll", "nccl-ring-simple", "nccl-16-channels", "one-shot-push", "two-shot", "hierarchical"];
    let request = request(&case, &strategies, &[0, 2], &[0, 1, 8], &[of(4, 1, 1), of(4, 1, 4), of(2, 2, 1)]);
    let (few, all) = (found(&request, false), found(&request, true));
    assert_eq!(few.best.tokens_per_s, all.best.tokens_per_s);
    assert_eq!((few.best.pass, few.best.draft), (all.best.pass, all.best.draft));
    assert!(few.collectives * 2 < all.collectives, "{} of {}", few.collectives, all.collectives);
    // The whole pass is near the sum of its parts.
    assert!((few.simulated.ms() / few.best.pass.ms() - 1.0).abs() < 0.03, "{} and {}", few.simulated.ms(), few.best.pass.ms());
}

/// Drafts cost here what they cost there.
#[test]
fn a_single_strategy_gives_what_speculate_says() {
    let case = case("4x-rtx-pro-6000-one-chip", "llama-3.1-70b", 2, 8.0);
    let request = request(&case, &["nccl-ring-ll"], &[3], &[0], &[Partition::tensor(4)]);
    let found = found(&request, false);
    let strategy = request.strategies[0];
    let answer = speculate::speculate(&speculate::Request {
        case: &case,
        drafter: request.drafter.clone(),
        asked: Shape::chain(3),
        shapes: vec![Shape::chain(3)],
        batches: vec![2],
        acceptance: ByBatch::same(request.acceptance.clone()),
        verify_launch: LaunchMode::Graph,
        strategies: vec![strategy],
        baseline: strategy,
    })
    .expect("compares");
    let cell = answer.of(2, strategy.id).next().expect("a cell");
    assert!(cell.draft_ms > 0.0 && cell.host_ms > 0.0);
    assert!((found.best.tokens_per_s / cell.tokens_per_s() - 1.0).abs() < 1e-9, "{} and {}", found.best.tokens_per_s, cell.tokens_per_s());
    assert_eq!((found.best.pass.ms(), found.best.draft.ms(), found.plain.ms()), (cell.verify_ms, cell.draft_ms, cell.plain_ms));
}

fn lanecast(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_lanecast")).args(arguments).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// The number after `before`.
fn number_after<'a>(text: &'a str, before: &str) -> &'a str {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("no `{before}` in {text}")).1;
    rest.split(' ').next().unwrap_or_default()
}

/// Arguments of the command that the report prints.
fn printed(report: &str) -> Vec<String> {
    let start = report.find("lanecast simulate").expect("a command");
    let mut words = Vec::new();
    for line in report[start..].lines() {
        words.extend(line.trim().trim_end_matches('\\').split_whitespace().map(|word| word.trim_matches('\'').to_owned()));
        if !line.trim_end().ends_with('\\') {
            break;
        }
    }
    words.split_off(1)
}

const SMALL: [&str; 10] = [
    "optimize",
    "--machine",
    "4x-rtx-pro-6000-one-chip",
    "--model",
    "llama-3.1-70b",
    "--set",
    "model.layers=6",
    "--drafts",
    "0,2",
    "--channels=2,3",
];

#[test]
fn the_printed_command_gives_the_printed_time() {
    let rest = ["--acceptance=0.9", "--strategies=nccl-ring-ll,nccl-tree-simple,one-shot-push,fused-one-shot", "--partitions=4x1x1,2x2x1"];
    let report = lanecast(&[&SMALL[..], &rest].concat());
    let joined = report.split_whitespace().collect::<Vec<_>>().join(" ");
    let ms = number_after(&joined, "Simulated whole, the pass takes ");
    let arguments = printed(&report);
    let again = lanecast(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(again.contains(&format!(": {ms} ms, of it")), "{ms}\n{arguments:?}\n{again}");
}

/// One strategy of NCCL: the exported variables alone, given to NCCL with nothing else, give the same time.
#[test]
fn the_printed_variables_give_the_printed_time() {
    let rest = ["--acceptance=0.2", "--strategies=nccl-tree-simple", "--partitions=4x1x1", "--batch=64"];
    let report = lanecast(&[&SMALL[..], &rest].concat());
    let joined = report.split_whitespace().collect::<Vec<_>>().join(" ");
    let ms = number_after(&joined, "Simulated whole, the pass takes ");
    let mut arguments: Vec<String> = printed(&report);
    let policy = arguments.pop().expect("a policy");
    assert!(!policy.contains(':'), "one strategy: {policy}");
    arguments.truncate(arguments.len() - 1);
    while let Some(at) = arguments.iter().position(|word| word == "--env") {
        arguments.drain(at..at + 2);
    }
    let exports = report.lines().filter_map(|line| line.trim().strip_prefix("export "));
    arguments.extend(exports.flat_map(|pair| ["--env".to_owned(), pair.to_owned()]));
    arguments.extend(["--strategy".to_owned(), "nccl-default".to_owned()]);
    assert!(arguments.iter().any(|word| word.starts_with("NCCL_ALGO=")), "{arguments:?}");
    let again = lanecast(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(again.contains(&format!(": {ms} ms, of it")), "{ms}\n{arguments:?}\n{again}");
}

/// Several strategies of NCCL: the tuner's rules and the variables decide each size as the policy does.
#[test]
fn the_rules_of_a_policy_decide_as_it_does() {
    let case = case("8x-rtx-pro-6000-server", "llama-3.1-70b", 1, 4.0);
    let context = Context::new(&case.machine, 8);
    let policy = Policy {
        rows: vec![
            (65_536, Strategy::find("nccl-ring-ll").expect("known")),
            (1 << 20, Strategy::find("nccl-16-channels").expect("known")),
            (u64::MAX, Strategy::find("nccl-ring-simple").expect("known")),
        ],
    };
    let (rules, remarks) = tuner_rules::rules(&policy, &context).expect("rules");
    assert!(remarks.is_empty(), "{remarks:?}");
    let (variables, by_rule) = tuner_rules::environment(&policy).expect("sayable");
    assert!(by_rule);
    let variables: Vec<(&str, &str)> = variables.into_iter().collect();
    let communicator = context.communicator(&variables).expect("a communicator");
    for (bytes, logical) in
        [(16_384, "all_reduce"), (262_144, "all_reduce"), (262_144, "all_gather"), (4 << 20, "all_reduce"), (4 << 20, "all_gather")]
    {
        let rule = rules.iter().find(|rule| rule.collective.name() == logical && (rule.min_bytes..=rule.max_bytes).contains(&bytes));
        let rule = rule.unwrap_or_else(|| panic!("no rule for {logical} of {bytes}"));
        let force = lanecast::nccl::Force {
            algorithm: lanecast::nccl::Algorithm::ALL.into_iter().find(|known| known.name().eq_ignore_ascii_case(rule.algorithm.name())),
            protocol: lanecast::nccl::Protocol::ALL.into_iter().find(|known| known.name().eq_ignore_ascii_case(rule.protocol.name())),
            channels_min: rule.channels,
            channels_max: rule.channels,
            ..lanecast::nccl::Force::default()
        };
        assert!(force.algorithm.is_some() && force.protocol.is_some(), "{rule:?}");
        let logical = if logical == "all_reduce" { Logical::AllReduce } else { Logical::AllGather };
        let by_rule = lanecast::strategy::nccl_family::lower_on(&communicator, logical, bytes, &force).expect("lowers");
        let strategy = policy.of(bytes).expect("a row");
        assert_eq!(by_rule, (strategy.lower)(&context, strategy, logical, bytes).expect("lowers"), "{logical:?} of {bytes}");
    }
}

#[test]
fn bad_choices_are_told_in_one_message() {
    let cases: BTreeMap<&[&str], &str> = BTreeMap::from([
        (&["--acceptance", "NaN"][..], "speculate-acceptance"),
        (&["--acceptance", "1.5"][..], "speculate-acceptance"),
        (&["--partitions", "8x1"][..], "optimize-bad-value"),
        (&["--partitions", "8x1x1,8x1x1"][..], "optimize-bad-value"),
        (&["--partitions", "0x1x1"][..], "optimize-bad-value"),
        (&["--partitions", "3x1x1"][..], "optimize-nothing-feasible"),
        (&["--drafts", "99"][..], "optimize-bad-value"),
        (&["--drafts", "1,1"][..], "optimize-bad-value"),
        (&["--channels", "65"][..], "optimize-bad-value"),
        (&["--strategies", ","][..], "argument-list"),
        (&["--strategies", "warp"][..], "strategy-unknown"),
        (&["--set", "partition.tp=4"][..], "optimize-bad-value"),
        (&["--batch", "0"][..], "workload-bad-value"),
    ]);
    for (arguments, code) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lanecast"));
        let output = command.args(["optimize", "--machine", "4x-rtx-pro-6000-one-chip"]).args(arguments).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}\n{said}");
        assert!(said.contains(code), "{arguments:?}: {code}\n{said}");
    }
}

#[test]
fn a_policy_by_size_does_not_split_the_model() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lanecast"));
    let output = command.args(["simulate", "--policy", "64K:tp4-pp2,nccl-default"]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("policy-splits"));
}
