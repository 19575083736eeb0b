//! The best policy for people: what it is, what to set for it, the command that
//! forecasts it again, and what else was looked at.

use crate::case::Policy;
use crate::case::engine::Engine;
use crate::decide::optimize::Choice;
use crate::decide::optimize::Found;
use crate::decide::optimize::Looked;
use crate::decide::optimize::Request;
use crate::decide::settings::Advice;
use crate::decide::settings::Speculation;
use crate::decide::settings::advise;
use crate::decide::settings::policy_text;
use crate::plan::Partition;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::strategy::Context;
use crate::units::Bytes;

/// How the question was typed.
pub struct Asked<'a> {
    /// The machine's id or file.
    pub machine: &'a str,
    /// The model's id or file.
    pub model: &'a str,
    /// `PATH=NUMBER`.
    pub set: Vec<String>,
    /// `NAME=VALUE`.
    pub environment: &'a [String],
}

/// The report.
pub fn sections(request: &Request<'_>, found: &Found, asked: &Asked<'_>) -> Vec<Section> {
    let policy = Section {
        heading: "Policy".to_owned(),
        blocks: vec![
            Block::Text(words(found, asked)),
            Block::Table(sizes(found)),
            Block::Text("The same pass, simulated whole:".to_owned()),
            Block::Code(command(&found.best, request, asked) + "\n"),
            Block::Text(effort(found)),
        ],
    };
    vec![
        policy,
        crate::report::settings::section(&advice(request, found), "For the policy above.".to_owned()),
        Section { heading: "Drafts and splits".to_owned(), blocks: vec![Block::Table(rows(found))] },
    ]
}

fn words(found: &Found, asked: &Asked<'_>) -> String {
    let Choice { drafts, partition, pass, draft, host_ms, expected, tokens_per_s, .. } = &found.best;
    let ms = |ms: f64| Number::new(ms, 3).digits();
    let cycle = if *drafts == 0 {
        format!("plain decoding, {} ms a step", ms(pass.ms()))
    } else {
        format!(
            "{drafts} draft(s) a cycle; a verify pass of {} ms, {} ms of draft steps and {} ms of the host yield {} tokens a sequence",
            ms(pass.ms()),
            ms(draft.ms()),
            ms(*host_ms),
            Number::new(*expected, 2).digits()
        )
    };
    format!(
        "On {}: TP {} x PP {} x EP {}{}, {cycle}: {} tokens/s. Simulated whole, the pass takes {} ms ({} % off the sum of its parts).",
        asked.machine,
        partition.tp,
        partition.pp,
        partition.ep,
        channels(found.best.channels),
        Number::new(*tokens_per_s, 1).digits(),
        ms(found.simulated.ms()),
        Number::new((found.simulated.ms() / pass.ms().max(1e-9) - 1.0) * 100.0, 1).digits(),
    )
}

fn channels(channels: u32) -> String {
    if channels == 0 { String::new() } else { format!(", {channels} channels of NCCL") }
}

/// What was done for it.
fn effort(found: &Found) -> String {
    let done = found.collectives + found.passes;
    format!(
        "{} collectives and {} pass were simulated, {} % of the {} choices of drafts, split, channels and one strategy for all sizes; \
         bounds left out the rest ({} collectives differ). No other policy is better by this sum.",
        Number::integer(found.collectives).grouped(),
        found.passes,
        Number::new(done as f64 * 100.0 / found.grid.max(1) as f64, 1).digits(),
        Number::integer(found.grid).grouped(),
        Number::integer(found.lowered).grouped(),
    )
}

/// Strategies by size.
fn sizes(found: &Found) -> Table {
    let mut table =
        Table::new(vec![Column::text("messages", "messages"), Column::text("strategy", "strategy"), Column::text("what", "for")]);
    let mut above = 0;
    for (most, strategy) in &found.best.policy.rows {
        let messages = match *most {
            u64::MAX if above == 0 => "all".to_owned(),
            u64::MAX => format!("above {}", Bytes(above)),
            most => format!("up to {}", Bytes(most)),
        };
        let prefill = found.prefill.filter(|prefill| prefill.bytes > above && prefill.bytes <= *most);
        let what = prefill.map_or_else(String::new, |prefill| {
            format!("a prefill chunk: {} us for {}", Number::new(prefill.time.us(), 1).digits(), Bytes(prefill.bytes))
        });
        table.row(vec![messages.as_str().into(), strategy.id.into(), what.as_str().into()]);
        above = *most;
    }
    table
}

/// Variables and flags for a choice.
fn advice(request: &Request<'_>, found: &Found) -> Advice {
    let choice = &found.best;
    let mut context = Context::new(&request.case.machine, choice.partition.ranks() as usize);
    context.environment.clone_from(&request.case.environment);
    let cycle_ms = choice.pass.ms() + choice.draft.ms() + choice.host_ms;
    let speculation = choice.cycle.map(|shape| Speculation {
        drafter: &request.drafter,
        shape,
        break_even_tokens: cycle_ms / found.plain.ms().max(1e-9),
        batch: request.case.workload.batch,
    });
    let mut advice = advise(&choice.policy, &context, speculation);
    for (name, value) in variables(choice) {
        advice.environment.entry(name).or_insert(value);
    }
    for (engine, flags) in [(Engine::Sglang, &mut advice.sglang), (Engine::Vllm, &mut advice.vllm)] {
        flags.splice(0..0, engine.partition(choice.partition));
    }
    advice
}

/// NCCL's channels as variables.
fn variables(choice: &Choice) -> Vec<(String, String)> {
    let names = if choice.channels == 0 { &[][..] } else { &["NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"][..] };
    names.iter().map(|name| ((*name).to_owned(), choice.channels.to_string())).collect()
}

/// The command that simulates the pass of a choice.
fn command(choice: &Choice, request: &Request<'_>, asked: &Asked<'_>) -> String {
    let Partition { tp, pp, ep, .. } = choice.partition;
    let workload = &request.case.workload;
    let tokens = choice.cycle.map_or(1, |shape| shape.verified);
    let mut words = vec![format!("lanecast simulate --machine {} --model {}", quoted(asked.machine), quoted(asked.model))];
    words.push(format!("--tokens {tokens} --batch {} --context {} --tp {tp}", workload.batch, workload.context));
    for (name, ways) in [("pp", pp), ("ep", ep)] {
        if ways > 1 {
            words.push(format!("--set partition.{name}={ways}"));
        }
    }
    words.extend(asked.set.iter().map(|set| format!("--set {}", quoted(set))));
    words.extend(asked.environment.iter().map(|pair| format!("--env {}", quoted(pair))));
    words.extend(variables(choice).iter().map(|(name, value)| format!("--env {name}={value}")));
    words.push(format!("--policy {}", quoted(&policy_text(&choice.policy))));
    words.join(" \\\n    ")
}

/// For a shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=+@".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// All drafts and splits.
pub fn rows(found: &Found) -> Table {
    let mut table = Table::new(vec![
        Column::number("drafts", "drafts"),
        Column::text("split", "TP x PP x EP"),
        Column::text("policy", "policy"),
        Column::number("channels", "channels"),
        Column::number("pass_ms", "pass, ms"),
        Column::number("draft_ms", "drafts, ms"),
        Column::number("tokens_per_s", "tokens/s"),
        Column::number("at_most", "at most"),
    ]);
    for (drafts, Partition { tp, pp, ep, .. }, looked) in &found.looked {
        let mut cells = vec![Number::integer(*drafts).into(), format!("{tp} x {pp} x {ep}").as_str().into()];
        match looked {
            Looked::Best(choice) => cells.extend([
                policy_cell(&choice.policy).as_str().into(),
                Number::integer(u64::from(choice.channels)).into(),
                Number::new(choice.pass.ms(), 3).into(),
                Number::new(choice.draft.ms(), 3).into(),
                Number::new(choice.tokens_per_s, 1).into(),
                "".into(),
            ]),
            Looked::AtMost(tokens) => cells.extend(["".into(), "".into(), "".into(), "".into(), "".into(), Number::new(*tokens, 1).into()]),
            Looked::Refused(reason) => cells.extend([reason.as_str().into(), "".into(), "".into(), "".into(), "".into(), "".into()]),
        }
        table.row(cells);
    }
    table
}

fn policy_cell(policy: &Policy) -> String {
    policy_text(policy).replace(',', ", ")
}
