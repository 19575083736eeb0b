//! One all-reduce, without any model: latency by size and strategy, where
//! strategies cross, which policy by size beats each of them, and the floor
//! that none can go below.

use std::collections::BTreeMap;

use rayon::prelude::*;

use crate::case::chain;
use crate::case::chain::ChainLaunch;
use crate::error::Result;
use crate::machine::Endpoint;
use crate::machine::Machine;
use crate::machine::route::Access;
use crate::simulate::Options;
use crate::strategy::Context;
use crate::strategy::Logical;
use crate::strategy::Searches;
use crate::strategy::Strategy;
use crate::units::Bytes;
use crate::units::Rate;
use crate::units::Time;

/// Operations of the simulated chain; as the benchmarks that the model is held against.
pub const CHAIN: u32 = 50;
/// Halvings of the span between two sizes when a crossing is looked for: to 1/64 of it.
const HALVINGS: u32 = 6;
/// Sizes that are tried are multiples of this: a pack of 16 bytes.
const GRAIN_BYTES: u64 = 16;

/// What is asked.
pub struct Request<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Ranks of the group.
    pub ranks: usize,
    /// Variables that are set whatever the strategy.
    pub environment: BTreeMap<String, String>,
    /// How the chain is launched.
    pub launch: ChainLaunch,
    /// Message sizes in bytes, ascending.
    pub sizes: Vec<u64>,
    /// The strategies.
    pub strategies: Vec<&'static Strategy>,
    /// With which one the others are compared.
    pub against: &'static Strategy,
}

/// One strategy at all sizes.
#[derive(Clone)]
pub struct Line {
    /// Which.
    pub strategy: &'static Strategy,
    /// Per operation, one for each size.
    pub latency: Vec<Time>,
    /// Sizes at which it and the one compared with change places.
    pub crossings: Vec<Crossing>,
}

/// Where two strategies change places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crossing {
    /// The largest tried size before the change.
    pub bytes: u64,
    /// Whether the strategy is the faster one above it.
    pub faster_above: bool,
}

/// The fastest strategy up to a size.
#[derive(Clone, Copy)]
pub struct PolicyRow {
    /// The largest message, bytes; `u64::MAX` in the last row.
    pub up_to: u64,
    /// The strategy.
    pub strategy: &'static Strategy,
}

/// What no strategy goes below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Floor {
    /// A kernel that does nothing: its gap in the graph, its prologue, its end.
    pub launch: Time,
    /// The longest way of a store between two ranks.
    pub distance: Time,
    /// `2 (D − 1) / D` of the message through the link of the slowest of D GPUs.
    pub wire: Time,
}

impl Floor {
    /// All of it.
    pub fn total(&self) -> Time {
        self.launch + self.distance + self.wire
    }
}

/// The answer.
pub struct Grid {
    /// In the order asked.
    pub lines: Vec<Line>,
    /// Strategies that cannot run, with the reason.
    pub refused: Vec<(&'static Strategy, String)>,
    /// The fastest by size.
    pub policy: Vec<PolicyRow>,
    /// One for each size.
    pub floors: Vec<Floor>,
}

impl Grid {
    /// What the policy saves at most against the best single strategy: percent
    /// of that one's time summed over the sizes; and which one that is.
    pub fn policy_gain(&self) -> Option<(&'static Strategy, f64)> {
        let sum = |line: &Line| line.latency.iter().map(|time| time.0).sum::<u64>();
        let best = self.lines.iter().min_by_key(|line| (sum(line), line.strategy.id))?;
        let sizes = best.latency.len();
        let mixed: u64 = (0..sizes).filter_map(|size| self.lines.iter().map(|line| line.latency[size].0).min()).sum();
        Some((best.strategy, (1.0 - mixed as f64 / sum(best).max(1) as f64) * 100.0))
    }
}

/// Simulates all of it.
///
/// # Errors
/// What lowering and simulating can meet; a strategy that a gate refuses is listed, not an error.
pub fn grid(request: &Request<'_>) -> Result<Grid> {
    let searches = Searches::default();
    let base = timer(request, &searches, request.against);
    let base_refused = request.against.refusal(&base.context).is_some();
    let base_latency = if base_refused { Vec::new() } else { base.all()? };
    let made: Vec<std::result::Result<Line, (&'static Strategy, String)>> = (request.strategies.par_iter())
        .map(|&strategy| {
            let own = timer(request, &searches, strategy);
            if let Some(reason) = strategy.refusal(&own.context) {
                return Ok(Err((strategy, reason)));
            }
            let latency = own.all()?;
            let crossings = if base_refused || strategy.id == request.against.id {
                Vec::new()
            } else {
                let base = timer(request, &searches, request.against);
                crossings(&own, &base, &latency, &base_latency)?
            };
            Ok(Ok(Line { strategy, latency, crossings }))
        })
        .collect::<Result<_>>()?;
    let (mut lines, mut refused) = (Vec::new(), Vec::new());
    for one in made {
        match one {
            Ok(line) => lines.push(line),
            Err(reason) => refused.push(reason),
        }
    }
    let policy = policy(request, &searches, &lines)?;
    let floors = request.sizes.iter().map(|&bytes| floor(request.machine, request.ranks, bytes)).collect();
    Ok(Grid { lines, refused, policy, floors })
}

/// Times one strategy.
struct Timer<'a> {
    request: &'a Request<'a>,
    context: Context<'a>,
    strategy: &'static Strategy,
}

fn timer<'a>(request: &'a Request<'a>, searches: &Searches, strategy: &'static Strategy) -> Timer<'a> {
    let mut context = Context::new(request.machine, request.ranks);
    context.environment.clone_from(&request.environment);
    context.searches = searches.clone();
    Timer { request, context, strategy }
}

impl Timer<'_> {
    fn at(&self, bytes: u64) -> Result<Time> {
        let lowering = (self.strategy.lower)(&self.context, self.strategy, Logical::AllReduce, bytes)?;
        let outcome = chain::run(self.request.machine, &lowering, self.request.launch, CHAIN, Options::default())?;
        Ok(Time(outcome.critical().time / u64::from(CHAIN)))
    }

    fn all(&self) -> Result<Vec<Time>> {
        self.request.sizes.iter().map(|&bytes| self.at(bytes)).collect()
    }
}

/// The last size of `low..high` (multiples of the grain) for which `a` is still as it is at `low`.
fn bisect(a: &Timer<'_>, b: &Timer<'_>, low: u64, high: u64, below: bool) -> Result<u64> {
    let (mut low, mut high) = (low, high);
    for _ in 0..HALVINGS {
        let middle = (low + (high - low) / 2) / GRAIN_BYTES * GRAIN_BYTES;
        if middle <= low || middle >= high {
            break;
        }
        if (a.at(middle)? < b.at(middle)?) == below {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

/// Where `own` and `base` change places.
fn crossings(own: &Timer<'_>, base: &Timer<'_>, latency: &[Time], base_latency: &[Time]) -> Result<Vec<Crossing>> {
    let faster: Vec<bool> = latency.iter().zip(base_latency).map(|(own, base)| own < base).collect();
    let sizes = &own.request.sizes;
    let mut found = Vec::new();
    for (index, pair) in faster.windows(2).enumerate() {
        // Strategies that are the same at these sizes do not cross.
        let apart = |at: usize| latency[at] != base_latency[at];
        if pair[0] != pair[1] && apart(index) && apart(index + 1) {
            found.push(Crossing { bytes: bisect(own, base, sizes[index], sizes[index + 1], pair[0])?, faster_above: pair[1] });
        }
    }
    Ok(found)
}

/// The fastest by size; of equals the first in the order asked.
fn policy(request: &Request<'_>, searches: &Searches, lines: &[Line]) -> Result<Vec<PolicyRow>> {
    let best = |size: usize| lines.iter().min_by_key(|line| line.latency[size]).map(|line| line.strategy);
    let mut rows: Vec<PolicyRow> = Vec::new();
    for (index, &bytes) in request.sizes.iter().enumerate() {
        let Some(strategy) = best(index) else { return Ok(rows) };
        match rows.last_mut() {
            Some(last) if last.strategy.id == strategy.id => last.up_to = bytes,
            Some(last) => {
                let (before, after) = (timer(request, searches, last.strategy), timer(request, searches, strategy));
                last.up_to = bisect(&before, &after, request.sizes[index - 1], bytes, true)?;
                rows.push(PolicyRow { up_to: bytes, strategy });
            }
            None => rows.push(PolicyRow { up_to: bytes, strategy }),
        }
    }
    if let Some(last) = rows.last_mut() {
        last.up_to = u64::MAX;
    }
    Ok(rows)
}

/// What no all-reduce of full precision goes below on a machine.
pub fn floor(machine: &Machine, ranks: usize, bytes: u64) -> Floor {
    let per_gpu = machine.ranks_per_gpu.max(1) as usize;
    let devices = ranks.div_ceil(per_gpu).min(machine.gpus.len());
    let (mut launch, mut distance, mut wire) = (Time::ZERO, Time::ZERO, Time::ZERO);
    for device in 0..devices {
        let Some(kind) = machine.gpu_kind(device) else { continue };
        let empty = kind.launch.graph_gap_ns.value + kind.protocol.custom_kernel_ns.value + kind.protocol.kernel_end_ns.value;
        launch = launch.max(Time::from_ns(empty));
        if per_gpu > 1 {
            distance = distance.max(Time::from_ns(kind.protocol.local_hop_ns.value));
        }
        let peers = (0..devices).filter(|&peer| peer != device);
        let mut port = None;
        for peer in peers {
            distance = distance.max(machine.write_latency(peer, Endpoint::Gpu(device)).unwrap_or_default());
            let into = machine.route(Endpoint::Gpu(peer), Endpoint::Gpu(device));
            let last = into.and_then(|route| route.hops.last().copied());
            port = port.max(last.map(|(link, direction)| machine.link_rate(link, direction, Access::Write).0));
        }
        // What stays on one GPU goes through its L2.
        let rate = port.map_or_else(|| Rate::from_gbps(kind.chip.l2_gbps.value), Rate);
        let parties = if devices > 1 { devices } else { ranks } as u64;
        let share = (u128::from(bytes) * 2 * u128::from(parties.saturating_sub(1)) / u128::from(parties.max(1))) as u64;
        wire = wire.max(rate.time_for(Bytes(share)));
    }
    Floor { launch, distance, wire }
}
