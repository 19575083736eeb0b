//! The state of a run between two events.

use super::fabric::Fabric;
use super::outcome::CollectiveTotals;
use super::program::Program;
use super::stamp::Stamp;
use super::timed::index32;

/// What a thread block is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its rank is not in this collective.
    Idle,
    /// It waits for credits or arrivals of its current step.
    Waiting,
    /// Its step starts at a known time; an event will tell.
    Armed,
    /// It works; the ends of its arrivals may be unknown.
    Running,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct BlockState {
    pub phase: Phase,
    /// Index into the steps of its collective.
    pub step: u32,
    /// When it could enter the step.
    pub ready: Stamp,
    /// When the step starts, once armed.
    pub start: Stamp,
}

/// A message's place; a connection has as many as credits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    /// First byte at the receiver.
    pub first: Stamp,
    /// The sender's start and work, to attribute the flow's time.
    pub sent: Stamp,
    pub work: u64,
    /// Last byte has left the sender's threads (and fence).
    pub done: Option<Stamp>,
    /// The flow has ended.
    pub flowed: Option<Stamp>,
    /// Last byte at the receiver.
    pub last: Option<Stamp>,
    /// When the receiver began to fetch from staging memory.
    pub fetching: Stamp,
    /// The receiver's own fetch from staging memory has ended.
    pub fetched: Option<Stamp>,
    /// When the sender knows that the slot is free again.
    pub freed: Stamp,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ConnectionState {
    pub sent: u64,
    pub received: u64,
    pub freed: u64,
    /// The block that receives next, when one has looked.
    pub receiver: Option<u32>,
    /// The block that sends next, when one has looked.
    pub sender: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RankState {
    pub entry: u32,
    pub repeat: u32,
    pub operation: u32,
    /// When its stream is free.
    pub ready: Stamp,
    /// Kernels launched so far.
    pub launched: u64,
    /// Blocks of the current collective that have not ended.
    pub blocks_left: u32,
    /// The latest end of those that have.
    pub end: Stamp,
    /// When the current operation's kernel started.
    pub started: u64,
    pub finished: bool,
}

/// A collective that some ranks have reached and not all have left.
#[derive(Clone, Debug)]
pub(super) struct Instance {
    pub entry: u32,
    pub repeat: u32,
    pub operation: u32,
    pub collective: u32,
    pub arrivals: Vec<u64>,
    pub ends: Vec<u64>,
    pub members: usize,
}

/// Where a collective's blocks, connections and slots lie in the state's arrays.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub block: u32,
    pub connection: u32,
    pub slot: u32,
}

pub(super) struct State {
    pub ranks: Vec<RankState>,
    pub blocks: Vec<BlockState>,
    /// Which collective each block belongs to.
    pub collective_of: Vec<u32>,
    pub connections: Vec<ConnectionState>,
    pub slots: Vec<Slot>,
    /// The connection (global index) of each slot.
    pub connection_of: Vec<u32>,
    pub layouts: Vec<Layout>,
    pub fabric: Fabric,
    pub instances: Vec<Instance>,
    pub totals: Vec<CollectiveTotals>,
    pub now: u64,
}

impl State {
    pub fn new(program: &Program) -> State {
        let (mut blocks, mut collective_of, mut connections) = (Vec::new(), Vec::new(), Vec::new());
        let (mut connection_of, mut layouts) = (Vec::new(), Vec::new());
        for (index, timed) in program.collectives.iter().enumerate() {
            layouts.push(Layout {
                block: index32(blocks.len()),
                connection: index32(connections.len()),
                slot: index32(connection_of.len()),
            });
            for block in &timed.blocks {
                blocks.push(BlockState { phase: Phase::Idle, step: block.steps.0, ready: Stamp::default(), start: Stamp::default() });
                collective_of.push(index32(index));
            }
            for connection in &timed.connections {
                connection_of.extend((0..connection.credits).map(|_| index32(connections.len())));
                connections.push(ConnectionState::default());
            }
        }
        let slots = connection_of.len();
        let rank = RankState {
            entry: 0,
            repeat: 0,
            operation: 0,
            ready: Stamp::default(),
            launched: 0,
            blocks_left: 0,
            end: Stamp::default(),
            started: 0,
            finished: false,
        };
        State {
            ranks: vec![rank; program.ranks],
            blocks,
            collective_of,
            connections,
            slots: vec![Slot::default(); slots],
            connection_of,
            layouts,
            // Each message has a flow, and a second one where it is staged.
            fabric: Fabric::new(&program.network, 2 * slots),
            instances: Vec::new(),
            totals: vec![CollectiveTotals::default(); program.collectives.len()],
            now: 0,
        }
    }
}
