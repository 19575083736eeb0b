//! Collectives as schedules over plain ranks.
//!
//! A [`Schedule`] says which thread block of which rank waits for what, works
//! on which bytes and sends to whom, step by step, exactly as the real kernels
//! do it. It knows no machine and no time. The same schedule is timed by the
//! simulator and run on real numbers in [`numeric`], which is how we know that
//! what is timed would also be right.
//!
//! One file a family of schedules: [`ring`], [`tree`] and [`gather`] as NCCL
//! runs them; [`one_shot`], [`packet`] and [`symmetric`] in one or two hops;
//! [`hierarchical`] and [`staged`] over [`islands`]; [`host`] through host
//! memory; [`copy_ring`] by copy engines; [`exchange`] for everything that does
//! not sum over all.

pub mod copy_ring;
pub mod exchange;
pub mod gather;
pub mod hierarchical;
pub mod host;
pub mod islands;
pub mod numeric;
pub mod one_shot;
pub mod packet;
pub mod ring;
pub mod staged;
pub mod symmetric;
pub mod tree;
pub mod twins;

/// How a message travels on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// Lines of 4 B data and 4 B flag, twice: 16 B on the wire carry 8 B. Cuts through.
    Ll,
    /// Lines of 128 B of which 120 B are data. Cuts through.
    Ll128,
    /// Raw data, then a fence, then a counter.
    Simple,
    /// MSCCL++'s LL16: packets of 8 B data and two flags of 4 B. Cuts through.
    Packet,
    /// MSCCL++'s LL8: packets of 4 B data and a flag of 4 B. Cuts through.
    Packet8,
    /// Raw packs of 16 B into memory that holds a mark for "empty" (negative
    /// zero, or zero): that the mark is gone is the arrival, and the receiver
    /// puts it back. Cuts through.
    Sentinel,
    /// Elements of 8 bits for elements of 16, with a scale a group, then a
    /// fence, then a flag.
    Fp8,
    /// A flag alone: a barrier's arrival.
    Flag,
    /// The receiver reads the sender's memory; the sender takes no part.
    Read,
}

impl Protocol {
    /// Bytes on the wire for `bytes` of data, packet headers aside.
    pub fn wire_bytes(self, bytes: u64) -> u64 {
        match self {
            Protocol::Ll | Protocol::Packet => bytes.div_ceil(8) * 16,
            Protocol::Packet8 => bytes.div_ceil(4) * 8,
            Protocol::Ll128 => bytes.div_ceil(120) * 128,
            Protocol::Simple | Protocol::Read | Protocol::Sentinel => bytes,
            Protocol::Fp8 => bytes.div_ceil(2) + bytes.div_ceil(FP8_GROUP_BYTES) * FP8_SCALE_BYTES,
            Protocol::Flag => 0,
        }
    }

    /// Bytes of data that a thread moves with one memory operation.
    pub fn thread_bytes(self) -> u64 {
        match self {
            Protocol::Packet8 | Protocol::Flag => 4,
            Protocol::Ll | Protocol::Packet => 8,
            // 32 threads move 1,920 B, data and flags in 16-byte operations.
            Protocol::Ll128 => 15,
            Protocol::Simple | Protocol::Read | Protocol::Sentinel | Protocol::Fp8 => 16,
        }
    }

    /// Whether a receiver can work on the first bytes before the last arrive.
    pub fn cuts_through(self) -> bool {
        matches!(self, Protocol::Ll | Protocol::Ll128 | Protocol::Packet | Protocol::Packet8 | Protocol::Sentinel)
    }
}

/// Bytes of 16-bit data that share a scale: 128 elements, as block-wise FP8 has them.
const FP8_GROUP_BYTES: u64 = 256;
/// Bytes of a scale (f32).
const FP8_SCALE_BYTES: u64 = 4;

/// A directed stream of messages between two ranks, first in, first out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Connection {
    /// The rank that sends, or whose memory is read.
    pub source: usize,
    /// The rank that receives, or that reads.
    pub target: usize,
    /// How its messages travel.
    pub protocol: Protocol,
    /// Messages that may be under way before the receiver has freed one.
    pub credits: u32,
}

/// Which memory of its rank a step works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Buffer {
    /// The user's buffer: input and, in place, output.
    User,
    /// Intermediate results that peers may read.
    Scratch,
}

/// One step of a thread block: wait for all of `receive`, combine, store, send.
///
/// The value of a step is the sum of what it received and, if `own`, of its
/// rank's bytes `offset..offset + bytes` of `source`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// Connections from which one message each is taken: a range of [`Schedule::lists`].
    pub receive: ListRange,
    /// Connections on which the value is sent: a range of [`Schedule::lists`].
    pub send: ListRange,
    /// First byte.
    pub offset: u64,
    /// Bytes; zero for barriers and empty slices.
    pub bytes: u64,
    /// Whether the rank's own bytes are part of the value.
    pub own: bool,
    /// Whether the value is stored in `target`.
    pub store: bool,
    /// Where own bytes come from, and where peers' reads look.
    pub source: Buffer,
    /// Where the value is stored.
    pub target: Buffer,
}

/// A range of [`Schedule::lists`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ListRange {
    /// First index.
    pub start: u32,
    /// How many.
    pub len: u32,
}

impl ListRange {
    /// As a range of indices.
    pub fn indices(self) -> std::ops::Range<usize> {
        self.start as usize..(self.start + self.len) as usize
    }
}

/// What runs a block's steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Engine {
    /// Threads of a streaming multiprocessor.
    Threads,
    /// A copy engine, fed from the stream.
    CopyEngine,
}

/// A thread block, or one role (warps) of a block, of one rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// Its rank.
    pub rank: usize,
    /// Its channel: blocks of one rank and channel share a multiprocessor.
    pub channel: u32,
    /// Threads that move data.
    pub threads: u32,
    /// Threads of the whole block, for the cost of its launch and barriers.
    pub block_threads: u32,
    /// What runs it.
    pub engine: Engine,
    /// In order.
    pub steps: Vec<Step>,
}

/// A collective over `ranks` plain ranks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    /// How many ranks.
    pub ranks: usize,
    /// Size of each rank's user buffer in bytes.
    pub user_bytes: u64,
    /// Streams of messages.
    pub connections: Vec<Connection>,
    /// Connection indices, referred to by steps.
    pub lists: Vec<u32>,
    /// Thread blocks; those of one rank start together and end the rank's part together.
    pub blocks: Vec<Block>,
    /// Where every rank finds the result.
    pub result: Buffer,
    /// Work of the same kernel beside the collective, e.g. a fused norm: bytes
    /// of device memory each rank reads and writes after its last step.
    pub epilogue_bytes: u64,
}

impl Schedule {
    /// An empty schedule.
    pub fn new(ranks: usize, user_bytes: u64) -> Schedule {
        Schedule {
            ranks,
            user_bytes,
            connections: Vec::new(),
            lists: Vec::new(),
            blocks: Vec::new(),
            result: Buffer::User,
            epilogue_bytes: 0,
        }
    }

    /// Adds a connection and returns its index.
    pub fn connect(&mut self, source: usize, target: usize, protocol: Protocol, credits: u32) -> u32 {
        self.connections.push(Connection { source, target, protocol, credits });
        u32::try_from(self.connections.len() - 1).expect("fewer than 2^32 connections")
    }

    /// The same schedule for a group inside a larger one: rank `r` becomes
    /// `members[r]` of `ranks`; the others have nothing to do. Shards stay where
    /// they were.
    #[must_use]
    pub fn among(mut self, members: &[usize], ranks: usize) -> Schedule {
        let seat = |rank: usize| members.get(rank).copied().unwrap_or(rank);
        for connection in &mut self.connections {
            (connection.source, connection.target) = (seat(connection.source), seat(connection.target));
        }
        for block in &mut self.blocks {
            block.rank = seat(block.rank);
        }
        self.ranks = ranks;
        self
    }

    /// Both schedules in one kernel launch: their ranks are the same ones, their
    /// messages do not meet. Buffers and shards stay where they were.
    #[must_use]
    pub fn beside(mut self, other: Schedule) -> Schedule {
        let connections = u32::try_from(self.connections.len()).expect("fewer than 2^32 connections");
        let lists = u32::try_from(self.lists.len()).expect("fewer than 2^32 list entries");
        self.connections.extend(other.connections);
        self.lists.extend(other.lists.into_iter().map(|connection| connection + connections));
        self.blocks.extend(other.blocks.into_iter().map(|mut block| {
            for step in &mut block.steps {
                step.receive.start += lists;
                step.send.start += lists;
            }
            block
        }));
        self.ranks = self.ranks.max(other.ranks);
        self.user_bytes = self.user_bytes.max(other.user_bytes);
        self.epilogue_bytes = self.epilogue_bytes.max(other.epilogue_bytes);
        self
    }

    /// Adds a list of connections for a step to refer to; those of neighbouring steps are often the same.
    pub fn list(&mut self, connections: &[u32]) -> ListRange {
        let len = u32::try_from(connections.len()).expect("a short list");
        let last = self.lists.len().saturating_sub(2 * connections.len());
        if let Some(place) = self.lists[last..].windows(connections.len().max(1)).position(|known| known == connections) {
            return ListRange { start: u32::try_from(last + place).expect("fewer than 2^32 list entries"), len };
        }
        let start = u32::try_from(self.lists.len()).expect("fewer than 2^32 list entries");
        self.lists.extend_from_slice(connections);
        ListRange { start, len }
    }

    /// Connections that a step receives from.
    pub fn receives(&self, step: &Step) -> &[u32] {
        &self.lists[step.receive.indices()]
    }

    /// Connections that a step sends on.
    pub fn sends(&self, step: &Step) -> &[u32] {
        &self.lists[step.send.indices()]
    }

    /// Data bytes that each connection carries over the whole schedule.
    pub fn bytes_by_connection(&self) -> Vec<u64> {
        let mut bytes = vec![0; self.connections.len()];
        for step in self.blocks.iter().flat_map(|block| &block.steps) {
            for &connection in self.sends(step) {
                bytes[connection as usize] += step.bytes;
            }
            for &connection in self.receives(step) {
                if self.connections[connection as usize].protocol == Protocol::Read {
                    bytes[connection as usize] += step.bytes;
                }
            }
        }
        bytes
    }
}

/// A contiguous part of a message that one channel works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Channel.
    pub channel: u32,
    /// First byte of the message.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Most bytes that one primitive moves (data, not wire).
    pub chunk_bytes: u64,
}

/// How a NCCL-like kernel is launched: what a ring or a tree is built from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelShape {
    /// LL, LL128 or Simple.
    pub protocol: Protocol,
    /// Threads that move data; in a tree those that reduce upwards.
    pub threads: u32,
    /// Threads that broadcast downwards in a tree, at the same time.
    pub broadcast_threads: u32,
    /// Threads of the block.
    pub block_threads: u32,
    /// Steps of a connection's buffer that one slice takes (of 8).
    pub slice_steps: u32,
    /// Steps that one chunk takes (of 8).
    pub chunk_steps: u32,
    /// Smallest slice in bytes.
    pub slice_bytes_min: u64,
    /// One entry per channel in use.
    pub parts: Vec<Part>,
}

/// Steps of buffer per connection, NCCL_STEPS.
pub const BUFFER_STEPS: u32 = 8;

impl KernelShape {
    /// Messages in flight per connection.
    pub fn credits(&self) -> u32 {
        BUFFER_STEPS / self.slice_steps.max(1)
    }

    /// The slices of a primitive of `bytes`: NCCL cuts a chunk into
    /// `chunk_steps / slice_steps` slices but no smaller than the floor, and
    /// runs the empty ones too (prims_simple.h).
    pub fn slices(&self, bytes: u64) -> impl Iterator<Item = u64> + use<> {
        let count = u64::from((self.chunk_steps / self.slice_steps.max(1)).max(1));
        let slice = if count == 1 { bytes } else { (bytes.div_ceil(16 * count) * 16).max(self.slice_bytes_min) };
        (0..count).map(move |i| bytes.saturating_sub(i * slice).min(slice))
    }
}

/// Builds one block's steps with less to repeat.
pub(crate) struct StepBuilder<'a> {
    /// The schedule under construction.
    pub schedule: &'a mut Schedule,
    /// The block's steps so far.
    pub steps: Vec<Step>,
}

impl StepBuilder<'_> {
    /// A step on the user's buffer.
    pub fn user(&mut self, receive: &[u32], send: &[u32], offset: u64, bytes: u64, own: bool, store: bool) {
        self.push(receive, send, offset, bytes, (own, Buffer::User), (store, Buffer::User));
    }

    /// A step between any buffers; each pair says whether and which.
    pub fn push(&mut self, receive: &[u32], send: &[u32], offset: u64, bytes: u64, own: (bool, Buffer), store: (bool, Buffer)) {
        let receive = self.schedule.list(receive);
        let send = self.schedule.list(send);
        self.steps.push(Step { receive, send, offset, bytes, own: own.0, store: store.0, source: own.1, target: store.1 });
    }
}
