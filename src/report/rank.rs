//! A ranking in words and as a table.

use serde::Serialize;

use crate::case::ExpertLoad;
use crate::decide::finding::Finding;
use crate::decide::rank::Forecast;
use crate::decide::rank::Ranking;
use crate::decide::rank::Row;
use crate::decide::uncertain::Uncertainty;
use crate::decide::variables::Effect;
use crate::render::number::Number;
use crate::render::number::to_json;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Cell;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::strategy::Effort;
use crate::strategy::Settings;
use crate::units::Bytes;

use super::uncertain::JsonInterval;

/// Rows of the table for people.
const SHOWN: usize = 10;
/// The bound that is shown among the strategies.
const FLOOR: &str = "free-communication";
/// Savings below this many milliseconds are not worth a restart.
const WORTH_MS: f64 = 0.1;

/// The sections for people.
pub fn sections(ranking: &Ranking, finding: &Finding, variables: &[Effect], headline: &str) -> Vec<Section> {
    let mut sections = vec![
        Section {
            heading: "Finding".to_owned(),
            blocks: vec![Block::Text(headline.to_owned()), Block::List(finding_lines(ranking, finding))],
        },
        Section { heading: "Ranking".to_owned(), blocks: vec![Block::Table(table(ranking)), Block::Text(legend(ranking))] },
    ];
    let loads =
        (ranking.rows.iter()).filter_map(|row| Some(format!("{}: {}", row.strategy.id, expert_line(row.outcome.as_ref().ok()?.experts?))));
    sections[1].blocks.extend(loads.map(Block::Text));
    let refused: Vec<String> =
        (ranking.rows.iter()).filter_map(|row| row.outcome.as_ref().err().map(|reason| format!("{}: {reason}", row.strategy.id))).collect();
    if !refused.is_empty() {
        sections.push(Section { heading: "Cannot run here".to_owned(), blocks: vec![Block::List(refused)] });
    }
    let silent = silent_lines(ranking);
    if !silent.is_empty() {
        sections.push(Section { heading: "Left aside without an error".to_owned(), blocks: vec![Block::List(silent)] });
    }
    sections.push(try_next(ranking));
    if !variables.is_empty() {
        sections.push(Section {
            heading: "What the variables of nccl-few-channels do".to_owned(),
            blocks: vec![Block::List(variables.iter().map(effect_line).collect())],
        });
    }
    sections
}

/// What would run in place of a shown strategy without a word, each once.
fn silent_lines(ranking: &Ranking) -> Vec<String> {
    let mut lines: Vec<(&str, Vec<&str>)> = Vec::new();
    for (_, row, _) in shown(ranking) {
        for note in &row.notes {
            match lines.iter_mut().find(|(known, _)| known == note) {
                Some((_, strategies)) => strategies.push(row.strategy.id),
                None => lines.push((note, vec![row.strategy.id])),
            }
        }
    }
    lines.into_iter().map(|(note, strategies)| format!("{}: {note}", strategies.join(", "))).collect()
}

/// The rows for people with their places: the best, and the baseline wherever
/// it is. Of the bounds, which nobody can try, only the floor is shown.
fn shown(ranking: &Ranking) -> Vec<(usize, &Row, &Forecast)> {
    let can_be_tried = |row: &&Row| row.strategy.effort != Effort::None || row.strategy.id == FLOOR;
    let feasible = ranking.rows.iter().filter(can_be_tried).filter_map(|row| row.outcome.as_ref().ok().map(|forecast| (row, forecast)));
    let mut rows: Vec<(usize, &Row, &Forecast)> = feasible.enumerate().map(|(index, (row, forecast))| (index + 1, row, forecast)).collect();
    if let Some(at) = rows.iter().position(|(_, row, _)| row.strategy.id == ranking.baseline_id).filter(|at| *at >= SHOWN) {
        rows.swap(at, SHOWN - 1);
    }
    rows.truncate(SHOWN);
    rows
}

/// One variable at one size, in a sentence.
fn effect_line(effect: &Effect) -> String {
    let what = if effect.differences.is_empty() { "NCCL decides the same".to_owned() } else { effect.differences.join("; ") };
    let latency = effect.latency_us.map_or(String::new(), |(before, after)| format!(" ({} -> {} us)", us(before), us(after)));
    format!("{} at {}: {what}{latency}", effect.variables, Bytes(effect.bytes))
}

/// Whom a pass with whole experts on each rank waits for.
pub fn expert_line(load: ExpertLoad) -> String {
    format!(
        "the pass waits for the rank whose experts are wanted most: they take {} ms there, {} ms on the mean rank.",
        ms(load.fullest.ms()),
        ms(load.mean.ms())
    )
}

fn us(value: f64) -> String {
    Number::new(value, 1).grouped()
}

fn ms(value: f64) -> String {
    Number::new(value, 2).grouped()
}

/// What bounds one all-reduce has, what the pass spends, what is left to explain, what to check.
fn finding_lines(ranking: &Ranking, finding: &Finding) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(plain) = &finding.plain {
        for bound in &plain.bounds {
            lines.push(format!(
                "One all-reduce takes at most {} us if {}: ({} − {}) ms / {} all-reduces of the plain step.",
                us(bound.allreduce_us),
                bound.assumption,
                ms(plain.observed_ms),
                ms(bound.without_ms),
                plain.allreduces
            ));
        }
        let off = (plain.simulated_ms / plain.observed_ms - 1.0) * 100.0;
        lines.push(format!(
            "The plain step is forecast at {} ms with all-reduces of {} us; {} ms were observed: the forecast is {} % off, and the last bound by as much of the step.",
            ms(plain.simulated_ms),
            us(plain.allreduce_us),
            ms(plain.observed_ms),
            Number::new(off, 0).signed()
        ));
    }
    let base = &ranking.baseline;
    let verify = &finding.verify;
    lines.push(format!(
        "The pass is forecast at {} ms under the baseline: {} ms compute, {} ms communication ({} all-reduces of {} us), {} ms launch gaps, {} ms waiting.",
        ms(base.pass.ms()),
        ms(base.compute.ms()),
        ms(base.communication.ms()),
        base.allreduce_count,
        us(base.allreduce.us()),
        ms(base.launch.ms()),
        ms(base.skew.ms())
    ));
    lines.push(format!(
        "Free communication would leave {} ms: no strategy saves more than {} ms of this pass.",
        ms(verify.floor_ms),
        ms(verify.simulated_ms - verify.floor_ms)
    ));
    let left = verify.observed_ms - verify.simulated_ms;
    if left > 0.15 * verify.observed_ms {
        lines.push(format!(
            "Of the observed {} ms, {} ms are explained by no communication strategy: a healthy pass does not have them.",
            ms(verify.observed_ms),
            ms(left)
        ));
        lines.push(first_check(finding));
    } else if verify.is_observed {
        let off = (verify.simulated_ms / verify.observed_ms - 1.0) * 100.0;
        lines.push(format!("{} ms were observed: the forecast is {} % off.", ms(verify.observed_ms), Number::new(off, 0).signed()));
    }
    lines
}

/// The cheapest check that could explain the rest.
fn first_check(finding: &Finding) -> String {
    let verify = &finding.verify;
    let near = (verify.eager_ms / verify.observed_ms - 1.0).abs() < 0.3;
    let words = if near { "which would explain it" } else { "which alone does not explain it" };
    format!(
        "Check first whether the verify pass runs inside a CUDA graph: launched from the host, its {} kernels take {} ms, {words}. Look for the captured sizes in the start-up log, or profile one pass and count launches. Then check peer access (nvidia-smi topo -p2p rw, and a data check).",
        verify.launches,
        ms(verify.eager_ms)
    )
}

/// At most ten rows; rows within each other's margin share a place.
fn table(ranking: &Ranking) -> Table {
    let mut table = Table::new(vec![
        Column::text("place", "place"),
        Column::text("strategy", "strategy"),
        Column::number("pass_ms", "pass, ms"),
        Column::number("allreduce_us", "all-reduce, us"),
        Column::number("saving_ms", "saving, ms"),
        Column::number("margin_ms", "±, ms"),
        Column::number("prefill_change_pct", "prefill, %"),
        Column::text("evidence", "evidence"),
        Column::text("effort", "effort"),
        Column::text("risk", "risk"),
    ]);
    let mut leader: Option<(usize, &Forecast)> = None;
    for (number, row, forecast) in shown(ranking) {
        let tied = leader.is_some_and(|(_, lead)| forecast.pass.ms() - lead.pass.ms() <= lead.margin_ms.min(forecast.margin_ms) / 2.0);
        if !tied {
            leader = Some((number, forecast));
        }
        let place = leader.map_or(1, |(place, _)| place);
        table.row(vec![
            Cell::Text(if tied { format!("={place}") } else { place.to_string() }),
            row.strategy.id.into(),
            Number::new(forecast.pass.ms(), 2).into(),
            Number::new(forecast.allreduce.us(), 1).into(),
            Number::new(forecast.saving_ms, 2).into(),
            Number::new(forecast.margin_ms, 2).into(),
            Number::new(forecast.prefill_change_pct, 0).into(),
            row.evidence.name().into(),
            row.strategy.effort.name().into(),
            row.strategy.risk.name().into(),
        ]);
    }
    table
}

fn legend(ranking: &Ranking) -> String {
    let feasible = ranking.rows.iter().filter(|row| row.outcome.is_ok()).count();
    let more = feasible.saturating_sub(SHOWN);
    let more = if more > 0 { format!(" {more} more are left out; --format csv has all.") } else { String::new() };
    format!(
        "Places with = lie within half of the margin of the row they share it with. ± is half of a 90 % interval of the pass's communication: the intervals of the constants, and at least the errors of such kernels where they were measured. Prefill is the change of a chunk of {} tokens.{more}",
        crate::decide::rank::PREFILL_TOKENS
    )
}

/// Settings of the best that is worth trying: the least effort first.
fn try_next(ranking: &Ranking) -> Section {
    let worth = |effort: Effort| {
        ranking.rows.iter().find_map(|row| {
            let forecast = row.outcome.as_ref().ok()?;
            let pays = forecast.saving_ms > WORTH_MS.max(forecast.margin_ms / 4.0) && row.strategy.effort == effort;
            pays.then_some((row, forecast))
        })
    };
    let best = [Effort::Minutes, Effort::Hours, Effort::Days].into_iter().find_map(worth);
    let Some((row, forecast)) = best else {
        return Section {
            heading: "What to try".to_owned(),
            blocks: vec![Block::Text("No strategy is worth a try by itself: the forecast savings are inside their margins.".to_owned())],
        };
    };
    let settings = row.strategy.settings();
    let mut code: String = settings.environment.iter().map(|(name, value)| format!("export {name}={value}\n")).collect();
    code.extend(settings.flags.iter().map(|flag| format!("{flag}\n")));
    let mut blocks = vec![Block::Text(format!(
        "{} ({}), forecast to save {} ± {} ms of {} ms.",
        row.strategy.id,
        row.strategy.summary,
        ms(forecast.saving_ms),
        ms(forecast.margin_ms),
        ms(ranking.baseline.pass.ms())
    ))];
    if !code.is_empty() {
        blocks.push(Block::Code(code));
    }
    let mut items: Vec<String> = settings.requires.iter().map(|need| format!("It needs {need}.")).collect();
    items.push(format!("Risk: {}.", row.strategy.risk_words));
    items.push(format!("Way back: {}.", row.strategy.way_back));
    items.push(
        "Change nothing else in the same run: a run that changes two things and fails clears neither and condemns neither.".to_owned(),
    );
    blocks.push(Block::List(items));
    Section { heading: "What to try".to_owned(), blocks }
}

/// One element of the JSON array; the keys are a contract.
#[derive(Serialize)]
struct JsonRow<'a> {
    strategy: &'a str,
    feasible: bool,
    reason: Option<&'a str>,
    executor: &'a str,
    evidence: &'a str,
    pass_ms: Option<f64>,
    margin_ms: Option<f64>,
    allreduce_us: Option<f64>,
    allreduce_count: Option<u64>,
    allreduce_bytes: Option<u64>,
    communication_ms: Option<f64>,
    skew_ms: Option<f64>,
    compute_ms: Option<f64>,
    launch_ms: Option<f64>,
    saving_ms: Option<f64>,
    prefill_change_pct: Option<f64>,
    tokens_per_s: Option<f64>,
    effort: &'a str,
    risk: &'a str,
    settings: Settings,
    fits_memory: bool,
    #[serde(flatten)]
    uncertainty: Option<JsonInterval>,
}

/// The array of the contract: feasible ones by pass, then infeasible ones by name.
pub fn json(ranking: &Ranking, uncertainty: Option<&Uncertainty>, fits_memory: bool) -> String {
    let interval = |row: &Row| uncertainty.and_then(|uncertainty| uncertainty.rows.get(row.strategy.id)).map(super::uncertain::json);
    let rows = ranking.rows.iter().map(|row| JsonRow { fits_memory, uncertainty: interval(row), ..json_row(row) });
    to_json(&rows.collect::<Vec<_>>())
}

fn json_row(row: &Row) -> JsonRow<'_> {
    let forecast = row.outcome.as_ref().ok();
    let number = |pick: fn(&Forecast) -> f64, decimals: usize| forecast.and_then(|f| Number::new(pick(f), decimals).rounded());
    JsonRow {
        strategy: row.strategy.id,
        feasible: forecast.is_some(),
        reason: row.outcome.as_ref().err().map(String::as_str),
        executor: row.strategy.executor.name(),
        evidence: row.evidence.name(),
        pass_ms: number(|f| f.pass.ms(), 6),
        margin_ms: number(|f| f.margin_ms, 4),
        allreduce_us: number(|f| f.allreduce.us(), 4),
        allreduce_count: forecast.map(|f| f.allreduce_count),
        allreduce_bytes: forecast.map(|f| f.allreduce_bytes),
        communication_ms: number(|f| f.communication.ms(), 6),
        skew_ms: number(|f| f.skew.ms(), 6),
        compute_ms: number(|f| f.compute.ms(), 6),
        launch_ms: number(|f| f.launch.ms(), 6),
        saving_ms: number(|f| f.saving_ms, 6),
        prefill_change_pct: number(|f| f.prefill_change_pct, 3),
        tokens_per_s: number(|f| f.tokens_per_s, 4),
        effort: row.strategy.effort.name(),
        risk: row.strategy.risk.name(),
        settings: row.strategy.settings(),
        fits_memory: true,
        uncertainty: None,
    }
}

/// All rows for CSV, keys as in JSON (settings as one field).
pub fn csv_table(ranking: &Ranking) -> Table {
    const NUMBERS: [&str; 12] = [
        "pass_ms",
        "margin_ms",
        "allreduce_us",
        "allreduce_count",
        "allreduce_bytes",
        "communication_ms",
        "skew_ms",
        "compute_ms",
        "launch_ms",
        "saving_ms",
        "prefill_change_pct",
        "tokens_per_s",
    ];
    let mut columns: Vec<Column> =
        ["strategy", "feasible", "reason", "executor", "evidence"].iter().map(|key| Column::text(key, key)).collect();
    columns.extend(NUMBERS.iter().map(|key| Column::number(key, key)));
    columns.extend(["effort", "risk", "settings"].iter().map(|key| Column::text(key, key)));
    let mut table = Table::new(columns);
    for row in &ranking.rows {
        let json = json_row(row);
        let settings: Vec<String> = json.settings.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let float = |value: Option<f64>, decimals: usize| Cell::from(Number::maybe(value, decimals));
        let count = |value: Option<u64>| value.map_or(Cell::Empty, |v| Number::integer(v).into());
        table.row(vec![
            json.strategy.into(),
            json.feasible.into(),
            json.reason.unwrap_or("").into(),
            json.executor.into(),
            json.evidence.into(),
            float(json.pass_ms, 6),
            float(json.margin_ms, 4),
            float(json.allreduce_us, 4),
            count(json.allreduce_count),
            count(json.allreduce_bytes),
            float(json.communication_ms, 6),
            float(json.skew_ms, 6),
            float(json.compute_ms, 6),
            float(json.launch_ms, 6),
            float(json.saving_ms, 6),
            float(json.prefill_change_pct, 3),
            float(json.tokens_per_s, 4),
            json.effort.into(),
            json.risk.into(),
            settings.join(" ").into(),
        ]);
    }
    table
}
