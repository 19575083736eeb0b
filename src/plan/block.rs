//! A template block: an acyclic graph of actions with unique names, and its
//! canonical order.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::BinaryHeap;

use petgraph::acyclic::Acyclic;
use petgraph::data::Build;
use petgraph::graph::DiGraph;
use petgraph::graph::NodeIndex;
use petgraph::visit::EdgeRef;

use super::collective::Collective;
use crate::error::Fault;
use crate::error::Result;
use crate::model::Op;
use crate::model::Step;

/// What one node of a plan does.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Work of one rank.
    Compute(Op),
    /// Work of several ranks together.
    Collective(Collective),
}

impl Action {
    /// Unique within its block.
    pub fn name(&self) -> &'static str {
        match self {
            Action::Compute(op) => op.name,
            Action::Collective(collective) => collective.role.name(),
        }
    }

    /// The collective, if it is one.
    pub fn collective(&self) -> Option<&Collective> {
        match self {
            Action::Compute(_) => None,
            Action::Collective(collective) => Some(collective),
        }
    }

    /// The operation, if it is work of one rank.
    pub fn compute(&self) -> Option<&Op> {
        match self {
            Action::Compute(op) => Some(op),
            Action::Collective(_) => None,
        }
    }
}

/// What a block is a template of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockKind {
    /// The embedding.
    Embedding,
    /// A layer with attention over a cache and a dense network.
    DenseLayer,
    /// A layer with attention over a cache and experts.
    ExpertLayer,
    /// A layer with linear attention and a dense network.
    LinearDenseLayer,
    /// A layer with linear attention and experts.
    LinearExpertLayer,
    /// Final norm, logits and choice.
    Head,
    /// From the stage before.
    StageEntry,
    /// To the next stage.
    StageExit,
    /// The first step of a draft.
    DraftFirstStep,
    /// A later step of a draft.
    DraftStep,
}

impl BlockKind {
    /// As listings name it.
    pub fn name(self) -> &'static str {
        match self {
            BlockKind::Embedding => "embedding",
            BlockKind::DenseLayer => "dense_layer",
            BlockKind::ExpertLayer => "expert_layer",
            BlockKind::LinearDenseLayer => "linear_dense_layer",
            BlockKind::LinearExpertLayer => "linear_expert_layer",
            BlockKind::Head => "head",
            BlockKind::StageEntry => "stage_entry",
            BlockKind::StageExit => "stage_exit",
            BlockKind::DraftFirstStep => "draft_first_step",
            BlockKind::DraftStep => "draft_step",
        }
    }
}

/// One action in canonical order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The node in [`Block::graph`].
    pub node: NodeIndex,
    /// Slots of the same block that must be done before, ascending. Empty: the
    /// last slots of the block before.
    pub needs: Vec<u32>,
    /// Nothing in the block reads it: the next block does.
    pub last: bool,
}

/// A template.
#[derive(Clone, Debug)]
pub struct Block {
    /// What it is a template of.
    pub kind: BlockKind,
    graph: Acyclic<DiGraph<Action, ()>>,
    slots: Vec<Slot>,
}

impl Block {
    /// The graph; edges are data dependencies.
    pub fn graph(&self) -> &DiGraph<Action, ()> {
        self.graph.inner()
    }

    /// The actions in canonical order.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The action in a slot.
    pub fn action(&self, slot: &Slot) -> &Action {
        &self.graph.inner()[slot.node]
    }

    /// All actions in canonical order.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        self.slots.iter().map(|slot| self.action(slot))
    }
}

/// Collects actions and dependencies, in any order, by name.
#[derive(Clone, Debug, Default)]
pub struct BlockBuilder {
    actions: Vec<Action>,
    needs: Vec<(&'static str, &'static str)>,
}

impl BlockBuilder {
    /// An empty block.
    pub fn new() -> BlockBuilder {
        BlockBuilder::default()
    }

    /// Adds an action that reads what `needs` wrote.
    pub fn add(&mut self, action: Action, needs: &[&'static str]) {
        self.needs.extend(needs.iter().map(|need| (*need, action.name())));
        self.actions.push(action);
    }

    /// Adds the operations of a list.
    pub fn add_steps(&mut self, steps: Vec<Step>) {
        for step in steps {
            self.add(Action::Compute(step.op), &step.needs);
        }
    }

    /// Whether an action of that name is there.
    pub fn has(&self, name: &str) -> bool {
        self.actions.iter().any(|a| a.name() == name)
    }

    /// Puts a collective behind the action `name`: what read that action reads
    /// the collective instead.
    pub fn insert_after(&mut self, name: &'static str, collective: Collective) {
        for (need, _) in self.needs.iter_mut().filter(|(need, _)| *need == name) {
            *need = collective.role.name();
        }
        self.add(Action::Collective(collective), &[name]);
    }

    /// Names of the actions that nothing reads, in order of listing.
    pub fn ends(&self) -> Vec<&'static str> {
        self.actions.iter().map(Action::name).filter(|name| self.needs.iter().all(|(need, _)| need != name)).collect()
    }

    /// Names of the actions that read nothing of this block.
    pub fn starts(&self) -> Vec<&'static str> {
        self.actions.iter().map(Action::name).filter(|name| self.needs.iter().all(|(_, reader)| reader != name)).collect()
    }

    /// Appends another block behind this one.
    pub fn then(&mut self, next: BlockBuilder) {
        let (ends, starts) = (self.ends(), next.starts());
        self.actions.extend(next.actions);
        self.needs.extend(next.needs);
        self.needs.extend(starts.iter().flat_map(|start| ends.iter().map(move |end| (*end, *start))));
    }

    /// Lists the actions backwards; for tests that order reaches nothing.
    pub fn reversed(mut self) -> BlockBuilder {
        self.actions.reverse();
        self.needs.reverse();
        self
    }

    /// Checks names and dependencies and settles the canonical order.
    ///
    /// # Errors
    /// `plan-bad-block`: a name twice, a need that is not there, a cycle.
    pub fn finish(self, kind: BlockKind) -> Result<Block> {
        let refuse = |message: String| Fault::new("plan-bad-block", format!("{} block: {message}", kind.name()));
        let mut graph: Acyclic<DiGraph<Action, ()>> = Acyclic::new();
        let mut nodes: BTreeMap<&'static str, NodeIndex> = BTreeMap::new();
        for action in self.actions {
            let name = action.name();
            if nodes.insert(name, graph.add_node(action)).is_some() {
                return Err(refuse(format!("`{name}` stands there twice")));
            }
        }
        let mut needs = self.needs;
        needs.sort_unstable();
        needs.dedup();
        for (need, reader) in needs {
            let (Some(from), Some(to)) = (nodes.get(need), nodes.get(reader)) else {
                return Err(refuse(format!("`{reader}` needs `{need}`, which is not there")));
            };
            if graph.try_add_edge(*from, *to, ()).is_err() {
                return Err(refuse(format!("`{reader}` and `{need}` need each other")));
            }
        }
        let slots = canonical(graph.inner());
        Ok(Block { kind, graph, slots })
    }
}

/// Topological order; of several that are ready the first by name.
fn canonical(graph: &DiGraph<Action, ()>) -> Vec<Slot> {
    let mut open: Vec<usize> = graph.node_indices().map(|n| graph.neighbors_directed(n, petgraph::Incoming).count()).collect();
    let name = |node: NodeIndex| graph[node].name();
    let mut ready: BinaryHeap<Reverse<(&'static str, NodeIndex)>> =
        graph.node_indices().filter(|n| open[n.index()] == 0).map(|n| Reverse((name(n), n))).collect();
    let mut place = vec![0_u32; graph.node_count()];
    let mut slots = Vec::with_capacity(graph.node_count());
    while let Some(Reverse((_, node))) = ready.pop() {
        place[node.index()] = slots.len() as u32;
        let mut needs: Vec<u32> = graph.neighbors_directed(node, petgraph::Incoming).map(|n| place[n.index()]).collect();
        needs.sort_unstable();
        slots.push(Slot { node, needs, last: graph.edges(node).next().is_none() });
        for edge in graph.edges(node) {
            let next = edge.target();
            open[next.index()] -= 1;
            if open[next.index()] == 0 {
                ready.push(Reverse((name(next), next)));
            }
        }
    }
    slots
}
