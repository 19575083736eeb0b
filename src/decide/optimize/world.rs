//! What holds for a whole process, whatever the message: NCCL's channels, and
//! the variables that no rule of a tuner can change by size.

use std::collections::BTreeMap;

use crate::case::tuner_rules::BY_RULE;
use crate::strategy::Executor;
use crate::strategy::Strategy;

/// Variables that strategies of one process share.
type Variables = BTreeMap<&'static str, &'static str>;

/// One process: which strategies it can switch between by size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct World {
    /// NCCL's channels; 0 is its own choice.
    pub channels: u32,
    variables: Variables,
    /// The only strategy, where it changes more than variables: another library, another driver.
    alone: Option<&'static str>,
}

/// All processes that these strategies and channels make, the plainest first.
pub fn worlds(strategies: &[&'static Strategy], channels: &[u32]) -> Vec<World> {
    let mut kinds: Vec<(Variables, Option<&'static str>)> = vec![(Variables::new(), None)];
    for strategy in strategies {
        let kind = if stands_alone(strategy) { (Variables::new(), Some(strategy.id)) } else { (of_process(strategy), None) };
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let of = |(variables, alone): &(Variables, Option<&'static str>)| {
        let all = channels.iter().map(|&channels| World { channels, variables: variables.clone(), alone: *alone });
        all.collect::<Vec<World>>()
    };
    kinds.iter().flat_map(of).collect()
}

impl World {
    /// Whether a strategy can serve some sizes in this process.
    pub fn admits(&self, strategy: &Strategy) -> bool {
        match self.alone {
            Some(alone) => alone == strategy.id,
            None if stands_alone(strategy) => false,
            None => of_process(strategy) == self.variables || is_neutral(strategy),
        }
    }

    /// Whether strategies may leave messages to NCCL with nothing set.
    pub fn is_plain(&self) -> bool {
        self.alone.is_none() && self.variables.is_empty()
    }

    /// The user's variables and the channels.
    pub fn environment(channels: u32, base: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut environment = base.clone();
        if channels > 0 {
            for name in ["NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"] {
                environment.insert(name.to_owned(), channels.to_string());
            }
        }
        environment
    }
}

/// Kernels of one's own that need no variable go with any process.
fn is_neutral(strategy: &Strategy) -> bool {
    strategy.executor != Executor::Nccl && strategy.environment.is_empty()
}

/// Variables that no rule stands for.
fn of_process(strategy: &Strategy) -> Variables {
    strategy.environment.iter().filter(|(name, _)| !BY_RULE.contains(name)).copied().collect()
}

/// NCCL with more than variables: nothing else in the process can be as it was.
fn stands_alone(strategy: &Strategy) -> bool {
    strategy.executor == Executor::Nccl && !strategy.flags.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_holds_what_its_variables_allow() {
        let named = |id: &str| Strategy::find(id).expect("known");
        let ids =
            ["nccl-default", "nccl-ring-ll", "nccl-16-channels", "nccl-host-staged", "nccl-few-channels", "nccl-newer", "one-shot-push"];
        let all = worlds(&ids.map(named), &[0, 4]);
        let held = |world: &World| ids.into_iter().filter(|id| world.admits(named(id))).collect::<Vec<_>>();
        let held: Vec<Vec<&str>> = all.iter().filter(|world| world.channels == 4).map(held).collect();
        assert_eq!(
            held,
            [
                vec!["nccl-default", "nccl-ring-ll", "nccl-16-channels", "one-shot-push"],
                vec!["nccl-host-staged", "one-shot-push"],
                vec!["nccl-few-channels", "one-shot-push"],
                vec!["nccl-newer"],
            ]
        );
        assert_eq!(all.len(), 8);
        assert_eq!(World::environment(4, &BTreeMap::new()).get("NCCL_MAX_NCHANNELS").map(String::as_str), Some("4"));
    }
}
