//! Random valid machines (trees of switches with up to 64 GPUs, several sockets,
//! links that died down to one lane), random policies: what holds for all.

use std::fmt::Write as _;

use lanecast::case::LaunchMode;
use lanecast::case::Policy;
use lanecast::case::Question;
use lanecast::case::answer;
use lanecast::case::chain;
use lanecast::machine::Endpoint;
use lanecast::machine::Machine;
use lanecast::model::Model;
use lanecast::model::Phase;
use lanecast::model::Workload;
use lanecast::plan::Partition;
use lanecast::simulate::Options;
use lanecast::strategy;
use lanecast::strategy::Context;
use lanecast::strategy::Logical;
use proptest::prelude::*;
use proptest::sample::Index;

/// A machine to be written: what hangs below what.
#[derive(Clone, Debug)]
struct Shape {
    sockets: usize,
    /// Of each root port: its socket.
    roots: Vec<usize>,
    /// Of each switch: its parent, a root or an earlier switch.
    switches: Vec<usize>,
    /// Of each GPU: its parent, a root without children or a switch, and whether its link died down.
    gpus: Vec<(usize, bool)>,
    vendor: &'static str,
    peer_access: &'static str,
}

fn shapes(most: usize) -> impl Strategy<Value = Shape> {
    (1..5_usize, 1..6_usize, 0..9_usize, 2..=most).prop_flat_map(|(sockets, roots, switches, gpus)| {
        let any_index = || 0..1_000_000_usize;
        (
            prop::collection::vec(0..sockets, roots),
            prop::collection::vec(any_index(), switches),
            prop::collection::vec((any_index(), prop::bool::weighted(0.1)), gpus),
            prop::sample::select(vec!["amd", "intel"]),
            prop::sample::select(vec!["direct", "driver-staged", "host-staged"]),
        )
            .prop_map(move |(roots, switches, gpus, vendor, peer_access)| Shape {
                sockets,
                roots,
                switches,
                gpus,
                vendor,
                peer_access,
            })
    })
}

/// Links of a machine, `a` below `b`.
struct Drawn {
    links: Vec<String>,
    switches: Vec<String>,
    roots: Vec<String>,
}

impl Shape {
    fn draw(&self) -> Drawn {
        let mut links = Vec::new();
        let mut link = |a: &str, b: &str, class: &str| links.push(format!("    {{ a = \"{a}\", b = \"{b}\", class = \"{class}\" }},\n"));
        for socket in 0..self.sockets {
            for other in 0..socket {
                link(&format!("cpu{other}"), &format!("cpu{socket}"), "fabric");
            }
        }
        for (root, socket) in self.roots.iter().enumerate() {
            link(&format!("root{root}"), &format!("cpu{socket}"), "bridge");
        }
        for (at, parent) in self.switches.iter().enumerate() {
            let parent = parent % (self.roots.len() + at);
            let parent = if parent < self.roots.len() { format!("root{parent}") } else { format!("switch{}", parent - self.roots.len()) };
            link(&format!("switch{at}"), &parent, "x16");
        }
        for (at, (parent, dead)) in self.gpus.iter().enumerate() {
            let parent = parent % (self.roots.len() + self.switches.len());
            let parent = if parent < self.roots.len() { format!("root{parent}") } else { format!("switch{}", parent - self.roots.len()) };
            link(&format!("gpu{at}"), &parent, if *dead { "x1" } else { "x16" });
        }
        let named = |what: &str, count: usize| (0..count).map(|at| format!("    {{ id = \"{what}{at}\" }},\n")).collect();
        Drawn { links, switches: named("switch", self.switches.len()), roots: named("root", self.roots.len()) }
    }

    /// As a file; `turn` lists links, switches and roots in another order.
    fn toml(&self, turn: usize, leave_out: Option<usize>) -> String {
        let mut drawn = self.draw();
        if let Some(link) = leave_out {
            drawn.links.remove(link % drawn.links.len());
        }
        for list in [&mut drawn.links, &mut drawn.switches, &mut drawn.roots] {
            if turn > 0 && !list.is_empty() {
                list.reverse();
                let by = turn % list.len();
                list.rotate_left(by);
            }
        }
        let mut text = format!(
            "format = 1\nid = \"random\"\nname = \"random\"\npeer_access = \"{}\"\nranks_per_gpu = 1\nsockets = [\n",
            self.peer_access
        );
        for socket in 0..self.sockets {
            let _ =
                writeln!(text, "    {{ id = \"cpu{socket}\", numa = {socket}, vendor = \"{}\", family = 25, model = 24 }},", self.vendor);
        }
        let _ = write!(text, "]\nroots = [\n{}]\nswitches = [\n{}]\ngpus = [\n", drawn.roots.concat(), drawn.switches.concat());
        for gpu in 0..self.gpus.len() {
            let _ = writeln!(text, "    {{ id = \"gpu{gpu}\", kind = \"rtx-pro-6000\" }},");
        }
        let _ = write!(text, "]\nlinks = [\n{}]\n", drawn.links.concat());
        for (class, medium, generation, width, gbps, ns) in [
            ("x16", "pcie", 5, 16, 54.0, 110.0),
            ("x1", "pcie", 5, 1, 3.2, 160.0),
            ("bridge", "internal", 0, 0, 73.0, 40.0),
            ("fabric", "socket-fabric", 0, 0, 60.0, 120.0),
        ] {
            let _ = write!(text, "\n[link_classes.{class}]\nmedium = \"{medium}\"\ngeneration = {generation}\nwidth = {width}\n");
            for (key, value) in [("forward_gbps", gbps), ("latency_ns", ns)] {
                let _ = writeln!(text, "{key} = {{ value = {value:?}, low = {value:?}, high = {value:?}, source = \"made up\" }}");
            }
        }
        text
    }

    fn machine(&self, turn: usize) -> Machine {
        let text = self.toml(turn, None);
        Machine::from_toml("random.toml", &text).unwrap_or_else(|fault| panic!("{}\n{text}", fault.message))
    }
}

/// The largest power of two of ranks that both the machine and the engine have.
fn ranks_of(machine: &Machine) -> usize {
    1 << machine.gpus.len().min(64).ilog2()
}

/// One all-reduce under a strategy, three in a chain; None where the strategy cannot run.
fn chained(machine: &Machine, ranks: usize, strategy: &'static strategy::Strategy, bytes: u64) -> Option<lanecast::simulate::Outcome> {
    let context = Context::new(machine, ranks);
    if strategy.refusal(&context).is_some() {
        return None;
    }
    // What NCCL refuses (no channel for this algorithm) is an answer too.
    let lowering = (strategy.lower)(&context, strategy, Logical::AllReduce, bytes).ok()?;
    let program = chain::program(machine, &lowering, chain::ChainLaunch::Graph, 3).expect("it is priced");
    let outcome = chain::run(machine, &lowering, chain::ChainLaunch::Graph, 3, Options::default()).expect("it ends");
    for (carried, capacity) in outcome.carried.iter().zip(&program.network.capacity) {
        let could = u128::from(*capacity) * u128::from(outcome.critical().time);
        assert!(u128::from(*carried) * 1_000_000_000_000 <= could, "{}: a link carried more than it can", strategy.id);
    }
    Some(outcome)
}

fn all() -> Vec<&'static strategy::Strategy> {
    strategy::all().collect()
}

/// A model of two layers whose heads 64 ranks can share.
fn small_model() -> Model {
    let text = "{\"model_type\": \"llama\", \"hidden_size\": 2048, \"vocab_size\": 32000, \"num_hidden_layers\": 2, \
                \"num_attention_heads\": 64, \"num_key_value_heads\": 64, \"intermediate_size\": 8192}";
    Model::parse("small.json", text, None).expect("a model")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 64, ..ProptestConfig::default() })]

    /// A machine is what its file says, in whatever order; there is a way between all pairs, as long in both directions.
    #[test]
    fn machines_are_their_files(shape in shapes(64), turn in 1..40_usize) {
        let machine = shape.machine(0);
        let text = machine.to_toml();
        prop_assert_eq!(&Machine::from_toml("again", &text).expect("what was written is read"), &machine);
        let other = shape.machine(turn);
        let gpus = machine.gpus.len();
        for (from, to) in (0..gpus).flat_map(|from| (0..from).map(move |to| (from, to))).step_by(1 + gpus * gpus / 200) {
            let way = |machine: &Machine, from, to| machine.route(Endpoint::Gpu(from), Endpoint::Gpu(to)).expect("a way");
            let (there, back) = (way(&machine, from, to), way(&machine, to, from));
            prop_assert_eq!((there.latency, there.hops.len(), there.label), (back.latency, back.hops.len(), back.label));
            let relisted = way(&other, from, to);
            prop_assert_eq!((there.latency, there.hops.len(), there.label), (relisted.latency, relisted.hops.len(), relisted.label));
        }
    }

    /// Without one of its links a machine is refused, or it was a link between sockets and there is another way.
    #[test]
    fn a_missing_link_is_said(shape in shapes(64), link in 0..1000_usize) {
        let text = shape.toml(0, Some(link));
        match Machine::from_toml("cut.toml", &text) {
            Ok(machine) => prop_assert!(machine.route(Endpoint::Gpu(0), Endpoint::Gpu(machine.gpus.len() - 1)).is_some()),
            Err(fault) => prop_assert!(fault.code.starts_with("machine-") && fault.place.is_some(), "{}", fault.message),
        }
    }

    /// An all-reduce ends, every rank's time is spent on something, nothing is
    /// faster than the links, and neither reuse nor the file's order changes it.
    #[test]
    fn collectives_hold_on_any_machine(shape in shapes(16), pick: Index, bytes in 1..200_000_u64, turn in 1..40_usize) {
        let machine = shape.machine(0);
        let ranks = ranks_of(&machine);
        let strategy = *pick.get(&all());
        if let Some(outcome) = chained(&machine, ranks, strategy, bytes) {
            for end in &outcome.ends {
                prop_assert_eq!(end.parts.iter().sum::<u64>(), end.time);
            }
            // Free communication launches nothing.
            let times = if strategy.id == "free-communication" { 0 } else { 3 };
            prop_assert!(outcome.totals.iter().all(|total| total.count == times));
            let again = chained(&machine, ranks, strategy, bytes).expect("as before");
            prop_assert_eq!(&again.ends, &outcome.ends);
            let relisted = chained(&shape.machine(turn), ranks, strategy, bytes).expect("the same machine");
            prop_assert_eq!(relisted.critical().time, outcome.critical().time, "{} on the file in another order", strategy.id);
        }
    }

    /// 64 GPUs below switches: the kernels that any engine has.
    #[test]
    fn sixty_four_gpus_are_simulated(shape in shapes(64), pick in 0..3_usize, bytes in 1..50_000_u64) {
        let machine = shape.machine(0);
        let id = ["nccl-default", "one-shot-push", "two-shot"][pick];
        let strategy = strategy::Strategy::find(id).expect("known");
        if let Some(outcome) = chained(&machine, ranks_of(&machine), strategy, bytes) {
            prop_assert!(outcome.critical().time > 0);
        }
    }

    /// A whole pass under a random policy: its parts are the pass, repetitions may be skipped.
    #[test]
    fn passes_hold_under_any_policy(shape in shapes(8), cuts in prop::collection::btree_set(1..100_000_u64, 0..3), picks in prop::collection::vec(any::<Index>(), 4), tokens in 1..9_u64, eager: bool) {
        let machine = shape.machine(0);
        let ranks = ranks_of(&machine);
        let model = small_model();
        let phase = if tokens == 1 { Phase::Decode } else { Phase::Verify };
        let partition = Partition::tensor(ranks as u32);
        let launch = if eager { LaunchMode::Eager } else { LaunchMode::Graph };
        let question = Question { machine: &machine, model: &model, workload: Workload::new(phase, tokens, 64), partition, launch };
        let context = Context::new(&machine, ranks);
        // Strategies that split the model otherwise are no rows of a policy.
        let plain = |strategy: &&'static strategy::Strategy| (strategy.partition)(ranks as u32) == partition && strategy.refusal(&context).is_none();
        let feasible: Vec<&'static strategy::Strategy> = strategy::all().filter(plain).collect();
        let mosts = cuts.iter().copied().chain([u64::MAX]);
        let policy = Policy { rows: mosts.zip(&picks).map(|(most, pick)| (most, *pick.get(&feasible))).collect() };
        let ids: Vec<&str> = policy.rows.iter().map(|(_, strategy)| strategy.id).collect();
        let plan = question.plan().expect("divides");
        let run = |reuse| answer(&question, &plan, &policy, &context, Options { reuse, records: false });
        match (run(true), run(false)) {
            (Ok(answer), Ok(whole)) => {
                prop_assert_eq!(answer.pass, whole.pass, "{:?}", ids);
                let parts = answer.communication + answer.skew + answer.compute + answer.launch;
                prop_assert!(parts >= answer.pass, "{:?}: {:?} of {:?}", ids, parts, answer.pass);
                for end in &answer.outcome.ends {
                    prop_assert_eq!(end.parts.iter().sum::<u64>(), end.time);
                }
            }
            (Err(one), Err(other)) => prop_assert_eq!(one.code, other.code),
            (one, other) => prop_assert!(false, "{:?}: {} and {}", ids, one.is_ok(), other.is_ok()),
        }
    }
}

#[test]
fn larger_machines_than_a_host_are_refused() {
    let shape =
        Shape { sockets: 1, roots: vec![0], switches: Vec::new(), gpus: vec![(0, false); 2000], vendor: "amd", peer_access: "direct" };
    let fault = Machine::from_toml("large.toml", &shape.toml(0, None)).expect_err("too large");
    assert_eq!(fault.code, "machine-too-large");
    assert!(fault.help.is_some_and(|help| help.contains("at most 128 GPUs")));
}
