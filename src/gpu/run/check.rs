//! The numbers of a pass against the reference: stage by stage, each from what
//! the ranks stored before it, so that one wrong kernel, shard or sum shows.

use crate::error::{Fault, Result};
use crate::gpu::run::Checked;
use crate::gpu::run::execute::Runner;
use crate::gpu::run::program::Parts;
use crate::gpu::run::program::Step;
use crate::gpu::run::program::Work;
use crate::gpu::run::ranks::token;
use crate::gpu::run::reference as r;
use crate::gpu::run::reference::Split;
use crate::gpu::run::reference::Values;
use crate::gpu::run::reference::Weights;
use crate::gpu::run::scratch;
use crate::gpu::run::weights;
use crate::model::Layer;
use crate::model::shape::Attention;
use crate::model::shape::FeedForward;
use crate::plan::Place;
use crate::plan::Plan;

/// ‖out − reference‖ / ‖reference‖ at most. A stage stores two or three times
/// in bf16, at 2^-9 of a value each (0.2 %); a shard, head or expert left out of
/// 64 is off by 12 %.
pub const ERROR_MAX: f64 = 0.01;

/// One comparison.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct CheckRow {
    /// Which buffer of which block, e.g. `L001.attended`.
    pub what: String,
    /// Largest relative error of all ranks.
    pub relative_error: f64,
    /// Whether it is within bounds.
    pub right: bool,
}

/// What has been compared so far.
pub(super) struct Checker<'a> {
    runner: &'a Runner<'a>,
    pub(super) parts: &'a Parts<'a>,
    pub(super) weights: Weights<'a>,
    pub(super) rows: Vec<CheckRow>,
}

/// Runs the pass step by step and compares the blocks that `which` names. Also
/// gives the distinct experts of a layer, the mean over layers.
///
/// # Errors
/// When a device fails. Wrong numbers are rows.
pub fn check(
    runner: &Runner<'_>,
    parts: &Parts<'_>,
    plan: &Plan,
    program: &[Vec<Step>],
    which: Checked,
) -> Result<(Vec<CheckRow>, Option<f64>)> {
    let weights = Weights { layout: parts.layout, ranks: parts.ranks };
    let mut checker = Checker { runner, parts, weights, rows: Vec::new() };
    let mut seen: Vec<u32> = Vec::new();
    let mut distinct: Vec<f64> = Vec::new();
    let planned = plan.expand(0);
    let starts: Vec<usize> = program[0].iter().enumerate().filter(|(_, step)| step.begins).map(|(index, _)| index).collect();
    for (n, from) in starts.iter().enumerate() {
        let to = starts.get(n + 1).copied().unwrap_or(program[0].len());
        let place = program[0][*from].id.place;
        let block = planned[*from].block.0;
        let last = matches!(place, Place::Layer(layer) if layer + 1 == plan.layers);
        let wanted = match which {
            Checked::None => false,
            Checked::All => true,
            Checked::Kinds => last || !seen.contains(&block),
        };
        seen.push(block);
        match place {
            _ if !wanted => runner.once(program, *from..to)?,
            Place::Layer(layer) => checker.layer(program, *from..to, layer)?,
            _ => {
                runner.once(program, *from..to)?;
                if place == Place::Embedding { checker.embedding()? } else { checker.head()? }
            }
        }
        if program[0][*from..to].iter().any(|step| step.id.name == "experts") {
            distinct.extend(parts.ranks[0].scratch.read::<u32>("entry_count", 1)?.first().map(|n| f64::from(*n)));
        }
    }
    let mean = distinct.iter().sum::<f64>() / distinct.len().max(1) as f64;
    Ok((checker.rows, (!distinct.is_empty()).then_some(mean)))
}

fn split_rows(data: Vec<f64>, rows: usize) -> Values {
    let width = data.len() / rows.max(1);
    data.chunks(width.max(1)).map(<[f64]>::to_vec).collect()
}

impl Checker<'_> {
    fn rows_count(&self) -> usize {
        self.parts.shape.rows as usize
    }

    pub(super) fn hidden(&self) -> usize {
        self.parts.shape.hidden as usize
    }

    fn read(&self, rank: usize, name: &'static str, width: usize) -> Result<Values> {
        let rows = self.rows_count();
        Ok(split_rows(r::widen(&self.parts.ranks[rank].scratch.read::<u16>(name, rows * width)?), rows))
    }

    fn compare(&mut self, what: String, expected: &[Vec<f64>], found: &[Values]) {
        let mut worst = 0.0_f64;
        for values in found {
            let (mut error, mut norm) = (0.0, 0.0);
            for (e, f) in expected.iter().flatten().zip(values.iter().flatten()) {
                error += (e - f) * (e - f);
                norm += e * e;
            }
            let relative = if norm > 0.0 { libm::sqrt(error / norm) } else { error };
            // A NaN is not right.
            worst = if relative <= worst { worst } else { relative };
        }
        let right = worst <= ERROR_MAX;
        match self.rows.iter_mut().find(|row| row.what == what) {
            Some(row) => {
                row.right &= right;
                row.relative_error = if worst <= row.relative_error { row.relative_error } else { worst };
            }
            None => self.rows.push(CheckRow { what, relative_error: worst, right }),
        }
    }

    /// What all ranks hold after a sum: the output of the exchange, by set.
    fn sums(&self, place: Place, role: crate::plan::Role) -> Result<Vec<Values>> {
        let (rows, hidden) = (self.rows_count(), self.hidden());
        let set = crate::gpu::run::lower::set_of(place, role);
        let mut all = Vec::new();
        for (rank, me) in self.parts.ranks.iter().enumerate() {
            let mut bits = vec![0_u16; rows * hidden];
            let offset = usize::try_from(set * me.exchange.set_bytes).unwrap_or(0);
            match self.parts.group {
                Some(group) => group.ranks[rank].output.read(offset, &mut bits)?,
                None => bits = me.scratch.read::<u16>("exchange", offset / 2 + rows * hidden)?.split_off(offset / 2),
            }
            all.push(split_rows(r::widen(&bits), rows));
        }
        Ok(all)
    }

    fn everywhere(&self, name: &'static str, width: usize) -> Result<Vec<Values>> {
        (0..self.parts.ranks.len()).map(|rank| self.read(rank, name, width)).collect()
    }

    fn embedding(&mut self) -> Result<()> {
        let share = self.parts.shape.share as usize;
        let expected = (0..self.parts.shape.rows)
            .map(|row| {
                let token = token(&self.parts.shape, row) as usize;
                self.weights.table_row(token / share, token % share, self.hidden())
            })
            .collect::<Result<Values>>()?;
        let found = self.sums(Place::Embedding, crate::plan::Role::EmbedAllreduce)?;
        self.compare("EMB.embedding".to_owned(), &expected, &found);
        Ok(())
    }

    fn head(&mut self) -> Result<()> {
        let (hidden, rows) = (self.hidden(), self.rows_count());
        let weight = self.weights.vector(Place::Head, "final_norm", hidden)?;
        let stored = self.read(0, "residual", hidden)?;
        let normed: Values = stored.iter().map(|row| r::rms_norm(row, &weight)).collect();
        let found = self.everywhere("final", hidden)?;
        self.compare("HEAD.final_norm".to_owned(), &normed, &found);
        let alpha = 1.0 / libm::sqrt(hidden as f64);
        let share = self.parts.shape.share as usize;
        let logits = r::rounded(self.weights.product(Place::Head, "lm_head", 0, Split::Outputs, &found[0], alpha)?);
        let mut gathered = Vec::new();
        for me in self.parts.ranks {
            let name = if self.parts.shape.tp > 1 { "gathered" } else { "logits" };
            let bits = r::widen(&me.scratch.read::<u16>(name, rows * share * self.parts.ranks.len())?);
            // [rank][row][share] → [row][rank x share].
            gathered.push((0..rows).map(|row| bits.chunks(share).skip(row).step_by(rows).flatten().copied().collect()).collect());
        }
        self.compare("HEAD.logits".to_owned(), &logits, &gathered);
        let vocabulary = self.parts.shape.vocabulary as usize;
        for (rank, me) in self.parts.ranks.iter().enumerate() {
            let chosen = me.scratch.read::<u32>("chosen_tokens", rows)?;
            for (row, token) in chosen.iter().enumerate() {
                let values: &[f64] = &gathered[rank][row][..vocabulary];
                let best = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let right = values.get(*token as usize).is_some_and(|v| *v == best);
                self.rows.push(CheckRow { what: format!("HEAD.sample row {row} rank {rank}"), relative_error: 0.0, right });
            }
        }
        Ok(())
    }

    /// Runs the steps from `from` until the step of that name is done.
    fn until(&self, program: &[Vec<Step>], from: usize, name: &str) -> Result<usize> {
        let found = program[0][from..].iter().position(|step| step.id.name == name);
        let to = from + found.ok_or_else(|| Fault::new("run-model", format!("a layer has no {name}")))? + 1;
        self.runner.once(program, from..to)?;
        Ok(to)
    }

    fn layer(&mut self, program: &[Vec<Step>], range: std::ops::Range<usize>, index: u32) -> Result<()> {
        let place = Place::Layer(index);
        let hidden = self.hidden();
        let model = self.parts.model;
        let layer = model.layer(index as usize).ok_or_else(|| Fault::new("run-model", format!("there is no layer {index}")))?;
        let next = self.until(program, range.start, "input_norm")?;
        let before = self.read(0, "residual", hidden)?;
        let weight = self.weights.vector(place, "input_norm", hidden)?;
        let normed: Values = before.iter().map(|row| r::rms_norm(row, &weight)).collect();
        let found = self.everywhere("normed", hidden)?;
        self.compare(format!("{place}.input_norm"), &normed, &found);
        let next = self.until(program, next, "post_attention_norm")?;
        let sum = self.attention(place, layer, &found[0])?;
        let expected: Values = before.iter().zip(&sum).map(|(a, b)| a.iter().zip(b).map(|(x, y)| r::round(x + y)).collect()).collect();
        let middle = self.everywhere("residual", hidden)?;
        self.compare(format!("{place}.attn_allreduce"), &expected, &middle);
        let weight = self.weights.vector(place, "post_attention_norm", hidden)?;
        let normed: Values = middle[0].iter().map(|row| r::rms_norm(row, &weight)).collect();
        let feed = self.everywhere("normed_feed", hidden)?;
        self.compare(format!("{place}.post_attention_norm"), &normed, &feed);
        self.runner.once(program, next..range.end)?;
        let out = match &layer.feed_forward {
            FeedForward::Dense(dense) => {
                let whole = dense.intermediate as usize;
                r::rounded(self.network(place, ["gate_up_proj", "down_proj"], whole, &feed[0])?)
            }
            FeedForward::Experts(experts) => self.experts(place, experts, &feed[0])?,
        };
        let fused = program[0].get(range.end).is_some_and(|step| matches!(step.work, Work::Done));
        if fused {
            let after: Values = middle[0].iter().zip(&out).map(|(a, b)| a.iter().zip(b).map(|(x, y)| r::round(x + y)).collect()).collect();
            let found = self.everywhere("residual", hidden)?;
            self.compare(format!("{place}.mlp_allreduce"), &after, &found);
        } else {
            let found = self.sums(place, crate::plan::Role::MlpAllreduce)?;
            self.compare(format!("{place}.mlp_allreduce"), &out, &found);
        }
        Ok(())
    }

    /// The output of attention before the residual add, rounded.
    fn attention(&mut self, place: Place, layer: &Layer, normed: &[Vec<f64>]) -> Result<Values> {
        let heads = scratch::attention_of(&self.parts.shape, layer)?;
        let query_heads = heads.heads.0 as usize;
        let index = place.layer().unwrap_or(0) as usize;
        let positions = (heads.context + heads.tokens) as usize;
        let sinks = match &layer.attention {
            Attention::Gqa(gqa) if gqa.sinks => Some(self.weights.vector(place, weights::SINKS, query_heads)?),
            _ => None,
        };
        let queries = self.queries(place, layer, normed)?;
        let mut attended: Vec<Values> = Vec::new();
        for (rank, me) in self.parts.ranks.iter().enumerate() {
            let lines = r::widen(&me.read_cache(index, positions * heads.line as usize)?);
            let group = query_heads / heads.heads.1.max(1) as usize;
            let width = heads.widths.0 as usize;
            let mut out: Values = Vec::new();
            for (token, row) in queries[rank].iter().enumerate() {
                let head = |h: usize| {
                    let sink = sinks.as_ref().map(|s| s[h]);
                    r::attend(&heads, &row[h * width..(h + 1) * width], &lines, h / group, token, sink)
                };
                out.push((0..query_heads).flat_map(head).collect());
            }
            let found = self.read(rank, "query", query_heads * width)?;
            self.compare(format!("{place}.query"), &queries[rank], &[found]);
            let found = self.read(rank, "attended", query_heads * heads.widths.1 as usize)?;
            self.compare(format!("{place}.attended"), &out, &[found]);
            attended.push(out);
        }
        let values = match &layer.attention {
            Attention::Mla(mla) => self.values(place, &attended, query_heads, mla.kv_rank as usize)?,
            _ => attended,
        };
        let whole: Values = (0..self.rows_count()).map(|row| values.iter().flat_map(|rank| rank[row].clone()).collect()).collect();
        let inputs = whole.first().map_or(1, Vec::len) as f64;
        Ok(r::rounded(self.weights.product(place, "o_proj", 0, Split::Inputs, &whole, 1.0 / libm::sqrt(inputs))?))
    }

    /// Queries of every rank as attention takes them, and the new lines of the cache compared.
    fn queries(&mut self, place: Place, layer: &Layer, normed: &[Vec<f64>]) -> Result<Vec<Values>> {
        let shape = self.parts.shape;
        let turns = scratch::turns(&shape, scratch::rotary_width(layer));
        let turn = |row: usize, width: usize| turns[row * width..(row + 1) * width].to_vec();
        let alpha = 1.0 / libm::sqrt(shape.hidden as f64);
        let heads = scratch::heads_of(&shape, layer).0 as usize;
        let mut all = Vec::new();
        match &layer.attention {
            Attention::Mla(mla) => {
                let (q_rank, nope, rope) = (mla.q_rank as usize, mla.nope as usize, mla.rope as usize);
                let down = r::rounded(self.weights.product(place, "qkv_a_proj", 0, Split::None, normed, alpha)?);
                let weight = self.weights.vector(place, "qkv_a_norm", q_rank)?;
                let q_a: Values = down.iter().map(|row| r::rms_norm(&row[..q_rank], &weight)).collect();
                let wide = r::rounded(self.weights.product(place, "q_b_proj", 0, Split::Outputs, &q_a, 1.0 / libm::sqrt(q_rank as f64))?);
                for rank in 0..self.parts.ranks.len() {
                    let mut rows: Values = Vec::new();
                    for (row, q) in wide.iter().enumerate() {
                        let mut line = Vec::new();
                        for head in 0..heads {
                            let own = &q[(rank * heads + head) * (nope + rope)..][..nope + rope];
                            let latent = self.weights.head(
                                rank,
                                place,
                                "k_up_absorbed",
                                head as u64,
                                &own[..nope],
                                1.0 / libm::sqrt(nope as f64),
                            )?;
                            line.extend(latent.into_iter().map(r::round));
                            line.extend(r::turned(&own[nope..], &turn(row, rope)));
                        }
                        rows.push(line);
                    }
                    all.push(rows);
                }
                self.lines(place, mla, &down, &turns)?;
            }
            Attention::Gqa(gqa) => {
                let width = gqa.head_dim as usize;
                let wide = r::rounded(self.weights.product(place, "qkv_proj", 0, Split::Outputs, normed, alpha)?);
                let weight = match gqa.qk_norm {
                    crate::model::shape::QkNorm::None => None,
                    _ => Some(self.weights.vector(place, "qk_norm", width)?),
                };
                let part = wide[0].len() / self.parts.ranks.len();
                for rank in 0..self.parts.ranks.len() {
                    let one = |row: usize, head: usize| {
                        let own = &wide[row][rank * part + head * width..][..width];
                        let own = weight.as_ref().map_or_else(|| own.to_vec(), |w| r::rms_norm(own, w));
                        r::turned(&own, &turn(row, width))
                    };
                    all.push((0..wide.len()).map(|row| (0..heads).flat_map(|head| one(row, head)).collect()).collect());
                }
            }
            Attention::GatedDelta(_) => {}
        }
        Ok(all)
    }

    /// The lines that the pass adds to MLA's cache.
    fn lines(&mut self, place: Place, mla: &crate::model::shape::Mla, down: &[Vec<f64>], turns: &[f32]) -> Result<()> {
        let (q_rank, kv_rank, rope) = (mla.q_rank as usize, mla.kv_rank as usize, mla.rope as usize);
        let weight = self.weights.vector(place, weights::SECOND_NORM, kv_rank)?;
        let expected: Values = down
            .iter()
            .enumerate()
            .map(|(row, line)| {
                let mut all = r::rms_norm(&line[q_rank..q_rank + kv_rank], &weight);
                all.extend(r::turned(&line[q_rank + kv_rank..], &turns[row * rope..(row + 1) * rope]));
                all
            })
            .collect();
        let width = kv_rank + rope;
        let (context, rows) = (self.parts.shape.context as usize, self.rows_count());
        let index = place.layer().unwrap_or(0) as usize;
        let mut found = Vec::new();
        for me in self.parts.ranks {
            let lines = r::widen(&me.read_cache(index, (context + rows) * width)?);
            found.push(split_rows(lines[context * width..].to_vec(), rows));
        }
        self.compare(format!("{place}.rope_cache_write"), &expected, &found);
        Ok(())
    }

    /// MLA's values of every rank from what its heads attended to.
    fn values(&self, place: Place, attended: &[Values], heads: usize, width: usize) -> Result<Vec<Values>> {
        let alpha = 1.0 / libm::sqrt(width as f64);
        let mut all = Vec::new();
        for (rank, rows) in attended.iter().enumerate() {
            let mut out: Values = vec![Vec::new(); rows.len()];
            for head in 0..heads {
                for (row, line) in rows.iter().zip(&mut out) {
                    let own = &row[head * width..(head + 1) * width];
                    line.extend(self.weights.head(rank, place, "v_up_absorbed", head as u64, own, alpha)?.into_iter().map(r::round));
                }
            }
            all.push(out);
        }
        Ok(all)
    }
}
