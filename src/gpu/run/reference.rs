//! The pass in double precision on the host, from the weights as they lie in
//! the pools. It knows no parallelism: it multiplies whole matrices, whose
//! shards it reads back from the ranks. Values are rounded to bf16 where the
//! kernels store them.

use rayon::prelude::*;

use crate::error::Result;
use crate::gpu::element::Element;
use crate::gpu::run::launch::EPSILON;
use crate::gpu::run::launch::Heads;
use crate::gpu::run::ranks::Rank;
use crate::gpu::run::weights::Layout;
use crate::gpu::run::weights::Matrix;
use crate::gpu::run::weights::Placed;
use crate::gpu::run::weights::Pool;
use crate::gpu::run::weights::Store;
use crate::plan::Place;

/// Rows of activations.
pub type Values = Vec<Vec<f64>>;

/// How a matrix is dealt to the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Every rank has all of it.
    None,
    /// By outputs.
    Outputs,
    /// By inputs.
    Inputs,
}

/// bf16 as double precision.
pub fn widen(bits: &[u16]) -> Vec<f64> {
    bits.iter().map(|b| Element::Bf16.to_f64(*b)).collect()
}

/// Rounded to bf16.
pub fn round(x: f64) -> f64 {
    Element::Bf16.to_f64(Element::Bf16.from_f32(x as f32))
}

/// All rows rounded to bf16.
pub fn rounded(mut values: Values) -> Values {
    values.iter_mut().flatten().for_each(|x| *x = round(*x));
    values
}

/// RMSNorm of one row.
pub fn rms_norm(row: &[f64], weight: &[f64]) -> Vec<f64> {
    let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len().max(1) as f64;
    let factor = 1.0 / libm::sqrt(mean + EPSILON);
    row.iter().zip(weight).map(|(x, w)| round(x * factor * w)).collect()
}

/// `silu(gate) x up`.
pub fn activated(gate: f64, up: f64) -> f64 {
    round(gate / (1.0 + libm::exp(-gate)) * up)
}

/// The ranks' weights, read back.
pub struct Weights<'a> {
    /// Where they lie.
    pub layout: &'a Layout,
    /// Who has them.
    pub ranks: &'a [Rank],
}

impl Weights<'_> {
    /// A vector of bf16 (norm, correction, sinks) as rank 0 has it.
    ///
    /// # Errors
    /// When the device fails.
    pub fn vector(&self, place: Place, name: &'static str, count: usize) -> Result<Vec<f64>> {
        let placed = self.layout.get(place, name)?;
        let mut bits = vec![0_u16; count];
        self.ranks[0].pools.buffer(placed.pool).read(placed.offset as usize, &mut bits)?;
        Ok(widen(&bits))
    }

    /// Row `row` of rank `rank`'s share of the embedding.
    ///
    /// # Errors
    /// When the device fails.
    pub fn table_row(&self, rank: usize, row: usize, hidden: usize) -> Result<Vec<f64>> {
        let placed = self.layout.get(Place::Embedding, "embedding")?;
        let mut bits = vec![0_u16; hidden];
        self.ranks[rank].pools.buffer(placed.pool).read(placed.offset as usize + row * hidden * 2, &mut bits)?;
        Ok(widen(&bits))
    }

    /// Matrix `index` of a weight of one rank, row-major.
    fn shard(&self, rank: usize, placed: &Placed, index: u64) -> Result<Vec<f32>> {
        let matrix = &placed.matrix;
        let mut bytes = vec![0_u8; matrix.bytes() as usize];
        let pools = &self.ranks[rank].pools;
        pools.buffer(placed.pool).read((placed.offset + index * matrix.bytes()) as usize, &mut bytes)?;
        let mut scales = vec![0_u8; matrix.scales() as usize];
        if !scales.is_empty() {
            pools.buffer(Pool::Scales).read((placed.scale_offset + index * matrix.scales()) as usize, &mut scales)?;
        }
        Ok(decode(matrix, &bytes, &scales))
    }

    /// `x` by the whole matrix, times `alpha`, not rounded. `index` picks one
    /// of several (a head of a rank, an expert).
    ///
    /// # Errors
    /// When the device fails.
    pub fn product(&self, place: Place, name: &'static str, index: u64, split: Split, x: &[Vec<f64>], alpha: f64) -> Result<Values> {
        let placed = self.layout.get(place, name)?;
        let (n, k) = (placed.matrix.n as usize, placed.matrix.k as usize);
        let sharers = if split == Split::None { 1 } else { self.ranks.len() };
        let mut all: Values = vec![Vec::new(); x.len()];
        for rank in 0..sharers {
            let weights = self.shard(rank, placed, index)?;
            let from = if split == Split::Inputs { rank * k } else { 0 };
            for (row, out) in x.iter().zip(&mut all) {
                let part: Vec<f64> =
                    (0..n).into_par_iter().map(|i| alpha * dot(&weights[i * k..(i + 1) * k], &row[from..from + k])).collect();
                if split == Split::Inputs && rank > 0 {
                    out.iter_mut().zip(part).for_each(|(sum, more)| *sum += more);
                } else {
                    out.extend(part);
                }
            }
        }
        Ok(all)
    }

    /// As [`Weights::product`] by matrix `index` of one rank alone.
    ///
    /// # Errors
    /// When the device fails.
    pub fn head(&self, rank: usize, place: Place, name: &'static str, index: u64, x: &[f64], alpha: f64) -> Result<Vec<f64>> {
        let placed = self.layout.get(place, name)?;
        let k = placed.matrix.k as usize;
        let weights = self.shard(rank, placed, index)?;
        Ok((0..placed.matrix.n as usize).map(|i| alpha * dot(&weights[i * k..(i + 1) * k], x)).collect())
    }
}

fn dot(weights: &[f32], x: &[f64]) -> f64 {
    weights.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum()
}

/// A matrix in tiles, row-major; inputs beyond `k` are dropped.
pub fn decode(matrix: &Matrix, bytes: &[u8], scales: &[u8]) -> Vec<f32> {
    let (n, k) = (matrix.n as usize, matrix.k as usize);
    let steps = matrix.steps() as usize;
    let mut all = vec![0.0_f32; n * k];
    all.par_chunks_mut(16 * k).enumerate().for_each(|(tile_row, rows)| {
        for step in 0..steps {
            let tile = tile_row * steps + step;
            for lane in 0..32 {
                let at = tile * 512 + lane * 16;
                for word in 0..4 {
                    let v = u32::from_le_bytes([0, 1, 2, 3].map(|b| bytes[at + word * 4 + b]));
                    decode_word(matrix.store, scales, Word { tile, step, lane, word, v }, &mut |row, column, value| {
                        if column < k && row * k < rows.len() {
                            rows[row * k + column] = value;
                        }
                    });
                }
            }
        }
    });
    all
}

struct Word {
    tile: usize,
    step: usize,
    lane: usize,
    word: usize,
    v: u32,
}

/// Operand `a` of the tensor core's product: rows `g` and `g + 8`, inputs `2 t` and `2 t + 8`.
fn decode_word(store: Store, scales: &[u8], w: Word, put: &mut impl FnMut(usize, usize, f32)) {
    let (group, t) = (w.lane / 4, w.lane % 4);
    let place = |operand: usize| (group + operand % 2 * 8, 2 * t + operand / 2 * 8);
    if store == Store::Bf16 {
        let (row, column) = place(w.word);
        put(row, w.step * 16 + column, f32::from_bits(w.v << 16));
        put(row, w.step * 16 + column + 1, f32::from_bits(w.v & 0xffff_0000));
        return;
    }
    for operand in 0..4 {
        let (row, column) = place(operand);
        let half = w.word / 2;
        let high = operand % 2;
        let scale = if store == Store::Int4 {
            let at = (w.tile * 8 + group) * 8 + (2 * high + half) * 2;
            f32::from_bits(u32::from(u16::from_le_bytes([scales[at], scales[at + 1]])) << 16)
        } else {
            f32::from_bits(u32::from(scales[(w.tile * 8 + group) * 4 + 2 * high + half]) << 23)
        };
        for pair in 0..2 {
            let nibble = w.v >> (4 * operand + 16 * pair) & 0xf;
            put(row, w.step * 64 + w.word * 16 + column + pair, scale * four_bits(store, nibble));
        }
    }
}

fn four_bits(store: Store, nibble: u32) -> f32 {
    if store == Store::Int4 {
        return nibble as f32 - 8.0;
    }
    // e2m1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and the same below zero.
    const MAGNITUDES: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let magnitude = MAGNITUDES[(nibble & 7) as usize];
    if nibble & 8 == 0 { magnitude } else { -magnitude }
}

/// Turns the pairs `(i, i + width / 2)` of a head.
pub fn turned(head: &[f64], turns: &[f32]) -> Vec<f64> {
    let half = head.len() / 2;
    let mut out = vec![0.0; head.len()];
    for i in 0..half {
        let (cos, sin) = (f64::from(turns[2 * i]), f64::from(turns[2 * i + 1]));
        out[i] = round(head[i] * cos - head[i + half] * sin);
        out[i + half] = round(head[i] * sin + head[i + half] * cos);
    }
    out
}

/// Attention of one query row over the lines that it sees.
pub fn attend(heads: &Heads, query: &[f64], lines: &[f64], group: usize, token: usize, sink: Option<f64>) -> Vec<f64> {
    let line = heads.line as usize;
    let (key_width, value_width) = (heads.widths.0 as usize, heads.widths.1 as usize);
    let sees = heads.context as usize + token + 1;
    let begins = if heads.window > 0 { sees.saturating_sub(heads.window as usize) } else { 0 };
    let key_at = group * heads.places.0 as usize;
    let value_at = (heads.places.1 + group as u64 * heads.places.2) as usize;
    let scores: Vec<f64> = (begins..sees)
        .map(|p| heads.scale * query.iter().zip(&lines[p * line + key_at..p * line + key_at + key_width]).map(|(a, b)| a * b).sum::<f64>())
        .collect();
    let most = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|s| libm::exp(s - most)).collect();
    let total = weights.iter().sum::<f64>() + sink.map_or(0.0, |s| libm::exp(s - most));
    (0..value_width)
        .map(|i| {
            let sum: f64 = weights.iter().enumerate().map(|(p, w)| w * lines[(begins + p) * line + value_at + i]).sum();
            round(sum / total)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_weight_has_one_place() {
        // Tiles whose words count up: each element of the matrix is met once.
        for store in [Store::Bf16, Store::Int4, Store::Mxfp4] {
            let step = store.step() as usize;
            let mut met = vec![0; 16 * step];
            let scales = vec![0x3f_u8; 64];
            for lane in 0..32 {
                for word in 0..4 {
                    decode_word(store, &scales, Word { tile: 0, step: 0, lane, word, v: 0x5555_5555 }, &mut |row, column, _| {
                        met[row * step + column] += 1;
                    });
                }
            }
            assert!(met.iter().all(|m| *m == 1), "{store:?}");
        }
    }

    #[test]
    fn four_bits_by_hand() {
        assert_eq!(four_bits(Store::Int4, 0), -8.0);
        assert_eq!(four_bits(Store::Int4, 15), 7.0);
        assert_eq!(four_bits(Store::Mxfp4, 7), 6.0);
        assert_eq!(four_bits(Store::Mxfp4, 9), -0.5);
    }

    #[test]
    fn a_window_and_a_sink_by_hand() {
        let heads = Heads { widths: (1, 1), line: 2, places: (1, 1, 1), heads: (1, 1), tokens: 1, context: 2, window: 2, scale: 1.0 };
        // Positions 1 and 2 with scores 0: values 4 and 6, and a sink of weight 1 → 10 / 3.
        let lines = [9.0, 100.0, 0.0, 4.0, 0.0, 6.0];
        let out = attend(&heads, &[1.0], &lines, 0, 0, Some(0.0));
        assert!((out[0] - 10.0 / 3.0).abs() < 0.02);
    }
}
