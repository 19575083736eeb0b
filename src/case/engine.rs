//! A policy in the words of serving engines: the flags and variables that make
//! SGLang or vLLM communicate that way.

use std::fmt::Write as _;

use crate::error::Fault;
use crate::error::Result;
use crate::plan::Partition;
use crate::strategy::Context;
use crate::strategy::Executor;
use crate::strategy::Strategy;

use super::Policy;
use super::tuner_rules;

/// A serving engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// SGLang.
    Sglang,
    /// vLLM.
    Vllm,
}

/// Flags and variables of an engine's own for one strategy; `None`: it has none.
struct Own {
    flags: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Engine::Sglang => "SGLang",
            Engine::Vllm => "vLLM",
        }
    }

    fn start(self, model: &str) -> String {
        match self {
            Engine::Sglang => format!("python -m sglang.launch_server --model-path {}", quoted(model)),
            Engine::Vllm => format!("vllm serve {}", quoted(model)),
        }
    }

    /// Flags for how many ranks there are, and how they share the model.
    pub fn partition(self, partition: Partition) -> Vec<String> {
        let (tp, pp) = match self {
            Engine::Sglang => ("--tp-size", "--pp-size"),
            Engine::Vllm => ("--tensor-parallel-size", "--pipeline-parallel-size"),
        };
        let mut flags = vec![format!("{tp} {}", partition.tp)];
        if partition.pp > 1 {
            flags.push(format!("{pp} {}", partition.pp));
        }
        if partition.ep > 1 {
            flags.push(match self {
                Engine::Sglang => format!("--ep-size {}", partition.ep),
                Engine::Vllm => "--enable-expert-parallel".to_owned(),
            });
        }
        flags
    }

    fn own(self, strategy: &Strategy) -> Option<Own> {
        let flags = |flags| Some(Own { flags, environment: &[] });
        match (self, strategy.id) {
            (Engine::Sglang, "nccl-symmetric") => flags(&["--disable-custom-all-reduce", "--enable-symm-mem"]),
            (Engine::Vllm, "nccl-symmetric") => Some(Own {
                flags: &["--disable-custom-all-reduce"],
                environment: &[("VLLM_USE_NCCL_SYMM_MEM", "1"), ("NCCL_CUMEM_ENABLE", "1")],
            }),
            // Else the engine's own kernel takes the small sizes wherever it thinks it can.
            (_, _) if strategy.executor == Executor::Nccl => flags(&["--disable-custom-all-reduce"]),
            (Engine::Sglang, "flashinfer-fused") => flags(&["--enable-flashinfer-allreduce-fusion"]),
            (Engine::Vllm, "flashinfer-fused") => flags(&["--compilation-config '{\"pass_config\": {\"fuse_allreduce_rms\": true}}'"]),
            (Engine::Sglang, "torch-symmetric") => flags(&["--enable-torch-symm-mem"]),
            (Engine::Vllm, "torch-symmetric") => Some(Own { flags: &[], environment: &[("VLLM_ALLREDUCE_USE_SYMM_MEM", "1")] }),
            (Engine::Sglang, "mscclpp-allpair" | "mscclpp-packet") => flags(&["--enable-mscclpp"]),
            (_, "expert-parallel" | "tp4-pp2") => flags(&[]),
            (Engine::Sglang, "two-batch-overlap") => flags(&["--enable-two-batch-overlap"]),
            (Engine::Vllm, "two-batch-overlap") => flags(&["--enable-dbo"]),
            _ => None,
        }
    }
}

/// A shell script that starts the engine with `policy`. Comments say what it
/// needs, how to go back, and what no flag of the engine can do.
///
/// # Errors
/// Those of [`tuner_rules::environment`]; `engine-no-model` for a name that a shell line cannot hold.
pub fn script(engine: Engine, policy: &Policy, context: &Context<'_>, model: &str, partition: Partition) -> Result<String> {
    if model.chars().any(char::is_control) {
        return Err(Fault::new("engine-no-model", "the model's name holds control characters"));
    }
    let (variables, by_rule) = tuner_rules::environment(policy)?;
    let mut out = format!("#!/bin/sh\n# {} on {}.\n", engine.name(), context.machine.id.replace(char::is_control, " "));
    let (mut flags, mut own_variables) = (Vec::new(), Vec::new());
    for (most, strategy) in &policy.rows {
        // Writing to a String cannot fail, here and below.
        let size = match *most {
            u64::MAX if policy.rows.len() == 1 => "all sizes".to_owned(),
            u64::MAX => "every other size".to_owned(),
            most => format!("up to {most} B"),
        };
        let _ = writeln!(out, "# {size}: {}: {}.", strategy.id, strategy.summary);
        comments(&mut out, strategy, context);
        match engine.own(strategy) {
            Some(own) => {
                flags.extend(own.flags.iter().map(|flag| (*flag).to_owned()));
                own_variables.extend(own.environment.iter().copied());
            }
            None => {
                let how = strategy.flags.join("; ");
                let how = if how.is_empty() { String::new() } else { format!(": {how}") };
                let _ = writeln!(out, "# No flag of {} turns it on{how}.", engine.name());
            }
        }
    }
    // "Off" goes only where nothing of the policy needs the engine's own kernels.
    if policy.rows.iter().any(|(_, strategy)| strategy.executor != Executor::Nccl && engine.own(strategy).is_none()) {
        flags.retain(|flag| flag != "--disable-custom-all-reduce");
    }
    flags.sort();
    flags.dedup();
    for (name, value) in variables.into_iter().chain(own_variables) {
        let _ = writeln!(out, "export {name}={}", quoted(value));
    }
    if by_rule {
        out.push_str("# What differs by size is in a tuner's file: lanecast export tuner, with the same --policy.\n");
        out.push_str("export NCCL_TUNER_PLUGIN=libnccl-tuner-example.so\nexport NCCL_TUNER_CONFIG_FILE=nccl_tuner.conf\n");
    }
    let split = policy.rows.first().map_or(partition, |(_, strategy)| match strategy.id {
        "expert-parallel" | "tp4-pp2" => (strategy.partition)(partition.ranks()),
        _ => partition,
    });
    let lines: Vec<String> = std::iter::once(engine.start(model)).chain(engine.partition(split)).chain(flags).collect();
    let _ = writeln!(out, "exec {} \\\n    \"$@\"", lines.join(" \\\n    "));
    Ok(out)
}

/// What a person must know, as comments.
pub fn comments(out: &mut String, strategy: &Strategy, context: &Context<'_>) {
    for need in strategy.settings().requires {
        let _ = writeln!(out, "#   needs: {need}");
    }
    for note in strategy.notes(context) {
        let _ = writeln!(out, "#   mind: {note}");
    }
    let _ = writeln!(out, "#   risk: {}\n#   way back: {}", strategy.risk_words, strategy.way_back);
}

/// A word of a shell line.
pub fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,=+@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    fn of(engine: Engine, id: &str) -> String {
        let machine = Machine::load("8x-rtx-pro-6000-server").expect("embedded");
        let policy = Policy::single(Strategy::find(id).expect(id));
        script(engine, &policy, &Context::new(&machine, 8), "moonshotai/Kimi-K2.5", Partition::tensor(8)).expect(id)
    }

    #[test]
    fn nccl_strategies_are_variables_and_no_other_kernel() {
        let text = of(Engine::Sglang, "nccl-p2p-sys");
        assert!(text.contains("\nexport NCCL_P2P_LEVEL=SYS\n"), "{text}");
        assert!(text.contains("--tp-size 8 \\\n    --disable-custom-all-reduce \\\n    \"$@\"\n"), "{text}");
        assert!(text.contains("way back: unset the variables"));
        assert!(of(Engine::Vllm, "nccl-default").contains("exec vllm serve moonshotai/Kimi-K2.5 \\\n    --tensor-parallel-size 8"));
    }

    #[test]
    fn other_splits_are_flags() {
        assert!(of(Engine::Vllm, "tp4-pp2").contains("--tensor-parallel-size 4 \\\n    --pipeline-parallel-size 2"));
        assert!(of(Engine::Sglang, "expert-parallel").contains("--ep-size 8"));
    }

    #[test]
    fn what_no_flag_does_is_said() {
        let text = of(Engine::Sglang, "one-shot-push");
        assert!(text.contains("# No flag of SGLang turns it on") && !text.contains("\n    --disable-custom-all-reduce"), "{text}");
    }

    #[test]
    fn words_are_quoted() {
        assert_eq!(quoted("a b'c"), "'a b'\\''c'");
        assert_eq!((quoted("SYS").as_str(), quoted("").as_str()), ("SYS", "''"));
    }
}
