//! Machines and tables for the tests of the kernel model.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use lanecast::cost::accuracy;
use lanecast::cost::fitting;
use lanecast::cost::observations;
use lanecast::cost::observations::Observation;
use lanecast::knob::Constants;
use lanecast::knob::Quantity;
use lanecast::machine::GpuKind;
use lanecast::machine::KernelConstants;

/// A path in the repository.
pub fn path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

/// The kind with default kernel constants.
pub fn kind(name: &str) -> GpuKind {
    let (sms, l2_bytes, memory, tflops) = match name {
        "rtx-pro-6000" => (188, 128 << 20, 1792.0, [503.8, 1007.6, 2015.2]),
        _ => (132, 60 << 20, 4800.0, [989.4, 1978.9, 1978.9]),
    };
    let mut kind = GpuKind {
        name: name.to_owned(),
        compute_capability: if sms == 188 { (12, 0) } else { (9, 0) },
        sms,
        memory_bytes: 96 << 30,
        l2_bytes,
        chip: Default::default(),
        launch: Default::default(),
        kernels: Default::default(),
        protocol: Default::default(),
    };
    kind.chip.memory_gbps = Quantity::exact(memory, "datasheet");
    kind.chip.bf16_tflops = Quantity::exact(tflops[0], "datasheet, dense");
    kind.chip.fp8_tflops = Quantity::exact(tflops[1], "datasheet, dense");
    kind.chip.fp4_tflops = Quantity::exact(tflops[2], "datasheet, dense");
    kind
}

/// All rows of a kind's tables.
pub fn rows(name: &str) -> Vec<Observation> {
    let files: &[&str] = if name == "h200" { &["gemm"] } else { &["gemm", "moe", "mla", "mla_bmm"] };
    let mut rows = Vec::new();
    for file in files {
        let at = path(&format!("traces/kernels/{name}/{file}.csv"));
        let text = fs::read_to_string(&at).expect("a committed table");
        rows.extend(observations::read(&at.to_string_lossy(), &text).expect("reads").rows);
    }
    rows
}

/// Products first, then what rests on them.
pub fn refit(kind: &mut GpuKind, rows: &[Observation]) -> String {
    let mut losses = Vec::new();
    let stages: [(&[&str], &[&str]); 3] = [
        (&["gemm"], &fitting::GEMM),
        (&["experts int4_wo sglang", "experts nvfp4", "experts fp8"], &fitting::EXPERTS),
        (&["mla_decode_module", "mla_gen_pre bf", "mla_gen_post bf"], &fitting::MLA),
    ];
    for (groups, names) in stages {
        let used: Vec<&Observation> = rows.iter().filter(|row| groups.iter().any(|group| row.group.starts_with(group))).collect();
        losses.push(if used.is_empty() {
            0.0
        } else if groups == ["gemm"] {
            fitting::fit_gemm(kind, &used)
        } else {
            fitting::fit(kind, &used, names)
        });
    }
    format!("{losses:?}")
}

/// The committed constants of a kind.
pub fn committed(name: &str) -> GpuKind {
    let text = fs::read_to_string(path(&format!("validation/kernels/{name}.toml"))).expect("committed constants");
    let file: toml::Table = toml::from_str(&text).expect("TOML");
    let mut kind = kind(name);
    kind.kernels = file["kinds"][name]["kernels"].clone().try_into().expect("kernel constants");
    kind
}

/// Fitted constants as a machine file has them. An interval reaches twice as
/// far as the other half of the rows moves the constant, at least 3 %.
pub fn toml_text(name: &str, rows: &[Observation]) -> (GpuKind, String) {
    let start = kind(name);
    let (mut ours, mut theirs) = (start.clone(), start.clone());
    refit(&mut ours, rows);
    let swapped: Vec<Observation> = rows.iter().cloned().map(|row| Observation { held_out: !row.held_out, ..row }).collect();
    refit(&mut theirs, &swapped);
    let mut text = format!(
        "# Constants of the kernels of {name}, fitted by `LANECAST_REFIT=1 cargo test --test cost` on\n\
         # traces/kernels/{name}/*.csv. Constants that no table of this kind pins are left to their defaults.\n\n\
         [kinds.{name}.kernels]\n"
    );
    for spec in KernelConstants::specs() {
        let value = |kind: &GpuKind| kind.kernels.quantity(spec.name).map_or(0.0, |quantity| quantity.value);
        let (mine, other) = (value(&ours), value(&theirs));
        if mine == value(&start) && other == mine {
            continue;
        }
        let reach = (2.0 * (mine - other).abs()).max(0.03 * mine);
        let (low, high) = ((mine - reach).max(*spec.bounds.start()), (mine + reach).min(*spec.bounds.end()));
        let value = rounded(mine);
        text += &format!(
            "{} = {{ value = {value}, low = {}, high = {}, source = \"fitted: traces/kernels/{name}, shapes not held out\" }}\n",
            spec.name,
            rounded(low).min(value),
            rounded(high).max(value)
        );
    }
    (ours, text)
}

/// Four significant digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().expect("a number")
}

/// The page of errors.
pub fn page() -> String {
    let mut text = PAGE_HEAD.to_owned();
    for name in ["rtx-pro-6000", "h200"] {
        let (kind, rows) = (committed(name), rows(name));
        text += &format!(
            "\n## {name}\n\n| rows | fitted: n | median % | p95 % | held out: n | median % | p95 % | max % | bias % |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n"
        );
        let fitted = accuracy::validate(rows.iter().filter(|row| !row.held_out), &kind);
        for group in accuracy::validate(rows.iter().filter(|row| row.held_out), &kind) {
            let half = fitted.iter().find(|half| half.name == group.name);
            let (n, median, p95) = half.map_or((0, 0.0, 0.0), |half| (half.rows, half.median_pct, half.p95_pct));
            text += &format!(
                "| {} | {n} | {median:.1} | {p95:.1} | {} | {:.1} | {:.1} | {:.1} | {:+.1} |\n",
                group.name, group.rows, group.median_pct, group.p95_pct, group.max_pct, group.bias_pct
            );
        }
    }
    text
}

const PAGE_HEAD: &str = include_str!("page.md");
