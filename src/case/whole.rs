//! The whole numbers of a case and how each is read and set.

use std::ops::RangeInclusive;

use crate::error::Result;
use crate::knob::Spec;
use crate::model::Phase;
use crate::model::shape::FeedForward;

use super::knobs::Case;

/// One whole number of a case.
pub(super) struct Whole {
    /// Dotted path.
    pub(super) path: &'static str,
    /// Unit, bounds and meaning.
    pub(super) spec: Spec,
    /// Where its value comes from.
    pub(super) source: &'static str,
    /// The value; None where this case has no such number.
    pub(super) get: fn(&Case) -> Option<u64>,
    /// Sets it.
    pub(super) set: fn(&mut Case, u64) -> Result<()>,
}

const fn spec(name: &'static str, unit: &'static str, low: f64, high: f64, meaning: &'static str) -> Spec {
    Spec { name, unit, bounds: RangeInclusive::new(low, high), meaning }
}

/// All of them, in the order of lists.
pub(super) static WHOLE: [Whole; 14] = [
    Whole {
        path: "model.layers",
        spec: spec("layers", "1", 1.0, 1000.0, "Layers; fewer are cut off at the end, more repeat the last one."),
        source: "the model's config.json",
        get: |case| Some(case.model.layers.len() as u64),
        set: |case, value| {
            let last = case.model.layers.last().copied().unwrap_or(0);
            case.model.layers.resize(value as usize, last);
            Ok(())
        },
    },
    Whole {
        path: "model.top_k",
        spec: spec("top_k", "1", 1.0, 64.0, "Experts that a token is sent to."),
        source: "the model's config.json",
        get: |case| {
            let experts = |layer: &crate::model::Layer| match &layer.feed_forward {
                FeedForward::Experts(experts) => Some(experts.top_k),
                FeedForward::Dense(_) => None,
            };
            case.model.kinds.iter().find_map(experts)
        },
        set: |case, value| {
            for layer in &mut case.model.kinds {
                if let FeedForward::Experts(experts) = &mut layer.feed_forward {
                    experts.top_k = value.min(experts.experts);
                }
            }
            Ok(())
        },
    },
    Whole {
        path: "model.vocab",
        spec: spec("vocab", "1", 64.0, 4e6, "Rows of the embedding and of the head."),
        source: "the model's config.json",
        get: |case| Some(case.model.vocab),
        set: |case, value| {
            case.model.vocab = value;
            Ok(())
        },
    },
    Whole {
        path: "workload.tokens",
        spec: spec(
            "tokens",
            "1",
            1.0,
            1048576.0,
            "New tokens of each sequence; one makes a verify pass a decode pass and more the other way round.",
        ),
        source: "the question",
        get: |case| Some(case.workload.tokens),
        set: |case, value| {
            case.workload.tokens = value;
            case.workload.phase = match (case.workload.phase, value) {
                (Phase::Prefill, _) => Phase::Prefill,
                (_, 1) => Phase::Decode,
                _ => Phase::Verify,
            };
            case.workload.check()
        },
    },
    Whole {
        path: "workload.batch",
        spec: spec("batch", "1", 1.0, 65536.0, "Sequences."),
        source: "the question",
        get: |case| Some(case.workload.batch),
        set: |case, value| {
            case.workload.batch = value;
            case.workload.check()
        },
    },
    Whole {
        path: "workload.context",
        spec: spec("context", "1", 0.0, 16777216.0, "Cached positions of each sequence."),
        source: "the question",
        get: |case| Some(case.workload.context),
        set: |case, value| {
            case.workload.context = value;
            Ok(())
        },
    },
    Whole {
        path: "partition.tp",
        spec: spec("tp", "1", 1.0, 4096.0, "Ranks that split heads, inner sizes and the vocabulary."),
        source: "the question",
        get: |case| Some(u64::from(case.partition.tp)),
        set: |case, value| {
            case.partition.tp = value as u32;
            Ok(())
        },
    },
    Whole {
        path: "partition.pp",
        spec: spec("pp", "1", 1.0, 1000.0, "Pipeline stages."),
        source: "the question",
        get: |case| Some(u64::from(case.partition.pp)),
        set: |case, value| {
            case.partition.pp = value as u32;
            Ok(())
        },
    },
    Whole {
        path: "partition.ep",
        spec: spec("ep", "1", 1.0, 4096.0, "Groups of whole experts within the ranks of a stage."),
        source: "the question",
        get: |case| Some(u64::from(case.partition.ep)),
        set: |case, value| {
            case.partition.ep = value as u32;
            Ok(())
        },
    },
    variable(
        "strategy.nccl_min_channels",
        spec("nccl_min_channels", "1", 0.0, 64.0, "NCCL_MIN_NCHANNELS; 0 leaves it to NCCL."),
        |case| number(case, MIN),
        |case, value| assign(case, MIN, value),
    ),
    variable(
        "strategy.nccl_max_channels",
        spec("nccl_max_channels", "1", 0.0, 64.0, "NCCL_MAX_NCHANNELS; 0 leaves it to NCCL."),
        |case| number(case, MAX),
        |case, value| assign(case, MAX, value),
    ),
    variable(
        "strategy.nccl_threads",
        spec("nccl_threads", "1", 0.0, 640.0, "NCCL_NTHREADS; 0 leaves it to NCCL."),
        |case| number(case, THREADS),
        |case, value| assign(case, THREADS, value),
    ),
    variable(
        "strategy.nccl_buffer_bytes",
        spec("nccl_buffer_bytes", "bytes", 0.0, 1073741824.0, "NCCL_BUFFSIZE; 0 leaves it to NCCL."),
        |case| number(case, BUFFER),
        |case, value| assign(case, BUFFER, value),
    ),
    Whole {
        path: "speculation.draft_steps",
        spec: spec("draft_steps", "1", 0.0, 64.0, "Tokens drafted a cycle (K); a verify pass has one more."),
        source: "the case: K = 2",
        get: |case| Some(case.draft_steps),
        set: |case, value| {
            case.draft_steps = value;
            Ok(())
        },
    },
];

const MIN: &str = "NCCL_MIN_NCHANNELS";
const MAX: &str = "NCCL_MAX_NCHANNELS";
const THREADS: &str = "NCCL_NTHREADS";
const BUFFER: &str = "NCCL_BUFFSIZE";

const fn variable(path: &'static str, spec: Spec, get: fn(&Case) -> Option<u64>, set: fn(&mut Case, u64) -> Result<()>) -> Whole {
    Whole { path, spec, source: "the environment that the question sets; 0: NCCL decides", get, set }
}

fn number(case: &Case, name: &str) -> Option<u64> {
    Some(case.environment.get(name).and_then(|value| value.trim().parse().ok()).unwrap_or(0))
}

fn assign(case: &mut Case, name: &str, value: u64) -> Result<()> {
    if value == 0 {
        case.environment.remove(name);
    } else {
        case.environment.insert(name.to_owned(), value.to_string());
    }
    Ok(())
}
