//! Every schedule, run on real numbers in random legal orders, gives every rank
//! the right result, and its connections carry the textbook's bytes.

use lanecast::collective::numeric::run;
use lanecast::collective::one_shot::{self, Grid};
use lanecast::collective::{KernelShape, Part, Protocol, Schedule, gather, ring, tree};
use proptest::prelude::*;

fn shape(protocol: Protocol, channels: u32, bytes: u64, chunk_bytes: u64) -> KernelShape {
    let parts = (0..)
        .zip(one_shot::shares(bytes, channels))
        .filter(|(_, (_, share))| *share > 0)
        .map(|(channel, (offset, share))| Part { channel, offset, bytes: share, chunk_bytes })
        .collect();
    let ring_simple = protocol == Protocol::Simple;
    KernelShape {
        protocol,
        threads: 64,
        broadcast_threads: 32,
        block_threads: 96,
        slice_steps: if ring_simple { 2 } else { 1 },
        chunk_steps: if ring_simple { 4 } else { 1 },
        slice_bytes_min: 32,
        parts,
    }
}

fn inputs(ranks: usize, bytes: u64) -> Vec<Vec<i64>> {
    (0..ranks as i64).map(|rank| (0..bytes as i64).map(|i| (rank + 3) * 1000 + i * i % 97 + rank * i).collect()).collect()
}

fn check_sums(schedule: &Schedule, seed: u64) {
    let inputs = inputs(schedule.ranks, schedule.user_bytes);
    let sum: Vec<i64> = (0..schedule.user_bytes as usize).map(|i| inputs.iter().map(|rank| rank[i]).sum()).collect();
    for (rank, result) in run(schedule, &inputs, seed).expect("runs").iter().enumerate() {
        assert_eq!(result, &sum, "rank {rank}");
    }
}

fn any_order(ranks: usize) -> Vec<usize> {
    // A fixed, non-trivial ring: odd ranks first.
    (0..ranks).filter(|r| r % 2 == 1).chain((0..ranks).filter(|r| r % 2 == 0)).collect()
}

const PROTOCOLS: [Protocol; 3] = [Protocol::Ll, Protocol::Ll128, Protocol::Simple];

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rings_and_trees_sum(ranks in 2usize..=16, bytes in 1u64..3000, channels in 1u32..5, chunk in 1u64..40, protocol in 0usize..3, seed: u64) {
        let shape = shape(PROTOCOLS[protocol], channels, bytes, chunk * 16);
        check_sums(&ring::all_reduce(&any_order(ranks), bytes, &shape), seed);
        check_sums(&tree::all_reduce(&any_order(ranks), bytes, &shape), seed);
    }

    #[test]
    fn shots_sum(ranks in 2usize..=16, bytes in 1u64..3000, blocks in 1u32..5, end_barrier: bool, seed: u64) {
        let grid = Grid { blocks, threads: 32 };
        check_sums(&one_shot::push(ranks, bytes, grid, Protocol::Ll), seed);
        check_sums(&one_shot::push(ranks, bytes, grid, Protocol::Packet), seed);
        check_sums(&one_shot::pull(ranks, bytes, grid, end_barrier), seed);
        check_sums(&one_shot::two_shot_pull(ranks, bytes, grid), seed);
    }

    #[test]
    fn gathers_and_scatters(ranks in 2usize..=8, shard in 1u64..40, chunk in 1u64..10, seed: u64) {
        let shard = shard * 16;
        let bytes = shard * ranks as u64;
        let shape = shape(Protocol::Ll, 2, shard, chunk * 16);
        let data = inputs(ranks, bytes);
        let order = any_order(ranks);
        let gathered = run(&gather::ring_all_gather(&order, bytes, &shape), &data, seed).expect("runs");
        let scattered = run(&gather::ring_reduce_scatter(&order, bytes, &shape), &data, seed).expect("runs");
        for i in 0..bytes as usize {
            let owner = i / shard as usize;
            for rank in &gathered {
                prop_assert_eq!(rank[i], data[owner][i]);
            }
            prop_assert_eq!(scattered[owner][i], data.iter().map(|rank| rank[i]).sum::<i64>());
        }
    }
}

/// Textbook: a ring moves 2(n − 1)/n of the message over every link.
#[test]
fn a_ring_carries_the_textbook_bytes() {
    let bytes = 43_008;
    let schedule = ring::all_reduce(&any_order(8), bytes, &shape(Protocol::Ll, 1, bytes, 32_768));
    for (index, carried) in schedule.bytes_by_connection().into_iter().enumerate() {
        assert_eq!(carried, 2 * 7 * bytes / 8, "connection {index}");
    }
    // 15 primitives a rank, 14 hops, as NCCL's ring has.
    assert!(schedule.blocks.iter().all(|block| block.steps.len() == 15));
}

/// A chain moves the whole message up and down every link.
#[test]
fn a_tree_carries_the_textbook_bytes() {
    let schedule = tree::all_reduce(&any_order(8), 43_008, &shape(Protocol::Ll, 4, 43_008, 32_768));
    let carried = schedule.bytes_by_connection();
    assert_eq!(carried.iter().sum::<u64>(), 2 * 7 * 43_008);
}

/// One-shot: every rank sends (pull: reads) the whole message n − 1 times.
#[test]
fn one_shots_carry_the_textbook_bytes() {
    let grid = Grid { blocks: 3, threads: 512 };
    let push = one_shot::push(8, 43_008, grid, Protocol::Ll);
    assert_eq!(push.bytes_by_connection().iter().sum::<u64>(), 8 * 7 * 43_008);
    let pull = one_shot::pull(8, 43_008, grid, true);
    assert_eq!(pull.bytes_by_connection().iter().sum::<u64>(), 8 * 7 * 43_008);
    let two_shot = one_shot::two_shot_pull(8, 43_008, grid);
    assert_eq!(two_shot.bytes_by_connection().iter().sum::<u64>(), 2 * 7 * 43_008);
}

/// A schedule in which two ranks wait for each other says so.
#[test]
fn a_deadlock_is_named() {
    let mut schedule = one_shot::push(2, 64, Grid { blocks: 1, threads: 32 }, Protocol::Ll);
    for block in &mut schedule.blocks {
        block.steps.reverse();
    }
    let fault = run(&schedule, &inputs(2, 64), 1).expect_err("stuck");
    assert_eq!(fault.code, "schedule-deadlock");
    assert!(fault.message.contains("rank 0 step 0 waits for rank 1"), "{}", fault.message);
}
