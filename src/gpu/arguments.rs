//! What kernels are given and what they report, laid out as in
//! `kernels/common.cu`.

use cudarc::driver::DeviceRepr;

/// Ranks of a group at most; the kernels' `RANKS_MAX`.
pub const RANKS_MAX: usize = 16;
/// Blocks of one rank at most; the kernels' `BLOCKS_MAX`.
pub const BLOCKS_MAX: u32 = 64;
/// Threads of a block at most; the kernels' `THREADS_MAX`.
pub const THREADS_MAX: u32 = 512;
/// Bytes of a rank's flag region: 2 halves x 4 phases x blocks x ranks x 4 bytes.
pub const FLAG_BYTES: usize = 2 * 4 * BLOCKS_MAX as usize * RANKS_MAX * 4;
/// Words of a [`Report`] in host memory.
pub const REPORT_WORDS: usize = 10;

/// `struct Arguments`; addresses are device addresses, 0 where unused.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Arguments {
    /// This rank's elements.
    pub input: u64,
    /// Where the sum goes.
    pub output: u64,
    /// Elements of one rank.
    pub elements: u64,
    /// Each rank's region for lines.
    pub lines: [u64; RANKS_MAX],
    /// Each rank's region for plain data.
    pub packs: [u64; RANKS_MAX],
    /// Each rank's region for flags.
    pub flags: [u64; RANKS_MAX],
    /// Bytes of one half of a line region.
    pub lines_half_bytes: u64,
    /// Bytes of one half of a pack region.
    pub packs_half_bytes: u64,
    /// This rank's epoch counters and the claim of its report.
    pub epochs: u64,
    /// This rank's report.
    pub report: u64,
    /// The word that ends all waits.
    pub stop: u64,
    /// How long a call may wait, in cycles.
    pub timeout_cycles: u64,
    /// This rank.
    pub rank: u32,
    /// Nothing.
    pub reserved: u32,
}

// SAFETY: plain integers in C layout, as the kernels declare them.
unsafe impl DeviceRepr for Arguments {}

/// `struct Norm` of the fused kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Norm {
    /// `[tokens][hidden]`.
    pub residual: u64,
    /// `[hidden]`.
    pub weight: u64,
    /// `[tokens][hidden]`, written.
    pub residual_out: u64,
    /// `[tokens][hidden]`, written.
    pub normed: u64,
    /// Room for 2 x [`BLOCKS_MAX`] packets of 8 bytes.
    pub partials: u64,
    /// Elements of a row, a multiple of 4.
    pub hidden: u32,
    /// Added to the mean square.
    pub epsilon: f32,
}

// SAFETY: plain numbers in C layout, as the kernel declares them.
unsafe impl DeviceRepr for Norm {}

/// Who waited for whom when a call gave up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The waiting rank.
    pub rank: u32,
    /// Its block.
    pub block: u32,
    /// The thread in it.
    pub thread: u32,
    /// The rank it waited for.
    pub peer: u32,
    /// The step of the algorithm.
    pub phase: u32,
    /// The call's epoch, which the flag should have shown.
    pub epoch: u32,
    /// What the flag showed.
    pub seen: u32,
    /// The line, packet or block waited for.
    pub index: u64,
}

impl Stuck {
    /// From the words of a report; none while it is not filled.
    pub fn from_words(words: &[u32; REPORT_WORDS]) -> Option<Stuck> {
        let [filled, rank, block, thread, peer, phase, epoch, seen, low, high] = *words;
        let index = u64::from(low) | u64::from(high) << 32;
        (filled != 0).then_some(Stuck { rank, block, thread, peer, phase, epoch, seen, index })
    }
}

impl std::fmt::Display for Stuck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Stuck { rank, block, thread, peer, phase, epoch, seen, index } = self;
        write!(
            f,
            "rank {rank} (block {block}, thread {thread}) waited for rank {peer} in phase {phase}, item {index}: expected epoch {epoch}, saw {seen}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_match_the_kernels() {
        // 3 + 3 x 16 + 6 words of 8 bytes, then two of 4: (3 + 48 + 6) x 8 + 8 = 464.
        assert_eq!(std::mem::size_of::<Arguments>(), 464);
        // 5 x 8 + 2 x 4 = 48.
        assert_eq!(std::mem::size_of::<Norm>(), 48);
    }

    #[test]
    fn a_report_names_both_ranks() {
        assert_eq!(Stuck::from_words(&[0; REPORT_WORDS]), None);
        let stuck = Stuck::from_words(&[1, 3, 2, 65, 7, 0, 12, 10, 5, 1]).expect("filled");
        assert_eq!(stuck.index, (1 << 32) + 5);
        assert!(stuck.to_string().starts_with("rank 3 (block 2, thread 65) waited for rank 7"));
    }
}
