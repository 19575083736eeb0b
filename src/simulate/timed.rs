//! A collective's schedule with the cost of each step and the route of each
//! connection: everything the event loop needs, flat and in integers.

use std::collections::BTreeMap;

use crate::collective::Schedule;
use crate::collective::twins::multiplicities;

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
    /// How often each byte is fetched: polls that come too early count.
    pub times: u64,
}

/// A timed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedStep {
    /// Range of `legs` that it receives from.
    pub receive: (u32, u32),
    /// Range of `legs` that it sends on.
    pub send: (u32, u32),
    /// What it costs.
    pub cost: StepCost,
}

/// One message of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg {
    /// Its connection.
    pub connection: u32,
    /// Bytes on the wire.
    pub wire: u64,
    /// What moves its bytes: a message's or a pull's flow, or the fetch of one
    /// from staging memory; an index into `flows`, [`NO_FLOW`] where there is none.
    pub flow: u32,
}

/// A leg whose bytes no flow moves.
pub const NO_FLOW: u32 = u32::MAX;

/// A kind of flow: all legs over the same route at the same rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// Its route, into the network's routes.
    pub route: u32,
    /// Most bytes per second that the block feeds (sends), has in flight
    /// (pulls, fetches from staging memory).
    pub rate: u64,
}

/// A timed thread block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedBlock {
    /// Its rank.
    pub rank: u32,
    /// Range of `steps`.
    pub steps: (u32, u32),
    /// For how many blocks it stands, itself included: see [`multiplicities`].
    pub count: u32,
}

/// A collective ready to be simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed {
    /// Ranks that take part.
    pub ranks: usize,
    /// Steps of all blocks.
    pub steps: Vec<TimedStep>,
    /// Messages of the steps.
    pub legs: Vec<Leg>,
    /// Kinds of flows of the legs, as first met.
    pub flows: Vec<Flow>,
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
    /// Whether two steps of a block cost the same, so that one is priced for both.
    fn alike(&self, schedule: &Schedule, block: usize, one: usize, other: usize) -> bool;
}

/// Steps that a block's later steps are held against: those of one loop of a ring or a tree.
const REMEMBERED_MAX: usize = 8;

impl Timed {
    /// Prices every step and connection of a schedule.
    pub fn new(schedule: &Schedule, pricing: &mut dyn Pricing, launches: u32) -> Timed {
        let counts = multiplicities(schedule);
        let mut order: Vec<usize> = (0..schedule.blocks.len()).filter(|&block| counts[block] > 0).collect();
        order.sort_by_key(|&block| (schedule.blocks[block].rank, schedule.blocks[block].channel, block));
        let used = Used::of(schedule, &order);
        let mut timed = Timed {
            ranks: schedule.ranks,
            steps: Vec::with_capacity(used.steps),
            legs: Vec::with_capacity(used.legs),
            flows: Vec::new(),
            blocks: Vec::with_capacity(schedule.blocks.len()),
            rank_blocks: vec![0; schedule.ranks + 1],
            connections: used.connections.iter().map(|&c| pricing.connection(schedule, c)).collect(),
            ends: (used.connections.iter())
                .map(|&c| (index32(schedule.connections[c].source), index32(schedule.connections[c].target)))
                .collect(),
            start: (0..schedule.ranks).map(|rank| pricing.start(schedule, rank)).collect(),
            finish: pricing.finish(schedule),
            launches,
        };
        for connection in &mut timed.connections {
            connection.credits = connection.credits.max(1);
        }
        let mut flows = BTreeMap::new();
        for &block in &order {
            let first = index32(timed.steps.len());
            let mut kinds: Vec<usize> = Vec::with_capacity(REMEMBERED_MAX);
            for step in 0..schedule.blocks[block].steps.len() {
                if let Some(place) = kinds.iter().position(|&known| pricing.alike(schedule, block, known, step)) {
                    timed.repeat_step(first as usize + kinds[place]);
                    kinds[..=place].rotate_right(1);
                } else {
                    timed.push_step(schedule, &*pricing, (block, step), &used.places, &mut flows);
                    kinds.truncate(REMEMBERED_MAX - 1);
                    kinds.insert(0, step);
                }
            }
            let rank = schedule.blocks[block].rank;
            timed.blocks.push(TimedBlock { rank: index32(rank), steps: (first, index32(timed.steps.len())), count: counts[block] });
            timed.rank_blocks[rank + 1] += 1;
        }
        for rank in 0..schedule.ranks {
            timed.rank_blocks[rank + 1] += timed.rank_blocks[rank];
        }
        timed
    }

    fn push_step(
        &mut self,
        schedule: &Schedule,
        pricing: &dyn Pricing,
        (block, index): (usize, usize),
        places: &[u32],
        flows: &mut BTreeMap<Flow, u32>,
    ) {
        let step = &schedule.blocks[block].steps[index];
        let cost = pricing.step(schedule, block, index);
        let (receives, sends) = (schedule.receives(step), schedule.sends(step));
        let wire = |c: u32| pricing.wire(schedule, c as usize, step.bytes);
        let begin = index32(self.legs.len());
        for &c in receives {
            let timed = &self.connections[places[c as usize] as usize];
            let flow = match timed.fetch {
                _ if timed.pulled => {
                    Some(Flow { route: timed.route, rate: pricing.pull_rate(schedule, block, c as usize, receives.len()) })
                }
                fetch => fetch.map(|fetch| Flow { route: fetch.route, rate: fetch.rate }),
            };
            self.push_leg(places[c as usize], step.bytes, || (wire(c), flow), flows);
        }
        let middle = index32(self.legs.len());
        for &c in sends {
            let route = self.connections[places[c as usize] as usize].route;
            let moved = || {
                let wire = wire(c);
                (wire, Some(Flow { route, rate: saturating_rate(wire, cost.work) }))
            };
            self.push_leg(places[c as usize], step.bytes, moved, flows);
        }
        self.steps.push(TimedStep { receive: (begin, middle), send: (middle, index32(self.legs.len())), cost });
    }

    /// A step like an earlier one.
    fn repeat_step(&mut self, earlier: usize) {
        let TimedStep { receive, send, cost } = self.steps[earlier];
        let begin = index32(self.legs.len());
        self.legs.extend_from_within(receive.0 as usize..send.1 as usize);
        let middle = begin + receive.1 - receive.0;
        self.steps.push(TimedStep { receive: (begin, middle), send: (middle, index32(self.legs.len())), cost });
    }

    /// A primitive of no bytes over lines sends no line and waits for none:
    /// only messages with a flag or a counter exist without data.
    fn push_leg(&mut self, connection: u32, bytes: u64, moved: impl Fn() -> (u64, Option<Flow>), flows: &mut BTreeMap<Flow, u32>) {
        if bytes == 0 && self.connections[connection as usize].cuts_through {
            return;
        }
        let (wire, flow) = moved();
        let flow = match flow {
            Some(flow) if wire > 0 => *flows.entry(flow).or_insert_with(|| {
                self.flows.push(flow);
                index32(self.flows.len() - 1)
            }),
            _ => NO_FLOW,
        };
        self.legs.push(Leg { connection, wire, flow });
    }
}

/// What the blocks that are simulated use of a schedule.
struct Used {
    /// Connections, in order.
    connections: Vec<usize>,
    /// Where each connection of the schedule stands among those.
    places: Vec<u32>,
    steps: usize,
    legs: usize,
}

impl Used {
    fn of(schedule: &Schedule, blocks: &[usize]) -> Used {
        let mut used = Used { connections: Vec::new(), places: vec![u32::MAX; schedule.connections.len()], steps: 0, legs: 0 };
        for step in blocks.iter().flat_map(|&block| &schedule.blocks[block].steps) {
            used.steps += 1;
            for &connection in schedule.receives(step).iter().chain(schedule.sends(step)) {
                used.legs += 1;
                used.places[connection as usize] = 0;
            }
        }
        for (connection, place) in used.places.iter_mut().enumerate().filter(|(_, place)| **place == 0) {
            *place = index32(used.connections.len());
            used.connections.push(connection);
        }
        used
    }
}

/// The rate that moves `bytes` in `ps`, rounded up so that the flow does not
/// outlast the work it stands for.
fn saturating_rate(bytes: u64, ps: u64) -> u64 {
    if ps == 0 {
        return u64::MAX;
    }
    u64::try_from((u128::from(bytes) * super::fabric::PICO).div_ceil(u128::from(ps))).unwrap_or(u64::MAX)
}

/// Indices of this floor fit 32 bits: readers bound ranks and messages.
pub(super) fn index32(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 of anything")
}
