//! The last lines of every report: the command, the version and the hashes of
//! its inputs. Equal lines mean equal bytes above them.

/// What gives the same answer again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reproduce {
    /// The command as a shell takes it.
    command: String,
    /// Names and hashes of what was read, in the order of reading.
    inputs: Vec<(String, u64)>,
    /// The seed, where one was drawn from.
    seed: Option<u64>,
}

impl Reproduce {
    /// From the arguments as typed, the program's path first.
    pub fn new(arguments: impl Iterator<Item = String>) -> Reproduce {
        let typed = arguments.skip(1).map(|argument| quoted(&argument));
        let command: Vec<String> = std::iter::once("lanecast".to_owned()).chain(typed).collect();
        Reproduce { command: command.join(" "), inputs: Vec::new(), seed: None }
    }

    /// Adds an input by its content: a machine, a model, constants.
    #[must_use]
    pub fn input(self, name: &str, content: &[u8]) -> Reproduce {
        self.hash(name, fnv1a_64(content))
    }

    /// Adds something that has a hash of its own, such as a plan.
    #[must_use]
    pub fn hash(mut self, name: &str, hash: u64) -> Reproduce {
        self.inputs.push((name.to_owned(), hash));
        self
    }

    /// Names the seed.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Reproduce {
        self.seed = Some(seed);
        self
    }

    /// One to three lines without newlines.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{} (lanecast {})", self.command, env!("CARGO_PKG_VERSION"))];
        if let Some(seed) = self.seed {
            lines.push(format!("seed: {seed}"));
        }
        if !self.inputs.is_empty() {
            let inputs: Vec<String> = self.inputs.iter().map(|(name, hash)| format!("{name} {hash:016x}")).collect();
            lines.push(format!("inputs (FNV-1a 64): {}", inputs.join(", ")));
        }
        lines
    }
}

/// FNV-1a over bytes, 64 bits: tells inputs apart, the same on any machine.
/// It is no protection against someone who wants two inputs to look equal.
/// Source: Fowler, Noll, Vo; draft-eastlake-fnv, section 3.
pub fn fnv1a_64(bytes: &[u8]) -> u64 {
    fnv1a_64_on(FNV_START, bytes)
}

/// What [`fnv1a_64`] starts with.
pub const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// Goes on with a hash, for content that is read in pieces.
pub fn fnv1a_64_on(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// As a POSIX shell takes it back.
fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        return argument.to_owned();
    }
    format!("'{}'", argument.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        // draft-eastlake-fnv, appendix C: "" and "foobar".
        assert_eq!(fnv1a_64(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a_64(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(fnv1a_64_on(fnv1a_64(b"foo"), b"bar"), fnv1a_64(b"foobar"));
    }

    #[test]
    fn the_command_can_be_pasted() {
        let typed = ["/usr/bin/lanecast", "rank", "--machine", "my box.toml", "it's"];
        let lines = Reproduce::new(typed.iter().map(|s| (*s).to_owned())).seed(7).lines();
        assert!(lines[0].starts_with("lanecast rank --machine 'my box.toml' 'it'\\''s' (lanecast "), "{}", lines[0]);
        assert_eq!(lines[1], "seed: 7");
        assert_eq!(lines.len(), 2);
    }
}
