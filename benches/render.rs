//! How long it takes to write what a ranking shows. `cargo bench --bench render`.

use lanecast::render::chart::{Axis, Chart, Point, Series, line_chart};
use lanecast::render::drawing::WIDE;
use lanecast::render::{Column, Number, Screen, Table};

fn main() {
    divan::main();
}

fn table(rows: u32) -> Table {
    let mut table = Table::new(vec![Column::text("name", "name"), Column::number("pass_ms", "pass, ms")]);
    for row in 0..rows {
        table.row(vec![format!("strategy {row}").into(), Number::new(f64::from(row) * 1.01, 3).into()]);
    }
    table
}

#[divan::bench(args = [10, 1000])]
fn table_as_text(bencher: divan::Bencher, rows: u32) {
    let table = table(rows);
    bencher.bench(|| table.to_text(Screen { width: Some(100), color: false }));
}

#[divan::bench(args = [10, 10_000])]
fn table_as_csv(bencher: divan::Bencher, rows: u32) {
    let table = table(rows);
    bencher.bench(|| table.to_csv());
}

#[divan::bench]
fn chart_of_a_thousand_points(bencher: divan::Bencher) {
    let points = (1..1000).map(|i| Point { x: f64::from(i), y: f64::from(i) * 2.0, interval: None }).collect();
    let axis = || Axis { label: "bytes".to_owned(), log: true };
    let series = vec![Series { name: "measured".to_owned(), points, joined: true, marked: true }];
    let chart = Chart { title: "latency".to_owned(), x: axis(), y: axis(), series, named: 1, marks: Vec::new(), diagonal: false };
    bencher.bench(|| line_chart(&chart, WIDE));
}
