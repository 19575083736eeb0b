//! The search: bounds first, times only where a bound leaves a doubt.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::case::Policy;
use crate::case::Prices;
use crate::case::Question;
use crate::case::answer_at;
use crate::case::groups::Message;
use crate::case::roads::Roads;
use crate::decide::rank::PREFILL_TOKENS;
use crate::decide::speculate::acceptance;
use crate::decide::speculate::beside;
use crate::decide::speculate::grid::cycle_of;
use crate::decide::speculate::grid::stage_of;
use crate::error::Fault;
use crate::error::Result;
use crate::model::Phase;
use crate::model::Workload;
use crate::plan::Partition;
use crate::strategy::Logical;
use crate::strategy::Strategy;
use crate::units::Time;

use super::Choice;
use super::Looked;
use super::Prefill;
use super::Request;
use super::market::Deal;
use super::market::Market;
use super::shape::Shape;
use super::shape::Size;
use super::world::World;
use super::world::worlds;

/// A strategy for one size.
#[derive(Clone)]
struct Way {
    strategy: &'static Strategy,
    deals: Vec<(Deal, u64)>,
    /// Norms that it leaves to kernels of their own.
    norms: Time,
}

/// One process that a shape can run in, and the ways of each of its sizes.
struct Entered<'w> {
    world: &'w World,
    ways: Vec<Vec<Way>>,
    /// No policy of it takes less.
    least: Time,
}

pub(super) struct Search<'a> {
    request: &'a Request<'a>,
    market: Market<'a>,
    worlds: Rc<[World]>,
    exhaustive: bool,
    pub refused: BTreeMap<(&'static str, Partition), String>,
}

impl<'a> Search<'a> {
    pub fn new(request: &'a Request<'a>, exhaustive: bool) -> Search<'a> {
        let market = Market::new(&request.case.machine, &request.case.environment, request.case.question().row_bytes());
        let worlds = worlds(&request.strategies, &request.channels).into();
        Search { request, market, worlds, exhaustive, refused: BTreeMap::new() }
    }

    /// Collectives simulated, and lowered.
    pub fn counts(&self) -> (u64, u64) {
        self.market.counts()
    }

    fn question(&self, partition: Partition) -> Question<'a> {
        Question { partition, ..self.request.case.question() }
    }

    /// A number of drafts and a split.
    ///
    /// # Errors
    /// Splits that do not divide, bad workloads, models without the layer that is to draft.
    pub fn shape(&mut self, drafts: u64, partition: Partition) -> Result<Shape> {
        if partition.micro_batches > 1 {
            return Err(Fault::new("partition-bad-value", "halves that take turns are no sum of parts: lanecast rank simulates them"));
        }
        let cycle = (drafts > 0).then(|| acceptance::Shape::chain(drafts));
        let context = self.market.context(partition, 0);
        let stage = stage_of(&self.question(partition), &self.request.drafter, cycle, &context)?;
        let beside = beside(&self.request.case.speculation, &self.request.drafter, &self.request.acceptance, cycle);
        Ok(Shape::new(drafts, cycle, partition, stage, beside))
    }

    /// The best policy of a shape, if any gives more than `incumbent` tokens per second.
    pub fn solve(&mut self, shape: &Shape, incumbent: f64) -> Result<Looked> {
        let bound = shape.tokens_per_s(shape.floor());
        if !self.exhaustive && bound <= incumbent {
            return Ok(Looked::AtMost(bound));
        }
        let strategies = self.admitted(shape.partition);
        let worlds = Rc::clone(&self.worlds);
        let mut reasons: Vec<String> = Vec::new();
        let mut entered: Vec<Entered<'_>> = Vec::new();
        for world in worlds.iter() {
            let ways = shape.sizes.iter().map(|size| self.ways(shape.partition, world, size, &strategies, &mut reasons));
            let ways: Vec<Vec<Way>> = ways.collect();
            if ways.iter().all(|ways| !ways.is_empty()) {
                let least = shape.floor() + ways.iter().map(|ways| self.least(&ways[0])).sum();
                entered.push(Entered { world, ways, least });
            }
        }
        entered.sort_by_key(|entered| entered.least);
        let Some(first) = entered.first() else {
            return Ok(Looked::Refused(if reasons.is_empty() { "no strategy can run".to_owned() } else { reasons.join("; ") }));
        };
        let bound = shape.tokens_per_s(first.least);
        let mut best: Option<Choice> = None;
        for entered in &entered {
            let known = best.as_ref().map_or(incumbent, |best| best.tokens_per_s);
            if let Some(choice) = self.enter(shape, entered, known)?
                && choice.tokens_per_s > best.as_ref().map_or(0.0, |best| best.tokens_per_s)
            {
                best = Some(choice);
            }
        }
        Ok(best.map_or(Looked::AtMost(bound), Looked::Best))
    }

    /// Strategies that run on the ranks of a split.
    fn admitted(&mut self, partition: Partition) -> Vec<&'static Strategy> {
        let context = self.market.context(partition, 0);
        let mut admitted = Vec::new();
        for &strategy in &self.request.strategies {
            let reason = if splits_so(strategy, partition) {
                strategy.refusal(&context)
            } else {
                Some("the strategy splits the model in its own way".to_owned())
            };
            match reason {
                Some(reason) => {
                    self.refused.insert((strategy.id, partition), reason);
                }
                None => admitted.push(strategy),
            }
        }
        admitted
    }

    /// Strategies of a process for a size, the one with the least bound first.
    fn ways(
        &mut self,
        partition: Partition,
        world: &World,
        size: &Size,
        strategies: &[&'static Strategy],
        reasons: &mut Vec<String>,
    ) -> Vec<Way> {
        let mut ways: Vec<(Time, Way)> = Vec::new();
        for &strategy in strategies.iter().filter(|strategy| world.admits(strategy)) {
            let deals = size
                .messages
                .iter()
                .map(|&(message, count)| self.market.deal(partition, world.channels, strategy, message).map(|deal| (deal, count)));
            match deals.collect::<std::result::Result<Vec<(Deal, u64)>, String>>() {
                // NCCL with nothing set is not what stands in where variables are set.
                Ok(deals) if !world.is_plain() && deals.iter().any(|(deal, _)| deal.stands_in) => {}
                Ok(deals) => {
                    let norms = if strategy.fuses_norm { Time::ZERO } else { size.saving };
                    let way = Way { strategy, deals, norms };
                    ways.push((self.least(&way), way));
                }
                Err(reason) if !reasons.contains(&reason) => reasons.push(reason),
                Err(_) => {}
            }
        }
        ways.sort_by_key(|(least, _)| *least);
        ways.into_iter().map(|(_, way)| way).collect()
    }

    fn least(&self, way: &Way) -> Time {
        way.norms + way.deals.iter().map(|(deal, count)| self.market.least(deal).times(*count)).sum()
    }

    fn known(&self, way: &Way) -> Option<Time> {
        way.deals.iter().try_fold(way.norms, |sum, (deal, count)| Some(sum + self.market.known(deal)?.times(*count)))
    }

    /// What a way takes, unless that is shown not to be less than `limit`: no more is simulated than that asks for.
    fn time(&mut self, way: &Way, limit: Option<Time>) -> Result<Option<Time>> {
        for (deal, _) in &way.deals {
            if !self.exhaustive && limit.is_some_and(|limit| self.least(way) >= limit) {
                return Ok(None);
            }
            self.market.time(deal)?;
        }
        Ok(self.known(way))
    }

    /// The best policy of a process, if it gives more than `incumbent` tokens per second.
    fn enter(&mut self, shape: &Shape, entered: &Entered<'_>, incumbent: f64) -> Result<Option<Choice>> {
        let mut picked: Vec<Time> = Vec::with_capacity(shape.sizes.len());
        for ways in &entered.ways {
            // Bounds get sharper as others are simulated.
            let rest: Time = entered.ways[picked.len()..].iter().filter_map(|ways| ways.iter().map(|way| self.least(way)).min()).sum();
            let least = shape.floor() + picked.iter().copied().sum() + rest;
            if !self.exhaustive && shape.tokens_per_s(least) <= incumbent {
                return Ok(None);
            }
            let mut best: Option<Time> = None;
            for way in ways {
                if let Some(time) = self.time(way, best)? {
                    best = Some(best.map_or(time, |best| best.min(time)));
                }
            }
            let Some(best) = best else { return Ok(None) };
            picked.push(best);
        }
        let total = shape.floor() + picked.iter().copied().sum();
        if shape.tokens_per_s(total) <= incumbent {
            return Ok(None);
        }
        let policy = self.policy(shape, entered, &picked);
        self.choice(shape, entered.world, policy).map(Some)
    }

    /// A strategy for each size that takes no more than was found; that of the size below where it is one of them.
    fn policy(&self, shape: &Shape, entered: &Entered<'_>, picked: &[Time]) -> Policy {
        let mut rows: Vec<(u64, &'static Strategy)> = Vec::new();
        for ((size, ways), time) in shape.sizes.iter().zip(&entered.ways).zip(picked) {
            let equal =
                |strategy: &&'static Strategy| ways.iter().any(|way| way.strategy.id == strategy.id && self.known(way) == Some(*time));
            let before = rows.last().map(|(_, strategy)| *strategy).filter(|strategy| equal(strategy));
            let Some(strategy) = before.or_else(|| self.request.strategies.iter().copied().find(equal)) else { continue };
            match rows.last_mut() {
                Some((most, last)) if last.id == strategy.id => *most = size.bytes,
                _ => rows.push((size.bytes, strategy)),
            }
        }
        if let Some((most, _)) = rows.last_mut() {
            *most = u64::MAX;
        } else {
            rows.extend(self.request.strategies.first().map(|strategy| (u64::MAX, *strategy)));
        }
        Policy { rows }
    }

    /// What a policy gives, added up anew.
    fn choice(&mut self, shape: &Shape, world: &World, policy: Policy) -> Result<Choice> {
        let mut fault = None;
        let chosen = |bytes: u64| policy.of(bytes).unwrap_or(policy.rows[0].1);
        let [pass, draft] = shape.times(chosen, |strategy, message| {
            let deal = self.market.deal(shape.partition, world.channels, strategy, message);
            let time = deal.map_err(|reason| Fault::new("strategy-infeasible", reason)).and_then(|deal| self.market.time(&deal));
            time.unwrap_or_else(|met| {
                fault = Some(met);
                Time::ZERO
            })
        });
        if let Some(fault) = fault {
            return Err(fault);
        }
        Ok(Choice {
            drafts: shape.drafts,
            cycle: shape.cycle,
            partition: shape.partition,
            channels: world.channels,
            policy,
            pass,
            draft,
            host_ms: shape.host_ms,
            expected: shape.expected,
            tokens_per_s: shape.tokens_per_s(pass + draft),
            world: world.clone(),
            served: shape.sizes.last().map_or(0, |size| size.bytes),
        })
    }

    /// The best for the larger all-reduces of a prefill chunk, as one more row of the policy.
    pub fn prefill(&mut self, best: &mut Choice) -> Result<Option<Prefill>> {
        let partition = best.partition;
        let mut question = self.question(partition);
        question.workload = Workload { batch: 1, ..Workload::new(Phase::Prefill, PREFILL_TOKENS, question.workload.context) };
        let bytes = layer_bytes(&question)?;
        if bytes == 0 {
            return Ok(None);
        }
        let size = Size { bytes, messages: vec![(Message { logical: Logical::AllReduce, bytes, stage: 0 }, 1)], saving: Time::ZERO };
        let last = best.policy.of(u64::MAX)?;
        let mut found: Option<(Time, &'static Strategy)> = None;
        let strategies = self.admitted(partition);
        let ways = self.ways(partition, &best.world, &size, &strategies, &mut Vec::new());
        for way in &ways {
            let limit = found.map(|(time, _)| time);
            if let Some(time) = self.time(way, limit)?
                && limit.is_none_or(|limit| time < limit)
            {
                found = Some((time, way.strategy));
            }
        }
        let Some((time, mut strategy)) = found else { return Ok(None) };
        // Of equals the strategy that is there already.
        if ways.iter().any(|way| way.strategy.id == last.id && self.known(way) == Some(time)) {
            strategy = last;
        }
        if bytes > best.served && strategy.id != last.id {
            if let Some((most, _)) = best.policy.rows.last_mut() {
                *most = best.served;
            }
            best.policy.rows.push((u64::MAX, strategy));
        }
        let serves = best.policy.of(bytes)?;
        Ok((serves.id == strategy.id).then_some(Prefill { bytes, strategy, time }))
    }

    /// A plain step under the policy and the split of a choice.
    pub fn plain(&mut self, choice: &Choice) -> Result<Time> {
        let shape = self.shape(0, choice.partition)?;
        Ok(self.choice(&shape, &choice.world, choice.policy.clone())?.pass)
    }

    /// The pass of a choice, simulated whole, without its draft steps.
    pub fn simulate(&mut self, choice: &Choice) -> Result<Time> {
        let (question, _) = cycle_of(&self.question(choice.partition), &self.request.drafter, choice.cycle)?;
        let context = self.market.context(choice.partition, choice.channels);
        let machine = question.machine;
        let prices = Prices::new(Roads::new(machine, context.searches.routes(machine)));
        Ok(answer_at(&question, &question.plan()?, &choice.policy, &context, &prices)?.pass)
    }
}

/// Whether a strategy runs under a split: most leave it open, some bring their own.
fn splits_so(strategy: &Strategy, partition: Partition) -> bool {
    let own = (strategy.partition)(partition.ranks());
    own == Partition::tensor(partition.ranks()) || own == partition
}

/// Bytes of the largest all-reduce of a question's layers.
fn layer_bytes(question: &Question<'_>) -> Result<u64> {
    let plan = question.plan()?;
    let actions = plan.expand(0);
    let layers = actions.iter().filter_map(|placed| placed.action.collective()).filter(|c| c.role.is_layer_allreduce());
    Ok(layers.map(|collective| collective.bytes).max().unwrap_or(0))
}
