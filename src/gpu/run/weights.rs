//! Where the weights of a pass lie: pools of random numbers that all layers
//! share, several times as large as the L2, so that each read is cold.
//!
//! Every rank has pools of its own and walks them in step with the others, so
//! that a weight has one offset for all ranks. Sharded pools differ from rank
//! to rank, replicated ones are equal; nothing is ever written to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use cudarc::driver::CudaContext;

use crate::error::{Fault, Result};
use crate::gpu::memory::DeviceBuffer;
use crate::model::Dtype;
use crate::model::Family;
use crate::model::Op;
use crate::plan::Place;
use crate::plan::Planned;

/// A pool of one kind of contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pool {
    /// bf16, uniform with variance 1, other numbers on every rank.
    Sharded,
    /// bf16 as [`Pool::Sharded`], the same on every rank.
    Replicated,
    /// Random bits: int4 or mxfp4 weights, other ones on every rank.
    Nibbles,
    /// Scales of [`Pool::Nibbles`].
    Scales,
    /// bf16 from 0.5 to 1.5, the same on every rank: weights of norms.
    Norms,
    /// bf16 from -0.05 to 0.05, the same on every rank: corrections and sinks.
    Small,
}

impl Pool {
    /// All of them, in the order of [`Pool::index`].
    pub const ALL: [Pool; 6] = [Pool::Sharded, Pool::Replicated, Pool::Nibbles, Pool::Scales, Pool::Norms, Pool::Small];

    fn index(self) -> usize {
        self as usize
    }
}

/// How a weight's numbers are stored; the kernel's `DTYPE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// bf16.
    Bf16,
    /// Four bits, a bf16 scale per 32.
    Int4,
    /// Four bits (e2m1), an exponent per 32.
    Mxfp4,
}

impl Store {
    /// Of a dtype that the kernels know.
    ///
    /// # Errors
    /// `run-model` for others.
    pub fn of(dtype: Dtype) -> Result<Store> {
        match dtype {
            Dtype::Bf16 => Ok(Store::Bf16),
            Dtype::Int4 { group: 32 } => Ok(Store::Int4),
            Dtype::Mxfp4 => Ok(Store::Mxfp4),
            other => Err(Fault::new("run-model", format!("weights stored as {other:?} have no kernel here"))
                .help("bf16, int4 in groups of 32 and mxfp4 have")),
        }
    }

    /// Elements along k of a tile.
    pub fn step(self) -> u64 {
        if self == Store::Bf16 { 16 } else { 64 }
    }

    /// Bytes of scales beside a tile's 512 bytes of weights.
    pub fn scale_bytes(self) -> u64 {
        match self {
            Store::Bf16 => 0,
            Store::Int4 => 64,
            Store::Mxfp4 => 32,
        }
    }

    /// What the kernel is compiled with.
    pub fn macro_value(self) -> u32 {
        self as u32
    }
}

/// One matrix in tiles, or several of the same shape in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// How its numbers are stored.
    pub store: Store,
    /// Outputs.
    pub n: u64,
    /// Inputs.
    pub k: u64,
    /// How many matrices.
    pub count: u64,
}

impl Matrix {
    /// `n` elements of bf16 in a row.
    pub fn vector(n: u64) -> Matrix {
        Matrix { store: Store::Bf16, n, k: 0, count: 1 }
    }
}

impl Matrix {
    /// Tiles along k.
    pub fn steps(&self) -> u64 {
        self.k.div_ceil(self.store.step())
    }

    fn tiles(&self) -> u64 {
        self.n.div_ceil(16) * self.steps()
    }

    /// Bytes of one matrix.
    pub fn bytes(&self) -> u64 {
        self.tiles() * 512
    }

    /// Bytes of the scales of one matrix.
    pub fn scales(&self) -> u64 {
        self.tiles() * self.store.scale_bytes()
    }
}

/// Where a weight lies.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// Its shape; for vectors `n` elements of bf16 and `k` = 0.
    pub matrix: Matrix,
    /// Which pool.
    pub pool: Pool,
    /// Byte in the pool.
    pub offset: u64,
    /// Byte in the pool of scales.
    pub scale_offset: u64,
}

/// All weights of a pass, by place and name (`experts` has `up` and `down`).
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// Where each lies.
    pub placed: BTreeMap<(Place, &'static str), Placed>,
    /// Bytes of each pool.
    pub sizes: [u64; 6],
}

/// Names of the second matrix of an operation and of vectors beside it.
pub const EXPERTS_DOWN: &str = "experts_down";
/// Correction of a router's scores.
pub const CORRECTION: &str = "correction";
/// Sinks of attention.
pub const SINKS: &str = "sinks";
/// Norm weights of the compressed keys or of the heads' keys.
pub const SECOND_NORM: &str = "second_norm";

const ALIGNMENT: u64 = 512;

impl Layout {
    /// Deals places in the order of the plan. `sizes` of the pools are at least
    /// `least` and large enough for the largest single weight; `table` is the
    /// elements of a rank's share of the embedding.
    ///
    /// # Errors
    /// `run-model` for dtypes without a kernel.
    pub fn deal(steps: &[Planned<'_>], hidden: u64, table: u64, least: u64) -> Result<Layout> {
        let mut wanted: Vec<((Place, &'static str), Pool, Matrix)> = Vec::new();
        for planned in steps {
            if let Some(op) = planned.action.compute() {
                wants(op, hidden, table, &mut |name, pool, matrix| wanted.push(((planned.id.place, name), pool, matrix)))?;
            }
        }
        let mut sizes = [0_u64; 6];
        for (_, pool, matrix) in &wanted {
            let whole = (matrix.bytes() * matrix.count).max(matrix.n * 2 * u64::from(matrix.k == 0));
            let size = &mut sizes[pool.index()];
            *size = (*size).max(whole * 9 / 4).max(if matrix.k == 0 { 1 << 20 } else { least });
            if *pool == Pool::Nibbles {
                let scales = &mut sizes[Pool::Scales.index()];
                *scales = (*scales).max(matrix.scales() * matrix.count * 9 / 4).max(least / 8);
            }
        }
        sizes.iter_mut().for_each(|size| *size = size.next_multiple_of(1 << 20));
        let mut layout = Layout { placed: BTreeMap::new(), sizes };
        let mut cursors = [0_u64; 6];
        for (key, pool, matrix) in wanted {
            let bytes = if matrix.k == 0 { matrix.n * 2 } else { matrix.bytes() * matrix.count };
            let offset = take(&mut cursors[pool.index()], sizes[pool.index()], bytes);
            let scales = if matrix.k == 0 { 0 } else { matrix.scales() * matrix.count };
            let scale_offset = take(&mut cursors[Pool::Scales.index()], sizes[Pool::Scales.index()], scales);
            layout.placed.insert(key, Placed { matrix, pool, offset, scale_offset });
        }
        Ok(layout)
    }

    /// Where the weight of an operation lies.
    ///
    /// # Errors
    /// `run-model` when it has none: a mistake of ours.
    pub fn get(&self, place: Place, name: &'static str) -> Result<&Placed> {
        self.placed.get(&(place, name)).ok_or_else(|| Fault::new("run-model", format!("{place}.{name} has no weight")))
    }
}

/// The next `bytes` of a pool that starts over when it is used up.
fn take(cursor: &mut u64, size: u64, bytes: u64) -> u64 {
    if *cursor + bytes > size {
        *cursor = 0;
    }
    let offset = *cursor;
    *cursor += bytes.next_multiple_of(ALIGNMENT);
    offset
}

/// Names the weights of an operation.
fn wants(op: &Op, hidden: u64, table: u64, want: &mut dyn FnMut(&'static str, Pool, Matrix)) -> Result<()> {
    let vector = Matrix::vector;
    let whole = |dtype: Dtype| if dtype == Dtype::Bf16 { Pool::Sharded } else { Pool::Nibbles };
    match op.family {
        Family::Gemm { n, k, .. } => {
            let pool = if op.name == "qkv_a_proj" { Pool::Replicated } else { whole(op.dtype) };
            want(op.name, pool, Matrix { store: Store::of(op.dtype)?, n, k, count: 1 });
        }
        Family::BatchedGemm { batch, n, k, .. } => want(op.name, Pool::Sharded, Matrix { store: Store::Bf16, n, k, count: batch }),
        Family::Experts { intermediate, experts, .. } => {
            let store = Store::of(op.dtype)?;
            want(op.name, whole(op.dtype), Matrix { store, n: 2 * intermediate, k: hidden, count: experts });
            want(EXPERTS_DOWN, whole(op.dtype), Matrix { store, n: hidden, k: intermediate, count: experts });
        }
        Family::Router { experts, .. } => {
            want(op.name, Pool::Replicated, Matrix { store: Store::Bf16, n: experts, k: hidden, count: 1 });
            want(CORRECTION, Pool::Small, vector(experts));
        }
        Family::GqaDecode { heads, .. } => want(SINKS, Pool::Small, vector(heads)),
        Family::Embedding => want(op.name, Pool::Sharded, vector(table)),
        Family::Elementwise if op.name.ends_with("_norm") => {
            want(op.name, Pool::Norms, vector(hidden));
            if op.name.starts_with("q") {
                want(SECOND_NORM, Pool::Norms, vector(hidden));
            }
        }
        _ => {}
    }
    Ok(())
}

/// The pools of one rank.
pub struct Pools {
    buffers: Vec<DeviceBuffer>,
}

impl Pools {
    /// Allocates them; [`super::contents`] fills them.
    ///
    /// # Errors
    /// When the device has too little memory.
    pub fn open(context: &Arc<CudaContext>, layout: &Layout) -> Result<Pools> {
        let one = |size: &u64| {
            let bytes = usize::try_from(*size).map_err(|_| Fault::new("gpu-message", "a pool does not fit this machine's addresses"))?;
            DeviceBuffer::filled(context, bytes.max(ALIGNMENT as usize), 0)
        };
        Ok(Pools { buffers: layout.sizes.iter().map(one).collect::<Result<_>>()? })
    }

    /// The buffer of a pool.
    pub fn buffer(&self, pool: Pool) -> &DeviceBuffer {
        &self.buffers[pool.index()]
    }

    /// Addresses of a weight and of its scales.
    pub fn addresses(&self, placed: &Placed) -> (u64, u64) {
        (self.buffer(placed.pool).address() + placed.offset, self.buffer(Pool::Scales).address() + placed.scale_offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_weights() {
        // Kimi's first product of an expert on one of 8 ranks: 512 x 7168 of 4.5 bits.
        let up = Matrix { store: Store::Int4, n: 512, k: 7168, count: 384 };
        assert_eq!(up.bytes() + up.scales(), Dtype::Int4 { group: 32 }.bytes_of(512 * 7168));
        let bf16 = Matrix { store: Store::Bf16, n: 2112, k: 7168, count: 1 };
        assert_eq!(bf16.bytes(), 2112 * 7168 * 2);
        // gpt-oss on 8 ranks: 360 of 2880 inputs are padded to 384.
        let padded = Matrix { store: Store::Mxfp4, n: 2880, k: 360, count: 1 };
        assert_eq!(padded.steps(), 6);
    }

    #[test]
    fn pools_start_over_and_never_overflow() {
        let mut cursor = 0;
        let places: Vec<u64> = (0..5).map(|_| take(&mut cursor, 2048, 700)).collect();
        assert_eq!(places, [0, 1024, 0, 1024, 0]);
    }
}
