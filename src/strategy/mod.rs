//! Ways to communicate: gates, partitions and the lowering of each logical
//! collective to a schedule.

pub mod nccl_schedule;

use crate::collective::Schedule;

/// Whose kernel a schedule is: what its prologue costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kernel {
    /// NCCL's: work list, channels, pointers.
    Nccl,
    /// A custom kernel.
    Custom,
}

/// A collective lowered to a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lowering {
    /// Who sends what to whom.
    pub schedule: Schedule,
    /// Whose kernel runs it.
    pub kernel: Kernel,
    /// Pairs `[source * ranks + target]` that go through host memory; empty when none does.
    pub through_host: Vec<bool>,
}

impl Lowering {
    /// Whether messages of this pair go through host memory.
    pub fn staged(&self, source: usize, target: usize) -> bool {
        self.through_host.get(source * self.schedule.ranks + target).copied().unwrap_or(false)
    }
}
