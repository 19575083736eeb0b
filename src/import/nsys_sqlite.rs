//! Nsight Systems' SQLite export (`nsys export -t sqlite`).
//!
//! Tables exist only where there was something to write, and columns came with
//! versions, so both are looked up first. Only plain tables are read.

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::Connection;
use rusqlite::OpenFlags;

use crate::error::Fault;
use crate::error::Result;
use crate::import::events::Events;
use crate::import::nsys_csv;
use crate::import::outcome::Outcome;
use crate::trace::record::Kind;

const CODE: &str = "import-nsys";

/// Names kept at most.
const NAMES_MAX: usize = 5_000_000;

/// Longest name kept, in bytes.
const NAME_BYTES_MAX: usize = 4096;

/// Reads the export.
///
/// # Errors
/// `import-nsys` where it is no export or holds no GPU event.
pub fn read(path: &Path) -> Result<Outcome> {
    let name = path.display().to_string();
    let fault =
        |e: rusqlite::Error| Fault::new(CODE, format!("{name}: {e}")).help("expected the file of `nsys export -t sqlite`, not compressed");
    let database = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(fault)?;
    let tables = tables(&database).map_err(fault)?;
    let mut outcome = Outcome::default();
    let mut events = Events::default();
    let names = names(&database, &tables).map_err(fault)?;
    for (table, kind) in [
        ("CUPTI_ACTIVITY_KIND_KERNEL", None),
        ("CUPTI_ACTIVITY_KIND_MEMCPY", Some(Kind::Copy)),
        ("CUPTI_ACTIVITY_KIND_MEMSET", Some(Kind::Memset)),
        ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", Some(Kind::Graph)),
    ] {
        if let Some(columns) = tables.get(table) {
            let unusable = read_table(&database, table, columns, kind, &names, &mut events).map_err(fault)??;
            if unusable > 0 {
                outcome.skipped(format!("{name}: {unusable} rows of {table} without a usable time"));
            }
        }
    }
    let others = tables.len() - tables.keys().filter(|t| t.starts_with("CUPTI_ACTIVITY_KIND_") || *t == "StringIds").count();
    outcome.skipped(format!("{name}: {others} other tables"));
    nsys_csv::finish(&name, events, outcome)
}

/// Plain tables with their columns.
fn tables(database: &Connection) -> rusqlite::Result<BTreeMap<String, Vec<String>>> {
    let sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' LIMIT 10000";
    let mut found = BTreeMap::new();
    let mut statement = database.prepare(sql)?;
    let names: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    for name in names {
        let mut statement = database.prepare("SELECT name FROM pragma_table_info(?1)")?;
        let columns = statement.query_map([&name], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        found.insert(name, columns);
    }
    Ok(found)
}

fn names(database: &Connection, tables: &BTreeMap<String, Vec<String>>) -> rusqlite::Result<BTreeMap<i64, String>> {
    let mut names = BTreeMap::new();
    if !tables.contains_key("StringIds") {
        return Ok(names);
    }
    let mut statement = database.prepare("SELECT id, substr(CAST(value AS TEXT), 1, ?1) FROM StringIds")?;
    let mut rows = statement.query([NAME_BYTES_MAX as i64])?;
    while let Some(row) = rows.next()? {
        if names.len() >= NAMES_MAX {
            break;
        }
        if let (Ok(id), Ok(value)) = (row.get(0), row.get(1)) {
            names.insert(id, value);
        }
    }
    Ok(names)
}

/// Reads one table; the outer error is the database's, the inner one ours.
fn read_table(
    database: &Connection,
    table: &str,
    columns: &[String],
    kind: Option<Kind>,
    names: &BTreeMap<i64, String>,
    events: &mut Events,
) -> rusqlite::Result<Result<u64>> {
    let column =
        |wanted: &[&str]| wanted.iter().find(|w| columns.iter().any(|c| c == *w)).map_or("NULL".to_owned(), |w| format!("\"{w}\""));
    let sql = format!(
        "SELECT {}, {}, {}, {}, {}, {}, {} FROM \"{table}\"",
        column(&["start"]),
        column(&["end"]),
        column(&["deviceId"]),
        column(&["streamId"]),
        column(&["correlationId"]),
        column(&["demangledName", "shortName", "copyKind", "graphId"]),
        column(&["bytes"])
    );
    let mut statement = database.prepare(&sql)?;
    let mut rows = statement.query([])?;
    let mut unusable = 0;
    let mut spelled = String::new();
    while let Some(row) = rows.next()? {
        let number = |i: usize| row.get::<_, Option<i64>>(i).ok().flatten();
        let small = |i: usize| number(i).and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
        let (Some(start), Some(duration)) = (number(0), number(0).zip(number(1)).and_then(|(s, e)| u64::try_from(e.checked_sub(s)?).ok()))
        else {
            unusable += 1;
            continue;
        };
        let id = number(5).unwrap_or(0);
        let name = match kind {
            None => names.get(&id).map_or("kernel without a name", String::as_str),
            Some(kind) => {
                spelled.clear();
                spelled.push_str(if kind == Kind::Copy { copy_name(id) } else { other_name(kind) });
                &spelled
            }
        };
        let bytes = number(6).and_then(|b| u64::try_from(b).ok()).unwrap_or(0);
        let class = events.class((small(2).min(65535), small(3)), name, kind, bytes);
        if let Err(fault) = events.push(class, start, duration, small(4)) {
            return Ok(Err(fault));
        }
    }
    Ok(Ok(unusable))
}

/// CUPTI's kinds of copies.
fn copy_name(kind: i64) -> &'static str {
    match kind {
        1 => "memcpy host to device",
        2 => "memcpy device to host",
        8 => "memcpy device to device",
        10 => "memcpy peer to peer",
        _ => "memcpy",
    }
}

fn other_name(kind: Kind) -> &'static str {
    if kind == Kind::Memset { "memset" } else { "CUDA graph" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database(folder: &Path, sql: &str) -> std::path::PathBuf {
        let path = folder.join("x.sqlite");
        let database = Connection::open(&path).expect("opens");
        database.execute_batch(sql).expect("runs");
        path
    }

    #[test]
    fn tables_become_records() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = database(
            folder.path(),
            "CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT);
             INSERT INTO StringIds VALUES (5, 'ncclDevKernel_AllReduce_Sum_bf16_RING_LL'), (6, 'gemm');
             CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INT, end INT, deviceId INT, streamId INT, correlationId INT, demangledName INT, graphNodeId INT);
             INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 30000, 2, 7, 1, 5, 9), (100, 900, 2, 7, 1, 6, 9), (500, 400, 0, 0, 0, 6, 0), ('x', 4, 0, 0, 0, 6, 0);
             CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INT, end INT, deviceId INT, streamId INT, correlationId INT, copyKind INT, bytes INT);
             INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (2000, 2100, 2, 8, 3, 10, 4096);",
        );
        let outcome = read(&path).expect("reads");
        assert!(outcome.skipped[0].contains("2 rows"), "{:?}", outcome.skipped);
        let mut trace = outcome.trace.expect("a trace");
        trace.finish();
        let records = trace.records(None).expect("a short span");
        assert_eq!(
            records.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(),
            ["gemm", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "memcpy peer to peer"]
        );
        assert_eq!((records[1].op.as_str(), records[2].bytes), ("allreduce.00000.r2", 4096));
    }

    #[test]
    fn views_and_other_files_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let endless = "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE c(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM c) SELECT start FROM c;";
        let path = database(folder.path(), endless);
        assert_eq!(read(&path).map(|_| ()).expect_err("a view").code, CODE);
        std::fs::write(folder.path().join("y"), b"SQLite format 3\0nonsense").expect("writes");
        assert_eq!(read(&folder.path().join("y")).map(|_| ()).expect_err("broken").code, CODE);
    }
}
