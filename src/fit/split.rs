//! Splits: which rows of which files are fitted and which are tested, as data.

use std::path::Path;
use std::path::PathBuf;

use serde::Deserialize;

use crate::error::Fault;
use crate::error::Result;
use crate::fit::filter::Filter;
use crate::fit::filter::select;
use crate::trace::observation;
use crate::trace::observation::Observation;

/// The newest `format` that this program reads.
const FORMAT: u32 = 1;
/// Larger files are refused.
const SIZE_LIMIT: usize = 1 << 20;

/// A split as its file has it.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// Version of the format.
    pub format: u32,
    /// Kebab-case name.
    pub name: String,
    /// One sentence.
    pub about: String,
    /// The machine whose constants are fitted.
    pub machine: String,
    /// Observation files, relative to the folder that the command runs in.
    pub observations: Vec<PathBuf>,
    /// Filters of the rows that are fitted.
    pub fit: Vec<String>,
    /// Filters of the rows that are tested; all that are not fitted if there is none.
    #[serde(default)]
    pub test: Vec<String>,
    /// Dotted paths of the constants that are fitted.
    pub constants: Vec<String>,
    /// What the tested rows must reach.
    #[serde(default)]
    pub reach: Reach,
}

/// Limits of errors of tested rows.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Reach {
    /// Median, percent.
    pub median_pct: Option<f64>,
    /// 95th percentile.
    pub p95_pct: Option<f64>,
}

/// Rows of a split.
pub struct Rows {
    /// All rows that it fits or tests.
    pub all: Vec<Observation>,
    /// Which of them are fitted; the others are tested.
    pub fitted: Vec<bool>,
}

impl Rows {
    /// The rows that are fitted.
    pub fn fit(&self) -> Vec<&Observation> {
        self.chosen(true)
    }

    /// The rows that are tested.
    pub fn test(&self) -> Vec<&Observation> {
        self.chosen(false)
    }

    fn chosen(&self, fitted: bool) -> Vec<&Observation> {
        self.all.iter().zip(&self.fitted).filter(|(_, flag)| **flag == fitted).map(|(row, _)| row).collect()
    }
}

impl Split {
    /// Reads a split.
    ///
    /// # Errors
    /// `io`, `fit-split` with the place in the file.
    pub fn read(path: &Path) -> Result<Split> {
        let text = crate::trace::table::read_text(path)?;
        Split::parse(&path.to_string_lossy(), &text)
    }

    /// From the text of a file.
    ///
    /// # Errors
    /// `fit-split`.
    pub fn parse(name: &str, text: &str) -> Result<Split> {
        if text.len() > SIZE_LIMIT {
            return Err(Fault::new("fit-split", format!("{name} is larger than 1 MiB")));
        }
        let split: Split = toml::from_str(text).map_err(|error| {
            let message = error.message().lines().next().unwrap_or("not TOML").to_owned();
            Fault::new("fit-split", message).at(name, text, error.span().unwrap_or(0..0), "here")
        })?;
        if split.format > FORMAT {
            return Err(Fault::new("fit-split", format!("{name} has format {}, this program reads up to {FORMAT}", split.format))
                .help("use a newer lanecast"));
        }
        for filter in split.fit.iter().chain(&split.test) {
            Filter::parse(filter)?;
        }
        Ok(split)
    }

    /// Reads the split's rows; paths are relative to `folder`.
    ///
    /// # Errors
    /// Files that cannot be read; `fit-split` when nothing is left to fit or to test.
    pub fn rows(&self, folder: &Path) -> Result<Rows> {
        let mut all = Vec::new();
        for file in &self.observations {
            all.extend(observation::read_file(&folder.join(file))?);
        }
        all.retain(|row| row.machine == self.machine || row.machine.is_empty());
        let parse = |filters: &[String]| filters.iter().map(|filter| Filter::parse(filter)).collect::<Result<Vec<_>>>();
        let fitted = select(&all, &parse(&self.fit)?);
        let tested = select(&all, &parse(&self.test)?);
        let (mut kept, mut flags) = (Vec::new(), Vec::new());
        for ((row, fit), test) in all.into_iter().zip(fitted).zip(tested) {
            if fit || test {
                kept.push(row);
                flags.push(fit);
            }
        }
        let rows = Rows { all: kept, fitted: flags };
        if rows.fit().is_empty() || rows.test().is_empty() {
            return Err(Fault::new("fit-split", format!("split {} leaves no row to fit or no row to test", self.name)));
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "format = 1\nname = \"a\"\nabout = \"b\"\nmachine = \"h200-shared\"\n\
        observations = [\"traces/observations/h200-nccl-graph.csv\"]\nfit = [\"channels=1\"]\n\
        constants = [\"kinds.h200.protocol.poll_ns\"]\n[reach]\nmedian_pct = 4\n";

    #[test]
    fn what_is_not_fitted_is_tested() {
        let split = Split::parse("a.toml", TEXT).expect("a split");
        let rows = split.rows(Path::new(env!("CARGO_MANIFEST_DIR"))).expect("rows");
        assert!(rows.fit().iter().all(|row| row.channels.is_some_and(|c| c.max == 1)));
        assert!(rows.test().iter().all(|row| row.channels.is_some_and(|c| c.max == 4)));
        assert_eq!(rows.fit().len() + rows.test().len(), rows.all.len());
    }

    #[test]
    fn newer_formats_and_bad_filters_are_refused() {
        for text in [TEXT.replace("format = 1", "format = 9"), TEXT.replace("channels=1", "colour=1"), TEXT.replace("about", "abuot")] {
            assert!(Split::parse("a.toml", &text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn mangled_text_never_panics(cut in 0usize..260, junk in ".{0,6}") {
            let at = cut.min(TEXT.len());
            let _ = Split::parse("a.toml", &format!("{}{junk}{}", &TEXT[..at], &TEXT[at..]));
        }
    }
}
