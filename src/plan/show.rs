//! A plan for reading: summary, JSON and DOT.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write;

use serde_json::Value;
use serde_json::json;

use super::Plan;
use super::block::Action;
use super::block::Block;
use super::collective::Kind;
use super::collective::Role;
use super::expand::Place;
use crate::units::Bytes;

/// How often a collective of one kind, role and size occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct CollectiveCount {
    /// What.
    pub kind: Kind,
    /// Why.
    pub role: Role,
    /// Among the draft steps instead of the pass.
    pub draft: bool,
    /// Times.
    pub count: u32,
    /// See [`super::Collective::bytes`].
    pub bytes: u64,
}

/// What a pass communicates, along the way through all stages.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Summary {
    /// Ranks in all.
    pub ranks: u32,
    /// The layers' all-reduces (after attention, after the feed-forward part): how many.
    pub layer_allreduces: u32,
    /// Their size, if all are equal.
    pub layer_allreduce_bytes: Option<u64>,
    /// All collectives by role and size, the layers' all-reduces among them.
    pub collectives: Vec<CollectiveCount>,
    /// Compute operations of one rank of each stage, summed.
    pub operations: u32,
    /// Launches of those operations.
    pub launches: u64,
    /// Bytes of weights that those operations read, rank by rank alike.
    pub weight_bytes: u64,
    /// FNV-1a 64 of the folded plan.
    pub hash: u64,
}

impl Plan {
    /// Counts what one rank of each stage does, the fullest where ranks differ.
    pub fn summary(&self) -> Summary {
        let mut counts: BTreeMap<(bool, Role, Kind, u64), u32> = BTreeMap::new();
        let (mut operations, mut launches, mut weight_bytes) = (0, 0, 0_u64);
        let mut stages: Vec<u32> = Vec::new();
        for class in &self.classes {
            if stages.contains(&class.stage) {
                continue;
            }
            stages.push(class.stage);
            for run in &class.runs {
                for action in self.block(run.block).actions() {
                    match action {
                        Action::Compute(op) => {
                            operations += run.repeats;
                            launches += u64::from(op.launches) * u64::from(run.repeats);
                            weight_bytes = weight_bytes.saturating_add(op.weight_bytes.saturating_mul(u64::from(run.repeats)));
                        }
                        Action::Collective(c) => {
                            let draft = matches!(run.place, Place::Draft(_));
                            *counts.entry((draft, c.role, c.kind, c.bytes)).or_default() += run.repeats;
                        }
                    }
                }
            }
        }
        let collectives: Vec<CollectiveCount> =
            counts.into_iter().map(|((draft, role, kind, bytes), count)| CollectiveCount { kind, role, draft, count, bytes }).collect();
        let layers: Vec<&CollectiveCount> = collectives.iter().filter(|c| !c.draft && c.role.is_layer_allreduce()).collect();
        let size = layers.first().map(|c| c.bytes).filter(|bytes| layers.iter().all(|c| c.bytes == *bytes));
        Summary {
            ranks: self.partition.ranks(),
            layer_allreduces: layers.iter().map(|c| c.count).sum(),
            layer_allreduce_bytes: size,
            operations,
            launches,
            weight_bytes,
            hash: self.hash(),
            collectives,
        }
    }

    /// The folded plan as JSON, `format` 1.
    pub fn to_json(&self) -> String {
        let place = |place: Place| place.to_string();
        let runs = |class: &super::RankClass| -> Vec<Value> {
            class.runs.iter().map(|r| json!({ "block": r.block, "place": place(r.place), "repeats": r.repeats })).collect()
        };
        let value = json!({
            "format": 1,
            "hash": format!("{:016x}", self.hash()),
            "partition": self.partition,
            "rows": self.rows,
            "layers": self.layers,
            "blocks": self.blocks.iter().enumerate().map(|(id, b)| block_json(id, b)).collect::<Vec<Value>>(),
            "classes": self.classes.iter().map(|c| json!({ "stage": c.stage, "ranks": c.ranks, "runs": runs(c) })).collect::<Vec<Value>>(),
        });
        let mut text = serde_json::to_string_pretty(&value).unwrap_or_default();
        text.push('\n');
        text
    }

    /// The template blocks as one DOT graph, a cluster a block.
    pub fn to_dot(&self) -> String {
        let mut text = String::from("digraph plan {\n  rankdir=TB;\n  node [shape=box, fontname=\"monospace\"];\n");
        for (id, block) in self.blocks.iter().enumerate() {
            dot_block(&mut text, id, block, self.repeats(id));
        }
        text.push_str("}\n");
        text
    }

    /// How often the first class that runs the block repeats it.
    fn repeats(&self, block: usize) -> u32 {
        let of = |class: &super::RankClass| class.runs.iter().filter(|r| r.block.0 as usize == block).map(|r| r.repeats).sum();
        self.classes.iter().map(of).find(|n: &u32| *n > 0).unwrap_or(0)
    }
}

fn block_json(id: usize, block: &Block) -> Value {
    let names: Vec<&str> = block.actions().map(Action::name).collect();
    let operations: Vec<Value> = block
        .slots()
        .iter()
        .map(|slot| {
            let action = block.action(slot);
            let needs: Vec<&str> = slot.needs.iter().map(|n| names[*n as usize]).collect();
            json!({ "name": action.name(), "needs": needs, "action": action })
        })
        .collect();
    json!({ "id": id, "kind": block.kind, "operations": operations })
}

fn dot_block(text: &mut String, id: usize, block: &Block, repeats: u32) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "  subgraph cluster_{id} {{\n    label=\"{} × {repeats}\";", block.kind.name());
    for (index, slot) in block.slots().iter().enumerate() {
        let action = block.action(slot);
        let _ = match action.collective() {
            Some(c) => {
                writeln!(text, "    b{id}_{index} [label=\"{}\\n{} {}\", style=filled];", action.name(), c.kind.name(), Bytes(c.bytes))
            }
            None => writeln!(text, "    b{id}_{index} [label=\"{}\"];", action.name()),
        };
        for need in &slot.needs {
            let _ = writeln!(text, "    b{id}_{need} -> b{id}_{index};");
        }
    }
    text.push_str("  }\n");
}

impl fmt::Display for Summary {
    /// `122 all-reduces of 43,008 B`, then the others, a line each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.layer_allreduces, self.layer_allreduce_bytes) {
            (0, _) => writeln!(f, "no all-reduces in the layers")?,
            (count, Some(bytes)) => writeln!(f, "{count} all-reduces of {}", Bytes(bytes))?,
            (count, None) => writeln!(f, "{count} all-reduces of several sizes")?,
        }
        for c in &self.collectives {
            let several = self.layer_allreduce_bytes.is_none();
            if !c.draft && c.role.is_layer_allreduce() && !several {
                continue;
            }
            let draft = if c.draft { "draft " } else { "" };
            writeln!(f, "{} {draft}{} ({}) of {}", c.count, c.role.name(), c.kind.name(), Bytes(c.bytes))?;
        }
        write!(
            f,
            "{} operations in {} launches, {} of weights, plan {:016x}",
            self.operations,
            self.launches,
            Bytes(self.weight_bytes),
            self.hash
        )
    }
}
