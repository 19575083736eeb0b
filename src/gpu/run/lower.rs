//! Operations of a plan as launches of one rank: which kernels, on which
//! buffers and weights.

use crate::error::{Fault, Result};
use crate::gpu::run::launch;
use crate::gpu::run::launch::Entries;
use crate::gpu::run::launch::Launch;
use crate::gpu::run::launch::Rows;
use crate::gpu::run::scratch;
use crate::gpu::run::scratch::Scratch;
use crate::gpu::run::scratch::Shape;
use crate::gpu::run::scratch::padded;
use crate::gpu::run::weights;
use crate::gpu::run::weights::Layout;
use crate::gpu::run::weights::Placed;
use crate::gpu::run::weights::Pools;
use crate::model::Layer;
use crate::model::Model;
use crate::model::Op;
use crate::model::shape::Attention;
use crate::model::shape::Experts;
use crate::model::shape::FeedForward;
use crate::plan::Place;
use crate::plan::Planned;
use crate::plan::Role;

/// Messages that take turns; as many as a group of ranks has.
const SETS: u64 = 3;

/// Where a rank's sums go in and come out.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// Address of the first set of inputs.
    pub input: u64,
    /// Address of the first set of outputs.
    pub output: u64,
    /// Bytes from one set to the next.
    pub set_bytes: u64,
}

/// The set of the all-reduce after which a place's output is whole.
pub fn set_of(place: Place, role: Role) -> u64 {
    let index = match (place, role) {
        (Place::Layer(layer), Role::AttnAllreduce) => 1 + 2 * u64::from(layer),
        (Place::Layer(layer), _) => 2 + 2 * u64::from(layer),
        _ => 0,
    };
    index % SETS
}

/// One rank's view of the pass.
pub struct Lowering<'a> {
    /// The model.
    pub model: &'a Model,
    /// Sizes.
    pub shape: Shape,
    /// This rank.
    pub rank: u64,
    /// Where weights lie in the pools.
    pub layout: &'a Layout,
    /// This rank's pools.
    pub pools: &'a Pools,
    /// This rank's buffers.
    pub scratch: &'a Scratch,
    /// Address of each layer's cache.
    pub caches: &'a [u64],
    /// This rank's sums.
    pub exchange: Exchange,
}

impl Lowering<'_> {
    /// The launches of a computation.
    ///
    /// # Errors
    /// `run-model` for operations that no kernel does.
    pub fn launches(&self, planned: &Planned<'_>) -> Result<Vec<Launch>> {
        let Some(op) = planned.action.compute() else { return Ok(Vec::new()) };
        let place = planned.id.place;
        match place {
            Place::Embedding => self.embedding(op, place),
            Place::Head => self.head(op, place),
            Place::Layer(index) => {
                let layer = self.model.layer(index as usize).ok_or_else(|| self.unknown(op))?;
                match self.attention(op, place, layer)? {
                    Some(launches) => Ok(launches),
                    None => self.feed_forward(op, place, layer),
                }
            }
            _ => Err(self.unknown(op)),
        }
    }

    fn unknown(&self, op: &Op) -> Box<Fault> {
        Fault::new("run-model", format!("no kernel here does `{}` of {}", op.name, self.model.id))
    }

    fn at(&self, name: &'static str) -> Result<u64> {
        self.scratch.at(name)
    }

    fn weight(&self, place: Place, name: &'static str) -> Result<(&Placed, (u64, u64))> {
        let placed = self.layout.get(place, name)?;
        Ok((placed, self.pools.addresses(placed)))
    }

    /// Where the sum after `place` and `role` goes in.
    pub fn sum_in(&self, place: Place, role: Role) -> u64 {
        self.exchange.input + set_of(place, role) * self.exchange.set_bytes
    }

    /// Where it comes out.
    pub fn sum_out(&self, place: Place, role: Role) -> u64 {
        self.exchange.output + set_of(place, role) * self.exchange.set_bytes
    }

    fn rows(&self) -> u64 {
        self.shape.rows
    }

    /// A product of plain rows; `whole_k` is the length of the sum over all ranks.
    fn product(&self, place: Place, name: &'static str, x: Rows, y: Rows, whole_k: u64) -> Result<Vec<Launch>> {
        let (placed, at) = self.weight(place, name)?;
        Ok(vec![launch::matvec(&placed.matrix, at, x, y, self.rows(), 1.0 / libm::sqrt(whole_k as f64), None)])
    }

    fn hidden_rows(&self, at: u64) -> Rows {
        Rows::plain(at, self.shape.hidden)
    }

    fn embedding(&self, op: &Op, place: Place) -> Result<Vec<Launch>> {
        let (_, (table, _)) = self.weight(place, op.name)?;
        let share = self.shape.share;
        let output = self.sum_in(place, Role::EmbedAllreduce);
        Ok(vec![launch::embed(self.at("tokens")?, table, output, self.shape.hidden, self.rank * share, share, self.rows())])
    }

    fn head(&self, op: &Op, place: Place) -> Result<Vec<Launch>> {
        let (rows, share) = (self.rows(), self.shape.share);
        match op.name {
            "final_norm" => Ok(vec![self.norm(op.name, place)?]),
            "lm_head" => {
                let x = self.hidden_rows(self.at("final")?);
                self.product(place, op.name, x, Rows::plain(self.at("logits")?, share), self.shape.hidden)
            }
            "sample" => {
                let logits = if self.shape.tp > 1 { "gathered" } else { "logits" };
                let (best, tokens) = (self.at("best")?, self.at("chosen_tokens")?);
                Ok(launch::sample(self.at(logits)?, best, tokens, self.shape.tp, rows, share, self.shape.vocabulary).to_vec())
            }
            _ => Err(self.unknown(op)),
        }
    }

    /// Where a norm's input comes from and its output goes.
    pub fn norm_buffers(&self, name: &str, place: Place) -> Result<(u64, u64)> {
        let before = match (place, name) {
            (Place::Layer(_), "post_attention_norm") => self.sum_out(place, Role::AttnAllreduce),
            (Place::Layer(0), _) => self.sum_out(Place::Embedding, Role::EmbedAllreduce),
            (Place::Layer(layer), _) => self.sum_out(Place::Layer(layer - 1), Role::MlpAllreduce),
            _ => self.sum_out(Place::Layer(self.model.layers.len() as u32 - 1), Role::MlpAllreduce),
        };
        let after = match name {
            "post_attention_norm" => "normed_feed",
            "final_norm" => "final",
            _ => "normed",
        };
        Ok((before, self.at(after)?))
    }

    /// A norm with the residual add; the first has nothing to add.
    fn norm(&self, name: &'static str, place: Place) -> Result<Launch> {
        let (input, output) = self.norm_buffers(name, place)?;
        let residual = self.at("residual")?;
        let added = if place == Place::Layer(0) && name == "input_norm" { 0 } else { residual };
        let (_, (weight, _)) = self.weight(place, name)?;
        let (rows, hidden) = (self.rows(), self.shape.hidden);
        Ok(launch::rms_norm(self.hidden_rows(input), (added, residual), weight, self.hidden_rows(output), hidden, rows, 1))
    }

    fn attention(&self, op: &Op, place: Place, layer: &Layer) -> Result<Option<Vec<Launch>>> {
        match (op.name, &layer.attention) {
            ("input_norm" | "post_attention_norm", _) => Ok(Some(vec![self.norm(op.name, place)?])),
            ("attention", _) => {
                let heads = scratch::attention_of(&self.shape, layer)?;
                let sinks = match &layer.attention {
                    Attention::Gqa(gqa) if gqa.sinks => self.weight(place, weights::SINKS)?.1.0,
                    _ => 0,
                };
                let between = (self.at("parts")?, self.at("sums")?);
                let cache = self.cache(place);
                Ok(Some(launch::attention(&heads, self.at("query")?, cache, between, self.at("attended")?, sinks).to_vec()))
            }
            (_, Attention::Mla(_)) => self.mla(op, place, layer),
            (_, Attention::Gqa(_)) => self.gqa(op, place, layer),
            _ => Ok(None),
        }
    }

    fn cache(&self, place: Place) -> u64 {
        place.layer().and_then(|layer| self.caches.get(layer as usize)).copied().unwrap_or(0)
    }

    fn mla(&self, op: &Op, place: Place, layer: &Layer) -> Result<Option<Vec<Launch>>> {
        let Attention::Mla(mla) = &layer.attention else { return Ok(None) };
        let rows = self.rows();
        let heads = scratch::heads_of(&self.shape, layer).0;
        let (line, head) = (mla.line(), mla.nope + mla.rope);
        let width = mla.q_rank + line;
        let qkv = self.at("qkv_a")?;
        let query = |offset: u64| self.at("query").map(|at| Rows { at: at + offset * 2, row: heads * line, batch: line });
        let launches = match op.name {
            "qkv_a_proj" => {
                self.product(place, op.name, self.hidden_rows(self.at("normed")?), Rows::plain(qkv, width), self.shape.hidden)?
            }
            "qkv_a_norm" => {
                let one = |offset: u64, name: &'static str, to: &'static str, width_out: u64| -> Result<Launch> {
                    let (_, (weight, _)) = self.weight(place, name)?;
                    let input = Rows::plain(qkv + offset * 2, width);
                    Ok(launch::rms_norm(input, (0, 0), weight, Rows::plain(self.at(to)?, width_out), width_out, rows, 1))
                };
                vec![one(0, op.name, "q_a", mla.q_rank)?, one(mla.q_rank, weights::SECOND_NORM, "kv_a", mla.kv_rank)?]
            }
            "q_b_proj" => {
                let x = Rows::plain(self.at("q_a")?, mla.q_rank);
                self.product(place, op.name, x, Rows::plain(self.at("q_b")?, heads * head), mla.q_rank)?
            }
            "k_up_absorbed" => {
                let x = Rows { at: self.at("q_b")?, row: heads * head, batch: head };
                self.product(place, op.name, x, query(0)?, mla.nope)?
            }
            "rope_cache_write" => {
                let turns = self.at("turns")?;
                let from = Rows { at: self.at("q_b")? + mla.nope * 2, row: heads * head, batch: head };
                let key = Rows::plain(qkv + (mla.q_rank + mla.kv_rank) * 2, width);
                let target = self.cache(place) + self.shape.context * line * 2;
                let latent = (Rows::plain(self.at("kv_a")?, mla.kv_rank), Rows::plain(target, line), mla.kv_rank);
                vec![
                    launch::rotate(from, query(mla.kv_rank)?, mla.rope, turns, None, rows, heads),
                    launch::rotate(key, Rows::plain(target + mla.kv_rank * 2, line), mla.rope, turns, Some(latent), rows, 1),
                ]
            }
            "v_up_absorbed" => {
                let x = Rows { at: self.at("attended")?, row: heads * mla.kv_rank, batch: mla.kv_rank };
                let y = Rows { at: self.at("values")?, row: heads * mla.value, batch: mla.value };
                self.product(place, op.name, x, y, mla.kv_rank)?
            }
            "o_proj" => {
                let x = Rows::plain(self.at("values")?, heads * mla.value);
                let y = self.hidden_rows(self.sum_in(place, Role::AttnAllreduce));
                self.product(place, op.name, x, y, mla.heads * mla.value)?
            }
            _ => return Ok(None),
        };
        Ok(Some(launches))
    }

    fn gqa(&self, op: &Op, place: Place, layer: &Layer) -> Result<Option<Vec<Launch>>> {
        let Attention::Gqa(gqa) = &layer.attention else { return Ok(None) };
        let rows = self.rows();
        let (heads, groups) = scratch::heads_of(&self.shape, layer);
        let width = gqa.head_dim;
        let row = (heads + 2 * groups) * width;
        let qkv = |head: u64| self.at("qkv").map(|at| Rows { at: at + head * width * 2, row, batch: width });
        let launches = match op.name {
            "qkv_proj" => {
                let x = self.hidden_rows(self.at("normed")?);
                self.product(place, op.name, x, Rows::plain(self.at("qkv")?, row), self.shape.hidden)?
            }
            "qk_norm" => {
                let one = |from: u64, count: u64, name: &'static str| -> Result<Launch> {
                    let (_, (weight, _)) = self.weight(place, name)?;
                    Ok(launch::rms_norm(qkv(from)?, (0, 0), weight, qkv(from)?, width, rows, count))
                };
                vec![one(0, heads, op.name)?, one(heads, groups, weights::SECOND_NORM)?]
            }
            "rope_cache_write" => {
                let turns = self.at("turns")?;
                let line = 2 * groups * width;
                let target = self.cache(place) + self.shape.context * line * 2;
                let to = |head: u64| Rows { at: target + head * width * 2, row: line, batch: width };
                let query = Rows { at: self.at("query")?, row: heads * width, batch: width };
                let values = (qkv(heads + groups)?, to(groups), width);
                vec![
                    launch::rotate(qkv(0)?, query, width, turns, None, rows, heads),
                    launch::rotate(qkv(heads)?, to(0), width, turns, Some(values), rows, groups),
                ]
            }
            "o_proj" => {
                let x = Rows::plain(self.at("attended")?, heads * width);
                let y = self.hidden_rows(self.sum_in(place, Role::AttnAllreduce));
                self.product(place, op.name, x, y, gqa.heads * width)?
            }
            _ => return Ok(None),
        };
        Ok(Some(launches))
    }

    fn feed_forward(&self, op: &Op, place: Place, layer: &Layer) -> Result<Vec<Launch>> {
        let out = self.sum_in(place, Role::MlpAllreduce);
        let (rows, hidden, tp) = (self.rows(), self.shape.hidden, self.shape.tp);
        let feed = self.hidden_rows(self.at("normed_feed")?);
        let (names, whole, output) = match (&layer.feed_forward, op.name.starts_with("shared_")) {
            (FeedForward::Dense(dense), _) => (["gate_up", "inner"], dense.intermediate, out),
            (FeedForward::Experts(experts), true) => match &experts.shared {
                Some(shared) if !shared.gated => (["shared_up", "shared_inner"], shared.intermediate, self.at("shared")?),
                _ => return Err(self.unknown(op)),
            },
            (FeedForward::Experts(experts), false) => return self.experts(op, place, experts),
        };
        let inner = whole / tp;
        match op.name {
            "gate_up_proj" | "shared_gate_up_proj" => {
                self.product(place, op.name, feed, Rows::plain(self.at(names[0])?, 2 * inner), hidden)
            }
            "act" | "shared_act" => {
                let input = Rows::plain(self.at(names[0])?, 2 * inner);
                Ok(vec![launch::activate(input, Rows::plain(self.at(names[1])?, padded(inner)), inner, rows)])
            }
            "down_proj" | "shared_down_proj" => {
                let x = Rows::plain(self.at(names[1])?, padded(inner));
                self.product(place, op.name, x, self.hidden_rows(output), whole)
            }
            "shared_add" => Ok(vec![launch::add(self.at("experts_out")?, self.at("shared")?, out, rows * hidden)]),
            _ => Err(self.unknown(op)),
        }
    }

    fn experts(&self, op: &Op, place: Place, experts: &Experts) -> Result<Vec<Launch>> {
        let (rows, hidden) = (self.rows(), self.shape.hidden);
        let pairs = rows * experts.top_k;
        let feed = self.hidden_rows(self.at("normed_feed")?);
        let (chosen, chosen_weights) = (self.at("chosen")?, self.at("chosen_weights")?);
        let (entries, count_at) = (self.at("entries")?, self.at("entry_count")?);
        if op.name == "router" {
            let scores = self.at("scores")?;
            let mut all = self.product(place, op.name, feed, Rows::plain(scores, experts.experts), hidden)?;
            let correction = if experts.correction_bias { self.weight(place, weights::CORRECTION)?.1.0 } else { 0 };
            all.push(launch::top_k(scores, correction, chosen, chosen_weights, experts.experts, experts.top_k, rows));
            all.push(launch::align(chosen, entries, count_at, pairs, experts.experts));
            return Ok(all);
        }
        if op.name != "experts" {
            return Err(self.unknown(op));
        }
        let inner = experts.intermediate / self.shape.tp;
        let up = Rows::plain(self.at("pair_up")?, 2 * inner);
        let between = Rows::plain(self.at("pair_inner")?, padded(inner));
        let pair_out = self.at("pair_out")?;
        let list = |divisor: u64| Some(Entries { at: entries, count_at, most: pairs.min(experts.experts), divisor });
        let scale = |whole: u64, store: weights::Store| if store == weights::Store::Mxfp4 { 0.55 } else { 1.0 } / libm::sqrt(whole as f64);
        let (first, first_at) = self.weight(place, op.name)?;
        let (second, second_at) = self.weight(place, weights::EXPERTS_DOWN)?;
        let output = if experts.shared.is_some() { self.at("experts_out")? } else { self.sum_in(place, Role::MlpAllreduce) };
        Ok(vec![
            launch::matvec(&first.matrix, first_at, feed, up, pairs, scale(hidden, first.matrix.store), list(experts.top_k)),
            launch::activate(up, between, inner, pairs),
            launch::matvec(
                &second.matrix,
                second_at,
                between,
                self.hidden_rows(pair_out),
                pairs,
                scale(experts.intermediate, second.matrix.store),
                list(1),
            ),
            launch::combine(pair_out, chosen_weights, output, hidden, experts.top_k, rows),
        ])
    }
}
