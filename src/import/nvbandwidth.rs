//! nvbandwidth, as JSON (`-j`) and as text.

use serde_json::Value;

use crate::error::Fault;
use crate::error::Result;
use crate::import::facts::Matrix;
use crate::import::formats::Format;
use crate::import::formats::Looks;
use crate::import::formats::Read;
use crate::import::gpu_list;
use crate::import::json_tree;
use crate::import::outcome::Outcome;

/// nvbandwidth, JSON.
pub(super) const FORMAT_JSON: Format =
    Format { kind: "nvbandwidth-json", looks: Looks::Json(|has| has("nvbandwidth")), read: Read::Tree(read_json) };

/// nvbandwidth, text.
pub(super) const FORMAT_TEXT: Format = Format { kind: "nvbandwidth", looks: Looks::Text(detect), read: Read::Text(read_text) };

const CODE: &str = "import-nvbandwidth";

/// Whether `head` looks like its text.
pub fn detect(head: &str) -> bool {
    head.contains("nvbandwidth Version") || (head.contains("memcpy CE") || head.contains("memcpy SM")) && head.contains("GPU(row)")
}

/// Reads the JSON form.
///
/// # Errors
/// `import-nvbandwidth` where there is no test case with a matrix.
pub fn read_json(name: &str, value: &Value) -> Result<Outcome> {
    let top = &value["nvbandwidth"];
    let mut outcome = Outcome::default();
    let text = |key: &str| top[key].as_str().map(str::to_owned);
    outcome.facts.versions.driver = text("Driver Version");
    outcome.facts.versions.cuda =
        text("CUDA Runtime Version").or_else(|| json_tree::number(&top["CUDA Runtime Version"]).map(cuda_version));
    let listed = top["GPU Device list"].as_array().into_iter().flatten().filter_map(Value::as_str);
    outcome.facts.gpus = gpu_list::in_order(listed.filter_map(gpu_list::numbered));
    if let Some(error) = text("error") {
        outcome.warn(format!("{name}: nvbandwidth reports: {error}"));
    }
    for case in top["testcases"].as_array().into_iter().flatten() {
        let title = case["name"].as_str().unwrap_or("");
        let status = case["status"].as_str().unwrap_or("Passed");
        let rows: Vec<Vec<Option<f64>>> = case["bandwidth_matrix"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|row| row.as_array().into_iter().flatten().map(|cell| json_tree::number(cell).filter(|n| *n >= 0.0)).collect())
            .collect();
        if status != "Passed" || rows.is_empty() {
            outcome.skipped(format!("{name}: {title} ({status})"));
            continue;
        }
        take(name, title, case["bandwidth_description"].as_str().unwrap_or(""), rows, &mut outcome);
    }
    finish(name, outcome)
}

/// `13000` as `13.0`, as the JSON has the runtime's version.
fn cuda_version(number: f64) -> String {
    let number = number as u64;
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

/// Reads the text form.
///
/// # Errors
/// See [`read_json`].
pub fn read_text(name: &str, text: &str) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    outcome.facts.gpus = gpu_list::in_order(text.lines().filter(|l| l.starts_with("Device ")).filter_map(gpu_list::numbered));
    let mut title = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let line = line.trim();
        if let Some(version) = line.strip_prefix("Driver Version:") {
            outcome.facts.versions.driver = Some(version.trim().to_owned());
        } else if let Some(version) = line.strip_prefix("CUDA Runtime Version:") {
            outcome.facts.versions.cuda = version.trim().parse().ok().map(cuda_version);
        } else if let Some(test) = line.strip_prefix("Running ") {
            title = test.trim_end_matches('.').to_owned();
        } else if line.contains("bandwidth (GB/s)") {
            // The next line numbers the columns.
            lines.next_if(|l| l.split_whitespace().all(|w| w.parse::<u32>().is_ok()));
            let mut rows = Vec::new();
            while let Some(row) = lines.peek().and_then(|l| numbers(l)) {
                rows.push(row);
                lines.next();
            }
            take(name, &title, line, rows, &mut outcome);
        }
    }
    finish(name, outcome)
}

fn numbers(line: &str) -> Option<Vec<Option<f64>>> {
    let mut words = line.split_whitespace();
    words.next()?.parse::<u32>().ok()?;
    let cells: Vec<&str> = words.collect();
    if cells.is_empty() || cells.len() > 256 || cells.iter().any(|c| *c != "N/A" && c.parse::<f64>().is_err()) {
        return None;
    }
    Some(cells.into_iter().map(|c| c.parse().ok().filter(|n: &f64| n.is_finite() && *n >= 0.0)).collect())
}

fn take(name: &str, title: &str, description: &str, rows: Vec<Vec<Option<f64>>>, outcome: &mut Outcome) {
    if !title.contains("device_to_device") {
        let best = rows.iter().flatten().flatten().copied().fold(0.0, f64::max);
        if title.contains("host") && best > 0.0 {
            outcome.facts.scores.push((title.to_owned(), best, "GB/s"));
        } else {
            outcome.skipped(format!("{name}: {title}"));
        }
        return;
    }
    if rows.is_empty() || rows.iter().any(|r| r.len() != rows.len()) {
        outcome.skipped(format!("{name}: {title}: not a square matrix"));
        return;
    }
    // `GPU(row) <- GPU(column)` means that data flow from the column to the row.
    let into_row = description.contains("<-");
    let cells = if into_row { (0..rows.len()).map(|i| rows.iter().map(|r| r[i]).collect()).collect() } else { rows };
    let total = title.contains("bidirectional") && title.ends_with("total") || description.contains("<->");
    let latency = title.contains("latency");
    let matrix = Matrix { title: title.to_owned(), peer_access: true, bidirectional: total, reads: title.contains("read"), cells };
    if title.contains("bidirectional") && !total {
        outcome.skipped(format!("{name}: {title}: one direction of two at once"));
    } else if latency {
        outcome.skipped(format!("{name}: {title}"));
    } else {
        outcome.facts.bandwidth.push(matrix);
    }
}

fn finish(name: &str, mut outcome: Outcome) -> Result<Outcome> {
    let found = outcome.facts.bandwidth.len();
    if found + outcome.facts.scores.len() == 0 {
        return Err(Fault::new(CODE, format!("{name} holds no usable bandwidth"))
            .help("run nvbandwidth with device_to_device_memcpy_read_ce and device_to_device_memcpy_write_ce"));
    }
    outcome.understood(format!("{name}: {found} matrices between GPUs (nvbandwidth)"));
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_cells_are_text() {
        let value = serde_json::json!({"nvbandwidth": {"CUDA Runtime Version": 13000, "Driver Version": "580.82.07", "testcases": [
            {"name": "device_to_device_memcpy_write_ce", "status": "Passed",
             "bandwidth_description": "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
             "bandwidth_matrix": [["N/A", "55.61"], ["50.16", "N/A"]], "sum": "105.77"},
            {"name": "device_to_device_memcpy_read_ce", "status": "Passed",
             "bandwidth_description": "memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)", "bandwidth_matrix": [["N/A", "40"], ["41", "N/A"]]},
            {"name": "host_to_device_memcpy_ce", "status": "Passed", "bandwidth_matrix": [["55.1", "54.9"]]},
            {"name": "multinode", "status": "Waived"}]}});
        let outcome = read_json("nvb.json", &value).expect("reads");
        let facts = &outcome.facts;
        assert_eq!(facts.bandwidth[0].cells[0][1], Some(55.61));
        // Row 0 reads from column 1 at 40 GB/s: from 1 to 0.
        assert_eq!((facts.bandwidth[1].cells[1][0], facts.bandwidth[1].reads), (Some(40.0), true));
        assert_eq!(facts.versions.cuda.as_deref(), Some("13.0"));
        assert_eq!(facts.scores, [("host_to_device_memcpy_ce".to_owned(), 55.1, "GB/s")]);
        assert!(outcome.skipped[0].contains("Waived"));
    }

    #[test]
    fn text_is_read_alike() {
        let text = "nvbandwidth Version: v0.8\n\nCUDA Runtime Version: 13000\nDriver Version: 580.82.07\n\n\
            Running device_to_device_memcpy_read_ce.\nmemcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)\n           0         1\n 0       N/A     40.00\n 1     41.00       N/A\n\nSUM device_to_device_memcpy_read_ce 81.00\n";
        assert!(detect(text));
        let outcome = read_text("nvb.txt", text).expect("reads");
        assert_eq!(outcome.facts.bandwidth[0].cells[1][0], Some(40.0));
        assert_eq!(outcome.facts.versions.driver.as_deref(), Some("580.82.07"));
    }

    #[test]
    fn nothing_usable_is_refused() {
        assert_eq!(read_text("n", "nvbandwidth Version: 1").map(|_| ()).expect_err("empty").code, CODE);
        assert!(read_json("n", &serde_json::json!({"nvbandwidth": []})).is_err());
        assert!(read_json("n", &serde_json::json!({"nvbandwidth": {"testcases": [{"bandwidth_matrix": [[1, 2], 3]}]}})).is_err());
    }
}
