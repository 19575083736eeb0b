//! Whether speculation pays, in words ([`sections`]), tables for people
//! ([`tables`]), data for programs ([`data`]) and a drawing ([`chart`]).

pub mod data;
mod tables;

use crate::decide::speculate::Answer;
use crate::decide::speculate::Cell;
use crate::decide::speculate::Drafter;
use crate::decide::speculate::Request;
use crate::model::Draft;
use crate::render::chart::Axis;
use crate::render::chart::Chart;
use crate::render::chart::Point;
use crate::render::chart::Series;
use crate::render::chart::line_chart;
use crate::render::drawing::both;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::render::page::Section;

/// What was observed, and what the owner aims at.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observed {
    /// Plain decoding, tokens per second.
    pub decode_tps: Option<f64>,
    /// One verify pass, ms.
    pub verify_ms: Option<f64>,
    /// The verify pass that is aimed at, from and to, ms.
    pub target_ms: Option<(f64, f64)>,
}

fn ms(value: f64) -> String {
    Number::new(value, 2).grouped()
}

fn share(value: f64) -> String {
    Number::new(value, 2).digits()
}

/// The sections for people.
pub fn sections(request: &Request<'_>, answer: &Answer, observed: &Observed, headline: &str) -> Vec<Section> {
    let batch = request.batches.first().copied().unwrap_or(1);
    let base = request.baseline.id;
    let mut sections = vec![
        Section {
            heading: "Finding".to_owned(),
            blocks: vec![Block::Text(headline.to_owned()), Block::List(finding(request, answer, observed, batch))],
        },
        Section {
            heading: format!("How many drafts, batch {batch}, {base}"),
            blocks: vec![Block::Table(tables::by_shape(answer.of(batch, base))), Block::Text(LEGEND.to_owned())],
        },
        Section {
            heading: format!("Best number of drafts by strategy, batch {batch}"),
            blocks: vec![Block::Table(tables::by_strategy(request, answer, batch))],
        },
        Section {
            heading: "Where the best changes".to_owned(),
            blocks: vec![Block::Table(tables::by_batch(request, answer)), both("Gain by drafts a cycle", |width| line_chart(&chart(request, answer), width))],
        },
        Section {
            heading: "Policy by message size".to_owned(),
            blocks: vec![Block::Table(tables::policy_table(&answer.policy)), Block::Text(POLICY_WORDS.to_owned())],
        },
    ];
    if !answer.refused.is_empty() {
        let names: Vec<&str> = answer.refused.iter().map(|(id, _)| *id).collect();
        let words = format!("Cannot run here (lanecast strategies says why): {}.", names.join(", "));
        sections.push(Section { heading: String::new(), blocks: vec![Block::Text(words)] });
    }
    sections
}

const LEGEND: &str = "verified: tokens of a sequence in the verify pass. E: tokens that a cycle yields. Gain is against plain decoding under the same strategy. \
Break-even acceptance is the chance of the first draft at which plain decoding is as fast; break-even verify is E × plain − draft − host.";
const POLICY_WORDS: &str = "A row holds from the row before up to its bytes; a change that saves under 3 % of an all-reduce is not made. \
NCCL's rows can be given to it as one tuner file; a change between NCCL and another project's kernel needs an engine that switches by size.";

fn drafter_words(drafter: &Drafter) -> String {
    match drafter {
        Drafter::None => "nobody drafts".to_owned(),
        Drafter::NGram => "n-grams of the prompt draft, on the host".to_owned(),
        Drafter::Model(Draft::Mtp) => "the model's own multi-token-prediction layer drafts".to_owned(),
        Drafter::Model(Draft::Eagle3(eagle)) => format!(
            "an EAGLE-3 layer drafts ({} heads, inner size {}, head of {} tokens: assumed shape)",
            eagle.attention.heads, eagle.intermediate, eagle.vocab
        ),
    }
}

fn finding(request: &Request<'_>, answer: &Answer, observed: &Observed, batch: u64) -> Vec<String> {
    let mut lines = Vec::new();
    let base = request.baseline.id;
    let Some(cell) = answer.of(batch, base).find(|cell| cell.shape == request.asked) else { return lines };
    lines.push(format!(
        "With {} draft(s), {}; under {base} a cycle is {} ms verify + {} ms draft + {} ms host and yields {} tokens: {} tokens/s against {} plain ({} %).",
        cell.shape.steps,
        drafter_words(&request.drafter),
        ms(cell.verify_ms),
        ms(cell.draft_ms),
        ms(cell.host_ms),
        share(cell.expected),
        Number::new(cell.tokens_per_s(), 1).grouped(),
        Number::new(cell.plain_tokens_per_s(), 1).grouped(),
        Number::new(cell.gain_pct(), 0).signed()
    ));
    lines.push(interval(request, cell));
    lines.push(match cell.break_even_rate {
        Some(rate) => format!(
            "It breaks even at an acceptance of {} (chance of the first draft), and at a verify pass of {} ms: {} × {} − {} − {}.",
            share(rate),
            ms(cell.break_even_verify_ms()),
            share(cell.expected),
            ms(cell.plain_ms),
            ms(cell.draft_ms),
            ms(cell.host_ms)
        ),
        None => format!(
            "Even certain acceptance does not pay for this cycle; the verify pass would have to take {} ms.",
            ms(cell.break_even_verify_ms())
        ),
    });
    lines.extend(against_observed(cell, observed));
    lines.push(match answer.best_shape(batch, base) {
        Some(best) => format!(
            "Best under {base}: {} draft(s), {} tokens/s ({} %).",
            best.shape.steps,
            Number::new(best.tokens_per_s(), 1).grouped(),
            Number::new(best.gain_pct(), 0).signed()
        ),
        None => format!("Under {base} no number of drafts beats plain decoding at batch {batch}."),
    });
    lines
}

/// E and gain at the ends of the acceptance's interval.
fn interval(request: &Request<'_>, cell: &Cell) -> String {
    let acceptance = request.acceptance.of(cell.batch);
    let constants = &request.case.speculation.acceptance;
    let first = acceptance.chance(0).max(1e-9);
    if constants.low >= constants.high || (first - constants.value).abs() > 1e-9 {
        return format!("The acceptance is as given: {} for the first draft.", share(first));
    }
    let at = |rate: f64| {
        let expected = acceptance.scaled(rate / first).tokens(cell.shape);
        (expected, (expected * cell.plain_ms / cell.cycle_ms().max(1e-9) - 1.0) * 100.0)
    };
    let (low, high) = (at(constants.low), at(constants.high));
    format!(
        "The acceptance is assumed at {} (90 %: {} to {}): {} to {} tokens a cycle, {} to {} %. Measure yours: --acceptance, --acceptance-file.",
        share(constants.value),
        share(constants.low),
        share(constants.high),
        share(low.0),
        share(high.0),
        Number::new(low.1, 0).signed(),
        Number::new(high.1, 0).signed()
    )
}

/// The owner's figures in this arithmetic.
fn against_observed(cell: &Cell, observed: &Observed) -> Vec<String> {
    let mut lines = Vec::new();
    let rest = cell.draft_ms + cell.host_ms;
    let Some(tps) = observed.decode_tps else { return lines };
    let plain = 1e3 / tps;
    lines.push(format!(
        "Against the observed plain step ({} tokens/s, {} ms) the verify pass must stay below {} ms: {} × {} − {}.",
        Number::new(tps, 0).digits(),
        ms(plain),
        ms(cell.expected * plain - rest),
        share(cell.expected),
        ms(plain),
        ms(rest)
    ));
    if let Some((from, to)) = observed.target_ms {
        let needs = |verify: f64| (verify + rest) / plain;
        lines.push(format!(
            "The target of {} to {} ms is where speculation breaks even if a cycle yields only {} to {} tokens (({} + {}) / {}): it assumes about that acceptance, or is a wish for profit; a healthy pass is forecast at {} ms.",
            Number::new(from, 0).digits(),
            Number::new(to, 0).digits(),
            share(needs(from)),
            share(needs(to)),
            Number::new(from, 0).digits(),
            ms(rest),
            ms(plain),
            ms(cell.verify_ms)
        ));
    }
    if let Some(verify) = observed.verify_ms {
        let gain = (cell.expected * plain / (verify + rest) - 1.0) * 100.0;
        lines.push(format!(
            "With the observed verify pass of {} ms speculation is a loss ({} %): it would need {} tokens a cycle of at most {}.",
            ms(verify),
            Number::new(gain, 0).signed(),
            share((verify + rest) / plain),
            cell.shape.steps + 1
        ));
        if gain > 0.0 {
            lines.pop();
            lines.push(format!(
                "With the observed verify pass of {} ms speculation gains {} %.",
                ms(verify),
                Number::new(gain, 0).signed()
            ));
        }
    }
    lines
}

/// Gain over drafts, a line a batch.
pub fn chart(request: &Request<'_>, answer: &Answer) -> Chart {
    let series = |&batch: &u64| Series {
        name: format!("batch {batch}"),
        points: answer
            .of(batch, request.baseline.id)
            .map(|cell| Point { x: cell.shape.steps as f64, y: cell.gain_pct(), interval: None })
            .collect(),
        joined: true,
        marked: true,
    };
    Chart {
        title: format!("Gain of speculation under {}", request.baseline.id),
        x: Axis { label: "drafts a cycle".to_owned(), log: false },
        y: Axis { label: "tokens/s against plain, %".to_owned(), log: false },
        series: request.batches.iter().map(series).collect(),
        named: request.batches.len(),
        marks: Vec::new(),
        diagonal: false,
    }
}
