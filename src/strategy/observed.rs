//! Which strategy an observation is of, and the other way round.

use crate::error::Result;
use crate::trace::observation::Algorithm;
use crate::trace::observation::Channels;
use crate::trace::observation::Implementation;
use crate::trace::observation::Protocol;

use super::Executor;
use super::Strategy;

/// Implementations that are strategies of their own.
const OWN: &[(Implementation, &str)] = &[
    (Implementation::OneShotPull, "one-shot-pull"),
    (Implementation::OneShotPush, "one-shot-push"),
    (Implementation::TwoShot, "two-shot"),
    (Implementation::Hierarchical, "hierarchical"),
    (Implementation::HostStaged, "host-staged"),
    (Implementation::MscclppAllpair, "mscclpp-allpair"),
    (Implementation::MscclppPacket, "mscclpp-packet"),
    (Implementation::Symmetric, "nccl-symmetric"),
    (Implementation::FusedOneShot, "fused-one-shot"),
];

/// The strategy whose schedule an implementation other than NCCL runs.
///
/// # Errors
/// Never for the names above; `strategy-unknown` if one of them were taken away.
pub fn strategy_of(implementation: &Implementation, protocol: &Protocol) -> Result<Option<&'static Strategy>> {
    let known = match implementation {
        // Lines are pushed, packs are read.
        Implementation::TwoShot if *protocol == Protocol::Ll => Some(Strategy::find("two-shot-push")?),
        // By its name in kebab-case, so that each strategy can be observed.
        Implementation::Other(name) => super::all().find(|strategy| strategy.id == name.replace('_', "-")),
        known => OWN.iter().find(|(own, _)| own == known).map(|(_, id)| Strategy::find(id)).transpose()?,
    };
    Ok(known.filter(|strategy| strategy.executor != Executor::Nccl))
}

/// How an observation names a strategy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Who does it.
    pub implementation: Implementation,
    /// What NCCL is told.
    pub algorithm: Algorithm,
    /// What NCCL is told.
    pub protocol: Protocol,
    /// Channels that NCCL is allowed.
    pub channels: Option<Channels>,
    /// Threads that NCCL is told.
    pub threads: Option<u32>,
    /// Buffer that NCCL is told.
    pub buffer_bytes: Option<u64>,
}

/// A strategy's name in observations; None where it sets variables of NCCL that
/// an observation has no column for.
pub fn name_of(strategy: &Strategy) -> Option<Name> {
    let mut name = Name {
        implementation: Implementation::Nccl,
        algorithm: Algorithm::Auto,
        protocol: Protocol::Auto,
        channels: None,
        threads: None,
        buffer_bytes: None,
    };
    if let Some((implementation, _)) = OWN.iter().find(|(_, id)| *id == strategy.id) {
        return Some(Name { implementation: implementation.clone(), ..name });
    }
    if strategy.executor != Executor::Nccl {
        return Some(Name { implementation: Implementation::Other(strategy.id.replace('-', "_")), ..name });
    }
    let (mut min, mut max) = (None, None);
    for (variable, value) in strategy.environment {
        match *variable {
            "NCCL_ALGO" => name.algorithm = Algorithm::from_name(value),
            "NCCL_PROTO" => name.protocol = Protocol::from_name(value),
            "NCCL_MIN_NCHANNELS" => min = value.parse().ok(),
            "NCCL_MAX_NCHANNELS" => max = value.parse().ok(),
            "NCCL_NTHREADS" => name.threads = value.parse().ok(),
            "NCCL_BUFFSIZE" => name.buffer_bytes = value.parse().ok(),
            _ => return None,
        }
    }
    if let (Some(min), Some(max)) = (min, max) {
        name.channels = Some(Channels { min, max });
    }
    let told = !matches!(name.protocol, Protocol::Other(_)) && !matches!(name.algorithm, Algorithm::Other(_));
    (told && strategy.flags.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for strategy in super::super::all() {
            let Some(name) = name_of(strategy) else { continue };
            let back = strategy_of(&name.implementation, &name.protocol).expect("known");
            match strategy.executor {
                Executor::Nccl => assert!(back.is_none(), "{}", strategy.id),
                _ => assert_eq!(back.map(|s| s.id), Some(strategy.id)),
            }
        }
        let ring = Strategy::find("nccl-ring-ll").expect("known");
        let name = name_of(ring).expect("has columns");
        assert_eq!((name.implementation, name.algorithm, name.protocol), (Implementation::Nccl, Algorithm::Ring, Protocol::Ll));
        assert_eq!(name_of(Strategy::find("nccl-p2p-sys").expect("known")), None);
    }
}
