//! Which rows of an observation file: `ranks=2|4,protocol=ll,bytes<=1048576`.
//!
//! Conditions of one filter hold together; of several filters one is enough.
//! `size=even` and `size=odd` take every second size of a series, which is how
//! half of the sizes are held out.

use std::collections::BTreeMap;

use crate::error::Fault;
use crate::error::Result;
use crate::trace::observation::Observation;

/// The keys that filters know.
pub const KEYS: [&str; 11] =
    ["machine", "ranks", "implementation", "algorithm", "protocol", "channels", "threads", "timing", "collective", "bytes", "size"];

/// Keys whose values are numbers and can be compared by `<=` and `>=`.
const NUMBERS: [&str; 4] = ["ranks", "channels", "threads", "bytes"];

/// Conditions that hold together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    conditions: Vec<Condition>,
    text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    key: &'static str,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    OneOf(Vec<String>),
    AtMost(u64),
    AtLeast(u64),
}

impl Filter {
    /// From its text.
    ///
    /// # Errors
    /// `fit-filter` for unknown keys and conditions that cannot be read.
    pub fn parse(text: &str) -> Result<Filter> {
        let conditions = text.split(',').map(|part| condition(text, part)).collect::<Result<_>>()?;
        Ok(Filter { conditions, text: text.to_owned() })
    }

    fn accepts(&self, row: &Observation, place: usize) -> bool {
        self.conditions.iter().all(|condition| condition.accepts(row, place))
    }
}

impl std::fmt::Display for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

fn condition(text: &str, part: &str) -> Result<Condition> {
    let fault = || {
        Fault::new("fit-filter", format!("`{}` in `{text}` is not a condition", part.trim()))
            .help(format!("write KEY=VALUE|VALUE, KEY<=NUMBER or KEY>=NUMBER, joined by commas; keys: {}", KEYS.join(", ")))
    };
    let at = part.find(['<', '>', '=']).ok_or_else(fault)?;
    let (name, rest) = part.split_at(at);
    let key = KEYS.into_iter().find(|key| *key == name.trim()).ok_or_else(fault)?;
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| fault());
    let test = if let Some(value) = rest.strip_prefix("<=") {
        Test::AtMost(number(value)?)
    } else if let Some(value) = rest.strip_prefix(">=") {
        Test::AtLeast(number(value)?)
    } else if let Some(values) = rest.strip_prefix('=') {
        Test::OneOf(values.split('|').map(|value| value.trim().to_ascii_lowercase()).collect())
    } else {
        return Err(fault());
    };
    if !matches!(test, Test::OneOf(_)) && !NUMBERS.contains(&key) {
        return Err(fault());
    }
    Ok(Condition { key, test })
}

impl Condition {
    fn accepts(&self, row: &Observation, place: usize) -> bool {
        let number = match self.key {
            "ranks" => Some(u64::from(row.ranks)),
            "channels" => row.channels.map(|channels| u64::from(channels.max)),
            "threads" => row.threads.map(u64::from),
            "bytes" => Some(row.bytes),
            _ => None,
        };
        match &self.test {
            Test::AtMost(most) => number.is_some_and(|number| number <= *most),
            Test::AtLeast(least) => number.is_some_and(|number| number >= *least),
            Test::OneOf(values) => {
                let name = match self.key {
                    "machine" => row.machine.to_ascii_lowercase(),
                    "implementation" => row.implementation.name().to_owned(),
                    "algorithm" => row.algorithm.name().to_owned(),
                    "protocol" => row.protocol.name().to_owned(),
                    "timing" => row.timing.name().to_owned(),
                    "collective" => row.collective.name().to_owned(),
                    "size" => (if place.is_multiple_of(2) { "even" } else { "odd" }).to_owned(),
                    _ => number.map_or_else(|| "auto".to_owned(), |number| number.to_string()),
                };
                values.contains(&name)
            }
        }
    }
}

/// Which rows at least one of the filters accepts; all of them without filters.
pub fn select(rows: &[Observation], filters: &[Filter]) -> Vec<bool> {
    let places = places(rows);
    (rows.iter().zip(places)).map(|(row, place)| filters.is_empty() || filters.iter().any(|filter| filter.accepts(row, place))).collect()
}

/// Each row's place in the ascending sizes of its series: what differs in size alone.
fn places(rows: &[Observation]) -> Vec<usize> {
    let mut series: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for row in rows {
        series.entry(series_of(row)).or_default().push(row.bytes);
    }
    for sizes in series.values_mut() {
        sizes.sort_unstable();
        sizes.dedup();
    }
    rows.iter().map(|row| series[&series_of(row)].partition_point(|size| *size < row.bytes)).collect()
}

/// All that tells rows apart but the size.
pub fn series_of(row: &Observation) -> String {
    format!(
        "{} {} {} {} {} {:?} {:?} {:?} {} {}",
        row.machine,
        row.ranks,
        row.implementation,
        row.algorithm,
        row.protocol,
        row.channels,
        row.threads,
        row.buffer_bytes,
        row.timing,
        row.collective
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::observation;
    use proptest::prelude::*;

    fn rows() -> Vec<Observation> {
        let text = "machine,ranks,implementation,protocol,channels,bytes,latency_us\n\
                    m,2,nccl,ll,1,256,5\nm,2,nccl,ll,1,512,6\nm,2,nccl,ll,1,1024,7\nm,4,nccl,simple,,256,8\n";
        observation::read_bytes("x.csv", text.as_bytes()).expect("observations")
    }

    fn chosen(texts: &[&str]) -> Vec<bool> {
        let filters: Vec<Filter> = texts.iter().map(|text| Filter::parse(text).expect("a filter")).collect();
        select(&rows(), &filters)
    }

    #[test]
    fn conditions_join_and_filters_add() {
        assert_eq!(chosen(&[]), [true; 4]);
        assert_eq!(chosen(&["ranks=2,bytes<=512"]), [true, true, false, false]);
        assert_eq!(chosen(&["protocol=simple", "bytes>=1024"]), [false, false, true, true]);
        assert_eq!(chosen(&["ranks=2|4,size=even"]), [true, false, true, true]);
        assert_eq!(chosen(&["channels=auto"]), [false, false, false, true]);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "ranks", "colour=red", "ranks<4", "protocol<=3", "bytes<=x"] {
            assert_eq!(Filter::parse(text).expect_err(text).code, "fit-filter", "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = Filter::parse(&text);
        }
    }
}
