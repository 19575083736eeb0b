//! The names that axes can have, and what each changes.
//!
//! | name | what it sets |
//! |---|---|
//! | `machine`, `model`, `strategy` | an id or a file |
//! | `tokens`, `drafts` | new tokens of a sequence, or how many of them are drafts (one less) |
//! | `batch`, `context`, `tp` | sequences, cached positions, ranks |
//! | `phase`, `launch` | `decode`, `verify`, `prefill`; `graph`, `eager` |
//! | `acceptance`, `draft` | chance that a draft is accepted, who drafts: for `draft_ms` and `tokens_per_s` |
//! | `channels` | least and most channels of NCCL, 0 for its own choice |
//! | `env.NAME` | a variable of NCCL, empty for unset |
//! | a dotted path | any number of a case ([`Case::with`]): the machine's, where one `*` stands for any letters, and those of
//! | | `model`, `workload`, `partition`, `strategy`, `speculation`; `"x0.5"` halves |

use std::collections::BTreeMap;

use super::value::Value;
use crate::case::Case;
use crate::case::LaunchMode;
use crate::error::Fault;
use crate::error::Result;
use crate::machine::Machine;
use crate::model::Phase;
use crate::model::Workload;
use crate::strategy::Strategy;

/// All that makes a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Id or file.
    pub machine: String,
    /// Id or file.
    pub model: String,
    /// Id.
    pub strategy: String,
    /// New tokens of each sequence.
    pub tokens: u64,
    /// Cached positions.
    pub context: u64,
    /// Sequences.
    pub batch: u64,
    /// Ranks.
    pub tp: u32,
    /// What kind of pass; None is verify, and decode for one token.
    pub phase: Option<Phase>,
    /// How it is launched.
    pub launch: LaunchMode,
    /// Chance that a draft is accepted; None counts one token a pass.
    pub acceptance: Option<f64>,
    /// Who drafts.
    pub draft: DraftName,
    /// Variables of NCCL.
    pub environment: BTreeMap<String, String>,
    /// Numbers of the machine.
    pub numbers: Vec<(String, Change)>,
    /// Other numbers of the case.
    pub others: Vec<(String, Change)>,
}

/// Who drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftName {
    /// The model's own layer where it has one, else EAGLE-3.
    Auto,
    /// One layer over the target's hidden states.
    Eagle3,
    /// The model's own multi-token-prediction layer.
    Mtp,
    /// A look-up of the prompt.
    Ngram,
}

/// Prefixes of numbers that are no machine's.
const OTHERS: [&str; 5] = ["model", "workload", "partition", "strategy", "speculation"];

/// How a number changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// To this.
    To(f64),
    /// By this factor.
    By(f64),
}

impl Default for Setting {
    /// The case.
    fn default() -> Setting {
        Setting {
            machine: crate::machine::library::DEFAULT_ID.to_owned(),
            model: "kimi-k2.5".to_owned(),
            strategy: "nccl-16-channels".to_owned(),
            tokens: 3,
            context: 128,
            batch: 1,
            tp: 8,
            phase: None,
            launch: LaunchMode::Graph,
            acceptance: None,
            draft: DraftName::Auto,
            environment: BTreeMap::new(),
            numbers: Vec::new(),
            others: Vec::new(),
        }
    }
}

impl Setting {
    /// Sets what an axis of that name means.
    ///
    /// # Errors
    /// `sweep-unknown-axis`, `sweep-bad-value`, `strategy-unknown`.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<()> {
        match name {
            "machine" => self.machine = text(name, value)?,
            "model" => self.model = text(name, value)?,
            "strategy" => {
                let id = text(name, value)?;
                Strategy::find(&id)?;
                self.strategy = id;
            }
            "tokens" | "workload.tokens" => self.tokens = whole(name, value, 1, 1 << 20)?,
            "drafts" | "speculation.draft_steps" => self.tokens = whole(name, value, 0, 1 << 16)? + 1,
            "batch" | "workload.batch" => self.batch = whole(name, value, 1, 1 << 16)?,
            "context" | "workload.context" => self.context = whole(name, value, 0, 1 << 24)?,
            "tp" | "partition.tp" => self.tp = whole(name, value, 1, 64)? as u32,
            "phase" => {
                self.phase = Some(match text(name, value)?.as_str() {
                    "decode" => Phase::Decode,
                    "verify" => Phase::Verify,
                    "prefill" => Phase::Prefill,
                    other => return Err(bad(name, other, "decode, verify or prefill")),
                });
            }
            "launch" => {
                self.launch = match text(name, value)?.as_str() {
                    "graph" => LaunchMode::Graph,
                    "eager" => LaunchMode::Eager,
                    other => return Err(bad(name, other, "graph or eager")),
                };
            }
            "acceptance" | "speculation.acceptance" => match value.number() {
                Some(chance) if (0.0..=1.0).contains(&chance) => self.acceptance = Some(chance),
                _ => return Err(bad(name, &value.to_string(), "a chance from 0 to 1")),
            },
            "draft" => {
                self.draft = match text(name, value)?.as_str() {
                    "auto" => DraftName::Auto,
                    "eagle3" => DraftName::Eagle3,
                    "mtp" => DraftName::Mtp,
                    "ngram" => DraftName::Ngram,
                    other => return Err(bad(name, other, "auto, eagle3, mtp or ngram")),
                };
            }
            "channels" => {
                let channels = whole(name, value, 0, 64)?;
                for variable in ["NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"] {
                    self.variable(variable, if channels == 0 { String::new() } else { channels.to_string() });
                }
            }
            _ => match name.split_once('.') {
                Some(("env", variable)) if !variable.is_empty() => self.variable(variable, value.to_string()),
                Some((first, _)) => {
                    let change = change(name, value)?;
                    let numbers = if OTHERS.contains(&first) { &mut self.others } else { &mut self.numbers };
                    numbers.retain(|(known, _)| known != name);
                    numbers.push((name.to_owned(), change));
                }
                None => return Err(unknown(name)),
            },
        }
        Ok(())
    }

    fn variable(&mut self, name: &str, value: String) {
        if value.is_empty() {
            self.environment.remove(name);
        } else {
            self.environment.insert(name.to_owned(), value);
        }
    }

    /// The pass.
    pub fn workload(&self) -> Workload {
        let phase = self.phase.unwrap_or(if self.tokens == 1 { Phase::Decode } else { Phase::Verify });
        let mut workload = Workload::new(phase, self.tokens, self.context);
        workload.batch = self.batch;
        workload
    }
}

/// What an axis sets, where several names set one thing.
pub fn subject(name: &str) -> &str {
    match name {
        "drafts" | "workload.tokens" | "speculation.draft_steps" => "tokens",
        "workload.batch" => "batch",
        "workload.context" => "context",
        "partition.tp" => "tp",
        "speculation.acceptance" => "acceptance",
        "strategy.nccl_min_channels" => "env.NCCL_MIN_NCHANNELS",
        "strategy.nccl_max_channels" => "env.NCCL_MAX_NCHANNELS",
        "strategy.nccl_threads" => "env.NCCL_NTHREADS",
        "strategy.nccl_buffer_bytes" => "env.NCCL_BUFFSIZE",
        other => other,
    }
}

/// Whether two axes set the same thing, so that one would undo the other.
pub fn collide(one: &str, other: &str) -> bool {
    let (one, other) = (subject(one), subject(other));
    let is_channels = |name: &str| matches!(name, "env.NCCL_MIN_NCHANNELS" | "env.NCCL_MAX_NCHANNELS");
    one == other || (one == "channels" && is_channels(other)) || (other == "channels" && is_channels(one))
}

/// Changes a number of a case that is no machine's.
///
/// # Errors
/// `knob-unknown`, `knob-bounds`, `knob-whole`.
pub fn change_case(case: &mut Case, path: &str, change: Change) -> Result<()> {
    let value = match change {
        Change::To(value) => value,
        Change::By(factor) => case.knob(path)?.quantity.value * factor,
    };
    case.set(path, value)
}

/// Changes a number of a machine, or all that a `*` stands for.
///
/// # Errors
/// `knob-unknown` and `knob-bounds`.
pub fn change_number(machine: &mut Machine, path: &str, change: Change) -> Result<()> {
    let (before, after) = match path.split_once('*') {
        Some(parts) => parts,
        None => (path, ""),
    };
    let wild = path.contains('*');
    let fits = |known: &str| {
        if wild { known.len() > before.len() + after.len() && known.starts_with(before) && known.ends_with(after) } else { known == path }
    };
    let found: Vec<(String, f64)> =
        machine.knobs().into_iter().filter(|(known, _, _)| fits(known)).map(|(known, _, quantity)| (known, quantity.value)).collect();
    if found.is_empty() {
        // Lists what is there.
        return machine.set(path, 0.0);
    }
    for (known, value) in found {
        let value = match change {
            Change::To(value) => value,
            Change::By(factor) => value * factor,
        };
        machine.set(&known, value)?;
    }
    Ok(())
}

fn text(name: &str, value: &Value) -> Result<String> {
    match value {
        Value::Text(text) => Ok(text.clone()),
        other => Err(bad(name, &other.to_string(), "a name in quotes")),
    }
}

fn whole(name: &str, value: &Value, least: i64, most: i64) -> Result<u64> {
    match value {
        Value::Whole(whole) if (least..=most).contains(whole) => Ok(*whole as u64),
        other => Err(bad(name, &other.to_string(), &format!("a whole number from {least} to {most}"))),
    }
}

fn change(name: &str, value: &Value) -> Result<Change> {
    let wanted = "a number, or a factor such as \"x0.5\"";
    match (value, value.number()) {
        (_, Some(number)) => Ok(Change::To(number)),
        (Value::Text(text), _) => match text.strip_prefix('x').and_then(|factor| factor.parse::<f64>().ok()) {
            Some(factor) if factor.is_finite() && factor > 0.0 => Ok(Change::By(factor)),
            _ => Err(bad(name, text, wanted)),
        },
        _ => Err(bad(name, &value.to_string(), wanted)),
    }
}

fn bad(name: &str, value: &str, wanted: &str) -> Box<Fault> {
    Fault::new("sweep-bad-value", format!("`{name}` cannot be {value}")).help(format!("expected {wanted}"))
}

fn unknown(name: &str) -> Box<Fault> {
    Fault::new("sweep-unknown-axis", format!("there is nothing called `{name}` to vary")).help(
        "known are machine, model, strategy, tokens, drafts, batch, context, tp, phase, launch, acceptance, draft, channels, env.NAME \
         and every number of `lanecast explain knobs` by path, such as fabric.host_memory_latency_ns or links.*.forward_gbps",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_and_a_factor_change_every_link() {
        let mut machine = Machine::load("8x-rtx-pro-6000-server").expect("it is embedded");
        let before: Vec<f64> = machine.links.iter().map(|link| link.forward_gbps.value).collect();
        change_number(&mut machine, "links.*.forward_gbps", Change::By(0.5)).expect("there are links");
        let halved = machine.links.iter().zip(before).all(|(link, before)| link.forward_gbps.value == before * 0.5);
        assert!(halved);
        assert_eq!(change_number(&mut machine, "links.*.nothing", Change::To(1.0)).expect_err("no such number").code, "knob-unknown");
    }

    #[test]
    fn names_of_one_thing_collide() {
        for (one, other) in [("tokens", "drafts"), ("workload.batch", "batch"), ("channels", "strategy.nccl_max_channels"), ("tp", "tp")] {
            assert!(collide(one, other) && collide(other, one), "{one} and {other}");
        }
        assert!(!collide("strategy.nccl_min_channels", "strategy.nccl_max_channels") && !collide("tp", "partition.pp"));
    }

    #[test]
    fn numbers_of_the_case_are_kept_apart_from_the_machine_s() {
        let mut setting = Setting::default();
        setting.set("model.layers", &Value::Whole(10)).expect("fine");
        setting.set("links.*_gbps", &Value::Text("x0.5".to_owned())).expect("fine");
        setting.set("speculation.draft_steps", &Value::Whole(4)).expect("fine");
        assert_eq!((setting.others.len(), setting.numbers.len(), setting.tokens), (1, 1, 5));
    }

    #[test]
    fn wrong_names_and_values_are_told() {
        let mut setting = Setting::default();
        let mut code = |name: &str, value: Value| setting.set(name, &value).expect_err("wrong").code;
        assert_eq!(code("colour", Value::Whole(1)), "sweep-unknown-axis");
        assert_eq!(code("batch", Value::Whole(0)), "sweep-bad-value");
        assert_eq!(code("batch", Value::Real(1.5)), "sweep-bad-value");
        assert_eq!(code("strategy", Value::Text("warp".to_owned())), "strategy-unknown");
        assert_eq!(code("fabric.x", Value::Text("fast".to_owned())), "sweep-bad-value");
        setting.set("channels", &Value::Whole(4)).expect("fine");
        assert_eq!(setting.environment.len(), 2);
        setting.set("channels", &Value::Whole(0)).expect("fine");
        assert!(setting.environment.is_empty());
    }
}
