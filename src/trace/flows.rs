//! Flows: what several transfers at once moved together, measured; and their CSV.

use std::path::Path;

use crate::error::Result;
use crate::trace::line::push_field;
use crate::trace::line::trimmed;
use crate::trace::table;
use crate::trace::table::Row;
use crate::trace::table::Table;

/// The header of the CSV.
pub const COLUMNS: &str = "machine,access,flows,total_GBps,source";

const CODE: &str = "flows";

/// One measured pattern of transfers.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowObservation {
    /// Machine id; empty when the file has no such column.
    pub machine: String,
    /// How the bytes were moved; `write` when absent or empty.
    pub access: Access,
    /// From where to where.
    pub flows: Flows,
    /// All flows together, in 10^9 bytes per second.
    pub total_gbps: f64,
    /// Where the number comes from.
    pub source: String,
}

/// How bytes are moved between GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// Kernels store to the peer: posted writes.
    Write,
    /// Kernels load from the peer: reads and completions.
    Read,
    /// Copy engines.
    Copy,
}

impl Access {
    /// As the file names it.
    pub fn name(self) -> &'static str {
        match self {
            Access::Write => "write",
            Access::Read => "read",
            Access::Copy => "copy",
        }
    }
}

/// The end of a flow that is host memory, of the other end's socket; `h` in files.
pub const HOST: u32 = u32::MAX;

/// Which pairs of GPUs transfer at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flows {
    /// Every GPU to every other.
    All,
    /// These, (source, target), in the file's order.
    Pairs(Vec<(u32, u32)>),
}

impl Flows {
    /// The pairs on a machine of `gpus` GPUs.
    pub fn pairs(&self, gpus: u32) -> Vec<(u32, u32)> {
        match self {
            Flows::All => (0..gpus).flat_map(|a| (0..gpus).filter(move |&b| a != b).map(move |b| (a, b))).collect(),
            Flows::Pairs(pairs) => pairs.clone(),
        }
    }
}

impl std::fmt::Display for Flows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Flows::All => f.write_str("all"),
            Flows::Pairs(pairs) => {
                let pairs: Vec<String> = pairs.iter().map(|(a, b)| format!("{}>{}", end_text(*a), end_text(*b))).collect();
                f.write_str(&pairs.join(";"))
            }
        }
    }
}

/// Reads a file.
///
/// # Errors
/// `io`, `file-too-large`, `not-utf8`; `flows` with the line.
pub fn read_file(path: &Path) -> Result<Vec<FlowObservation>> {
    let text = table::read_text(path)?;
    read_bytes(&path.display().to_string(), text.as_bytes())
}

/// Reads bytes that came from `name`.
///
/// # Errors
/// See [`read_file`].
pub fn read_bytes(name: &str, bytes: &[u8]) -> Result<Vec<FlowObservation>> {
    let text = table::text_of(name, bytes)?;
    let mut table = Table::open(name, text, CODE, &["flows", "total_GBps"])?;
    let mut found = Vec::new();
    while let Some(row) = table.next_row()? {
        found.push(flow(&row)?);
    }
    if found.is_empty() { Err(table.no_rows()) } else { Ok(found) }
}

fn flow(row: &Row<'_>) -> Result<FlowObservation> {
    let access = match row.text("access").to_ascii_lowercase().as_str() {
        "" | "write" => Access::Write,
        "read" => Access::Read,
        "copy" => Access::Copy,
        other => return Err(row.fault("access", &format!("`{other}` is not known"), "write, read or copy")),
    };
    Ok(FlowObservation {
        machine: row.text("machine").to_owned(),
        access,
        flows: flows(row)?,
        total_gbps: row.number("total_GBps", 1e-6..=1e9)?.ok_or_else(|| row.fault("total_GBps", "is empty", "GB/s"))?,
        source: row.text("source").to_owned(),
    })
}

fn flows(row: &Row<'_>) -> Result<Flows> {
    let text = row.text("flows");
    if text.eq_ignore_ascii_case("all") {
        return Ok(Flows::All);
    }
    let mut pairs = Vec::new();
    for part in text.split(';').map(str::trim).filter(|p| !p.is_empty()) {
        let pair = part.split_once('>').and_then(|(a, b)| Some((end(a.trim())?, end(b.trim())?)));
        match pair {
            Some((a, b)) if a != b => pairs.push((a, b)),
            _ => {
                return Err(row.fault(
                    "flows",
                    &format!("`{part}` is no flow"),
                    "`0>4;1>6` (two different GPUs each, or `h` for the host) or `all`",
                ));
            }
        }
    }
    if pairs.is_empty() {
        return Err(row.fault("flows", "is empty", "`0>4;1>6` or `all`"));
    }
    Ok(Flows::Pairs(pairs))
}

/// A GPU's number or `h`.
fn end(text: &str) -> Option<u32> {
    if text == "h" { Some(HOST) } else { text.parse().ok().filter(|gpu| *gpu < HOST) }
}

/// An end as files have it.
fn end_text(end: u32) -> String {
    if end == HOST { "h".to_owned() } else { end.to_string() }
}

/// The CSV of `flows`.
pub fn write_csv(flows: &[FlowObservation]) -> String {
    let mut out = format!("{COLUMNS}\n");
    for flow in flows {
        let pairs = flow.flows.to_string();
        push_field(&mut out, &flow.machine);
        out.push_str(&format!(",{},{pairs},{},", flow.access.name(), trimmed(flow.total_gbps, 6)));
        push_field(&mut out, &flow.source);
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str =
        "machine,access,flows,total_GBps,source\nm,write,0>4;1>6,2.7,\"two, same switch\"\nm,read,all,51.3,\nm,copy,h>0;0>h,100,\n";

    #[test]
    fn flows_come_back() {
        let rows = read_bytes("f.csv", SAMPLE.as_bytes()).expect("reads");
        assert_eq!(rows[0].flows, Flows::Pairs(vec![(0, 4), (1, 6)]));
        assert_eq!((rows[1].access, rows[1].flows.pairs(3).len()), (Access::Read, 6));
        assert_eq!(rows[2].flows, Flows::Pairs(vec![(HOST, 0), (0, HOST)]));
        assert_eq!(read_bytes("g.csv", write_csv(&rows).as_bytes()).expect("reads"), rows);
    }

    #[test]
    fn wrong_flows_are_refused() {
        for flows in ["", "0>0", "h>h", "4294967295>0", "0-4", "0>x", "0>4;5", "-1>2", "99999999999>1"] {
            let text = format!("flows,total_GBps\n\"{flows}\",1\n");
            assert_eq!(read_bytes("f.csv", text.as_bytes()).expect_err(flows).code, "flows");
        }
        assert!(read_bytes("f.csv", b"flows,total_GBps\nall,0\n").is_err());
        assert!(read_bytes("f.csv", b"flows,total_GBps,access\nall,1,atomics\n").is_err());
    }
}
