//! Which rows of a sweep are worth a look: those that no other beats in both
//! pass and tokens per second, and the fastest of each group. Rows are read one
//! by one, so that what is kept does not grow with the sweep.

use std::collections::BTreeMap;
use std::io::BufRead;

use crate::error::Fault;
use crate::error::Result;

/// Points of the drawing that stand for all cases.
const POINTS_MAX: u64 = 1500;
/// Groups that are kept; more say nothing to a reader.
const GROUPS_MAX: usize = 10_000;

/// A row that can run.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// The case's number and the values of its axes.
    pub values: Vec<String>,
    /// The pass, ms.
    pub pass_ms: f64,
    /// Of all sequences.
    pub tokens_per_s: f64,
}

/// A case of the drawing.
#[derive(Clone, Debug, PartialEq)]
pub struct Dot {
    /// The pass, ms.
    pub pass_ms: f64,
    /// Of all sequences.
    pub tokens_per_s: f64,
    /// Its group.
    pub group: Vec<String>,
}

/// What a sweep found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Rows.
    pub rows: u64,
    /// Rows that can run.
    pub feasible: u64,
    /// From the fastest pass to the most tokens per second.
    pub front: Vec<Kept>,
    /// The fastest of each group: most tokens per second, then the shortest pass.
    pub best: BTreeMap<Vec<String>, Kept>,
    /// Some of all points, evenly taken.
    pub points: Vec<Dot>,
    /// Why rows cannot run, and how many.
    pub reasons: BTreeMap<String, u64>,
}

impl Summary {
    /// Reads rows. `axes` are the axes' names, `group` the places among them that
    /// groups are made by, `cases` how many rows are expected, `header` whether
    /// the first line has names.
    ///
    /// # Errors
    /// `sweep-rows` for rows that no sweep has written.
    pub fn read(from: impl BufRead, axes: usize, group: &[usize], cases: u64, header: bool) -> Result<Summary> {
        let mut summary = Summary::default();
        let stride = cases.div_ceil(POINTS_MAX).max(1);
        let mut reader = csv::ReaderBuilder::new().has_headers(header).from_reader(from);
        let mut record = csv::StringRecord::new();
        let wrong = |what: &str| Fault::new("sweep-rows", format!("the rows of the sweep cannot be read back: {what}"));
        while reader.read_record(&mut record).map_err(|error| wrong(&error.to_string()))? {
            let number = |column: usize| record.get(1 + axes + column).and_then(|text| text.parse::<f64>().ok());
            summary.rows += 1;
            if record.get(1 + axes) != Some("true") {
                let reason = record.iter().next_back().unwrap_or_default().to_owned();
                if summary.reasons.len() < 100 || summary.reasons.contains_key(&reason) {
                    *summary.reasons.entry(reason).or_default() += 1;
                }
                continue;
            }
            let (Some(pass_ms), Some(tokens_per_s)) = (number(1), number(10)) else { return Err(wrong("a number is missing")) };
            summary.feasible += 1;
            let kept = || Kept { values: record.iter().take(1 + axes).map(str::to_owned).collect(), pass_ms, tokens_per_s };
            summary.consider(pass_ms, tokens_per_s, kept);
            let key: Vec<String> = group.iter().filter_map(|axis| record.get(1 + axis)).map(str::to_owned).collect();
            if (summary.rows - 1).is_multiple_of(stride) {
                summary.points.push(Dot { pass_ms, tokens_per_s, group: key.clone() });
            }
            let better = |old: &Kept| tokens_per_s > old.tokens_per_s || (tokens_per_s == old.tokens_per_s && pass_ms < old.pass_ms);
            let new = summary.best.get(&key).is_none_or(better) && (summary.best.len() < GROUPS_MAX || summary.best.contains_key(&key));
            if new {
                summary.best.insert(key, kept());
            }
        }
        Ok(summary)
    }

    /// Keeps the front: passes ascend in it, and so do tokens per second. Of equals the first stays.
    fn consider(&mut self, pass_ms: f64, tokens_per_s: f64, kept: impl Fn() -> Kept) {
        let place = self.front.partition_point(|old| old.pass_ms <= pass_ms);
        let before = place.checked_sub(1).and_then(|place| self.front.get(place));
        if before.is_some_and(|old| old.tokens_per_s >= tokens_per_s) {
            return;
        }
        // A row of the same pass with fewer tokens is beaten too.
        let first = if before.is_some_and(|old| old.pass_ms == pass_ms) { place - 1 } else { place };
        let beaten = self.front[first..].iter().take_while(|old| old.tokens_per_s <= tokens_per_s).count();
        self.front.splice(first..first + beaten, [kept()]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(rows: &[(u32, u32)]) -> String {
        let row = |(case, (pass, tokens)): (usize, &(u32, u32))| format!("{case},g{},true,{pass},1,1,1,1,1,1,1,1,{tokens},\n", case % 2);
        rows.iter().enumerate().map(row).collect()
    }

    #[test]
    fn fronts_groups_and_reasons() {
        let rows = text(&[(10, 100), (12, 100), (8, 50), (20, 300)]) + "4,g0,false,,,,,,,,,,,\"no, never\"\n";
        let summary = Summary::read(rows.as_bytes(), 1, &[0], 5, false).expect("reads");
        assert_eq!((summary.rows, summary.feasible), (5, 4));
        let cases: Vec<&str> = summary.front.iter().map(|kept| kept.values[0].as_str()).collect();
        assert_eq!(cases, ["2", "0", "3"]);
        let best: Vec<&str> = summary.best.values().map(|kept| kept.values[0].as_str()).collect();
        assert_eq!(best, ["0", "3"]);
        assert_eq!(summary.reasons, BTreeMap::from([("no, never".to_owned(), 1)]));
        assert_eq!(Summary::read(&b"0,g,true,x\n"[..], 1, &[], 1, false).expect_err("no number").code, "sweep-rows");
    }

    proptest! {
        #[test]
        fn the_front_is_what_no_other_beats(rows in prop::collection::vec((1_u32..12, 1_u32..12), 1..40)) {
            let summary = Summary::read(text(&rows).as_bytes(), 1, &[], rows.len() as u64, false).expect("reads");
            let beaten = |(pass, tokens): (u32, u32)| {
                rows.iter().any(|(p, t)| *p <= pass && *t >= tokens && (*p, *t) != (pass, tokens))
            };
            let mut expected: Vec<(u32, u32)> = rows.iter().copied().filter(|row| !beaten(*row)).collect();
            expected.sort_unstable();
            expected.dedup();
            let front: Vec<(u32, u32)> = summary.front.iter().map(|kept| (kept.pass_ms as u32, kept.tokens_per_s as u32)).collect();
            prop_assert_eq!(front, expected);
        }
    }
}
