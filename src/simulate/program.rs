//! What every rank does, operation by operation: the simulator's input.

use std::sync::Arc;

use super::network::Network;
use super::stamp::Part;
use super::stamp::Stamp;
use super::timed::Timed;

/// A whole run: templates repeated in order, on a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Ranks, at most 64.
    pub ranks: usize,
    /// Blocks of operations.
    pub templates: Vec<Template>,
    /// Which template, how often and for whom, in order.
    pub sequence: Vec<Run>,
    /// Collectives that operations refer to.
    pub collectives: Vec<Arc<Timed>>,
    /// Links and routes.
    pub network: Network,
    /// How kernels are launched.
    pub launch: Launch,
}

/// A template taken several times in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Index into [`Program::templates`].
    pub template: u32,
    /// How often.
    pub repeats: u32,
    /// Bit `r` is set when rank `r` takes part; the others pass by.
    pub members: u64,
}

/// A block of operations in the order of each rank's stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    /// The operations.
    pub operations: Vec<Operation>,
}

/// One operation of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Kernels that need no other rank.
    Compute {
        /// Picoseconds on each rank; one entry stands for all.
        ps: Vec<u64>,
        /// Kernels.
        launches: u32,
    },
    /// A collective.
    Collective {
        /// Index into [`Program::collectives`].
        collective: u32,
        /// How many of the next operations of the template (computations all)
        /// run beside it; the one after them waits for both.
        beside: u32,
    },
}

/// How kernels reach the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launch {
    /// Replayed from one graph: a gap before each kernel.
    Graph {
        /// From a kernel's end to the start of the next.
        gap: u64,
    },
    /// Launched one by one while the GPU works.
    Eager {
        /// From a kernel's end to the start of the next that is already queued.
        gap: u64,
        /// What a GPU needs to take one launch from each queue that it has: shorter kernels wait for their turn.
        round: u64,
        /// Host time of one launch.
        issue: u64,
        /// Whether one host thread launches for all ranks in turn.
        shared_thread: bool,
    },
}

impl Launch {
    /// Gap before each kernel.
    pub fn gap(self) -> u64 {
        match self {
            Launch::Graph { gap } | Launch::Eager { gap, .. } => gap,
        }
    }

    /// Gaps before the kernels of a computation of so many picoseconds and launches. Kernels
    /// that are shorter than a round of the GPU's queues wait for their turn in it.
    fn gaps(self, ps: u64, launches: u32) -> u64 {
        let launches = u64::from(launches);
        match self {
            Launch::Graph { gap } => gap * launches,
            Launch::Eager { gap, round, .. } => (gap * launches).max((round * launches).saturating_sub(ps)),
        }
    }

    /// When the host has issued the `nth` kernel of an operation of `launches`
    /// kernels, each rank having launched `before` kernels earlier. A thread
    /// that launches for all ranks goes through them operation by operation.
    pub fn issued(self, ranks: usize, rank: usize, before: u64, launches: u32, nth: u32) -> u64 {
        match self {
            Launch::Graph { .. } => 0,
            Launch::Eager { issue, shared_thread: false, .. } => (before + u64::from(nth)) * issue,
            Launch::Eager { issue, shared_thread: true, .. } => {
                (before * ranks as u64 + u64::from(launches) * rank as u64 + u64::from(nth)) * issue
            }
        }
    }
}

impl Program {
    /// When the first of `launches` kernels of a rank can start that is `ready` and has
    /// launched `before`, all gaps counted.
    pub(super) fn launch_from(&self, rank: usize, ready: Stamp, before: u64, launches: u32) -> Stamp {
        self.after_gaps(rank, ready, before, launches, self.launch.gap() * u64::from(launches))
    }

    fn after_gaps(&self, rank: usize, ready: Stamp, before: u64, launches: u32, gaps: u64) -> Stamp {
        if launches == 0 {
            return ready;
        }
        let issued = self.launch.issued(self.ranks, rank, before, launches, 1);
        ready.after(Part::Launch, gaps).until(Part::Launch, issued)
    }

    /// Start and end of a computation of so many picoseconds and kernels.
    pub(super) fn computed(&self, rank: usize, ready: Stamp, before: u64, (ps, launches): (u64, u32)) -> (Stamp, Stamp) {
        let start = self.after_gaps(rank, ready, before, launches, self.launch.gaps(ps, launches));
        let mut end = start.after(Part::Compute, ps);
        if launches > 1 {
            // The last kernel cannot start before the host has issued it.
            let issued = self.launch.issued(self.ranks, rank, before, launches, launches);
            end = end.until(Part::Launch, issued + ps / u64::from(launches));
        }
        (start, end)
    }
}

/// What to keep and what to skip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Skip blocks whose whole relative state has been seen before.
    pub reuse: bool,
    /// Keep start and end of each operation of each rank.
    pub records: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { reuse: true, records: false }
    }
}
