//! A plan and a policy for others' simulators: Chakra traces and GOAL
//! schedules with our prices of computation.

use std::collections::BTreeMap;

use crate::cost;
use crate::cost::Cache;
use crate::error::Fault;
use crate::error::Result;
use crate::import::export::plan as plan_files;
use crate::machine::GpuKind;
use crate::plan::Plan;
use crate::strategy::Context;
use crate::strategy::Logical;

use super::Policy;
use super::Question;

/// The kind that a rank runs on.
fn kind<'a>(question: &Question<'a>, rank: u32) -> Result<&'a GpuKind> {
    let device = rank / question.machine.ranks_per_gpu.max(1);
    question.machine.gpu_kind(device as usize).ok_or_else(|| {
        Fault::new("machine-too-few-gpus", format!("rank {rank} has no GPU on machine {}", question.machine.id))
            .help("use fewer ranks (--tp), or a machine with more GPUs")
    })
}

fn kinds<'a>(question: &Question<'a>, plan: &Plan) -> Result<Vec<&'a GpuKind>> {
    (0..plan.partition.ranks()).map(|rank| kind(question, rank)).collect()
}

/// One Chakra file a rank.
///
/// # Errors
/// `machine-too-few-gpus`.
pub fn chakra(question: &Question<'_>, plan: &Plan) -> Result<BTreeMap<u32, Vec<u8>>> {
    let kinds = kinds(question, plan)?;
    Ok(plan_files::chakra(plan, |rank, op| cost::duration(op, kinds[rank as usize], Cache::Cold)))
}

/// One GOAL schedule of all ranks, each collective as the policy's strategy for its size does it.
///
/// # Errors
/// `machine-too-few-gpus`, and those of lowering.
pub fn goal(question: &Question<'_>, plan: &Plan, policy: &Policy, context: &Context<'_>) -> Result<String> {
    let kinds = kinds(question, plan)?;
    let time = |rank: u32, op: &crate::model::Op| cost::duration(op, kinds[rank as usize], Cache::Cold);
    plan_files::goal(plan, time, |collective, members| {
        let strategy = policy.of(collective.bytes)?;
        let lower = |context: &Context<'_>| (strategy.lower)(context, strategy, Logical::from(collective.kind), collective.bytes);
        if members.len() == context.ranks {
            return Ok(lower(context)?.schedule);
        }
        // A stage, or the pair that hands its result on.
        let group = context.among(members.iter().filter_map(|&member| context.members.get(member).copied()).collect());
        Ok(lower(&group)?.schedule)
    })
}

/// The plan of the pass as the policy splits it.
///
/// # Errors
/// Those of planning; `policy-unsayable` for halves of a batch that take turns.
pub fn plan(question: &Question<'_>, policy: &Policy) -> Result<Plan> {
    let split = match policy.rows.as_slice() {
        [(_, strategy)] => question.under(strategy),
        _ => *question,
    };
    if split.partition.micro_batches > 1 {
        return Err(Fault::new("policy-unsayable", "halves of a batch that take turns are more than one order of operations can say")
            .help("export a strategy that keeps the batch whole"));
    }
    split.plan()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::LaunchMode;
    use crate::machine::Machine;
    use crate::model::Model;
    use crate::model::Workload;
    use crate::plan::Partition;
    use crate::strategy::Strategy;

    #[test]
    fn both_formats_hold_the_pass() {
        let machine = Machine::load("8x-rtx-pro-6000-server").expect("embedded");
        let model = Model::load("kimi-k2.5").expect("embedded");
        let (workload, partition) = (Workload::verify(3, 128), Partition::tensor(8));
        let question = Question { machine: &machine, model: &model, workload, partition, launch: LaunchMode::Graph };
        let plan = question.plan().expect("a plan");
        let policy = Policy::single(Strategy::find("nccl-ring-ll").expect("known"));
        let text = goal(&question, &plan, &policy, &Context::new(&machine, 8)).expect("a schedule");
        assert!(text.starts_with("num_ranks 8\n"));
        assert_eq!(text.matches(": send ").count(), text.matches(": recv ").count());
        // A ring of 8 sends 14 chunks a rank and channel: 123 all-reduces and a gather of 7.
        assert!(text.matches(": send ").count() >= 8 * (123 * 14 + 7), "{}", text.matches(": send ").count());
        assert_eq!(chakra(&question, &plan).expect("files").len(), 8);
        // Two stages of four: the all-reduces of a stage, and what it hands on.
        let staged = Policy::single(Strategy::find("tp4-pp2").expect("known"));
        let split = super::plan(&question, &staged).expect("a plan");
        assert_eq!((split.partition.tp, split.partition.pp), (4, 2));
        let text = goal(&question, &split, &staged, &Context::new(&machine, 8)).expect("a schedule");
        assert!(text.matches(": send ").count() > 1000 && text.matches(": send ").count() == text.matches(": recv ").count());
        let halves = Policy::single(Strategy::find("two-batch-overlap").expect("known"));
        assert!(super::plan(&question, &halves).is_err());
        let few = Question { partition: Partition::tensor(16), ..question };
        assert!(few.plan().is_err() || chakra(&few, &few.plan().expect("a plan")).is_err());
    }
}
