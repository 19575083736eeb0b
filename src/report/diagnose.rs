//! A diagnosis in words and tables.

use crate::decide::diagnose::contradiction::Contradiction;
use crate::decide::diagnose::hypothesis::ALL;
use crate::decide::diagnose::kind::Kind;
use crate::decide::diagnose::scenario::Setup;
use crate::decide::diagnose::search::Explanation;
use crate::decide::diagnose::verdict::Diagnosis;
use crate::decide::diagnose::verdict::digits;
use crate::decide::diagnose::verdict::levels;
use crate::decide::diagnose::verdict::title;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Cell;
use crate::render::table::Column;
use crate::render::table::Table;

/// Explanations shown for people.
const SHOWN: usize = 8;

/// Explanations in CSV and JSON.
const LISTED: usize = 40;

/// Everything for people.
pub fn sections(diagnosis: &Diagnosis, setup: &Setup<'_>, headline: &str) -> Vec<Section> {
    let section = |heading: &str, blocks: Vec<Block>| Section { heading: heading.to_owned(), blocks };
    let mut sections = vec![section("Finding", vec![Block::Text(headline.to_owned()), Block::List(finding(diagnosis))])];
    let contradictions: Vec<String> = diagnosis.contradictions.iter().map(|one| contradiction(one, diagnosis, setup)).collect();
    if !contradictions.is_empty() {
        sections.push(section("What a healthy server cannot show at once", vec![Block::List(contradictions)]));
    }
    if !diagnosis.is_healthy() {
        sections.push(section("Explanations", vec![Block::Table(shown(diagnosis)), Block::Text(legend(diagnosis))]));
        for (kind, alone) in diagnosis.alone.iter().filter(|(kind, _)| off(diagnosis, *kind)) {
            sections.extend(consequences(diagnosis, *kind, alone));
        }
        sections.push(section("What to do first", vec![Block::List(advice(diagnosis))]));
    }
    let left = left_out(diagnosis, setup);
    if !left.is_empty() {
        sections.push(section("What was not weighed", vec![Block::List(left)]));
    }
    sections
}

fn observed(diagnosis: &Diagnosis, kind: Kind) -> String {
    format!("{kind}={}", digits(diagnosis.observations.value(kind).unwrap_or(f64::NAN)))
}

/// Whether the healthy forecast misses an observation by more than its errors allow at all.
fn off(diagnosis: &Diagnosis, kind: Kind) -> bool {
    let (Some(seen), Some(forecast)) = (diagnosis.observations.value(kind), diagnosis.healthy.get(&kind)) else { return false };
    libm::fabs(libm::log(seen / forecast)) > 0.2
}

fn finding(diagnosis: &Diagnosis) -> Vec<String> {
    let best = diagnosis.best();
    let mut list = vec![match (diagnosis.is_healthy(), diagnosis.is_explained()) {
        (true, _) => format!("The server is as it should be, as far as these {} observation(s) tell.", diagnosis.kinds.len()),
        (false, true) if best.faults.is_empty() => "The healthy server fits best.".to_owned(),
        (false, true) => format!("What fits best: {}.", words(best)),
        (false, false) => format!(
            "Nothing fits all observations: the best explanation ({}) is off by {:.1} squared sigmas, of which {:.1} would be acceptable.",
            title(best),
            best.misfit,
            diagnosis.acceptable
        ),
    }];
    for kind in &diagnosis.kinds {
        let (Some(seen), Some(healthy)) = (diagnosis.observations.value(*kind), diagnosis.healthy.get(kind)) else { continue };
        let source = diagnosis.observations.0.get(kind).map_or("", |one| one.source.as_str());
        let change = (seen / healthy - 1.0) * 100.0;
        list.push(format!(
            "{kind}: {} observed ({source}), {} forecast for a healthy server ({change:+.0} %).",
            digits(seen),
            digits(*healthy)
        ));
    }
    if let (Some(seen), Some(healthy)) = (diagnosis.observations.value(Kind::VerifyMs), diagnosis.healthy.get(&Kind::VerifyMs))
        && seen > healthy * 1.2
    {
        list.push(format!("{:.2} of the {seen:.2} ms of a verify pass remain to be explained by a fault.", seen - healthy));
    }
    list.extend(diagnosis.seen.iter().map(|(place, so, text)| {
        let verdict = if *so { "speaks for" } else { "rules out" };
        format!("{text}: {verdict} {}.", ALL[*place].id)
    }));
    list
}

/// The faults in words with their levels.
fn words(explanation: &Explanation) -> String {
    let of = |fault: &(usize, f64)| {
        let one = ALL[fault.0];
        let level = if one.measure.is_empty() { String::new() } else { format!(" ({}: {})", one.measure, digits(fault.1)) };
        format!("{}{level}", one.summary)
    };
    explanation.faults.iter().map(of).collect::<Vec<_>>().join(", and ")
}

fn contradiction(one: &Contradiction, diagnosis: &Diagnosis, setup: &Setup<'_>) -> String {
    let [a, b] = one.kinds;
    let ratio = |kind: Kind| {
        let (seen, healthy) = (diagnosis.observations.value(kind).unwrap_or(1.0), diagnosis.healthy.get(&kind).copied().unwrap_or(1.0));
        if kind.sign() < 0.0 { healthy / seen } else { seen / healthy }
    };
    let mut text = format!("{} and {}: ", observed(diagnosis, a), observed(diagnosis, b));
    let allreduces = 2 * setup.model.layers.len() as u64;
    match (a, diagnosis.observations.value(a), diagnosis.observations.value(b)) {
        (Kind::DecodeTps, Some(tps), Some(us)) if b == Kind::ProfiledUs => {
            let step_ms = setup.batch as f64 * 1e3 / tps;
            text += &format!(
                "the plain step of {step_ms:.2} ms holds the same {allreduces} all-reduces, so that one takes at most {step_ms:.2} ms / {allreduces} = {:.1} us even if all else were free; {} us times {allreduces} would be {:.1} ms.",
                step_ms * 1e3 / allreduces as f64,
                digits(us),
                us * allreduces as f64 / 1e3
            );
        }
        _ => {
            text += &format!(
                "{a} takes {:.2} times what a healthy server would, {b} {:.2} times ({:.0} squared sigmas together).",
                ratio(a),
                ratio(b),
                one.misfit
            );
        }
    }
    let pairs: Vec<String> = one.joined_by_pairs.iter().map(|pair| pair.join(" + ")).collect();
    text += &match (one.joined_by.is_empty(), pairs.is_empty()) {
        (false, _) => format!(" Only these, alone, make both true: {}.", one.joined_by.join(", ")),
        (true, false) => {
            format!(" They contradict each other under every single explanation; pairs that allow both: {}.", pairs.join(", "))
        }
        (true, true) => " They contradict each other under every explanation: measure one of them again.".to_owned(),
    };
    text
}

fn columns(diagnosis: &Diagnosis) -> Vec<Column> {
    let mut columns = vec![
        Column::number("place", "place"),
        Column::number("class", "class"),
        Column::text("explanation", "explanation"),
        Column::text("level", "level"),
    ];
    let forecasts = diagnosis.kinds.iter().map(|kind| Column::number(&kind.to_string(), &kind.to_string()));
    columns.extend(forecasts);
    columns.extend([Column::number("misfit", "misfit"), Column::number("score", "score")]);
    columns
}

fn table(diagnosis: &Diagnosis, most: usize) -> Table {
    let mut table = Table::new(columns(diagnosis));
    for (place, explanation) in diagnosis.found.ranked.iter().take(most).enumerate() {
        let class = diagnosis.classes.iter().position(|class| class.members.contains(&place));
        let mut row: Vec<Cell> = vec![
            Number::integer(place as u64 + 1).into(),
            class.map_or(Number::MISSING, |class| Number::integer(class as u64 + 1)).into(),
            title(explanation).into(),
            levels(explanation).into(),
        ];
        row.extend(explanation.point.iter().map(|log| Cell::from(digits_of(libm::exp(*log)))));
        row.extend([Number::new(explanation.misfit, 1).into(), Number::new(explanation.score, 1).into()]);
        table.row(row);
    }
    table
}

fn digits_of(value: f64) -> Number {
    let decimals = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        3
    };
    Number::new(value, decimals)
}

fn shown(diagnosis: &Diagnosis) -> Table {
    table(diagnosis, SHOWN)
}

/// The rows for programs.
pub fn rows(diagnosis: &Diagnosis) -> Table {
    table(diagnosis, LISTED)
}

fn legend(diagnosis: &Diagnosis) -> String {
    format!(
        "The columns in the middle are what would be observed. Misfit is in squared sigmas ({:.1} are acceptable for {} observation(s)); the score adds a price for each fault. Explanations of one class cannot be told apart by these observations.",
        diagnosis.acceptable,
        diagnosis.kinds.len()
    )
}

/// What each single fault would mean were it to explain one observation alone.
fn consequences(diagnosis: &Diagnosis, kind: Kind, alone: &[Explanation]) -> Option<Section> {
    let others = [Kind::DecodeTps, Kind::VerifyMs, Kind::SpecTps].into_iter().filter(|other| *other != kind);
    let others: Vec<Kind> = others.filter(|other| diagnosis.observations.value(*other).is_some()).collect();
    if others.is_empty() {
        return None;
    }
    let mut columns = vec![Column::text("fault", "fault"), Column::text("level", "level"), Column::number("it", &kind.to_string())];
    columns.extend(others.iter().map(|other| Column::number(&other.to_string(), &other.to_string())));
    let mut table = Table::new(columns);
    for explanation in alone {
        let value = |kind: &Kind| explanation.figures.get(kind).map_or(Number::MISSING, |value| digits_of(*value));
        let mut row: Vec<Cell> = vec![title(explanation).into(), levels(explanation).into(), value(&kind).into()];
        row.extend(others.iter().map(|other| Cell::from(value(other))));
        table.row(row);
    }
    let observed: Vec<String> = others.iter().map(|other| observed(diagnosis, *other)).collect();
    let text = format!("At the simulated level next to the one that explains it best. Observed beside it: {}.", observed.join(", "));
    Some(Section {
        heading: format!("If one fault alone had to explain {}", self::observed(diagnosis, kind)),
        blocks: vec![Block::Table(table), Block::Text(text)],
    })
}

fn advice(diagnosis: &Diagnosis) -> Vec<String> {
    let mut list = Vec::new();
    if let Some(check) = diagnosis.first_check() {
        list.push(format!("Check, {} min: {}. It speaks for {}.", check.minutes, check.command, check.tells));
    }
    for fault in &diagnosis.best().faults {
        let one = ALL[fault.0];
        list.push(format!("If it is {} ({}): {}. Way back: {}. Risk: {}.", one.id, one.source, one.remedy, one.way_back, one.risk));
    }
    for class in diagnosis.classes.iter().filter(|class| class.members.len() > 1) {
        let names: Vec<String> = class.members.iter().map(|place| title(&diagnosis.found.ranked[*place])).collect();
        list.push(format!("These observations do not tell apart: {}.", names.join("; ")));
    }
    list.push("Change one thing a run: a run that changes two and fails clears neither and condemns neither.".to_owned());
    list
}

fn left_out(diagnosis: &Diagnosis, setup: &Setup<'_>) -> Vec<String> {
    let names = |places: &[usize]| places.iter().map(|place| ALL[*place].id).collect::<Vec<_>>().join(", ");
    let mut list = Vec::new();
    if !diagnosis.found.traceless.is_empty() {
        list.push(format!("They leave no trace in these observations, and may still be there: {}.", names(&diagnosis.found.traceless)));
    }
    if !diagnosis.found.inapplicable.is_empty() {
        list.push(format!("They cannot be on this machine with these settings: {}.", names(&diagnosis.found.inapplicable)));
    }
    for collapse in &setup.machine.collapses {
        list.push(format!(
            "The machine's file states a collapse of posted writes at {} as known: the healthy forecasts hold it.",
            collapse.at
        ));
    }
    list.extend(diagnosis.found.failed.iter().map(|(place, why)| format!("{} could not be simulated: {why}.", ALL[*place].id)));
    list
}
