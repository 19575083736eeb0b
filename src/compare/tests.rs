//! Small traces with the worked arithmetic beside them.

use super::*;
use proptest::prelude::*;

const HEAD: &str = "# lanecast-trace 1\n# source = simulated\n# ranks = 2\npass,rank,op,name,kind,layer,start_ns,end_ns,bytes,detail\n";

fn run(a: &str, b: &str, options: Options) -> Result<Comparison> {
    let texts = [format!("{HEAD}{a}"), format!("{HEAD}{b}")];
    let readers = [Reader::open("a.csv", texts[0].as_bytes())?, Reader::open("b.csv", texts[1].as_bytes())?];
    let inputs = ["a.csv", "b.csv"].map(|name| Input { name: name.to_owned(), pass: None });
    compare(inputs, readers, options)
}

/// Two ranks: a kernel, an all-reduce, a kernel. Rank 1 arrives 2 us later.
const A: &str = "0,0,L000.q.r0,q,compute,0,1000,5000,0,\n0,1,L000.q.r1,q,compute,0,1000,7000,0,\n\
    0,0,L000.attn_allreduce.r0,ar,communication,0,6000,18000,42,\n0,1,L000.attn_allreduce.r1,ar,communication,0,8000,18000,42,\n\
    0,0,L001.q.r0,q,compute,1,19000,23000,0,\n0,1,L001.q.r1,q,compute,1,19000,23000,0,\n";

#[test]
fn portions_add_up_to_the_pass() {
    let same = run(A, A, Options::default()).expect("compares");
    let side = &same.sides[0];
    // First start 1 us, last end 23 us.
    assert_eq!((side.pass_us, side.ranks, side.rows), (22.0, 2, 6));
    // Rank 0: 4 + 4 us compute, 1 + 1 gaps, 2 skew, 10 transfer. Rank 1: 6 + 4, 1 + 1, 0, 10. Means:
    assert_eq!(side.spent, [9.0, 10.0, 1.0, 2.0, 0.0]);
    // The path: rank 1's kernel and gap, the transfer, the gap and the last kernel.
    assert_eq!(side.path, [10.0, 10.0, 0.0, 2.0, 0.0]);
    assert_eq!(same.difference_us(), 0.0);
    assert!(same.causes.is_empty() && same.unmatched.is_empty() && same.largest.is_empty());
    assert!(same.operations.iter().all(|line| line.difference_us() == 0.0));
    assert_eq!((same.ledger[0].count, same.ledger[0].skew_us, same.ledger[0].transfer_us), ([1.0; 2], [1.0; 2], [10.0; 2]));
    assert_eq!(same.share_pct(0.0), None);
}

/// Rank by rank instead of operation by operation: the same result.
#[test]
fn the_order_of_ranks_does_not_matter() {
    let mut rows: Vec<&str> = A.lines().collect();
    rows.sort_by_key(|row| row.split(',').nth(1).map(str::to_owned));
    let by_rank: String = rows.iter().map(|row| format!("{row}\n")).collect();
    let compared = run(A, &by_rank, Options::default()).expect("compares");
    assert_eq!(compared.sides[0].spent, compared.sides[1].spent);
    assert_eq!(compared.sides[0].path, compared.sides[1].path);
    assert!(compared.causes.is_empty());
}

#[test]
fn a_slower_collective_is_named() {
    // Everything from the all-reduce's end on comes 5 us later.
    let b = A.replace("18000", "23000").replace("19000,23000", "24000,28000");
    let compared = run(A, &b, Options::default()).expect("compares");
    assert!((compared.difference_us() - 5.0).abs() < 1e-9);
    let What::Operation { name, portion, us, .. } = &compared.causes[0].what else { panic!("{:?}", compared.causes) };
    assert_eq!((name.as_str(), *portion, *us), ("attn_allreduce", Portion::Transfer, [10.0, 15.0]));
    assert_eq!(compared.share_pct(compared.causes[0].us), Some(100.0));
    assert_eq!(compared.largest[0].op, "L000.attn_allreduce.r0");
}

#[test]
fn what_only_one_has_is_listed() {
    let more = format!("{A}0,1,HEAD.sample.r1,sample,compute,,23000,24000,0,\n");
    let b = A.replace("L001.q.r0,q", "L001.z.r0,z");
    let compared = run(&more, &b, Options::default()).expect("neither has all of the other's");
    let listed: Vec<(usize, &str)> = compared.unmatched.iter().map(|one| (one.side, one.op.as_str())).collect();
    assert_eq!(listed, [(0, "L001.q.r0"), (0, "HEAD.sample.r1"), (1, "L001.z.r0")]);
    let sum: f64 = compared.operations.iter().map(outcome::Line::difference_us).sum();
    assert!((sum - compared.difference_us()).abs() < 1e-9, "{sum}");
}

#[test]
fn a_cut_file_is_refused_with_where_it_ends() {
    let cut: String = A.lines().take(4).map(|row| format!("{row}\n")).collect();
    let fault = run(A, &cut, Options::default()).expect_err("cut");
    assert_eq!(fault.code, "compare-cut");
    assert!(fault.message.contains("b.csv ends early") && fault.message.contains("L001.q.r0"), "{}", fault.message);
    let anyway = run(A, &cut, Options { anyway: true, ..Options::default() }).expect("asked for");
    assert_eq!(anyway.unmatched.len(), 2);
    assert_eq!(run(A, "", Options::default()).expect_err("empty").code, "compare-empty");
    let half = &A[..A.len() - 20];
    assert_eq!(run(A, half, Options::default()).expect_err("half a row").code, "trace");
}

#[test]
fn traces_with_other_names_join_by_order() {
    let b = A
        .replace("L000.attn_allreduce", "allreduce.00000")
        .replace("L000.q", "kernel.00000")
        .replace("L001.q", "kernel.00001")
        .replace(",0,19", ",,19")
        .replace("19000,23000", "19000,26000");
    let texts = [format!("{HEAD}{A}"), format!("{HEAD}{b}")];
    let open = |side: usize| Reader::open("t", texts[side].as_bytes());
    assert!(names_differ(open).expect("reads"));
    let compared = run(A, &b, Options { by_order: true, ..Options::default() }).expect("joins");
    assert!(compared.unmatched.is_empty(), "{:?}", compared.unmatched);
    assert!((compared.difference_us() - 3.0).abs() < 1e-9);
    assert_eq!(compared.sides[1].spent[Portion::Compute as usize], 12.0);
    let What::Operation { layer: Some(1), portion: Portion::Compute, .. } = &compared.causes[0].what else {
        panic!("{:?}", compared.causes)
    };
}

#[test]
fn operations_on_two_streams_are_counted_once() {
    let b = A.replace("19000,23000,0,\n0,1", "19000,23000,0,stream=1\n0,0,L001.z.r0,z,compute,1,20000,22000,0,stream=2\n0,1");
    let compared = run(A, &b, Options { anyway: true, ..Options::default() }).expect("compares");
    assert_eq!(compared.sides[1].overlap_us, 1.0, "2 us of two ranks");
    assert_eq!(compared.sides[1].spent.iter().sum::<f64>(), compared.sides[1].pass_us);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the rows: no panic, and what a trace says adds up.
    #[test]
    fn any_rows_add_up(rows in proptest::collection::vec((0u32..2, 0u32..3, 0u32..6, 0u64..50, 0u64..9, any::<bool>()), 0..60)) {
        let text: String = rows
            .iter()
            .map(|(pass, rank, layer, start, length, collective)| {
                let (name, kind) = if *collective { ("ar", "communication") } else { ("q", "compute") };
                format!("{pass},{rank},L{layer:03}.{name}.r{rank},{name},{kind},{layer},{start},{},1,\n", start + length)
            })
            .collect();
        if let Ok(compared) = run(&text, &text, Options::default()) {
            for side in &compared.sides {
                let sum: f64 = side.spent.iter().sum();
                let ranks_end = compared.ranks.iter().all(|line| (line.us(0) - line.us(1)).abs() < 1e-9);
                prop_assert!(ranks_end && sum.is_finite());
            }
            prop_assert_eq!(compared.difference_us(), 0.0);
            prop_assert!(compared.unmatched.is_empty() && compared.causes.is_empty());
        }
    }
}
