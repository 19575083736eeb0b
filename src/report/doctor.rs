//! Checks and drift in tables.

use crate::decide::baseline::Baseline;
use crate::decide::baseline::Drift;
use crate::decide::detected::Checked;
use crate::decide::diagnose::verdict::digits;
use crate::decide::readings::Reading;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Column;
use crate::render::table::Table;

/// What was looked at; nothing where there was no detection.
pub fn checks(checks: &[Checked]) -> Vec<Section> {
    if checks.is_empty() {
        return Vec::new();
    }
    vec![Section { heading: "Checks".to_owned(), blocks: vec![Block::Table(rows(checks))] }]
}

/// The checks for programs.
pub fn rows(checks: &[Checked]) -> Table {
    let names = [("check", "check"), ("health", "health"), ("seen", "seen"), ("remedy", "what to do")];
    let mut table = Table::new(names.iter().map(|(key, heading)| Column::text(key, heading)).collect());
    for check in checks {
        table.row(vec![check.what.into(), check.health.name().into(), check.seen.as_str().into(), check.remedy.into()]);
    }
    table
}

/// What changed since the baseline.
pub fn drift(baseline: &Baseline, drifts: &[Drift], moved: &[(String, String, String)]) -> Section {
    let mut table = Table::new(vec![
        Column::text("what", "what"),
        Column::number("before", "before"),
        Column::number("now", "now"),
        Column::number("change_pct", "change, %"),
        Column::text("verdict", "verdict"),
    ]);
    for drift in drifts {
        let verdict = match (drift.real, drift.worse) {
            (false, _) => "inside the noise",
            (true, true) => "worse",
            (true, false) => "better",
        };
        let change = (drift.now / drift.before - 1.0) * 100.0;
        table.row(vec![
            drift.what.as_str().into(),
            digits(drift.before).into(),
            digits(drift.now).into(),
            Number::new(change, 1).into(),
            verdict.into(),
        ]);
    }
    let versions: Vec<String> = moved.iter().map(|(name, before, now)| format!("{name} {before} -> {now}")).collect();
    let text = match (versions.is_empty(), drifts.iter().any(|drift| drift.real)) {
        (true, true) => "No version that is known changed: something else moved.".to_owned(),
        (true, false) => "No version that is known changed.".to_owned(),
        (false, true) => format!("Changed besides: {}. To know which of them it was, go back with one at a time.", versions.join(", ")),
        (false, false) => format!("Changed besides: {}; nothing measured drifted.", versions.join(", ")),
    };
    Section { heading: format!("Since {}", baseline.date), blocks: vec![Block::Table(table), Block::Text(text)] }
}

/// What was measured besides what a diagnosis weighs.
pub fn measured(readings: &[Reading]) -> Vec<Section> {
    if readings.is_empty() {
        return Vec::new();
    }
    let columns = [("value", "median"), ("low", "least"), ("high", "most")];
    let mut all = vec![Column::text("name", "measured here")];
    all.extend(columns.iter().map(|(key, heading)| Column::number(key, heading)));
    let mut table = Table::new(all);
    for reading in readings {
        table.row(vec![
            reading.name.as_str().into(),
            digits(reading.value).into(),
            digits(reading.low).into(),
            digits(reading.high).into(),
        ]);
    }
    vec![Section { heading: "Measured".to_owned(), blocks: vec![Block::Table(table)] }]
}

/// What one GPU by itself can not tell.
pub fn one_gpu() -> Section {
    let text = "One GPU by itself: nothing communicates, so nothing is diagnosed. --ranks-per-gpu 8 lets ranks share it; \
                --machine with --observed weighs what was seen of a server.";
    Section { heading: String::new(), blocks: vec![Block::Text(text.to_owned())] }
}

/// Where there is nothing to diagnose.
pub fn nothing_measured() -> Section {
    let text = "Nothing was measured, so nothing is diagnosed: add --observed decode_tps=… or files with --from.";
    Section { heading: String::new(), blocks: vec![Block::Text(text.to_owned())] }
}
