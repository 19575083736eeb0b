//! The simulated executor on small schedules and networks, priced by a toy so
//! that every number can be worked out by hand. Times are picoseconds; a rate
//! of 10^12 B/s is a byte a picosecond.

mod simulate {
    pub mod properties;
    pub mod sharing;
    pub mod toy;
}

use lanecast::collective::{Protocol, Schedule, Step, ring};
use lanecast::simulate::program::Run;
use lanecast::simulate::timed::Fetch;
use lanecast::simulate::{Launch, Network, Operation, Options, Outcome, Part, Program, StepCost, Template, Timed, TimedConnection};
use simulate::toy::{BYTE_A_PS, PLAIN, Toy, once, one_message, program, run, schedule, shape, slow_pair};

/// Simple, 256 B: rank 0 starts at its entry, 10. Its work ends at 110 and its
/// fence at 117, but the wire is busy until 10 + 256 = 266; the last byte is
/// there at 1266, seen at 1286, past the entry of rank 1. Rank 1 works until
/// 1386 and exits at 1391. Rank 0 exits at 110 + 5.
#[test]
fn a_simple_message_by_hand() {
    let (network, mut toy) = slow_pair();
    let outcome = run(&once(&one_message(Protocol::Simple, 256, 1, 1), network, &mut toy));
    assert_eq!([outcome.ends[0].time, outcome.ends[1].time], [115, 1391]);
    let parts = |part: Part| outcome.ends[1].parts[part as usize];
    assert_eq!([Part::Step, Part::Work, Part::Wire, Part::Latency, Part::Poll, Part::Fence].map(parts), [15, 200, 156, 1000, 20, 0]);
}

/// LL, 120 B are 240 B on the wire. Rank 0 starts at 10; its first line is out
/// at 40, there at 1040, seen at 1060, when rank 1 starts: its own work ends at
/// 1160. The last byte leaves the wire at 250, is there at 1250, seen at 1270;
/// with the tail of 40 rank 1 is done at 1310 and exits at 1315.
#[test]
fn lines_cut_through() {
    let (network, mut toy) = slow_pair();
    let outcome = run(&once(&one_message(Protocol::Ll, 120, 1, 1), network, &mut toy));
    assert_eq!([outcome.ends[0].time, outcome.ends[1].time], [115, 1315]);
}

/// Staged, Simple, 256 B: seen at 1286 as above, then fetched at 0.5 B/ps:
/// 512 ps until 1798, a round trip of 300 until 2098, exit 2103.
#[test]
fn a_staged_message_is_fetched_again() {
    let (network, mut toy) = slow_pair();
    toy.connection.fetch = Some(Fetch { route: 0, rate: BYTE_A_PS / 2, latency: 300, times: 1 });
    let outcome = run(&once(&one_message(Protocol::Simple, 256, 1, 1), network, &mut toy));
    assert_eq!([outcome.ends[0].time, outcome.ends[1].time], [115, 2103]);
}

/// Two messages and one credit: rank 1 is ready again at 1391, rank 0 knows at
/// 1991 and sends. 256 + 1000 + 20 later rank 1 starts, works 100, exits 5.
#[test]
fn a_sender_without_credit_waits() {
    let (network, mut toy) = slow_pair();
    let outcome = run(&once(&one_message(Protocol::Simple, 256, 2, 1), network, &mut toy));
    assert_eq!(outcome.ends[1].time, 1991 + 256 + 1000 + 20 + 100 + 5);
    assert_eq!(outcome.ends[1].parts[Part::Credit as usize], 600);
    let (network, mut toy) = slow_pair();
    let outcome = run(&once(&one_message(Protocol::Simple, 256, 2, 2), network, &mut toy));
    // With a second credit rank 0 starts again at 115 + 10. From then on both messages
    // share the wire: 115 B of the first are through, each gets half until its end at
    // 125 + 2 × 141 = 407; the second has 115 B left: 522, 1522, 1542, then 100 + 5.
    assert_eq!(outcome.ends[1].time, 522 + 1000 + 20 + 100 + 5);
}

/// Without bytes a flag or a counter still travels, a line does not: the
/// receiver of lines has nothing to wait for.
#[test]
fn messages_of_no_bytes() {
    let end_of = |protocol| {
        let (network, mut toy) = slow_pair();
        let outcome = run(&once(&one_message(protocol, 0, 1, 1), network, &mut toy));
        assert_eq!(outcome.carried.iter().sum::<u64>(), 0);
        outcome.ends[1].time
    };
    // Entry 10, work 100, fence 7, latency 1000, poll 20, work 100, exit 5.
    assert_eq!(end_of(Protocol::Simple), 1242);
    assert_eq!(end_of(Protocol::Flag), 1242);
    assert_eq!(end_of(Protocol::Ll), 10 + 100 + 5);
}

/// A ring all-reduce moves each of n chunks over 2(n − 1) hops: every rank
/// sends 2(n − 1)/n of the message; as LL lines twice that.
#[test]
fn a_ring_carries_what_the_textbook_says() {
    let (ranks, bytes) = (4, 4096);
    let (network, mut toy) = Toy::new(ranks, [BYTE_A_PS; 3]);
    let order: Vec<usize> = (0..ranks).collect();
    let schedule = ring::all_reduce(&order, bytes, &shape(Protocol::Ll, 1, bytes));
    let outcome = run(&once(&schedule, network, &mut toy));
    for rank in 0..ranks {
        assert_eq!(outcome.carried[2 * rank], 2 * 3 * bytes / 4 * 2);
    }
}

/// Rank 2 comes 100 us late: the others wait for it, and what they wait is
/// skew, not the collective's time.
#[test]
fn a_late_rank_shows_as_skew() {
    let late = 100_000_000;
    let outcome_of = |ps: Vec<u64>| {
        let (network, mut toy) = Toy::new(4, [50_000_000_000; 3]);
        toy.connection.latency = 700_000;
        let schedules = [schedule(4, 4, 512)];
        run(&program(&schedules, network, &mut toy, ps, 1, Launch::Graph { gap: 0 }))
    };
    let (together, apart) = (outcome_of(vec![0]).totals[0], outcome_of(vec![0, 0, late, 0]).totals[0]);
    assert_eq!((together.skew, apart.skew), (0, late));
    assert_eq!(apart.waited, 3 * late);
    // The others' messages are there already, so the rest takes no longer.
    assert!(apart.busy <= together.busy, "{} > {}", apart.busy, together.busy);
}

/// A collective beside a computation: what follows waits for the later of the
/// two, and only what sticks out is communication.
#[test]
fn a_collective_beside_a_computation_costs_what_sticks_out() {
    let run_with = |ps: u64, beside: u32| {
        let (network, mut toy) = Toy::new(2, [50_000_000_000; 3]);
        let mut program = program(&[schedule(0, 2, 512)], network, &mut toy, vec![0], 3, Launch::Graph { gap: 0 });
        let work = |ps: u64| Operation::Compute { ps: vec![ps], launches: 1 };
        program.templates[0].operations = vec![Operation::Collective { collective: 0, beside }, work(ps), work(1000)];
        (run(&program), program)
    };
    let (alone, _) = run_with(0, 0);
    let each = (alone.ends[0].time - 3000) / 3;
    for ps in [each / 2, 2 * each] {
        let ((apart, _), (beside, program)) = (run_with(ps, 0), run_with(ps, 1));
        assert_eq!(apart.ends[0].time, 3 * (each + ps + 1000));
        assert_eq!(beside.ends[0].time, 3 * (each.max(ps) + 1000), "{ps} beside {each}");
        let totals = beside.totals[0];
        assert_eq!((totals.count, totals.hidden), (3, 2 * 3 * ps.min(each)));
        let reused = lanecast::simulate::simulate(&program, Options { reuse: true, records: false }).expect("it ends");
        assert_eq!((&reused.ends, &reused.totals), (&beside.ends, &beside.totals));
    }
}

fn computes(launch: Launch, kernels: &[(u64, u32)], ranks: usize) -> Vec<u64> {
    let operations = kernels.iter().map(|&(ps, launches)| Operation::Compute { ps: vec![ps], launches }).collect();
    let program = Program {
        ranks,
        templates: vec![Template { operations }],
        sequence: vec![Run { template: 0, repeats: 1, members: (1 << ranks) - 1 }],
        collectives: Vec::new(),
        network: Network::default(),
        launch,
    };
    run(&program).ends.iter().map(|end| end.time).collect()
}

/// Three kernels of 100 ps and a gap of 10 before each.
///   Graph: 3 × 110 = 330.
///   Eager, 30 a launch: the first starts when issued, at 30; 130 + 110 + 110 = 350.
///   Eager, 200 a launch: the host is the bottleneck: the third is issued at 600.
///   Eager, one thread for both ranks: rank 1's third is the sixth: 1200.
#[test]
fn launches_by_hand() {
    let kernels = [(100, 1); 3];
    let eager = |issue, shared_thread| Launch::Eager { gap: 10, round: 0, issue, shared_thread };
    assert_eq!(computes(Launch::Graph { gap: 10 }, &kernels, 2), [330, 330]);
    assert_eq!(computes(eager(30, false), &kernels, 2), [350, 350]);
    assert_eq!(computes(eager(200, false), &kernels, 2), [700, 700]);
    assert_eq!(computes(eager(200, true), &kernels, 2), [1100, 1300]);
    // Queues take turns of 150 ps in all: kernels of 100 ps and a gap of 10 wait 40 more each; 3 × 150.
    let turns = Launch::Eager { gap: 10, round: 150, issue: 0, shared_thread: false };
    assert_eq!(computes(turns, &kernels, 1), [450]);
    assert_eq!(computes(turns, &[(600, 3)], 1), [630]);
    // Four kernels in one operation of 80 ps: the last is issued at 800 and takes 20. With
    // one thread for both ranks, rank 1's are the fifth to the eighth.
    assert_eq!(computes(eager(200, false), &[(80, 4)], 2), [820, 820]);
    assert_eq!(computes(eager(200, true), &[(80, 4)], 2), [820, 1620]);
    // Work without a kernel waits for no launch.
    assert_eq!(computes(eager(200, true), &[(100, 1), (50, 0)], 2), [350, 550]);
}

#[test]
fn a_deadlock_names_who_waits_for_whom() {
    // Both ranks first wait for the other.
    let mut schedule = one_message(Protocol::Simple, 64, 1, 1);
    let back = schedule.connect(1, 0, Protocol::Simple, 1);
    let (there, back) = (schedule.list(&[0]), schedule.list(&[back]));
    let step = schedule.blocks[0].steps[0].clone();
    let none = schedule.blocks[0].steps[0].receive;
    schedule.blocks[0].steps = vec![Step { receive: back, send: none, ..step.clone() }, step.clone()];
    schedule.blocks[1].steps = vec![Step { receive: there, send: none, ..step.clone() }, Step { receive: none, send: back, ..step }];
    let (network, mut toy) = slow_pair();
    let fault = lanecast::simulate::simulate(&once(&schedule, network, &mut toy), PLAIN).expect_err("nobody sends");
    assert_eq!(fault.code, "simulation-deadlock");
    let message = &fault.message;
    assert!(message.contains("rank 0 waits for data of rank 1 at step 0; rank 1 waits for data of rank 0 at step 0"), "{message}");
}

#[test]
fn too_few_credits_and_takers_are_reported() {
    let fault_of = |messages: usize, taken: usize, credits: u32| {
        let mut schedule = one_message(Protocol::Simple, 64, messages, credits);
        schedule.blocks[1].steps.truncate(taken);
        let (network, mut toy) = slow_pair();
        lanecast::simulate::simulate(&once(&schedule, network, &mut toy), PLAIN).expect_err("it is wrong")
    };
    let fault = fault_of(3, 1, 1);
    assert_eq!(fault.code, "simulation-deadlock");
    assert!(fault.message.contains("rank 0 waits for a credit of rank 1 at step 2, which has ended"), "{}", fault.message);
    let fault = fault_of(3, 1, 4);
    assert_eq!(fault.code, "simulation-unbalanced");
    assert!(fault.message.contains("rank 0 sends 192 bytes to rank 1 on one connection, which takes 64"), "{}", fault.message);
}

#[test]
fn two_senders_on_one_connection_are_refused() {
    let mut schedule = one_message(Protocol::Simple, 64, 1, 2);
    let other = schedule.blocks[0].clone();
    schedule.blocks.push(other);
    let (network, mut toy) = slow_pair();
    let fault = lanecast::simulate::simulate(&once(&schedule, network, &mut toy), PLAIN).expect_err("the order is not defined");
    assert_eq!(fault.code, "simulation-shared-connection");
}

/// Collectives of different schedules follow each other on a rank at once: a
/// rank that has left the first need not wait for those still in it.
#[test]
fn two_collectives_back_to_back() {
    let (network, mut toy) = slow_pair();
    let schedules = [one_message(Protocol::Simple, 256, 1, 1), one_message(Protocol::Ll, 120, 1, 1)];
    let mut program = program(&schedules, network, &mut toy, vec![0], 1, Launch::Graph { gap: 0 });
    program.templates[0].operations.retain(|operation| matches!(operation, Operation::Collective { .. }));
    let outcome = run(&program);
    // Rank 0 leaves the first at 115, starts the second at 125 and works until 225. From 125 on
    // both messages share the wire: the first has 141 B left and ends at 125 + 282 = 407, is seen
    // at 1427; rank 1 exits at 1532. The second ends by then: rank 1 starts at 1542, works 100, exits.
    assert_eq!([outcome.ends[0].time, outcome.ends[1].time], [230, 1647]);
    assert_eq!((outcome.totals[0].count, outcome.totals[1].count), (1, 1));
}

/// Two stages run different entries of the sequence and meet in one
/// collective, time and again: each one's nth entry meets the other's nth.
#[test]
fn ranks_at_different_entries_meet() {
    let (network, mut toy) = slow_pair();
    let collective = Timed::new(&one_message(Protocol::Simple, 256, 1, 2), &mut toy, 1);
    let stage = |ps| Template {
        operations: vec![Operation::Compute { ps: vec![ps], launches: 1 }, Operation::Collective { collective: 0, beside: 0 }],
    };
    let program = Program {
        ranks: 2,
        templates: vec![stage(10_000), stage(300)],
        // Rank 0 has one entry of 20 repetitions, rank 1 two that add up.
        sequence: vec![
            Run { template: 0, repeats: 20, members: 0b01 },
            Run { template: 1, repeats: 5, members: 0b10 },
            Run { template: 1, repeats: 15, members: 0b10 },
        ],
        collectives: vec![std::sync::Arc::new(collective)],
        network,
        launch: Launch::Graph { gap: 0 },
    };
    let outcome = run(&program);
    assert_eq!(outcome.totals[0].count, 20);
    // Rank 0 sends every 10,115 ps and never waits; rank 1 takes the last 1391 - 115 after its end.
    assert_eq!([outcome.ends[0].time, outcome.ends[1].time], [20 * 10_115, 20 * 10_115 + 1276]);
    // Neither stage's own state decides what follows, so nothing is skipped.
    assert_eq!(lanecast::simulate::simulate(&program, Options { reuse: true, records: false }).expect("it ends"), outcome);
}

/// A chain repeats exactly after a while, and reuse then leaves little to do.
#[test]
fn reuse_skips_most_of_a_chain() {
    let (network, mut toy) = Toy::new(4, [50_000_000_000; 3]);
    toy.cost = StepCost { entry: 100_000, first: 50_000, work: 50_000, tail: 50_000, exit: 80_000, fence: 0 };
    toy.connection = TimedConnection { latency: 700_000, poll: 100_000, credit: 700_000, ..TimedConnection::default() };
    let schedules = [schedule(0, 4, 4096)];
    let program = program(&schedules, network, &mut toy, vec![1_000_000], 10_000, Launch::Graph { gap: 800_000 });
    let (with, without) = (lanecast::simulate::simulate(&program, Options::default()).expect("it ends"), run(&program));
    assert!(with.events * 100 < without.events, "{} of {} events", with.events, without.events);
    assert_eq!(Outcome { events: 0, ..with }, Outcome { events: 0, ..without });
}

/// A rank without blocks, or with blocks without steps, passes by.
#[test]
fn empty_collectives_are_passed_by() {
    let mut schedule = one_message(Protocol::Simple, 64, 1, 1);
    schedule.blocks.iter_mut().for_each(|block| block.steps.clear());
    let (network, mut toy) = slow_pair();
    (toy.start, toy.finish) = (20, 30);
    let mut program = once(&schedule, network, &mut toy);
    program.sequence[0].repeats = 50_000;
    let outcome = run(&program);
    assert_eq!(outcome.totals[0].count, 50_000);
    assert_eq!([outcome.ends[0].time, outcome.ends[1].time], [50_000 * 50, 50_000 * 70]);
    program.collectives = vec![std::sync::Arc::new(Timed::new(&Schedule::new(2, 0), &mut toy, 1))];
    assert_eq!(run(&program).critical().time, 0);
}

/// Fifty-three days of simulated time are an error, not an overflow.
#[test]
fn an_endless_transfer_is_reported() {
    let (network, mut toy) = Toy::new(2, [1; 3]);
    let fault =
        lanecast::simulate::simulate(&once(&one_message(Protocol::Simple, 1 << 40, 1, 1), network, &mut toy), PLAIN).expect_err("too long");
    assert_eq!(fault.code, "simulation-too-long");
}
