//! What a campaign's runs prove, and the next one, in words.

use crate::decide::experiment::ledger::Ledger;
use crate::decide::experiment::ledger::Measure;
use crate::decide::experiment::propose::Next;
use crate::decide::experiment::propose::Proposal;
use crate::decide::experiment::propose::Purpose;
use crate::decide::experiment::verdict::FactorVerdict;
use crate::decide::experiment::verdict::Isolated;
use crate::decide::experiment::verdict::Status;
use crate::decide::experiment::verdict::moved_names;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Cell;
use crate::render::table::Column;
use crate::render::table::Table;

/// Times the healthy forecast from which no factor of a campaign explains what was measured.
const UNEXPLAINED: f64 = 1.2;

/// The verdict on a factor in words.
pub fn verdict_words(verdict: &FactorVerdict) -> String {
    let runs = |pairs: &[(u64, u64)]| pairs.iter().map(|(off, on)| format!("{off}/{on}")).collect::<Vec<_>>().join(", ");
    let list = |ids: &[u64]| ids.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    match &verdict.isolated {
        Some(Isolated::Changes { gain_pct, sigma_pct, runs: pairs }) => {
            let word = if *gain_pct > 0.0 { "gains" } else { "loses" };
            return format!("{word} {:.1} % ± {sigma_pct:.1} (isolated by runs {})", gain_pct.abs(), runs(pairs));
        }
        Some(Isolated::Nothing { gain_pct, sigma_pct, runs: pairs }) => {
            return format!("no effect beyond the noise: {gain_pct:+.1} % ± {sigma_pct:.1} (runs {})", runs(pairs));
        }
        Some(Isolated::Fails { runs: pairs }) => return format!("fails, alone (isolated by runs {})", runs(pairs)),
        Some(Isolated::Mixed { fails, works }) => {
            return format!("fails at times (runs {}), works at others ({})", runs(fails), runs(works));
        }
        None => {}
    }
    if !verdict.implicated_in.is_empty() {
        return format!("implicated by the message of run {}", list(&verdict.implicated_in));
    }
    if !verdict.serves_in.is_empty() {
        return format!("serves (run {}); its effect is not isolated", list(&verdict.serves_in));
    }
    if verdict.is_open() {
        return format!("untested: run {} failed with it and says nothing of it", list(&verdict.open_in));
    }
    "untested".to_owned()
}

/// What all runs prove.
pub fn status_sections(ledger: &Ledger, status: &Status) -> Vec<Section> {
    let mut factors = Table::new(vec![Column::text("factor", "factor"), Column::text("what", "what"), Column::text("verdict", "verdict")]);
    for verdict in &status.factors {
        let what = ledger.factor(&verdict.factor).map_or("", |factor| factor.what.as_str());
        factors.row(vec![verdict.factor.as_str().into(), what.into(), verdict_words(verdict).into()]);
    }
    let runs = ledger.sorted().into_iter().zip(&status.runs).map(|(run, verdict)| {
        let factors =
            if run.factors.is_empty() { "nothing changed".to_owned() } else { run.factors.iter().cloned().collect::<Vec<_>>().join(" + ") };
        format!("Run {} ({factors}: {}): {}.", run.id, run.outcome.name(), verdict.says.join("; "))
    });
    let mut sections = vec![
        Section { heading: ledger.campaign.clone(), blocks: vec![Block::Table(factors)] },
        Section { heading: "What each run proves and does not".to_owned(), blocks: vec![Block::List(runs.collect())] },
    ];
    let moved = moved_names(ledger);
    if !moved.is_empty() {
        let text = format!("Between runs these changed beside the factors, and count as factors: {}.", moved.join(", "));
        sections.push(Section { heading: "Moved unnoticed".to_owned(), blocks: vec![Block::Text(text)] });
    }
    sections
}

/// Verdicts for programs.
pub fn status_rows(status: &Status) -> Table {
    let mut rows = Table::new(vec![
        Column::text("factor", "factor"),
        Column::text("verdict", "verdict"),
        Column::number("gain_pct", "gain, %"),
        Column::number("sigma_pct", "sigma, %"),
        Column::text("words", "in words"),
    ]);
    for verdict in &status.factors {
        let (word, gain, sigma) = match &verdict.isolated {
            Some(Isolated::Changes { gain_pct, sigma_pct, .. }) => (if *gain_pct > 0.0 { "gains" } else { "loses" }, *gain_pct, *sigma_pct),
            Some(Isolated::Nothing { gain_pct, sigma_pct, .. }) => ("no-effect", *gain_pct, *sigma_pct),
            Some(Isolated::Fails { .. }) => ("fails", f64::NAN, f64::NAN),
            Some(Isolated::Mixed { .. }) => ("mixed", f64::NAN, f64::NAN),
            None if !verdict.implicated_in.is_empty() => ("implicated", f64::NAN, f64::NAN),
            None if !verdict.serves_in.is_empty() => ("serves", f64::NAN, f64::NAN),
            None => ("untested", f64::NAN, f64::NAN),
        };
        let cells: Vec<Cell> = vec![
            verdict.factor.as_str().into(),
            word.into(),
            Number::new(gain, 2).into(),
            Number::new(sigma, 2).into(),
            verdict_words(verdict).into(),
        ];
        rows.row(cells);
    }
    rows
}

fn title(proposal: &Proposal) -> String {
    if proposal.factors.is_empty() {
        "the server as it is".to_owned()
    } else {
        proposal.factors.iter().cloned().collect::<Vec<_>>().join(" + ")
    }
}

fn purpose(proposal: &Proposal) -> &'static str {
    match proposal.purpose {
        Purpose::Baseline => "measure what the others are compared with",
        Purpose::Serve => "alone: first whether it serves, then against the baseline",
        Purpose::Measure => "it serves: now measure it against the baseline",
        Purpose::Combine => "each gains alone: together, once",
    }
}

/// What the simulator says beforehand.
fn expected(proposal: &Proposal) -> String {
    let Some(expected) = &proposal.expectation else { return "no forecast".to_owned() };
    match (expected.pass_ms, &expected.refused) {
        (Some(pass), _) => {
            let change = expected.baseline_ms - pass;
            let word = if change >= 0.0 { "faster" } else { "slower" };
            format!("a pass of {pass:.2} ms in place of {:.2}: {:.2} ms {word}", expected.baseline_ms, change.abs())
        }
        (None, Some(reason)) => format!("it will not run: {reason}"),
        (None, None) => "no forecast".to_owned(),
    }
}

/// The proposals for programs.
pub fn next_rows(next: &Next) -> Table {
    let mut rows = Table::new(vec![
        Column::number("place", "place"),
        Column::text("run", "run"),
        Column::text("purpose", "purpose"),
        Column::text("isolates", "isolates"),
        Column::number("chance", "chance"),
        Column::number("worth_pct", "worth, %"),
        Column::number("minutes", "minutes"),
        Column::text("expected", "expected"),
    ]);
    for (place, proposal) in next.proposals.iter().enumerate() {
        rows.row(vec![
            Number::integer(place as u64 + 1).into(),
            title(proposal).into(),
            purpose(proposal).into(),
            proposal.isolates.into(),
            Number::new(proposal.chance, 2).into(),
            Number::new(100.0 * proposal.worth, 2).into(),
            Number::new(proposal.minutes, 0).into(),
            expected(proposal).into(),
        ]);
    }
    rows
}

/// The next run in words.
pub fn next_sections(ledger: &Ledger, status: &Status, next: &Next) -> Vec<Section> {
    let section = |heading: &str, blocks: Vec<Block>| Section { heading: heading.to_owned(), blocks };
    let mut first = Vec::new();
    if let Some(stop) = &next.stop {
        first.push(format!("{stop}."));
    }
    if let (Some(proposal), true) = (next.proposals.first(), next.stop.is_none()) {
        let reason = if proposal.isolates && proposal.purpose != Purpose::Baseline {
            " A failed run left it open; nothing else isolates it."
        } else {
            ""
        };
        first.push(format!("Run {}, {}.{reason}", title(proposal), purpose(proposal)));
        first.push(format!("Beforehand, the simulator expects: {}.", expected(proposal)));
        let variables = proposal.factors.iter().filter_map(|id| ledger.factor(id)).flat_map(|factor| &factor.environment);
        let set: Vec<String> = variables.map(|(name, value)| format!("{name}={value}")).collect();
        if !set.is_empty() {
            first.push(format!("Set {} and nothing else.", set.join(" ")));
        }
    }
    for verdict in status.factors.iter().filter(|verdict| verdict.is_broken()) {
        first.push(format!("Leave {} out until it is mended: {}.", verdict.factor, verdict_words(verdict)));
    }
    first.extend(unexplained(ledger, next));
    let mut blocks = vec![Block::List(first)];
    if !next.proposals.is_empty() {
        blocks.push(Block::Table(next_rows(next)));
        blocks.push(Block::Text(
            "Runs that isolate come first, then worth over minutes. Worth is the mean gain that is kept (forecasts err by 5 % of a pass, losses are taken back) times the chance that it works.".to_owned(),
        ));
    }
    vec![section("Next", blocks)]
}

/// A baseline far above its forecast: no factor here will bring that back.
fn unexplained(ledger: &Ledger, next: &Next) -> Option<String> {
    let forecast = next.baseline_ms.filter(|_| ledger.measure == Measure::VerifyMs)?;
    let measured: Vec<f64> = ledger.sorted().iter().filter(|run| run.factors.is_empty()).filter_map(|run| run.value).collect();
    let best = measured.iter().copied().fold(f64::INFINITY, f64::min);
    (best.is_finite() && best > UNEXPLAINED * forecast).then(|| {
        format!(
            "The baseline was measured at {best:.1} ms and is forecast at {forecast:.1} for a healthy server: {:.1} ms are no factor's doing. `lanecast diagnose --observed verify_ms={best}` says what could explain them; check that first.",
            best - forecast
        )
    })
}
