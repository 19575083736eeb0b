//! Ranks dealt to islands of equal size: GPUs below one switch or one socket.

use super::{Protocol, Schedule, StepBuilder};
use crate::error::{Fault, Result};

/// Islands of equal size; each rank is in exactly one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Islands {
    groups: Vec<Vec<usize>>,
    /// Island and place of each rank.
    seats: Vec<(usize, usize)>,
}

impl Islands {
    /// From lists of ranks.
    ///
    /// # Errors
    /// `islands-uneven` unless all islands have the same size and every rank
    /// from 0 on is in exactly one.
    pub fn new(groups: Vec<Vec<usize>>) -> Result<Islands> {
        let size = groups.first().map_or(0, Vec::len);
        let mut seats = vec![None; groups.iter().map(Vec::len).sum()];
        for (island, group) in groups.iter().enumerate() {
            for (place, &rank) in group.iter().enumerate() {
                if let Some(seat) = seats.get_mut(rank) {
                    *seat = Some((island, place));
                }
            }
        }
        let seats: Option<Vec<(usize, usize)>> = seats.into_iter().collect();
        match seats {
            Some(seats) if size > 0 && groups.iter().all(|group| group.len() == size) => Ok(Islands { groups, seats }),
            _ => Err(Fault::new("islands-uneven", format!("{groups:?} are not islands of equal size that hold each rank once"))),
        }
    }

    /// `ranks` in consecutive islands of `size`; one island where that does not divide.
    pub fn consecutive(ranks: usize, size: usize) -> Islands {
        let size = if size > 0 && ranks.is_multiple_of(size) { size } else { ranks.max(1) };
        let groups: Vec<Vec<usize>> = (0..ranks / size).map(|island| (island * size..(island + 1) * size).collect()).collect();
        Islands { seats: (0..ranks).map(|rank| (rank / size, rank % size)).collect(), groups }
    }

    /// Ranks in all.
    pub fn ranks(&self) -> usize {
        self.seats.len()
    }

    /// Ranks of one island.
    pub fn size(&self) -> usize {
        self.groups.first().map_or(1, Vec::len)
    }

    /// How many islands.
    pub fn count(&self) -> usize {
        self.groups.len()
    }

    /// The rank's place in its island.
    pub fn place(&self, rank: usize) -> usize {
        self.seats[rank].1
    }

    /// The others of the rank's island, the next place first.
    pub fn mates(&self, rank: usize) -> Vec<usize> {
        let (island, place) = self.seats[rank];
        (1..self.size()).map(|k| self.groups[island][(place + k) % self.size()]).collect()
    }

    /// The ranks of the same place in the other islands, the next island first.
    pub fn counterparts(&self, rank: usize) -> Vec<usize> {
        let (island, place) = self.seats[rank];
        (1..self.count()).map(|k| self.groups[(island + k) % self.count()][place]).collect()
    }
}

/// Connections between some pairs of ranks.
pub(super) struct Wires {
    ranks: usize,
    /// `[source * ranks + target]`; `u32::MAX` where there is none.
    table: Vec<u32>,
}

impl Wires {
    /// Connects every rank to its `peers`.
    pub(super) fn new(schedule: &mut Schedule, protocol: Protocol, credits: u32, peers: impl Fn(usize) -> Vec<usize>) -> Wires {
        let ranks = schedule.ranks;
        let mut table = vec![u32::MAX; ranks * ranks];
        for source in 0..ranks {
            for target in peers(source) {
                table[source * ranks + target] = schedule.connect(source, target, protocol, credits);
            }
        }
        Wires { ranks, table }
    }

    /// The connection from one rank to another.
    pub(super) fn one(&self, source: usize, target: usize) -> u32 {
        self.table[source * self.ranks + target]
    }

    /// From `rank` to each of `peers`.
    pub(super) fn to(&self, rank: usize, peers: &[usize]) -> Vec<u32> {
        peers.iter().map(|&peer| self.one(rank, peer)).collect()
    }

    /// From each of `peers` to `rank`.
    pub(super) fn from(&self, peers: &[usize], rank: usize) -> Vec<u32> {
        peers.iter().map(|&peer| self.one(peer, rank)).collect()
    }

    /// `rank` tells each of `peers` that it has come, and waits for all of them.
    pub(super) fn barrier(&self, block: &mut StepBuilder<'_>, rank: usize, peers: &[usize]) {
        block.user(&[], &self.to(rank, peers), 0, 0, false, false);
        block.user(&self.from(peers, rank), &[], 0, 0, false, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn islands_know_mates_and_counterparts() {
        let islands = Islands::new(vec![vec![0, 2, 4, 6], vec![1, 3, 5, 7]]).expect("even");
        assert_eq!((islands.mates(2), islands.counterparts(2)), (vec![4, 6, 0], vec![3]));
        assert_eq!((islands.count(), islands.size(), islands.place(7)), (2, 4, 3));
        assert_eq!(Islands::consecutive(8, 4).counterparts(1), vec![5]);
        assert_eq!(Islands::consecutive(7, 4).count(), 1);
    }

    #[test]
    fn uneven_and_repeated_islands_are_refused() {
        for groups in [vec![], vec![vec![0, 1], vec![2]], vec![vec![0, 1], vec![1, 2]], vec![vec![0, 9]]] {
            assert_eq!(Islands::new(groups).expect_err("refused").code, "islands-uneven");
        }
    }
}
