//! Properties of random small schedules on random networks.

use std::sync::Arc;

use lanecast::collective::{Buffer, Protocol, Schedule};
use lanecast::simulate::apart::{self, Probe};
use lanecast::simulate::fabric::Fabric;
use lanecast::simulate::timed::Fetch;
use lanecast::simulate::{Launch, Network, Options, Outcome, Program, StepCost, Timed, TimedConnection, simulate};
use proptest::prelude::*;

use super::toy::{KINDS, Toy, program, run, schedule};

/// A random case: what is run on what, at what cost.
#[derive(Clone, Debug)]
struct Case {
    ranks: usize,
    kinds: Vec<usize>,
    bytes: u64,
    rates: [u64; 3],
    costs: Vec<u64>,
    compute: Vec<u64>,
    eager: bool,
    staged: bool,
}

fn cases() -> impl Strategy<Value = Case> {
    let rate = || 1_000_000_000_u64..60_000_000_000;
    (
        2..6_usize,
        prop::collection::vec(0..KINDS, 1..3),
        1..6000_u64,
        [rate(), rate(), rate()],
        prop::collection::vec(0..2_000_000_u64, 11),
        prop::collection::vec(0..3_000_000_u64, 6),
        any::<[bool; 2]>(),
    )
        .prop_map(|(ranks, kinds, bytes, rates, costs, compute, [eager, staged])| {
            let compute = compute[..ranks].to_vec();
            Case { ranks, kinds, bytes: bytes.div_ceil(16) * 16, rates, costs, compute, eager, staged }
        })
}

impl Case {
    fn schedules(&self) -> Vec<Schedule> {
        self.kinds.iter().map(|&kind| schedule(kind, self.ranks, self.bytes)).collect()
    }

    fn program(&self, schedules: &[Schedule], repeats: u32) -> Program {
        let (network, mut toy) = Toy::new(self.ranks, self.rates);
        let c = &self.costs;
        let first = c[1].min(c[2]);
        toy.cost = StepCost { entry: c[0], first, work: c[2], tail: first, exit: c[3], fence: c[4] };
        let fetch = Fetch { route: 0, rate: 5_000_000_000, latency: c[10], times: 1 };
        let fetch = self.staged.then_some(fetch);
        toy.connection = TimedConnection { latency: c[5], poll: c[6], credit: c[7], fetch, ..TimedConnection::default() };
        (toy.start, toy.finish) = (c[8], c[9]);
        let gap = c[8];
        let launch =
            if self.eager { Launch::Eager { gap, round: 3 * gap, issue: 500_000, shared_thread: true } } else { Launch::Graph { gap } };
        program(schedules, network, &mut toy, self.compute.clone(), repeats, launch)
    }
}

/// Bytes on each link, straight from the schedules: a message crosses each link
/// of its route once.
fn textbook(schedules: &[Schedule], program: &Program, repeats: u64) -> Vec<u64> {
    let mut carried = vec![0; program.network.capacity.len()];
    for (schedule, timed) in schedules.iter().zip(&program.collectives) {
        for step in schedule.blocks.iter().flat_map(|block| &block.steps) {
            let read = |c: &&u32| schedule.connections[**c as usize].protocol == Protocol::Read;
            for &c in schedule.sends(step).iter().chain(schedule.receives(step).iter().filter(read)) {
                let connection = &schedule.connections[c as usize];
                let wire = connection.protocol.wire_bytes(step.bytes);
                let ends = (connection.source as u32, connection.target as u32);
                let is_it = |(timed, other): &(&TimedConnection, &(u32, u32))| {
                    **other == ends && timed.pulled == (connection.protocol == Protocol::Read)
                };
                let (timed, _) = timed.connections.iter().zip(&timed.ends).find(is_it).expect("a connection of these ends");
                let legs = 1 + u64::from(timed.fetch.is_some());
                for &link in program.network.links(timed.route) {
                    carried[link as usize] += wire * legs * repeats;
                }
            }
        }
    }
    carried
}

/// The same schedule with its blocks and connections listed the other way round.
fn relisted(schedule: &Schedule, turn: usize) -> Schedule {
    let mut other = schedule.clone();
    let count = schedule.connections.len();
    let place = |c: usize| (2 * count - 1 - c + turn) % count;
    for (index, connection) in schedule.connections.iter().enumerate() {
        other.connections[place(index)] = connection.clone();
    }
    for entry in &mut other.lists {
        *entry = place(*entry as usize) as u32;
    }
    let blocks = other.blocks.len();
    other.blocks.reverse();
    other.blocks.rotate_left(turn % blocks);
    other
}

/// The same to the simulator, but no channel is another's twin any more: of one
/// step a channel that stores nothing the place where it would is another.
fn without_twins(schedule: &Schedule) -> Schedule {
    let mut other = schedule.clone();
    for block in &mut other.blocks {
        let nth = block.channel as usize;
        if let Some(step) = block.steps.iter_mut().filter(|step| !step.store).nth(nth) {
            step.target = Buffer::Scratch;
        }
    }
    other
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    /// What is sent is received (the simulator refuses to end otherwise) and
    /// crosses the links of its route; no link has carried more than it can.
    #[test]
    fn links_carry_what_the_schedule_sends(case in cases()) {
        let schedules = case.schedules();
        let program = case.program(&schedules, 3);
        let outcome = run(&program);
        prop_assert_eq!(&outcome.carried, &textbook(&schedules, &program, 3));
        for (carried, capacity) in outcome.carried.iter().zip(&program.network.capacity) {
            let could = u128::from(*capacity) * u128::from(outcome.critical().time);
            prop_assert!(u128::from(*carried) * 1_000_000_000_000 <= could);
        }
        for total in &outcome.totals {
            prop_assert_eq!(total.count, 3);
        }
    }

    #[test]
    fn parts_sum_to_the_time(case in cases()) {
        let outcome = run(&case.program(&case.schedules(), 2));
        for end in &outcome.ends {
            prop_assert_eq!(end.parts.iter().sum::<u64>(), end.time);
        }
    }

    #[test]
    fn listing_order_changes_nothing(case in cases(), turn in 0..50_usize) {
        let schedules = case.schedules();
        let others: Vec<Schedule> = schedules.iter().map(|schedule| relisted(schedule, turn)).collect();
        // Which channels are seen to be twins may differ, and with it the number of events.
        let outcome = |schedules: &[Schedule]| Outcome { events: 0, ..run(&case.program(schedules, 2)) };
        prop_assert_eq!(outcome(&schedules), outcome(&others));
    }

    #[test]
    fn reuse_and_records_change_nothing(case in cases(), repeats in 1..40_u32) {
        let program = case.program(&case.schedules(), repeats);
        let outcome = |reuse, records| simulate(&program, Options { reuse, records }).expect("it ends");
        let with = |mut outcome: Outcome, events| { outcome.events = events; outcome };
        let plain = outcome(false, true);
        prop_assert_eq!(&with(outcome(true, true), 0), &with(plain.clone(), 0));
        let bare = Outcome { records: Vec::new(), ..plain.clone() };
        prop_assert_eq!(&outcome(false, false), &bare);
        prop_assert_eq!(&with(outcome(true, false), 0), &with(bare, 0));
        // A rank's operations follow one another.
        for rank in 0..case.ranks as u32 {
            let mut free = 0;
            for record in plain.records.iter().filter(|record| record.rank == rank) {
                prop_assert!(record.start >= free && record.end >= record.start);
                free = record.end;
            }
            prop_assert_eq!(free, plain.ends[rank as usize].time);
        }
    }

    /// A pass that is put together from its collectives' courses is the event loop's.
    #[test]
    fn collectives_apart_change_nothing(case in cases(), pause in 0..60_000_000_u64, repeats in 1..12_u32) {
        let mut case = case;
        case.compute.iter_mut().for_each(|ps| *ps += pause);
        let program = case.program(&case.schedules(), repeats);
        let probe = |timed: &Arc<Timed>| Arc::new(Probe::new(Arc::clone(timed), program.network.clone()));
        let probes: Vec<_> = program.collectives.iter().map(probe).collect();
        if let Some(together) = apart::outcome(&program, &probes) {
            let whole = run(&program);
            prop_assert_eq!(Outcome { events: 0, ..together }, Outcome { events: 0, ..whole });
        }
    }

    /// Rates of random flows are max-min fair: each flow runs at its cap or
    /// crosses a full link on which no flow is faster; no link is over-full.
    #[test]
    fn shares_are_max_min_fair(
        capacity in prop::collection::vec(1_000..1_000_000_u64, 5),
        flows in prop::collection::vec((prop::collection::btree_set(0..5_u32, 1..4), 500..500_000_u64), 1..12),
    ) {
        let mut network = Network { capacity: capacity.clone(), ..Network::default() };
        let routes: Vec<Vec<u32>> = flows.iter().map(|(links, _)| links.iter().copied().collect()).collect();
        let ids: Vec<u32> = routes.iter().map(|links| network.route(links)).collect();
        let mut fabric = Fabric::new(&network);
        let bundles: Vec<u32> = ids.iter().zip(&flows).map(|(&route, (_, cap))| fabric.bundle(route, *cap)).collect();
        for (slot, &bundle) in bundles.iter().enumerate() {
            fabric.start(bundle, (slot as u32, 1), 1000, 0);
            // Solving in between changes what was, not what will be.
            if slot % 2 == 0 { fabric.solve(0, |_, _| ()); }
        }
        fabric.solve(0, |_, _| ());
        for (links, (&bundle, (_, cap))) in routes.iter().zip(bundles.iter().zip(&flows)) {
            let rate = fabric.rate(bundle);
            let fastest = |link: u32| {
                let on = routes.iter().zip(&bundles).filter(|(links, _)| links.contains(&link));
                on.map(|(_, &other)| fabric.rate(other)).max().unwrap_or(0)
            };
            // Rounding leaves less than a byte a second for each flow, which can be handed on to the others.
            let slack = flows.len() as u64 * flows.len() as u64;
            let is_bottleneck = |&link: &u32| {
                fabric.used(link as usize) + u128::from(slack) >= u128::from(capacity[link as usize]) && fastest(link) <= rate + slack
            };
            let narrowest = links.iter().map(|&link| capacity[link as usize]).min().unwrap_or(0);
            prop_assert!(rate == (*cap).min(narrowest) || links.iter().any(is_bottleneck), "{links:?} gets {rate}");
        }
        for (link, &capacity) in capacity.iter().enumerate() {
            prop_assert!(fabric.used(link) <= u128::from(capacity));
        }
    }

    /// A channel that stands for its twins as well changes nothing but the number of events.
    #[test]
    fn twins_change_nothing(case in cases(), halves in 1..40_u64) {
        let case = Case { bytes: halves * 64, ..case };
        let schedules = case.schedules();
        let (with, without) = (case.program(&schedules, 3), case.program(&schedules.iter().map(without_twins).collect::<Vec<_>>(), 3));
        for (schedule, timed) in schedules.iter().zip(&without.collectives) {
            prop_assert!(timed.blocks.len() == schedule.blocks.len() || schedule.blocks.iter().all(|block| block.steps.iter().all(|step| step.store)));
        }
        let (with, without) = (run(&with), run(&without));
        prop_assert_eq!(Outcome { events: 0, ..with }, Outcome { events: 0, ..without });
    }

    /// Links that cannot be the first to bind are left out, and no rate changes.
    #[test]
    fn narrowing_changes_no_rate(
        capacity in prop::collection::vec(1_000..1_000_000_u64, 8),
        flows in prop::collection::vec((prop::collection::btree_set(0..4_u32, 1..3), 500..500_000_u64, any::<bool>()), 1..16),
    ) {
        let mut network = Network { capacity, ..Network::default() };
        // Links 4 to 7 follow links 0 to 3 on every way.
        let routes: Vec<u32> =
            flows.iter().map(|(links, _, _)| network.route(&links.iter().flat_map(|link| [*link, link + 4]).collect::<Vec<_>>())).collect();
        let mut plain = Fabric::new(&network);
        let bundles: Vec<u32> = routes.iter().zip(&flows).map(|(&route, (_, cap, _))| plain.bundle(route, *cap)).collect();
        let mut narrow = plain.clone().narrowed();
        for fabric in [&mut plain, &mut narrow] {
            for ((slot, &bundle), (_, _, pause)) in (0..).zip(&bundles).zip(&flows) {
                fabric.start(bundle, (slot, 1), 1000, 0);
                if *pause { fabric.solve(0, |_, _| ()); }
            }
            fabric.solve(0, |_, _| ());
        }
        for &bundle in &bundles {
            prop_assert_eq!(plain.rate(bundle), narrow.rate(bundle));
        }
    }
}
