//! The simulator's event loop on the case: chains of all-reduces of 43,008 B
//! over 8 ranks, nothing reused. `cargo bench --bench engine`.

use lanecast::case::chain;
use lanecast::case::chain::ChainLaunch;
use lanecast::collective::KernelShape;
use lanecast::collective::Part;
use lanecast::collective::Protocol;
use lanecast::collective::Schedule;
use lanecast::collective::gather;
use lanecast::collective::one_shot;
use lanecast::collective::one_shot::Grid;
use lanecast::collective::ring;
use lanecast::collective::tree;
use lanecast::machine::Machine;
use lanecast::simulate::Options;
use lanecast::strategy::Kernel;
use lanecast::strategy::Lowering;

const BYTES: u64 = 43_008;
const RANKS: usize = 8;
/// All-reduces in a chain: what a hundred passes of the case hold is 12,200.
const COUNTS: [u32; 2] = [1_220, 12_200];

fn main() {
    divan::main();
}

fn simulate(bencher: divan::Bencher, count: u32, lowering: &Lowering, reuse: bool) {
    let machine = Machine::load("8x-rtx-pro-6000-server").expect("it is embedded");
    let options = Options { reuse, records: false };
    bencher.bench_local(|| chain::run(&machine, lowering, ChainLaunch::Graph, count, options).expect("it runs").critical());
}

fn shape(channels: u32, chunk_bytes: u64) -> KernelShape {
    let share = BYTES / u64::from(channels);
    let parts = (0..channels).map(|channel| Part { channel, offset: u64::from(channel) * share, bytes: share, chunk_bytes }).collect();
    KernelShape {
        protocol: Protocol::Ll,
        threads: 256,
        broadcast_threads: 256,
        block_threads: 512,
        slice_steps: 1,
        chunk_steps: 1,
        slice_bytes_min: 0,
        parts,
    }
}

fn nccl(schedule: Schedule) -> Lowering {
    Lowering { schedule, kernel: Kernel::Nccl, through_host: Vec::new() }
}

fn order() -> Vec<usize> {
    (0..RANKS).collect()
}

#[divan::bench(args = COUNTS, sample_count = 5, sample_size = 1)]
fn ring_ll(bencher: divan::Bencher, count: u32) {
    simulate(bencher, count, &nccl(ring::all_reduce(&order(), BYTES, &shape(1, 16_384))), false);
}

#[divan::bench(args = COUNTS, sample_count = 5, sample_size = 1)]
fn tree_ll(bencher: divan::Bencher, count: u32) {
    simulate(bencher, count, &nccl(tree::all_reduce(&order(), BYTES, &shape(4, 16_384))), false);
}

#[divan::bench(args = COUNTS, sample_count = 5, sample_size = 1)]
fn one_shot_push(bencher: divan::Bencher, count: u32) {
    let grid = Grid { blocks: 11, threads: 512 };
    simulate(bencher, count, &Lowering::custom(one_shot::push(RANKS, BYTES, grid, Protocol::Ll)), false);
}

#[divan::bench(args = COUNTS, sample_count = 5, sample_size = 1)]
fn all_pair_packets(bencher: divan::Bencher, count: u32) {
    let grid = Grid { blocks: 11, threads: 512 };
    simulate(bencher, count, &Lowering::custom(one_shot::push(RANKS, BYTES, grid, Protocol::Packet)), false);
}

/// A reduce-scatter and an all-gather take the place of an all-reduce in some strategies.
#[divan::bench(args = COUNTS, sample_count = 5, sample_size = 1)]
fn reduce_scatter_ll(bencher: divan::Bencher, count: u32) {
    let mut shape = shape(1, 16_384);
    shape.parts[0].bytes = BYTES / RANKS as u64;
    simulate(bencher, count, &nccl(gather::ring_reduce_scatter(&order(), BYTES, &shape)), false);
}

/// What reuse leaves to do.
#[divan::bench(args = COUNTS, sample_count = 5, sample_size = 1)]
fn ring_ll_with_reuse(bencher: divan::Bencher, count: u32) {
    simulate(bencher, count, &nccl(ring::all_reduce(&order(), BYTES, &shape(1, 16_384))), true);
}

/// Building the schedule of a one-shot push of the case.
#[divan::bench]
fn build_one_shot_push() -> usize {
    one_shot::push(8, 43_008, Grid { blocks: 11, threads: 512 }, Protocol::Ll).blocks.len()
}
