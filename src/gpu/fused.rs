//! All-reduce + residual + RMSNorm in one kernel: its buffers, shapes and check.

use crate::error::{Fault, Result};
use crate::gpu::arguments::BLOCKS_MAX;
use crate::gpu::arguments::Norm;
use crate::gpu::arguments::THREADS_MAX;
use crate::gpu::collectives::enqueue_fused;
use crate::gpu::group::Group;
use crate::gpu::kernel::Variant;
use crate::gpu::memory::DeviceBuffer;
use crate::gpu::observation::Check;
use crate::gpu::reference::Inputs;

/// Blocks of a token and threads of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks that share a token.
    pub split: u32,
    /// Threads of a block.
    pub threads: u32,
}

impl Shape {
    /// Lines that one thread keeps.
    fn lines(self, hidden: u32) -> u32 {
        (hidden / 4).div_ceil(self.split).div_ceil(self.threads)
    }

    /// What the kernel is compiled for.
    pub fn variant(self, group: &Group, hidden: u32) -> Variant {
        let mut variant = Variant::new(group.options.ranks, group.options.element);
        variant.macros = vec![("SPLIT", self.split), ("LINES_PER_THREAD", self.lines(hidden))];
        variant
    }
}

/// Shapes that fit, the finest first.
pub fn shapes(tokens: u32, hidden: u32, blocks_max: u32) -> Vec<Shape> {
    let mut all = Vec::new();
    for split in [8, 5, 4, 2, 1] {
        if tokens * split > blocks_max.min(BLOCKS_MAX) {
            continue;
        }
        let lines = (hidden / 4).div_ceil(split);
        for threads in [lines.next_multiple_of(32).clamp(64, THREADS_MAX), 256] {
            let shape = Shape { split, threads };
            if shape.lines(hidden) <= 4 && !all.contains(&shape) {
                all.push(shape);
            }
        }
    }
    all
}

struct Buffers {
    residual: DeviceBuffer,
    weight: DeviceBuffer,
    residual_out: DeviceBuffer,
    normed: DeviceBuffer,
    partials: DeviceBuffer,
}

/// Buffers of all ranks for one shape of activations.
pub struct Work<'a> {
    group: &'a Group,
    tokens: u32,
    hidden: u32,
    buffers: Vec<Buffers>,
}

const EPSILON: f32 = 1e-6;

impl<'a> Work<'a> {
    /// Buffers for `tokens` rows of `hidden` elements, random residual and weight.
    ///
    /// # Errors
    /// When they do not fit the group's messages or the devices' memory.
    pub fn open(group: &'a Group, tokens: u32, hidden: u32) -> Result<Work<'a>> {
        let bytes = tokens as usize * hidden as usize * 2;
        if !hidden.is_multiple_of(4) || bytes as u64 > group.options.bytes_max {
            return Err(Fault::new("gpu-message", format!("{tokens} x {hidden} elements do not fit the fused kernel")));
        }
        let data = Inputs::random(2, tokens as usize * hidden as usize, group.options.element, 11);
        let make = |rank: &crate::gpu::group::Rank| {
            let filled = |bytes: usize| DeviceBuffer::filled(&rank.context, bytes, 0xff);
            let buffers = Buffers {
                residual: filled(bytes)?,
                weight: filled(hidden as usize * 2)?,
                residual_out: filled(bytes)?,
                normed: filled(bytes)?,
                partials: DeviceBuffer::filled(&rank.context, 2 * BLOCKS_MAX as usize * 8, 0)?,
            };
            buffers.residual.write(0, &data.ranks[0])?;
            buffers.weight.write(0, &data.ranks[1][..hidden as usize])?;
            Ok(buffers)
        };
        let buffers = group.ranks.iter().map(make).collect::<Result<Vec<_>>>()?;
        Ok(Work { group, tokens, hidden, buffers })
    }

    /// Puts the kernel on all ranks' streams.
    ///
    /// # Errors
    /// When it cannot be launched.
    pub fn enqueue_all(&self, shape: Shape) -> Result<()> {
        for (rank, b) in self.buffers.iter().enumerate() {
            let norm = Norm {
                residual: b.residual.address(),
                weight: b.weight.address(),
                residual_out: b.residual_out.address(),
                normed: b.normed.address(),
                partials: b.partials.address(),
                hidden: self.hidden,
                epsilon: EPSILON,
            };
            enqueue_fused(self.group, rank, &norm, self.tokens, shape)?;
        }
        Ok(())
    }

    /// Runs once and compares both outputs with double precision. `inputs` is
    /// what the ranks' inputs hold.
    ///
    /// # Errors
    /// When the device fails.
    pub fn check(&self, inputs: &Inputs, shape: Shape) -> Result<Check> {
        let element = self.group.options.element;
        let (tokens, hidden) = (self.tokens as usize, self.hidden as usize);
        self.enqueue_all(shape)?;
        self.group.wait()?;
        let expected = inputs.expected(0, tokens * hidden, element);
        let data = Inputs::random(2, tokens * hidden, element, 11);
        let first = self.outputs(0)?;
        let mut wrong = 0;
        let (mut error, mut norm) = (0.0, 0.0);
        for token in 0..tokens {
            let row = token * hidden..(token + 1) * hidden;
            // The sum is rounded, the residual added, and rounded again; the
            // norm is taken of what was stored.
            let stored: Vec<f64> = first.0[row.clone()].iter().map(|b| element.to_f64(*b)).collect();
            let mean = stored.iter().map(|x| x * x).sum::<f64>() / hidden as f64;
            let factor = 1.0 / libm::sqrt(mean + f64::from(EPSILON));
            for (i, at) in row.enumerate() {
                let residual = element.to_f64(data.ranks[0][at]);
                let sum = expected.sum[at] + residual;
                let bound = 2.0 * element.rounding() * (expected.scale[at] + residual.abs()) + 6e-8;
                let normed = stored[i] * factor * element.to_f64(data.ranks[1][i]);
                let out = element.to_f64(first.1[at]);
                let normed_off = (out - normed).abs();
                // NaN fails both comparisons.
                let right = (stored[i] - sum).abs() <= bound && normed_off <= element.rounding() * normed.abs() + 6e-8;
                wrong += u64::from(!right);
                error += normed_off * normed_off;
                norm += normed * normed;
            }
        }
        for rank in 1..self.buffers.len() {
            let other = self.outputs(rank)?;
            wrong += u64::from(other != first) * (tokens * hidden) as u64;
        }
        Ok(Check {
            name: format!("FusedOneShot/split{}x{}", shape.split, shape.threads),
            ranks: self.group.options.ranks,
            dtype: element,
            bytes: (tokens * hidden * 2) as u64,
            calls: 1,
            wrong,
            relative_error: if norm > 0.0 { libm::sqrt(error / norm) } else { 0.0 },
        })
    }

    fn outputs(&self, rank: usize) -> Result<(Vec<u16>, Vec<u16>)> {
        let count = self.tokens as usize * self.hidden as usize;
        let (mut residual, mut normed) = (vec![0; count], vec![0; count]);
        self.buffers[rank].residual_out.read(0, &mut residual)?;
        self.buffers[rank].normed.read(0, &mut normed)?;
        Ok((residual, normed))
    }
}
