//! A plan for others' simulators: its operations with what each needs, as
//! Chakra traces or as a GOAL schedule. What computation takes and how a
//! collective is carried out is the caller's to say.

use std::collections::BTreeMap;

use crate::collective::Schedule;
use crate::error::Fault;
use crate::error::Result;
use crate::import::export::chakra;
use crate::import::export::goal::Goal;
use crate::model::Op;
use crate::plan::Action;
use crate::plan::Collective;
use crate::plan::Kind;
use crate::plan::Plan;
use crate::plan::Planned;
use crate::units::Time;

/// One Chakra file a rank. `time` prices an operation of a rank; collectives
/// have no duration of their own there, for the other simulator is to find it.
pub fn chakra(plan: &Plan, time: impl Fn(u32, &Op) -> Time) -> BTreeMap<u32, Vec<u8>> {
    let mut files = BTreeMap::new();
    for rank in 0..plan.partition.ranks() {
        let mut file = chakra::metadata();
        for (position, planned) in plan.expand(rank).iter().enumerate() {
            let needs: Vec<u64> = planned.needs.iter().map(|n| u64::from(*n) + 1).collect();
            let (collective, duration, bytes) = match planned.action {
                Action::Compute(op) => (None, time(rank, op), op.weight_bytes + op.cache_bytes + op.activation_bytes),
                Action::Collective(c) => (Some(comm_type(c.kind)), Time::ZERO, c.bytes),
            };
            let name = planned.id.to_string();
            chakra::Node { id: position as u64 + 1, name: &name, collective, start: Time::ZERO, duration, bytes, needs: &needs }
                .write(&mut file);
        }
        files.insert(rank, file);
    }
    files
}

/// `CollectiveCommType` of Chakra's schema.
fn comm_type(kind: Kind) -> u64 {
    match kind {
        Kind::AllReduce => 0,
        Kind::AllGather => 2,
        // Between two ranks, the schema's nearest collective.
        Kind::SendRecv => 5,
        Kind::AllToAll => 6,
        Kind::ReduceScatter => 7,
    }
}

/// A GOAL schedule: each rank's operations in canonical order, collectives as
/// the schedules that `lower` gives over the members of their group.
///
/// # Errors
/// Those of `lower`; `plan-stuck` where ranks wait for each other in different
/// collectives, which a plan that was built does not do.
pub fn goal(plan: &Plan, time: impl Fn(u32, &Op) -> Time, lower: impl Fn(&Collective, &[usize]) -> Result<Schedule>) -> Result<String> {
    let ranks = plan.partition.ranks();
    let lists: Vec<Vec<Planned<'_>>> = (0..ranks).map(|rank| plan.expand(rank)).collect();
    let mut at = vec![0; lists.len()];
    let mut goal = Goal::new(lists.len());
    loop {
        for rank in 0..ranks {
            let place = &mut at[rank as usize];
            while let Some(Action::Compute(op)) = lists[rank as usize].get(*place).map(|p| p.action) {
                goal.calc(rank as usize, time(rank, op));
                *place += 1;
            }
        }
        let waiting = |rank: usize| lists.get(rank)?.get(*at.get(rank)?).and_then(|p| p.action.collective());
        let Some(first) = (0..lists.len()).find(|r| waiting(*r).is_some()) else { return Ok(goal.text()) };
        // The first rank all of whose partners wait with it.
        let ready = (first..lists.len()).find_map(|rank| {
            let collective = waiting(rank)?;
            let members: Vec<usize> = collective.group.members(&plan.partition, rank as u32).into_iter().map(|m| m as usize).collect();
            let meet = members.iter().all(|m| waiting(*m).is_some_and(|c| c.kind == collective.kind && c.bytes == collective.bytes));
            meet.then_some((collective, members))
        });
        let Some((collective, members)) = ready else {
            return Err(Fault::new(
                "plan-stuck",
                format!("rank {first} waits in {} for ranks that do not come", collective_name(waiting(first))),
            ));
        };
        goal.collective(&lower(collective, &members)?, &members);
        members.iter().for_each(|m| at[*m] += 1);
    }
}

fn collective_name(collective: Option<&Collective>) -> &'static str {
    collective.map_or("a collective", |c| c.role.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Block;
    use crate::collective::Buffer;
    use crate::collective::Engine;
    use crate::collective::Protocol;
    use crate::collective::Step;
    use crate::model::Model;
    use crate::model::Workload;
    use crate::plan::Partition;

    fn plan() -> Plan {
        let model = Model::load("kimi-k2.5").expect("embedded");
        Plan::build(&model, &Workload::verify(3, 4096), Partition::tensor(2)).expect("a plan")
    }

    /// Everyone sends to the next and receives from the one before.
    fn shift(collective: &Collective, ranks: usize) -> Schedule {
        let mut schedule = Schedule::new(ranks, collective.bytes);
        let to: Vec<u32> = (0..ranks).map(|r| schedule.connect(r, (r + 1) % ranks, Protocol::Simple, 1)).collect();
        for rank in 0..ranks {
            let (receive, send) = (schedule.list(&[to[(rank + ranks - 1) % ranks]]), schedule.list(&[to[rank]]));
            let none = schedule.list(&[]);
            let step = |receive, send| Step {
                receive,
                send,
                offset: 0,
                bytes: collective.bytes,
                own: true,
                store: true,
                source: Buffer::User,
                target: Buffer::User,
            };
            let steps = vec![step(none, send), step(receive, none)];
            schedule.blocks.push(Block { rank, channel: 0, threads: 32, block_threads: 32, engine: Engine::Threads, steps });
        }
        schedule
    }

    #[test]
    fn a_plan_becomes_a_schedule_of_all_its_collectives() {
        let text = goal(&plan(), |_, _| Time::from_us(1.0), |c, members| Ok(shift(c, members.len()))).expect("no rank is stuck");
        // 61 layers × 2 all-reduces, the embedding's and the gather of logits: 124 on each of two ranks.
        assert_eq!(text.matches(": send ").count(), 248);
        assert_eq!(text.matches(": recv ").count(), 248);
        assert_eq!(text.matches("send 43008b to 1").count(), 123);
    }

    #[test]
    fn a_plan_becomes_chakra_files() {
        let files = chakra(&plan(), |_, _| Time::from_us(1.0));
        assert_eq!(files.len(), 2);
        let name = b"L012.attn_allreduce.r1";
        assert!(files[&1].windows(name.len()).any(|w| w == name));
        assert_eq!(files[&0].len(), files[&1].len());
    }
}
