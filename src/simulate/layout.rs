//! All collectives of a program in flat arrays, as the event loop reads them.

use crate::error::{Fault, Result};

use super::fabric::Fabric;
use super::program::Program;
use super::timed::{StepCost, index32};

/// No flow: a message without bytes.
pub(super) const NO_BUNDLE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Ranges of [`Layout::legs`].
    pub receive: (u32, u32),
    pub send: (u32, u32),
    pub cost: StepCost,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Leg {
    pub connection: u32,
    pub wire: u64,
    /// What its flow runs in: the message's, a pull's, or that of a fetch from
    /// staging memory; [`NO_BUNDLE`] where there is none.
    pub bundle: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub rank: u32,
    pub collective: u32,
    pub steps: (u32, u32),
    /// For how many blocks it stands.
    pub count: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    /// First of its slots, as many as credits.
    pub slot: u32,
    pub credits: u32,
    pub cuts_through: bool,
    pub pulled: bool,
    /// Whether the receiver fetches the data again, and how long a round trip takes.
    pub fetch: Option<u64>,
    /// How often the receiver fetches each byte.
    pub fetch_times: u64,
    pub latency: u64,
    pub poll: u64,
    pub credit: u64,
    pub source: u32,
    pub target: u32,
}

/// Where a collective's parts lie in the arrays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub blocks: (u32, u32),
    pub connections: (u32, u32),
    /// Bit `r` is set when rank `r` has blocks in it.
    pub members: u64,
}

#[derive(Debug, Default)]
pub(super) struct Layout {
    pub steps: Vec<Step>,
    pub legs: Vec<Leg>,
    pub blocks: Vec<Block>,
    pub connections: Vec<Connection>,
    pub collectives: Vec<Range>,
    /// The connection of each message slot.
    pub connection_of: Vec<u32>,
    /// Whether any connection is staged.
    pub staged: bool,
}

impl Layout {
    /// Lays out a program, and its flows' bundles in `fabric`.
    ///
    /// # Errors
    /// `simulation-shared-connection` when two blocks send, or two receive, on one connection.
    pub fn new(program: &Program, fabric: &mut Fabric) -> Result<Layout> {
        let mut layout = Layout::default();
        for collective in 0..program.collectives.len() {
            layout.push(program, collective, fabric)?;
        }
        Ok(layout)
    }

    fn push(&mut self, program: &Program, collective: usize, fabric: &mut Fabric) -> Result<()> {
        let timed = &program.collectives[collective];
        let first_step = index32(self.steps.len());
        let (first_block, first_connection) = (index32(self.blocks.len()), index32(self.connections.len()));
        for (connection, &(source, target)) in timed.connections.iter().zip(&timed.ends) {
            let slot = index32(self.connection_of.len());
            self.connection_of.extend((0..connection.credits.max(1)).map(|_| index32(self.connections.len())));
            self.staged |= connection.fetch.is_some();
            self.connections.push(Connection {
                slot,
                credits: connection.credits.max(1),
                cuts_through: connection.cuts_through,
                pulled: connection.pulled,
                fetch: connection.fetch.map(|fetch| fetch.latency),
                fetch_times: connection.fetch.map_or(1, |fetch| fetch.times),
                latency: connection.latency,
                poll: connection.poll,
                credit: connection.credit,
                source,
                target,
            });
        }
        let bundles: Vec<u32> = timed.flows.iter().map(|flow| fabric.bundle(flow.route, flow.rate)).collect();
        let first_leg = index32(self.legs.len());
        self.legs.extend(timed.legs.iter().map(|leg| Leg {
            connection: first_connection + leg.connection,
            wire: leg.wire,
            bundle: bundles.get(leg.flow as usize).copied().unwrap_or(NO_BUNDLE),
        }));
        self.steps.extend(timed.steps.iter().map(|step| Step {
            receive: (first_leg + step.receive.0, first_leg + step.receive.1),
            send: (first_leg + step.send.0, first_leg + step.send.1),
            cost: step.cost,
        }));
        let mut members = 0;
        for block in &timed.blocks {
            let steps = (block.steps.0 + first_step, block.steps.1 + first_step);
            self.blocks.push(Block { rank: block.rank, collective: index32(collective), steps, count: block.count });
            members |= 1 << block.rank;
        }
        self.collectives.push(Range {
            blocks: (first_block, index32(self.blocks.len())),
            connections: (first_connection, index32(self.connections.len())),
            members,
        });
        self.check_ends(collective)
    }

    /// Messages of a connection are in order because one block sends them and
    /// one takes them.
    fn check_ends(&self, collective: usize) -> Result<()> {
        let range = self.collectives[collective];
        let none = u32::MAX;
        let mut ends = vec![(none, none); (range.connections.1 - range.connections.0) as usize];
        for index in range.blocks.0..range.blocks.1 {
            let block = &self.blocks[index as usize];
            for step in &self.steps[block.steps.0 as usize..block.steps.1 as usize] {
                for leg in step.receive.0..step.send.1 {
                    let connection = self.legs[leg as usize].connection;
                    let end = &mut ends[(connection - range.connections.0) as usize];
                    let end = if leg < step.receive.1 { &mut end.1 } else { &mut end.0 };
                    if *end != none && *end != index {
                        let c = &self.connections[connection as usize];
                        let (does, rank) = if leg < step.receive.1 { ("receive", c.target) } else { ("send", c.source) };
                        return Err(Fault::new(
                            "simulation-shared-connection",
                            format!("two blocks of rank {rank} {does} on one connection from rank {} to rank {}", c.source, c.target),
                        )
                        .help("give each block a connection of its own: otherwise the order of their messages is not defined"));
                    }
                    *end = index;
                }
            }
        }
        Ok(())
    }
}
