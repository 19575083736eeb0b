//! Schedules run on real numbers, in an arbitrary legal order.
//!
//! Each byte of a buffer stands for one integer. Blocks are picked at random,
//! so that a schedule which is right only for one timing is found out.

use std::collections::VecDeque;

use rand::RngExt;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::collective::{Buffer, Protocol, Schedule, Step};
use crate::error::{Fault, Result};

struct State<'a> {
    schedule: &'a Schedule,
    user: Vec<Vec<i64>>,
    scratch: Vec<Vec<i64>>,
    queues: Vec<VecDeque<Vec<i64>>>,
    next: Vec<usize>,
}

/// Runs the schedule on `inputs[rank][byte]` and returns each rank's result.
///
/// # Errors
/// A schedule in which nothing can move any more is reported as
/// `schedule-deadlock`, with who waits for whom; messages left over as
/// `schedule-unbalanced`.
pub fn run(schedule: &Schedule, inputs: &[Vec<i64>], seed: u64) -> Result<Vec<Vec<i64>>> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let length =
        usize::try_from(schedule.user_bytes).map_err(|_| Fault::new("schedule-size", "the message is too large to run on numbers"))?;
    let mut state = State {
        schedule,
        user: inputs.to_vec(),
        scratch: vec![vec![i64::MIN / 4; length]; schedule.ranks],
        queues: vec![VecDeque::new(); schedule.connections.len()],
        next: vec![0; schedule.blocks.len()],
    };
    loop {
        let ready: Vec<usize> = (0..schedule.blocks.len()).filter(|&block| state.can_step(block)).collect();
        if ready.is_empty() {
            break;
        }
        let block = ready[random.random_range(0..ready.len())];
        state.step(block);
    }
    state.finished()?;
    Ok(match schedule.result {
        Buffer::User => state.user,
        Buffer::Scratch => state.scratch,
    })
}

impl State<'_> {
    fn current(&self, block: usize) -> Option<&Step> {
        self.schedule.blocks[block].steps.get(self.next[block])
    }

    fn can_step(&self, block: usize) -> bool {
        let Some(step) = self.current(block) else { return false };
        let arrived = self
            .schedule
            .receives(step)
            .iter()
            .all(|&c| self.schedule.connections[c as usize].protocol == Protocol::Read || !self.queues[c as usize].is_empty());
        let room = self
            .schedule
            .sends(step)
            .iter()
            .all(|&c| self.queues[c as usize].len() < self.schedule.connections[c as usize].credits as usize);
        arrived && room
    }

    fn step(&mut self, block: usize) {
        let schedule = self.schedule;
        let rank = schedule.blocks[block].rank;
        let step = &schedule.blocks[block].steps[self.next[block]];
        let range = step.offset as usize..(step.offset + step.bytes) as usize;
        let mut value = vec![0; range.len()];
        if step.own {
            add(&mut value, &self.memory(rank, step.source)[range.clone()]);
        }
        for &connection in schedule.receives(step) {
            let from = &schedule.connections[connection as usize];
            if from.protocol == Protocol::Read {
                add(&mut value, &self.memory(from.source, step.source)[range.clone()]);
            } else if let Some(message) = self.queues[connection as usize].pop_front() {
                add(&mut value, &message);
            }
        }
        if step.store {
            let target = match step.target {
                Buffer::User => &mut self.user[rank],
                Buffer::Scratch => &mut self.scratch[rank],
            };
            target[range].copy_from_slice(&value);
        }
        for &connection in schedule.sends(step) {
            self.queues[connection as usize].push_back(value.clone());
        }
        self.next[block] += 1;
    }

    fn memory(&self, rank: usize, buffer: Buffer) -> &[i64] {
        match buffer {
            Buffer::User => &self.user[rank],
            Buffer::Scratch => &self.scratch[rank],
        }
    }

    fn finished(&self) -> Result<()> {
        let stuck: Vec<String> = (0..self.next.len())
            .filter_map(|block| {
                let step = self.current(block)?;
                let peers: Vec<String> = (self.schedule.receives(step).iter())
                    .filter(|&&c| self.queues[c as usize].is_empty())
                    .map(|&c| self.schedule.connections[c as usize].source.to_string())
                    .collect();
                Some(format!("rank {} step {} waits for rank {}", self.schedule.blocks[block].rank, self.next[block], peers.join(", ")))
            })
            .collect();
        if !stuck.is_empty() {
            return Err(Fault::new("schedule-deadlock", format!("the schedule cannot move: {}", stuck.join("; "))));
        }
        let left = self.queues.iter().filter(|queue| !queue.is_empty()).count();
        if left > 0 {
            return Err(Fault::new("schedule-unbalanced", format!("{left} connections keep messages that nobody takes")));
        }
        Ok(())
    }
}

fn add(sum: &mut [i64], more: &[i64]) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum += more;
    }
}
