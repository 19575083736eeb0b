//! Machines and tables for the tests of the kernel model.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

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
        losses.push(if groups == ["gemm"] { fitting::fit_gemm(kind, &used) } else { fitting::fit(kind, &used, names) });
    }
    format!("{losses:?}")
}

/// Name and value of every constant.
pub fn values(kind: &GpuKind) -> Vec<(&'static str, f64)> {
    KernelConstants::specs().iter().map(|spec| (spec.name, kind.kernels.quantity(spec.name).map_or(f64::NAN, |q| q.value))).collect()
}
