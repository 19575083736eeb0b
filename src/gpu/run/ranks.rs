//! The ranks of a pass: streams, weights, activations and caches, filled at
//! random from named seeds.

use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::CudaStream;

use crate::error::Result;
use crate::gpu::device;
use crate::gpu::element::Element;
use crate::gpu::fault::Explain;
use crate::gpu::group;
use crate::gpu::group::Group;
use crate::gpu::kernel::Variant;
use crate::gpu::memory::DeviceBuffer;
use crate::gpu::run::launch;
use crate::gpu::run::launch::Contents;
use crate::gpu::run::launch::Launch;
use crate::gpu::run::launch::Ready;
use crate::gpu::run::lower::Exchange;
use crate::gpu::run::scratch;
use crate::gpu::run::scratch::Scratch;
use crate::gpu::run::scratch::Shape;
use crate::gpu::run::weights::Layout;
use crate::gpu::run::weights::Pool;
use crate::gpu::run::weights::Pools;
use crate::model::Dtype;
use crate::model::Model;
use crate::model::shape::Attention;
use crate::model::shape::FeedForward;

/// One rank.
pub struct Rank {
    /// Its GPU.
    pub context: Arc<CudaContext>,
    /// Where its kernels run.
    pub stream: Arc<CudaStream>,
    /// Where shared experts run beside the routed ones, in graphs.
    pub side: Arc<CudaStream>,
    /// Weights.
    pub pools: Pools,
    /// Activations.
    pub scratch: Scratch,
    /// Where its sums go in and come out.
    pub exchange: Exchange,
    /// Address of each layer's cache.
    pub caches: Vec<u64>,
    cache: DeviceBuffer,
}

/// Half the width of a uniform distribution of variance 1.
const UNIT: f64 = 1.732_050_8;

impl Rank {
    /// Opens rank `rank`; on the group's stream and buffers if there is one.
    ///
    /// # Errors
    /// When the device has too little memory, or a kernel does not compile.
    pub fn open(group: Option<&Group>, rank: usize, model: &Model, shape: &Shape, layout: &Layout, seed: u64) -> Result<Rank> {
        let (context, stream) = match group {
            Some(group) => (group.ranks[rank].context.clone(), group.ranks[rank].stream.clone()),
            None => {
                let context = device::open(0)?;
                let stream = context.new_stream().explain("make a stream")?;
                (context, stream)
            }
        };
        let side = context.new_stream().explain("make a stream")?;
        let scratch = Scratch::open(&context, &scratch::wanted(model, shape)?)?;
        let exchange = match group {
            Some(group) => Exchange {
                input: group.ranks[rank].input.address(),
                output: group.ranks[rank].output.address(),
                set_bytes: group.options.bytes_max,
            },
            None => {
                let at = scratch.at("exchange")?;
                Exchange { input: at, output: at, set_bytes: (shape.rows * shape.hidden * 2).next_multiple_of(16) }
            }
        };
        let mut places = Vec::new();
        let mut end = 0;
        for kind in &model.layers {
            places.push(end);
            end += scratch::cache_bytes(shape, &model.kinds[*kind])?;
        }
        let cache = DeviceBuffer::filled(&context, usize::try_from(end).unwrap_or(usize::MAX), 0)?;
        let caches = places.iter().map(|place| cache.address() + place).collect();
        let pools = Pools::open(&context, layout)?;
        let opened = Rank { context, stream, side, pools, scratch, exchange, caches, cache };
        opened.fill(rank as u64, model, shape, seed)?;
        Ok(opened)
    }

    /// Compiles a launch for this rank's GPU.
    ///
    /// # Errors
    /// When it does not compile or load.
    pub fn ready(&self, functions: &mut Functions, launch: &Launch) -> Result<Ready> {
        let function = functions.get(&self.context, launch)?;
        Ok(Ready { function, config: launch.config(), words: launch.words })
    }

    fn fill(&self, rank: u64, model: &Model, shape: &Shape, seed: u64) -> Result<()> {
        let mut functions = Functions::default();
        let mut put = |target: u64, bytes: u64, seed: u64, contents: Contents| {
            self.ready(&mut functions, &launch::fill(target, bytes, seed, contents))?.enqueue(&self.stream)
        };
        let int4 = model.kinds.iter().any(|layer| match &layer.feed_forward {
            FeedForward::Experts(experts) => matches!(experts.up_dtype, Dtype::Int4 { .. }),
            FeedForward::Dense(_) => false,
        });
        for pool in Pool::ALL {
            // Sharded pools differ from rank to rank.
            let (seed, contents) = match pool {
                Pool::Sharded => (seed + 1000 * (rank + 1), Contents::Uniform(-UNIT, UNIT)),
                Pool::Replicated => (seed + 1, Contents::Uniform(-UNIT, UNIT)),
                Pool::Nibbles if int4 => (seed + 1000 * (rank + 1) + 2, Contents::Integers),
                Pool::Nibbles => (seed + 1000 * (rank + 1) + 2, Contents::Bits),
                // Times integers whose variance is 17.5.
                Pool::Scales if int4 => (seed + 1000 * (rank + 1) + 3, Contents::Uniform(0.1, 0.3)),
                Pool::Scales => (seed + 1000 * (rank + 1) + 3, Contents::Exponents),
                Pool::Norms => (seed + 4, Contents::Uniform(0.5, 1.5)),
                Pool::Small => (seed + 5, Contents::Uniform(-0.05, 0.05)),
            };
            let buffer = self.pools.buffer(pool);
            put(buffer.address(), buffer.bytes() as u64, seed, contents)?;
        }
        // MLA's line is whole on every rank; heads of grouped queries are the rank's own.
        let shared = model.kinds.iter().any(|layer| matches!(layer.attention, Attention::Mla(_)));
        let cache_seed = if shared { seed + 6 } else { seed + 1000 * (rank + 1) + 6 };
        put(self.cache.address(), self.cache.bytes() as u64, cache_seed, Contents::Uniform(-UNIT, UNIT))?;
        self.stream.synchronize().explain("fill the weights")?;
        let width = model.kinds.first().map_or(0, scratch::rotary_width);
        self.scratch.write("turns", &scratch::turns(shape, width))?;
        let tokens: Vec<u32> = (0..shape.rows).map(|row| token(shape, row)).collect();
        self.scratch.write("tokens", &tokens)
    }

    /// Reads a layer's cache: its lines from the first position on.
    ///
    /// # Errors
    /// When the device fails.
    pub fn read_cache(&self, layer: usize, elements: usize) -> Result<Vec<u16>> {
        let offset = self.caches.get(layer).map_or(0, |at| at - self.cache.address());
        let mut data = vec![0_u16; elements];
        self.cache.read(usize::try_from(offset).unwrap_or(usize::MAX), &mut data)?;
        Ok(data)
    }
}

/// The token of a row: one in each part of the vocabulary.
pub fn token(shape: &Shape, row: u64) -> u32 {
    ((row * 2 + 1) * 1_000_003 % shape.vocabulary) as u32
}

/// A device, a function, and the macros it was compiled with.
type Built = (usize, &'static str, Vec<(&'static str, u32)>);

/// Loaded functions by source, name, macros and device.
#[derive(Default)]
pub struct Functions {
    known: std::collections::BTreeMap<Built, cudarc::driver::CudaFunction>,
}

impl Functions {
    fn get(&mut self, context: &Arc<CudaContext>, launch: &Launch) -> Result<cudarc::driver::CudaFunction> {
        let key = (context.ordinal(), launch.function, launch.macros.clone());
        if let Some(function) = self.known.get(&key) {
            return Ok(function.clone());
        }
        let mut variant = Variant::new(2, Element::Bf16);
        variant.macros.clone_from(&launch.macros);
        let function = group::load(context, launch.source, launch.function, &variant)?;
        self.known.insert(key, function.clone());
        Ok(function)
    }
}
