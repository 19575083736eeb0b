//! A cycle of so many drafts with the model split so: its kernels, and the
//! messages that a policy has to carry.

use std::collections::BTreeMap;

use crate::case::groups::Message;
use crate::case::pieces::Pieces;
use crate::decide::speculate::acceptance;
use crate::decide::speculate::grid::Stage;
use crate::plan::Partition;
use crate::strategy::Strategy;
use crate::units::Time;

/// Messages of one size: a policy has one strategy for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Size {
    /// Bytes of each.
    pub bytes: u64,
    /// How often each kind and stage is there.
    pub messages: Vec<(Message, u64)>,
    /// Kernels that go away where the strategy does the norms after all-reduces.
    pub saving: Time,
}

/// A number of drafts and a split.
pub struct Shape {
    /// Drafts of a sequence in a cycle.
    pub drafts: u64,
    /// None for plain decoding.
    pub cycle: Option<acceptance::Shape>,
    /// How the model is split.
    pub partition: Partition,
    /// Kernels and messages.
    pub stage: Stage,
    /// All sizes, the smallest first.
    pub sizes: Vec<Size>,
    /// Kernels where no strategy does a norm.
    pub kernels: Time,
    /// Host time of a cycle that GPUs wait for, ms.
    pub host_ms: f64,
    /// Tokens of a sequence that a cycle yields.
    pub expected: f64,
}

impl Shape {
    /// Of a stage's pieces.
    pub fn new(
        drafts: u64,
        cycle: Option<acceptance::Shape>,
        partition: Partition,
        stage: Stage,
        (host_ms, expected): (f64, f64),
    ) -> Shape {
        let mut sizes: BTreeMap<u64, Size> = BTreeMap::new();
        let size = |bytes: u64| Size { bytes, messages: Vec::new(), saving: Time::ZERO };
        for (apart, fused) in pairs(&stage) {
            for (&message, &count) in &apart.collectives {
                let at = sizes.entry(message.bytes).or_insert_with(|| size(message.bytes));
                match at.messages.iter_mut().find(|(known, _)| *known == message) {
                    Some((_, known)) => *known += count,
                    None => at.messages.push((message, count)),
                }
            }
            if apart.layer_allreduces > 0 {
                let at = sizes.entry(apart.layer_bytes).or_insert_with(|| size(apart.layer_bytes));
                at.saving += apart.kernels.saturating_sub(fused.kernels);
            }
        }
        let kernels = pairs(&stage).iter().map(|(apart, _)| apart.kernels).sum();
        Shape { drafts, cycle, partition, sizes: sizes.into_values().collect(), kernels, host_ms, expected, stage }
    }

    /// Tokens per second of all sequences when pass and draft steps take so long.
    pub fn tokens_per_s(&self, total: Time) -> f64 {
        self.stage.batch as f64 * self.expected * 1e3 / (total.ms() + self.host_ms).max(1e-9)
    }

    /// What communication that takes no time, and does all norms, would leave.
    pub fn floor(&self) -> Time {
        self.sizes.iter().fold(self.kernels, |left, size| left.saturating_sub(size.saving))
    }

    /// The verify pass or plain step, and the draft steps, when `chosen` serves a size and `time` says what a
    /// message takes under a strategy.
    pub fn times(&self, chosen: impl Fn(u64) -> &'static Strategy, mut time: impl FnMut(&'static Strategy, Message) -> Time) -> [Time; 2] {
        let mut all = pairs(&self.stage).map(|(apart, fused)| {
            let piece = if chosen(apart.layer_bytes).fuses_norm { fused } else { apart };
            piece.total(|message| time(chosen(message.bytes), message))
        });
        all[1] += all[2];
        [all[0], all[1]]
    }
}

/// The pieces with norms of their own and without.
fn pairs(stage: &Stage) -> [(&crate::case::pieces::Piece, &crate::case::pieces::Piece); 3] {
    let of = |pieces: fn(&Pieces) -> &crate::case::pieces::Piece| (pieces(&stage.apart), pieces(&stage.fused));
    [of(|pieces| &pieces.pass), of(|pieces| &pieces.first_draft), of(|pieces| &pieces.later_drafts)]
}
