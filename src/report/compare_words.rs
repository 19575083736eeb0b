//! The sentences of a comparison.

use crate::compare::Cause;
use crate::compare::Comparison;
use crate::compare::LedgerLine;
use crate::compare::Portion;
use crate::compare::What;
use crate::compare::causes::links;
use crate::render::number::Number;

/// Milliseconds from microseconds.
pub fn ms(us: f64) -> Number {
    Number::new(us / 1e3, 4)
}

/// A length of time in the unit that suits it.
fn time(us: f64) -> String {
    match us.abs() {
        size if size >= 1000.0 => format!("{} ms", Number::new(us / 1e3, 3).grouped()),
        size if size >= 0.1 => format!("{} us", Number::new(us, 2).grouped()),
        _ => format!("{} ns", Number::new(us * 1e3, 1).grouped()),
    }
}

/// The mean rank's time from all ranks' where it is counted a pass.
fn longer(us: f64) -> String {
    let word = if us > 0.0 { "longer" } else { "shorter" };
    format!("{} {word}", time(us.abs()))
}

/// One sentence: by how much.
pub fn headline(comparison: &Comparison) -> String {
    let [a, b] = &comparison.sides;
    let difference = comparison.difference_us();
    if difference == 0.0 {
        let equal = comparison.largest.is_empty() && comparison.unmatched.is_empty();
        let rest = if equal {
            format!("all {} operations take the same time to the last digit.", a.rows)
        } else {
            "what differs inside cancels out.".to_owned()
        };
        return format!("Both passes take {}: {rest}", time(a.pass_us));
    }
    let percent = difference / a.pass_us.max(1e-9) * 100.0;
    format!("B is {} than A: {} against {} ({} %).", longer(difference), time(b.pass_us), time(a.pass_us), Number::new(percent, 2).signed())
}

/// A cause in a sentence, with its share.
pub fn cause(cause: &Cause, comparison: &Comparison) -> String {
    let words = match &cause.what {
        What::Link { links, gbps, operations } => link(links, gbps, operations, cause.us),
        What::Rank { rank, own, latest, caused } => rank_words(*rank, own.as_ref(), latest.as_ref(), caused),
        What::Layer { layer, portion, us, mostly } => {
            let mostly = mostly.as_ref().map_or(String::new(), |name| format!(", most of it {name}"));
            format!("Layer {layer}: its {} is {}{mostly}", portion.name(), change(us))
        }
        What::Operation { name, layer: Some(layer), portion, us, .. } => {
            format!("{name} in layer {layer}: its {} is {}", portion.name(), change(us))
        }
        What::Operation { name, layer: None, portion, count, us } => {
            let each = us.map(|us| us / count.max(1e-9));
            let each = if *count > 1.5 { format!(", {} against {} each", time(each[1]), time(each[0])) } else { String::new() };
            format!("{name} ({} a rank): its {} is {}{each}", Number::new(*count, 0), portion.name(), change(us))
        }
        What::Gaps { us } => format!("Gaps between kernels (launches) are {}", change(us)),
        What::Unmatched { side, count } => {
            format!("Operations that only {} has ({} a rank) take {}", ["A", "B"][*side], Number::new(*count, 0), time(cause.us.abs()))
        }
    };
    match comparison.share_pct(cause.us) {
        Some(share) => format!("{words}: {} % of the difference.", Number::new(share, 1)),
        None => format!("{words}."),
    }
}

fn change(us: &[f64; 2]) -> String {
    let factor = if us[0] > 1e-6 { format!(", x{}", Number::new(us[1] / us[0], 2)) } else { String::new() };
    format!("{} ({} against {}{factor})", longer(us[1] - us[0]), time(us[1]), time(us[0]))
}

fn link(links: &[String], gbps: &[f64; 2], operations: &[String], us: f64) -> String {
    let percent = (gbps[1] / gbps[0].max(1e-9) - 1.0) * 100.0;
    format!(
        "{} can carry {} instead of {} GB/s ({} %): the collectives that cross {} ({}) are {}, the waiting for their uneven ends included",
        links.join(", "),
        Number::new(gbps[1], 1),
        Number::new(gbps[0], 1),
        Number::new(percent, 0).signed(),
        if links.len() == 1 { "it" } else { "them" },
        operations.join(", "),
        longer(us)
    )
}

fn rank_words(rank: u32, own: Option<&(Portion, f64)>, latest: Option<&(f64, String)>, caused: &[f64; 2]) -> String {
    let difference = caused[1] - caused[0];
    let (later, more) = if difference > 0.0 { ("later", "more") } else { ("earlier", "less") };
    let place = match latest {
        Some((by, op)) if difference > 0.0 => format!(", most at {op} ({} behind the rank before it)", time(*by)),
        _ => String::new(),
    };
    let own = own.map_or(String::new(), |(portion, us)| format!("; rank {rank} itself is {} in {}", longer(*us), portion.name()));
    format!("Rank {rank} arrives {later}: the mean rank waits {} {more} for it (skew){place}{own}", time(difference.abs()))
}

/// What a reader should know beside the causes.
pub fn notes(comparison: &Comparison) -> Vec<String> {
    let mut notes = Vec::new();
    if comparison.by_order {
        notes.push("The traces name operations differently: the n-th collective of each sort was joined with the n-th, and the kernels between two collectives with those between the same two.".to_owned());
    }
    let [a, b] = &comparison.sides;
    if a.passes != b.passes {
        notes.push(format!(
            "A has {} and B {} passes: those that only one has are listed, --passes compares one of each.",
            a.passes, b.passes
        ));
    }
    for (letter, side) in ["A", "B"].iter().zip(&comparison.sides) {
        if side.ranks == 1 {
            notes.push(format!("{letter} holds one rank: waiting for others cannot be told from transfer."));
        }
        if side.overlap_us > 0.0 {
            notes.push(format!(
                "{letter}: {} a rank of operations lie under others of the same rank; they are counted once.",
                time(side.overlap_us)
            ));
        }
    }
    let named = comparison.causes.iter().any(|cause| matches!(cause.what, What::Link { .. }));
    for what in links(comparison).iter().filter(|_| !named) {
        if let What::Link { links, gbps: [a, b], operations } = what {
            notes.push(format!(
                "{} can carry {} instead of {} GB/s, but no time depends on it: {} do not fill it.",
                links.join(", "),
                Number::new(*b, 1),
                Number::new(*a, 1),
                operations.join(", ")
            ));
        }
    }
    notes.extend(comparison.ledger.iter().filter_map(counted_twice));
    let alone = |side: usize| comparison.unmatched.iter().filter(|one| one.side == side).count();
    if !comparison.unmatched.is_empty() {
        notes.push(format!("{} operations of A and {} of B find no counterpart.", alone(0), alone(1)));
    }
    notes
}

/// A sign of double counting.
fn counted_twice(line: &LedgerLine) -> Option<String> {
    let [a, b] = line.count;
    if a <= 0.0 || b <= 0.0 || (a - b).abs() < 0.5 {
        return None;
    }
    let (more, times) = if b > a { ("B", b / a) } else { ("A", a / b) };
    let doubt = if (times - libm::round(times)).abs() < 0.02 {
        format!(" {more} may count each {} times.", Number::new(times, 0))
    } else {
        String::new()
    };
    Some(format!(
        "{} of {} bytes occurs {} times a pass in A and {} times in B.{doubt}",
        line.name,
        line.bytes,
        Number::new(a, 2),
        Number::new(b, 2)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::outcome::Summary;

    fn comparison(a: f64, b: f64) -> Comparison {
        let side = |pass_us| Summary { pass_us, rows: 6, ranks: 2, passes: 1, ..Summary::default() };
        Comparison { sides: [side(a), side(b)], ..Comparison::default() }
    }

    #[test]
    fn causes_are_sentences_with_shares() {
        let compared = comparison(16_987.0, 17_087.0);
        assert_eq!(headline(&compared), "B is 100.00 us longer than A: 17.087 ms against 16.987 ms (+0.59 %).");
        let what =
            What::Rank { rank: 5, own: Some((Portion::Launch, 100.0)), latest: Some((99.5, "L000.x.r5".to_owned())), caused: [1.0, 88.5] };
        let words = cause(&Cause { what, us: 100.0 }, &compared);
        assert_eq!(
            words,
            "Rank 5 arrives later: the mean rank waits 87.50 us more for it (skew), most at L000.x.r5 (99.50 us behind the rank before it); rank 5 itself is 100.00 us longer in launch gaps: 100.0 % of the difference."
        );
        let what = What::Layer { layer: 30, portion: Portion::Compute, us: [98.0, 196.0], mostly: Some("experts".to_owned()) };
        assert!(
            cause(&Cause { what, us: 98.0 }, &compared)
                .starts_with("Layer 30: its compute is 98.00 us longer (196.00 us against 98.00 us, x2.00), most of it experts: 98.0 %")
        );
        let what = What::Link { links: vec!["a > b".to_owned()], gbps: [45.7, 36.56], operations: vec!["ar".to_owned()] };
        let words = cause(&Cause { what, us: 50.0 }, &compared);
        assert!(
            words.starts_with("a > b can carry 36.6 instead of 45.7 GB/s (-20 %): the collectives that cross it (ar) are 50.00 us longer"),
            "{words}"
        );
    }

    #[test]
    fn equal_passes_say_so() {
        assert_eq!(headline(&comparison(22.0, 22.0)), "Both passes take 22.00 us: all 6 operations take the same time to the last digit.");
    }

    #[test]
    fn double_counting_is_doubted() {
        let line = LedgerLine { name: "allreduce".to_owned(), bytes: 43008, count: [122.0, 244.0], ..LedgerLine::default() };
        assert!(counted_twice(&line).expect("twice").ends_with("B may count each 2 times."));
        assert_eq!(counted_twice(&LedgerLine { count: [122.0, 122.0], ..line }), None);
    }
}
