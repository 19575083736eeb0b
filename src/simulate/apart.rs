//! Passes whose collectives do not meet.
//!
//! Where a collective begins after all of the one before it is over (its flows,
//! and the credits on their way back), the ranks' arrivals alone decide its
//! course. Such courses are kept: a pass is put together from those of its
//! collectives, and so are other passes with the same collectives. The outcome
//! is the event loop's to the last bit but for the number of events; where
//! collectives do meet, there is none and the event loop has to be asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::OnceLock;
use std::sync::PoisonError;

use super::engine::Engine;
use super::engine::Ground;
use super::network::Network;
use super::outcome::CollectiveTotals;
use super::outcome::Outcome;
use super::program::Launch;
use super::program::Operation;
use super::program::Options;
use super::program::Program;
use super::program::Run;
use super::program::Template;
use super::stamp::Part;
use super::stamp::Stamp;
use super::timed::Timed;

/// Courses that are kept of one collective; ranks that drift apart make a new one each time.
const COURSES_MAX: usize = 256;

/// A collective alone on its network, and the courses it has taken.
pub struct Probe {
    program: Program,
    /// Its parts and the links at rest, once it has been asked for a course.
    ground: OnceLock<Option<Ground>>,
    known: Mutex<BTreeMap<Vec<u64>, Option<Arc<Course>>>>,
}

/// What one collective does, counted from the first arrival.
struct Course {
    /// Per rank: on whose arrival its end rests, and what came after that.
    ends: Vec<(usize, Stamp)>,
    /// When nothing of it is under way any more.
    over: u64,
    /// Bytes of each link.
    carried: Vec<u64>,
    events: u64,
}

impl Probe {
    /// A collective on links that are otherwise at rest.
    pub fn new(timed: Arc<Timed>, network: Network) -> Probe {
        let ranks = timed.ranks;
        Probe {
            program: Program {
                ranks,
                templates: vec![Template { operations: vec![Operation::Collective { collective: 0, beside: 0 }] }],
                sequence: vec![Run { template: 0, repeats: 1, members: u64::MAX >> 64usize.saturating_sub(ranks).min(63) }],
                collectives: vec![timed],
                network,
                launch: Launch::Graph { gap: 0 },
            },
            ground: OnceLock::new(),
            known: Mutex::default(),
        }
    }

    /// From all ranks' arrival at once to the last one's end; None where it does not end.
    pub fn alone(&self) -> Option<u64> {
        let timed = &self.program.collectives[0];
        if timed.blocks.is_empty() {
            return Some(0);
        }
        let course = self.course(&vec![0; self.program.ranks])?;
        course.ends.iter().map(|(_, end)| end.time).max()
    }

    /// The course from arrivals that are counted from the first; None where the
    /// event loop would have something to say about it.
    fn course(&self, arrivals: &[u64]) -> Option<Arc<Course>> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known().get(arrivals) {
            return known.clone();
        }
        let ground = self.ground.get_or_init(|| Ground::of(&self.program).ok());
        let found = ground.as_ref().and_then(|ground| run(&self.program, ground, arrivals)).map(Arc::new);
        let mut known = known();
        if known.len() >= COURSES_MAX {
            known.clear();
        }
        known.insert(arrivals.to_vec(), found.clone());
        found
    }
}

fn run(program: &Program, ground: &Ground, arrivals: &[u64]) -> Option<Course> {
    let mut engine = Engine::on(program, ground.clone(), Options { reuse: false, records: false });
    for (rank, &arrival) in arrivals.iter().enumerate() {
        // No launch has a part in a collective: the place holds whose arrival a stamp rests on.
        let mut ready = Stamp { time: arrival, ..Stamp::default() };
        ready.parts[Part::Launch as usize] = rank as u64;
        engine.state.ranks[rank].ready = ready;
    }
    engine.start().ok()?;
    if engine.state.ranks.iter().any(|rank| !rank.finished) || engine.unbalanced().is_some() {
        return None;
    }
    let ends = (engine.state.ranks.iter())
        .map(|rank| {
            let mut end = rank.ready;
            let origin = std::mem::take(&mut end.parts[Part::Launch as usize]) as usize;
            end.time -= arrivals[origin];
            (origin, end)
        })
        .collect();
    let slots = engine.state.slots.iter().map(|slot| slot.freed.time.max(slot.last.time));
    let fetched = engine.state.fetches.iter().filter_map(|fetch| fetch.ended).map(|ended| ended.time);
    let over = slots.chain(fetched).max().unwrap_or(0).max(engine.state.now);
    Some(Course { ends, over, carried: engine.fabric.carried(), events: engine.events })
}

/// The outcome of a program from its collectives' courses, `probes` in their
/// order. None where they meet, where computations run beside
/// them, or where not all ranks do the same.
pub fn outcome(program: &Program, probes: &[Arc<Probe>]) -> Option<Outcome> {
    let ranks = program.ranks;
    let all = u64::MAX >> 64usize.checked_sub(ranks).filter(|shift| *shift < 64)?;
    let mut pass = Pass {
        program,
        ready: vec![Stamp::default(); ranks],
        launched: vec![0; ranks],
        over: 0,
        begun: false,
        totals: vec![CollectiveTotals::default(); program.collectives.len()],
        carried: vec![0; program.network.capacity.len()],
        events: 0,
    };
    let stretches: Vec<Vec<Stretch>> = program.templates.iter().map(|template| stretches_of(program, template)).collect::<Option<_>>()?;
    for run in &program.sequence {
        if run.members != all {
            return None;
        }
        pass.repeat(run.repeats, &stretches[run.template as usize], probes)?;
    }
    let Pass { ready, totals, carried, events, .. } = pass;
    Some(Outcome { ends: ready, totals, carried, records: Vec::new(), events })
}

/// What a pass is made of here.
enum Stretch {
    /// Per rank, or one for all; and how many kernels.
    Computations {
        ps: Vec<u64>,
        launches: u32,
    },
    Collective(usize),
}

/// A template in stretches. The kernels of a graph follow one another without
/// a look at the host: those between two collectives are as one.
fn stretches_of(program: &Program, template: &Template) -> Option<Vec<Stretch>> {
    let joins = matches!(program.launch, Launch::Graph { .. });
    let mut stretches: Vec<Stretch> = Vec::new();
    for operation in &template.operations {
        match operation {
            Operation::Compute { ps, launches } => match stretches.last_mut() {
                Some(Stretch::Computations { ps: sum, launches: all }) if joins => {
                    if sum.len() < ps.len() {
                        sum.resize(ps.len(), sum[0]);
                    }
                    for (rank, sum) in sum.iter_mut().enumerate() {
                        *sum += if ps.len() == 1 { ps[0] } else { ps[rank] };
                    }
                    *all += launches;
                }
                _ => stretches.push(Stretch::Computations { ps: ps.clone(), launches: *launches }),
            },
            Operation::Collective { collective, beside: 0 } => stretches.push(Stretch::Collective(*collective as usize)),
            Operation::Collective { .. } => return None,
        }
    }
    Some(stretches)
}

#[derive(Clone)]
struct Pass<'a> {
    program: &'a Program,
    ready: Vec<Stamp>,
    launched: Vec<u64>,
    /// When the last collective was over.
    over: u64,
    begun: bool,
    totals: Vec<CollectiveTotals>,
    carried: Vec<u64>,
    events: u64,
}

impl Pass<'_> {
    /// Goes through a template so many times. Where a time has moved all ranks
    /// on by the same, all further ones will.
    fn repeat(&mut self, repeats: u32, stretches: &[Stretch], probes: &[Arc<Probe>]) -> Option<()> {
        for done in 1..=repeats {
            let before = (done < repeats).then(|| self.clone());
            for stretch in stretches {
                match stretch {
                    Stretch::Computations { ps, launches } => self.compute(ps, *launches),
                    Stretch::Collective(collective) => self.collective(*collective, probes)?,
                }
            }
            if let Some(before) = before
                && self.has_moved_evenly(&before)
            {
                self.move_on(&before, u64::from(repeats - done));
                break;
            }
        }
        Some(())
    }

    /// Whether all ranks, and what is under way, are as far from one another as before.
    fn has_moved_evenly(&self, before: &Pass<'_>) -> bool {
        let step = |rank: usize| self.ready[rank].since(&before.ready[rank]);
        let first = step(0);
        // The host's lead over the GPU is not part of what is compared.
        matches!(self.program.launch, Launch::Graph { .. })
            && before.begun
            && self.over - before.over == first.time
            && (1..self.ready.len()).all(|rank| step(rank) == first)
    }

    /// As many further times as `times`, each like the one since `before`.
    fn move_on(&mut self, before: &Pass<'_>, times: u64) {
        let grow = |total: &mut u64, then: u64| *total += (*total - then) * times;
        for (ready, then) in self.ready.iter_mut().zip(&before.ready) {
            *ready = ready.shifted(&ready.since(then), times);
        }
        for (launched, then) in self.launched.iter_mut().zip(&before.launched) {
            grow(launched, *then);
        }
        for (total, then) in self.totals.iter_mut().zip(&before.totals) {
            grow(&mut total.count, then.count);
            grow(&mut total.busy, then.busy);
            grow(&mut total.skew, then.skew);
            grow(&mut total.waited, then.waited);
            grow(&mut total.spent, then.spent);
        }
        for (carried, then) in self.carried.iter_mut().zip(&before.carried) {
            grow(carried, *then);
        }
        grow(&mut self.over, before.over);
        grow(&mut self.events, before.events);
    }

    fn compute(&mut self, ps: &[u64], launches: u32) {
        for (rank, ready) in self.ready.iter_mut().enumerate() {
            let ps = if ps.len() == 1 { ps[0] } else { ps[rank] };
            *ready = self.program.computed(rank, *ready, self.launched[rank], (ps, launches)).1;
            self.launched[rank] += u64::from(launches);
        }
    }

    fn collective(&mut self, collective: usize, probes: &[Arc<Probe>]) -> Option<()> {
        let timed = &self.program.collectives[collective];
        let has_blocks = |rank: usize| timed.rank_blocks[rank] < timed.rank_blocks[rank + 1];
        if !(0..self.program.ranks).any(has_blocks) {
            return Some(());
        }
        if timed.ranks != self.program.ranks || !(0..self.program.ranks).all(has_blocks) {
            return None;
        }
        let arrivals: Vec<Stamp> = (self.ready.iter().enumerate())
            .map(|(rank, ready)| self.program.launch_from(rank, *ready, self.launched[rank], timed.launches))
            .collect();
        let first = arrivals.iter().map(|arrival| arrival.time).min()?;
        let last = arrivals.iter().map(|arrival| arrival.time).max()?;
        if self.begun && first <= self.over {
            return None;
        }
        let relative: Vec<u64> = arrivals.iter().map(|arrival| arrival.time - first).collect();
        let course = probes.get(collective)?.course(&relative)?;
        let (mut arrived, mut ended, mut last_end) = (0u128, 0u128, 0);
        for (rank, (origin, more)) in course.ends.iter().enumerate() {
            let mut end = arrivals[*origin];
            end.time += more.time;
            for (part, more) in end.parts.iter_mut().zip(more.parts) {
                *part += more;
            }
            arrived += u128::from(arrivals[rank].time);
            ended += u128::from(end.time);
            last_end = end.time.max(last_end);
            self.ready[rank] = end;
            self.launched[rank] += u64::from(timed.launches);
        }
        let total = &mut self.totals[collective];
        total.count += 1;
        total.busy += last_end.saturating_sub(last);
        total.skew += last - first;
        total.waited += (u128::from(last) * self.program.ranks as u128 - arrived) as u64;
        total.spent += (ended - arrived) as u64;
        for (all, more) in self.carried.iter_mut().zip(&course.carried) {
            *all += more;
        }
        self.events += course.events;
        (self.over, self.begun) = (first + course.over, true);
        Some(())
    }
}
