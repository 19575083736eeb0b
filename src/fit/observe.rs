//! Simulates what one observation measured.

use crate::case::chain;
use crate::case::chain::ChainLaunch;
use crate::collective;
use crate::collective::one_shot;
use crate::collective::one_shot::Grid;
use crate::error::Fault;
use crate::error::Result;
use crate::machine::Machine;
use crate::nccl;
use crate::simulate::Options;
use crate::simulate::Outcome;
use crate::strategy::Context;
use crate::strategy::Logical;
use crate::strategy::Lowering;
use crate::strategy::nccl_family::lower_on;
use crate::strategy::observed::strategy_of;
use crate::trace::observation::Algorithm;
use crate::trace::observation::Collective;
use crate::trace::observation::Implementation;
use crate::trace::observation::Observation;
use crate::trace::observation::Protocol;
use crate::trace::observation::Timing;

/// Blocks and threads of a push whose row does not state them.
const PUSH_BLOCKS: u32 = 32;
const PUSH_THREADS: u32 = 512;

/// Operations of a chain; per operation is what observations state.
pub const CHAIN: u32 = 50;

/// An observation ready to be simulated: NCCL's choice is made, the schedule is
/// there. It rests on the machine's graph and versions, not on its constants.
pub struct Prepared {
    lowering: Lowering,
    launch: ChainLaunch,
    count: u32,
}

/// Chooses algorithm, protocol, channels and schedule for an observation.
///
/// # Errors
/// An observation that cannot be simulated, with the reason.
pub fn prepare(machine: &Machine, row: &Observation) -> Result<Prepared> {
    let lowering = lower(machine, row)?;
    let (launch, count) = match row.timing {
        Timing::GraphChain => (ChainLaunch::Graph, CHAIN),
        Timing::EagerChainSingleThread => (ChainLaunch::EagerSingleThread, CHAIN),
        Timing::EagerChainThreadPerRank => (ChainLaunch::EagerThreadPerRank, CHAIN),
        Timing::PerCall => (ChainLaunch::EagerThreadPerRank, 1),
        Timing::FrameworkLoop => (ChainLaunch::Framework, CHAIN),
        Timing::Other(ref name) => return Err(unsupported(format!("timing {name}"))),
    };
    Ok(Prepared { lowering, launch, count })
}

impl Prepared {
    /// The simulated latency in microseconds per operation, and the outcome of the chain.
    ///
    /// # Errors
    /// What pricing and simulating can meet.
    pub fn simulate(&self, machine: &Machine) -> Result<(f64, Outcome)> {
        let outcome = chain::run(machine, &self.lowering, self.launch, self.count, Options::default())?;
        Ok((outcome.critical().time as f64 / f64::from(self.count) / 1e6, outcome))
    }

    /// Operations of the chain that is simulated.
    pub fn count(&self) -> u32 {
        self.count
    }
}

/// The simulated latency in microseconds per operation, and the outcome.
///
/// # Errors
/// An observation that cannot be simulated, with the reason.
pub fn simulate(machine: &Machine, row: &Observation) -> Result<(f64, Outcome)> {
    prepare(machine, row)?.simulate(machine)
}

fn unsupported(what: String) -> Box<Fault> {
    Fault::new("observation-not-modelled", format!("{what} is not modelled"))
}

/// The collective that was measured.
///
/// # Errors
/// As [`simulate`].
pub fn lower(machine: &Machine, row: &Observation) -> Result<Lowering> {
    let logical = match row.collective {
        Collective::AllReduce => Logical::AllReduce,
        Collective::AllGather => Logical::AllGather,
        Collective::ReduceScatter => Logical::ReduceScatter,
        ref other => return Err(unsupported(format!("collective {other}"))),
    };
    if row.ranks < 2 {
        return Err(unsupported("a collective of one rank".to_owned()));
    }
    let mut context = Context::new(machine, row.ranks as usize);
    if row.implementation == Implementation::Nccl {
        return lower_nccl(&mut context, row, logical);
    }
    let grid = Grid { blocks: row.channels.map_or(PUSH_BLOCKS, |channels| channels.max), threads: row.threads.unwrap_or(PUSH_THREADS) };
    if (&row.implementation, logical) == (&Implementation::OneShotPushBarrier, Logical::AllReduce) {
        return Ok(Lowering::custom(one_shot::push_after_barrier(row.ranks as usize, row.bytes, grid)));
    }
    if let (Implementation::OneShotPush, Logical::AllReduce, Some(wire)) = (&row.implementation, logical, push_protocol(row)) {
        return Ok(Lowering::custom(one_shot::push(row.ranks as usize, row.bytes, grid, wire)));
    }
    // Gates are not asked: what was measured did run.
    let strategy =
        strategy_of(&row.implementation, &row.protocol)?.ok_or_else(|| unsupported(format!("implementation {}", row.implementation)))?;
    (strategy.lower)(&context, strategy, logical, row.bytes)
}

/// How a push travels when the row says so: as lines, or as plain data, a fence and flags.
fn push_protocol(row: &Observation) -> Option<collective::Protocol> {
    match row.protocol {
        Protocol::Ll => Some(collective::Protocol::Ll),
        Protocol::Simple => Some(collective::Protocol::Simple),
        _ => None,
    }
}

/// NCCL under what the row fixes; the rest is its own choice.
fn lower_nccl(context: &mut Context<'_>, row: &Observation, logical: Logical) -> Result<Lowering> {
    // Several ranks on one GPU want the variable that allows it.
    if context.machine.ranks_per_gpu > 1 {
        context.environment.insert("NCCL_MULTI_RANK_GPU_ENABLE".to_owned(), "1".to_owned());
    }
    // After the version: variables that were set, NAME=VALUE.
    for (name, value) in row.version.split_whitespace().skip(1).filter_map(|word| word.split_once('=')) {
        context.environment.insert(name.to_owned(), value.to_owned());
    }
    if let (Some(version), false) = (row.version.split_whitespace().next(), row.timing == Timing::FrameworkLoop) {
        context.nccl = Some(version.parse()?);
    }
    let communicator = context.communicator(&[])?;
    let force = nccl::Force {
        algorithm: match row.algorithm {
            Algorithm::Auto => None,
            Algorithm::Ring => Some(nccl::Algorithm::Ring),
            Algorithm::Tree => Some(nccl::Algorithm::Tree),
            ref other => return Err(unsupported(format!("algorithm {other}"))),
        },
        protocol: match row.protocol {
            Protocol::Auto => None,
            Protocol::Ll => Some(nccl::Protocol::Ll),
            Protocol::Ll128 => Some(nccl::Protocol::Ll128),
            Protocol::Simple => Some(nccl::Protocol::Simple),
            ref other => return Err(unsupported(format!("protocol {other}"))),
        },
        channels_min: row.channels.map(|channels| channels.min),
        channels_max: row.channels.map(|channels| channels.max),
        threads: row.threads,
        buffer_bytes: row.buffer_bytes,
    };
    lower_on(&communicator, logical, row.bytes, &force)
}
