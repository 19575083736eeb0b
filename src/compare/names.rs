//! Operation ids in numbers, shared by both traces, so that joining them
//! compares integers and a million rows need no million strings.
//!
//! An id without its rank is a pattern and a number: `L012.attn_allreduce` is
//! (`L###.attn_allreduce`, 12), an imported `allreduce.00042` is
//! (`allreduce.#####`, 42). What reports sum by is a [`Slot`]: a name and a layer.

use std::collections::BTreeMap;
use std::collections::HashMap;

use crate::trace::record::Kind;
use crate::trace::row::Row;

/// Slots beyond this share the last one.
const SLOTS_MAX: usize = 4096;
/// Patterns beyond this share the last one; plans have some hundreds.
const PATTERNS_MAX: usize = 1 << 18;
/// Longest name that is kept.
const NAME_LETTERS_MAX: usize = 100;

/// An id without its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Which pattern.
    pub pattern: u32,
    /// The number in it; 0 where it has none.
    pub number: u32,
}

/// What operations are summed by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Name within its block, or the kernel's.
    pub name: String,
    /// Transformer layer.
    pub layer: Option<u32>,
    /// What it is made of.
    pub kind: Kind,
}

/// All ids that were met. Numbers are given in the order of meeting, so that no
/// result depends on the hashing.
#[derive(Debug, Default)]
pub struct Names {
    known: HashMap<String, u32>,
    patterns: Vec<String>,
    slots: Vec<Slot>,
    by_place: HashMap<(u32, Option<u32>), u32>,
    by_name: BTreeMap<(String, Option<u32>), u32>,
    scratch: String,
}

impl Names {
    /// The key and slot of a row.
    pub fn of(&mut self, row: &Row<'_>) -> (Key, u32) {
        let op = if row.op.is_empty() { row.name } else { row.op };
        let key = self.key(without_rank(op, row.rank));
        if self.patterns[key.pattern as usize].starts_with("kernel.#") {
            return (key, self.slot(row.name, row.layer, row.kind));
        }
        if let Some(&slot) = self.by_place.get(&(key.pattern, row.layer)) {
            return (key, slot);
        }
        let name = base(&self.patterns[key.pattern as usize]).to_owned();
        let slot = self.slot(&name, row.layer, row.kind);
        self.by_place.insert((key.pattern, row.layer), slot);
        (key, slot)
    }

    /// The key of an id without its rank.
    pub fn key(&mut self, op: &str) -> Key {
        let digits = digits_of(op);
        let number = op[digits.clone()].parse().ok().filter(|_| digits.len() <= 9);
        self.scratch.clear();
        match number {
            Some(_) => {
                self.scratch.push_str(&op[..digits.start]);
                digits.clone().for_each(|_| self.scratch.push('#'));
                self.scratch.push_str(&op[digits.end..]);
            }
            None => self.scratch.push_str(op),
        }
        let pattern = match self.known.get(&self.scratch) {
            Some(&pattern) => pattern,
            None if self.patterns.len() >= PATTERNS_MAX => (PATTERNS_MAX - 1) as u32,
            None => {
                self.patterns.push(self.scratch.clone());
                self.known.insert(self.scratch.clone(), (self.patterns.len() - 1) as u32);
                (self.patterns.len() - 1) as u32
            }
        };
        Key { pattern, number: number.unwrap_or(0) }
    }

    /// The slot of a name and layer.
    pub fn slot(&mut self, name: &str, layer: Option<u32>, kind: Kind) -> u32 {
        let short: String = name.chars().take(NAME_LETTERS_MAX).collect();
        if let Some(&slot) = self.by_name.get(&(short.clone(), layer)) {
            return slot;
        }
        if self.slots.len() >= SLOTS_MAX {
            return (SLOTS_MAX - 1) as u32;
        }
        let slot = self.slots.len() as u32;
        let last = self.slots.len() + 1 == SLOTS_MAX;
        let entry = if last {
            Slot { name: "others".to_owned(), layer: None, kind: Kind::Other }
        } else {
            Slot { name: short.clone(), layer, kind }
        };
        self.slots.push(entry);
        self.by_name.insert((short, layer), slot);
        slot
    }

    /// A slot.
    pub fn slot_of(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The id as the file has it, the rank with it.
    pub fn text(&self, key: Key, rank: u32) -> String {
        let pattern = &self.patterns[key.pattern as usize];
        let text = match pattern.find('#') {
            Some(start) => {
                let width = pattern[start..].bytes().take_while(|&b| b == b'#').count();
                format!("{}{:0width$}{}", &pattern[..start], key.number, &pattern[start + width..])
            }
            None => pattern.clone(),
        };
        format!("{text}.r{rank}")
    }
}

/// The id without `.r3`, where 3 is the row's rank.
pub fn without_rank(op: &str, rank: u32) -> &str {
    match op.rsplit_once(".r") {
        Some((stem, digits)) if digits.parse() == Ok(rank) => stem,
        _ => op,
    }
}

/// Where the number of an id stands: behind its first letter (`L012.x`), else behind its last point (`x.00042`).
fn digits_of(op: &str) -> std::ops::Range<usize> {
    let bytes = op.as_bytes();
    let run = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    if bytes.first().is_some_and(u8::is_ascii_uppercase) && run(1) > 0 {
        return 1..1 + run(1);
    }
    match op.rfind('.') {
        Some(point) if run(point + 1) > 0 && point + 1 + run(point + 1) == op.len() => point + 1..op.len(),
        _ => 0..0,
    }
}

/// The name within its block: no place before it, no number behind it.
fn base(pattern: &str) -> &str {
    let name = pattern.trim_end_matches('#').trim_end_matches('.');
    match name.split_once('.') {
        Some((place, rest)) if place.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'#') => rest,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Time;

    fn row<'a>(op: &'a str, name: &'a str, rank: u32, layer: Option<u32>) -> Row<'a> {
        let (pass, kind, start, end, bytes, detail) = (0, Kind::Compute, Time(0), Time(1), 0, "");
        Row { pass, rank, op, name, kind, layer, start, end, bytes, detail }
    }

    #[test]
    fn ids_of_plans_and_of_imports_come_back() {
        let mut names = Names::default();
        for (op, rank, layer, name) in [
            ("L012.attn_allreduce.r3", 3, Some(12), "attn_allreduce"),
            ("EMB.embedding.r0", 0, None, "embedding"),
            ("allreduce.00042.r7", 7, None, "allreduce"),
            ("HEAD.logits_gather.r1", 1, None, "logits_gather"),
            ("D02.fc.r1", 1, None, "fc"),
            ("odd", 0, None, "odd"),
        ] {
            let (key, slot) = names.of(&row(op, "x", rank, layer));
            assert_eq!(names.slot_of(slot).name, name);
            let text = if op == "odd" { "odd.r0" } else { op };
            assert_eq!(names.text(key, rank), text);
        }
        let (first, _) = names.of(&row("L012.q.r0", "q", 0, Some(12)));
        let (second, _) = names.of(&row("L013.q.r1", "q", 1, Some(13)));
        assert_eq!(first.pattern, second.pattern, "one pattern for all layers");
    }

    #[test]
    fn imported_kernels_are_summed_by_their_name() {
        let mut names = Names::default();
        let (_, slot) = names.of(&row("kernel.00001.r0", "void gemm<a>", 0, None));
        assert_eq!(names.slot_of(slot).name, "void gemm<a>");
    }

    #[test]
    fn too_many_names_share_one() {
        let mut names = Names::default();
        for i in 0..10_000 {
            let op = format!("x{i}y.r0");
            names.of(&row(&op, "x", 0, None));
        }
        assert!(names.slots() <= SLOTS_MAX);
        assert_eq!(names.slot_of((SLOTS_MAX - 1) as u32).name, "others");
    }

    proptest::proptest! {
        #[test]
        fn no_id_panics(op in "\\PC{0,40}", rank: u32) {
            let mut names = Names::default();
            let (key, _) = names.of(&row(&op, "n", rank, None));
            let _ = names.text(key, rank);
        }
    }
}
