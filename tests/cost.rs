//! The kernel model against the tables it was fitted on.
//!
//! `LANECAST_REFIT=1 cargo test --test cost` refits the constants, and writes
//! `validation/kernels/*.toml` and `docs/kernels.md`.

mod kernels {
    pub mod support;
}

use kernels::support;
use lanecast::cost::accuracy;

#[test]
fn show() {
    let mut rtx = support::kind("rtx-pro-6000");
    let rows = support::rows("rtx-pro-6000");
    println!("{}", support::refit(&mut rtx, &rows));
    for (name, value) in support::values(&rtx) {
        println!("{name} {value}");
    }
    for group in accuracy::validate(rows.iter().filter(|row| row.held_out), &rtx) {
        println!("{group:?}");
    }
}
