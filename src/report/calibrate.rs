//! What a calibration gave: files of rows, and the numbers that people look for.

use crate::gpu::observation;
use crate::gpu::observation::Observation;
use crate::gpu::parts::Calibration;
use crate::render::number::Number;
use crate::render::page::Block;
use crate::render::page::Section;
use crate::render::table::Cell;
use crate::render::table::Column;
use crate::render::table::Table;
use crate::report::Report;
use crate::report::detect::headline;
use crate::report::reproduce::Reproduce;

/// Names and texts of the files of rows, empty ones left out. Each begins with
/// `#` lines: the command, the machine, what the columns mean.
pub fn files(found: &Calibration, command: &str) -> Vec<(&'static str, String)> {
    let machine = found.detected.as_ref().map_or_else(String::new, headline);
    let shared = found.detected.as_ref().is_some_and(|d| d.gpus.len() == 1);
    let text = |header: &str, meaning: &str, rows: Vec<String>| {
        let mut text = format!("# {command}\n# {machine}\n# {meaning}\n");
        if shared {
            text.push_str("# ranks share the GPU: one process, a stream a rank; they talk through its L2, so this proves nothing about PCIe unless a row goes through the host\n");
        }
        text.push_str(header);
        text.push('\n');
        rows.iter().for_each(|row| text.extend([row.as_str(), "\n"]));
        text
    };
    let chain = "graph_chain: one captured graph of 50 all-reduces on all ranks, per all-reduce, median of 9 replays; eager_chain_single_thread, eager_chain_thread_per_rank: 50 launched one by one, by one host thread or one a rank (the slowest rank counts); low_us, high_us: extremes; out of place, random inputs; for our kernels channels = thread blocks of a rank";
    let micro = "median, least and most of 11 runs; P_fenceF_oneway = half of a flag's round trip between two thread blocks, with 16 bytes and a system fence before each flag (1) or without (0); mixed = one flag in the GPU, one in host memory; stores_P_tT_nN: T threads store N times 16 bytes; start_skew_first: first to last start of a graph's first kernels, start_skew_after_allreduce: after an all-reduce of 43,008 bytes";
    let all = [
        (
            "observations.csv",
            text(observation::OBSERVATION_HEADER, chain, found.observations.iter().map(|r| r.csv()).collect()),
            found.observations.len(),
        ),
        (
            "flows.csv",
            text(
                observation::FLOW_HEADER,
                "write and read = copy kernel of 32 blocks x 512 threads, copy = copy engine; h = pinned host memory",
                found.flows.iter().map(|r| r.csv()).collect(),
            ),
            found.flows.len(),
        ),
        ("micro.csv", text(observation::MICRO_HEADER, micro, found.micro.iter().map(|r| r.csv()).collect()), found.micro.len()),
        (
            "choices.csv",
            text(
                observation::CHOICE_HEADER,
                "what NCCL's log says it chose, beside what it was asked; empty = left to NCCL",
                found.choices.iter().map(|r| r.csv()).collect(),
            ),
            found.choices.len(),
        ),
        (
            "check.csv",
            text(
                observation::CHECK_HEADER,
                "every kernel against double precision on random inputs with poisoned outputs, then a long chain in a replayed graph, each output compared on the GPU; wrong: elements out of bounds, unwritten, or not alike on all ranks; large relative errors are those of single elements near zero",
                found.checks.iter().map(|r| r.csv()).collect(),
            ),
            found.checks.len(),
        ),
    ];
    all.into_iter().filter(|(_, _, rows)| *rows > 0).map(|(name, text, _)| (name, text)).collect()
}

/// The report on what was measured and written to `folder`.
pub fn report(found: &Calibration, folder: &str, reproduce: Reproduce) -> Report {
    let section = |heading: &str, blocks| Section { heading: heading.to_owned(), blocks };
    let fastest = fastest(found);
    let mut sections = vec![section("", vec![Block::Text(found.detected.as_ref().map_or_else(String::new, headline))])];
    if let Some(table) = fastest.clone() {
        sections.push(section("All-reduces in a graph, microseconds", vec![Block::Table(table)]));
    }
    if !found.micro.is_empty() {
        sections.push(section("Constants", vec![Block::Table(constants(found))]));
    }
    let mut said = verdicts(found);
    said.extend(found.notes.iter().map(|note| format!("not measured: {note}")));
    if !said.is_empty() {
        sections.push(section("Checks", vec![Block::List(said)]));
    }
    let parts: Vec<String> = found.seconds.iter().map(|(part, seconds)| format!("{} {seconds:.1} s", part.name())).collect();
    let names: Vec<&str> = files(found, "").iter().map(|(name, _)| *name).collect();
    sections
        .push(section("Files", vec![Block::Text(format!("{folder}: {}, machine.toml. Time: {}.", names.join(", "), parts.join(", ")))]));
    Report {
        title: "Calibration".to_owned(),
        sections,
        rows: fastest.unwrap_or_else(|| constants(found)),
        exact: None,
        json: None,
        reproduce,
        passed: passed(found),
    }
}

/// No wrong sum, and a rank that stopped was noticed where that was tried.
fn passed(found: &Calibration) -> bool {
    let tried = found.seconds.iter().any(|(part, _)| part.name() == "stop");
    found.checks.iter().all(|c| c.wrong == 0) && (!tried || found.stopped.is_some())
}

fn verdicts(found: &Calibration) -> Vec<String> {
    let mut all = Vec::new();
    if !found.checks.is_empty() {
        let wrong = found.checks.iter().filter(|c| c.wrong > 0).count();
        let calls: u64 = found.checks.iter().map(|c| c.calls).sum();
        all.push(format!("kernels: {} rows, {calls} calls, {wrong} rows with wrong sums", found.checks.len()));
        all.extend(found.checks.iter().filter(|c| c.wrong > 0).take(10).map(|c| format!("wrong: {}", c.csv())));
    }
    if let Some(stopped) = &found.stopped {
        all.push(format!("a rank of {} that stopped was reported after {:.1} s: {}", stopped.ranks, stopped.seconds, stopped.report));
    }
    all
}

/// A row for each thing measured in graphs, a column for each size; the most
/// ranks measured, the least median where several grids or settings were tried.
fn fastest(found: &Calibration) -> Option<Table> {
    let ranks = found.observations.iter().map(|o| o.ranks).max()?;
    let rows: Vec<&Observation> = found.observations.iter().filter(|o| o.ranks == ranks && o.timing == "graph_chain").collect();
    let mut sizes: Vec<u64> = rows.iter().map(|o| o.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let key = |o: &Observation| {
        let words = [&o.implementation, &o.algorithm, &o.protocol];
        let named: Vec<&str> = words.iter().map(|w| w.as_str()).filter(|w| !w.is_empty()).collect();
        let settings = [("channels", &o.channels), ("threads", &o.threads), ("buffer", &o.buffer_bytes)];
        let nccl: Vec<String> = settings.iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| format!("{k} {v}")).collect();
        if o.implementation == "nccl" { format!("{} ({})", named.join(" "), nccl.join(", ")) } else { named.join(" ") }
    };
    let mut names: Vec<String> = Vec::new();
    for row in &rows {
        if !names.contains(&key(row)) {
            names.push(key(row));
        }
    }
    let mut columns = vec![Column::text("what", &format!("{ranks} ranks"))];
    columns.extend(sizes.iter().map(|bytes| Column::number(&format!("us_{bytes}"), &format!("{} B", Number::integer(*bytes).grouped()))));
    let mut table = Table::new(columns);
    for name in names {
        let least = |bytes: u64| {
            let all = rows.iter().filter(|o| o.bytes == bytes && key(o) == name).map(|o| o.latency_us);
            all.min_by(f64::total_cmp)
        };
        let mut cells: Vec<Cell> = vec![name.as_str().into()];
        cells.extend(sizes.iter().map(|bytes| Number::maybe(least(*bytes), 2).into()));
        table.row(cells);
    }
    Some(table)
}

/// The micro-benchmarks that enter the machine's file or name a limit.
fn constants(found: &Calibration) -> Table {
    let wanted = |name: &str| {
        ["eager_launch_us", "graph_gap_us", "fence_sys_ns", "l2_read_latency_ns", "host_read_latency_ns", "memory_read_latency_ns"]
            .contains(&name)
            || name.starts_with("pingpong_")
            || name.starts_with("start_skew_after")
            || name.contains("_contexts_")
    };
    let mut table = Table::new(vec![
        Column::text("name", "name"),
        Column::number("value", "median"),
        Column::number("low", "least"),
        Column::number("high", "most"),
    ]);
    for row in found.micro.iter().filter(|m| wanted(&m.name)) {
        let number = |value: f64| Number::new(value, 2).into();
        table.row(vec![row.name.as_str().into(), number(row.value), number(row.low), number(row.high)]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::element::Element;
    use crate::gpu::observation::Check;
    use crate::gpu::parts::Part;

    fn observation(implementation: &str, channels: &str, bytes: u64, latency_us: f64) -> Observation {
        Observation {
            machine: "m".to_owned(),
            ranks: 8,
            implementation: implementation.to_owned(),
            algorithm: String::new(),
            protocol: "ll".to_owned(),
            channels: channels.to_owned(),
            threads: String::new(),
            buffer_bytes: String::new(),
            timing: "graph_chain".to_owned(),
            bytes,
            dtype: Element::Bf16,
            version: "1".to_owned(),
            collective: "all_reduce".to_owned(),
            latency_us,
            low_us: latency_us,
            high_us: latency_us,
            source: "test".to_owned(),
        }
    }

    #[test]
    fn the_best_grid_of_ours_and_each_setting_of_nccl_is_a_row() {
        let found = Calibration {
            observations: vec![
                observation("one_shot_push", "4", 256, 3.0),
                observation("one_shot_push", "2", 256, 2.0),
                observation("nccl", "1-8", 256, 9.0),
                observation("nccl", "4", 512, 8.0),
            ],
            ..Calibration::default()
        };
        let csv = fastest(&found).expect("a table").to_csv();
        assert_eq!(csv, "what,us_256,us_512\none_shot_push ll,2.00,\nnccl ll (channels 1-8),9.00,\nnccl ll (channels 4),,8.00\n");
    }

    #[test]
    fn files_begin_with_their_command_and_empty_ones_are_not_written() {
        let found = Calibration { observations: vec![observation("nccl", "", 256, 9.0)], ..Calibration::default() };
        let all = files(&found, "lanecast calibrate --quick");
        assert_eq!(all.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["observations.csv"]);
        assert!(all[0].1.starts_with("# lanecast calibrate --quick\n#"));
        assert_eq!(all[0].1.lines().filter(|l| !l.starts_with('#')).count(), 2);
    }

    #[test]
    fn a_wrong_sum_or_an_unnoticed_stop_fails() {
        let check =
            |wrong| Check { name: "RingLl".to_owned(), ranks: 2, dtype: Element::Bf16, bytes: 42, calls: 3, wrong, relative_error: 0.0 };
        assert!(passed(&Calibration { checks: vec![check(0)], ..Calibration::default() }));
        let found = Calibration { checks: vec![check(0), check(5)], ..Calibration::default() };
        assert!(!passed(&found));
        assert!(verdicts(&found).iter().any(|line| line.starts_with("wrong: RingLl,2")));
        assert!(!passed(&Calibration { seconds: vec![(Part::Stop, 1.0)], ..Calibration::default() }));
    }
}
