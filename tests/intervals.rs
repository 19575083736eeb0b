//! Do intervals hold what they promise? 90 % intervals of forecasts against
//! committed observations that were not fitted: shapes of kernels that the fit
//! held out, and collectives whose files no constant was fitted to, or whose
//! rows the residuals did not see.
//!
//! `LANECAST_REFIT=1 cargo test --test intervals` makes `validation/residuals.csv`.

// Another test uses the rest of it.
#[allow(dead_code)]
#[path = "kernels/support.rs"]
mod support;

use std::collections::BTreeMap;
use std::path::Path;

use lanecast::case::Case;
use lanecast::case::LaunchMode;
use lanecast::cost::accuracy::forecast;
use lanecast::decide::uncertain::normal::Z90;
use lanecast::decide::uncertain::spread;
use lanecast::fit::observe;
use lanecast::fit::residuals;
use lanecast::fit::residuals::Group;
use lanecast::fit::validate;
use lanecast::machine::Machine;
use lanecast::model::Model;
use lanecast::model::Workload;
use lanecast::plan::Partition;
use lanecast::report::fnv1a_64;
use lanecast::trace::observation;
use lanecast::trace::observation::Observation;
use lanecast::trace::observation::Timing;

/// Files of collectives, and whether constants were fitted on them.
const FILES: [(&str, bool); 5] = [
    ("traces/observations/rtx-pro-6000-allreduce.csv", true),
    ("traces/observations/h200-nccl-graph.csv", true),
    ("traces/h200-measured/full.csv", false),
    ("traces/h200-measured/versus.csv", false),
    ("traces/h200-measured/variables.csv", false),
];

/// Messages beyond this take long and are not what a pass sends.
const BYTES_MOST: u64 = 4 << 20;

fn collectives(file: &str) -> Vec<Observation> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let keep = |row: &Observation| {
        row.timing == Timing::GraphChain && row.bytes <= BYTES_MOST && row.collective == observation::Collective::AllReduce
    };
    observation::read_file(&path).expect("reads").into_iter().filter(keep).collect()
}

fn question(row: &Observation) -> String {
    let channels = row.channels.map_or(String::new(), |c| format!("{}-{}", c.min, c.max));
    format!("{} {} {} {} {channels} {:?} {}", row.machine, row.ranks, row.implementation.name(), row.variant(), row.threads, row.bytes)
}

trait Variant {
    fn variant(&self) -> String;
}

impl Variant for Observation {
    fn variant(&self) -> String {
        format!("{} {}", self.algorithm.name(), self.protocol.name())
    }
}

/// The half that the residuals may not see.
fn is_held_out(question: &str) -> bool {
    fnv1a_64(question.as_bytes()) >> 32 & 1 == 1
}

/// Residual groups of both kinds, from the halves that may be seen.
fn made() -> Vec<Group> {
    type Name = (String, String, u32, String, String);
    let mut values: BTreeMap<Name, Vec<(f64, f64)>> = BTreeMap::new();
    for (file, _) in FILES {
        let rows: Vec<Observation> = collectives(file).into_iter().filter(|row| !is_held_out(&question(row))).collect();
        for (row, one) in rows.iter().zip(validate::collectives(&rows, &|id| Machine::load(id))) {
            let Ok(us) = one.forecast else { continue };
            let name = ("collective".to_owned(), row.machine.clone(), row.ranks, row.implementation.name().to_owned(), row.variant());
            values.entry(name).or_default().push((libm::log(row.latency_us / us), 1.0));
        }
    }
    for kind in ["rtx-pro-6000", "h200"] {
        let machine = support::committed(kind);
        for row in support::rows(kind).iter().filter(|row| !row.held_out) {
            let name = ("kernel".to_owned(), kind.to_owned(), 0, lanecast::cost::accuracy::name(row, &machine), String::new());
            values.entry(name).or_default().push((libm::log(row.latency_us / forecast(row, &machine).us()), 1.0));
        }
    }
    let group = |((kind, machine, ranks, implementation, variant), values): (Name, Vec<(f64, f64)>)| Group {
        kind,
        machine,
        ranks,
        implementation: implementation.replace(',', ";"),
        variant,
        rows: values.len(),
        quantiles: residuals::quantiles(values),
    };
    values.into_iter().map(group).collect()
}

#[test]
fn the_committed_residuals_are_what_the_observations_give() {
    let made = made();
    let at = Path::new(env!("CARGO_MANIFEST_DIR")).join("validation/residuals.csv");
    if std::env::var_os("LANECAST_REFIT").is_some() {
        std::fs::write(&at, residuals::write(&made)).expect("writes");
    }
    let committed = residuals::read(&std::fs::read_to_string(at).expect("reads"));
    assert_eq!(committed.len(), made.len(), "stale: LANECAST_REFIT=1 cargo test --test intervals");
    for (ours, theirs) in made.iter().zip(&committed) {
        assert_eq!((&ours.implementation, ours.rows), (&theirs.implementation, theirs.rows));
        for (a, b) in ours.quantiles.iter().zip(&theirs.quantiles) {
            assert!((a - b).abs() < 2e-3, "stale: {ours:?} against {theirs:?}: LANECAST_REFIT=1 cargo test --test intervals");
        }
    }
}

/// Rows inside and all, by group.
type Counts = BTreeMap<String, (usize, usize)>;

fn count(counts: &mut Counts, group: &str, inside: bool) {
    let at = counts.entry(group.to_owned()).or_default();
    at.0 += usize::from(inside);
    at.1 += 1;
}

/// Shapes that the fit of the kernels held out, against the residuals of those that it saw.
fn kernels(counts: &mut Counts) {
    for kind in ["rtx-pro-6000", "h200"] {
        let machine = support::committed(kind);
        for row in support::rows(kind).iter().filter(|row| row.held_out) {
            let name = lanecast::cost::accuracy::name(row, &machine).replace(',', ";");
            let residual = residuals::of_kernel(residuals::committed(), kind, &name, "");
            let off = libm::log(row.latency_us / forecast(row, &machine).us());
            count(counts, &format!("{kind} {name}"), (residual.at(0.05)..=residual.at(0.95)).contains(&off));
        }
    }
}

/// Collectives of the halves that the residuals did not see. Every third of them: each is simulated a hundred times.
fn communication(counts: &mut Counts) {
    let model = Model::load("kimi-k2.5").expect("built in");
    for (file, fitted) in FILES {
        let rows: Vec<Observation> = collectives(file).into_iter().filter(|row| is_held_out(&question(row))).collect();
        let rows: Vec<Observation> = rows.into_iter().step_by(if fitted { 1 } else { 3 }).collect();
        for (row, one) in rows.iter().zip(validate::collectives(&rows, &|id| Machine::load(id))) {
            let Ok(us) = one.forecast else { continue };
            let machine = Machine::load(&row.machine).expect("built in");
            let lowering = observe::lower(&machine, row).expect("lowered before");
            let case = Case::new(machine, model.clone(), Workload::verify(3, 128), Partition::tensor(row.ranks), LaunchMode::Graph);
            let constants = spread::constants(&case);
            let spread = spread::of_lowering(&case, &lowering, &constants).expect("runs");
            let found =
                residuals::of_collective(residuals::committed(), &row.machine, row.ranks, row.implementation.name(), &row.variant());
            let residual = found.beyond(spread.sigma());
            // Constants and what they leave open, added in squares about the residual's median.
            let middle = residual.at(0.5);
            let constants = Z90 * spread.sigma();
            let end = |share: f64| libm::sqrt((residual.at(share) - middle) * (residual.at(share) - middle) + constants * constants);
            let off = libm::log(row.latency_us / us) - middle;
            let group = format!("{} {} {}", file.rsplit('/').next().unwrap_or(file), row.implementation.name(), row.ranks);
            count(counts, &group, -end(0.05) <= off && off <= end(0.95));
        }
    }
}

fn share(counts: &Counts) -> f64 {
    let (inside, all) = counts.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    for (group, (inside, all)) in counts {
        println!("{group}: {inside} of {all}");
    }
    println!("{inside} of {all} inside");
    assert!(all > 100, "{all} rows");
    inside as f64 / all as f64
}

#[test]
fn intervals_hold_kernels_that_were_held_out() {
    let mut counts = Counts::new();
    kernels(&mut counts);
    let share = share(&counts);
    assert!((0.80..=0.97).contains(&share), "{share}");
}

#[test]
fn intervals_hold_collectives_that_were_not_seen() {
    let mut counts = Counts::new();
    communication(&mut counts);
    let share = share(&counts);
    assert!((0.80..=0.97).contains(&share), "{share}");
}
