//! Buffers of one rank: activations by name, the cache, the positions' turns.

use std::collections::BTreeMap;
use std::sync::Arc;

use cudarc::driver::CudaContext;

use crate::error::{Fault, Result};
use crate::gpu::memory::DeviceBuffer;
use crate::gpu::run::launch::Heads;
use crate::model::Layer;
use crate::model::Model;
use crate::model::shape::Attention;
use crate::model::shape::FeedForward;

/// Named buffers in one allocation.
pub struct Scratch {
    buffer: DeviceBuffer,
    places: BTreeMap<&'static str, (u64, u64)>,
}

impl Scratch {
    /// Allocates the buffers of `wanted` (name, bytes), filled with NaN.
    ///
    /// # Errors
    /// When the device has too little memory.
    pub fn open(context: &Arc<CudaContext>, wanted: &BTreeMap<&'static str, u64>) -> Result<Scratch> {
        let mut places = BTreeMap::new();
        let mut end = 0;
        for (name, bytes) in wanted {
            places.insert(*name, (end, *bytes));
            end += bytes.next_multiple_of(512);
        }
        let bytes = usize::try_from(end).map_err(|_| Fault::new("gpu-message", "the activations do not fit"))?;
        Ok(Scratch { buffer: DeviceBuffer::filled(context, bytes, 0)?, places })
    }

    /// Address of a buffer.
    ///
    /// # Errors
    /// `run-model` when it was not wanted: a mistake of ours.
    pub fn at(&self, name: &'static str) -> Result<u64> {
        let place = self.places.get(name).ok_or_else(|| Fault::new("run-model", format!("there is no buffer {name}")))?;
        Ok(self.buffer.address() + place.0)
    }

    /// Reads bf16 or other elements of a buffer from its start.
    ///
    /// # Errors
    /// When the device fails or there is no such buffer.
    pub fn read<T: cudarc::driver::DeviceRepr + Clone + Default>(&self, name: &'static str, count: usize) -> Result<Vec<T>> {
        let offset = self.at(name)? - self.buffer.address();
        let mut data = vec![T::default(); count];
        self.buffer.read(usize::try_from(offset).unwrap_or(usize::MAX), &mut data)?;
        Ok(data)
    }

    /// Writes the start of a buffer.
    ///
    /// # Errors
    /// When the device fails or there is no such buffer.
    pub fn write<T: cudarc::driver::DeviceRepr>(&self, name: &'static str, data: &[T]) -> Result<()> {
        let offset = self.at(name)? - self.buffer.address();
        self.buffer.write(usize::try_from(offset).unwrap_or(usize::MAX), data)
    }
}

/// Sizes of a pass that all layers share.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Tokens of the pass.
    pub rows: u64,
    /// Cached positions.
    pub context: u64,
    /// Ranks.
    pub tp: u64,
    /// Hidden size.
    pub hidden: u64,
    /// Rows of the vocabulary, and a rank's share.
    pub vocabulary: u64,
    /// See `vocabulary`.
    pub share: u64,
}

/// Rows that products read are padded to whole steps of four-bit weights.
pub fn padded(width: u64) -> u64 {
    width.next_multiple_of(64)
}

/// Query and key-value heads of a rank; with fewer key-value heads than ranks
/// each rank holds one.
pub fn heads_of(shape: &Shape, layer: &Layer) -> (u64, u64) {
    match &layer.attention {
        Attention::Mla(mla) => (mla.heads / shape.tp, 1),
        Attention::Gqa(gqa) => (gqa.heads / shape.tp, (gqa.kv_heads / shape.tp).max(1)),
        Attention::GatedDelta(_) => (0, 0),
    }
}

/// The attention of a layer as the kernel takes it.
///
/// # Errors
/// `run-model` for linear attention and sparse choices.
pub fn attention_of(shape: &Shape, layer: &Layer) -> Result<Heads> {
    let (heads, groups) = heads_of(shape, layer);
    let (tokens, context) = (shape.rows, shape.context);
    match &layer.attention {
        Attention::Mla(mla) if mla.indexer.is_none() && mla.q_rank > 0 && mla.line() == 576 && mla.kv_rank == 512 => Ok(Heads {
            widths: (mla.line(), mla.kv_rank),
            line: mla.line(),
            places: (0, 0, 0),
            heads: (heads, groups),
            tokens,
            context,
            window: 0,
            scale: 1.0 / libm::sqrt((mla.nope + mla.rope) as f64),
        }),
        Attention::Gqa(gqa) if !gqa.gated && matches!(gqa.head_dim, 64 | 128) => Ok(Heads {
            widths: (gqa.head_dim, gqa.head_dim),
            line: 2 * groups * gqa.head_dim,
            places: (gqa.head_dim, groups * gqa.head_dim, gqa.head_dim),
            heads: (heads, groups),
            tokens,
            context,
            window: gqa.window.unwrap_or(0),
            scale: 1.0 / libm::sqrt(gqa.head_dim as f64),
        }),
        other => Err(Fault::new("run-model", format!("no kernel here does this attention: {other:?}"))
            .help("MLA of DeepSeek-V3's shape and grouped queries with heads of 64 or 128 can be run")),
    }
}

/// Width of the rotary part.
pub fn rotary_width(layer: &Layer) -> u64 {
    match &layer.attention {
        Attention::Mla(mla) => mla.rope,
        Attention::Gqa(gqa) => gqa.head_dim,
        Attention::GatedDelta(_) => 0,
    }
}

/// Buffers of a rank and their bytes, the largest of all layers.
///
/// # Errors
/// `run-model` for what no kernel does.
pub fn wanted(model: &Model, shape: &Shape) -> Result<BTreeMap<&'static str, u64>> {
    let mut all: BTreeMap<&'static str, u64> = BTreeMap::new();
    let rows = shape.rows;
    let mut want = |name: &'static str, bytes: u64| {
        let size = all.entry(name).or_default();
        *size = (*size).max(bytes);
    };
    for name in ["residual", "normed", "normed_feed", "final", "shared", "experts_out"] {
        want(name, rows * shape.hidden * 2);
    }
    want("exchange", 3 * (rows * shape.hidden * 2).next_multiple_of(16));
    want("partials", 2 * 64 * 8);
    want("tokens", rows * 4);
    want("chosen_tokens", rows * 4);
    want("logits", rows * shape.share * 2);
    want("gathered", rows * shape.share * shape.tp * 2);
    want("best", rows * 64 * 8);
    for layer in &model.kinds {
        let heads = attention_of(shape, layer)?;
        let (query_heads, groups) = heads.heads;
        want("query", rows * query_heads * heads.widths.0 * 2);
        want("attended", rows * query_heads * heads.widths.1 * 2);
        want("parts", heads.scratch().0);
        want("sums", heads.scratch().1);
        want("turns", rows * rotary_width(layer) / 2 * 8);
        match &layer.attention {
            Attention::Mla(mla) => {
                want("qkv_a", rows * (mla.q_rank + mla.line()) * 2);
                want("q_a", rows * mla.q_rank * 2);
                want("kv_a", rows * mla.kv_rank * 2);
                want("q_b", rows * query_heads * (mla.nope + mla.rope) * 2);
                want("values", rows * query_heads * mla.value * 2);
            }
            Attention::Gqa(gqa) => want("qkv", rows * (query_heads + 2 * groups) * gqa.head_dim * 2),
            Attention::GatedDelta(_) => {}
        }
        match &layer.feed_forward {
            FeedForward::Dense(dense) => network(&mut want, ["gate_up", "inner"], rows, dense.intermediate / shape.tp),
            FeedForward::Experts(experts) => {
                let pairs = rows * experts.top_k;
                network(&mut want, ["pair_up", "pair_inner"], pairs, experts.intermediate / shape.tp);
                want("pair_out", pairs * shape.hidden * 2);
                want("scores", rows * experts.experts * 2);
                want("chosen", pairs * 4);
                want("chosen_weights", pairs * 4);
                want("entries", pairs * 64);
                want("entry_count", 64);
                if let Some(shared) = &experts.shared {
                    network(&mut want, ["shared_up", "shared_inner"], rows, shared.intermediate / shape.tp);
                }
            }
        }
    }
    Ok(all)
}

fn network(want: &mut impl FnMut(&'static str, u64), names: [&'static str; 2], rows: u64, inner: u64) {
    want(names[0], rows * 2 * inner * 2);
    want(names[1], rows * padded(inner) * 2);
}

/// Bytes of a layer's cache, for the cached positions and the pass's own.
///
/// # Errors
/// `run-model` for what no kernel does.
pub fn cache_bytes(shape: &Shape, layer: &Layer) -> Result<u64> {
    Ok(((shape.context + shape.rows) * attention_of(shape, layer)?.line * 2).next_multiple_of(512))
}

/// `cos, sin` of each row's position for each pair, in f32 from double precision.
pub fn turns(shape: &Shape, width: u64) -> Vec<f32> {
    const BASE: f64 = 50_000.0;
    let half = width / 2;
    let mut all = Vec::with_capacity((shape.rows * width) as usize);
    for row in 0..shape.rows {
        for pair in 0..half {
            let angle = (shape.context + row) as f64 * libm::pow(BASE, -(2.0 * pair as f64) / width as f64);
            all.push(libm::cos(angle) as f32);
            all.push(libm::sin(angle) as f32);
        }
    }
    all
}
