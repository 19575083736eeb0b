//! Which connections of a schedule carry data for several targets of one
//! source at the same time, or from several sources that one target reads.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::collective::Protocol;
use crate::collective::Schedule;

/// One flag a connection. `device` is where a rank runs.
///
/// Sends between two receipts of a block are under way together, and so are the
/// first sends of all blocks of a rank. Flags are too short to count.
pub(super) fn crossing(schedule: &Schedule, device: impl Fn(usize) -> usize) -> Vec<bool> {
    let mut flags = vec![false; schedule.connections.len()];
    let far = |c: u32| {
        let connection = &schedule.connections[c as usize];
        connection.protocol != Protocol::Flag && device(connection.source) != device(connection.target)
    };
    let mut mark = |together: &BTreeSet<u32>, end: &dyn Fn(u32) -> usize| {
        let ends: BTreeSet<usize> = together.iter().map(|&c| end(c)).collect();
        if ends.len() > 1 {
            together.iter().for_each(|&c| flags[c as usize] = true);
        }
    };
    let target = |c: u32| device(schedule.connections[c as usize].target);
    let source = |c: u32| device(schedule.connections[c as usize].source);
    // By rank: what its blocks send before they receive.
    let mut opening: BTreeMap<usize, BTreeSet<u32>> = BTreeMap::new();
    for block in &schedule.blocks {
        let mut together = BTreeSet::new();
        let mut opens = true;
        for step in &block.steps {
            let read = |c: &u32| schedule.connections[*c as usize].protocol == Protocol::Read && far(*c);
            mark(&schedule.receives(step).iter().copied().filter(read).collect(), &source);
            if step.receive.len > 0 {
                if !opens {
                    mark(&together, &target);
                }
                together.clear();
                opens = false;
            }
            let sends = schedule.sends(step).iter().copied().filter(|&c| far(c));
            if opens {
                opening.entry(block.rank).or_default().extend(sends);
            } else {
                together.extend(sends);
            }
        }
        mark(&together, &target);
    }
    opening.values().for_each(|together| mark(together, &target));
    flags
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::islands::Islands;
    use crate::collective::one_shot::Grid;
    use crate::collective::{hierarchical, one_shot, staged};

    const GRID: Grid = Grid { blocks: 2, threads: 256 };

    fn share(schedule: &Schedule) -> f64 {
        let flags = crossing(schedule, |rank| rank);
        let data: Vec<bool> =
            schedule.connections.iter().zip(&flags).filter(|(c, _)| c.protocol != Protocol::Flag).map(|(_, &flag)| flag).collect();
        data.iter().filter(|flag| **flag).count() as f64 / data.len() as f64
    }

    #[test]
    fn pushes_and_pulls_of_all_cross_and_two_ranks_do_not() {
        assert_eq!(share(&one_shot::push(4, 1 << 20, GRID, Protocol::Simple)), 1.0);
        assert_eq!(share(&one_shot::pull(4, 1 << 20, GRID, true)), 1.0);
        assert_eq!(share(&one_shot::push(2, 1 << 20, GRID, Protocol::Simple)), 0.0);
        assert_eq!(share(&hierarchical::two_shot(4, 1 << 20, GRID, Protocol::Ll)), 1.0);
    }

    /// Of two islands of four the phases inside cross, the exchange between them does not: six of seven connections.
    #[test]
    fn counterparts_and_passes_of_one_do_not_cross() {
        let islands = Islands::consecutive(8, 4);
        assert_eq!(share(&hierarchical::all_reduce(&islands, 1 << 20, GRID, Protocol::Ll)), 6.0 / 7.0);
        let staging = staged::Staging { protocol: Protocol::Simple, one_to_one: true };
        assert_eq!(share(&staged::all_reduce(&islands, 1 << 20, GRID, staging)), 0.0);
    }

    #[test]
    fn ranks_on_one_device_do_not_cross() {
        let schedule = one_shot::push(4, 1 << 20, GRID, Protocol::Simple);
        assert!(crossing(&schedule, |_| 0).iter().all(|flag| !flag));
    }
}
