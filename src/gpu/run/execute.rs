//! Putting steps on streams: into one graph for all ranks, or from a host
//! thread a rank; and timing both.

use std::sync::Arc;
use std::sync::Barrier;

use cudarc::driver::CudaEvent;
use cudarc::driver::CudaGraph;
use cudarc::driver::CudaStream;
use cudarc::driver::sys;
use cudarc::nccl::result;

use crate::error::{Fault, Result};
use crate::gpu::copy_ring;
use crate::gpu::fault::Explain;
use crate::gpu::graph::order;
use crate::gpu::group::Group;
use crate::gpu::run::exchange::Exchanged;
use crate::gpu::run::program::Step;
use crate::gpu::run::program::Work;
use crate::gpu::run::ranks::Rank;

/// The ranks and how to wait for them.
pub struct Runner<'a> {
    /// The ranks.
    pub ranks: &'a [Rank],
    /// Their regions, if there are several.
    pub group: Option<&'a Group>,
}

/// Events at the starts of blocks of one rank.
pub struct Marks<'a> {
    /// Whose stream is marked.
    pub rank: usize,
    /// One event a block and one at the end.
    pub events: &'a [CudaEvent],
}

fn timed_event(rank: &Rank) -> Result<CudaEvent> {
    rank.context.new_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT)).explain("make an event")
}

/// A node of the graph that stamps `event` at each replay.
fn mark(event: &CudaEvent, stream: &CudaStream) -> Result<()> {
    let flags = sys::CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL as u32;
    // SAFETY: event and stream are alive and of one context; the stream captures.
    unsafe { sys::cuEventRecordWithFlags(event.cu_event(), stream.cu_stream(), flags) }.explain("put an event into a graph")
}

fn before(step: &Step, rank: &Rank) -> Result<()> {
    if step.joins { order(&rank.side, &rank.stream) } else { Ok(()) }
}

fn after(step: &Step, rank: &Rank) -> Result<()> {
    if step.forks { order(&rank.stream, &rank.side) } else { Ok(()) }
}

fn kernels(step: &Step, stream: &CudaStream) -> Result<()> {
    let Work::Kernels(kernels) = &step.work else { return Ok(()) };
    kernels.iter().try_for_each(|kernel| kernel.enqueue(stream))
}

impl<'a> Runner<'a> {
    /// Waits for all streams.
    ///
    /// # Errors
    /// What the driver says; `gpu-stuck` when a collective gave up.
    pub fn wait(&self) -> Result<()> {
        for rank in self.ranks {
            rank.stream.synchronize().explain("wait for the kernels")?;
        }
        self.group.map_or(Ok(()), Group::wait)
    }

    /// Puts one step of all ranks on their streams, from this thread; `whole`
    /// with the second streams, which only a capture may use.
    ///
    /// # Errors
    /// When the driver or NCCL refuses.
    pub fn enqueue(&self, steps: &[&Step], whole: bool) -> Result<()> {
        for (step, rank) in steps.iter().zip(self.ranks) {
            if whole {
                before(step, rank)?;
            }
            kernels(step, if whole && step.side { &rank.side } else { &rank.stream })?;
            if whole {
                after(step, rank)?;
            }
        }
        match steps.first().map(|step| &step.work) {
            Some(Work::Collective(Exchanged::CopyRing { message, grid })) => match self.group {
                Some(group) => copy_ring::enqueue(group, *message, *grid),
                None => Ok(()),
            },
            Some(Work::Collective(Exchanged::Nccl { .. })) => {
                result::group_start().explain("begin a group")?;
                let outcome = self.exchange(steps);
                let ended = result::group_end().explain("enqueue the collectives").map(|_| ());
                outcome.and(ended)
            }
            _ => self.exchange(steps),
        }
    }

    fn exchange(&self, steps: &[&Step]) -> Result<()> {
        for (step, rank) in steps.iter().zip(self.ranks) {
            if let Work::Collective(exchanged) = &step.work {
                exchanged.enqueue(&rank.stream)?;
            }
        }
        Ok(())
    }

    /// The whole pass of all ranks, from this thread, into a capture; the steps
    /// `without` are left out, but for what waits for what.
    ///
    /// # Errors
    /// As [`Runner::enqueue`].
    pub fn all(&self, program: &[Vec<Step>], marks: Option<&Marks<'_>>, without: &[usize]) -> Result<()> {
        let mut blocks = 0;
        for index in 0..program[0].len() {
            let steps: Vec<&Step> = program.iter().map(|steps| &steps[index]).collect();
            if without.binary_search(&index).is_ok() {
                for (step, rank) in steps.iter().zip(self.ranks) {
                    before(step, rank)?;
                    after(step, rank)?;
                }
                continue;
            }
            if let Some(marks) = marks.filter(|_| steps[0].begins) {
                mark(&marks.events[blocks], &self.ranks[marks.rank].stream)?;
                blocks += 1;
            }
            self.enqueue(&steps, true)?;
        }
        match marks {
            Some(marks) => mark(&marks.events[blocks], &self.ranks[marks.rank].stream),
            None => Ok(()),
        }
    }

    /// Runs the steps `range` once, as a graph of their own, without second streams.
    ///
    /// # Errors
    /// As [`Runner::capture`] and [`Replay::time_us`].
    pub fn once(&self, program: &[Vec<Step>], range: std::ops::Range<usize>) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let fill = || {
            for index in range {
                let steps: Vec<&Step> = program.iter().map(|steps| &steps[index]).collect();
                self.enqueue(&steps, false)?;
            }
            Ok(())
        };
        self.capture(fill)?.time_us().map(|_| ())
    }

    /// Captures what `fill` puts on the streams.
    ///
    /// # Errors
    /// When capture or `fill` fails.
    pub fn capture(&self, fill: impl FnOnce() -> Result<()>) -> Result<Replay<'_, 'a>> {
        let (first, others) = self.ranks.split_first().ok_or_else(|| Fault::new("gpu-ranks", "a pass without ranks"))?;
        first.stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).explain("begin a graph")?;
        let fork = others.iter().try_for_each(|rank| order(&first.stream, &rank.stream));
        let filled = fork.and_then(|()| fill());
        // Join even after a failure, so that the capture can end.
        let joined = others.iter().try_for_each(|rank| order(&rank.stream, &first.stream));
        let graph = first.stream.end_capture(sys::CUgraphInstantiate_flags(0)).explain("end a graph");
        filled?;
        joined?;
        let graph = graph?.ok_or_else(|| Fault::new("gpu-driver", "the captured graph is empty"))?;
        graph.upload().explain("upload a graph")?;
        Ok(Replay { runner: self, graph, started: timed_event(first)?, ended: timed_event(first)? })
    }

    /// One pass launched by a host thread a rank; microseconds from the first
    /// rank's start to the last one's end, on the GPU's clock, and the longest
    /// that a thread took to launch.
    ///
    /// # Errors
    /// When a device fails.
    pub fn eager(&self, program: &[Vec<Step>]) -> Result<(f64, f64)> {
        let events = self.ranks.iter().map(|rank| Ok((timed_event(rank)?, timed_event(rank)?))).collect::<Result<Vec<_>>>()?;
        let barrier = Arc::new(Barrier::new(self.ranks.len()));
        let outcomes: Vec<Result<f64>> = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .ranks
                .iter()
                .zip(program)
                .zip(&events)
                .map(|((rank, steps), events)| {
                    let barrier = barrier.clone();
                    scope.spawn(move || launch_all(rank, steps, events, &barrier))
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(Fault::new("gpu-driver", "a launching thread broke")))).collect()
        });
        let mut host_us = 0.0_f64;
        for outcome in outcomes {
            host_us = host_us.max(outcome?);
        }
        self.wait()?;
        let mut longest = 0.0_f64;
        for (started, _) in &events {
            for (_, ended) in &events {
                longest = longest.max(f64::from(started.elapsed_ms(ended).explain("read the events")?));
            }
        }
        Ok((longest * 1000.0, host_us))
    }
}

fn launch_all(rank: &Rank, steps: &[Step], events: &(CudaEvent, CudaEvent), barrier: &Barrier) -> Result<f64> {
    rank.context.bind_to_thread().explain("select the device")?;
    barrier.wait();
    let begun = std::time::Instant::now();
    events.0.record(&rank.stream).explain("record an event")?;
    for step in steps {
        // One stream: engines use a second one in captured graphs only, and a
        // GPU has 32 queues, of which NCCL takes two a rank; streams that share
        // a queue wait for each other, and so would ranks.
        kernels(step, &rank.stream)?;
        if let Work::Collective(exchanged) = &step.work {
            exchanged.enqueue(&rank.stream)?;
        }
    }
    events.1.record(&rank.stream).explain("record an event")?;
    Ok(begun.elapsed().as_secs_f64() * 1e6)
}

/// A captured piece of work.
pub struct Replay<'r, 'a> {
    runner: &'r Runner<'a>,
    graph: CudaGraph,
    started: CudaEvent,
    ended: CudaEvent,
}

impl Replay<'_, '_> {
    /// Replays once; microseconds from start to end.
    ///
    /// # Errors
    /// When the driver fails or a collective gave up.
    pub fn time_us(&self) -> Result<f64> {
        let first = &self.runner.ranks[0].stream;
        self.started.record(first).explain("record an event")?;
        self.graph.launch().explain("launch a graph")?;
        self.ended.record(first).explain("record an event")?;
        self.runner.wait()?;
        Ok(f64::from(self.started.elapsed_ms(&self.ended).explain("read the events")?) * 1000.0)
    }

    /// `repeats` replays after `warm_up` that are not counted.
    ///
    /// # Errors
    /// As [`Replay::time_us`].
    pub fn times_us(&self, warm_up: usize, repeats: usize) -> Result<Vec<f64>> {
        for _ in 0..warm_up {
            self.time_us()?;
        }
        (0..repeats).map(|_| self.time_us()).collect()
    }
}
