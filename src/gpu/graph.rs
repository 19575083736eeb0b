//! One CUDA graph for all ranks: fork from the first stream, join into it.

use cudarc::driver::CudaEvent;
use cudarc::driver::CudaGraph;
use cudarc::driver::CudaStream;
use cudarc::driver::result;
use cudarc::driver::sys;

use crate::error::{Fault, Result};
use crate::gpu::fault::Explain;
use crate::gpu::group::Group;

/// A captured piece of work of a [`Group`], to be launched again and again.
/// The group owns the buffers and functions that it uses, so it borrows it.
pub struct Replay<'a> {
    group: &'a Group,
    graph: CudaGraph,
    started: CudaEvent,
    ended: CudaEvent,
}

/// Makes `later` wait for what is in `earlier` so far. Works across GPUs.
///
/// # Errors
/// When the driver refuses.
pub fn order(earlier: &CudaStream, later: &CudaStream) -> Result<()> {
    let event = earlier.context().new_event(None).explain("make an event")?;
    earlier.context().bind_to_thread().explain("select the device")?;
    // SAFETY: event and stream are alive and of the same context.
    unsafe { result::event::record(event.cu_event(), earlier.cu_stream()) }.explain("record an event")?;
    later.context().bind_to_thread().explain("select the device")?;
    // SAFETY: both are alive; the driver keeps what it needs of the event.
    unsafe { result::stream::wait_event(later.cu_stream(), event.cu_event(), sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT) }
        .explain("wait for an event")
}

impl<'a> Replay<'a> {
    /// Captures what `enqueue` puts on the group's streams.
    ///
    /// # Errors
    /// When capture fails or `enqueue` does.
    pub fn capture(group: &'a Group, enqueue: impl FnOnce() -> Result<()>) -> Result<Replay<'a>> {
        let first = &group.ranks[0].stream;
        let timing = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        let started = first.context().new_event(timing).explain("make an event")?;
        let ended = first.context().new_event(timing).explain("make an event")?;
        first.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).explain("begin a graph")?;
        let filled = fill(group, enqueue);
        let graph = first.end_capture(sys::CUgraphInstantiate_flags(0)).explain("end a graph");
        filled?;
        let graph = graph?.ok_or_else(|| Fault::new("gpu-driver", "the captured graph is empty"))?;
        graph.upload().explain("upload a graph")?;
        Ok(Replay { group, graph, started, ended })
    }

    /// Launches without waiting.
    ///
    /// # Errors
    /// When the driver refuses.
    pub fn launch(&self) -> Result<()> {
        self.graph.launch().explain("launch a graph")
    }

    /// Launches, waits, and returns the time from start to end in microseconds.
    ///
    /// # Errors
    /// When the driver fails or a call gave up waiting.
    pub fn time_us(&self) -> Result<f64> {
        let first = &self.group.ranks[0].stream;
        self.started.record(first).explain("record an event")?;
        self.launch()?;
        self.ended.record(first).explain("record an event")?;
        self.group.wait()?;
        let ms = self.started.elapsed_ms(&self.ended).explain("read the events")?;
        Ok(f64::from(ms) * 1000.0)
    }
}

fn fill(group: &Group, enqueue: impl FnOnce() -> Result<()>) -> Result<()> {
    let (first, others) = group.ranks.split_first().ok_or_else(|| Fault::new("gpu-ranks", "a group without ranks"))?;
    for rank in others {
        order(&first.stream, &rank.stream)?;
    }
    let outcome = enqueue();
    // Join even after a failure, so that the capture can end.
    for rank in others {
        order(&rank.stream, &first.stream)?;
    }
    outcome
}
