//! Every schedule, run on real numbers in random legal orders, gives every rank
//! the right result, and its connections carry the textbook's bytes.

use lanecast::collective::exchange::{self, Channels, Message};
use lanecast::collective::islands::Islands;
use lanecast::collective::numeric::run;
use lanecast::collective::one_shot::{self, Grid};
use lanecast::collective::staged::{self, Staging};
use lanecast::collective::{Buffer, KernelShape, Part, Protocol, Schedule};
use lanecast::collective::{copy_ring, gather, hierarchical, host, packet, ring, symmetric, tree};
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
        let rows = one_shot::Rows { bytes: bytes.div_ceil(3), split: grid.blocks, threads: grid.threads };
        check_sums(&one_shot::push_and_normalise(ranks, bytes, rows, Protocol::Ll), seed);
        check_sums(&one_shot::push_after_barrier(ranks, bytes, grid), seed);
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

/// Ranks that the textbooks' examples and real machines have.
const RANKS: [usize; 6] = [2, 3, 4, 6, 8, 16];
/// One byte, fewer than ranks, odd, a token of 7,168 elements, three of them and a bit.
const SIZES: [u64; 6] = [1, 7, 33, 1000, 2048, 4099];

/// Every all-reduce of this crate but NCCL's, by name.
fn custom_all_reduces(ranks: usize, bytes: u64, grid: Grid) -> Vec<(String, Schedule)> {
    let mut all = vec![
        ("all-pair packets".to_owned(), packet::all_pair(ranks, bytes, grid)),
        ("two hops of packets".to_owned(), packet::two_hop(ranks, bytes, grid)),
        ("symmetric".to_owned(), symmetric::all_reduce(ranks, bytes, grid)),
        ("host".to_owned(), host::two_shot(ranks, bytes, grid)),
        ("copy engines".to_owned(), copy_ring::all_reduce(&any_order(ranks), bytes)),
        ("one-shot sentinel".to_owned(), one_shot::push(ranks, bytes, grid, Protocol::Sentinel)),
    ];
    for protocol in [Protocol::Ll, Protocol::Packet, Protocol::Sentinel] {
        all.push((format!("two-shot {protocol:?}"), hierarchical::two_shot(ranks, bytes, grid, protocol)));
    }
    for size in (1..=ranks).filter(|size| ranks.is_multiple_of(*size)) {
        let islands = Islands::consecutive(ranks, size);
        all.push((format!("islands of {size}"), hierarchical::all_reduce(&islands, bytes, grid, Protocol::Ll)));
        for (protocol, one_to_one) in [(Protocol::Simple, false), (Protocol::Simple, true), (Protocol::Fp8, false)] {
            let staging = Staging { protocol, one_to_one };
            all.push((format!("islands of {size}, {staging:?}"), staged::all_reduce(&islands, bytes, grid, staging)));
        }
    }
    all
}

#[test]
fn custom_all_reduces_sum_whatever_the_size() {
    for ranks in RANKS {
        for (seed, bytes) in (0..).zip(SIZES) {
            for (name, schedule) in custom_all_reduces(ranks, bytes, Grid { blocks: 3, threads: 32 }) {
                let inputs = inputs(ranks, bytes);
                let sum: Vec<i64> = (0..bytes as usize).map(|i| inputs.iter().map(|rank| rank[i]).sum()).collect();
                let results = run(&schedule, &inputs, seed).unwrap_or_else(|fault| panic!("{name}, {ranks} ranks, {bytes} B: {fault}"));
                assert!(results.iter().all(|result| *result == sum), "{name}, {ranks} ranks, {bytes} B");
            }
        }
    }
}

/// Islands need not be consecutive ranks.
#[test]
fn islands_in_any_order_sum() {
    let islands = Islands::new(vec![vec![6, 0, 3], vec![1, 5, 2], vec![4, 8, 7]]).expect("even");
    let grid = Grid { blocks: 2, threads: 32 };
    check_sums(&hierarchical::all_reduce(&islands, 1234, grid, Protocol::Ll), 3);
    check_sums(&staged::all_reduce(&islands, 1234, grid, Staging { protocol: Protocol::Simple, one_to_one: true }), 4);
}

/// A group inside a larger one: only its members have anything to do.
#[test]
fn a_group_sums_among_its_members() {
    let schedule = one_shot::push(2, 100, Grid { blocks: 1, threads: 32 }, Protocol::Ll).among(&[1, 3], 4);
    let data = inputs(4, 100);
    let results = run(&schedule, &data, 9).expect("runs");
    assert_eq!((&results[0], &results[2]), (&data[0], &data[2]));
    let sum: Vec<i64> = data[1].iter().zip(&data[3]).map(|(a, b)| a + b).collect();
    assert_eq!((&results[1], &results[3]), (&sum, &sum));
}

#[test]
fn direct_gathers_and_scatters() {
    for ranks in RANKS {
        for (seed, bytes) in (0..).zip(SIZES) {
            let grid = Grid { blocks: 2, threads: 32 };
            let shard = bytes.div_ceil(ranks as u64).next_multiple_of(16) as usize;
            let data = inputs(ranks, bytes);
            let gathered = run(&exchange::all_gather(ranks, bytes, grid, Protocol::Ll), &data, seed).expect("runs");
            let scattered = run(&exchange::reduce_scatter(ranks, bytes, grid, Protocol::Packet), &data, seed).expect("runs");
            for i in 0..bytes as usize {
                let owner = i / shard;
                assert!(gathered.iter().all(|rank| rank[i] == data[owner][i]), "{ranks} ranks, {bytes} B, byte {i}");
                assert_eq!(scattered[owner][i], data.iter().map(|rank| rank[i]).sum::<i64>(), "{ranks} ranks, {bytes} B, byte {i}");
            }
        }
    }
}

const CHANNELS: Channels = Channels { protocol: Protocol::Ll, count: 4, per_peer: 2, part_bytes: 100, chunk_bytes: 48, threads: 64 };

#[test]
fn rows_reach_their_ranks() {
    for ranks in RANKS {
        for (seed, row) in (0..).zip([1_u64, 16, 33, 500]) {
            let stride = row.next_multiple_of(16);
            let data = inputs(ranks, stride * ranks as u64);
            let pushed = exchange::all_to_all(ranks, row, Grid { blocks: 2, threads: 32 }, Protocol::Ll);
            for schedule in [pushed, exchange::grouped_all_to_all(ranks, row, &CHANNELS)] {
                let results = run(&schedule, &data, seed).expect("runs");
                for (to, result) in results.iter().enumerate() {
                    for (from, input) in data.iter().enumerate() {
                        let got = (from as u64 * stride) as usize;
                        let sent = (to as u64 * stride) as usize;
                        assert_eq!(result[got..got + row as usize], input[sent..sent + row as usize], "{from} to {to} of {ranks}");
                    }
                }
                let carried: u64 = schedule.bytes_by_connection().iter().sum();
                assert_eq!(carried, row * (ranks * (ranks - 1)) as u64);
            }
        }
    }
}

#[test]
fn a_message_goes_one_way() {
    let message = Message { from: 0, to: 1, from_offset: 0, to_offset: 0, bytes: 300 };
    let schedule = exchange::grouped(2, 300, Buffer::User, &[message], &CHANNELS);
    let data = inputs(2, 300);
    assert_eq!(run(&schedule, &data, 5).expect("runs"), vec![data[0].clone(), data[0].clone()]);
    assert_eq!(schedule.bytes_by_connection().iter().sum::<u64>(), 300);
}

/// What each rank puts on the wires over a whole all-reduce, `n = 8` and bytes
/// that divide evenly, in eighths of the message.
#[test]
fn custom_all_reduces_carry_the_textbook_bytes() {
    let (ranks, bytes, grid) = (8, 43_008, Grid { blocks: 7, threads: 512 });
    let eighths = |schedule: &Schedule| {
        let carried: u64 = schedule.bytes_by_connection().iter().sum();
        assert_eq!(carried % bytes, 0);
        carried / bytes
    };
    // One hop: the whole message to each of the others (and to itself, in NCCL's kernel).
    assert_eq!(eighths(&packet::all_pair(ranks, bytes, grid)), 8 * 7);
    assert_eq!(eighths(&symmetric::all_reduce(ranks, bytes, grid)), 8 * 8);
    // Two hops and rings: 2 (n - 1) / n of the message a rank, 14 in all.
    assert_eq!(eighths(&packet::two_hop(ranks, bytes, grid)), 14);
    assert_eq!(eighths(&hierarchical::two_shot(ranks, bytes, grid, Protocol::Ll)), 14);
    assert_eq!(eighths(&copy_ring::all_reduce(&any_order(ranks), bytes)), 14);
    // Over host memory: a rank writes 7/8 + 1/8 and reads 2 x 7/8.
    assert_eq!(eighths(&host::two_shot(ranks, bytes, grid)), 8 + 14);
    // Two islands of four: 3/4 inside, 1/4 across, 3/4 inside.
    let islands = Islands::consecutive(8, 4);
    let lines = hierarchical::all_reduce(&islands, bytes, grid, Protocol::Ll);
    assert_eq!(eighths(&lines), 8 * 7 / 4);
    let crossing: u64 = (lines.connections.iter().zip(lines.bytes_by_connection()))
        .filter(|(connection, _)| connection.source / 4 != connection.target / 4)
        .map(|(_, carried)| carried)
        .sum();
    assert_eq!(crossing, 2 * bytes);
    let staging = Staging { protocol: Protocol::Simple, one_to_one: true };
    assert_eq!(eighths(&staged::all_reduce(&islands, bytes, grid, staging)), 8 * 7 / 4);
}

/// 43,008 B: lines and packets double, LL128 adds a fifteenth, eight
/// bits halve and add 4 B for each 256.
#[test]
fn protocols_put_the_textbook_bytes_on_the_wire() {
    let wire = |protocol: Protocol| protocol.wire_bytes(43_008);
    assert_eq!([wire(Protocol::Ll), wire(Protocol::Packet), wire(Protocol::Packet8)], [86_016; 3]);
    assert_eq!([wire(Protocol::Simple), wire(Protocol::Sentinel)], [43_008; 2]);
    assert_eq!(wire(Protocol::Ll128), 359 * 128);
    assert_eq!(wire(Protocol::Fp8), 21_504 + 168 * 4);
}

/// The neighbours of a rank in passes: never two writers of plain data at once.
#[test]
fn one_to_one_passes_have_a_barrier_each() {
    let staging = Staging { protocol: Protocol::Simple, one_to_one: true };
    let grid = Grid { blocks: 1, threads: 256 };
    let barriers = |schedule: &Schedule| {
        let arrivals = |block: &lanecast::collective::Block| block.steps.iter().filter(|s| s.bytes == 0 && s.send.len > 0).count();
        schedule.blocks.iter().map(arrivals).collect::<Vec<_>>()
    };
    // FlashInfer's staged ring of 4: 2 (n - 1) barriers; of 4 + 4: six and the last.
    assert_eq!(barriers(&staged::all_reduce(&Islands::consecutive(4, 4), 43_008, grid, staging)), vec![6; 4]);
    assert_eq!(barriers(&staged::all_reduce(&Islands::consecutive(8, 4), 43_008, grid, staging)), vec![7; 8]);
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
