//! Facts as TOML, for people and for what makes no machine: logs of NCCL,
//! dumps of graphs, settings, scores.

use toml::Table;
use toml::Value;

use crate::import::facts::Facts;
use crate::import::facts::Iommu;
use crate::import::facts::Matrix;
use crate::import::nccl_facts::NcclFacts;

/// The version of the layout.
pub const FORMAT: i64 = 1;

fn text(value: &str) -> Value {
    Value::String(value.to_owned())
}

fn whole(value: impl Into<u64>) -> Value {
    Value::Integer(i64::try_from(value.into()).unwrap_or(i64::MAX))
}

/// Adds `value` unless it is empty.
fn add(table: &mut Table, key: &str, value: Value) {
    let empty = match &value {
        Value::Table(inner) => inner.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    if !empty {
        table.insert(key.to_owned(), value);
    }
}

/// The file. What is not known is left out.
pub fn write(facts: &Facts) -> String {
    let mut top = Table::new();
    add(&mut top, "format", Value::Integer(FORMAT));
    add(&mut top, "contents", text("facts"));
    let versions = &facts.versions;
    let mut table = Table::new();
    for (key, value) in [("driver", &versions.driver), ("cuda", &versions.cuda), ("nccl", &versions.nccl), ("engine", &versions.engine)] {
        add(&mut table, key, text(value.as_deref().unwrap_or("")));
    }
    add(&mut top, "versions", Value::Table(table));
    add(&mut top, "host", Value::Table(host(facts)));
    let scores = facts.scores.iter().map(|(name, value, unit)| {
        let mut score = Table::new();
        add(&mut score, "name", text(name));
        add(&mut score, "value", Value::Float(*value));
        add(&mut score, "unit", text(unit));
        Value::Table(score)
    });
    add(&mut top, "scores", Value::Array(scores.collect()));
    if let Some(labels) = &facts.labels {
        let rows = labels.cells.iter().map(|row| Value::Array(row.iter().map(|l| Value::String(l.cell())).collect()));
        add(&mut top, "labels", Value::Array(rows.collect()));
    }
    add(&mut top, "bandwidth", Value::Array(facts.bandwidth.iter().map(|m| matrix(m, "gbps")).collect()));
    add(&mut top, "latency", Value::Array(facts.latency.iter().map(|m| matrix(m, "us")).collect()));
    add(&mut top, "nccl", Value::Table(nccl(&facts.nccl)));
    top.to_string()
}

fn host(facts: &Facts) -> Table {
    let mut table = Table::new();
    let iommu = match facts.iommu {
        Some(Iommu::Off) => "off",
        Some(Iommu::PassThrough) => "pass-through",
        Some(Iommu::Translated) => "translated",
        None => "",
    };
    add(&mut table, "iommu", text(iommu));
    add(&mut table, "kernel_options", Value::Array(facts.kernel_options.iter().map(|o| text(o)).collect()));
    let options = facts.driver_options.iter().map(|(k, v)| (k.clone(), text(v))).collect();
    add(&mut table, "driver_options", Value::Table(options));
    if let Some(force) = facts.force_p2p {
        add(&mut table, "force_p2p", Value::Boolean(force));
    }
    table
}

fn matrix(matrix: &Matrix, unit: &str) -> Value {
    let mut table = Table::new();
    add(&mut table, "title", text(&matrix.title));
    add(&mut table, "peer_access", Value::Boolean(matrix.peer_access));
    add(&mut table, "bidirectional", Value::Boolean(matrix.bidirectional));
    // A gap cannot be written in TOML: NaN stands for it.
    let rows = matrix.cells.iter().map(|row| Value::Array(row.iter().map(|c| Value::Float(c.unwrap_or(f64::NAN))).collect()));
    add(&mut table, unit, Value::Array(rows.collect()));
    Value::Table(table)
}

fn nccl(facts: &NcclFacts) -> Table {
    let mut table = Table::new();
    if facts.ranks > 0 {
        add(&mut table, "ranks", whole(facts.ranks));
    }
    if let Some(channels) = facts.collective_channels {
        add(&mut table, "collective_channels", whole(channels));
    }
    let environment = facts.environment.iter().map(|(k, v)| (k.clone(), text(v))).collect();
    add(&mut table, "environment", Value::Table(environment));
    let transports = facts.transports.iter().map(|((a, b), via)| (format!("{a}>{b}"), text(via))).collect();
    add(&mut table, "transports", Value::Table(transports));
    let graphs = facts.graphs.iter().map(|graph| {
        let mut entry = Table::new();
        add(&mut entry, "pattern", text(graph.pattern_name()));
        add(&mut entry, "channels", whole(graph.channels));
        add(&mut entry, "gbps_per_channel", Value::Float(graph.bandwidth_gbps));
        add(&mut entry, "path", text(&graph.path));
        let order = graph.order.iter().map(|o| Value::Array(o.iter().map(|gpu| whole(*gpu)).collect()));
        add(&mut entry, "order", Value::Array(order.collect()));
        Value::Table(entry)
    });
    add(&mut table, "graphs", Value::Array(graphs.collect()));
    let choices = facts.choices.iter().map(|choice| {
        let mut entry = Table::new();
        add(&mut entry, "collective", text(&choice.collective));
        add(&mut entry, "bytes", whole(choice.bytes));
        add(&mut entry, "algorithm", text(&choice.algorithm));
        add(&mut entry, "protocol", text(&choice.protocol));
        if let Some((first, last)) = choice.channels {
            add(&mut entry, "channels", Value::Array(vec![whole(first), whole(last)]));
        }
        Value::Table(entry)
    });
    add(&mut table, "choices", Value::Array(choices.collect()));
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::nccl_log;

    #[test]
    fn facts_are_toml() {
        let log = "x NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\nx NCCL INFO AllReduce: 43008 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}\n";
        let mut facts = nccl_log::read("x.log", log.as_bytes()).expect("reads").facts;
        facts.iommu = Some(Iommu::PassThrough);
        facts.bandwidth.push(Matrix {
            title: "\"x\"\n".into(),
            peer_access: true,
            bidirectional: false,
            reads: false,
            cells: vec![vec![None, Some(1.5)]],
        });
        let table: Table = write(&facts).parse().expect("TOML");
        assert_eq!(table["nccl"]["transports"]["0>1"].as_str(), Some("P2P/CUMEM"));
        assert_eq!(table["nccl"]["choices"][0]["bytes"].as_integer(), Some(43008));
        assert_eq!(table["host"]["iommu"].as_str(), Some("pass-through"));
        assert!(!table.contains_key("labels"));
    }
}
