//! What a pass is asked to do, and what part of it one rank does.

use super::op::Dtype;
use super::routing::Routing;
use crate::error::Fault;
use crate::error::Result;

/// What kind of pass it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// One new token a sequence.
    Decode,
    /// The root and the drafts of each sequence at once; all of them take one
    /// walk over the cache.
    Verify,
    /// Many new tokens a sequence.
    Prefill,
}

/// One forward pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// What kind of pass.
    pub phase: Phase,
    /// Sequences.
    pub batch: u64,
    /// New tokens of each sequence in this pass.
    pub tokens: u64,
    /// Cached positions of each sequence before this pass.
    pub context: u64,
    /// How tokens choose experts.
    pub routing: Routing,
    /// How the cache is kept; `None` is as the checkpoint says, else 16-bit.
    pub cache_dtype: Option<Dtype>,
}

impl Workload {
    /// A pass of one sequence with independent, even routing.
    pub fn new(phase: Phase, tokens: u64, context: u64) -> Workload {
        Workload { phase, batch: 1, tokens, context, routing: Routing::EVEN, cache_dtype: None }
    }

    /// A verify pass of one sequence over `tokens` tokens (root included).
    pub fn verify(tokens: u64, context: u64) -> Workload {
        Workload::new(Phase::Verify, tokens, context)
    }

    /// Rows of the activations: all new tokens of all sequences.
    pub fn rows(&self) -> u64 {
        self.batch * self.tokens
    }

    /// Rows whose logits are needed: every token, but in prefill only the last of a sequence.
    pub fn logit_rows(&self) -> u64 {
        if self.phase == Phase::Prefill { self.batch } else { self.rows() }
    }

    /// Refuses what has no meaning or would overflow.
    ///
    /// # Errors
    /// `workload-bad-value`.
    pub fn check(&self) -> Result<()> {
        let refuse = |message: String| Err(Fault::new("workload-bad-value", message));
        if !(1..=1 << 20).contains(&self.tokens) {
            return refuse(format!("tokens per sequence must be from 1 to 1048576, not {}", self.tokens));
        }
        if !(1..=1 << 16).contains(&self.batch) {
            return refuse(format!("the batch must be from 1 to 65536 sequences, not {}", self.batch));
        }
        if self.rows() > 1 << 22 {
            return refuse(format!("batch × tokens must be at most 4194304, not {}", self.rows()));
        }
        if self.context > 1 << 24 {
            return refuse(format!("the context must be at most 16777216 positions, not {}", self.context));
        }
        if self.phase == Phase::Decode && self.tokens != 1 {
            return Err(Fault::new("workload-bad-value", format!("a decode pass has one token per sequence, not {}", self.tokens))
                .help("use the verify phase for more"));
        }
        self.routing.check()
    }
}

/// Which rank of an expert-parallel group an operation is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Load {
    /// All ranks hold the same share (no expert parallelism).
    Even,
    /// The rank whose experts are touched most: the pass waits for it.
    Fullest,
    /// The mean of the other ranks.
    Others,
}

/// The part of a layer that one rank does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Ranks that split heads, inner sizes and the vocabulary.
    pub tp: u64,
    /// Groups of whole experts; `tp / ep` ranks split each expert's inner size.
    pub ep: u64,
    /// Under `ep` > 1: each rank owns `1/ep` of the tokens around the experts
    /// (dispatch and combine), and shared experts are whole on every rank.
    pub own_tokens: bool,
    /// Which rank is meant.
    pub load: Load,
}

impl Shard {
    /// Tensor parallelism alone.
    pub fn tensor(tp: u64) -> Shard {
        Shard { tp, ep: 1, own_tokens: false, load: Load::Even }
    }

    /// `whole / tp`, or a fault that names what cannot be split.
    ///
    /// # Errors
    /// `model-tp-indivisible`.
    pub fn split(&self, whole: u64, what: &str) -> Result<u64> {
        split_by(self.tp, whole, what)
    }

    /// Tokens of the pass that this rank takes through router and shared experts.
    pub fn own_rows(&self, rows: u64) -> u64 {
        if self.own_tokens { rows.div_ceil(self.ep.max(1)) } else { rows }
    }
}

pub(super) fn split_by(parts: u64, whole: u64, what: &str) -> Result<u64> {
    if parts == 0 || !whole.is_multiple_of(parts) {
        let fits: Vec<String> = (1..=whole.min(64)).filter(|p| whole.is_multiple_of(*p)).map(|p| p.to_string()).collect();
        return Err(Fault::new("model-tp-indivisible", format!("{parts} ranks do not divide {whole} {what}"))
            .help(format!("{whole} {what} split over {} ranks", fits.join(", "))));
    }
    Ok(whole / parts)
}
