//! GOAL schedules (LogGOPSim): a program a rank of `send`, `recv` and `calc`,
//! and what each needs first.

use std::fmt::Write as _;

use crate::collective::Protocol;
use crate::collective::Schedule;
use crate::units::Time;

/// A schedule under construction. Operations are appended; each waits for the
/// end of what its rank did before.
#[derive(Clone, Debug)]
pub struct Goal {
    ranks: Vec<Rank>,
    tag: u32,
}

/// One rank's program so far.
#[derive(Clone, Debug, Default)]
struct Rank {
    text: String,
    labels: u64,
    /// What the next operation waits for.
    frontier: Vec<u64>,
}

impl Rank {
    /// Appends an operation that needs `needs`; returns its label.
    fn add(&mut self, operation: &str, needs: &[u64]) -> u64 {
        self.labels += 1;
        let label = self.labels;
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "l{label}: {operation}");
        for need in needs {
            let _ = writeln!(self.text, "l{label} requires l{need}");
        }
        label
    }
}

impl Goal {
    /// An empty program for each of `ranks`.
    pub fn new(ranks: usize) -> Goal {
        Goal { ranks: vec![Rank::default(); ranks], tag: 0 }
    }

    /// Computes on one rank; whole nanoseconds, rounded.
    pub fn calc(&mut self, rank: usize, time: Time) {
        let Some(rank) = self.ranks.get_mut(rank) else { return };
        let needs = std::mem::take(&mut rank.frontier);
        let label = rank.add(&format!("calc {}", (time.0 + 500) / 1000), &needs);
        rank.frontier = vec![label];
    }

    /// Appends a collective on all its ranks: sizes are those on the wire, tags
    /// are connections. A read is a send that its source does not wait for.
    pub fn collective(&mut self, schedule: &Schedule) {
        let entry: Vec<Vec<u64>> = self.ranks.iter().map(|r| r.frontier.clone()).collect();
        let mut ends: Vec<Vec<u64>> = vec![Vec::new(); self.ranks.len()];
        for block in &schedule.blocks {
            if block.rank >= self.ranks.len() {
                continue;
            }
            let mut before = entry[block.rank].clone();
            for step in &block.steps {
                let mut received = Vec::new();
                for &connection in schedule.receives(step) {
                    let from = &schedule.connections[connection as usize];
                    let bytes = from.protocol.wire_bytes(step.bytes).max(1);
                    let tag = self.tag.wrapping_add(connection);
                    if from.protocol == Protocol::Read && from.source < self.ranks.len() {
                        self.ranks[from.source].add(&format!("send {bytes}b to {} tag {tag}", block.rank), &entry[from.source]);
                    }
                    received.push(self.ranks[block.rank].add(&format!("recv {bytes}b from {} tag {tag}", from.source), &before));
                }
                if !received.is_empty() {
                    before = received;
                }
                let sends = schedule.sends(step).iter().map(|&connection| {
                    let to = &schedule.connections[connection as usize];
                    format!(
                        "send {}b to {} tag {}",
                        to.protocol.wire_bytes(step.bytes).max(1),
                        to.target,
                        self.tag.wrapping_add(connection)
                    )
                });
                let sent: Vec<u64> = sends.collect::<Vec<_>>().iter().map(|s| self.ranks[block.rank].add(s, &before)).collect();
                if !sent.is_empty() {
                    before = sent;
                }
            }
            ends[block.rank].extend(before);
        }
        for (rank, mut end) in self.ranks.iter_mut().zip(ends) {
            end.sort_unstable();
            end.dedup();
            if !end.is_empty() {
                rank.frontier = end;
            }
        }
        self.tag = self.tag.wrapping_add(u32::try_from(schedule.connections.len()).unwrap_or(u32::MAX));
    }

    /// The file.
    pub fn text(&self) -> String {
        let mut out = format!("num_ranks {}\n", self.ranks.len());
        for (number, rank) in self.ranks.iter().enumerate() {
            let _ = write!(out, "\nrank {number} {{\n{}}}\n", rank.text);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Block;
    use crate::collective::Buffer;
    use crate::collective::Engine;
    use crate::collective::Step;
    use std::collections::BTreeMap;

    /// Two ranks exchange 8 bytes in LL: 16 on the wire.
    fn exchange() -> Schedule {
        let mut schedule = Schedule::new(2, 8);
        let to = [schedule.connect(0, 1, Protocol::Ll, 8), schedule.connect(1, 0, Protocol::Ll, 8)];
        for rank in 0..2 {
            let step = |receive, send| Step {
                receive,
                send,
                offset: 0,
                bytes: 8,
                own: true,
                store: true,
                source: Buffer::User,
                target: Buffer::User,
            };
            let (nothing, out, back) = (schedule.list(&[]), schedule.list(&[to[rank]]), schedule.list(&[to[1 - rank]]));
            let steps = vec![step(nothing, out), step(back, nothing)];
            schedule.blocks.push(Block { rank, channel: 0, threads: 32, block_threads: 32, engine: Engine::Threads, steps });
        }
        schedule
    }

    #[test]
    fn operations_wait_for_what_came_before() {
        let mut goal = Goal::new(2);
        goal.calc(0, Time::from_us(75.0));
        goal.collective(&exchange());
        goal.calc(0, Time::from_us(1.0));
        let expected = "num_ranks 2\n\nrank 0 {\nl1: calc 75000\nl2: send 16b to 1 tag 0\nl2 requires l1\nl3: recv 16b from 1 tag 1\nl3 requires l2\nl4: calc 1000\nl4 requires l3\n}\n\n\
            rank 1 {\nl1: send 16b to 0 tag 1\nl2: recv 16b from 0 tag 0\nl2 requires l1\n}\n";
        assert_eq!(goal.text(), expected);
    }

    #[test]
    fn every_message_that_is_sent_is_received() {
        let mut goal = Goal::new(2);
        for _ in 0..3 {
            goal.collective(&exchange());
        }
        let mut balance: BTreeMap<(String, String), i64> = BTreeMap::new();
        let mut rank = String::new();
        for line in goal.text().lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["rank", number, "{"] => rank = (*number).to_owned(),
                [_, "send", bytes, "to", to, "tag", tag] => {
                    *balance.entry((format!("{rank}>{to}"), format!("{bytes} {tag}"))).or_default() += 1
                }
                [_, "recv", bytes, "from", from, "tag", tag] => {
                    *balance.entry((format!("{from}>{rank}"), format!("{bytes} {tag}"))).or_default() -= 1
                }
                _ => {}
            }
        }
        assert_eq!(balance.len(), 6);
        assert!(balance.values().all(|b| *b == 0), "{balance:?}");
    }
}
