//! What explains most of a difference.
//!
//! Differences stand in cells: a slot (name, layer) and a portion. Candidates
//! are groups of cells: a slow link's collectives, a rank that comes late, a
//! layer, an operation in all layers, the gaps. The largest is taken, its cells
//! are crossed out, and the next is sought among what is left.

use std::collections::BTreeMap;

use crate::compare::outcome::Comparison;
use crate::compare::outcome::Line;
use crate::compare::outcome::Micros;
use crate::compare::spent::Portion;

/// How many causes are named.
const CAUSES: usize = 3;
/// Causes below this share of all movement are noise.
const LEAST_SHARE: f64 = 0.01;
/// A link whose rate differs by less has not changed.
const LINK_CHANGE: f64 = 0.005;
/// A group is called by its largest cell when that holds as much of it.
const MOSTLY: f64 = 0.6;

/// Something that explains a part of the difference.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// What it is.
    pub what: What,
    /// By how much it makes the second trace's pass longer on the mean rank.
    pub us: f64,
}

/// What explains a part of the difference.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// A link's rate changed; the collectives that cross it.
    Link {
        /// `from > to`, and others that changed with it.
        links: Vec<String>,
        /// GB/s in both.
        gbps: [f64; 2],
        /// Collectives over it.
        operations: Vec<String>,
    },
    /// A rank arrives later (or earlier) at collectives.
    Rank {
        /// Which.
        rank: u32,
        /// What of it took longer on the rank itself: portion and microseconds.
        own: Option<(Portion, f64)>,
        /// Where it was latest in the second trace, and by how much.
        latest: Option<(f64, String)>,
        /// What the others waited for it, mean rank, in both.
        caused: [f64; 2],
    },
    /// A portion of one layer.
    Layer {
        /// Which.
        layer: u32,
        /// Which portion.
        portion: Portion,
        /// Time in both.
        us: [f64; 2],
        /// The operation that holds most of it.
        mostly: Option<String>,
    },
    /// A portion of one operation, in all layers or in one.
    Operation {
        /// Its name.
        name: String,
        /// The only layer, where there is one.
        layer: Option<u32>,
        /// Which portion.
        portion: Portion,
        /// Pairs on the mean rank.
        count: f64,
        /// Time in both.
        us: [f64; 2],
    },
    /// Gaps between kernels, everywhere.
    Gaps {
        /// Time in both.
        us: [f64; 2],
    },
    /// Operations that only one trace has.
    Unmatched {
        /// Which trace, 0 or 1.
        side: usize,
        /// How many on the mean rank.
        count: f64,
    },
}

/// How late one rank was.
#[derive(Clone, Debug, PartialEq)]
pub struct Late {
    /// Which.
    pub rank: u32,
    /// What others waited for it, on the mean rank, in both traces.
    pub caused: [f64; 2],
    /// Its own time by portion, in both.
    pub own: [Micros; 2],
    /// Where it was latest in the second trace.
    pub latest: Option<(f64, String)>,
}

/// A group of cells.
struct Candidate {
    what: What,
    us: f64,
    cells: Vec<(usize, usize)>,
}

/// The causes, largest first.
pub fn find(comparison: &Comparison, lines: &[Line], late: &[Late]) -> Vec<Cause> {
    let mut cells: Vec<Micros> = lines.iter().map(|line| Portion::ALL.map(|portion| line.portion_us(portion))).collect();
    let movement: f64 = cells.iter().flatten().map(|us| us.abs()).sum();
    let mut ranks: Vec<Option<&Late>> = late.iter().map(Some).collect();
    let mut links = links(comparison);
    let mut causes = Vec::new();
    let divisor = comparison.sides[0].ranks.max(1) as f64;
    while causes.len() < CAUSES {
        let mut candidates: Vec<Candidate> = Vec::new();
        candidates.extend(links.iter().filter_map(|what| of_link(what, lines, &cells, &ranks, divisor)));
        // Where a link changed, a rank that nothing else held up is late for the link's sake.
        let late = ranks.iter().flatten().filter(|late| links.is_empty() || held_up(late, divisor).is_some());
        candidates.extend(late.map(|late| of_rank(late, divisor)));
        candidates.extend(groups(lines, &cells, divisor * comparison.sides[0].passes.max(1) as f64));
        // The first of equals: the more telling ones come first.
        let best = candidates.into_iter().reduce(|best, next| if next.us.abs() > best.us.abs() * 1.000_001 { next } else { best });
        let Some(best) = best.filter(|best| best.us.abs() > (movement * LEAST_SHARE).max(1e-6)) else { break };
        for (line, portion) in &best.cells {
            cells[*line][*portion] = 0.0;
        }
        match &best.what {
            What::Link { .. } => {
                // What waiting is left is that of ranks which are late for reasons of their own.
                let own: f64 = ranks.iter().flatten().filter_map(|late| held_up(late, divisor)).sum();
                let all: f64 = cells.iter().map(|cell| cell[Portion::Skew as usize]).sum();
                take_off(&mut cells, Portion::Skew, all - own);
                ranks.iter_mut().filter(|late| late.is_some_and(|late| held_up(late, divisor).is_none())).for_each(|late| *late = None);
                links.clear();
            }
            What::Rank { rank, own, caused, .. } => {
                // What others waited for it stands in the skew of their collectives, what held it up in its own portion.
                ranks.iter_mut().filter(|late| late.is_some_and(|late| late.rank == *rank)).for_each(|late| *late = None);
                take_off(&mut cells, Portion::Skew, caused[1] - caused[0]);
                if let Some((portion, us)) = own {
                    take_off(&mut cells, *portion, us / divisor);
                }
            }
            _ => {}
        }
        causes.push(Cause { what: best.what, us: best.us });
    }
    causes
}

/// Takes `us` off the cells of a portion, in proportion.
fn take_off(cells: &mut [Micros], portion: Portion, us: f64) {
    let all: f64 = cells.iter().map(|cell| cell[portion as usize]).sum();
    let left = if all.abs() > 1e-9 { (1.0 - us / all).clamp(0.0, 1.0) } else { 0.0 };
    cells.iter_mut().for_each(|cell| cell[portion as usize] *= left);
}

/// Links whose rate changed, those of equal change together.
pub fn links(comparison: &Comparison) -> Vec<What> {
    let mut found: Vec<What> = Vec::new();
    for [a, b] in &comparison.links {
        if (b.gbps - a.gbps).abs() <= a.gbps * LINK_CHANGE || a.loads.is_empty() && b.loads.is_empty() {
            continue;
        }
        let operations: Vec<String> = a.loads.keys().chain(b.loads.keys()).map(|(name, _)| name.clone()).collect();
        let same = found.iter_mut().find_map(|what| match what {
            What::Link { links, gbps, operations } if *gbps == [a.gbps, b.gbps] => Some((links, operations)),
            _ => None,
        });
        match same {
            Some((links, known)) => {
                links.push(a.name.clone());
                known.extend(operations);
            }
            None => found.push(What::Link { links: vec![a.name.clone()], gbps: [a.gbps, b.gbps], operations }),
        }
    }
    for what in &mut found {
        if let What::Link { operations, .. } = what {
            operations.sort_unstable();
            operations.dedup();
        }
    }
    found
}

/// A link's collectives from the last arrival on, and the waiting that their
/// uneven ends cause; not the waiting for ranks that something else held up.
fn of_link(what: &What, lines: &[Line], cells: &[Micros], ranks: &[Option<&Late>], divisor: f64) -> Option<Candidate> {
    let What::Link { operations, .. } = what else { return None };
    let sum = |portion: Portion, lines: &[usize]| lines.iter().map(|line| cells[*line][portion as usize]).sum::<f64>();
    let over: Vec<usize> = (0..lines.len()).filter(|&line| operations.contains(&lines[line].name)).collect();
    let all: Vec<usize> = (0..lines.len()).collect();
    let others: f64 = ranks.iter().flatten().filter_map(|late| held_up(late, divisor)).sum();
    let us = sum(Portion::Transfer, &over) + sum(Portion::Skew, &all) - others;
    let cells = over.iter().map(|line| (*line, Portion::Transfer as usize)).collect();
    Some(Candidate { what: what.clone(), us, cells })
}

/// What others wait for a rank whose own compute or gaps changed enough to explain it.
fn held_up(late: &Late, ranks: f64) -> Option<f64> {
    let caused = late.caused[1] - late.caused[0];
    let own = own_change(late, caused)?.1;
    // All other ranks wait for as long as it is held up.
    (own.abs() * (ranks - 1.0) / ranks > caused.abs() / 2.0).then_some(caused)
}

/// The portion of a rank's own time that moved most in the direction of `sign`.
fn own_change(late: &Late, sign: f64) -> Option<(Portion, f64)> {
    let change = |portion: Portion| (portion, late.own[1][portion as usize] - late.own[0][portion as usize]);
    let own = [Portion::Compute, Portion::Launch, Portion::Other].map(change);
    own.into_iter().max_by(|a, b| (a.1 * sign.signum()).total_cmp(&(b.1 * sign.signum()))).filter(|(_, change)| change * sign > 0.0)
}

/// A rank's lateness: what others wait for it, and its share of the mean that it loses itself.
fn of_rank(late: &Late, ranks: f64) -> Candidate {
    let us = late.caused[1] - late.caused[0];
    let own = own_change(late, us);
    let mean = own.map_or(0.0, |(_, change)| change / ranks);
    let what = What::Rank { rank: late.rank, own, latest: late.latest.clone(), caused: late.caused };
    Candidate { what, us: if us.abs() > 1e-6 { us + mean } else { 0.0 }, cells: Vec::new() }
}

/// Gaps, layers, operations over all layers.
fn groups(lines: &[Line], cells: &[Micros], divisor: f64) -> Vec<Candidate> {
    let mut found = Vec::new();
    let sum = |members: &[(usize, usize)]| -> f64 { members.iter().map(|(line, portion)| cells[*line][*portion]).sum() };
    let times = |members: &[(usize, usize)]| {
        [0, 1].map(|side: usize| members.iter().map(|(line, portion)| lines[*line].spent[side][*portion]).sum::<f64>())
    };
    let gaps: Vec<(usize, usize)> = (0..lines.len()).map(|line| (line, Portion::Launch as usize)).collect();
    found.push(Candidate { what: What::Gaps { us: times(&gaps) }, us: sum(&gaps), cells: gaps });
    // Single cells first: where one is all of its layer or name, it says more.
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.count[0] > 0 && line.count[1] > 0) {
        for portion in [Portion::Compute, Portion::Transfer, Portion::Other] {
            let members = vec![(at, portion as usize)];
            let (name, layer, count) = (line.name.clone(), line.layer, line.count[0] as f64 / divisor);
            let what = What::Operation { name, layer, portion, count, us: times(&members) };
            found.push(Candidate { what, us: sum(&members), cells: members });
        }
    }
    for portion in [Portion::Compute, Portion::Transfer, Portion::Other] {
        let mut layers: BTreeMap<u32, Vec<(usize, usize)>> = BTreeMap::new();
        let mut names: BTreeMap<&str, Vec<(usize, usize)>> = BTreeMap::new();
        for (at, line) in lines.iter().enumerate() {
            if line.count[0] == 0 || line.count[1] == 0 {
                continue;
            }
            names.entry(&line.name).or_default().push((at, portion as usize));
            if let Some(layer) = line.layer {
                layers.entry(layer).or_default().push((at, portion as usize));
            }
        }
        for (layer, members) in layers {
            let us = sum(&members);
            let largest = members.iter().max_by(|a, b| cells[a.0][a.1].abs().total_cmp(&cells[b.0][b.1].abs()));
            let mostly =
                largest.filter(|cell| members.len() > 1 && cells[cell.0][cell.1] / us > MOSTLY).map(|cell| lines[cell.0].name.clone());
            found.push(Candidate { what: What::Layer { layer, portion, us: times(&members), mostly }, us, cells: members });
        }
        for (name, members) in names {
            let count: u64 = members.iter().map(|(line, _)| lines[*line].count[0]).sum();
            let layer = if members.len() == 1 { lines[members[0].0].layer } else { None };
            let what = What::Operation { name: name.to_owned(), layer, portion, count: count as f64 / divisor, us: times(&members) };
            found.push(Candidate { what, us: sum(&members), cells: members });
        }
    }
    for (at, line) in lines.iter().enumerate() {
        let side = match (line.count[0] > 0, line.count[1] > 0) {
            (true, false) => 0,
            (false, true) => 1,
            _ => continue,
        };
        let members: Vec<(usize, usize)> = Portion::ALL.iter().map(|portion| (at, *portion as usize)).collect();
        let what = What::Unmatched { side, count: line.count[side] as f64 / divisor };
        found.push(Candidate { what, us: sum(&members), cells: members });
    }
    found
}
