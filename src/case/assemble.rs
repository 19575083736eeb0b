//! A plan, a policy and a machine become the simulator's program.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cost;
use crate::cost::Cache;
use crate::error::Fault;
use crate::error::Result;
use crate::machine::GpuKind;
use crate::machine::Machine;
use crate::model::Op;
use crate::plan::Action;
use crate::plan::Block;
use crate::plan::Collective;
use crate::plan::Kind;
use crate::plan::OpId;
use crate::plan::Partition;
use crate::plan::Place;
use crate::plan::Plan;
use crate::plan::RankClass;
use crate::plan::Role;
use crate::simulate::Operation;
use crate::simulate::Program;
use crate::simulate::Record;
use crate::simulate::Template;
use crate::simulate::apart::Probe;
use crate::simulate::program::Run;
use crate::strategy::Context;
use crate::units::Time;

use super::chain::ChainLaunch;
use super::chain::launch_of;
use super::groups::Groups;
use super::groups::Message;
use super::groups::members;
use super::groups::stages;
use super::prices::Asked;
use super::prices::Prices;
use super::question::LaunchMode;
use super::question::Policy;
use super::question::Question;
use super::roads::Roads;
use super::turns::Half;
use super::turns::take_turns;

/// A program with what its parts stand for.
pub struct Assembled {
    /// For the simulator.
    pub program: Program,
    /// Per collective of the program: the plan's, as first met.
    pub collectives: Vec<Collective>,
    /// Per collective of the program: whose it is, or which stage hands over.
    pub stages: Vec<u32>,
    /// Per sequence entry: where its first repetition stands.
    pub places: Vec<Place>,
    /// Per template: what each operation is.
    pub labels: Vec<Vec<Label>>,
    /// Names of the directed links.
    pub links: Arc<Vec<String>>,
    /// How the plan splits the model.
    pub partition: Partition,
}

impl Assembled {
    /// The plan's id of an operation that the simulator recorded. A hand-over is
    /// one operation of two stages; the receiving ranks have their own name for it.
    pub fn id(&self, record: &Record) -> OpId {
        let run = self.program.sequence[record.entry as usize];
        let label = self.labels[run.template as usize][record.operation as usize];
        let name = label.name;
        let place = match self.places.get(record.entry as usize + 1) {
            Some(next) if label.ahead && record.repeat + 1 == run.repeats => *next,
            _ => self.places[record.entry as usize].plus(record.repeat + u32::from(label.ahead)),
        };
        match place {
            Place::StageExit(stage) if !self.partition.stage_ranks(stage).contains(&record.rank) => {
                OpId { place: Place::StageEntry(stage + 1), name: Role::StageRecv.name(), rank: record.rank }
            }
            place => OpId { place, name, rank: record.rank },
        }
    }
}

/// The kind of the routed experts' kernels.
pub const EXPERTS: &str = "experts";

/// What one operation of a template is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Name within its block.
    pub name: &'static str,
    /// Kind for breakdowns.
    pub kind: &'static str,
    /// Data of a collective, or weights and cache read by a computation.
    pub bytes: u64,
    /// Which half of the batch it works on, where halves take turns.
    pub half: Option<Half>,
    /// Whether it is the next block's, done ahead of it.
    pub ahead: bool,
}

/// Puts a question together with a policy.
///
/// # Errors
/// What lowering and pricing can meet.
pub fn assemble(question: &Question<'_>, plan: &Plan, policy: &Policy, context: &Context<'_>) -> Result<Assembled> {
    let machine = question.machine;
    let prices = Prices::new(Roads::new(machine, context.searches.routes(machine)));
    Ok(assemble_at(question, plan, policy, context, &prices)?.0)
}

/// The same with collectives that may have been priced before, and their probes.
///
/// # Errors
/// As [`assemble`].
pub fn assemble_at(
    question: &Question<'_>,
    plan: &Plan,
    policy: &Policy,
    context: &Context<'_>,
    prices: &Prices,
) -> Result<(Assembled, Vec<Arc<Probe>>)> {
    let machine = question.machine;
    let kind = machine.gpu_kind(0).ok_or_else(|| Fault::new("machine-no-kind", "device 0 has no kind"))?;
    let sharing = sharers(machine, plan);
    let row_bytes = question.row_bytes();
    let part = &shared(kind, sharing);
    let mut builder = Builder {
        machine,
        kind,
        part,
        plan,
        policy,
        groups: Groups::new(context, plan.partition, row_bytes)?,
        asked: Asked::of(context, plan.partition, row_bytes),
        prices,
        probes: Vec::new(),
        known: BTreeMap::new(),
        assembled: Assembled {
            program: Program {
                ranks: plan.partition.ranks() as usize,
                templates: Vec::new(),
                sequence: Vec::new(),
                collectives: Vec::new(),
                network: crate::simulate::Network::default(),
                launch: launch_of(
                    &kind.launch,
                    match question.launch {
                        LaunchMode::Graph => ChainLaunch::Graph,
                        LaunchMode::Eager => ChainLaunch::Framework,
                    },
                    sharing,
                ),
            },
            collectives: Vec::new(),
            stages: Vec::new(),
            places: Vec::new(),
            labels: Vec::new(),
            links: Arc::default(),
            partition: plan.partition,
        },
        gap: Time::from_ns(kind.launch.graph_gap_ns.value).0,
        second_stream: question.launch == LaunchMode::Graph,
    };
    if builder.assembled.program.ranks > 64 {
        return Err(Fault::new("ranks-too-many", "at most 64 ranks can be simulated"));
    }
    let stages = stages(&plan.classes);
    for (index, stage) in stages.iter().enumerate() {
        builder.stage(stage, stages.get(index + 1).map_or(&[], Vec::as_slice))?;
    }
    (builder.assembled.program.network, builder.assembled.links) = builder.prices.network();
    if plan.partition.micro_batches > 1 {
        take_turns(&mut builder.assembled);
    }
    Ok((builder.assembled, builder.probes))
}

/// Ranks of the plan that share one GPU; 1 in a server.
fn sharers(machine: &Machine, plan: &Plan) -> u64 {
    u64::from(plan.partition.ranks()).div_ceil(machine.gpus.len().max(1) as u64).clamp(1, u64::from(machine.ranks_per_gpu.max(1)))
}

/// A kind's rates as a rank has them whose GPU `ranks` ranks share, all at the
/// same operation.
fn shared(kind: &GpuKind, ranks: u64) -> GpuKind {
    let mut part = kind.clone();
    let each = 1.0 / ranks as f64;
    let rates = [
        &mut part.chip.memory_gbps,
        &mut part.chip.bf16_tflops,
        &mut part.chip.fp8_tflops,
        &mut part.chip.fp4_tflops,
        &mut part.kernels.l2_gbps,
        &mut part.kernels.experts_int4_gbps,
    ];
    for rate in rates {
        rate.value *= each;
    }
    part
}

struct Builder<'a> {
    machine: &'a Machine,
    kind: &'a GpuKind,
    /// What one rank has of it.
    part: &'a GpuKind,
    plan: &'a Plan,
    policy: &'a Policy,
    groups: Groups<'a>,
    asked: Asked,
    prices: &'a Prices,
    probes: Vec<Arc<Probe>>,
    /// Collectives of the program by kind, bytes, whether strategies compete for them, and stage.
    known: BTreeMap<(Kind, u64, bool, u32), u32>,
    assembled: Assembled,
    /// What the prices of kernels hold of a graph's gaps.
    gap: u64,
    /// Whether shared experts run beside the routed ones.
    second_stream: bool,
}

impl Builder<'_> {
    /// A stage's blocks, up to what it hands to the ranks of the `next` one.
    fn stage(&mut self, classes: &[&RankClass], next: &[&RankClass]) -> Result<()> {
        let Some(first) = classes.first() else { return Ok(()) };
        let mut made: BTreeMap<Vec<u32>, u32> = BTreeMap::new();
        for (index, run) in first.runs.iter().enumerate() {
            let everyone = match run.place {
                // The stage before has both sides of the hand-over.
                Place::StageEntry(_) => continue,
                Place::StageExit(_) => members(classes) | members(next),
                _ => members(classes),
            };
            let blocks: Vec<u32> = classes.iter().map(|class| class.runs[index].block.0).collect();
            let template = match made.get(&blocks) {
                Some(&template) => template,
                None => {
                    let template = self.template(classes, index)?;
                    made.insert(blocks, template);
                    template
                }
            };
            self.assembled.program.sequence.push(Run { template, repeats: run.repeats, members: everyone });
            self.assembled.places.push(run.place);
        }
        Ok(())
    }

    /// One template for all classes: same operations, durations by rank.
    fn template(&mut self, classes: &[&RankClass], index: usize) -> Result<u32> {
        let blocks: Vec<&Block> = classes.iter().map(|class| self.plan.block(class.runs[index].block)).collect();
        let (mut operations, mut labels) = (Vec::new(), Vec::new());
        let mut follows_allreduce = false;
        for slot in 0..blocks[0].slots().len() {
            let actions: Vec<&Action> = blocks.iter().map(|block| block.action(&block.slots()[slot])).collect();
            match actions[0] {
                Action::Collective(collective) => {
                    let fuses = self.policy.of(collective.bytes)?.fuses_norm && collective.role.is_layer_allreduce();
                    operations.push(self.collective(collective, classes[0].stage)?);
                    labels.push(Label {
                        name: collective.role.name(),
                        kind: collective_kind(collective),
                        bytes: collective.bytes,
                        half: None,
                        ahead: false,
                    });
                    follows_allreduce = fuses;
                }
                Action::Compute(_) => {
                    let ops: Vec<&Op> = actions.iter().filter_map(|action| action.compute()).collect();
                    // A fused all-reduce has normalised already.
                    let fused = follows_allreduce && is_norm(ops[0].name);
                    let times: Vec<u64> = ops.iter().map(|op| if fused { 0 } else { self.duration(op) }).collect();
                    let launches = if fused { 0 } else { ops[0].launches };
                    operations.push(Operation::Compute { ps: by_rank(classes, &times, self.assembled.program.ranks), launches });
                    let bytes = ops[0].weight_bytes + ops[0].cache_bytes;
                    labels.push(Label { name: ops[0].name, kind: compute_kind(ops[0]), bytes, half: None, ahead: false });
                    follows_allreduce &= !is_norm(ops[0].name);
                }
            }
        }
        // The norm after a layer's last all-reduce opens the next block.
        self.drop_opening_norm(&blocks, &mut operations, follows_allreduce);
        self.assembled.program.templates.push(Template { operations });
        self.assembled.labels.push(labels);
        Ok((self.assembled.program.templates.len() - 1) as u32)
    }

    fn drop_opening_norm(&self, blocks: &[&Block], operations: &mut [Operation], ends_fused: bool) {
        let opens_with_norm = blocks[0].actions().next().is_some_and(|action| is_norm(action.name()));
        if let (true, true, Some(Operation::Compute { ps, launches })) = (ends_fused, opens_with_norm, operations.first_mut()) {
            *ps = vec![0];
            *launches = 0;
        }
    }

    /// Time of an operation without the gaps that the simulator adds per launch.
    ///
    /// Shared experts run on a second stream beside the routed ones where a graph
    /// is captured (SGLang and vLLM do so for decode): their fixed times hide
    /// there, their bytes do not. Launched from the host they run in line.
    fn duration(&self, op: &Op) -> u64 {
        let parts = cost::parts(op, self.kind, Cache::Cold);
        let beside = self.second_stream && op.name.starts_with("shared_") && op.name.ends_with("_proj");
        let shared = cost::parts(op, self.part, Cache::Cold).memory_ns;
        let whole = match (beside, self.part.chip.memory_gbps.value == self.kind.chip.memory_gbps.value) {
            (true, _) => Time::from_ns(shared),
            (false, true) => parts.total(),
            // Ranks on one GPU hide each other's fixed times and serial loops; the bytes of all are moved.
            (false, false) => {
                let exponent = self.kind.kernels.overlap_exponent.value;
                Time::from_ns(cost::overlap(&[parts.total().ns(), shared], exponent))
            }
        };
        whole.0.saturating_sub(self.gap * u64::from(op.launches))
    }

    fn collective(&mut self, collective: &Collective, stage: u32) -> Result<Operation> {
        let key = (collective.kind, collective.bytes, collective.role.is_layer_allreduce(), stage);
        if let Some(&known) = self.known.get(&key) {
            return Ok(Operation::Collective { collective: known, beside: 0 });
        }
        let strategy = self.policy.of(collective.bytes)?;
        let (asked, groups) = (self.asked.with(strategy, collective.kind, collective.bytes, stage), &mut self.groups);
        let message = Message { logical: collective.kind.into(), bytes: collective.bytes, stage };
        let priced = self.prices.of(self.machine, asked, || groups.message(strategy, message))?;
        let index = self.assembled.program.collectives.len() as u32;
        self.assembled.program.collectives.push(priced.timed);
        self.probes.push(priced.probe);
        self.assembled.collectives.push(*collective);
        self.assembled.stages.push(stage);
        self.known.insert(key, index);
        Ok(Operation::Collective { collective: index, beside: 0 })
    }
}

/// One entry if all ranks take the same time, else one a rank.
fn by_rank(classes: &[&RankClass], times: &[u64], ranks: usize) -> Vec<u64> {
    if times.iter().all(|time| *time == times[0]) {
        return vec![times[0]];
    }
    let mut all = vec![0; ranks];
    for (class, time) in classes.iter().zip(times) {
        for &rank in &class.ranks {
            all[rank as usize] = *time;
        }
    }
    all
}

/// Norms that carry the residual add: what an all-reduce is fused with.
fn is_norm(name: &str) -> bool {
    matches!(name, "input_norm" | "post_attention_norm" | "final_norm")
}

/// Kind of an operation for breakdowns.
pub fn kind_of(action: &Action) -> &'static str {
    match action {
        Action::Collective(collective) => collective_kind(collective),
        Action::Compute(op) => compute_kind(op),
    }
}

fn collective_kind(collective: &Collective) -> &'static str {
    if collective.role.is_layer_allreduce() { "all-reduce" } else { "other communication" }
}

fn compute_kind(op: &Op) -> &'static str {
    use crate::model::Family;
    match op.family {
        Family::Experts { .. } => EXPERTS,
        Family::Router { .. } => "router",
        Family::MlaDecode { .. } | Family::GqaDecode { .. } | Family::Prefill { .. } | Family::LinearAttention { .. } => "attention",
        Family::Elementwise => "norms and elementwise",
        Family::Embedding => "embedding",
        Family::Sample => "sampling",
        Family::Gemm { .. } | Family::BatchedGemm { .. } if op.name.starts_with("shared_") => "shared expert",
        Family::Gemm { .. } | Family::BatchedGemm { .. } if op.name == "lm_head" => "head",
        Family::Gemm { .. } | Family::BatchedGemm { .. } => "projections",
    }
}
