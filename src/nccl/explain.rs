//! What a variable changes for one message size: the same decisions taken twice and laid side by side.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::units::Bytes;

use super::Communicator;
use super::kinds::Collective;
use super::launch::Force;

/// The decisions for one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// `Ring LL`.
    pub choice: String,
    /// Channels of the communicator.
    pub communicator_channels: u32,
    /// Channels that carry data.
    pub channels: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of the largest chunk that really moves.
    pub chunk_bytes: u64,
    /// Slices of it that are not empty.
    pub slices: u64,
    /// Turns of the ring, or chunks of the chain, on the busiest channel.
    pub turns: u64,
    /// Buffer of one channel towards one neighbour.
    pub buffer_bytes: u64,
    /// What NCCL believes it takes.
    pub estimated_us: f64,
}

/// One variable, alone, against none.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// The variable.
    pub variable: String,
    /// Its value.
    pub value: String,
    /// Without it.
    pub before: Outcome,
    /// With it.
    pub after: Outcome,
    /// One sentence for each decision that differs; empty when nothing does.
    pub differences: Vec<String>,
    /// What NCCL would warn of.
    pub warnings: Vec<String>,
}

/// The decisions for one size.
///
/// # Errors
/// As [`Communicator::choose`].
pub fn outcome(communicator: &Communicator, collective: Collective, bytes: u64) -> Result<Outcome> {
    let choice = communicator.choose(collective, bytes, &Force::default())?;
    let ring = choice.algorithm == super::Algorithm::Ring && collective == Collective::AllReduce;
    let busiest = choice.launch.parts.iter().max_by_key(|part| part.bytes).copied();
    let chunk_bytes = busiest.map_or(0, |part| {
        let per_turn = if ring { part.bytes.div_ceil(u64::from(communicator.ranks.max(1))).next_multiple_of(16) } else { part.bytes };
        per_turn.min(part.chunk_bytes)
    });
    let turns = busiest.map_or(0, |part| {
        let per_turn = part.chunk_bytes.saturating_mul(if ring { u64::from(communicator.ranks.max(1)) } else { 1 });
        part.bytes.div_ceil(per_turn.max(1))
    });
    Ok(Outcome {
        choice: format!("{} {}", choice.algorithm.name(), choice.protocol.name()),
        communicator_channels: communicator.channels_under(&Force::default()),
        channels: choice.channels,
        threads: choice.threads,
        chunk_bytes,
        slices: chunk_bytes.div_ceil(choice.launch.slice_bytes(chunk_bytes).max(1)),
        turns,
        buffer_bytes: choice.launch.buffer_bytes,
        estimated_us: choice.estimated_us,
    })
}

/// What each variable changes on its own, and in a last entry what all of them change together.
///
/// `rebuild` makes the communicator under given variables, so that variables that change graphs or
/// transports are seen too.
///
/// # Errors
/// What `rebuild` and [`Communicator::choose`] say.
pub fn explain(
    base: &BTreeMap<String, String>,
    variables: &[(&str, &str)],
    collective: Collective,
    bytes: u64,
    rebuild: &dyn Fn(&BTreeMap<String, String>) -> Result<Communicator>,
) -> Result<Vec<Effect>> {
    let before = outcome(&rebuild(base)?, collective, bytes)?;
    let mut groups: Vec<Vec<(&str, &str)>> = variables.iter().map(|pair| vec![*pair]).collect();
    if variables.len() > 1 {
        groups.push(variables.to_vec());
    }
    let mut effects = Vec::new();
    for group in groups {
        let mut changed = base.clone();
        changed.extend(group.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let communicator = rebuild(&changed)?;
        let after = outcome(&communicator, collective, bytes)?;
        let join = |part: fn(&(&str, &str)) -> String| group.iter().map(part).collect::<Vec<_>>().join(" ");
        effects.push(Effect {
            variable: join(|pair| pair.0.to_owned()),
            value: join(|pair| pair.1.to_owned()),
            differences: differences(&before, &after),
            before: before.clone(),
            after,
            warnings: communicator.warnings,
        });
    }
    Ok(effects)
}

fn differences(before: &Outcome, after: &Outcome) -> Vec<String> {
    let bytes = |count: u64| Bytes(count).to_string();
    let count = |number: u64| number.to_string();
    let rows = [
        ("algorithm and protocol", before.choice.clone(), after.choice.clone()),
        ("channels of the communicator", count(before.communicator_channels.into()), count(after.communicator_channels.into())),
        ("channels of this message", count(before.channels.into()), count(after.channels.into())),
        ("threads a channel", count(before.threads.into()), count(after.threads.into())),
        ("chunk", bytes(before.chunk_bytes), bytes(after.chunk_bytes)),
        ("slices a chunk", count(before.slices), count(after.slices)),
        ("turns", count(before.turns), count(after.turns)),
        ("buffer", bytes(before.buffer_bytes), bytes(after.buffer_bytes)),
        ("NCCL's own estimate", format!("{:.1} us", before.estimated_us), format!("{:.1} us", after.estimated_us)),
    ];
    rows.into_iter().filter(|(_, old, new)| old != new).map(|(what, old, new)| format!("{what}: {old} -> {new}")).collect()
}
