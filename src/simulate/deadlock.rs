//! Who waits for whom when nothing moves any more.

use crate::error::Fault;

use super::engine::Engine;
use super::state::Phase;

/// Blocks that are named before the rest is counted.
const NAMED: usize = 16;

impl Engine<'_> {
    /// Names, for each block that cannot go on, the ranks that it waits for.
    pub(super) fn deadlock(&self) -> Box<Fault> {
        let stuck: Vec<usize> = (0..self.state.blocks.len()).filter(|&block| self.state.blocks[block].phase != Phase::Idle).collect();
        let mut lines: Vec<String> = stuck.iter().take(NAMED).map(|&block| self.waits(block)).collect();
        if stuck.len() > NAMED {
            lines.push(format!("and {} more blocks", stuck.len() - NAMED));
        }
        Fault::new("simulation-deadlock", format!("the schedule cannot move: {}", lines.join("; ")))
            .help("every receive needs a send of its peer in the same order; check the schedule or graph file")
    }

    fn waits(&self, block: usize) -> String {
        let fixed = &self.layout.blocks[block];
        let state = &self.state.blocks[block];
        let step = &self.layout.steps[state.step as usize];
        let connection_of = |leg: u32| &self.layout.connections[self.layout.legs[leg as usize].connection as usize];
        let connection = connection_of(state.leg);
        let (what, peer) = if state.phase == Phase::Waiting && state.leg >= step.receive.1 {
            ("a credit of", connection.target)
        } else if state.phase == Phase::Running {
            ("the last bytes of", connection.source)
        } else {
            ("data of", connection.source)
        };
        let at = state.step - fixed.steps.0;
        let gone = if self.state.ranks[peer as usize].finished { ", which has ended" } else { "" };
        format!("rank {} waits for {what} rank {peer} at step {at}{gone}", fixed.rank)
    }

    /// Messages that nobody takes, or that are taken as more or less than was sent.
    pub(super) fn unbalanced(&self) -> Option<Box<Fault>> {
        let index = self.state.connections.iter().position(|c| c.in_flight > 0 || c.bytes_sent != c.bytes_received)?;
        let (fixed, at) = (&self.layout.connections[index], &self.state.connections[index]);
        let message = format!(
            "rank {} sends {} bytes to rank {} on one connection, which takes {}",
            fixed.source, at.bytes_sent, fixed.target, at.bytes_received
        );
        Some(
            Fault::new("simulation-unbalanced", message)
                .help("every send needs a receive of its peer of the same size; check the schedule or graph file"),
        )
    }
}
