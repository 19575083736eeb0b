//! p2pmark: scores of links, of the dense interconnect and of latency.

use crate::error::Fault;
use crate::error::Result;
use crate::import::formats::Format;
use crate::import::formats::Looks;
use crate::import::formats::Read;
use crate::import::outcome::Outcome;

/// p2pmark.
pub(super) const FORMAT: Format = Format { kind: "p2pmark", looks: Looks::Text(detect), read: Read::Text(read) };

/// Lines that carry numbers: a phrase, the score's name, its unit; the number follows the phrase.
const FIGURES: &[(&str, &str, &str)] = &[
    ("PCIe LINK SCORE:", "link_score", "1"),
    ("DENSE INTERCONNECT SCORE:", "dense_score", "1"),
    ("EFFECTIVE LATENCY:", "effective_latency_us", "us"),
    ("Min latency:", "min_latency_us", "us"),
    ("Mean latency:", "mean_latency_us", "us"),
];

/// Numbers in brackets: the phrase after the number, the score's name.
const IN_BRACKETS: &[(&str, &str)] =
    &[("GB/s avg", "link_average_GBps"), ("GB/s measured", "dense_measured_GBps"), ("GB/s ideal", "dense_ideal_GBps")];

/// Whether `head` looks like it.
pub fn detect(head: &str) -> bool {
    FIGURES.iter().take(3).any(|(phrase, ..)| head.contains(phrase))
}

/// Reads the scores.
///
/// # Errors
/// `import-p2pmark` where there is none.
pub fn read(name: &str, text: &str) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let scores = &mut outcome.facts.scores;
    for line in text.lines() {
        for &(phrase, score, unit) in FIGURES {
            let after = line.split(phrase).nth(1).and_then(|rest| rest.split_whitespace().next());
            if let Some(value) = after.and_then(positive) {
                scores.push((format!("p2pmark_{score}"), value, unit));
            }
        }
        for &(phrase, score) in IN_BRACKETS {
            let before = line.split_once(phrase).and_then(|(rest, _)| rest.rsplit([' ', '(', '/']).find(|w| !w.is_empty()));
            if let Some(value) = before.and_then(positive) {
                scores.push((format!("p2pmark_{score}"), value, "GB/s"));
            }
        }
    }
    if scores.is_empty() {
        return Err(Fault::new("import-p2pmark", format!("{name} holds no score")).help("expected lines such as `PCIe LINK SCORE: 0.86`"));
    }
    let found = scores.len();
    outcome.understood(format!("{name}: {found} figures (p2pmark)"));
    Ok(outcome)
}

fn positive(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0 && *n < 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_read() {
        let text = "PCIe LINK SCORE: 0.86\n  (54.30 GB/s avg / 63.0 GB/s theoretical)\nDENSE INTERCONNECT SCORE: 0.44\n (189.13 GB/s measured / 434.71 GB/s ideal)\nEFFECTIVE LATENCY: 6.14 us\n";
        let scores = read("p.txt", text).expect("reads").facts.scores;
        let of = |name: &str| scores.iter().find(|s| s.0 == name).map(|s| s.1);
        assert_eq!(of("p2pmark_link_score"), Some(0.86));
        assert_eq!((of("p2pmark_link_average_GBps"), of("p2pmark_dense_measured_GBps")), (Some(54.3), Some(189.13)));
        assert_eq!((of("p2pmark_dense_ideal_GBps"), of("p2pmark_effective_latency_us")), (Some(434.71), Some(6.14)));
        assert!(read("p.txt", "PCIe LINK SCORE: nan").is_err());
    }
}
