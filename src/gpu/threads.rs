//! Chains of collectives launched eagerly by one host thread a rank, as
//! frameworks with a process a GPU do.

use std::sync::Barrier;

use cudarc::driver::CudaEvent;
use cudarc::driver::sys;

use crate::error::{Fault, Result};
use crate::gpu::fault::Explain;
use crate::gpu::group::Group;
use crate::gpu::group::Message;
use crate::gpu::implementation::Grid;
use crate::gpu::implementation::Implementation;
use crate::gpu::measure::CHAIN;
use crate::gpu::measure::REPEATS;
use crate::gpu::measure::Spread;
use crate::gpu::nccl::Communicators;
use crate::gpu::observation::spread;

/// Repetitions before those that count.
const WARM_UP: usize = 2;

/// One of our all-reduces.
///
/// # Errors
/// When a device fails or an operation gives up waiting.
pub fn ours(group: &Group, implementation: Implementation, message: Message, grid: Grid) -> Result<Spread> {
    let ready = (0..group.ranks.len()).map(|rank| group.prepare(rank, implementation, message, grid)).collect::<Result<Vec<_>>>()?;
    chain(group, ready.into_iter().map(|one| move || one.launch()).collect())
}

/// NCCL's.
///
/// # Errors
/// As [`ours`], or when NCCL refuses.
pub fn nccl(group: &Group, communicators: &Communicators<'_>, message: Message) -> Result<Spread> {
    chain(group, (0..group.ranks.len()).map(|rank| communicators.call(rank, message)).map(|one| move || one.put()).collect())
}

/// Every rank's thread launches [`CHAIN`] times between two events on its
/// stream, all threads at once; the slowest rank counts, per operation.
fn chain<F: Fn() -> Result<()> + Send>(group: &Group, ones: Vec<F>) -> Result<Spread> {
    let timing = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
    let event = |rank: usize| group.ranks[rank].context.new_event(timing).explain("make an event");
    let events = (0..ones.len()).map(|rank| Ok((event(rank)?, event(rank)?))).collect::<Result<Vec<(CudaEvent, CudaEvent)>>>()?;
    let barrier = Barrier::new(ones.len());
    let by_rank: Vec<Result<Vec<f64>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = ones
            .into_iter()
            .zip(&events)
            .zip(&group.ranks)
            .map(|((one, (started, ended)), rank)| {
                let (context, stream, barrier) = (rank.context.clone(), rank.stream.clone(), &barrier);
                scope.spawn(move || {
                    let mut times = Vec::new();
                    // A rank that fails still meets the others at every barrier.
                    let mut outcome = context.bind_to_thread().explain("select the device");
                    for _ in 0..WARM_UP + REPEATS {
                        barrier.wait();
                        outcome = outcome.and_then(|()| {
                            started.record(&stream).explain("record an event")?;
                            (0..CHAIN).try_for_each(|_| one())?;
                            ended.record(&stream).explain("record an event")?;
                            stream.synchronize().explain("wait for the kernels")?;
                            times.push(f64::from(started.elapsed_ms(ended).explain("read the events")?) * 1000.0 / CHAIN as f64);
                            Ok(())
                        });
                    }
                    outcome.map(|()| times)
                })
            })
            .collect();
        let broken = || Err(Fault::new("gpu-worker", "a rank's thread broke"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| broken())).collect()
    });
    group.wait()?;
    let by_rank = by_rank.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(spread(&slowest(&by_rank)))
}

/// Of each repetition that counts, the longest time of any rank.
fn slowest(by_rank: &[Vec<f64>]) -> Vec<f64> {
    let repetitions = by_rank.iter().map(Vec::len).min().unwrap_or(0);
    (WARM_UP..repetitions).map(|i| by_rank.iter().map(|times| times[i]).fold(0.0, f64::max)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_rank_of_each_repetition_counts() {
        let ranks = [vec![9.0, 9.0, 1.0, 4.0], vec![9.0, 9.0, 3.0, 2.0]];
        assert_eq!(slowest(&ranks), [3.0, 4.0]);
        assert!(slowest(&[vec![1.0]]).is_empty());
    }
}
