//! The tables of docs/measuring.md are made from traces/h200-measured, and the
//! page is not stale. `LANECAST_UPDATE=1 cargo test --test measuring` writes it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

type Row = BTreeMap<String, String>;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The rows of a measured file, without its `#` lines.
fn rows(name: &str) -> Vec<Row> {
    let path = root().join("traces/h200-measured").join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(text.starts_with("# ") && text.lines().next().is_some_and(|l| l.contains("lanecast calibrate")), "{name} names its command");
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(text.as_bytes());
    reader.deserialize().map(|row| row.unwrap_or_else(|e| panic!("{name}: {e}"))).collect()
}

fn number(row: &Row, column: &str) -> f64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column} of {row:?}"))
}

fn is(row: &Row, wanted: &[(&str, &str)]) -> bool {
    wanted.iter().all(|(column, value)| row[*column] == *value)
}

/// The latency of the one row (or the least of several grids) that is as wanted.
fn latency(all: &[Row], wanted: &[(&str, &str)]) -> Option<f64> {
    all.iter().filter(|row| is(row, wanted)).map(|row| number(row, "latency_us")).min_by(f64::total_cmp)
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| if v < 100.0 { format!("{v:.1}") } else { format!("{v:.0}") })
}

fn table(head: &[&str], body: &[Vec<String>]) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let rule = head.iter().enumerate().map(|(i, _)| if i == 0 { "---".to_owned() } else { "--:".to_owned() }).collect();
    let mut text = line(head.iter().map(|h| (*h).to_owned()).collect()) + &line(rule);
    body.iter().for_each(|cells| text.push_str(&line(cells.clone())));
    text
}

fn sizes_of(all: &[Row]) -> Vec<String> {
    let mut sizes: Vec<u64> = all.iter().map(|row| row["bytes"].parse().expect("bytes")).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes.iter().map(u64::to_string).collect()
}

/// Ours beside NCCL: microseconds, and how many times as fast as NCCL's choice.
fn versus() -> String {
    let all = rows("versus.csv");
    let case = ["14336", "43008", "57344"];
    let free = |bytes: &str| latency(&all, &[("implementation", "nccl"), ("algorithm", ""), ("bytes", bytes)]).expect("NCCL's choice");
    let named: [(&str, &[(&str, &str)]); 8] = [
        ("NCCL's choice", &[("implementation", "nccl"), ("algorithm", "")]),
        ("NCCL ring LL", &[("implementation", "nccl"), ("algorithm", "ring")]),
        ("NCCL tree LL", &[("implementation", "nccl"), ("algorithm", "tree")]),
        ("one-shot push LL", &[("implementation", "one_shot_push")]),
        ("symmetric LL", &[("implementation", "symmetric")]),
        ("two-shot LL", &[("implementation", "two_shot")]),
        ("hierarchical LL", &[("implementation", "hierarchical")]),
        ("ring LL", &[("implementation", "ring")]),
    ];
    let body: Vec<Vec<String>> = named
        .iter()
        .map(|(name, wanted)| {
            let cell = |bytes: &&str| {
                let found = latency(&all, &[*wanted, &[("bytes", *bytes)]].concat()).unwrap_or_else(|| panic!("{name} at {bytes}"));
                format!("{} ({:.1}x)", shown(Some(found)), free(bytes) / found)
            };
            std::iter::once((*name).to_owned()).chain(case.iter().map(cell)).collect()
        })
        .collect();
    table(&["8 ranks, graph", "14,336 B", "43,008 B", "57,344 B"], &body)
}

/// One row a setting of the four variables.
fn variables() -> String {
    let all = rows("variables.csv");
    let sizes = sizes_of(&all);
    let named = [
        ("16 channels", "16", "", ""),
        ("none of the four", "1-16", "", ""),
        ("`NCCL_MAX_NCHANNELS=2`", "1-2", "", ""),
        ("`NCCL_BUFFSIZE=131072`", "1-16", "", "131072"),
        ("`NCCL_NTHREADS=64`", "1-16", "64", ""),
        ("all four", "1-2", "64", "131072"),
    ];
    let mut body = Vec::new();
    for (name, channels, threads, buffer) in named {
        let wanted = [("channels", channels), ("threads", threads), ("buffer_bytes", buffer), ("timing", "graph_chain")];
        let found: Vec<&Row> = all.iter().filter(|row| is(row, &wanted)).collect();
        // Without a variable and with NCCL_MIN_NCHANNELS=1 the columns are alike: both are runs of `1-16`, in this order.
        for (turn, label) in [(0, name), (1, "`NCCL_MIN_NCHANNELS=1`")].into_iter().take(found.len() / sizes.len()) {
            let cells = found[turn * sizes.len()..(turn + 1) * sizes.len()].iter().map(|row| shown(Some(number(row, "latency_us"))));
            body.push(std::iter::once(label.to_owned()).chain(cells).collect());
        }
    }
    let head: Vec<String> = std::iter::once("8 ranks, graph".to_owned()).chain(sizes.iter().map(|s| format!("{s} B"))).collect();
    table(&head.iter().map(String::as_str).collect::<Vec<_>>(), &body)
}

/// Through host memory, by ranks and size; a star where only an earlier run got there.
fn host() -> String {
    let mut all = rows("host.csv");
    all.extend(rows("full.csv").into_iter().filter(|row| is(row, &[("implementation", "host_staged"), ("timing", "graph_chain")])));
    let sizes = ["256", "4096", "14336", "43008", "57344", "262144", "1048576", "4194304"];
    let mut body = Vec::new();
    for ranks in ["2", "3", "4", "6", "8"] {
        for (name, protocol) in [("two hops", "simple"), ("ring LL", "ll")] {
            let cell = |bytes: &&str| {
                let wanted = [("implementation", "host_staged"), ("ranks", ranks), ("protocol", protocol), ("bytes", *bytes)];
                shown(latency(&all, &wanted))
            };
            body.push(std::iter::once(format!("{ranks} ranks, {name}")).chain(sizes.iter().map(cell)).collect());
        }
    }
    let head: Vec<String> = std::iter::once("best grid".to_owned()).chain(sizes.iter().map(|s| format!("{s} B"))).collect();
    table(&head.iter().map(String::as_str).collect::<Vec<_>>(), &body)
}

fn micro(all: &[Row], name: &str) -> String {
    all.iter().find(|row| row["name"] == name).map_or_else(
        || "-".to_owned(),
        |row| format!("{:.0} ({:.0} to {:.0})", number(row, "value"), number(row, "low"), number(row, "high")),
    )
}

/// How far apart ranks start, by ranks.
fn skew() -> String {
    let all = rows("skew.csv");
    let mut body = Vec::new();
    for ranks in [2, 3, 4, 6, 8] {
        let of = |what: &str| micro(&all, &format!("start_skew_{what}_r{ranks}_ns"));
        body.push(vec![ranks.to_string(), of("first"), of("after_allreduce")]);
    }
    table(&["ranks", "first kernels of the graph, ns", "after an all-reduce, ns"], &body)
}

/// Graph, one thread, a thread a rank.
fn timings() -> String {
    let all = rows("full.csv");
    let named: [(&str, &[(&str, &str)]); 5] = [
        ("NCCL's choice", &[("implementation", "nccl"), ("algorithm", ""), ("channels", "1-8"), ("threads", ""), ("buffer_bytes", "")]),
        ("one-shot push LL", &[("implementation", "one_shot_push"), ("protocol", "ll")]),
        ("symmetric LL", &[("implementation", "symmetric")]),
        ("two-shot LL", &[("implementation", "two_shot"), ("protocol", "ll")]),
        ("ring LL", &[("implementation", "ring")]),
    ];
    let mut body = Vec::new();
    for (name, wanted) in named {
        let cell = |timing: &&str| shown(latency(&all, &[wanted, &[("bytes", "43008"), ("timing", *timing)]].concat()));
        let timings = ["graph_chain", "eager_chain_single_thread", "eager_chain_thread_per_rank"];
        body.push(std::iter::once(name.to_owned()).chain(timings.iter().map(cell)).collect());
    }
    table(&["8 ranks, 43,008 B", "graph", "one thread", "a thread a rank"], &body)
}

/// What the tuner forced, in one process.
fn forced() -> String {
    let all = rows("full.csv");
    let sizes = ["256", "14336", "43008", "262144", "1048576", "4194304"];
    let mut body = Vec::new();
    for algorithm in ["ring", "tree"] {
        for protocol in ["ll", "ll128", "simple"] {
            for channels in ["1", "4"] {
                let wanted = [("implementation", "nccl"), ("algorithm", algorithm), ("protocol", protocol), ("channels", channels)];
                let cell = |bytes: &&str| shown(latency(&all, &[&wanted[..], &[("bytes", *bytes), ("timing", "graph_chain")]].concat()));
                let name = format!("{algorithm} {protocol}, {channels} channels");
                body.push(std::iter::once(name).chain(sizes.iter().map(cell)).collect());
            }
        }
    }
    let head: Vec<String> = std::iter::once("8 ranks, graph".to_owned()).chain(sizes.iter().map(|s| format!("{s} B"))).collect();
    table(&head.iter().map(String::as_str).collect::<Vec<_>>(), &body)
}

/// Calls and wrong elements, by file, ranks and element type.
fn checks() -> String {
    let mut body = Vec::new();
    for (file, counts) in [("soak.csv", &["2", "8"][..]), ("check_matrix.csv", &["2", "3", "4", "6", "8"])] {
        let all = rows(file);
        for ranks in counts {
            for dtype in ["bf16", "fp16"] {
                let found: Vec<&Row> = all.iter().filter(|row| is(row, &[("ranks", *ranks), ("dtype", dtype)])).collect();
                let number = |row: &&Row, column: &str| row[column].parse::<u64>().expect("a count");
                let sum = |column: &str| found.iter().map(|row| number(row, column)).sum::<u64>();
                let of = |column: &str| found.iter().map(|row| number(row, column)).collect::<Vec<_>>();
                let (least, most) = (of("bytes").into_iter().min(), of("bytes").into_iter().max());
                body.push(vec![
                    format!("`{file}`, {ranks} ranks, {dtype}"),
                    found.len().to_string(),
                    format!("{} to {}", least.unwrap_or(0), most.unwrap_or(0)),
                    sum("calls").to_string(),
                    of("calls").into_iter().max().unwrap_or(0).to_string(),
                    sum("wrong").to_string(),
                ]);
            }
        }
    }
    table(&["", "kernels x sizes", "bytes", "calls", "longest chain", "wrong elements"], &body)
}

fn constants() -> String {
    let all = rows("micro.csv");
    let names = [
        ("flag, one way, through L2", "pingpong_l2_fence0_oneway_ns"),
        ("the same with 16 bytes and a fence", "pingpong_l2_fence1_oneway_ns"),
        ("flag, one way, through host memory", "pingpong_host_fence0_oneway_ns"),
        ("read of L2", "l2_read_latency_ns"),
        ("read of memory", "memory_read_latency_ns"),
        ("read of host memory", "host_read_latency_ns"),
        ("system fence", "fence_sys_ns"),
    ];
    let mut body: Vec<Vec<String>> = names.iter().map(|(what, name)| vec![(*what).to_owned(), micro(&all, name)]).collect();
    for row in rows("flows.csv").iter().filter(|row| row["access"] == "copy") {
        body.push(vec![format!("copy engine, {} (GB/s)", row["flows"]), row["total_GBps"].clone()]);
    }
    table(&["constant", "ns: median (least to most)"], &body)
}

/// Launches from one queue and from several.
fn queues() -> String {
    let all = rows("micro.csv");
    let value = |name: String| {
        all.iter().find(|row| row["name"] == name).map_or_else(|| "-".to_owned(), |row| format!("{:.2}", number(row, "value")))
    };
    let line =
        |what: &str, of: &dyn Fn(u32) -> String| std::iter::once(what.to_owned()).chain([1, 2, 4, 8].map(|q| value(of(q)))).collect();
    let mut body: Vec<Vec<String>> = vec![
        line("host, a launch of one thread of as many", &|q| format!("eager_issue_q{q}_us")),
        line("queued ahead, kernels that do nothing, each", &|q| format!("eager_turn_q{q}_us")),
        line("queued ahead, gap between kernels of 20 us", &|q| format!("eager_gap_q{q}_us")),
        line("one graph, kernels that do nothing, each", &|q| format!("graph_turn_q{q}_us")),
        line("one graph, gap between kernels of 20 us", &|q| format!("graph_gap_q{q}_us")),
    ];
    for kinds in [1, 16] {
        body.push(line(&format!("one graph, kernels of 16 KB of code, {kinds} in turn, each"), &|q| {
            format!("graph_code_k{kinds}_q{q}_us")
        }));
    }
    table(&["us", "1 queue", "2", "4", "8"], &body)
}

fn green() -> String {
    let all = rows("skew.csv");
    let value = |kind: &str, bytes: u32| {
        let name = format!("{kind}_contexts_symmetric_r8_{bytes}_us");
        shown(all.iter().find(|row| row["name"] == name).map(|row| number(row, "value")))
    };
    let sizes = [14_336, 43_008, 262_144];
    let line = |name: &str, kind: &str| std::iter::once(name.to_owned()).chain(sizes.map(|b| value(kind, b))).collect();
    table(
        &["8 ranks, symmetric LL", "14,336 B", "43,008 B", "262,144 B"],
        &[line("one context", "plain"), line("a green context a rank", "green")],
    )
}

/// The name of a table in the page, and what makes it.
type Maker = (&'static str, fn() -> String);

/// The page with its tables made anew.
fn made(page: &str) -> String {
    let tables: [Maker; 10] = [
        ("checks", checks),
        ("versus", versus),
        ("variables", variables),
        ("timings", timings),
        ("forced", forced),
        ("host", host),
        ("skew", skew),
        ("queues", queues),
        ("green", green),
        ("constants", constants),
    ];
    let mut page = page.to_owned();
    for (name, make) in tables {
        let (open, close) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
        let from = page.find(&open).unwrap_or_else(|| panic!("the page lacks {open}")) + open.len();
        let to = from + page[from..].find(&close).unwrap_or_else(|| panic!("the page lacks {close}"));
        page.replace_range(from..to, &format!("\n{}\n", make()));
    }
    page
}

#[test]
fn the_page_is_made_from_the_files() {
    let path = root().join("docs/measuring.md");
    let page = fs::read_to_string(&path).expect("readable");
    let fresh = made(&page);
    if std::env::var("LANECAST_UPDATE").is_ok_and(|v| v == "1") {
        fs::write(&path, &fresh).expect("written");
        return;
    }
    assert!(page == fresh, "docs/measuring.md is stale: LANECAST_UPDATE=1 cargo test --test measuring");
}

#[test]
fn ours_wins_at_the_case_s_sizes() {
    let all = rows("versus.csv");
    for bytes in ["14336", "43008", "57344"] {
        let nccl = all.iter().filter(|row| is(row, &[("implementation", "nccl"), ("bytes", bytes)])).map(|row| number(row, "latency_us"));
        let best = nccl.min_by(f64::total_cmp).expect("NCCL was measured");
        let ours = latency(&all, &[("implementation", "symmetric"), ("bytes", bytes)]).expect("ours was measured");
        assert!(ours * 2.0 < best, "{bytes} bytes: ours {ours} us, NCCL {best} us");
    }
}

#[test]
fn every_check_passed_with_the_calls_that_were_asked_for() {
    let (soak, matrix) = (rows("soak.csv"), rows("check_matrix.csv"));
    assert!(soak.iter().chain(&matrix).all(|row| row["wrong"] == "0"));
    for ranks in ["2", "8"] {
        for bytes in ["42", "43008", "1048576"] {
            for dtype in ["bf16", "fp16"] {
                for name in ["SymmetricLl", "OneShotPushLl", "RingLl", "HostStaged"] {
                    let wanted = [("ranks", ranks), ("bytes", bytes), ("dtype", dtype), ("name", name)];
                    assert!(soak.iter().any(|row| is(row, &wanted) && number(row, "calls") >= 10_000.0), "{wanted:?}");
                }
            }
        }
    }
}

/// The machine file of the measurements loads, with what was measured.
#[test]
fn the_machine_file_that_was_written_loads() {
    let path = root().join("traces/h200-measured/machine.toml");
    let text = fs::read_to_string(&path).expect("readable");
    let machine = lanecast::machine::Machine::from_toml("machine.toml", &text).expect("a machine");
    assert_eq!((machine.gpus.len(), machine.ranks_per_gpu), (1, 8));
    let kind = machine.kinds.values().next().expect("a kind");
    assert!(kind.protocol.branch_skew_ns.source.starts_with("calibrate on this machine"));
    assert!((500.0..600.0).contains(&kind.protocol.fence_ns.value), "{:?}", kind.protocol.fence_ns);
}
