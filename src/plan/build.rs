//! Model, workload and partition → plan: operations of `model` with the
//! collectives that the partition makes necessary.

use std::collections::BTreeMap;

use super::BlockId;
use super::Plan;
use super::RankClass;
use super::Run;
use super::block::Block;
use super::block::BlockBuilder;
use super::block::BlockKind;
use super::collective::Collective;
use super::collective::Group;
use super::collective::Kind;
use super::collective::Role;
use super::draft::Drafting;
use super::expand::Place;
use super::partition::Partition;
use crate::error::Fault;
use crate::error::Result;
use crate::model::Layer;
use crate::model::Load;
use crate::model::Model;
use crate::model::Shard;
use crate::model::Workload;
use crate::model::shape::Attention;
use crate::model::shape::FeedForward;

/// Bytes of an activation or a logit on the wire (16-bit).
const WIRE_BYTES: u64 = 2;

/// What a plan is made from.
#[derive(Clone, Copy, Debug)]
pub struct Build<'a> {
    /// The model.
    pub model: &'a Model,
    /// The pass.
    pub workload: &'a Workload,
    /// How it is split.
    pub partition: Partition,
    /// Draft steps that follow the pass; `None` for the pass alone.
    pub drafting: Option<&'a Drafting>,
}

impl Plan {
    /// The plan of one pass.
    ///
    /// # Errors
    /// `partition-bad-value`, `partition-no-experts`, `workload-bad-value`,
    /// `model-tp-indivisible`, `model-tp-splits-block`.
    pub fn build(model: &Model, workload: &Workload, partition: Partition) -> Result<Plan> {
        Build { model, workload, partition, drafting: None }.plan()
    }
}

/// Blocks made so far.
#[derive(Default)]
struct Blocks {
    blocks: Vec<Block>,
    layers: BTreeMap<(usize, Load), BlockId>,
}

impl Blocks {
    /// The id of this block; equal blocks are one.
    fn add(&mut self, block: Block) -> BlockId {
        let same = |known: &Block| {
            known.kind == block.kind
                && known.slots().len() == block.slots().len()
                && known.actions().eq(block.actions())
                && known.slots().iter().map(|s| &s.needs).eq(block.slots().iter().map(|s| &s.needs))
        };
        let known = self.blocks.iter().position(same);
        let index = known.unwrap_or_else(|| {
            self.blocks.push(block);
            self.blocks.len() - 1
        });
        BlockId(index as u32)
    }
}

impl Build<'_> {
    /// Makes the plan; see [`Plan::build`].
    ///
    /// # Errors
    /// Those of [`Plan::build`]; `plan-draft-stages` for drafts over pipeline stages.
    pub fn plan(&self) -> Result<Plan> {
        self.workload.check()?;
        let partition = self.partition;
        partition.check(self.model.layers.len() as u64)?;
        if partition.ep > 1 && !self.has_experts() {
            return Err(Fault::new("partition-no-experts", format!("{} has no experts to deal out", self.model.name)).help("take EP 1"));
        }
        if partition.micro_batches > 1 {
            return self.micro_batch();
        }
        if self.drafting.is_some() && partition.pp > 1 {
            return Err(Fault::new("plan-draft-stages", "draft steps are planned for one pipeline stage only")
                .help("take PP 1 to plan speculation"));
        }
        let layers = self.model.layers.len() as u32;
        let mut blocks = Blocks::default();
        let mut classes = Vec::new();
        for (stage, (first, count)) in partition.stage_layers(layers).into_iter().enumerate() {
            let stage = stage as u32;
            for (load, ranks) in self.loads(stage) {
                let runs = self.runs(&mut blocks, stage, first..first + count, load)?;
                classes.push(RankClass { stage, ranks, runs });
            }
        }
        Ok(Plan { partition, rows: self.workload.rows(), layers, blocks: blocks.blocks, classes })
    }

    /// The plan of one of several equal parts of the batch.
    fn micro_batch(&self) -> Result<Plan> {
        let parts = u64::from(self.partition.micro_batches);
        if !self.workload.batch.is_multiple_of(parts) {
            let message = format!("a batch of {} cannot be split into {parts} parts that take turns", self.workload.batch);
            return Err(Fault::new("partition-micro-batches", message).help("take an even batch"));
        }
        let workload = Workload { batch: self.workload.batch / parts, ..*self.workload };
        let partition = Partition { micro_batches: 1, ..self.partition };
        let part = Build { workload: &workload, partition, ..*self }.plan()?;
        Ok(Plan { partition: self.partition, rows: self.workload.rows(), ..part })
    }

    fn has_experts(&self) -> bool {
        self.model.kinds.iter().any(|kind| matches!(kind.feed_forward, FeedForward::Experts(_)))
    }

    /// Ranks of a stage by what they hold. Under expert parallelism the first
    /// group of experts stands for the fullest: any could be.
    fn loads(&self, stage: u32) -> Vec<(Load, Vec<u32>)> {
        let ranks: Vec<u32> = self.partition.stage_ranks(stage).collect();
        if self.partition.ep <= 1 {
            return vec![(Load::Even, ranks)];
        }
        let (fullest, others) = ranks.split_at((self.partition.tp / self.partition.ep) as usize);
        vec![(Load::Fullest, fullest.to_vec()), (Load::Others, others.to_vec())]
    }

    fn runs(&self, blocks: &mut Blocks, stage: u32, layers: std::ops::Range<u32>, load: Load) -> Result<Vec<Run>> {
        let mut runs = Vec::new();
        let once = |block, place| Run { block, place, repeats: 1 };
        if stage == 0 {
            runs.push(once(blocks.add(self.embedding()?), Place::Embedding));
        } else {
            runs.push(once(blocks.add(self.boundary(Role::StageRecv)?), Place::StageEntry(stage)));
        }
        for layer in layers {
            let kind = self.model.layers[layer as usize];
            let block = match blocks.layers.get(&(kind, load)) {
                Some(block) => *block,
                None => {
                    let block = blocks.add(self.layer_block(&self.model.kinds[kind], load)?);
                    blocks.layers.insert((kind, load), block);
                    block
                }
            };
            match runs.last_mut() {
                Some(run) if run.block == block && matches!(run.place, Place::Layer(_)) => run.repeats += 1,
                _ => runs.push(once(block, Place::Layer(layer))),
            }
        }
        if stage + 1 < self.partition.pp {
            runs.push(once(blocks.add(self.boundary(Role::StageSend)?), Place::StageExit(stage)));
            return Ok(runs);
        }
        runs.push(once(blocks.add(self.head()?), Place::Head));
        if let Some(drafting) = self.drafting.filter(|d| d.steps > 0) {
            runs.push(once(blocks.add(self.draft_block(drafting, true, load)?), Place::Draft(0)));
            if drafting.steps > 1 {
                let block = blocks.add(self.draft_block(drafting, false, load)?);
                runs.push(Run { block, place: Place::Draft(1), repeats: drafting.steps - 1 });
            }
        }
        Ok(runs)
    }

    pub(super) fn shard(&self, load: Load) -> Shard {
        let partition = self.partition;
        Shard { tp: u64::from(partition.tp), ep: u64::from(partition.ep), own_tokens: partition.own_tokens(), load }
    }

    fn embedding(&self) -> Result<Block> {
        let mut block = BlockBuilder::new();
        block.add_steps(self.model.embedding_steps(self.workload, self.shard(Load::Even))?);
        self.reduce(&mut block, "embedding", Role::EmbedAllreduce, self.workload.rows());
        block.finish(BlockKind::Embedding)
    }

    fn head(&self) -> Result<Block> {
        let mut block = BlockBuilder::new();
        block.add_steps(self.model.head_steps(self.workload, self.shard(Load::Even))?);
        self.gather_logits(&mut block, self.workload.logit_rows(), self.model.vocab);
        block.finish(BlockKind::Head)
    }

    /// Hidden state and residual, whole, to the counterpart in the next stage.
    fn boundary(&self, role: Role) -> Result<Block> {
        let bytes = 2 * self.workload.rows() * self.model.hidden * WIRE_BYTES;
        let (group, kind) = match role {
            Role::StageSend => (Group::NextStage, BlockKind::StageExit),
            _ => (Group::PreviousStage, BlockKind::StageEntry),
        };
        let mut block = BlockBuilder::new();
        block.add(super::Action::Collective(Collective { kind: Kind::SendRecv, role, bytes, group }), &[]);
        block.finish(kind)
    }

    fn layer_block(&self, layer: &Layer, load: Load) -> Result<Block> {
        let mut block = BlockBuilder::new();
        block.add_steps(self.model.layer_steps(layer, self.workload, self.shard(load))?);
        self.insert_layer_collectives(&mut block, Some(layer), self.workload.rows());
        let linear = matches!(layer.attention, Attention::GatedDelta(_));
        block.finish(match (linear, &layer.feed_forward) {
            (false, FeedForward::Dense(_)) => BlockKind::DenseLayer,
            (false, FeedForward::Experts(_)) => BlockKind::ExpertLayer,
            (true, FeedForward::Dense(_)) => BlockKind::LinearDenseLayer,
            (true, FeedForward::Experts(_)) => BlockKind::LinearExpertLayer,
        })
    }

    /// A sum over the tensor-parallel group, of `rows` hidden states.
    pub(super) fn reduce(&self, block: &mut BlockBuilder, after: &'static str, role: Role, rows: u64) {
        if self.partition.tp > 1 {
            let bytes = rows * self.model.hidden * WIRE_BYTES;
            block.insert_after(after, Collective { kind: Kind::AllReduce, role, bytes, group: Group::Tensor });
        }
    }

    /// The columns of the logits of all ranks (`columns` of them, padded).
    pub(super) fn gather_logits(&self, block: &mut BlockBuilder, rows: u64, columns: u64) {
        if self.partition.tp > 1 {
            let tp = u64::from(self.partition.tp);
            let padded = Model::padded_share(columns, tp) * tp;
            let collective =
                Collective { kind: Kind::AllGather, role: Role::LogitsGather, bytes: rows * padded * WIRE_BYTES, group: Group::Tensor };
            block.insert_after("lm_head", collective);
        }
    }

    /// What a layer's partition needs between its operations. `layer` is asked
    /// for its experts; a draft's dense layer may be left out.
    pub(super) fn insert_layer_collectives(&self, block: &mut BlockBuilder, layer: Option<&Layer>, rows: u64) {
        if self.partition.tp <= 1 {
            return;
        }
        if block.has(crate::model::QK_NORM_SQUARES) {
            // One 32-bit sum for the queries and one for the keys, per row.
            let collective = Collective { kind: Kind::AllReduce, role: Role::QkNormAllreduce, bytes: rows * 2 * 4, group: Group::Tensor };
            block.insert_after(crate::model::QK_NORM_SQUARES, collective);
        }
        if !self.partition.parallel_blocks {
            self.reduce(block, crate::model::ATTENTION_OUTPUT, Role::AttnAllreduce, rows);
        }
        let experts = layer.and_then(|l| match &l.feed_forward {
            FeedForward::Experts(experts) => Some(experts),
            FeedForward::Dense(_) => None,
        });
        match experts.filter(|_| self.partition.own_tokens()) {
            Some(experts) => self.exchange_tokens(block, experts.experts, experts.top_k, rows),
            None => {
                let bytes = rows * self.model.hidden * WIRE_BYTES;
                let ends = block.ends();
                let collective = Collective { kind: Kind::AllReduce, role: Role::MlpAllreduce, bytes, group: Group::Tensor };
                block.add(super::Action::Collective(collective), &ends);
            }
        }
    }

    /// Dispatch, combine, and the gather of all ranks' tokens.
    fn exchange_tokens(&self, block: &mut BlockBuilder, experts: u64, top_k: u64, rows: u64) {
        let ep = u64::from(self.partition.ep);
        let own = rows.div_ceil(ep);
        let row_bytes = self.model.hidden * WIRE_BYTES;
        let sent = libm::ceil(own as f64 * destinations(experts, top_k, ep) * row_bytes as f64 - 1e-6) as u64;
        let exchange = |role| Collective { kind: Kind::AllToAll, role, bytes: sent, group: Group::Expert };
        block.insert_after("router", exchange(Role::MoeDispatch));
        block.insert_after("experts", exchange(Role::MoeCombine));
        let ends = block.ends();
        let gather = Collective { kind: Kind::AllGather, role: Role::MoeTokenGather, bytes: own * ep * row_bytes, group: Group::Tensor };
        block.add(super::Action::Collective(gather), &ends);
    }
}

/// Expected ranks among which a token's experts lie, even popularity: each of
/// `ep` ranks is missed with `C(E - E/ep, k) / C(E, k)`.
fn destinations(experts: u64, top_k: u64, ep: u64) -> f64 {
    let elsewhere = experts - experts / ep.max(1);
    let missed: f64 = (0..top_k).map(|i| elsewhere.saturating_sub(i) as f64 / (experts - i) as f64).product();
    ep as f64 * (1.0 - missed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_by_hand() {
        // 4 experts on 2 ranks, 2 chosen: one rank is missed in 1 of 6 sets → 2 (1 - 1/6).
        assert!((destinations(4, 2, 2) - 10.0 / 6.0).abs() < 1e-12);
        assert!((destinations(8, 1, 8) - 1.0).abs() < 1e-12);
    }
}
