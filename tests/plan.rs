//! Plans: what a pass communicates, and what listing order may not change.

use std::collections::BTreeSet;

use lanecast::model::CATALOG;
use lanecast::model::Draft;
use lanecast::model::Eagle3;
use lanecast::model::Family;
use lanecast::model::Model;
use lanecast::model::Phase;
use lanecast::model::Shard;
use lanecast::model::Workload;
use lanecast::plan::Action;
use lanecast::plan::BlockBuilder;
use lanecast::plan::BlockKind;
use lanecast::plan::Build;
use lanecast::plan::Collective;
use lanecast::plan::CollectiveCount;
use lanecast::plan::Drafting;
use lanecast::plan::ExpertExchange;
use lanecast::plan::Group;
use lanecast::plan::Kind;
use lanecast::plan::Partition;
use lanecast::plan::Plan;
use lanecast::plan::Role;
use proptest::prelude::*;

fn load(id: &str) -> Model {
    Model::load(id).expect("embedded")
}

fn kimi(partition: Partition) -> Plan {
    Plan::build(&load("kimi-k2.5"), &Workload::verify(3, 4096), partition).expect("a plan")
}

fn count(plan: &Plan, role: Role) -> Option<CollectiveCount> {
    plan.summary().collectives.into_iter().find(|c| c.role == role && !c.draft)
}

#[test]
fn the_case_has_122_all_reduces() {
    let plan = kimi(Partition::tensor(8));
    let summary = plan.summary();
    // 61 layers × 2; 3 tokens × 7168 × 2 B.
    assert_eq!((summary.layer_allreduces, summary.layer_allreduce_bytes), (122, Some(43_008)));
    let embed = count(&plan, Role::EmbedAllreduce).expect("one");
    assert_eq!((embed.count, embed.bytes), (1, 43_008));
    // 3 tokens × 163,840 columns × 2 B.
    let logits = count(&plan, Role::LogitsGather).expect("one");
    assert_eq!((logits.kind, logits.count, logits.bytes), (Kind::AllGather, 1, 983_040));
    assert_eq!(summary.collectives.len(), 4);
    let text = summary.to_string();
    assert!(
        text.starts_with(
            "122 all-reduces of 43,008 B\n1 embed_allreduce (all_reduce) of 43,008 B\n1 logits_gather (all_gather) of 983,040 B\n"
        ),
        "{text}"
    );

    // Folded: embedding, one dense layer, 60 expert layers, head.
    let kinds: Vec<(BlockKind, u32)> = plan.classes[0].runs.iter().map(|r| (plan.block(r.block).kind, r.repeats)).collect();
    let expected = [(BlockKind::Embedding, 1), (BlockKind::DenseLayer, 1), (BlockKind::ExpertLayer, 60), (BlockKind::Head, 1)];
    assert_eq!(kinds, expected);
    assert_eq!(plan.classes[0].ranks, (0..8).collect::<Vec<u32>>());

    let plain = Plan::build(&load("kimi-k2.5"), &Workload::new(Phase::Decode, 1, 4096), Partition::tensor(8)).expect("a plan");
    assert_eq!(plain.summary().layer_allreduce_bytes, Some(14_336));
}

#[test]
fn one_rank_communicates_nothing() {
    let plan = kimi(Partition::tensor(1));
    assert_eq!(plan.summary().collectives, []);
    assert_eq!(plan.expand(1), []);
}

#[test]
fn ids_name_layer_operation_and_rank() {
    let plan = kimi(Partition::tensor(8));
    let ids: Vec<String> = plan.expand(3).iter().map(|p| p.id.to_string()).collect();
    for id in ["L012.attn_allreduce.r3", "L000.down_proj.r3", "EMB.embed_allreduce.r3", "HEAD.logits_gather.r3"] {
        assert!(ids.iter().any(|i| i == id), "{id}");
    }
    let unique: BTreeSet<&String> = ids.iter().collect();
    assert_eq!(unique.len(), ids.len());
}

#[test]
fn a_layer_is_summed_before_its_norm_reads_it() {
    let plan = kimi(Partition::tensor(8));
    let list = plan.expand(0);
    let at = |id: &str| list.iter().position(|p| p.id.to_string() == id).expect("there") as u32;
    assert_eq!(list[at("L005.attn_allreduce.r0") as usize].needs, [at("L005.o_proj.r0")]);
    let norm = &list[at("L005.post_attention_norm.r0") as usize];
    assert!(norm.needs.contains(&at("L005.attn_allreduce.r0")) && !norm.needs.contains(&at("L005.o_proj.r0")));
    assert_eq!(list[at("L006.input_norm.r0") as usize].needs, [at("L005.mlp_allreduce.r0")]);
    assert_eq!(list[at("HEAD.sample.r0") as usize].needs, [at("HEAD.logits_gather.r0")]);
}

#[test]
fn expert_parallel_ranks_exchange_tokens() {
    let plan = kimi(Partition { ep: 8, ..Partition::tensor(8) });
    let summary = plan.summary();
    // The dense layer keeps both; the 60 expert layers sum the attention only.
    assert_eq!(summary.layer_allreduces, 62);
    // One token a rank (3 over 8, rounded up), of whose 8 experts 5.27 ranks hold one:
    // 8 (1 - C(336,8)/C(384,8)) = 5.278; × 14,336 B.
    let dispatch = count(&plan, Role::MoeDispatch).expect("60");
    assert_eq!((dispatch.kind, dispatch.count), (Kind::AllToAll, 60));
    assert!((75_000..76_500).contains(&dispatch.bytes), "{}", dispatch.bytes);
    assert_eq!(count(&plan, Role::MoeCombine).map(|c| c.count), Some(60));
    assert_eq!(count(&plan, Role::MoeTokenGather).map(|c| c.bytes), Some(8 * 14_336));

    // Two classes: the fullest rank and the mean of the others. Together they
    // hold what 3 tokens touch: 23.5.
    let distinct: Vec<u64> = plan.classes.iter().map(|class| class.ranks.len() as u64 * distinct_milli(&plan, class.ranks[0])).collect();
    assert_eq!(plan.classes.iter().map(|c| c.ranks.len()).collect::<Vec<_>>(), [1, 7]);
    assert!(distinct_milli(&plan, 0) > 2 * distinct_milli(&plan, 1), "the fullest of 8 ranks with 23.5 balls");
    assert!((distinct.iter().sum::<u64>()).abs_diff(23_503) < 10);
}

fn distinct_milli(plan: &Plan, rank: u32) -> u64 {
    let list = plan.expand(rank);
    let experts = list.iter().filter_map(|p| p.action.compute()).find(|op| op.name == "experts").expect("experts");
    match experts.family {
        Family::Experts { distinct_milli, intermediate: 2048, .. } => distinct_milli,
        other => panic!("whole experts, not {other:?}"),
    }
}

#[test]
fn replicated_tokens_need_only_the_sum() {
    let plan = kimi(Partition { ep: 8, exchange: ExpertExchange::AllReduce, ..Partition::tensor(8) });
    assert_eq!(plan.summary().layer_allreduces, 122);
    assert_eq!(count(&plan, Role::MoeDispatch), None);
}

#[test]
fn stages_hand_on_hidden_state_and_residual() {
    let plan = kimi(Partition { pp: 2, ..Partition::tensor(4) });
    let send = count(&plan, Role::StageSend).expect("one");
    // Two tensors of 3 × 7168 × 2 B.
    assert_eq!((send.kind, send.count, send.bytes), (Kind::SendRecv, 1, 86_016));
    assert_eq!(plan.summary().layer_allreduces, 122);
    assert_eq!(Group::NextStage.members(&plan.partition, 2), [2, 6]);
    assert_eq!(Group::PreviousStage.members(&plan.partition, 6), [2, 6]);
    assert_eq!(Group::Tensor.members(&plan.partition, 6), [4, 5, 6, 7]);
    let layers: BTreeSet<u32> = (0..8).flat_map(|r| plan.expand(r)).filter_map(|p| p.id.place.layer()).collect();
    assert_eq!(layers, (0..61).collect());
    assert!(plan.expand(0).iter().all(|p| p.action.name() != "lm_head"));
    assert!(plan.expand(4).iter().any(|p| p.action.name() == "lm_head"));
}

#[test]
fn a_norm_over_all_heads_costs_an_all_reduce_of_its_own() {
    let plan = Plan::build(&load("minimax-m2.5"), &Workload::verify(3, 100), Partition::tensor(8)).expect("a plan");
    let norm = count(&plan, Role::QkNormAllreduce).expect("62");
    assert_eq!((norm.count, norm.bytes), (62, 24));
    assert_eq!(plan.summary().layer_allreduces, 124);
}

#[test]
fn hybrids_alternate_two_templates() {
    let plan = Plan::build(&load("qwen3.5-397b"), &Workload::verify(3, 100), Partition::tensor(2)).expect("a plan");
    let runs: Vec<u32> = plan.classes[0].runs.iter().map(|r| r.repeats).collect();
    assert_eq!(runs.len(), 32);
    assert_eq!(runs[1..5], [3, 1, 3, 1]);
    assert_eq!(plan.blocks.len(), 4);
}

#[test]
fn draft_steps_follow_with_collectives_of_their_own() {
    let model = load("kimi-k2.5");
    let workload = Workload::verify(3, 4096);
    let drafting = Drafting { draft: Draft::Eagle3(Eagle3::for_model(&model)), steps: 2, width: 1 };
    let plan =
        Build { model: &model, workload: &workload, partition: Partition::tensor(8), drafting: Some(&drafting) }.plan().expect("a plan");
    let summary = plan.summary();
    assert_eq!(summary.layer_allreduces, 122, "draft steps are counted apart");
    let drafts: Vec<(Role, u32, u64)> = summary.collectives.iter().filter(|c| c.draft).map(|c| (c.role, c.count, c.bytes)).collect();
    // First step: the 3 tokens of the verify pass; second: one.
    for role in [Role::EmbedAllreduce, Role::AttnAllreduce, Role::MlpAllreduce] {
        assert!(drafts.contains(&(role, 1, 43_008)) && drafts.contains(&(role, 1, 14_336)), "{role:?} in {drafts:?}");
    }
    // One token a sequence × 32,000 columns × 2 B, twice.
    assert!(drafts.contains(&(Role::LogitsGather, 2, 64_000)));
    let ids: Vec<String> = plan.expand(5).iter().map(|p| p.id.to_string()).collect();
    assert!(
        ids.contains(&"D00.fc.r5".to_owned())
            && ids.contains(&"D01.attn_allreduce.r5".to_owned())
            && !ids.contains(&"D01.fc.r5".to_owned())
    );

    let deepseek = load("deepseek-v3");
    let mtp = Drafting { draft: Draft::Mtp, steps: 1, width: 1 };
    let plan =
        Build { model: &deepseek, workload: &workload, partition: Partition::tensor(8), drafting: Some(&mtp) }.plan().expect("a plan");
    assert!(plan.expand(0).iter().any(|p| p.id.to_string() == "D00.eh_proj.r0"));
    let none = Build { model: &model, workload: &workload, partition: Partition::tensor(8), drafting: Some(&mtp) }.plan();
    assert_eq!(none.expect_err("no MTP").code, "model-no-mtp");
}

#[test]
fn impossible_partitions_are_refused() {
    let model = load("kimi-k2.5");
    let refused = |partition: Partition| Plan::build(&model, &Workload::verify(3, 1), partition).expect_err("refused").code;
    assert_eq!(refused(Partition::tensor(7)), "model-tp-indivisible");
    assert_eq!(refused(Partition::tensor(0)), "partition-bad-value");
    assert_eq!(refused(Partition { pp: 62, ..Partition::tensor(1) }), "partition-bad-value");
    assert_eq!(refused(Partition { ep: 3, ..Partition::tensor(8) }), "partition-bad-value");
    assert_eq!(refused(Partition { ep: 4, ..Partition::tensor(8) }), "partition-bad-value");
    let none = Plan::build(&model, &Workload::verify(0, 1), Partition::tensor(8)).expect_err("refused");
    assert_eq!(none.code, "workload-bad-value");
}

#[test]
fn blocks_refuse_what_is_not_a_graph_of_named_actions() {
    let action = |role| Action::Collective(Collective { kind: Kind::AllReduce, role, bytes: 1, group: Group::Tensor });
    let mut twice = BlockBuilder::new();
    twice.add(action(Role::MlpAllreduce), &[]);
    twice.add(action(Role::MlpAllreduce), &[]);
    assert_eq!(twice.finish(BlockKind::Head).expect_err("refused").code, "plan-bad-block");
    let mut cycle = BlockBuilder::new();
    cycle.add(action(Role::MlpAllreduce), &["attn_allreduce"]);
    cycle.add(action(Role::AttnAllreduce), &["mlp_allreduce"]);
    assert_eq!(cycle.finish(BlockKind::Head).expect_err("refused").code, "plan-bad-block");
    let mut absent = BlockBuilder::new();
    absent.add(action(Role::MlpAllreduce), &["nothing"]);
    assert_eq!(absent.finish(BlockKind::Head).expect_err("refused").code, "plan-bad-block");
}

#[test]
fn json_and_dot_show_the_folded_plan() {
    let plan = kimi(Partition::tensor(8));
    let json: serde_json::Value = serde_json::from_str(&plan.to_json()).expect("JSON");
    assert_eq!(json["blocks"].as_array().map(Vec::len), Some(4));
    assert_eq!(json["classes"][0]["runs"][2]["repeats"], 60);
    let dot = plan.to_dot();
    assert!(dot.contains("expert_layer × 60") && dot.contains("attn_allreduce\\nall_reduce 43,008 B"), "{dot}");
    assert_eq!(dot.matches('{').count(), dot.matches('}').count());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_dependency_precedes(entry in 0usize..8, tokens in 1u64..6, batch in 1u64..5, pp in 1u32..4, tp in prop::sample::select(vec![1u32, 2, 4, 8]), expert in any::<bool>(), all_reduce in any::<bool>()) {
        let model = load(CATALOG[entry].id);
        let exchange = if all_reduce { ExpertExchange::AllReduce } else { ExpertExchange::AllToAll };
        let partition = Partition { tp, pp, ep: if expert { tp } else { 1 }, exchange, ..Partition::tensor(tp) };
        let workload = Workload { batch, ..Workload::verify(tokens, 3000) };
        let plan = match Plan::build(&model, &workload, partition) {
            Err(fault) if fault.code == "partition-no-experts" => {
                prop_assert!(partition.ep > 1);
                return Ok(());
            }
            plan => plan.expect("all eight models split over 8 ranks"),
        };
        let mut met: Vec<Vec<Collective>> = Vec::new();
        for rank in 0..partition.ranks() {
            let list = plan.expand(rank);
            for (position, planned) in list.iter().enumerate() {
                prop_assert!(planned.needs.iter().all(|n| (*n as usize) < position));
                prop_assert!(position == 0 || !planned.needs.is_empty());
            }
            met.push(list.iter().filter_map(|p| p.action.collective()).filter(|c| c.group == Group::Tensor || c.group == Group::Expert).copied().collect());
        }
        // All ranks of a group meet in the same collectives in the same order.
        for rank in 0..partition.ranks() {
            prop_assert_eq!(&met[rank as usize], &met[(rank / tp * tp) as usize]);
        }
    }

    #[test]
    fn listing_order_changes_nothing(entry in 0usize..8, tokens in 1u64..6, shuffle in any::<u64>()) {
        let model = load(CATALOG[entry].id);
        let workload = Workload::verify(tokens, 3000);
        for layer in &model.kinds {
            let steps = model.layer_steps(layer, &workload, Shard::tensor(2)).expect("divides");
            let mut shuffled = steps.clone();
            let mut state = shuffle;
            for i in (1..shuffled.len()).rev() {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                shuffled.swap(i, (state >> 33) as usize % (i + 1));
            }
            let plan = |steps: Vec<lanecast::model::Step>| {
                let mut builder = BlockBuilder::new();
                builder.add_steps(steps);
                let block = builder.finish(BlockKind::DenseLayer).expect("a block");
                let mut plan = Plan::build(&model, &workload, Partition::tensor(2)).expect("a plan");
                plan.blocks[1] = block;
                plan
            };
            let (listed, other) = (plan(steps), plan(shuffled));
            prop_assert_eq!(listed.hash(), other.hash());
            prop_assert_eq!(listed.expand(1), other.expand(1));
        }
    }

    #[test]
    fn different_passes_have_different_hashes(tokens in 1u64..40, more in 1u64..40) {
        let model = load("gpt-oss-120b");
        let plan = |tokens| Plan::build(&model, &Workload::verify(tokens, 50), Partition::tensor(8)).expect("a plan").hash();
        prop_assert_ne!(plan(tokens), plan(tokens + more));
        prop_assert_eq!(plan(tokens), plan(tokens));
    }
}
