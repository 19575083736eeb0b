//! The plan's hash: FNV-1a, 64 bits, over the folded form.
//!
//! Each part is written as its JSON line in canonical order, so that the hash
//! depends neither on the order of listing nor on machine or compiler.

use super::Plan;

/// FNV-1a with 64 bits (Fowler, Noll, Vo; offset basis and prime as published).
#[derive(Clone, Copy, Debug)]
pub struct Fnv(u64);

impl Fnv {
    /// The offset basis.
    pub fn new() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }

    /// Takes in bytes.
    pub fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// The hash so far.
    pub fn value(self) -> u64 {
        self.0
    }
}

impl Plan {
    /// FNV-1a 64 of the folded plan; equal plans on any machine have equal hashes.
    pub fn hash(&self) -> u64 {
        let mut hash = Fnv::new();
        let mut line = |text: String| {
            hash.write(text.as_bytes());
            hash.write(b"\n");
        };
        line(format!("plan 1 {:?} rows {} layers {}", serde_json::to_string(&self.partition).unwrap_or_default(), self.rows, self.layers));
        for block in &self.blocks {
            line(format!("block {}", block.kind.name()));
            for slot in block.slots() {
                let action = serde_json::to_string(block.action(slot)).unwrap_or_default();
                line(format!("{action} {:?}", slot.needs));
            }
        }
        for class in &self.classes {
            line(format!("class {} {:?}", class.stage, class.ranks));
            for run in &class.runs {
                line(format!("{} {} {}", run.block.0, run.place, run.repeats));
            }
        }
        hash.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_vectors() {
        for (text, expected) in [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)] {
            let mut hash = Fnv::new();
            hash.write(text.as_bytes());
            assert_eq!(hash.value(), expected, "{text}");
        }
    }
}
