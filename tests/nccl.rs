//! What NCCL decides, against tables worked out from its source and logs.

use std::collections::BTreeMap;

use lanecast::nccl::Algorithm;
use lanecast::nccl::Choice;
use lanecast::nccl::Collective;
use lanecast::nccl::Communicator;
use lanecast::nccl::Environment;
use lanecast::nccl::Force;
use lanecast::nccl::Graph;
use lanecast::nccl::PathType;
use lanecast::nccl::Pattern;
use lanecast::nccl::Protocol;
use lanecast::nccl::Version;
use proptest::prelude::*;

const V2_30_7: Version = Version::new(2, 30, 7);

fn environment(variables: &[(&str, &str)], version: Version) -> Environment {
    let map: BTreeMap<String, String> = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Environment::parse(&map, version).expect("good variables")
}

/// Eight Blackwell GPUs on `channels` × `gbps`.
fn eight(channels: u32, gbps: f64, path: PathType, variables: &[(&str, &str)]) -> Communicator {
    let graph = |pattern| if gbps < 1.0 { Graph::fallback(pattern, 8) } else { Graph::given(pattern, 8, channels, gbps, path) };
    Communicator::from_graphs(V2_30_7, environment(variables, V2_30_7), 8, (120, 120), graph(Pattern::Ring), graph(Pattern::BalancedTree))
}

fn forced(algorithm: Algorithm, protocol: Protocol) -> Force {
    Force { algorithm: Some(algorithm), protocol: Some(protocol), ..Force::default() }
}

fn sizes(choice: &Choice) -> Vec<u64> {
    choice.launch.parts.iter().map(|part| part.bytes).collect()
}

#[test]
fn the_tuners_beliefs_are_reproduced() {
    // Choice and estimate in µs at 14,336, 43,008, 57,344, 114,688 B and 1 MiB, n = 8, Blackwell.
    let table = [
        (2, 22.5, Protocol::Ll, [21.7, 23.9, 25.1, 29.5, 102.2]),
        (2, 20.0, Protocol::Ll, [21.9, 24.4, 25.6, 30.6, 112.4]),
        (2, 15.0, Protocol::Ll, [22.3, 25.6, 27.3, 34.0, 142.9]),
        (1, 0.1, Protocol::Simple, [339.0, 841.0, 1092.0, 2095.0, 18438.0]),
    ];
    for (channels, gbps, protocol, row) in table {
        let communicator = eight(channels, gbps, PathType::Phb, &[]);
        for (bytes, expected) in [14_336, 43_008, 57_344, 114_688, 1 << 20].into_iter().zip(row) {
            let choice = communicator.choose(Collective::AllReduce, bytes, &Force::default()).expect("a choice");
            let tolerance = if expected < 300.0 { 0.06 } else { 1.0 };
            // At 1 MiB the 2 x 15 graph's Ring LL (142.9) is above Ring Simple: 88.2 + 1048576 / 17143 = 149.4.
            assert_eq!((choice.algorithm, choice.protocol), (Algorithm::Ring, protocol), "{channels} x {gbps}, {bytes} B");
            assert!((choice.estimated_us - expected).abs() <= tolerance, "{channels} x {gbps}, {bytes} B: {}", choice.estimated_us);
        }
    }
    let healthy = eight(2, 22.5, PathType::Phb, &[]);
    let belief = |algorithm, protocol| healthy.estimate_us(Collective::AllReduce, algorithm, protocol, 43_008);
    assert!((belief(Algorithm::Tree, Protocol::Ll) - 32.1).abs() < 0.06);
    assert!((belief(Algorithm::Ring, Protocol::Simple) - 89.9).abs() < 0.06);
    let fallback = eight(1, 0.1, PathType::Sys, &[]);
    assert!((fallback.estimate_us(Collective::AllReduce, Algorithm::Ring, Protocol::Ll, 43_008) - 1526.0).abs() < 1.0);
}

#[test]
fn channels_threads_and_parts_of_43008_bytes() {
    use Algorithm::Ring;
    use Algorithm::Tree;
    use Protocol::Ll;
    use Protocol::Ll128;
    use Protocol::Simple;
    let four = [
        (Ring, Ll, 512, vec![43_008]),
        (Ring, Ll128, 640, vec![16_384, 16_384, 10_240]),
        (Ring, Simple, 544, vec![43_008]),
        (Tree, Ll, 640, vec![12_288, 12_288, 12_288, 6_144]),
        (Tree, Ll128, 640, vec![16_384, 16_384, 10_240]),
        (Tree, Simple, 640, vec![43_008]),
    ];
    let communicator = eight(2, 22.5, PathType::Phb, &[]);
    for (algorithm, protocol, threads, parts) in four {
        let choice = communicator.choose(Collective::AllReduce, 43_008, &forced(algorithm, protocol)).expect("a choice");
        assert_eq!((choice.threads, sizes(&choice)), (threads, parts), "{algorithm:?} {protocol:?}");
    }
    let communicator = eight(4, 22.5, PathType::Phb, &[]);
    for (algorithm, protocol, parts) in [
        (Ring, Ll, vec![43_008]),
        (Ring, Ll128, vec![16_384, 16_384, 10_240]),
        (Tree, Ll, vec![8_192, 8_192, 8_192, 8_192, 8_192, 2_048]),
        (Tree, Simple, vec![43_008]),
    ] {
        let choice = communicator.choose(Collective::AllReduce, 43_008, &forced(algorithm, protocol)).expect("a choice");
        assert_eq!(sizes(&choice), parts, "{algorithm:?} {protocol:?}");
    }
}

#[test]
fn one_ring_ll_operation_in_detail() {
    // 43,008 B over 8 ranks: one turn of chunks of 5,376 B, 10,752 B on the wire, 672 lines, two trips of 512.
    let choice = eight(2, 22.5, PathType::Phb, &[]).choose(Collective::AllReduce, 43_008, &Force::default()).expect("a choice");
    let turns: Vec<_> = choice.launch.parts[0].turns(8).collect();
    assert_eq!(turns.len(), 1);
    assert_eq!(turns[0].chunk_bytes, 5_376);
    assert_eq!(choice.launch.parts[0].chunk_bytes, 32_768);
    assert_eq!((choice.launch.buffer_bytes, choice.launch.step_bytes), (524_288, 32_768));
    // 14,336 B do not fill 256 threads of 64 B: 512 -> 256 -> 128.
    let small = eight(2, 22.5, PathType::Phb, &[]).choose(Collective::AllReduce, 14_336, &Force::default()).expect("a choice");
    assert_eq!((small.channels, small.threads), (1, 128));
    let tiny = eight(2, 22.5, PathType::Phb, &[]).choose(Collective::AllReduce, 256, &Force::default()).expect("a choice");
    assert_eq!((tiny.channels, tiny.threads), (1, 96));
}

#[test]
fn a_minimum_of_channels_does_not_reach_small_ring_ll() {
    let communicator = eight(2, 22.5, PathType::Phb, &[("NCCL_MIN_NCHANNELS", "16")]);
    assert_eq!(communicator.channels_under(&Force::default()), 16);
    assert_eq!(communicator.choose(Collective::AllReduce, 43_008, &Force::default()).expect("a choice").channels, 1);
    let large = communicator.choose(Collective::AllReduce, 64 << 20, &Force::default()).expect("a choice");
    assert_eq!(large.channels, 16);
}

#[test]
fn chunks_follow_the_buffers() {
    let communicator = eight(2, 22.5, PathType::Phb, &[]);
    let chunk = |algorithm, protocol, bytes| {
        communicator.choose(Collective::AllReduce, bytes, &forced(algorithm, protocol)).expect("a choice").launch.parts[0].chunk_bytes
    };
    assert_eq!(chunk(Algorithm::Ring, Protocol::Simple, 1 << 30), 2 << 20);
    assert_eq!(chunk(Algorithm::Tree, Protocol::Simple, 1 << 30), 512 << 10);
    assert_eq!(chunk(Algorithm::Ring, Protocol::Ll, 1 << 30), 32 << 10);
    assert_eq!(chunk(Algorithm::Ring, Protocol::Ll128, 1 << 30), 576_000);
    // 576,000 halves to 72,000 and then to 18,000, whole grains of 1,920 B: 17,280.
    assert_eq!(chunk(Algorithm::Tree, Protocol::Ll128, 43_008), 17_280);
    let small = eight(2, 22.5, PathType::Phb, &[("NCCL_BUFFSIZE", "131072")]);
    let choice = small.choose(Collective::AllReduce, 64 << 20, &Force::default()).expect("a choice");
    assert_eq!(choice.protocol, Protocol::Simple);
    assert_eq!((choice.launch.buffer_bytes, choice.launch.step_bytes, choice.launch.parts[0].chunk_bytes), (131_072, 16_384, 65_536));
}

#[test]
fn ll128_needs_nvlink_or_its_name() {
    let uses = |path, variables: &[(&str, &str)]| {
        let communicator = eight(2, 22.5, path, variables);
        communicator.choose(Collective::AllReduce, 8 << 20, &Force::default()).expect("a choice").protocol
    };
    assert_eq!(uses(PathType::Phb, &[]), Protocol::Simple);
    assert_eq!(uses(PathType::Pix, &[("NCCL_PROTO", "LL128")]), Protocol::Ll128);
    assert_eq!(uses(PathType::Nvl, &[("NCCL_PROTO", "^Simple")]), Protocol::Ll128);
    assert_eq!(uses(PathType::Nvl, &[("NCCL_PROTO", "^LL128,Simple")]), Protocol::Ll);
    assert!(eight(2, 22.5, PathType::Phb, &[("NCCL_PROTO", "LL,LL128")]).warnings.iter().any(|warning| warning.contains("corruption")));
    assert!(eight(2, 22.5, PathType::Phb, &[("NCCL_PROTO", "LL")]).warnings.is_empty());
}

#[test]
fn halves_of_an_all_reduce() {
    // All-gather of 1 MiB in all: 128 KiB a rank, one pass of 7 steps: 6.6 + 7 + 2^20 / (22.5 * 8/7) = 54.4 µs.
    let communicator = eight(2, 22.5, PathType::Phb, &[("NCCL_ALGO", "Tree")]);
    for collective in [Collective::AllGather, Collective::ReduceScatter] {
        let choice = communicator.choose(collective, 1 << 20, &Force::default()).expect("ring stays for these");
        assert_eq!((choice.algorithm, choice.protocol), (Algorithm::Ring, Protocol::Ll));
        assert!((choice.estimated_us - 54.38).abs() < 0.01, "{}", choice.estimated_us);
        assert_eq!(sizes(&choice).iter().sum::<u64>(), 131_072);
    }
    assert!(communicator.choose(Collective::AllToAll, 1024, &Force::default()).is_err());
}

#[test]
fn older_tuners_choose_otherwise() {
    // 2.18: Ring LL gets a quarter of the bus: 20.6 + 43008 / (45000 / 4 * 8/14) = 27.3 µs.
    let graph = |pattern| Graph::given(pattern, 8, 2, 22.5, PathType::Phb);
    for (minor, expected) in [(18, 27.29), (20, 27.29), (21, 23.945), (31, 23.945)] {
        let version = Version::new(2, minor, 5);
        let communicator = Communicator::from_graphs(
            version,
            environment(&[], version),
            8,
            (120, 120),
            graph(Pattern::Ring),
            graph(Pattern::BalancedTree),
        );
        let choice = communicator.choose(Collective::AllReduce, 43_008, &Force::default()).expect("a choice");
        assert!((choice.estimated_us - expected).abs() < 0.01, "2.{minor}: {}", choice.estimated_us);
    }
}

#[test]
fn bad_values_are_told() {
    let parse = |name: &str, value: &str| Environment::parse(&BTreeMap::from([(name.to_owned(), value.to_owned())]), V2_30_7);
    for (name, value) in [("NCCL_MIN_NCHANNELS", "two"), ("NCCL_BUFFSIZE", "64"), ("NCCL_ALGO", "Rings"), ("NCCL_THREAD_THRESHOLDS", "1 x")]
    {
        assert_eq!(parse(name, value).expect_err(name).code, "nccl-environment");
    }
    for (name, value) in [("NCCL_NTHREADS", "100"), ("NCCL_MAX_NCHANNELS", "0"), ("NCCL_P2P_LEVEL", "FAR"), ("NCCL_FROBNICATE", "1")] {
        assert_eq!(parse(name, value).expect(name).warnings.len(), 1, "{name}");
    }
    assert_eq!(parse("NCCL_P2P_LEVEL", "3").expect("old number").p2p_level, Some(PathType::Phb));
    assert_eq!(parse("NCCL_NTHREADS", "32").expect("raised").threads, Some(64));
}

proptest! {
    #[test]
    fn any_environment_is_read_without_panic(
        name in prop::sample::select(vec![
            "NCCL_ALGO", "NCCL_PROTO", "NCCL_P2P_LEVEL", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_NTHREADS",
            "NCCL_LL128_NTHREADS", "NCCL_THREAD_THRESHOLDS", "NCCL_BUFFSIZE", "NCCL_LL_BUFFSIZE", "NCCL_LL128_BUFFSIZE", "NCCL_P2P_DISABLE",
        ]),
        value in prop_oneof![".*", "[-0-9 x]{0,24}", "[\\^;:,a-zA-Z0-9]{0,24}"],
        minor in 18u32..=31,
        bytes in 0u64..=u64::MAX,
        shift in 0u32..64,
        ranks in 1u32..=16,
    ) {
        let version = Version::new(2, minor, 0);
        if let Ok(environment) = Environment::parse(&BTreeMap::from([(name.to_owned(), value)]), version) {
            let graph = |pattern| Graph::given(pattern, ranks, 2, 20.0, PathType::Phb);
            let communicator = Communicator::from_graphs(version, environment, ranks, (89, 90), graph(Pattern::Ring), graph(Pattern::BalancedTree));
            let bytes = bytes >> shift;
            if let Ok(choice) = communicator.choose(Collective::AllReduce, bytes, &Force::default()) {
                prop_assert_eq!(choice.launch.parts.iter().map(|part| u128::from(part.bytes)).sum::<u128>(), u128::from(bytes));
                prop_assert!(choice.channels <= 64 && (96..=640).contains(&choice.threads));
                prop_assert!(choice.launch.parts.iter().all(|part| part.chunk_bytes >= 16));
            }
        }
    }
}
