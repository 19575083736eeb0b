//! The feed-forward half of a layer against the reference: gated networks,
//! the router's choice and the experts that it chose.

use crate::error::Result;
use crate::gpu::run::check::CheckRow;
use crate::gpu::run::check::Checker;
use crate::gpu::run::reference as r;
use crate::gpu::run::reference::Split;
use crate::gpu::run::reference::Values;
use crate::gpu::run::weights;
use crate::model::shape::Experts;
use crate::plan::Place;

impl Checker<'_> {
    /// A gated network of `whole` inner columns, dealt to the ranks; not rounded.
    pub(super) fn network(&self, place: Place, names: [&'static str; 2], whole: usize, x: &[Vec<f64>]) -> Result<Values> {
        let alpha = 1.0 / libm::sqrt(self.hidden() as f64);
        let up = r::rounded(self.weights.product(place, names[0], 0, Split::Outputs, x, alpha)?);
        let inner = activated(&up, whole / self.parts.ranks.len());
        self.weights.product(place, names[1], 0, Split::Inputs, &inner, 1.0 / libm::sqrt(whole as f64))
    }

    /// Routed and shared experts; the choice is the ranks' own, checked against the scores.
    pub(super) fn experts(&mut self, place: Place, experts: &Experts, x: &[Vec<f64>]) -> Result<Values> {
        let top_k = experts.top_k as usize;
        let (count, hidden) = (experts.experts as usize, self.hidden());
        let alpha = 1.0 / libm::sqrt(hidden as f64);
        let scores = self.weights.product(place, "router", 0, Split::None, x, alpha)?;
        let correction = match experts.correction_bias {
            true => Some(self.weights.vector(place, weights::CORRECTION, count)?),
            false => None,
        };
        let chosen = self.parts.ranks[0].scratch.read::<u32>("chosen", x.len() * top_k)?;
        let mut right = true;
        for me in self.parts.ranks {
            right &= me.scratch.read::<u32>("chosen", x.len() * top_k)? == chosen;
        }
        let mut out = vec![vec![0.0; hidden]; x.len()];
        let placed = self.parts.layout.get(place, "experts")?.matrix.store;
        let gain = if placed == weights::Store::Mxfp4 { 0.55 } else { 1.0 };
        let whole = experts.intermediate as usize;
        for (row, own) in x.iter().enumerate() {
            let ids = &chosen[row * top_k..(row + 1) * top_k];
            let (weights, valid) = routing(&scores[row], correction.as_deref(), ids);
            right &= valid;
            for (id, weight) in ids.iter().zip(weights) {
                let one = std::slice::from_ref(own);
                let up = r::rounded(self.weights.product(place, "experts", u64::from(*id), Split::Outputs, one, alpha * gain)?);
                let inner = activated(&up, whole / self.parts.ranks.len());
                let scale = gain / libm::sqrt(whole as f64);
                let down = self.weights.product(place, weights::EXPERTS_DOWN, u64::from(*id), Split::Inputs, &inner, scale)?;
                out[row].iter_mut().zip(&down[0]).for_each(|(sum, v)| *sum += weight * v);
            }
        }
        self.rows.push(CheckRow { what: format!("{place}.router"), relative_error: 0.0, right });
        if let Some(shared) = &experts.shared {
            let names = ["shared_gate_up_proj", "shared_down_proj"];
            let more = self.network(place, names, shared.intermediate as usize, x)?;
            out.iter_mut().flatten().zip(more.iter().flatten()).for_each(|(sum, v)| *sum += v);
        }
        Ok(r::rounded(out))
    }
}

/// `[gate of rank 0, up of rank 0, gate of rank 1, …]` → the inner values.
fn activated(up: &[Vec<f64>], share: usize) -> Values {
    let one = |row: &Vec<f64>| row.chunks(2 * share).flat_map(|part| (0..share).map(|i| r::activated(part[i], part[share + i]))).collect();
    up.iter().map(one).collect()
}

/// Weights of the chosen experts, and whether no other was clearly better:
/// scores stored in bf16 may swap neighbours.
fn routing(scores: &[f64], correction: Option<&[f64]>, ids: &[u32]) -> (Vec<f64>, bool) {
    const NEIGHBOURS: f64 = 0.02;
    let sigmoid = |x: f64| 1.0 / (1.0 + libm::exp(-x));
    let rank = |e: usize| correction.map_or(scores[e], |c| sigmoid(scores[e]) + c[e]);
    let distinct = ids.iter().enumerate().all(|(i, id)| (*id as usize) < scores.len() && !ids[..i].contains(id));
    if !distinct {
        return (vec![0.0; ids.len()], false);
    }
    let least = ids.iter().map(|id| rank(*id as usize)).fold(f64::INFINITY, f64::min);
    let best_other = (0..scores.len()).filter(|e| !ids.contains(&(*e as u32))).map(rank).fold(f64::NEG_INFINITY, f64::max);
    let worth = |id: u32| if correction.is_some() { sigmoid(scores[id as usize]) } else { libm::exp(scores[id as usize]) };
    let total: f64 = ids.iter().map(|id| worth(*id)).sum();
    (ids.iter().map(|id| worth(*id) / total).collect(), least >= best_other - NEIGHBOURS)
}
