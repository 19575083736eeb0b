//! Rows in the order of cases from several threads.
//!
//! Threads take the next few cases one after another, so that no row waits for
//! cases far ahead of it: what waits is bounded by the number of threads.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;

use super::space::Space;
use super::space::Worker;
use crate::error::Fault;
use crate::error::Result;

/// Cases that a thread takes at once.
const TAKEN: u64 = 8;

/// Calls `sink` with each row of `cases`, in order, each as soon as those before it are there.
///
/// # Errors
/// The first fault of `sink`, after which no more cases are begun; `sweep-threads`
/// when the system gives no threads.
pub fn rows(space: &Space, cases: Range<u64>, threads: usize, mut sink: impl FnMut(u64, &str) -> Result<()>) -> Result<()> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.max(1)).build();
    let pool = pool.map_err(|error| Fault::new("sweep-threads", format!("cannot start {threads} threads: {error}")))?;
    let (next, stop) = (AtomicU64::new(cases.start), AtomicBool::new(false));
    let (next, stop, last) = (&next, &stop, cases.end);
    let (sender, receiver) = sync_channel::<(u64, Vec<String>)>(2 * threads.max(1));
    pool.in_place_scope(move |scope| {
        for _ in 0..threads.max(1) {
            let sender = sender.clone();
            scope.spawn(move |_| {
                let mut worker = Worker::default();
                while !stop.load(Ordering::Relaxed) {
                    let first = next.fetch_add(TAKEN, Ordering::Relaxed);
                    if first >= last {
                        return;
                    }
                    let rows = (first..last.min(first + TAKEN)).map(|index| space.row(&mut worker, index)).collect();
                    if sender.send((first, rows)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut waiting: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        let mut due = cases.start;
        for (first, rows) in receiver {
            waiting.insert(first, rows);
            while let Some(rows) = waiting.remove(&due) {
                for row in rows {
                    if let Err(fault) = sink(due, &row) {
                        // The receiver goes away with this closure: nobody waits to send.
                        stop.store(true, Ordering::Relaxed);
                        return Err(fault);
                    }
                    due += 1;
                }
            }
        }
        Ok(())
    })
}
