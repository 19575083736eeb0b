//! How far forecasts were from measurements, by group: the part of a
//! forecast's uncertainty that no constant's interval holds.
//!
//! `validation/residuals.csv` has quantiles of ln(measured ÷ forecast) for each
//! group of collectives and of kernels. They are made from half of the
//! committed observations (bit 32 of the FNV-1a hash of the row's question);
//! `tests/intervals.rs` holds the other half against the intervals, and makes
//! the file: `LANECAST_REFIT=1 cargo test --test intervals`.

use std::sync::LazyLock;

/// The shares whose quantiles are kept.
pub const SHARES: [f64; 9] = [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99];

/// Spreads are taken this many times as wide where no row of the machine is in the group: assumed.
const ELSEWHERE: f64 = 2.0;

/// One group.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// `collective` or `kernel`.
    pub kind: String,
    /// Machine id, or kind of GPU for kernels.
    pub machine: String,
    /// Ranks; 0 for kernels.
    pub ranks: u32,
    /// Implementation, or the kernel's name.
    pub implementation: String,
    /// Algorithm and protocol: `ring ll`; empty for kernels.
    pub variant: String,
    /// Rows behind it.
    pub rows: usize,
    /// ln(measured ÷ forecast) at [`SHARES`].
    pub quantiles: [f64; 9],
}

/// A distribution of ln(measured ÷ forecast).
#[derive(Clone, Debug, PartialEq)]
pub struct Residual {
    /// What it was taken from, in words.
    pub source: String,
    /// At [`SHARES`].
    pub quantiles: [f64; 9],
}

impl Residual {
    /// None: forecasts are taken as they are.
    pub fn none() -> Residual {
        Residual { source: "none".to_owned(), quantiles: [0.0; 9] }
    }

    /// The value that a share of the distribution lies below, linear between the kept quantiles.
    pub fn at(&self, share: f64) -> f64 {
        let next = SHARES.iter().position(|known| share <= *known).unwrap_or(SHARES.len());
        match next {
            0 => self.quantiles[0],
            9 => self.quantiles[8],
            at => {
                let part = (share - SHARES[at - 1]) / (SHARES[at] - SHARES[at - 1]);
                self.quantiles[at - 1] + (self.quantiles[at] - self.quantiles[at - 1]) * part
            }
        }
    }

    /// Standard deviation of the normal with the same 90 % interval.
    pub fn sigma(&self) -> f64 {
        (self.quantiles[7] - self.quantiles[1]) / (2.0 * 1.6449)
    }

    /// What is left once a spread `sigma` of the constants is taken off: only
    /// the part that the constants do not explain, about the same median.
    #[must_use]
    pub fn beyond(&self, sigma: f64) -> Residual {
        let own = self.sigma();
        let left = if own > 0.0 { libm::sqrt((1.0 - (sigma / own) * (sigma / own)).max(0.0)) } else { 0.0 };
        let median = self.quantiles[4];
        Residual { source: self.source.clone(), quantiles: self.quantiles.map(|value| median + (value - median) * left) }
    }
}

static COMMITTED: LazyLock<Vec<Group>> = LazyLock::new(|| read(include_str!("../../validation/residuals.csv")));

/// The groups of the committed file.
pub fn committed() -> &'static [Group] {
    &COMMITTED
}

/// Reads the file's text; lines that hold no group are passed over.
pub fn read(text: &str) -> Vec<Group> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Group> {
    let cells: Vec<&str> = line.split(',').collect();
    let (names, numbers) = (cells.get(..6)?, cells.get(6..15)?);
    let mut quantiles = [0.0; 9];
    for (slot, cell) in quantiles.iter_mut().zip(numbers) {
        *slot = cell.parse::<f64>().ok().filter(|value| value.is_finite())?;
    }
    Some(Group {
        kind: names[0].to_owned(),
        machine: names[1].to_owned(),
        ranks: names[2].parse().ok()?,
        implementation: names[3].to_owned(),
        variant: names[4].to_owned(),
        rows: names[5].parse().ok()?,
        quantiles,
    })
}

/// The file's text.
pub fn write(groups: &[Group]) -> String {
    let mut text = "# ln(measured / forecast) by group, from half of the committed observations; made by: LANECAST_REFIT=1 cargo test --test intervals\n".to_owned();
    text.push_str("kind,machine,ranks,implementation,variant,rows,q01,q05,q10,q25,q50,q75,q90,q95,q99\n");
    for group in groups {
        let numbers: Vec<String> = group.quantiles.iter().map(|value| format!("{value:.4}")).collect();
        let (kind, machine, implementation, variant) = (&group.kind, &group.machine, &group.implementation, &group.variant);
        text.push_str(&format!("{kind},{machine},{},{implementation},{variant},{},{}\n", group.ranks, group.rows, numbers.join(",")));
    }
    text
}

/// Quantiles at [`SHARES`] of weighted values; zeros without any.
pub fn quantiles(mut values: Vec<(f64, f64)>) -> [f64; 9] {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total: f64 = values.iter().map(|value| value.1).sum();
    SHARES.map(|share| {
        let mut below = 0.0;
        let found = values.iter().find(|(_, weight)| {
            below += weight;
            below >= share * total
        });
        found.or(values.last()).map_or(0.0, |value| value.0)
    })
}

/// The residual of collectives that match best: same machine, ranks,
/// implementation and variant; else fewer of these, the machine given up last
/// but one. What is not of the machine is widened and has no bias.
pub fn of_collective(groups: &[Group], machine: &str, ranks: u32, implementation: &str, variant: &str) -> Residual {
    let collectives = || groups.iter().filter(|group| group.kind == "collective");
    let custom = |name: &str| name != "nccl";
    let attempts: [(&str, Vec<&Group>); 5] = [
        (
            "same machine, ranks, kernel and protocol",
            collectives()
                .filter(|g| g.machine == machine && g.ranks == ranks && g.implementation == implementation && g.variant == variant)
                .collect(),
        ),
        (
            "same machine, ranks and kernel",
            collectives().filter(|g| g.machine == machine && g.ranks == ranks && g.implementation == implementation).collect(),
        ),
        ("same machine and kernel", collectives().filter(|g| g.machine == machine && g.implementation == implementation).collect()),
        ("same kernel on other machines", collectives().filter(|g| g.implementation == implementation).collect()),
        ("like kernels on all machines", collectives().filter(|g| custom(&g.implementation) == custom(implementation)).collect()),
    ];
    let found = attempts.into_iter().enumerate().find(|(_, (_, members))| !members.is_empty());
    found.map_or_else(Residual::none, |(at, (words, members))| pooled(words, &members, at >= 3))
}

/// The residual of kernels whose name starts and ends so, on a kind of GPU; else on all.
pub fn of_kernel(groups: &[Group], kind: &str, starts: &str, ends: &str) -> Residual {
    let matching =
        |group: &&Group| group.kind == "kernel" && group.implementation.starts_with(starts) && group.implementation.ends_with(ends);
    let here: Vec<&Group> = groups.iter().filter(matching).filter(|group| group.machine == kind).collect();
    if !here.is_empty() {
        return pooled("same kernels on this kind of GPU", &here, false);
    }
    pooled("like kernels on other GPUs", &groups.iter().filter(matching).collect::<Vec<_>>(), true)
}

/// The mixture of groups, each with the weight of its rows.
fn pooled(words: &str, members: &[&Group], elsewhere: bool) -> Residual {
    let mut values = Vec::new();
    for group in members {
        // Each quantile stands for the share of rows around it.
        for (at, value) in group.quantiles.iter().enumerate() {
            let low = if at == 0 { 0.0 } else { (SHARES[at - 1] + SHARES[at]) / 2.0 };
            let high = if at == 8 { 1.0 } else { (SHARES[at] + SHARES[at + 1]) / 2.0 };
            let weight = (high - low) * group.rows as f64;
            if elsewhere {
                values.extend([(ELSEWHERE * value, weight / 2.0), (-ELSEWHERE * value, weight / 2.0)]);
            } else {
                values.push((*value, weight));
            }
        }
    }
    let rows: usize = members.iter().map(|group| group.rows).sum();
    let found = quantiles(values);
    let (median, factor) = (found[4], few_rows(rows));
    Residual { source: format!("{words}: {rows} rows"), quantiles: found.map(|value| median + (value - median) * factor) }
}

/// By how much quantiles of a few rows are to be widened to hold the next one:
/// Student's t over the normal at 95 % (Cornish and Fisher's expansion), with
/// the error of the mean.
fn few_rows(rows: usize) -> f64 {
    let free = rows.saturating_sub(1).max(1) as f64;
    let student = 1.6449 + 1.5240 / free + 1.4200 / (free * free);
    student / 1.6449 * libm::sqrt(1.0 + 1.0 / rows.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(machine: &str, ranks: u32, quantiles: [f64; 9]) -> Group {
        let text = |text: &str| text.to_owned();
        Group {
            kind: text("collective"),
            machine: text(machine),
            ranks,
            implementation: text("nccl"),
            variant: text("ring ll"),
            rows: 10,
            quantiles,
        }
    }

    #[test]
    fn the_file_comes_back() {
        let groups = vec![group("m", 8, [-0.2, -0.1, -0.05, 0.0, 0.01, 0.02, 0.05, 0.1, 0.2])];
        assert_eq!(read(&write(&groups)), groups);
        assert!(!committed().is_empty(), "the committed file holds groups");
        assert!(read("collective,m,8,nccl,x,ten,1,2,3,4,5,6,7,8,9\n,,\n").is_empty());
    }

    #[test]
    fn the_nearest_group_counts_and_others_are_widened() {
        let spread = [-0.4, -0.1, -0.1, -0.1, 0.0, 0.1, 0.1, 0.1, 0.4];
        let groups = vec![group("m", 8, spread)];
        let here = of_collective(&groups, "m", 8, "nccl", "ring ll");
        assert!((here.at(0.95) / (0.1 * few_rows(10)) - 1.0).abs() < 1e-12, "{here:?}");
        let elsewhere = of_collective(&groups, "other", 8, "nccl", "ring ll");
        assert!(elsewhere.sigma() > 1.8 * here.sigma(), "{elsewhere:?}");
        assert_eq!(of_collective(&groups, "m", 8, "one_shot_pull", "").source, "none");
    }

    /// Student's t at 95 % with 9 degrees is 1.833, √1.1 for the mean; many rows need no widening.
    #[test]
    fn few_rows_are_widened() {
        assert!((few_rows(10) - 1.833 / 1.645 * libm::sqrt(1.1)).abs() < 0.01, "{}", few_rows(10));
        assert!((few_rows(10_000) - 1.0).abs() < 1e-3);
    }

    /// Half of the variance is the constants': what is left is √½ as wide.
    #[test]
    fn only_the_unexplained_is_left() {
        let residual = Residual { source: String::new(), quantiles: [-0.3, -0.2, -0.1, 0.0, 0.1, 0.2, 0.3, 0.4, 0.5] };
        let left = residual.beyond(residual.sigma() * libm::sqrt(0.5));
        assert!((left.sigma() / residual.sigma() - libm::sqrt(0.5)).abs() < 1e-12);
        assert_eq!(left.quantiles[4], 0.1);
        assert_eq!(residual.beyond(1.0).sigma(), 0.0);
    }
}
