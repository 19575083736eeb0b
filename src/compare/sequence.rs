//! Joining by order, for traces that call operations by different names: the
//! n-th all-reduce of a rank meets the n-th, and the kernels between two
//! collectives meet the kernels between the same two.

use crate::compare::names::Key;
use crate::compare::names::Names;
use crate::compare::spent::add;
use crate::compare::totals::Settled;
use crate::trace::record::Kind;
use crate::trace::row::Row;

/// Sorts of collectives, told by words of the name.
const SORTS: [(&str, &[&str]); 6] = [
    ("reducescatter", &["scatter"]),
    ("allgather", &["gather"]),
    ("alltoall", &["alltoall", "all_to_all", "dispatch", "combine"]),
    ("sendrecv", &["send", "recv"]),
    ("broadcast", &["broadcast"]),
    ("allreduce", &["reduce"]),
];

/// Counts the operations of a rank in a pass.
#[derive(Clone, Debug, Default)]
pub struct Sequence {
    by_sort: [u32; SORTS.len() + 1],
    collectives: u32,
}

impl Sequence {
    /// What a row is called by its place.
    pub fn key(&mut self, row: &Row<'_>, names: &mut Names) -> Key {
        if row.kind != Kind::Communication {
            return Key { number: self.collectives, ..names.key("kernels.00000") };
        }
        let (sort, name) = sort_of(&format!("{} {}", row.op, row.name));
        let number = self.by_sort[sort];
        self.by_sort[sort] += 1;
        self.collectives += 1;
        Key { number, ..names.key(&format!("{name}.00000")) }
    }

    /// Adds an operation to the group that it belongs to, or hands the finished group over.
    pub fn settle(group: &mut Option<Settled>, one: Settled, settled: &mut Vec<Settled>) {
        match group {
            Some(open) if open.key == one.key => add(&mut open.spent, &one.spent),
            _ => settled.extend(group.replace(one)),
        }
    }
}

/// The sort of a collective by words of its name: place and name.
pub fn sort_of(name: &str) -> (usize, &'static str) {
    let text = name.to_ascii_lowercase();
    let sort = SORTS.iter().position(|(_, words)| words.iter().any(|word| text.contains(word))).unwrap_or(SORTS.len());
    (sort, SORTS.get(sort).map_or("collective", |(name, _)| name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Time;

    #[test]
    fn collectives_are_counted_by_sort() {
        let mut names = Names::default();
        let mut sequence = Sequence::default();
        let mut key = |op: &str, kind| {
            let row = Row { pass: 0, rank: 0, op, name: op, kind, layer: None, start: Time(0), end: Time(1), bytes: 0, detail: "" };
            let key = sequence.key(&row, &mut names);
            names.text(key, 0)
        };
        assert_eq!(key("L000.q.r0", Kind::Compute), "kernels.00000.r0");
        assert_eq!(key("L000.attn_allreduce.r0", Kind::Communication), "allreduce.00000.r0");
        assert_eq!(key("L000.gate.r0", Kind::Compute), "kernels.00001.r0");
        assert_eq!(key("ncclDevKernel_AllReduce_Sum", Kind::Communication), "allreduce.00001.r0");
        assert_eq!(key("HEAD.logits_gather.r0", Kind::Communication), "allgather.00000.r0");
        assert_eq!(key("odd", Kind::Communication), "collective.00000.r0");
    }
}
