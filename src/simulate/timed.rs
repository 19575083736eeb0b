//! A collective's schedule with the cost of each step and the route of each
//! connection: everything the event loop needs, flat and in integers.

use crate::collective::Schedule;

/// What one step costs, in picoseconds.
///
/// A step that receives starts at `max(ready + entry, first arrivals + poll,
/// credits)`, is done at `max(start + work, last arrivals + poll + tail)`, and
/// its block is ready for the next step `exit` later. A message's first byte
/// leaves `first` after the start, its last when the step is done and `fence`
/// has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepCost {
    /// Before it can look at data or credits.
    pub entry: u64,
    /// From the start until the first line is out.
    pub first: u64,
    /// All of its lines or data, nothing waited for.
    pub work: u64,
    /// From seeing the last arrival to being done.
    pub tail: u64,
    /// From done to the next step's entry; the credit goes back then.
    pub exit: u64,
    /// From done until the last byte is released to the receiver.
    pub fence: u64,
}

/// What a connection costs, whatever it carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimedConnection {
    /// Sends that may be under way.
    pub credits: u32,
    /// Its first message slot within the collective.
    pub slot: u32,
    /// Whether the receiver can start on the first line.
    pub cuts_through: bool,
    /// Whether the receiver reads the source's memory and no one sends.
    pub pulled: bool,
    /// Route of the data, into the network's routes.
    pub route: u32,
    /// From the last byte leaving to its arrival; for a pull the round trip.
    pub latency: u64,
    /// From arrival to the poll that sees it.
    pub poll: u64,
    /// From the receiver's release of a slot to the sender's knowing.
    pub credit: u64,
    /// Where the receiver must fetch the data again (host-staged), the route
    /// and the most bytes per second that one block fetches.
    pub fetch: Option<Fetch>,
}

/// The second leg of a staged connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Route from the staging memory to the receiver.
    pub route: u32,
    /// Most bytes per second that the receiver's block has in flight.
    pub rate: u64,
    /// A round trip to the staging memory.
    pub latency: u64,
}

/// A timed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedStep {
    /// Range of `lists` that it receives from.
    pub receive: (u32, u32),
    /// Range of `lists` that it sends on.
    pub send: (u32, u32),
    /// Bytes on the wire of each message that it sends (or pulls).
    pub wire: u64,
    /// Bytes on the wire of each message that it receives from a staged connection.
    pub fetch_wire: u64,
    /// What it costs.
    pub cost: StepCost,
    /// Most bytes per second of one pull.
    pub pull_rate: u64,
}

/// A timed thread block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedBlock {
    /// Its rank.
    pub rank: u32,
    /// Range of `steps`.
    pub steps: (u32, u32),
}

/// A collective ready to be simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Ranks that take part.
    pub ranks: usize,
    /// Steps of all blocks.
    pub steps: Vec<TimedStep>,
    /// Connection indices.
    pub lists: Vec<u32>,
    /// Blocks, ordered by rank.
    pub blocks: Vec<TimedBlock>,
    /// First block of each rank, and one past the last.
    pub rank_blocks: Vec<u32>,
    /// Connections.
    pub connections: Vec<TimedConnection>,
    /// Ends of connections, for messages: (source, target).
    pub ends: Vec<(u32, u32)>,
    /// Kernel prologue per rank.
    pub start: Vec<u64>,
    /// From the last block's end to the kernel's end.
    pub finish: u64,
    /// Kernel launches that it takes.
    pub launches: u32,
}

/// What pricing a schedule needs from below.
pub trait Pricing {
    /// Cost of a step of a block.
    fn step(&self, schedule: &Schedule, block: usize, step: usize) -> StepCost;
    /// Cost and route of a connection.
    fn connection(&mut self, schedule: &Schedule, connection: usize) -> TimedConnection;
    /// Bytes on the wire for `bytes` of data, packet headers included.
    fn wire(&self, schedule: &Schedule, connection: usize, bytes: u64) -> u64;
    /// Most bytes per second that a block keeps in flight when it reads from `peers` peers at once, per peer.
    fn pull_rate(&self, schedule: &Schedule, block: usize, connection: usize, peers: usize) -> u64;
    /// Prologue of a rank's kernel.
    fn start(&self, schedule: &Schedule, rank: usize) -> u64;
    /// From the last block's end to the kernel's end.
    fn finish(&self, schedule: &Schedule) -> u64;
}

impl Timed {
    /// Prices every step and connection of a schedule.
    pub fn new(schedule: &Schedule, pricing: &mut dyn Pricing, launches: u32) -> Timed {
        let mut order: Vec<usize> = (0..schedule.blocks.len()).collect();
        order.sort_by_key(|&block| (schedule.blocks[block].rank, schedule.blocks[block].channel, block));
        let mut timed = Timed {
            ranks: schedule.ranks,
            steps: Vec::new(),
            lists: schedule.lists.clone(),
            blocks: Vec::new(),
            rank_blocks: vec![0; schedule.ranks + 1],
            connections: (0..schedule.connections.len()).map(|c| pricing.connection(schedule, c)).collect(),
            ends: schedule.connections.iter().map(|c| (index32(c.source), index32(c.target))).collect(),
            start: (0..schedule.ranks).map(|rank| pricing.start(schedule, rank)).collect(),
            finish: pricing.finish(schedule),
            launches,
        };
        let mut slot = 0;
        for connection in &mut timed.connections {
            connection.credits = connection.credits.max(1);
            connection.slot = slot;
            slot += connection.credits;
        }
        for &block in &order {
            let first = index32(timed.steps.len());
            for step in 0..schedule.blocks[block].steps.len() {
                let timed_step = timed_step(schedule, &*pricing, block, step);
                timed.steps.push(timed_step);
            }
            let rank = schedule.blocks[block].rank;
            timed.blocks.push(TimedBlock { rank: index32(rank), steps: (first, index32(timed.steps.len())) });
            timed.rank_blocks[rank + 1] += 1;
        }
        for rank in 0..schedule.ranks {
            timed.rank_blocks[rank + 1] += timed.rank_blocks[rank];
        }
        timed
    }
}

fn timed_step(schedule: &Schedule, pricing: &dyn Pricing, block: usize, index: usize) -> TimedStep {
    let step = &schedule.blocks[block].steps[index];
    let wire_of = |connections: &[u32]| connections.first().map_or(0, |&c| pricing.wire(schedule, c as usize, step.bytes));
    let receives = schedule.receives(step);
    let range = |range: crate::collective::ListRange| (range.start, range.start + range.len);
    TimedStep {
        receive: range(step.receive),
        send: range(step.send),
        wire: wire_of(if step.send.len > 0 { schedule.sends(step) } else { receives }),
        fetch_wire: wire_of(receives),
        cost: pricing.step(schedule, block, index),
        pull_rate: receives.first().map_or(0, |&c| pricing.pull_rate(schedule, block, c as usize, receives.len())),
    }
}

/// Indices of this floor fit 32 bits: readers bound ranks and messages.
pub(super) fn index32(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 of anything")
}
