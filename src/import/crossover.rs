//! The start-up log of engines that time their own all-reduce against NCCL
//! ("auto-crossover"): one size a line, two times in microseconds.
//!
//! The log's wording differs between forks, so a line is taken when it holds a
//! size and two times of which one is named after NCCL; other lines are passed over.

use crate::error::Fault;
use crate::error::Result;
use crate::import::formats::Format;
use crate::import::formats::Looks;
use crate::import::formats::Read;
use crate::import::nccl_tests::Run;
use crate::import::outcome::Outcome;
use crate::import::outcome::base_name;
use crate::trace::observation::Collective;
use crate::trace::observation::Implementation;
use crate::trace::observation::Timing;

/// Start-up crossover log of an engine.
pub(super) const FORMAT: Format = Format { kind: "crossover", looks: Looks::Text(detect), read: Read::Text(read) };

/// Whether `head` looks like it.
pub fn detect(head: &str) -> bool {
    let lower = head.to_ascii_lowercase();
    lower.contains("crossover") && lower.contains("nccl") && (lower.contains("us") || lower.contains("µs"))
}

/// Reads the log.
///
/// # Errors
/// `import-crossover` where no line holds a size and both times, or the ranks are not told.
pub fn read(name: &str, text: &str) -> Result<Outcome> {
    let lower = text.to_ascii_lowercase();
    let ranks = ["world_size=", "world size ", "world_size: ", "tp_size=", "tp="].iter().find_map(|key| {
        let rest = lower.split(key).nth(1)?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok().filter(|n| (2..=1024).contains(n))
    });
    let rows: Vec<(u64, f64, f64)> = lower.lines().filter_map(row).collect();
    if rows.is_empty() {
        return Err(Fault::new("import-crossover", format!("{name} holds no line with a size and two times"))
            .help("expected lines such as `size=43008 B: custom 9.2 us, nccl 15.6 us`"));
    }
    let Some(ranks) = ranks else {
        return Err(Fault::new("import-crossover", format!("{name} does not tell how many ranks took part"))
            .help("keep the line with `world_size=…` or `tp_size=…`"));
    };
    let mut outcome = Outcome::default();
    let run = |implementation| Run {
        collective: Collective::AllReduce,
        ranks,
        timing: Timing::FrameworkLoop,
        version: String::new(),
        implementation,
    };
    for (bytes, own, nccl) in &rows {
        let source = format!("start-up crossover benchmark, {}", base_name(name));
        outcome.observations.push(run(Implementation::OneShotPush).observation(*bytes, "bf16", *own, None, &source));
        outcome.observations.push(run(Implementation::Nccl).observation(*bytes, "bf16", *nccl, None, &source));
    }
    let better = rows.iter().filter(|(_, own, nccl)| own < nccl).map(|(bytes, ..)| *bytes).max();
    outcome.understood(format!("{name}: {} sizes on {ranks} ranks (crossover log)", rows.len()));
    outcome.warn(format!(
        "{name}: times of a Python loop, launches included; NCCL is overtaken {}",
        better.map_or("nowhere".to_owned(), |b| format!("up to {b} B"))
    ));
    Ok(outcome)
}

/// `size=43008 B: custom 9.2 us, nccl 15.6 us` as bytes, own time, NCCL's time.
fn row(line: &str) -> Option<(u64, f64, f64)> {
    let (mut bytes, mut times) = (None, Vec::new());
    let spaced = line.replace(['=', ':', ',', '|', '(', ')', '[', ']'], " ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut label = "";
    for (i, word) in words.iter().enumerate() {
        let digits = word.trim_end_matches(|c: char| c.is_alphabetic() || c == 'µ');
        let glued = &word[digits.len()..];
        let Ok(number) = digits.parse::<f64>() else {
            if !matches!(*word, "us" | "µs") {
                label = word;
            }
            continue;
        };
        let unit = if glued.is_empty() { words.get(i + 1).copied().unwrap_or("") } else { glued };
        match unit {
            "b" | "bytes" => bytes = Some(number),
            "kb" | "kib" => bytes = Some(number * 1024.0),
            "mb" | "mib" => bytes = Some(number * 1_048_576.0),
            "us" | "µs" => times.push((label, number)),
            _ if label == "size" || label == "bytes" => bytes = Some(number),
            _ => {}
        }
    }
    let nccl = times.iter().find(|(label, _)| label.contains("nccl"))?.1;
    let own = times.iter().find(|(label, _)| !label.contains("nccl"))?.1;
    let bytes = bytes.filter(|b| (1.0..1e12).contains(b))? as u64;
    let sane = |t: f64| t > 0.0 && t < 1e9;
    (sane(nccl) && sane(own)).then_some((bytes, own, nccl))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_times_of_a_size_are_read() {
        let text = "[TP0] PCIe allreduce auto-crossover: world_size=4\n  size 8 KB: custom 6.4 us, nccl 13.9 us\n size=65536 B | oneshot=15.8us | nccl=14.1us\nready\n";
        assert!(detect(text));
        let outcome = read("server.log", text).expect("reads");
        let o = &outcome.observations;
        assert_eq!((o[0].bytes, o[0].latency_us, o[1].latency_us, o[0].ranks), (8192, 6.4, 13.9, 4));
        assert_eq!((o[2].bytes, o[3].latency_us), (65536, 14.1));
        assert!(outcome.warnings[0].contains("up to 8192 B"));
    }

    #[test]
    fn logs_without_numbers_are_refused() {
        for text in ["", "crossover nccl us", "size 8 KB: custom 6.4 us, nccl 13.9 us"] {
            assert_eq!(read("l", text).map(|_| ()).expect_err(text).code, "import-crossover");
        }
    }
}
