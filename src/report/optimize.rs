//! The best policy for people: what it is, what to set for it, the command that
//! forecasts it again, and what else was looked at.

use crate::case::Policy;
use crate::case::engine::Engine;
use crate::case::tuner_rules;
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
use crate::strategy::Executor;
use crate::units::Bytes;

/// A command goes on in the next line.
const LINE: &str = " \\\n    ";

/// What the tuner's rules are written to.
const TUNER_FILE: &str = "nccl_tuner.conf";

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
    vec![policy, settings(request, found, asked), Section { heading: "Drafts and splits".to_owned(), blocks: drafts_and_splits(found) }]
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
    let rest = if found.exhaustive { "nothing was left out by a bound" } else { "bounds left out the rest" };
    format!(
        "{} collectives and {} pass were simulated, {} % of the {} choices of drafts, split, channels and one strategy for all sizes; \
         {rest} ({} collectives differ). No other policy is better by this sum.",
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

/// What to set, and the command that writes the tuner's file where variables cannot say it.
fn settings(request: &Request<'_>, found: &Found, asked: &Asked<'_>) -> Section {
    let by_rule = tuner_rules::environment(&found.best.policy).is_ok_and(|(_, by_rule)| by_rule);
    let mut advice = advice(request, found);
    if by_rule {
        for (name, value) in [("NCCL_TUNER_PLUGIN", "libnccl-tuner-example.so"), ("NCCL_TUNER_CONFIG_FILE", TUNER_FILE)] {
            advice.environment.insert(name.to_owned(), value.to_owned());
        }
    }
    let mut section = crate::report::settings::section(&advice, "For the policy above.".to_owned());
    if by_rule {
        let mut words = vec![format!("lanecast export tuner --output {TUNER_FILE}")];
        words.extend(question(&found.best, request, asked));
        section.blocks.insert(1, Block::Text("NCCL's choices by size, for its tuner plugin:".to_owned()));
        section.blocks.insert(2, Block::Code(words.join(LINE) + "\n"));
        section.blocks.insert(3, Block::Text("Variables and flags:".to_owned()));
    }
    section
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
    // Kernels of one's own may want variables too.
    let own = choice.policy.rows.iter().filter(|(_, strategy)| strategy.executor != Executor::Nccl);
    let own = own.flat_map(|(_, strategy)| strategy.environment).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    for (name, value) in own.chain(variables(choice)) {
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
    let mut words = vec!["lanecast simulate".to_owned()];
    words.extend(question(choice, request, asked));
    words.join(LINE)
}

/// The question of a choice, as arguments.
fn question(choice: &Choice, request: &Request<'_>, asked: &Asked<'_>) -> Vec<String> {
    let Partition { tp, pp, ep, .. } = choice.partition;
    let workload = &request.case.workload;
    let tokens = choice.cycle.map_or(1, |shape| shape.verified);
    let mut words = vec![format!("--machine {} --model {}", quoted(asked.machine), quoted(asked.model))];
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
    words
}

/// For a shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=+@".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// Those that can run, and why the others cannot.
fn drafts_and_splits(found: &Found) -> Vec<Block> {
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    for (_, _, looked) in &found.looked {
        let Looked::Refused(reason) = looked else { continue };
        match reasons.iter_mut().find(|(known, _)| known == reason) {
            Some((_, count)) => *count += 1,
            None => reasons.push((reason, 1)),
        }
    }
    let mut blocks = vec![Block::Table(table(found, |looked| !matches!(looked, Looked::Refused(_))))];
    if !reasons.is_empty() {
        blocks.push(Block::List(reasons.iter().map(|(reason, count)| format!("{count} cannot be: {reason}")).collect()));
    }
    blocks
}

/// All drafts and splits.
pub fn rows(found: &Found) -> Table {
    table(found, |_| true)
}

fn table(found: &Found, shown: impl Fn(&Looked) -> bool) -> Table {
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
    for (drafts, Partition { tp, pp, ep, .. }, looked) in found.looked.iter().filter(|(_, _, looked)| shown(looked)) {
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
