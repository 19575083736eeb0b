//! The state of a run between two events.

use super::layout::Layout;
use super::outcome::CollectiveTotals;
use super::program::Program;
use super::stamp::Stamp;

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
    /// Index into the steps of the layout.
    pub step: u32,
    /// The leg that it waits for; those before have been taken into account.
    pub leg: u32,
    /// When the step starts; while waiting, as far as known.
    pub start: Stamp,
    /// While running: when the step is done, as far as known. Before: when the
    /// block was ready for the step.
    pub done: Stamp,
}

/// A message's place; a connection has as many as credits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slot {
    /// The sender's start.
    pub sent: Stamp,
    /// Until the message has left its sender: nothing; then when it did
    /// (fence included); with `arrived`, its last byte's arrival.
    pub last: Stamp,
    /// When the sender knows that the slot is free again.
    pub freed: Stamp,
    /// From the sender's start to the first byte out, and to the last.
    pub first: u64,
    pub work: u64,
    /// From the sender's start to the end of its flow, once it has ended.
    pub flowed: Option<u64>,
    /// Last byte has left the sender's threads (and fence).
    pub left: bool,
    /// Both of the above: `last` is the arrival.
    pub arrived: bool,
}

/// The receiver's own fetch of a message from staging memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fetching {
    pub started: Stamp,
    pub ended: Option<Stamp>,
}

/// Its messages in flight are those from `receives` on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ConnectionState {
    /// Messages sent and not yet received (or pulled and not yet in).
    pub in_flight: u32,
    /// Slots of the next message to be sent and received, counted within the connection.
    pub sends: u32,
    pub receives: u32,
    /// The block that receives next, when one waits.
    pub receiver: Option<u32>,
    /// The block that sends next, when one waits.
    pub sender: Option<u32>,
    /// Wire bytes of all messages sent and received.
    pub bytes_sent: u64,
    pub bytes_received: u64,
}

#[derive(Clone, Copy, Debug, Default)]
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
    /// The collective it is in, and how many times it had entered that before.
    pub collective: u32,
    pub nth: u64,
    /// The latest end of the blocks that have.
    pub end: Stamp,
    /// When the current operation's kernel started.
    pub started: u64,
    /// The operation whose collective is under way beside the stream.
    pub open: Option<u32>,
    /// Operations that still run beside it.
    pub beside: u32,
    pub finished: bool,
}

/// A collective that some ranks have reached and not all have left: the `nth`
/// time for each of them, wherever in its sequence a rank stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instance {
    pub collective: u32,
    pub nth: u64,
    pub arrived: u32,
    pub left: u32,
    pub first_arrival: u64,
    pub last_arrival: u64,
    pub last_end: u64,
    /// Σ arrivals and Σ ends.
    pub arrivals: u128,
    pub ends: u128,
}

pub(super) struct State {
    pub ranks: Vec<RankState>,
    pub blocks: Vec<BlockState>,
    pub connections: Vec<ConnectionState>,
    pub slots: Vec<Slot>,
    /// One a slot if any connection is staged, else none.
    pub fetches: Vec<Fetching>,
    pub instances: Vec<Instance>,
    /// How many times each rank has entered each collective: `[rank * collectives + collective]`.
    pub entered: Vec<u64>,
    pub totals: Vec<CollectiveTotals>,
    pub now: u64,
}

impl State {
    pub fn new(program: &Program, layout: &Layout) -> State {
        let idle =
            |steps: (u32, u32)| BlockState { phase: Phase::Idle, step: steps.0, leg: 0, start: Stamp::default(), done: Stamp::default() };
        let slots = layout.connection_of.len();
        State {
            ranks: vec![RankState::default(); program.ranks],
            blocks: layout.blocks.iter().map(|block| idle(block.steps)).collect(),
            connections: vec![ConnectionState::default(); layout.connections.len()],
            slots: vec![Slot::default(); slots],
            fetches: vec![Fetching::default(); if layout.staged { slots } else { 0 }],
            instances: Vec::with_capacity(2 * program.collectives.len()),
            entered: vec![0; program.ranks * program.collectives.len()],
            totals: vec![CollectiveTotals::default(); program.collectives.len()],
            now: 0,
        }
    }
}
