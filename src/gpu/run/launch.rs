//! Launches of the compute kernels as data: which function, on which grid, with
//! which words. One function here a kernel; the words are the fields of its
//! structure in `kernels/`, each of 8 bytes, in order.

use cudarc::driver::CudaFunction;
use cudarc::driver::CudaStream;
use cudarc::driver::DeviceRepr;
use cudarc::driver::LaunchConfig;
use cudarc::driver::PushKernelArg;

use crate::error::Result;
use crate::gpu::fault::Explain;
use crate::gpu::run::weights::Matrix;

/// Most words of a kernel's structure.
const WORDS_MAX: usize = 20;

/// A kernel's argument.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Words([u64; WORDS_MAX]);

impl Words {
    /// Gives one word another value.
    pub fn set(&mut self, at: usize, word: u64) {
        self.0[at] = word;
    }
}

// SAFETY: plain integers; a kernel reads no more of them than it declares.
unsafe impl DeviceRepr for Words {}

/// One launch, not yet compiled.
#[derive(Clone, Debug)]
pub struct Launch {
    /// File in `kernels/`.
    pub source: &'static str,
    /// Function in it.
    pub function: &'static str,
    /// Macros of its variant.
    pub macros: Vec<(&'static str, u32)>,
    /// Blocks in three directions.
    pub grid: (u32, u32, u32),
    /// Threads of a block.
    pub threads: u32,
    /// What it is given.
    pub words: Words,
}

/// A launch with its loaded function.
#[derive(Clone)]
pub struct Ready {
    /// The function.
    pub function: CudaFunction,
    /// Grid and block.
    pub config: LaunchConfig,
    /// What it is given.
    pub words: Words,
}

impl Ready {
    /// Puts it on a stream.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn enqueue(&self, stream: &CudaStream) -> Result<()> {
        let mut launch = stream.launch_builder(&self.function);
        launch.arg(&self.words);
        // SAFETY: the words are those that the kernel declares, with addresses
        // of buffers that live as long as the ranks.
        unsafe { launch.launch(self.config) }.explain("launch a compute kernel")?;
        Ok(())
    }
}

impl Launch {
    fn new(source: &'static str, function: &'static str, grid: (u64, u64, u64), threads: u32, words: &[u64]) -> Launch {
        let mut all = [0; WORDS_MAX];
        all[..words.len()].copy_from_slice(words);
        let small = |n: u64| u32::try_from(n.max(1)).unwrap_or(u32::MAX);
        let grid = (small(grid.0), small(grid.1), small(grid.2));
        Launch { source, function, macros: Vec::new(), grid, threads, words: Words(all) }
    }

    /// As cudarc wants it.
    pub fn config(&self) -> LaunchConfig {
        LaunchConfig { grid_dim: self.grid, block_dim: (self.threads, 1, 1), shared_mem_bytes: 0 }
    }
}

fn real(x: f64) -> u64 {
    u64::from((x as f32).to_bits())
}

/// Rows of activations (or of experts' pairs) and where they lie.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// Address of the first.
    pub at: u64,
    /// Elements from one to the next.
    pub row: u64,
    /// Elements from one batch (head) to the next; 0 without batches.
    pub batch: u64,
}

impl Rows {
    /// Rows without batches.
    pub fn plain(at: u64, row: u64) -> Rows {
        Rows { at, row, batch: 0 }
    }
}

/// The list of distinct experts, for products of experts.
#[derive(Clone, Copy, Debug)]
pub struct Entries {
    /// Address of the entries.
    pub at: u64,
    /// Address of their number.
    pub count_at: u64,
    /// Most entries that there can be.
    pub most: u64,
    /// Rows of the output that share a row of the input.
    pub divisor: u64,
}

/// Warps that share a row of tiles: as many as leave each about eight tiles.
fn split(steps: u64) -> u32 {
    match steps {
        0..=12 => 1,
        13..=24 => 2,
        25..=48 => 4,
        _ => 8,
    }
}

/// A product: `rows` of `x` by a matrix (or one a batch, or the experts'),
/// times `alpha`.
pub fn matvec(matrix: &Matrix, weights: (u64, u64), x: Rows, y: Rows, rows: u64, alpha: f64, entries: Option<Entries>) -> Launch {
    let split = split(matrix.steps());
    let tiles_a_block = u64::from(8 / split);
    let blocks = matrix.n.div_ceil(16).div_ceil(tiles_a_block);
    let (batches, chunks) = match &entries {
        Some(entries) => (entries.most, 1),
        None => (matrix.count, rows.div_ceil(8)),
    };
    let list = entries.map_or([0, 0], |e| [e.at, e.count_at]);
    let words = [
        weights.0,
        weights.1,
        x.at,
        y.at,
        0,
        list[0],
        list[1],
        matrix.n,
        matrix.steps(),
        rows,
        x.row,
        x.batch,
        y.row,
        y.batch,
        matrix.bytes(),
        matrix.scales(),
        entries.map_or(1, |e| e.divisor),
        real(alpha),
    ];
    let mut launch = Launch::new("matvec", "matvec", (blocks, batches, chunks), 256, &words);
    launch.macros = vec![("DTYPE", matrix.store.macro_value()), ("KSPLIT", split)];
    launch
}

/// What is added to the mean square.
pub const EPSILON: f64 = 1e-6;

/// RMSNorm of `rows` x `batches` rows of `width`; `residual` is (added, kept), 0 for none.
pub fn rms_norm(input: Rows, residual: (u64, u64), weight: u64, output: Rows, width: u64, rows: u64, batches: u64) -> Launch {
    let words = [input.at, residual.0, residual.1, weight, output.at, width, input.row, output.row, input.batch, real(EPSILON)];
    let threads = (width / 4).next_multiple_of(32).clamp(32, 512) as u32;
    Launch::new("elementwise", "rms_norm", (rows, batches, 1), threads, &words)
}

/// Rotary positions of `rows` x `heads` heads; `copied` goes along unturned.
pub fn rotate(source: Rows, target: Rows, width: u64, table: u64, copied: Option<(Rows, Rows, u64)>, rows: u64, heads: u64) -> Launch {
    let none = Rows::plain(0, 0);
    let (from, to, copy_width) = copied.unwrap_or((none, none, 0));
    let words = [
        source.at,
        source.row,
        source.batch,
        target.at,
        target.row,
        target.batch,
        width,
        table,
        from.at,
        from.row,
        from.batch,
        to.at,
        to.row,
        to.batch,
        copy_width,
    ];
    let threads = (width / 2).max(copy_width).next_multiple_of(32).clamp(32, 512) as u32;
    Launch::new("elementwise", "rotate", (rows, heads, 1), threads, &words)
}

/// `silu(gate) x up` for `rows` rows of two `width`s.
pub fn activate(input: Rows, output: Rows, width: u64, rows: u64) -> Launch {
    let words = [input.at, output.at, width, input.row, output.row, 0, 0];
    Launch::new("elementwise", "activate", ((width / 2).div_ceil(256), rows, 1), 256, &words)
}

/// Sum of two buffers of `elements`.
pub fn add(first: u64, second: u64, output: u64, elements: u64) -> Launch {
    Launch::new("elementwise", "add", ((elements / 2).div_ceil(256), 1, 1), 256, &[first, second, output, elements / 2])
}

/// Weighted sum of each token's experts.
pub fn combine(parts: u64, weights: u64, output: u64, width: u64, top_k: u64, tokens: u64) -> Launch {
    Launch::new("elementwise", "combine", ((width / 2).div_ceil(256), tokens, 1), 256, &[parts, weights, output, width / 2, top_k])
}

/// Rows of the embedding's share `[first, first + share)`.
pub fn embed(tokens: u64, table: u64, output: u64, width: u64, first: u64, share: u64, rows: u64) -> Launch {
    Launch::new("elementwise", "embed", ((width / 2).div_ceil(256), rows, 1), 256, &[tokens, table, output, width / 2, first, share])
}

/// What [`fill`] writes.
#[derive(Clone, Copy, Debug)]
pub enum Contents {
    /// Random bits.
    Bits,
    /// Four-bit integers from -7 to 7, stored plus 8, of mean 0.
    Integers,
    /// bf16, uniform from the first number to the second.
    Uniform(f64, f64),
    /// Exponents 125 to 127.
    Exponents,
}

/// Random contents of `bytes` from a seed.
pub fn fill(target: u64, bytes: u64, seed: u64, contents: Contents) -> Launch {
    let (shape, low, span) = match contents {
        Contents::Bits => (0, 0.0, 0.0),
        Contents::Integers => (3, 0.0, 0.0),
        Contents::Uniform(low, high) => (1, low, high - low),
        Contents::Exponents => (2, 0.0, 0.0),
    };
    let words = [target, bytes / 4, seed, shape, real(low), real(span)];
    Launch::new("elementwise", "fill", ((bytes / 4).div_ceil(512).min(4096), 1, 1), 512, &words)
}

/// The best `top_k` of `experts` scores a token.
pub fn top_k(scores: u64, correction: u64, chosen: u64, weights: u64, experts: u64, top_k: u64, tokens: u64) -> Launch {
    Launch::new("router", "top_k", (tokens, 1, 1), 32, &[scores, correction, chosen, weights, experts, top_k])
}

/// The list of distinct experts.
pub fn align(chosen: u64, entries: u64, entry_count: u64, pairs: u64, experts: u64) -> Launch {
    Launch::new("router", "align", (1, 1, 1), 512, &[chosen, entries, entry_count, pairs, experts])
}

/// Shape of one attention.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Width of a key and of a value.
    pub widths: (u64, u64),
    /// Elements of a line of the cache.
    pub line: u64,
    /// Elements from one head's key to the next, start of the values, and from one value to the next.
    pub places: (u64, u64, u64),
    /// Query heads and key-value heads.
    pub heads: (u64, u64),
    /// Tokens of the pass, cached positions, window (0: all).
    pub tokens: u64,
    /// See `tokens`.
    pub context: u64,
    /// See `tokens`.
    pub window: u64,
    /// Factor of the scores.
    pub scale: f64,
}

/// Blocks over the positions at most.
const SPLITS_MAX: u64 = 64;
/// Positions that a block takes at a time; the kernel's `POSITIONS`.
const POSITIONS: u64 = 16;
/// Rows of queries of a block; the kernel's `Q_ROWS`.
const QUERY_ROWS: u64 = 16;

impl Heads {
    /// Positions of a split and number of splits.
    pub fn splits(&self) -> (u64, u64) {
        let all = self.context + self.tokens;
        let each = all.div_ceil(SPLITS_MAX).next_multiple_of(POSITIONS);
        (each, all.div_ceil(each))
    }

    fn rows(&self) -> u64 {
        self.tokens * self.heads.0
    }

    /// Bytes of the parts and of their sums.
    pub fn scratch(&self) -> (u64, u64) {
        let parts = self.splits().1 * self.rows();
        (parts * self.widths.1 * 4, parts * 8)
    }
}

/// Attention: the walk over the cache, then the join of its parts.
pub fn attention(heads: &Heads, query: u64, cache: u64, scratch: (u64, u64), output: u64, sinks: u64) -> [Launch; 2] {
    let macros = vec![("KEY_WIDTH", heads.widths.0 as u32), ("VALUE_WIDTH", heads.widths.1 as u32)];
    let (each, splits) = heads.splits();
    let group = heads.heads.0 / heads.heads.1.max(1);
    let words = [
        query,
        cache,
        scratch.0,
        scratch.1,
        heads.line,
        heads.places.0,
        heads.places.1,
        heads.places.2,
        heads.heads.0,
        group,
        heads.tokens,
        heads.context,
        heads.window,
        each,
        real(heads.scale),
    ];
    let grid = (splits, (heads.tokens * group).div_ceil(QUERY_ROWS), heads.heads.1);
    let mut walk = Launch::new("attention", "attention_split", grid, 256, &words);
    walk.macros.clone_from(&macros);
    let words = [scratch.0, scratch.1, output, sinks, heads.heads.0, heads.rows(), splits];
    let mut join = Launch::new("attention", "attention_join", (heads.rows(), 1, 1), 256, &words);
    join.macros = macros;
    [walk, join]
}

/// The most likely token of each row, in two kernels.
pub fn sample(logits: u64, best: u64, tokens: u64, ranks: u64, rows: u64, share: u64, vocabulary: u64) -> [Launch; 2] {
    let words = [logits, best, tokens, ranks, rows, share, vocabulary];
    [Launch::new("sample", "sample_parts", (64, rows, 1), 256, &words), Launch::new("sample", "sample_last", (rows, 1, 1), 64, &words)]
}
