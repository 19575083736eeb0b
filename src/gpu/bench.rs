//! A GPU with two streams and a place for cycle counts: what every
//! micro-benchmark stands on.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use cudarc::driver::CudaContext;
use cudarc::driver::CudaFunction;
use cudarc::driver::CudaStream;
use cudarc::driver::PushKernelArg;
use cudarc::driver::sys;

use crate::error::Result;
use crate::gpu::device;
use crate::gpu::element::Element;
use crate::gpu::fault::Explain;
use crate::gpu::group::config;
use crate::gpu::group::load;
use crate::gpu::implementation::Grid;
use crate::gpu::kernel::Variant;
use crate::gpu::memory::DeviceBuffer;
use crate::gpu::memory::HostBuffer;
use crate::gpu::observation::spread;

/// Repetitions of each micro-benchmark.
pub const REPEATS: usize = 11;

/// One argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub enum Word {
    /// An address or count.
    Long(u64),
    /// A number of 32 bits.
    Short(u32),
}

/// One GPU, ready to be measured.
pub struct Bench {
    /// The GPU.
    pub context: Arc<CudaContext>,
    /// Work in order.
    pub stream: Arc<CudaStream>,
    /// A second, concurrent stream.
    pub second: Arc<CudaStream>,
    /// Where kernels leave cycle counts: host memory, 8 words of 8 bytes.
    pub cycles: HostBuffer,
    /// Measured clock of the multiprocessors, GHz.
    pub clock_ghz: f64,
    functions: RefCell<BTreeMap<(String, Variant), CudaFunction>>,
}

impl Bench {
    /// Opens GPU `ordinal` and measures its clock.
    ///
    /// # Errors
    /// When the device or a kernel fails.
    pub fn open(ordinal: usize) -> Result<Bench> {
        let context = device::open(ordinal)?;
        let stream = context.new_stream().explain("make a stream")?;
        let second = context.new_stream().explain("make a stream")?;
        let cycles = HostBuffer::zeros(&context, 4096)?;
        let mut bench = Bench { context, stream, second, cycles, clock_ghz: 1.0, functions: RefCell::new(BTreeMap::new()) };
        bench.clock_ghz = bench.measure_clock()?;
        Ok(bench)
    }

    /// Cycles of the clock per nanosecond, from two spins of known length.
    fn measure_clock(&self) -> Result<f64> {
        let spin = |cycles: u64| {
            self.time_us(5, &|| self.launch(&self.stream, "busy", "busy", Grid { blocks: 1, threads: 32 }, &[Word::Long(cycles)]))
        };
        self.launch(&self.stream, "busy", "busy", Grid { blocks: 1, threads: 32 }, &[Word::Long(40_000_000)])?;
        let (long, short) = (spin(8_000_000)?.0, spin(4_000_000)?.0);
        Ok(4_000_000.0 / ((long - short) * 1000.0))
    }

    /// The function `name` of `source`.
    ///
    /// # Errors
    /// When it does not compile or load.
    pub fn function(&self, source: &str, name: &str, macros: &[(&'static str, u32)]) -> Result<CudaFunction> {
        let mut variant = Variant::new(2, Element::Bf16);
        variant.macros.extend_from_slice(macros);
        let key = (name.to_owned(), variant);
        if let Some(function) = self.functions.borrow().get(&key) {
            return Ok(function.clone());
        }
        let function = load(&self.context, source, name, &key.1)?;
        self.functions.borrow_mut().insert(key, function.clone());
        Ok(function)
    }

    /// Launches a kernel without macros.
    ///
    /// # Errors
    /// When it does not compile or launch.
    pub fn launch(&self, stream: &CudaStream, source: &str, name: &str, grid: Grid, words: &[Word]) -> Result<()> {
        let function = self.function(source, name, &[])?;
        self.launch_function(stream, &function, grid, words)
    }

    /// Launches a loaded function.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn launch_function(&self, stream: &CudaStream, function: &CudaFunction, grid: Grid, words: &[Word]) -> Result<()> {
        let mut launch = stream.launch_builder(function);
        for word in words {
            match word {
                Word::Long(value) => launch.arg(value),
                Word::Short(value) => launch.arg(value),
            };
        }
        // SAFETY: callers pass the words that the kernel declares, with
        // addresses of live buffers long enough for it.
        unsafe { launch.launch(config(grid)) }.explain("launch a kernel")?;
        Ok(())
    }

    /// Microseconds between events around `work` on the first stream: median,
    /// least, most. One run before is not counted.
    ///
    /// # Errors
    /// When the device or `work` fails.
    pub fn time_us(&self, repeats: usize, work: &dyn Fn() -> Result<()>) -> Result<(f64, f64, f64)> {
        let timing = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let started = self.context.new_event(timing).explain("make an event")?;
        let ended = self.context.new_event(timing).explain("make an event")?;
        let mut times = Vec::with_capacity(repeats);
        for repeat in 0..=repeats {
            started.record(&self.stream).explain("record an event")?;
            work()?;
            ended.record(&self.stream).explain("record an event")?;
            let ms = started.elapsed_ms(&ended).explain("read the events")?;
            if repeat > 0 {
                times.push(f64::from(ms) * 1000.0);
            }
        }
        Ok(spread(&times))
    }

    /// Nanoseconds that kernels counted into word `slot` of [`Bench::cycles`],
    /// over `repeats` runs of `work`, each divided by `per`.
    ///
    /// # Errors
    /// When the device or `work` fails.
    pub fn counted_ns(&self, slots: &[usize], per: f64, work: &dyn Fn() -> Result<()>) -> Result<Vec<(f64, f64, f64)>> {
        let mut values = vec![Vec::with_capacity(REPEATS); slots.len()];
        for repeat in 0..=REPEATS {
            self.cycles.clear();
            work()?;
            self.context.synchronize().explain("wait for the device")?;
            if repeat == 0 {
                continue;
            }
            for (values, slot) in values.iter_mut().zip(slots) {
                values.push(self.count(*slot) as f64 / self.clock_ghz / per);
            }
        }
        Ok(values.iter().map(|v| spread(v)).collect())
    }

    /// Word `slot` of 8 bytes of [`Bench::cycles`].
    pub fn count(&self, slot: usize) -> u64 {
        u64::from(self.cycles.word(2 * slot)) | u64::from(self.cycles.word(2 * slot + 1)) << 32
    }

    /// Device memory of this GPU.
    ///
    /// # Errors
    /// When there is too little.
    pub fn device(&self, bytes: usize) -> Result<DeviceBuffer> {
        DeviceBuffer::filled(&self.context, bytes, 0)
    }
}
