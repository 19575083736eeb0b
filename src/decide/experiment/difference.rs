//! What differs between two runs: factors, and whatever moved unnoticed.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use super::ledger::Ledger;
use super::ledger::Run;

/// Clocks that differ by less than this are the same.
const CLOCK_SHARE: f64 = 0.02;

/// One thing that differs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// A factor is on in one of the two.
    Factor(String),
    /// Something else changed between them: its name, the two values (empty where it was absent).
    Moved(String, String, String),
}

impl Difference {
    /// In words.
    pub fn words(&self) -> String {
        match self {
            Difference::Factor(id) => id.clone(),
            Difference::Moved(name, from, to) => format!("{name} ({} -> {})", shown(from), shown(to)),
        }
    }
}

fn shown(value: &str) -> &str {
    if value.is_empty() { "absent" } else { value }
}

/// All that differs, from `a` to `b`. What one of the two did not record is taken for the same.
pub fn differences(ledger: &Ledger, a: &Run, b: &Run) -> Vec<Difference> {
    let changed: BTreeSet<&String> = a.factors.symmetric_difference(&b.factors).collect();
    let owned = |variable: &str| changed.iter().any(|id| ledger.factor(id).is_some_and(|factor| factor.environment.contains_key(variable)));
    let mut all: Vec<Difference> = changed.iter().map(|id| Difference::Factor((*id).clone())).collect();
    moved(&a.environment, &b.environment, &mut all, &|name, _, _| owned(name));
    moved(&a.versions, &b.versions, &mut all, &|_, _, _| false);
    moved(&a.clocks, &b.clocks, &mut all, &|_, from, to| close(from, to));
    all.sort();
    all
}

fn moved(a: &BTreeMap<String, String>, b: &BTreeMap<String, String>, all: &mut Vec<Difference>, same: &dyn Fn(&str, &str, &str) -> bool) {
    if a.is_empty() || b.is_empty() {
        return;
    }
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    for name in names {
        let value = |entries: &BTreeMap<String, String>| entries.get(name).cloned().unwrap_or_default();
        let (from, to) = (value(a), value(b));
        if from != to && !same(name, &from, &to) {
            all.push(Difference::Moved(name.clone(), from, to));
        }
    }
}

/// Two readings of one clock.
fn close(from: &str, to: &str) -> bool {
    let number = |text: &str| text.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
    match (number(from), number(to)) {
        (Some(a), Some(b)) if a > 0.0 && b > 0.0 => libm::fabs(libm::log(a / b)) < CLOCK_SHARE,
        _ => false,
    }
}
