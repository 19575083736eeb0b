//! Settings for people: what to set, what must be true, the risk, the way back.

use crate::decide::settings::Advice;
use crate::render::page::Block;
use crate::render::page::Section;

/// The section; `words` say for what.
pub fn section(advice: &Advice, words: String) -> Section {
    let mut code: String = advice.environment.iter().map(|(name, value)| format!("export {name}={value}\n")).collect();
    if !advice.sglang.is_empty() {
        code.push_str(&format!("sglang: {}\n", advice.sglang.join(" ")));
    }
    if !advice.vllm.is_empty() {
        code.push_str(&format!("vllm: {}\n", advice.vllm.join(" ")));
    }
    let mut blocks = vec![Block::Text(words)];
    if !code.is_empty() {
        blocks.push(Block::Code(code));
    }
    let mut items = advice.steps.clone();
    items.extend(advice.checks.iter().map(|check| format!("It must be true: {}. Check: {}.", check.must, check.how)));
    items.extend(advice.risks.iter().map(|risk| format!("Risk: {risk}.")));
    items.extend(advice.way_back.iter().map(|way| format!("Way back: {way}.")));
    items.push("Change nothing else in the same run.".to_owned());
    blocks.push(Block::List(items));
    Section { heading: "Settings".to_owned(), blocks }
}
