//! `--policy 64K:nccl-ring-ll,nccl-default`: strategies by message size.

use std::str::FromStr;

use crate::case::Policy;
use crate::cli::arguments::Size;
use crate::error::Result;
use crate::strategy::Strategy;

/// Largest message and strategy id, ascending; the last takes the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyArgument(Vec<(u64, String)>);

impl FromStr for PolicyArgument {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<PolicyArgument, String> {
        let mut rows: Vec<(u64, String)> = Vec::new();
        for row in text.split(',').map(str::trim) {
            let (most, id) = match row.split_once(':') {
                Some((size, id)) => (size.parse::<Size>()?.0.0, id),
                None => (u64::MAX, row),
            };
            if id.is_empty() {
                return Err("expected SIZE:STRATEGY,…,STRATEGY".to_owned());
            }
            if rows.last().is_some_and(|(before, _)| *before >= most) {
                return Err(format!("`{row}` does not stand after smaller sizes"));
            }
            rows.push((most, id.trim().to_owned()));
        }
        if rows.last().is_none_or(|(most, _)| *most != u64::MAX) {
            return Err("the last strategy takes the rest: give it without a size".to_owned());
        }
        Ok(PolicyArgument(rows))
    }
}

impl PolicyArgument {
    /// The policy.
    ///
    /// # Errors
    /// `strategy-unknown`.
    pub fn policy(&self) -> Result<Policy> {
        let rows = self.0.iter().map(|(most, id)| Ok((*most, Strategy::find(id)?))).collect::<Result<_>>()?;
        Ok(Policy { rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_ascend_and_the_last_takes_the_rest() {
        let policy =
            "64K:nccl-ring-ll, 1M:one-shot-push,nccl-default".parse::<PolicyArgument>().expect("a policy").policy().expect("known");
        let of = |bytes| policy.of(bytes).expect("a row").id;
        assert_eq!((of(65_536), of(65_537), of(1 << 30)), ("nccl-ring-ll", "one-shot-push", "nccl-default"));
        for wrong in ["", "64K:nccl-ring-ll", "1M:a,64K:b,c", "a,b", "64K:,a", "x:a,b", ":a"] {
            assert!(wrong.parse::<PolicyArgument>().is_err(), "{wrong}");
        }
        assert!("nccl-nothing".parse::<PolicyArgument>().expect("a name").policy().is_err());
    }
}
