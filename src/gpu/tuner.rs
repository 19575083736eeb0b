//! This program as NCCL's tuner: algorithm, protocol and channels can change
//! from call to call of one process.
//!
//! With `NCCL_TUNER_PLUGIN=STATIC_PLUGIN` NCCL looks for `ncclTunerPlugin_v4`
//! among the symbols of the running program (`build.rs` exports it). Before each
//! collective it hands over its table of predicted costs; [`force`] makes one
//! entry free. Without a call of [`force`] the table stays as NCCL made it.
//!
//! Laid out after `plugins/tuner/example/nccl/tuner.h` of NCCL 2.28 to 2.31,
//! version 4 of the interface.

use std::ffi::c_char;
use std::ffi::c_int;
use std::ffi::c_void;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;

/// The variable and value that make NCCL ask this program.
pub const ENVIRONMENT: (&str, &str) = ("NCCL_TUNER_PLUGIN", "STATIC_PLUGIN");

/// Columns of NCCL's table, by number.
const PROTOCOLS: [&str; 3] = ["ll", "ll128", "simple"];
/// Rows of NCCL's table, by number; the others need several nodes or NVLink.
const ALGORITHMS: [&str; 2] = ["tree", "ring"];
/// `ncclFuncAllReduce`.
const ALL_REDUCE: c_int = 4;
/// `NCCL_ALGO_PROTO_IGNORE`: NCCL cannot use this entry.
const IMPOSSIBLE: f32 = -1.0;
/// `ncclSuccess`.
const SUCCESS: c_int = 0;

/// The entry to make free: 1 + algorithm x 16 + protocol; 0: none.
static FORCED: AtomicU32 = AtomicU32::new(0);
/// Channels to use, 0 for NCCL's number.
static CHANNELS: AtomicI32 = AtomicI32::new(0);
/// All-reduces that NCCL asked about.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// Of these, those whose forced entry was impossible.
static REFUSED: AtomicU32 = AtomicU32::new(0);

/// What NCCL asked since the last [`force`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// All-reduces asked about, all ranks together.
    pub calls: u32,
    /// Those in which the forced entry was impossible and nothing was changed.
    pub refused: u32,
}

/// From now on all-reduces use this algorithm (`ring`, `tree`), protocol (`ll`,
/// `ll128`, `simple`) and number of channels; empty or 0 leaves it to NCCL.
/// False when the names are not known.
pub fn force(algorithm: &str, protocol: &str, channels: u32) -> bool {
    let row = ALGORITHMS.iter().position(|name| *name == algorithm);
    let column = PROTOCOLS.iter().position(|name| *name == protocol);
    let forced = match (row, column) {
        (Some(row), Some(column)) => 1 + row as u32 * 16 + column as u32,
        _ if algorithm.is_empty() && protocol.is_empty() => 0,
        _ => return false,
    };
    FORCED.store(forced, Ordering::SeqCst);
    CHANNELS.store(i32::try_from(channels).unwrap_or(0), Ordering::SeqCst);
    ASKED.store(0, Ordering::SeqCst);
    REFUSED.store(0, Ordering::SeqCst);
    true
}

/// What NCCL asked since the last [`force`]; no calls at all: NCCL did not take
/// this program as its tuner.
pub fn asked() -> Asked {
    Asked { calls: ASKED.load(Ordering::SeqCst), refused: REFUSED.load(Ordering::SeqCst) }
}

/// `ncclTuner_v4_t`.
#[repr(C)]
pub struct TunerPlugin {
    name: *const c_char,
    init: extern "C" fn(usize, usize, *const c_void, *mut *mut c_void) -> c_int,
    // SAFETY: called by NCCL alone, with a table of the sizes it names.
    get: unsafe extern "C" fn(*mut c_void, c_int, usize, c_int, *mut *mut f32, c_int, c_int, c_int, *mut c_int) -> c_int,
    destroy: extern "C" fn(*mut c_void) -> c_int,
}

// SAFETY: the name is a constant and the functions may be called from any thread.
unsafe impl Sync for TunerPlugin {}

/// What NCCL finds by its name.
// SAFETY: no other symbol of the program has this name; NCCL reads it as its header declares it.
#[unsafe(no_mangle)]
#[used]
#[allow(non_upper_case_globals)]
pub static ncclTunerPlugin_v4: TunerPlugin = TunerPlugin { name: c"lanecast".as_ptr(), init, get: get_cost, destroy };

extern "C" fn init(_ranks: usize, _nodes: usize, _log: *const c_void, context: *mut *mut c_void) -> c_int {
    if !context.is_null() {
        // SAFETY: NCCL passes the address of its own pointer.
        unsafe { *context = std::ptr::null_mut() };
    }
    SUCCESS
}

extern "C" fn destroy(_context: *mut c_void) -> c_int {
    SUCCESS
}

/// `getCollInfo`: `table` is really `float[algorithms][protocols]`.
///
/// # Safety
/// NCCL calls it with a table of `rows` x `columns` floats and a valid place for
/// the channels.
#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn get_cost(
    _context: *mut c_void,
    collective: c_int,
    _bytes: usize,
    _operations: c_int,
    table: *mut *mut f32,
    rows: c_int,
    columns: c_int,
    _registered: c_int,
    channels: *mut c_int,
) -> c_int {
    let (rows, columns) = (usize::try_from(rows).unwrap_or(0), usize::try_from(columns).unwrap_or(0));
    if collective != ALL_REDUCE || table.is_null() {
        return SUCCESS;
    }
    // SAFETY: as the function's own contract says.
    let costs = unsafe { std::slice::from_raw_parts_mut(table.cast::<f32>(), rows * columns) };
    let chosen = choose(costs, columns, FORCED.load(Ordering::SeqCst), CHANNELS.load(Ordering::SeqCst));
    ASKED.fetch_add(1, Ordering::SeqCst);
    match chosen {
        None => {
            REFUSED.fetch_add(1, Ordering::SeqCst);
        }
        Some(count) if count > 0 && !channels.is_null() => {
            // SAFETY: as the function's own contract says.
            unsafe { *channels = count };
        }
        Some(_) => {}
    }
    SUCCESS
}

/// Makes the forced entry free and returns the channels to ask for; none when
/// NCCL has no such entry or calls it impossible.
fn choose(costs: &mut [f32], columns: usize, forced: u32, channels: i32) -> Option<i32> {
    let Some(entry) = forced.checked_sub(1) else { return Some(channels) };
    let (row, column) = ((entry / 16) as usize, (entry % 16) as usize);
    let cost = costs.get_mut(row * columns + column).filter(|cost| column < columns && **cost != IMPOSSIBLE)?;
    *cost = 0.0;
    Some(channels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_forced_entry_becomes_free() {
        // Rows tree, ring, one more; columns LL, LL128, Simple.
        let table = [7.0, 8.0, 9.0, 4.0, IMPOSSIBLE, 6.0, 1.0, 2.0, 3.0];
        let mut costs = table;
        assert_eq!(choose(&mut costs, 3, 0, 0), Some(0));
        assert_eq!(costs, table);
        // Ring is row 1, LL column 0.
        assert_eq!(choose(&mut costs, 3, 1 + 16, 4), Some(4));
        assert_eq!(costs[3], 0.0);
        assert_eq!(costs.iter().filter(|c| **c == 0.0).count(), 1);
        // Ring LL128 is impossible here: untouched and said so.
        assert_eq!(choose(&mut costs, 3, 1 + 16 + 1, 4), None);
        assert_eq!(costs[4], IMPOSSIBLE);
        // A table without the column.
        assert_eq!(choose(&mut [1.0, 2.0], 1, 1 + 16 + 2, 1), None);
    }

    #[test]
    fn nccl_s_call_changes_its_table_and_channels() {
        assert!(!force("ring", "", 1));
        assert!(!force("mesh", "ll", 1));
        assert!(force("tree", "simple", 2));
        let mut costs = [5.0_f32; 21];
        let mut channels = 0;
        let table = costs.as_mut_ptr().cast();
        let call = |kind: c_int, channels: *mut c_int| {
            // SAFETY: 7 x 3 floats and a place for an int (or none).
            unsafe { get_cost(std::ptr::null_mut(), kind, 43_008, 1, table, 7, 3, 0, channels) }
        };
        assert_eq!(call(2, &mut channels), SUCCESS);
        assert_eq!(channels, 0);
        assert_eq!(call(ALL_REDUCE, &mut channels), SUCCESS);
        assert_eq!(channels, 2);
        assert_eq!(asked(), Asked { calls: 1, refused: 0 });
        assert_eq!((costs[2], costs[5]), (0.0, 5.0));
        assert!(force("", "", 0));
        assert_eq!(asked(), Asked::default());
    }
}
