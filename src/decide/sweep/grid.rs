//! The file of a sweep (TOML) and the values that each of its cases has.
//!
//! ```toml
//! format = 1
//! [base]                       # what all cases share
//! machine = "8x-rtx-pro-6000-server"
//! [grid]                       # all combinations, the last axis fastest
//! strategy = ["nccl-default", "one-shot-push"]
//! tokens = [1, 2, 3, 4]
//! batch = { from = 1, to = 16, count = 5, scale = "log" }
//! ```
//!
//! In place of `[grid]`: `[[list]]`, one table a case, or `[random]` with
//! `count` and `seed` and the axes in `[random.axes]`, each a list to choose
//! from or `{ low, high, scale }`.

use std::ops::Range;

use toml::Spanned;
use toml::de::DeTable;
use toml::de::DeValue;

use super::value::Between;
use super::value::Value;
use super::value::share;
use crate::error::Fault;
use crate::error::Result;

/// More cases than this are refused.
pub const CASES_MAX: u64 = 1_000_000_000;
/// More values on one axis than this are refused.
const VALUES_MAX: usize = 1_000_000;

/// A value and where it stands in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// The value.
    pub value: Value,
    /// Bytes of the file.
    pub span: Range<usize>,
}

/// What an axis takes its values from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Listed, or counted out along a range.
    Listed(Vec<Placed>),
    /// Drawn between two ends.
    Drawn(Between, Range<usize>),
}

/// One axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// As the file calls it.
    pub name: String,
    /// Where the name stands.
    pub span: Range<usize>,
    /// Its values.
    pub source: Source,
}

/// How axes make cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Grid,
    List,
    Random { seed: u64 },
}

/// A sweep's file.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Its name, for messages.
    pub name: String,
    /// Its text, for messages and the hash.
    pub text: String,
    /// What all cases share.
    pub base: Vec<(Axis, Value)>,
    /// What varies, in the order of the file.
    pub axes: Vec<Axis>,
    /// How many cases there are.
    pub cases: u64,
    mode: Mode,
}

impl Grid {
    /// Reads a sweep.
    ///
    /// # Errors
    /// `sweep-syntax` and `sweep-bad-grid`, with the place in the file.
    pub fn parse(name: &str, text: &str) -> Result<Grid> {
        let reader = Reader { name, text };
        let parsed = DeTable::parse(text).map_err(|error| {
            let message = error.message().lines().next().unwrap_or("not TOML").to_owned();
            Fault::new("sweep-syntax", message).at(name, text, error.span().unwrap_or(0..0), "here")
        })?;
        let table = parsed.into_inner();
        let (mut base, mut body, mut format) = (Vec::new(), None, None);
        for (key, value) in in_order(&table) {
            match key.get_ref().as_ref() {
                "format" => format = Some(reader.whole(value, 1, 1)?),
                "base" => base = reader.base(value)?,
                "grid" | "list" | "random" if body.is_some() => {
                    return Err(reader.bad("a sweep has one of [grid], [[list]] and [random]", key.span(), "the second"));
                }
                "grid" => body = Some(reader.grid(value)?),
                "list" => body = Some(reader.list(value)?),
                "random" => body = Some(reader.random(value)?),
                other => return Err(reader.bad(&format!("`{other}` is not known here"), key.span(), "this key")),
            }
        }
        if format.is_none() {
            return Err(reader.bad("the file does not say its format", 0..0, "here").help("begin with format = 1"));
        }
        let Some((mode, axes, cases)) = body else {
            return Err(reader.bad("there are no cases", 0..0, "here").help("add [grid], [[list]] or [random]"));
        };
        for (at, axis) in axes.iter().enumerate() {
            if axes[..at].iter().any(|other| other.name == axis.name) {
                return Err(reader.bad(&format!("`{}` is there twice", axis.name), axis.span.clone(), "the second"));
            }
            if let Some((_, _)) = base.iter().find(|(other, _)| other.name == axis.name) {
                return Err(reader.bad(&format!("`{}` is in [base] and varies", axis.name), axis.span.clone(), "this axis"));
            }
        }
        Ok(Grid { name: name.to_owned(), text: text.to_owned(), base, axes, cases, mode })
    }

    /// The value of each axis in a case, which must be below [`Grid::cases`].
    pub fn case(&self, index: u64) -> Vec<Value> {
        let mut rest = index;
        let mut values: Vec<Value> = Vec::with_capacity(self.axes.len());
        let last_first: Vec<usize> = match self.mode {
            Mode::Grid => (0..self.axes.len()).rev().collect(),
            _ => (0..self.axes.len()).collect(),
        };
        for axis in last_first {
            let value = match &self.axes[axis].source {
                Source::Listed(all) => {
                    let count = all.len() as u64;
                    let place = match self.mode {
                        Mode::Grid => {
                            let place = rest % count;
                            rest /= count;
                            place
                        }
                        Mode::List => index,
                        Mode::Random { seed } => ((share(seed, index, axis as u64) * count as f64) as u64).min(count - 1),
                    };
                    all[place as usize].value.clone()
                }
                Source::Drawn(between, _) => {
                    let Mode::Random { seed } = self.mode else { return values };
                    between.drawn(share(seed, index, axis as u64))
                }
            };
            values.push(value);
        }
        if self.mode == Mode::Grid {
            values.reverse();
        }
        values
    }

    /// A fault at a place of the file.
    pub fn fault(&self, fault: Box<Fault>, span: &Range<usize>) -> Box<Fault> {
        if fault.place.is_some() { fault } else { fault.at(&self.name, &self.text, span.clone(), "this") }
    }
}

type Key<'a> = Spanned<std::borrow::Cow<'a, str>>;

/// Entries as the file has them.
fn in_order<'t, 'i>(table: &'t DeTable<'i>) -> Vec<(&'t Key<'i>, &'t Spanned<DeValue<'i>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

struct Reader<'a> {
    name: &'a str,
    text: &'a str,
}

type Body = (Mode, Vec<Axis>, u64);

impl Reader<'_> {
    fn bad(&self, message: &str, span: Range<usize>, label: &str) -> Box<Fault> {
        Fault::new("sweep-bad-grid", message).at(self.name, self.text, span, label)
    }

    fn table<'t, 'i>(&self, value: &'t Spanned<DeValue<'i>>) -> Result<&'t DeTable<'i>> {
        match value.get_ref() {
            DeValue::Table(table) => Ok(table),
            _ => Err(self.bad("expected a table", value.span(), "this")),
        }
    }

    /// Axes of a table; a table under an axis's name that is no range holds axes of a longer name.
    fn entries<'t, 'i>(&self, prefix: &str, table: &'t DeTable<'i>) -> Vec<(String, Range<usize>, &'t Spanned<DeValue<'i>>)> {
        let mut all = Vec::new();
        for (key, value) in in_order(table) {
            let name = if prefix.is_empty() { key.get_ref().to_string() } else { format!("{prefix}.{}", key.get_ref()) };
            match value.get_ref() {
                DeValue::Table(inner) if !inner.iter().any(|(key, _)| matches!(key.get_ref().as_ref(), "from" | "low")) => {
                    all.extend(self.entries(&name, inner));
                }
                _ => all.push((name, key.span(), value)),
            }
        }
        all
    }

    fn value(&self, value: &Spanned<DeValue<'_>>) -> Result<Placed> {
        let span = value.span();
        let number = |text: &str, radix: u32| i64::from_str_radix(text, radix).ok();
        let read = match value.get_ref() {
            DeValue::String(text) => Some(Value::Text(text.to_string())),
            DeValue::Integer(integer) => number(integer.as_str(), integer.radix()).map(Value::Whole),
            DeValue::Float(float) => float.as_str().parse().ok().filter(|real: &f64| real.is_finite()).map(Value::Real),
            _ => None,
        };
        match read {
            Some(value) => Ok(Placed { value, span }),
            None => Err(self.bad("expected a finite number or a text", span, "this value")),
        }
    }

    fn number(&self, value: &Spanned<DeValue<'_>>) -> Result<f64> {
        let placed = self.value(value)?;
        placed.value.number().ok_or_else(|| self.bad("expected a number", placed.span, "this value"))
    }

    fn whole(&self, value: &Spanned<DeValue<'_>>, least: i64, most: i64) -> Result<u64> {
        match self.value(value)? {
            Placed { value: Value::Whole(whole), .. } if (least..=most).contains(&whole) => Ok(whole as u64),
            Placed { span, .. } => Err(self.bad(&format!("expected a whole number from {least} to {most}"), span, "this value")),
        }
    }

    fn base(&self, value: &Spanned<DeValue<'_>>) -> Result<Vec<(Axis, Value)>> {
        (self.entries("", self.table(value)?).into_iter())
            .map(|(name, span, value)| {
                let placed = self.value(value)?;
                let value = placed.value.clone();
                Ok((Axis { name, span, source: Source::Listed(vec![placed]) }, value))
            })
            .collect()
    }

    fn grid(&self, value: &Spanned<DeValue<'_>>) -> Result<Body> {
        let mut axes = Vec::new();
        let mut cases = 1u64;
        for (name, span, value) in self.entries("", self.table(value)?) {
            let values = self.listed(value)?;
            cases = cases.saturating_mul(values.len() as u64);
            axes.push(Axis { name, span, source: Source::Listed(values) });
        }
        if axes.is_empty() || cases > CASES_MAX {
            return Err(self.bad(&format!("a grid has from 1 axis and at most {CASES_MAX} cases"), value.span(), "this grid"));
        }
        Ok((Mode::Grid, axes, cases))
    }

    fn list(&self, value: &Spanned<DeValue<'_>>) -> Result<Body> {
        let DeValue::Array(rows) = value.get_ref() else {
            return Err(self.bad("expected [[list]], one table a case", value.span(), "this"));
        };
        let mut axes: Vec<(Axis, Vec<Placed>)> = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            let entries = self.entries("", self.table(row)?);
            for (name, span, value) in entries {
                let placed = self.value(value)?;
                match axes.iter_mut().find(|(axis, _)| axis.name == name) {
                    Some((_, values)) => values.push(placed),
                    None => axes.push((Axis { name, span, source: Source::Listed(Vec::new()) }, vec![placed])),
                }
            }
            if let Some((axis, _)) = axes.iter().find(|(_, values)| values.len() != at + 1) {
                return Err(self.bad(&format!("`{}` is not in each case of the list", axis.name), row.span(), "this case"));
            }
        }
        if axes.is_empty() {
            return Err(self.bad("the list has no cases", value.span(), "this list"));
        }
        let finish = |(axis, values)| Axis { source: Source::Listed(values), ..axis };
        Ok((Mode::List, axes.into_iter().map(finish).collect(), rows.len() as u64))
    }

    fn random(&self, value: &Spanned<DeValue<'_>>) -> Result<Body> {
        let (mut count, mut seed, mut axes) = (None, None, Vec::new());
        for (key, value) in in_order(self.table(value)?) {
            match key.get_ref().as_ref() {
                "count" => count = Some(self.whole(value, 1, CASES_MAX as i64)?),
                "seed" => seed = Some(self.whole(value, 0, i64::MAX)?),
                "axes" => {
                    for (name, span, value) in self.entries("", self.table(value)?) {
                        axes.push(Axis { name, span, source: self.source(value)? });
                    }
                }
                other => return Err(self.bad(&format!("`{other}` is not known here"), key.span(), "this key")),
            }
        }
        match (count, seed) {
            (Some(count), Some(seed)) if !axes.is_empty() => Ok((Mode::Random { seed }, axes, count)),
            _ => Err(self.bad("[random] needs count, seed and [random.axes]", value.span(), "here")),
        }
    }

    fn source(&self, value: &Spanned<DeValue<'_>>) -> Result<Source> {
        let DeValue::Table(table) = value.get_ref() else { return Ok(Source::Listed(self.listed(value)?)) };
        if !table.iter().any(|(key, _)| key.get_ref().as_ref() == "low") {
            return Ok(Source::Listed(self.listed(value)?));
        }
        let (between, _) = self.between(value, table, ["low", "high"])?;
        Ok(Source::Drawn(between, value.span()))
    }

    /// The ends and the scale of a range, and its count.
    fn between(&self, value: &Spanned<DeValue<'_>>, table: &DeTable<'_>, ends: [&str; 2]) -> Result<(Between, Option<u64>)> {
        let (mut low, mut high, mut log, mut count, mut whole) = (None, None, false, None, true);
        for (key, value) in in_order(table) {
            match key.get_ref().as_ref() {
                name if ends.contains(&name) => {
                    whole &= matches!(value.get_ref(), DeValue::Integer(_));
                    let end = if name == ends[0] { &mut low } else { &mut high };
                    *end = Some(self.number(value)?);
                }
                "count" if ends[0] == "from" => count = Some(self.whole(value, 2, VALUES_MAX as i64)?),
                "scale" => match self.value(value)?.value {
                    Value::Text(text) if text == "log" => log = true,
                    Value::Text(text) if text == "linear" => {}
                    _ => return Err(self.bad("expected \"linear\" or \"log\"", value.span(), "this value")),
                },
                other => return Err(self.bad(&format!("`{other}` is not known here"), key.span(), "this key")),
            }
        }
        match (low, high) {
            (Some(low), Some(high)) if low <= high && (!log || low > 0.0) => Ok((Between { low, high, log, whole }, count)),
            _ => Err(self.bad("expected two ends in order, above zero on a logarithmic scale", value.span(), "this range")),
        }
    }

    /// A list of values, or `{ from, to, count, scale }`.
    fn listed(&self, value: &Spanned<DeValue<'_>>) -> Result<Vec<Placed>> {
        let values = match value.get_ref() {
            DeValue::Array(array) => array.iter().map(|value| self.value(value)).collect::<Result<Vec<Placed>>>()?,
            DeValue::Table(table) => {
                let (between, count) = self.between(value, table, ["from", "to"])?;
                let Some(count) = count else { return Err(self.bad("the range has no count", value.span(), "this range")) };
                let mut values: Vec<Placed> = Vec::new();
                for nth in 0..count {
                    let value_at = between.at(nth as f64 / (count - 1) as f64);
                    // Whole numbers close together come once.
                    if values.last().is_none_or(|last| last.value != value_at) {
                        values.push(Placed { value: value_at, span: value.span() });
                    }
                }
                values
            }
            _ => vec![self.value(value)?],
        };
        if values.is_empty() || values.len() > VALUES_MAX {
            return Err(self.bad(&format!("an axis has from 1 to {VALUES_MAX} values"), value.span(), "this axis"));
        }
        Ok(values)
    }
}
