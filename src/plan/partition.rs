//! How a model is split over ranks.
//!
//! Ranks count stage by stage: rank `stage × tp + i` is the `i`-th of its
//! tensor-parallel group. Groups of whole experts lie inside that group.

use crate::error::Fault;
use crate::error::Result;

/// How tokens reach experts that lie on other ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExpertExchange {
    /// Each rank owns a share of the tokens, sends them to their experts and
    /// takes the results back (two all-to-alls), then all gather the tokens
    /// for the next attention. Shared experts are whole on every rank. This is
    /// vLLM's sequence-parallel expert parallelism.
    #[default]
    AllToAll,
    /// Tokens are on every rank already (attention is tensor-parallel); each
    /// computes its own experts and the sum is one all-reduce, as without
    /// expert parallelism. This is SGLang's `--ep-size` without data-parallel
    /// attention.
    AllReduce,
}

/// Tensor × pipeline × expert parallelism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Partition {
    /// Ranks that split heads, inner sizes and the vocabulary.
    pub tp: u32,
    /// Pipeline stages.
    pub pp: u32,
    /// Groups of whole experts within the `tp` ranks of a stage; 1 is none.
    pub ep: u32,
    /// What replaces the experts' all-reduce when `ep` > 1.
    pub exchange: ExpertExchange,
    /// Parts of the batch that take turns: one computes while the other's
    /// collective is under way. 1 is none; the plan is that of one part.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub micro_batches: u32,
    /// Attention and feed-forward part side by side, as some models are
    /// trained: their sum is one all-reduce a layer in place of two.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parallel_blocks: bool,
}

fn one() -> u32 {
    1
}

fn is_one(count: &u32) -> bool {
    *count == 1
}

impl Partition {
    /// Tensor parallelism alone.
    pub fn tensor(tp: u32) -> Partition {
        Partition { tp, pp: 1, ep: 1, exchange: ExpertExchange::default(), micro_batches: 1, parallel_blocks: false }
    }

    /// Ranks in all.
    pub fn ranks(&self) -> u32 {
        self.tp.saturating_mul(self.pp)
    }

    /// The tensor-parallel group of a stage.
    pub fn stage_ranks(&self, stage: u32) -> std::ops::Range<u32> {
        stage * self.tp..(stage + 1) * self.tp
    }

    /// Refuses partitions that cannot be.
    ///
    /// # Errors
    /// `partition-bad-value`.
    pub fn check(&self, layers: u64) -> Result<()> {
        let refuse = |message: String| Err(Fault::new("partition-bad-value", message));
        if self.tp == 0 || self.pp == 0 || self.ep == 0 || self.ranks() > 4096 {
            return refuse(format!("TP {} × PP {} × EP {} is not a partition of 1 to 4096 ranks", self.tp, self.pp, self.ep));
        }
        if !(1..=2).contains(&self.micro_batches) || (self.micro_batches > 1 && self.pp > 1) {
            return refuse(format!(
                "{} micro-batches over {} stages: at most two can take turns, in one stage",
                self.micro_batches, self.pp
            ));
        }
        if u64::from(self.pp) > layers {
            return refuse(format!("{} pipeline stages for {layers} layers", self.pp));
        }
        if !self.tp.is_multiple_of(self.ep) {
            return refuse(format!("EP {} does not divide TP {}", self.ep, self.tp));
        }
        if self.ep > 1 && self.ep != self.tp && self.exchange == ExpertExchange::AllToAll {
            return Err(Fault::new(
                "partition-bad-value",
                format!("an all-to-all over EP {} needs TP {}, not {}", self.ep, self.ep, self.tp),
            )
            .help("take EP equal to TP, or the all-reduce exchange"));
        }
        Ok(())
    }

    /// Whether ranks own shares of the tokens around the experts.
    pub fn own_tokens(&self) -> bool {
        self.ep > 1 && self.exchange == ExpertExchange::AllToAll
    }

    /// Layers of each stage as (first, count): as even as can be, the earlier
    /// stages take the rest.
    pub fn stage_layers(&self, layers: u32) -> Vec<(u32, u32)> {
        let (share, rest) = (layers / self.pp.max(1), layers % self.pp.max(1));
        let mut first = 0;
        (0..self.pp)
            .map(|stage| {
                let count = share + u32::from(stage < rest);
                first += count;
                (first - count, count)
            })
            .collect()
    }
}
