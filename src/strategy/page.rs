//! `docs/strategies.md`, made from the registry.

use std::fmt::Write;

use super::Effort;
use super::Need;
use super::Strategy;
use super::all;

const HEAD: &str = "# Strategies

Every way to communicate that is ranked: how it works, when it can run, what it asks of a person and what of it is modelled. This page
is made from the registry in `src/strategy`; `LANECAST_BLESS=1 cargo test --test strategies` writes it anew.

- **Runs by**: `ours` is run by our kernels on real GPUs too, `nccl` by NCCL itself, `modelled-only` is another project's and simulated.
- **Effort**: minutes are variables and a restart, hours a flag, a package or a rebuild, days code in the serving engine.
- **Risk**: low is slower at worst, medium may hang or not start, high may give wrong results without a sign.

";

/// The whole page.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    page.push_str("| strategy | runs by | effort | risk |\n|---|---|---|---|\n");
    for strategy in all() {
        let Strategy { id, executor, effort, risk, .. } = strategy;
        // Writing to a string cannot fail.
        let _ = writeln!(page, "| [`{id}`](#{id}) | {} | {} | {} |", executor.name(), effort.name(), risk.name());
    }
    for strategy in all() {
        page.push('\n');
        page.push_str(&entry(strategy));
    }
    page
}

/// One strategy.
fn entry(strategy: &Strategy) -> String {
    let mut text = format!("## {}\n\n{}.\n\n", strategy.id, capital(strategy.summary));
    let mut line = |what: &str, words: String| {
        let _ = writeln!(text, "- **{what}**: {words}");
    };
    line("Runs by", strategy.executor.name().to_owned());
    let partition = (strategy.partition)(8);
    if partition != crate::plan::Partition::tensor(8) {
        let (tp, pp, ep) = (partition.tp, partition.pp, partition.ep);
        line("Splits the model", format!("over 8 ranks as TP {tp} × PP {pp} × EP {ep}"));
    }
    let gates: Vec<String> = strategy.needs.iter().map(gate).collect();
    line("Gate", if gates.is_empty() { "none".to_owned() } else { gates.join("; ") });
    let variables: Vec<String> = strategy.environment.iter().map(|(name, value)| format!("`{name}={value}`")).collect();
    let flags = strategy.flags.iter().map(|flag| (*flag).to_owned());
    let settings: Vec<String> = variables.into_iter().chain(flags).collect();
    if !settings.is_empty() {
        line("To set", settings.join("; "));
    }
    if strategy.effort != Effort::None {
        line("Effort", strategy.effort.name().to_owned());
    }
    line("Risk", format!("{}: {}", strategy.risk.name(), strategy.risk_words));
    line("Way back", strategy.way_back.to_owned());
    for decline in strategy.declines {
        line("Declines silently", format!("{} (unless {})", decline.words(), decline.unless.words()));
    }
    line("Modelled", strategy.modelled.to_owned());
    let left_out = strategy.not_modelled.join("; ");
    line("Not modelled", if left_out.is_empty() { "nothing known".to_owned() } else { left_out });
    text
}

/// A gate in words, with what happens where it is shut.
fn gate(need: &Need) -> String {
    let because = match need {
        Need::Nvlink { because, .. }
        | Need::Multicast { because }
        | Need::Majors { because, .. }
        | Need::FlashInferSm12 { because, .. }
        | Need::FlashInfer { because, .. }
        | Need::Nccl { because, .. } => because,
        _ => return need.words(),
    };
    format!("{} ({because})", need.words())
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
