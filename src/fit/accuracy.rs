//! How good forecasts are, as a page and as figures that `rank` uses: all from
//! committed data.
//!
//! - **Held out**: for each split below `validation/splits` the machine of the
//!   same name below `validation/fits` (what `fit --split` wrote) forecasts the
//!   rows that were not fitted, beside simple models fitted to the same rows.
//! - **As delivered**: the machines that the program comes with against every
//!   committed file, fitted or not.

use std::fmt::Write as _;
use std::path::Path;
use std::path::PathBuf;
use std::sync::LazyLock;

use crate::cost::observations;
use crate::error::Fault;
use crate::error::Result;
use crate::fit::baseline;
use crate::fit::split::Split;
use crate::fit::validate::Compared;
use crate::fit::validate::Errors;
use crate::fit::validate::collectives;
use crate::fit::validate::errors;
use crate::fit::validate::groups;
use crate::fit::validate::kernels;
use crate::fit::validate::transfers;
use crate::machine::Machine;
use crate::trace::flows;
use crate::trace::observation;
use crate::trace::observation::Observation;
use crate::trace::table::read_text;

/// Files of observations, and whether the delivered constants were fitted to some of their rows.
const OBSERVATIONS: [(&str, bool); 10] = [
    ("traces/observations/h200-nccl-graph.csv", true),
    ("traces/observations/rtx-pro-6000-allreduce.csv", true),
    ("traces/observations/field-ring-8gpu.csv", false),
    ("traces/observations/field-pynccl-8gpu.csv", false),
    ("traces/observations/field-one-shot-4gpu.csv", false),
    ("traces/observations/field-fused-8gpu.csv", false),
    ("traces/observations/field-nccl-tests-4gpu.csv", false),
    ("traces/h200-measured/full.csv", false),
    ("traces/h200-measured/variables.csv", false),
    ("traces/h200-measured/quick.csv", false),
];

/// Files of flows.
const FLOWS: [&str; 7] = [
    "traces/flows/field-7gpu-turin-direct.csv",
    "traces/flows/field-8gpu-switchtec3.csv",
    "traces/flows/field-8gpu-pex890.csv",
    "traces/flows/field-host-8gpu.csv",
    "traces/flows/field-all-pairs.csv",
    "traces/flows/field-collapse-pm50100.csv",
    "traces/flows/field-6gpu-mixed-turin.csv",
];

/// Tables of kernels, and the machine whose GPU they were measured on.
const KERNELS: [(&str, &str); 5] = [
    ("traces/kernels/rtx-pro-6000/gemm.csv", "8x-rtx-pro-6000-server"),
    ("traces/kernels/rtx-pro-6000/moe.csv", "8x-rtx-pro-6000-server"),
    ("traces/kernels/rtx-pro-6000/mla.csv", "8x-rtx-pro-6000-server"),
    ("traces/kernels/rtx-pro-6000/mla_bmm.csv", "8x-rtx-pro-6000-server"),
    ("traces/kernels/h200/gemm.csv", "h200-shared"),
];

/// Machines that only measurements name.
const MACHINES: &str = "validation/machines";

/// The errors of one split on rows that were not fitted.
pub struct HeldOut {
    /// The split.
    pub split: Split,
    /// Rows that were fitted.
    pub fitted: usize,
    /// Ours.
    pub ours: Errors,
    /// Interpolation's.
    pub interpolation: Errors,
    /// Alpha-beta's.
    pub alpha_beta: Errors,
}

/// The errors of every split below `folder`, by name.
///
/// # Errors
/// Files that cannot be read.
pub fn held_out(folder: &Path) -> Result<Vec<HeldOut>> {
    toml_files(&folder.join("validation/splits"))?.iter().map(|path| of_split(folder, path)).collect()
}

fn of_split(folder: &Path, path: &Path) -> Result<HeldOut> {
    let split = Split::read(path)?;
    let rows = split.rows(folder)?;
    let machine = Machine::load(&folder.join(format!("validation/fits/{}.toml", split.name)).to_string_lossy())?;
    let (fit, test) = (rows.fit(), rows.test());
    let tested: Vec<Observation> = test.iter().map(|row| (*row).clone()).collect();
    let ours = collectives(&tested, &|_| Ok(machine.clone()));
    let simple = |forecasts: Vec<Option<f64>>| {
        let mut simple = ours.clone();
        simple.iter_mut().zip(forecasts).for_each(|(one, forecast)| one.forecast = forecast.ok_or_else(String::new));
        errors(&simple)
    };
    Ok(HeldOut {
        fitted: fit.len(),
        interpolation: simple(baseline::interpolation(&fit, &test)),
        alpha_beta: simple(baseline::alpha_beta(&fit, &test)),
        ours: errors(&ours),
        split,
    })
}

fn toml_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let listing = std::fs::read_dir(folder).map_err(|error| Fault::io("read", folder, &error))?;
    let mut found: Vec<PathBuf> = listing.filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    found.sort();
    Ok(found)
}

/// The forecasts of the machines as delivered, by file.
///
/// # Errors
/// Files that cannot be read.
pub fn delivered(folder: &Path) -> Result<Vec<(&'static str, bool, Vec<Compared>)>> {
    let find = |id: &str| {
        let own = folder.join(MACHINES).join(format!("{id}.toml"));
        if own.exists() { Machine::load(&own.to_string_lossy()) } else { Machine::load(id) }
    };
    let mut all = Vec::new();
    for (file, fitted) in OBSERVATIONS {
        all.push((file, fitted, collectives(&observation::read_file(&folder.join(file))?, &find)));
    }
    for file in FLOWS {
        all.push((file, false, transfers(&flows::read_file(&folder.join(file))?, &find)));
    }
    Ok(all)
}

/// The forecasts of kernels, by file.
///
/// # Errors
/// Files that cannot be read, machines without such a GPU.
pub fn kernel_tables(folder: &Path) -> Result<Vec<(&'static str, Vec<Compared>)>> {
    let mut all = Vec::new();
    for (file, machine) in KERNELS {
        let rows = observations::read(file, &read_text(&folder.join(file))?)?;
        let machine = Machine::load(machine)?;
        let kind = machine.gpu_kind(0).ok_or_else(|| Fault::new("machine-no-kind", "device 0 has no kind"))?;
        all.push((file, kernels(&rows, &machine.id, kind)));
    }
    Ok(all)
}

/// The page, and the figures that the program carries.
///
/// # Errors
/// Files that cannot be read.
pub fn page(folder: &Path) -> Result<(String, String)> {
    let (held_out, delivered) = (held_out(folder)?, delivered(folder)?);
    let mut out = String::from(HEAD);
    // Writing to a String cannot fail.
    let _ = write_held_out(&mut out, &held_out);
    let _ = write_kernels(&mut out, &kernel_tables(folder)?);
    let _ = write_delivered(&mut out, &delivered);
    let notes = folder.join("validation/unexplained.md");
    out += "\n";
    out += &crate::trace::table::read_text(&notes)?;
    let mut figures = String::from("split,machine,rows,median_pct,p90_pct,p95_pct\n");
    for one in &held_out {
        let e = &one.ours;
        let _ =
            writeln!(figures, "{},{},{},{:.2},{:.2},{:.2}", one.split.name, one.split.machine, e.rows, e.median_pct, e.p90_pct, e.p95_pct);
    }
    Ok((out, figures))
}

const HEAD: &str = "# How far forecasts are from measurements\n\n\
Written by `lanecast validate --page`; the last section is `validation/unexplained.md`. Errors are |forecast ÷ measured − 1| in per cent.\n\n";

fn write_held_out(out: &mut String, all: &[HeldOut]) -> std::fmt::Result {
    writeln!(out, "## Rows that were not fitted\n")?;
    writeln!(out, "Each line: the constants were fitted to some rows (`lanecast fit --split FILE`) and forecast others. Which")?;
    writeln!(out, "rows and constants is in `validation/splits`, the result in `validation/fits`. Interpolation and alpha-beta")?;
    writeln!(out, "were given the same rows; interpolation has as many constants as rows.\n")?;
    writeln!(out, "| split | constants | fitted | tested | median | p95 | largest | tau | must reach | interpolation | alpha-beta |")?;
    writeln!(out, "|---|---|---|---|---|---|---|---|---|---|---|")?;
    for one in all {
        let e = &one.ours;
        let reach = &one.split.reach;
        let limit = |limit: Option<f64>| limit.map_or("–".to_owned(), |limit| limit.to_string());
        let simple = |e: &Errors| format!("{} / {}", pct(e.median_pct), pct(e.p95_pct));
        writeln!(
            out,
            "| {} (`{}`) | {} | {} | {} | {} | {} | {} | {} | {} / {} | {} | {} |",
            one.split.about,
            one.split.name,
            one.split.constants.len(),
            one.fitted,
            e.rows,
            pct(e.median_pct),
            pct(e.p95_pct),
            pct(e.max_pct),
            tau(e.kendall_tau),
            limit(reach.median_pct),
            limit(reach.p95_pct),
            simple(&one.interpolation),
            simple(&one.alpha_beta)
        )?;
    }
    writeln!(out)
}

fn write_kernels(out: &mut String, all: &[(&str, Vec<Compared>)]) -> std::fmt::Result {
    writeln!(out, "## Compute kernels\n")?;
    writeln!(out, "What `lanecast validate FILE --machine MACHINE` gives: \"held out\" are the shapes that the constants were not")?;
    writeln!(out, "fitted to. Experts count where their working set exceeds L2; below it the tables have them warm, a server cold.\n")?;
    writeln!(out, "| file | kernels | shapes | rows | median | p95 | largest |\n|---|---|---|---|---|---|---|")?;
    for (file, compared) in all {
        for ((_, _, _, group, set, _), e) in groups(compared).iter().filter(|(_, e)| e.rows > 0) {
            let (median, p95, largest) = (pct(e.median_pct), pct(e.p95_pct), pct(e.max_pct));
            writeln!(out, "| {} | {group} | {set} | {} | {median} | {p95} | {largest} |", file.trim_start_matches("traces/"), e.rows)?;
        }
    }
    writeln!(out)
}

fn write_delivered(out: &mut String, all: &[(&str, bool, Vec<Compared>)]) -> std::fmt::Result {
    writeln!(out, "## Machines as delivered\n")?;
    writeln!(out, "What `lanecast validate FILE` gives. Rows of files marked \"fitted\" are among those that the constants were")?;
    writeln!(out, "fitted to: their errors say how well the mechanisms fit, not how well they foresee.\n")?;
    writeln!(out, "| file | group | rows | skipped | median | p95 | largest | tau |\n|---|---|---|---|---|---|---|---|")?;
    for (file, fitted, compared) in all {
        let name = file.trim_start_matches("traces/");
        let mark = if *fitted { ", fitted" } else { "" };
        for (key, e) in groups(compared) {
            let (machine, ranks, implementation, algorithm, protocol, timing) = key;
            let group = [machine, format!("{ranks} ranks"), implementation, algorithm, protocol, timing].join(" ");
            line(out, &format!("{name}{mark}"), &group.replace("auto auto ", ""), &e)?;
        }
        line(out, &format!("{name}{mark}"), "**all**", &errors(compared))?;
    }
    Ok(())
}

fn line(out: &mut String, file: &str, group: &str, e: &Errors) -> std::fmt::Result {
    let (median, p95, largest) = (pct(e.median_pct), pct(e.p95_pct), pct(e.max_pct));
    writeln!(out, "| {file} | {group} | {} | {} | {median} | {p95} | {largest} | {} |", e.rows, e.skipped, tau(e.kendall_tau))
}

fn pct(value: f64) -> String {
    if value.is_finite() { format!("{value:.1}") } else { "–".to_owned() }
}

fn tau(value: f64) -> String {
    if value.is_finite() { format!("{value:.2}") } else { "–".to_owned() }
}

static FIGURES: LazyLock<Vec<(String, f64)>> = LazyLock::new(|| {
    let lines = include_str!("../../validation/accuracy.csv").lines().skip(1);
    let figure = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        Some(((*fields.get(1)?).to_owned(), fields.get(4)?.parse().ok()?))
    };
    lines.filter_map(figure).collect()
});

/// Half of a 90 % interval of an NCCL collective's forecast, as a share of it:
/// the 90th percentile of errors on rows that were not fitted. The machine's
/// own splits count, the worst of them; without any, those of all machines.
pub fn share_90(machine: &str) -> f64 {
    let worst = |own: bool| {
        let figures = FIGURES.iter().filter(|(id, _)| !own || id == machine);
        figures.map(|(_, pct)| pct / 100.0).fold(None, |worst: Option<f64>, share| Some(worst.map_or(share, |worst| worst.max(share))))
    };
    worst(true).or_else(|| worst(false)).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_has_a_share() {
        assert!(FIGURES.len() >= 4);
        assert!(share_90("8x-rtx-pro-6000-server") > 0.0);
        assert!(share_90("8x-rtx-pro-6000-turin-direct") >= share_90("h200-shared"));
    }
}
