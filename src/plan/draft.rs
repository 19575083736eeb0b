//! Draft steps as template blocks: embedding, entry, one decoder layer and
//! head, each with its own collectives.
//!
//! A cycle of speculation is a verify pass and then `steps` draft steps. The
//! first runs over all tokens of the verify pass (their hidden states fill the
//! draft's cache), each later one over the candidates that are taken further
//! (one token a sequence for a chain). The first chooses for one token a
//! sequence, the later ones for each candidate.

use super::block::Block;
use super::block::BlockBuilder;
use super::block::BlockKind;
use super::build::Build;
use super::collective::Role;
use crate::error::Result;
use crate::model::Draft;
use crate::model::Load;
use crate::model::Phase;
use crate::model::Workload;

/// Who drafts, and how many tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drafting {
    /// The draft model.
    pub draft: Draft,
    /// Steps drafted a cycle (K of a chain, the depth of a tree).
    pub steps: u32,
    /// Candidates of a sequence that each later step takes further: 1 for a chain.
    pub width: u32,
}

impl Build<'_> {
    /// One draft step for a rank with this load.
    pub(super) fn draft_block(&self, drafting: &Drafting, first: bool, load: Load) -> Result<Block> {
        let (model, draft) = (self.model, &drafting.draft);
        let shard = self.shard(load);
        let single = Workload { phase: Phase::Verify, tokens: if first { 1 } else { u64::from(drafting.width.max(1)) }, ..*self.workload };
        let workload = if first { Workload { phase: Phase::Verify, ..*self.workload } } else { single };
        let mut block = BlockBuilder::new();
        block.add_steps(model.embedding_steps(&workload, shard)?);
        self.reduce(&mut block, "embedding", Role::EmbedAllreduce, workload.rows());

        let mut entry = BlockBuilder::new();
        entry.add_steps(model.draft_entry_steps(draft, first, &workload, shard)?);
        block.then(entry);

        let mut layer = BlockBuilder::new();
        layer.add_steps(model.draft_layer_steps(draft, &workload, shard)?);
        let experts = layer.has("experts");
        self.insert_layer_collectives(&mut layer, model.mtp.as_ref().filter(|_| experts).map(|m| &m.layer), workload.rows());
        block.then(layer);

        let mut head = BlockBuilder::new();
        let steps = model.draft_head_steps(draft, &single, shard)?;
        let columns = match draft {
            Draft::Eagle3(eagle) => eagle.vocab,
            Draft::Mtp => model.vocab,
        };
        head.add_steps(steps);
        self.gather_logits(&mut head, single.rows(), columns);
        block.then(head);
        block.finish(if first { BlockKind::DraftFirstStep } else { BlockKind::DraftStep })
    }
}
