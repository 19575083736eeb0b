//! Reading bad files, knobs, re-cabling, routes by hand.

use proptest::prelude::*;

use crate::error::Fault;
use crate::machine::*;
use crate::units::Time;

/// Two GPUs on one switch, one on a root port of its own, a second socket.
const SMALL: &str = r#"format = 1
id = "small"
name = "for tests"
peer_access = "direct"
ranks_per_gpu = 1
sockets = [{ id = "cpu0", numa = 0, vendor = "amd" }, { id = "cpu1", numa = 1, vendor = "amd" }]
roots = [{ id = "root0" }, { id = "root1" }, { id = "root2" }]
switches = [{ id = "sw0" }]
gpus = [{ id = "g0", kind = "k" }, { id = "g1", kind = "k" }, { id = "g2", kind = "k" }, { id = "g3", kind = "k" }]
links = [
    { a = "g0", b = "sw0", class = "x16" },
    { a = "g1", b = "sw0", class = "x16" },
    { a = "sw0", b = "root0", class = "up" },
    { a = "g2", b = "root1", class = "x16" },
    { a = "g3", b = "root2", class = "x16" },
    { a = "root0", b = "cpu0", class = "in" },
    { a = "root1", b = "cpu0", class = "in" },
    { a = "root2", b = "cpu1", class = "in" },
    { a = "cpu0", b = "cpu1", class = "fabric" },
]
[versions]
nccl = "2.29.2"
[kinds.k]
like = "rtx-pro-6000"
chip.issue_ns = 100
chip.serve_ns = 150
[link_classes]
x16 = { medium = "pcie", forward_gbps = 50, backward_gbps = 40, latency_ns = 100, read_factor = 0.9, generation = 5, width = 16 }
up = { medium = "pcie", forward_gbps = 48, latency_ns = 200 }
in = { medium = "internal", forward_gbps = 60, latency_ns = { value = 10, low = 5, high = 20, source = "assumed" } }
fabric = { medium = "socket-fabric", forward_gbps = 80, latency_ns = 70 }
[[collapses]]
at = "sw0"
sources_min = 2
roots_min = 2
write_gbps = 2.5
"#;

fn small() -> Machine {
    Machine::from_toml("small.toml", SMALL).expect("reads")
}

/// The fault of the text with one change, and what it points at.
fn broken(from: &str, to: &str) -> (Box<Fault>, String) {
    assert!(SMALL.contains(from), "{from}");
    let text = SMALL.replacen(from, to, 1);
    let fault = Machine::from_toml("broken.toml", &text).expect_err(to);
    let pointed = fault.place.as_ref().map(|place| text[place.span.clone()].to_owned()).unwrap_or_default();
    (fault, pointed)
}

#[test]
fn faults_point_into_the_file() {
    let cases = [
        ("format = 1", "format = 2\nfuture = true", "machine-format", "2"),
        ("peer_access =", "peers =", "machine-syntax", "peers"),
        ("peer_access = \"direct\"", "peer_access = \"telepathy\"", "machine-syntax", "\"telepathy\""),
        ("ranks_per_gpu = 1", "ranks_per_gpu = 0", "machine-bounds", "0"),
        ("id = \"g1\"", "id = \"g0\"", "machine-duplicate-id", "\"g0\""),
        ("id = \"g1\"", "id = \"g.1\"", "machine-name", "\"g.1\""),
        ("id = \"g2\", kind = \"k\"", "id = \"g2\", kind = \"voodoo\"", "machine-unknown-kind", "\"voodoo\""),
        ("like = \"rtx-pro-6000\"", "sms = 4", "machine-incomplete-kind", "k"),
        ("{ a = \"g2\", b = \"root1\"", "{ a = \"g9\", b = \"root1\"", "machine-unknown-node", "\"g9\""),
        ("b = \"sw0\", class = \"x16\"", "b = \"sw0\", class = \"x15\"", "machine-unknown-class", "\"x15\""),
        ("latency_ns = 70", "latency_ns = -1", "machine-bounds", "-1"),
        ("latency_ns = 70", "latency_ns = { value = 5, low = 6 }", "machine-syntax", "{ value = 5, low = 6 }"),
        ("chip.issue_ns", "chip.isue_ns", "machine-unknown-key", "isue_ns"),
        ("chip.issue_ns = 100", "chip.issue_ns = 1e9", "machine-bounds", "1e9"),
        ("write_gbps = 2.5", "write_gbps = 0", "machine-bounds", "0"),
        ("at = \"sw0\"", "at = \"sw7\"", "machine-unknown-node", "\"sw7\""),
        ("{ a = \"g3\", b = \"root2\", class = \"x16\" },", "", "machine-unreachable", "\"g3\""),
        ("{ a = \"cpu0\", b = \"cpu1\", class = \"fabric\" },", "", "machine-unreachable", "\"cpu1\""),
        (
            "{ a = \"root2\", b = \"cpu1\", class = \"in\" },",
            "{ a = \"root2\", b = \"cpu1\", class = \"in\" }, { a = \"sw0\", b = \"root2\", class = \"up\" },",
            "machine-cycle",
            "{ a = \"sw0\", b = \"root2\", class = \"up\" }",
        ),
        (
            "{ a = \"g1\", b = \"sw0\", class = \"x16\" },",
            "{ a = \"g1\", b = \"sw0\", class = \"x16\" }, { a = \"g1\", b = \"root1\", class = \"x16\" },",
            "machine-cycle",
            "{ a = \"g1\", b = \"root1\", class = \"x16\" }",
        ),
        ("b = \"sw0\", class = \"x16\"", "b = \"sw0\", class = \"in\"", "machine-link-ends", "{ a = \"g0\", b = \"sw0\", class = \"in\" }"),
    ];
    for (from, to, code, at) in cases {
        let (fault, pointed) = broken(from, to);
        assert_eq!((fault.code, pointed.as_str()), (code, at), "{from} → {to}: {fault}");
    }
}

#[test]
fn large_and_missing_files_are_refused() {
    let large = format!("{SMALL}#{}", "x".repeat(4 << 20));
    assert_eq!(Machine::from_toml("large", &large).expect_err("large").code, "machine-too-large");
    assert_eq!(Machine::load("nowhere").expect_err("unknown").code, "machine-unknown");
    assert_eq!(Machine::load("no/such/file.toml").expect_err("missing").code, "io");
    assert_eq!(Machine::from_toml("empty", "").expect_err("empty").code, "machine-syntax");
}

#[test]
fn routes_by_hand() {
    let machine = small();
    let way = |from, to| machine.route(from, to).expect("joined");
    let (g0, g2, g3) = (Endpoint::Gpu(0), Endpoint::Gpu(2), Endpoint::Gpu(3));
    // g0 sw0 g1: 2 x 100.
    let near = way(g0, Endpoint::Gpu(1));
    assert_eq!(near.hops, [(LinkId(0), Direction::Forward), (LinkId(1), Direction::Backward)]);
    assert_eq!((near.latency, near.path, near.label), (Time::from_ns(200.0), PathType::Pix, PathType::Pix));
    // g0 sw0 root0 cpu0 root1 g2: 100 + 200 + 10 + 10 + 100.
    let node = way(g0, g2);
    assert_eq!((node.latency, node.path, node.label), (Time::from_ns(420.0), PathType::Phb, PathType::Node));
    // … cpu0 cpu1 root2 g3: 100 + 200 + 10 + 70 + 10 + 100, and the same way back.
    let far = way(g0, g3);
    assert_eq!((far.latency, far.path, far.hops.len()), (Time::from_ns(490.0), PathType::Sys, 6));
    let mut back = way(g3, g0).hops;
    back.reverse();
    assert_eq!(back.iter().map(|(link, _)| *link).collect::<Vec<_>>(), far.hops.iter().map(|(link, _)| *link).collect::<Vec<_>>());
    // To host memory: 100 + 200 + 10, and over the fabric 70 more.
    assert_eq!(way(g0, Endpoint::Host(0)).latency, Time::from_ns(310.0));
    assert_eq!(way(g0, Endpoint::Host(0)).path, PathType::Phb);
    assert_eq!((way(g0, Endpoint::Host(1)).latency, way(g0, Endpoint::Host(1)).path), (Time::from_ns(380.0), PathType::Sys));
    assert_eq!(way(g0, g0), Route { hops: Vec::new(), latency: Time::ZERO, path: PathType::Loc, label: PathType::Loc });
    assert!(machine.route(g0, Endpoint::Gpu(9)).is_none() && machine.route(Endpoint::Host(2), g0).is_none());
    // 100 issue + 2 x 200 + 150 serve.
    assert_eq!(machine.read_latency(0, Endpoint::Gpu(1)), Some(Time::from_ns(650.0)));
    assert_eq!(machine.socket_of(3), Some(1));
}

#[test]
fn rates_have_a_direction_and_an_access() {
    let machine = small();
    let gbps = |direction, access| machine.link_rate(LinkId(0), direction, access).gbps();
    assert_eq!(gbps(Direction::Forward, Access::Write), 50.0);
    assert_eq!(gbps(Direction::Backward, Access::Write), 40.0);
    assert_eq!(gbps(Direction::Forward, Access::Read), 45.0);
    // 8 / (8 + 24) against 256 / (256 + 24): 0.25 / 0.914.
    assert!((machine.packet_efficiency(8.0) - 0.2734375).abs() < 1e-9);
    assert_eq!(machine.packet_efficiency(1e9), 1.0);
}

#[test]
fn collapses_need_sources_and_roots() {
    let machine = small();
    let members = |writes: &[(usize, usize)]| machine.collapsed(writes).into_iter().flat_map(|(_, m)| m).collect::<Vec<_>>();
    // Two sources below sw0, to root1 and root2; a write within sw0 is not part of it.
    assert_eq!(members(&[(0, 2), (0, 1), (1, 3)]), [0, 2]);
    assert!(members(&[(0, 2), (1, 2)]).is_empty(), "one root");
    assert!(members(&[(0, 2), (0, 3)]).is_empty(), "one source");
    assert!(members(&[(2, 0), (3, 1)]).is_empty(), "sources elsewhere");
}

#[test]
fn knobs_reach_every_number() {
    let mut machine = small();
    let paths: Vec<String> = machine.knobs().into_iter().map(|(path, _, _)| path).collect();
    for path in &paths {
        let value = machine.knobs().iter().find(|knob| knob.0 == *path).map(|knob| knob.2.value).expect("listed");
        machine.set(path, value).unwrap_or_else(|fault| panic!("{path}: {fault}"));
    }
    for path in ["fabric.max_payload_bytes", "links.x16.latency_ns", "kinds.k.chip.issue_ns", "collapses.sw0.write_gbps"] {
        assert!(paths.iter().any(|known| known == path), "{path}");
    }
    machine.set("links.x16.latency_ns", 55.0).expect("within bounds");
    assert!([0, 1, 3, 4].iter().all(|link| machine.links[*link].latency_ns.value == 55.0));
    assert_eq!(machine.links[2].latency_ns.value, 200.0);
    for (path, value, code) in [
        ("links.x16.latency_ns", -1.0, "knob-bounds"),
        ("fabric.max_payload_bytes", f64::NAN, "knob-bounds"),
        ("links.x17.latency_ns", 1.0, "knob-unknown"),
        ("kinds.k.chip", 1.0, "knob-unknown"),
        ("", 1.0, "knob-unknown"),
    ] {
        assert_eq!(machine.set(path, value).expect_err(path).code, code, "{path}");
    }
}

#[test]
fn recabling_keeps_the_gpus() {
    let server = Machine::load("8x-rtx-pro-6000-server").expect("reads");
    let expected = [
        (Cabling::Direct, PathType::Node, PathType::Sys),
        (Cabling::OneSwitch, PathType::Pix, PathType::Pix),
        (Cabling::TwoSwitches, PathType::Pix, PathType::Node),
        (Cabling::ThreeSwitchTree, PathType::Pxb, PathType::Node),
    ];
    for (cabling, within, across) in expected {
        let machine = server.recable(cabling).expect("eight fit");
        // What is made reads back: the graph passes every check of files.
        assert_eq!(Machine::from_toml("recabled", &machine.to_toml()).expect("reads"), machine);
        let label = |to| machine.route(Endpoint::Gpu(0), Endpoint::Gpu(to)).map(|route| route.label);
        assert_eq!((label(3), label(7)), (Some(within), Some(across)), "{cabling}");
        assert_eq!((&machine.kinds, machine.gpus.len()), (&server.kinds, 8));
        assert_eq!(cabling.to_string().parse::<Cabling>().expect("its own name"), cabling);
    }
    for count_of in ["4x-rtx-5090-direct", "7x-rtx-pro-6000-turin-direct", "2x4-a800-islands"] {
        let machine = Machine::load(count_of).expect("reads").recable(Cabling::ThreeSwitchTree).expect("fits");
        assert_eq!(Machine::from_toml("recabled", &machine.to_toml()).expect("reads"), machine, "{count_of}");
    }
    // Gen4 cards on Gen5 cabling run at half of 54.8.
    let slow = Machine::load("2x4-a800-islands").expect("reads").recable(Cabling::OneSwitch).expect("fits");
    assert!(
        slow.links.iter().filter(|link| link.medium == Medium::Pcie).all(|link| link.generation == 4 && link.forward_gbps.value < 28.0)
    );
    for id in ["h200-shared", "8x-h200", "16x-rtx-pro-6000-switchtec4"] {
        let fault = Machine::load(id).expect("reads").recable(Cabling::OneSwitch).expect_err(id);
        assert_eq!(fault.code, "machine-recable");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn mangled_files_never_panic(cut in 0..SMALL.len(), length in 0..40_usize, put in "[ -~\n]{0,12}") {
        let mut text = SMALL.to_owned();
        let end = (cut + length).min(text.len());
        text.replace_range(cut..end, &put);
        if let Ok(machine) = Machine::from_toml("mangled", &text) {
            let again = Machine::from_toml("written", &machine.to_toml());
            prop_assert_eq!(again.ok(), Some(machine));
        }
    }
}

/// Below one switch a packet takes two links; with redirection it goes up to the root port and down again: four.
#[test]
fn redirected_peers_meet_at_the_root() {
    let mut machine = Machine::load("8x-rtx-pro-6000-server").expect("built in");
    let hops = |machine: &Machine, to: usize| machine.route(Endpoint::Gpu(0), Endpoint::Gpu(to)).expect("a way").hops.len();
    let far = hops(&machine, 7);
    assert_eq!(hops(&machine, 1), 2);
    machine.redirects_peers = true;
    assert_eq!((hops(&machine, 1), hops(&machine, 7)), (4, far));
    assert_eq!(Machine::from_toml("m.toml", &machine.to_toml()).expect("reads"), machine);
}
