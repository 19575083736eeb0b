//! The plan of all ranks, ready to be put on streams: kernels compiled,
//! arguments filled, collectives chosen by size.

use crate::error::{Fault, Result};
use crate::gpu::arguments::Norm;
use crate::gpu::group::Group;
use crate::gpu::group::Message;
use crate::gpu::nccl::Communicators;
use crate::gpu::run::exchange;
use crate::gpu::run::exchange::Exchanged;
use crate::gpu::run::exchange::Handle;
use crate::gpu::run::exchange::NcclCall;
use crate::gpu::run::exchange::Way;
use crate::gpu::run::launch::EPSILON;
use crate::gpu::run::launch::Ready;
use crate::gpu::run::lower::Lowering;
use crate::gpu::run::lower::set_of;
use crate::gpu::run::ranks::Functions;
use crate::gpu::run::ranks::Rank;
use crate::gpu::run::scratch::Shape;
use crate::gpu::run::weights::Layout;
use crate::model::Model;
use crate::plan::Collective;
use crate::plan::Kind;
use crate::plan::OpId;
use crate::plan::Planned;

/// What a step does.
#[derive(Clone)]
pub enum Work {
    /// Kernels of this rank, one after another.
    Kernels(Vec<Ready>),
    /// This rank's part of a collective.
    Collective(Exchanged),
    /// Nothing: the collective before did it.
    Done,
}

/// One operation of one rank.
#[derive(Clone)]
pub struct Step {
    /// Which; the same as the simulator's.
    pub id: OpId,
    /// What it does.
    pub work: Work,
    /// Runs beside the others, on the second stream.
    pub side: bool,
    /// The second stream starts after this step.
    pub forks: bool,
    /// This step waits for the second stream.
    pub joins: bool,
    /// The first step of its block.
    pub begins: bool,
}

/// Everything that preparing needs.
pub struct Parts<'a> {
    /// The model.
    pub model: &'a Model,
    /// Sizes.
    pub shape: Shape,
    /// Where weights lie.
    pub layout: &'a Layout,
    /// The ranks.
    pub ranks: &'a [Rank],
    /// Their regions for messages; none for one rank.
    pub group: Option<&'a Group>,
    /// NCCL, if the policy or the gather of logits needs it.
    pub nccl: Option<&'a Communicators<'a>>,
    /// Largest message and its way, ascending.
    pub ways: &'a [(u64, Way)],
}

/// Norms that carry the residual add.
fn is_norm(name: &str) -> bool {
    matches!(name, "input_norm" | "post_attention_norm" | "final_norm")
}

/// Shared experts run beside the routed ones, as serving engines let them.
fn beside(name: &str) -> bool {
    matches!(name, "shared_gate_up_proj" | "shared_act" | "shared_down_proj")
}

impl Parts<'_> {
    /// The way of a message.
    ///
    /// # Errors
    /// `policy-empty` when no row covers it.
    fn way(&self, bytes: u64) -> Result<Way> {
        (self.ways.iter().find(|(most, _)| bytes <= *most).map(|(_, way)| *way))
            .ok_or_else(|| Fault::new("policy-empty", format!("the policy has no strategy for {bytes} bytes")))
    }

    /// Rank `rank`'s steps.
    ///
    /// # Errors
    /// `run-model` for what no kernel does, and what compiling meets.
    pub fn steps(&self, rank: usize, planned: &[Planned<'_>], functions: &mut Functions) -> Result<Vec<Step>> {
        let me = &self.ranks[rank];
        let lowering = Lowering {
            model: self.model,
            shape: self.shape,
            rank: rank as u64,
            layout: self.layout,
            pools: &me.pools,
            scratch: &me.scratch,
            caches: &me.caches,
            exchange: me.exchange,
        };
        let has_side = |from: usize| {
            let place = planned[from].id.place;
            planned[from..].iter().take_while(|p| p.id.place == place).any(|p| beside(p.id.name))
        };
        let mut steps = Vec::with_capacity(planned.len());
        let mut normalised = false;
        for (index, one) in planned.iter().enumerate() {
            let name = one.id.name;
            let work = match one.action.collective() {
                Some(collective) => {
                    let next = planned[index + 1..].iter().find(|p| is_norm(p.id.name));
                    let (exchanged, fused) = self.collective(&lowering, rank, one, collective, next)?;
                    normalised = fused;
                    Work::Collective(exchanged)
                }
                None if normalised && is_norm(name) => {
                    normalised = false;
                    Work::Done
                }
                None => {
                    let launches = lowering.launches(one)?;
                    Work::Kernels(launches.iter().map(|launch| me.ready(functions, launch)).collect::<Result<_>>()?)
                }
            };
            steps.push(Step {
                id: one.id,
                work,
                side: beside(name),
                forks: name == "post_attention_norm" && has_side(index),
                joins: name == "shared_add",
                begins: index == 0 || planned[index - 1].id.place != one.id.place,
            });
        }
        Ok(steps)
    }

    fn collective(
        &self,
        lowering: &Lowering<'_>,
        rank: usize,
        planned: &Planned<'_>,
        collective: &Collective,
        next_norm: Option<&Planned<'_>>,
    ) -> Result<(Exchanged, bool)> {
        let (Some(group), place) = (self.group, planned.id.place) else { return Ok((Exchanged::Alone, false)) };
        let role = collective.role;
        let me = &self.ranks[rank];
        if collective.kind == Kind::AllGather {
            let handle = self.handle(rank)?;
            let (send, receive) = (me.scratch.at("logits")?, me.scratch.at("gathered")?);
            let count = self.shape.rows * self.shape.share;
            return Ok((Exchanged::Nccl { handle, call: NcclCall::AllGather, send, receive, count }, false));
        }
        if collective.kind != Kind::AllReduce {
            return Err(Fault::new("run-model", format!("{} is not run here", collective.kind.name())));
        }
        let message = Message { bytes: collective.bytes, set: set_of(place, role) };
        match self.way(collective.bytes)? {
            Way::Nccl => {
                let (send, receive) = (lowering.sum_in(place, role), lowering.sum_out(place, role));
                let handle = self.handle(rank)?;
                Ok((Exchanged::Nccl { handle, call: NcclCall::AllReduce, send, receive, count: collective.bytes / 2 }, false))
            }
            Way::Ours { implementation, grid } => Ok((exchange::ours(group, rank, implementation, grid, message)?, false)),
            Way::Fused if role.is_layer_allreduce() => {
                let next = next_norm.ok_or_else(|| Fault::new("run-model", "no norm follows an all-reduce"))?;
                let norm = self.norm(lowering, me, next)?;
                let tokens = u32::try_from(self.shape.rows).unwrap_or(u32::MAX);
                Ok((exchange::fused(group, rank, norm, tokens, message)?, true))
            }
            Way::Fused => {
                Ok((exchange::ours(group, rank, crate::gpu::implementation::Implementation::OneShotPushLl, None, message)?, false))
            }
        }
    }

    fn norm(&self, lowering: &Lowering<'_>, me: &Rank, next: &Planned<'_>) -> Result<Norm> {
        let placed = self.layout.get(next.id.place, next.id.name)?;
        let residual = me.scratch.at("residual")?;
        Ok(Norm {
            residual,
            weight: me.pools.addresses(placed).0,
            residual_out: residual,
            normed: lowering.norm_buffers(next.id.name, next.id.place)?.1,
            partials: me.scratch.at("partials")?,
            hidden: u32::try_from(self.shape.hidden).unwrap_or(u32::MAX),
            epsilon: EPSILON as f32,
        })
    }

    fn handle(&self, rank: usize) -> Result<Handle> {
        self.nccl.map(|nccl| Handle(nccl.handle(rank))).ok_or_else(|| Fault::new("gpu-nccl", "NCCL was not opened"))
    }
}
