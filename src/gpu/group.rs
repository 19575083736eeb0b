//! Several ranks in one process, on one GPU or several: streams, buffers,
//! regions, epochs, kernels, and who waited for whom.
//!
//! Rank r lies on GPU `r % devices`. Ranks that share a GPU share its
//! multiprocessors evenly, so that all their blocks are resident together:
//! they wait for each other.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::CudaFunction;
use cudarc::driver::CudaStream;
use cudarc::driver::LaunchConfig;
use cudarc::driver::PushKernelArg;
use cudarc::nvrtc::Ptx;

use crate::error::{Fault, Result};
use crate::gpu::arguments::Arguments;
use crate::gpu::arguments::BLOCKS_MAX;
use crate::gpu::arguments::FLAG_BYTES;
use crate::gpu::arguments::RANKS_MAX;
use crate::gpu::arguments::REPORT_WORDS;
use crate::gpu::arguments::Stuck;
use crate::gpu::compile;
use crate::gpu::device;
use crate::gpu::element::Element;
use crate::gpu::fault::Explain;
use crate::gpu::green;
use crate::gpu::implementation::Grid;
use crate::gpu::implementation::Implementation;
use crate::gpu::implementation::host_lines_half_bytes;
use crate::gpu::implementation::lines_half_bytes;
use crate::gpu::implementation::packs_half_bytes;
use crate::gpu::kernel;
use crate::gpu::kernel::Variant;
use crate::gpu::memory::DeviceBuffer;
use crate::gpu::memory::HostBuffer;

/// How a group is opened.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Ranks, 2 to 16.
    pub ranks: u32,
    /// GPUs to spread them over, from GPU 0 on.
    pub devices: usize,
    /// Element type.
    pub element: Element,
    /// The longest message of kernels that use device memory.
    pub bytes_max: u64,
    /// The longest message of kernels that go through the host; 0: none.
    pub host_bytes_max: u64,
    /// A call that waits longer reports whom it waited for.
    pub timeout_ms: u64,
    /// A green context a rank: multiprocessors of its own where ranks share a GPU.
    pub green: bool,
}

/// How long a call waits before it reports, unless told otherwise.
pub const TIMEOUT_MS: u64 = 2000;

/// Sets of input and output a rank has, so that calls in a row can differ.
pub const SETS: u64 = 3;

/// One rank.
pub struct Rank {
    /// Its GPU.
    pub context: Arc<CudaContext>,
    /// Where its kernels run.
    pub stream: Arc<CudaStream>,
    /// [`SETS`] messages of `bytes_max`.
    pub input: DeviceBuffer,
    /// The same for results.
    pub output: DeviceBuffer,
    /// Room for a copy-engine ring.
    pub staging: DeviceBuffer,
    lines: DeviceBuffer,
    packs: DeviceBuffer,
    flags: DeviceBuffer,
    epochs: DeviceBuffer,
}

/// Regions in pinned memory: shared packs, each rank's lines and flags.
struct HostRegions {
    packs: HostBuffer,
    lines: Vec<HostBuffer>,
    flags: Vec<HostBuffer>,
}

/// Ranks that communicate.
pub struct Group {
    /// As opened.
    pub options: Options,
    /// By rank.
    pub ranks: Vec<Rank>,
    /// Blocks that one rank may use: multiprocessors of its GPU over the ranks on it.
    pub blocks_max: u32,
    /// Whether every GPU's kernels reach every other's memory.
    pub peers: bool,
    host: Option<HostRegions>,
    reports: HostBuffer,
    timeout_cycles: u64,
    functions: RefCell<BTreeMap<(usize, String, Variant), CudaFunction>>,
}

/// One rank's part of an all-reduce, ready to be launched from any thread
/// while its group lives.
pub struct Prepared {
    function: CudaFunction,
    arguments: Arguments,
    stream: Arc<CudaStream>,
    grid: Grid,
    kernel: &'static str,
}

impl Prepared {
    /// Puts it on its rank's stream.
    ///
    /// # Errors
    /// When the launch fails.
    pub fn launch(&self) -> Result<()> {
        let mut launch = self.stream.launch_builder(&self.function);
        launch.arg(&self.arguments);
        // SAFETY: the arguments mirror the kernel's and hold addresses of
        // buffers that the group owns, long enough for the checked message.
        unsafe { launch.launch(config(self.grid)) }.explain(&format!("launch {}", self.kernel))?;
        Ok(())
    }
}

/// The message of one call, in one of the [`SETS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Bytes of one rank.
    pub bytes: u64,
    /// Which input and output.
    pub set: u64,
}

impl Group {
    /// Opens GPUs, streams and regions.
    ///
    /// # Errors
    /// Without a driver, GPU or memory, and for impossible options.
    pub fn open(mut options: Options) -> Result<Group> {
        options.bytes_max = options.bytes_max.next_multiple_of(16);
        if options.ranks < 2 || options.ranks as usize > RANKS_MAX {
            return Err(Fault::new("gpu-ranks", format!("{} ranks: expected 2 to {RANKS_MAX}", options.ranks)));
        }
        let devices = options.devices.clamp(1, device::count()?).min(options.ranks as usize);
        let contexts: Vec<Arc<CudaContext>> = (0..devices).map(device::open).collect::<Result<_>>()?;
        let mut peers = true;
        for from in &contexts {
            for to in contexts.iter().filter(|to| to.ordinal() != from.ordinal()) {
                peers &= device::enable_peer(from, to)?;
            }
        }
        let sharing = options.ranks.div_ceil(u32::try_from(devices).unwrap_or(1));
        let homes = if options.green { green::homes(&contexts, options.ranks)? } else { contexts.clone() };
        let home = |rank: usize| &homes[rank % homes.len()];
        let ranks = (0..options.ranks as usize).map(|r| Rank::open(home(r), &options)).collect::<Result<Vec<_>>>()?;
        let mut blocks_max = BLOCKS_MAX;
        for context in &contexts {
            let all = device::multiprocessors(context)?;
            let own = if options.green { green::share(all, sharing) } else { all / sharing };
            blocks_max = blocks_max.min(own.max(1));
        }
        let host = if options.host_bytes_max == 0 { None } else { Some(HostRegions::open(&contexts[0], &options)?) };
        let reports = HostBuffer::zeros(&contexts[0], RANKS_MAX * REPORT_WORDS * 4 + 64)?;
        let timeout_cycles = device::clock_khz(&contexts[0])? * options.timeout_ms;
        Ok(Group { options, ranks, blocks_max, peers, host, reports, timeout_cycles, functions: RefCell::new(BTreeMap::new()) })
    }

    /// Whether `implementation` can run here at all with `bytes`.
    pub fn supports(&self, implementation: Implementation, bytes: u64) -> bool {
        let limit = if implementation.through_host() { self.options.host_bytes_max } else { self.options.bytes_max };
        bytes <= limit && bytes >= 2 && (self.peers || !implementation.needs_peers())
    }

    /// The function `name` of `source`, compiled for rank `rank`'s GPU.
    ///
    /// # Errors
    /// When it does not compile or load.
    pub fn function(&self, rank: usize, source: &str, name: &str, variant: &Variant) -> Result<CudaFunction> {
        let context = &self.ranks[rank].context;
        let key = (context.cu_ctx() as usize, name.to_owned(), variant.clone());
        if let Some(function) = self.functions.borrow().get(&key) {
            return Ok(function.clone());
        }
        let function = load(context, source, name, variant)?;
        self.functions.borrow_mut().insert(key, function.clone());
        Ok(function)
    }

    /// Launches one rank's part of an all-reduce on its stream.
    ///
    /// # Errors
    /// Those of [`Group::prepare`], or when the launch fails.
    pub fn enqueue(&self, rank: usize, implementation: Implementation, message: Message, grid: Grid) -> Result<()> {
        self.prepare(rank, implementation, message, grid)?.launch()
    }

    /// One rank's part of an all-reduce, for [`Prepared::launch`].
    ///
    /// # Errors
    /// When the message is too long, or the grid does not fit beside the other ranks.
    pub fn prepare(&self, rank: usize, implementation: Implementation, message: Message, grid: Grid) -> Result<Prepared> {
        if !self.supports(implementation, message.bytes) {
            return Err(Fault::new("gpu-message", format!("{implementation:?} cannot take {} bytes here", message.bytes)));
        }
        let variant = implementation.variant(self.options.ranks, self.options.element);
        let kernel = implementation.kernel();
        let function = self.function(rank, kernel, kernel, &variant)?;
        self.check_resident(rank, &function, grid)?;
        let arguments = self.arguments(rank, implementation.through_host(), message);
        Ok(Prepared { function, arguments, stream: self.ranks[rank].stream.clone(), grid, kernel })
    }

    /// What kernels of `rank` are given for `message`.
    pub fn arguments(&self, rank: usize, through_host: bool, message: Message) -> Arguments {
        let me = &self.ranks[rank];
        let offset = message.set % SETS * self.options.bytes_max;
        let mut arguments = Arguments {
            input: me.input.address() + offset,
            output: me.output.address() + offset,
            elements: message.bytes / 2,
            lines_half_bytes: lines_half_bytes(self.options.bytes_max, self.options.ranks),
            packs_half_bytes: packs_half_bytes(self.options.bytes_max, self.options.ranks),
            epochs: me.epochs.address(),
            report: self.reports.address() + 64 + (rank * REPORT_WORDS * 4) as u64,
            stop: self.reports.address(),
            timeout_cycles: self.timeout_cycles,
            rank: rank as u32,
            ..Arguments::default()
        };
        for (r, peer) in self.ranks.iter().enumerate() {
            arguments.lines[r] = peer.lines.address();
            arguments.packs[r] = peer.packs.address();
            arguments.flags[r] = peer.flags.address();
        }
        if let Some(host) = self.host.as_ref().filter(|_| through_host) {
            arguments.lines_half_bytes = host_lines_half_bytes(self.options.host_bytes_max);
            arguments.packs_half_bytes = packs_half_bytes(self.options.host_bytes_max, self.options.ranks);
            for r in 0..self.ranks.len() {
                arguments.lines[r] = host.lines[r].address();
                arguments.packs[r] = host.packs.address();
                arguments.flags[r] = host.flags[r].address();
            }
        }
        arguments
    }

    /// Blocks of one rank must find room while all other ranks' are resident.
    fn check_resident(&self, rank: usize, function: &CudaFunction, grid: Grid) -> Result<()> {
        let per_multiprocessor =
            function.occupancy_max_active_blocks_per_multiprocessor(grid.threads, 0, None).explain("ask for the occupancy")?;
        if grid.blocks <= self.blocks_max && grid.blocks <= BLOCKS_MAX && per_multiprocessor >= 1 {
            return Ok(());
        }
        let text = format!(
            "{} blocks of {} threads do not fit beside the other ranks' on GPU {}",
            grid.blocks,
            grid.threads,
            self.ranks[rank].context.ordinal()
        );
        Err(Fault::new("gpu-grid", text).help(format!("use at most {} blocks", self.blocks_max)))
    }

    /// Waits for all streams; a call that gave up is a fault that names whom it
    /// waited for, and the group is made ready again.
    ///
    /// # Errors
    /// `gpu-stuck`, or what the driver says.
    pub fn wait(&self) -> Result<()> {
        for rank in &self.ranks {
            rank.stream.synchronize().explain("wait for the kernels")?;
        }
        if self.reports.word(0) == 0 {
            return Ok(());
        }
        let stuck = self.stuck();
        self.reset()?;
        let first = stuck.first().map_or_else(|| "a call gave up waiting".to_owned(), Stuck::to_string);
        let rest: Vec<String> = stuck.iter().skip(1).map(Stuck::to_string).collect();
        let fault = Fault::new("gpu-stuck", first);
        Err(if rest.is_empty() { fault } else { fault.help(rest.join("; ")) })
    }

    fn stuck(&self) -> Vec<Stuck> {
        let report = |rank: usize| std::array::from_fn(|i| self.reports.word(16 + rank * REPORT_WORDS + i));
        (0..self.ranks.len()).filter_map(|rank| Stuck::from_words(&report(rank))).collect()
    }

    /// Forgets all epochs and flags, after a call that gave up.
    ///
    /// # Errors
    /// When a device fails.
    pub fn reset(&self) -> Result<()> {
        self.reports.clear();
        for rank in &self.ranks {
            for buffer in [&rank.lines, &rank.flags, &rank.epochs] {
                buffer.fill(0)?;
            }
        }
        if let Some(host) = &self.host {
            host.lines.iter().chain(&host.flags).for_each(HostBuffer::clear);
        }
        Ok(())
    }

    /// Sets every epoch counter, to test what happens near the wrap.
    ///
    /// # Errors
    /// When a device fails.
    pub fn set_epochs(&self, epoch: u32) -> Result<()> {
        for rank in &self.ranks {
            rank.epochs.write(0, &[epoch; BLOCKS_MAX as usize])?;
        }
        Ok(())
    }
}

impl Rank {
    fn open(context: &Arc<CudaContext>, options: &Options) -> Result<Rank> {
        let bytes = |n: u64| usize::try_from(n).map_err(|_| Fault::new("gpu-message", "a region does not fit this machine's addresses"));
        let message = options.bytes_max.next_multiple_of(16);
        Ok(Rank {
            context: context.clone(),
            stream: context.new_stream().explain("make a stream")?,
            input: DeviceBuffer::filled(context, bytes(SETS * message)?, 0)?,
            output: DeviceBuffer::filled(context, bytes(SETS * message)?, 0)?,
            staging: DeviceBuffer::filled(context, bytes(message)?, 0)?,
            lines: DeviceBuffer::filled(context, bytes(2 * lines_half_bytes(options.bytes_max, options.ranks))?, 0)?,
            packs: DeviceBuffer::filled(context, bytes(2 * packs_half_bytes(options.bytes_max, options.ranks))?, 0)?,
            flags: DeviceBuffer::filled(context, FLAG_BYTES, 0)?,
            epochs: DeviceBuffer::filled(context, (BLOCKS_MAX as usize + 1) * 4, 0)?,
        })
    }
}

impl HostRegions {
    fn open(context: &Arc<CudaContext>, options: &Options) -> Result<HostRegions> {
        let lines = usize::try_from(2 * host_lines_half_bytes(options.host_bytes_max)).unwrap_or(usize::MAX);
        let packs = usize::try_from(2 * packs_half_bytes(options.host_bytes_max, options.ranks)).unwrap_or(usize::MAX);
        let each = |bytes: usize| (0..options.ranks).map(|_| HostBuffer::zeros(context, bytes)).collect::<Result<Vec<_>>>();
        Ok(HostRegions { packs: HostBuffer::zeros(context, packs)?, lines: each(lines)?, flags: each(FLAG_BYTES)? })
    }
}

/// Compiles and loads one function.
///
/// # Errors
/// When it does not compile or load.
pub fn load(context: &Arc<CudaContext>, source: &str, name: &str, variant: &Variant) -> Result<CudaFunction> {
    let text = kernel::source(source).ok_or_else(|| Fault::new("gpu-compile", format!("there is no kernel `{source}`")))?;
    let code = compile::compile_cached(text, variant, device::architecture(context)?)?;
    let module = context.load_module(Ptx::from_binary(code)).explain(&format!("load {source}"))?;
    module.load_function(name).explain(&format!("find {name}"))
}

/// A launch without dynamic shared memory.
pub fn config(grid: Grid) -> LaunchConfig {
    LaunchConfig { grid_dim: (grid.blocks, 1, 1), block_dim: (grid.threads, 1, 1), shared_mem_bytes: 0 }
}
