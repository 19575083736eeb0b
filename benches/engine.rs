//! The simulator's event loop.

use lanecast::collective::Protocol;
use lanecast::collective::one_shot;
use lanecast::collective::one_shot::Grid;

fn main() {
    divan::main();
}

/// Building the schedule of a one-shot push of the case.
#[divan::bench]
fn build_one_shot_push() -> usize {
    one_shot::push(8, 43_008, Grid { blocks: 11, threads: 512 }, Protocol::Ll).blocks.len()
}
