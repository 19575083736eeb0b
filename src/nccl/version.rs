//! NCCL versions: what a user writes (`2.29.2`, `2.27.7+cuda13.0`) and their order.

use std::fmt;
use std::str::FromStr;

use crate::error::Fault;

/// A released NCCL version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Always 2.
    pub major: u32,
    /// 18 to 99.
    pub minor: u32,
    /// 0 when only `2.29` was written.
    pub patch: u32,
}

impl Version {
    /// The newest version whose source the tables were read from; later ones are forecast with its tables.
    pub const NEWEST_READ: Version = Version { major: 2, minor: 31, patch: 0 };

    /// From numbers, unchecked.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Version {
        Version { major, minor, patch }
    }

    /// Whether this is `2.minor` or later.
    pub fn since(self, minor: u32) -> bool {
        (self.major, self.minor) >= (2, minor)
    }

    /// Channels that a kernel can have at most (`MAXCHANNELS`, device.h): 32 until 2.26, 64 from 2.27.
    /// Read in source for 2.24 and 2.27 on; 2.25 and 2.26 are taken to be like 2.24.
    pub fn channels_max(self) -> u32 {
        if self.since(27) { 64 } else { 32 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl FromStr for Version {
    type Err = Box<Fault>;

    /// Reads `2.29.2`, `2.29`, `2.27.7+cuda13.0`, `2.31.0a7`.
    ///
    /// # Errors
    /// `nccl-version` when the text is no version, or one before 2.18 (its scheduler is not known here).
    fn from_str(text: &str) -> Result<Version, Box<Fault>> {
        let fault = |why: &str| Fault::new("nccl-version", format!("{text:?} {why}")).help("write it as NCCL prints it, e.g. 2.29.2");
        let plain = text.trim().trim_start_matches("v").split(['+', '-', ' ']).next().unwrap_or("");
        let mut numbers = [0u32; 3];
        let mut count = 0;
        for part in plain.split('.') {
            let digits: &str = &part[..part.bytes().take_while(u8::is_ascii_digit).count()];
            let (Some(slot), Ok(number)) = (numbers.get_mut(count), digits.parse::<u32>()) else {
                return Err(fault("is not a NCCL version"));
            };
            *slot = number;
            count += 1;
        }
        let version = Version::new(numbers[0], numbers[1], numbers[2]);
        if count < 2 || version.major != 2 || version.minor > 99 {
            return Err(fault("is not a NCCL version"));
        }
        if !version.since(18) {
            return Err(fault("is older than NCCL 2.18, whose decisions are not known here"));
        }
        Ok(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_nccl_prints_them() {
        for (text, version) in [
            ("2.29.2", Version::new(2, 29, 2)),
            ("2.27.7+cuda13.0", Version::new(2, 27, 7)),
            ("2.31.0a7", Version::new(2, 31, 0)),
            ("v2.30.7-1", Version::new(2, 30, 7)),
            ("2.18", Version::new(2, 18, 0)),
        ] {
            assert_eq!(text.parse::<Version>().expect(text), version);
        }
        for text in ["", "2", "3.1.0", "2.17.1", "2.x", "2.29.2.1", "nccl", "2.99999999999", "２.29"] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
        assert!(Version::new(2, 30, 7) < Version::new(2, 31, 0));
    }
}
