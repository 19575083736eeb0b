//! `nvidia-smi topo -m`: labels between GPUs, with any further columns.

use crate::error::Fault;
use crate::error::Result;
use crate::import::facts::Gpu;
use crate::import::facts::Label;
use crate::import::facts::Labels;
use crate::import::formats::Format;
use crate::import::formats::Looks;
use crate::import::formats::Read;
use crate::import::outcome::Outcome;

/// `nvidia-smi topo -m`.
pub(super) const FORMAT: Format = Format { kind: "topo-matrix", looks: Looks::Text(detect), read: Read::Text(read) };

const CODE: &str = "import-topo";

/// Text without terminal escape sequences (`\x1b[4m` underlines the header).
pub fn without_escapes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\u{1b}' {
            out.push(c);
            continue;
        }
        if chars.next() == Some('[') {
            // Parameters up to the final letter.
            for c in chars.by_ref() {
                if ('@'..='~').contains(&c) {
                    break;
                }
            }
        }
    }
    out
}

/// Whether `head` looks like it.
pub fn detect(head: &str) -> bool {
    let plain = without_escapes(head);
    plain.lines().any(|l| columns(l).is_some()) && plain.lines().any(|l| row(l).is_some_and(|(_, cells)| cells.contains(&"X")))
}

/// Reads the table.
///
/// # Errors
/// `import-topo` where the table is not square or holds an unknown label.
pub fn read(name: &str, text: &str) -> Result<Outcome> {
    let text = without_escapes(text);
    let fault = |message: String, line: &str| {
        let start = text.find(line).unwrap_or(0);
        Fault::new(CODE, format!("{name}: {message}"))
            .at(name, &text, start..start + line.len(), "here")
            .help("expected the table of `nvidia-smi topo -m` with its header line")
    };
    let Some((header, names)) = text.lines().find_map(|l| columns(l).map(|c| (l, c))) else {
        return Err(fault("the header line with GPU0, GPU1, … is missing".to_owned(), text.lines().next().unwrap_or("")));
    };
    let gpus: Vec<usize> = (0..names.len()).filter(|&i| is_gpu(names[i])).collect();
    let mut outcome = Outcome::default();
    let mut cells = Vec::new();
    let others = names.iter().filter(|n| n.starts_with("NIC") || n.starts_with("mlx")).count();
    for line in text.lines().filter(|l| *l != header) {
        let Some((_, row)) = row(line) else { continue };
        let mut labels = Vec::new();
        for &column in &gpus {
            let cell = row.get(column).copied().unwrap_or("");
            labels.push(Label::from_cell(cell).ok_or_else(|| fault(format!("`{cell}` is no label"), line))?);
        }
        cells.push(labels);
        outcome.facts.gpus.push(Gpu { numa: numa(line, names.len()), ..Gpu::default() });
    }
    check_square(&cells, gpus.len()).map_err(|message| fault(message, header))?;
    outcome.understood(format!("{name}: labels between {} GPUs (nvidia-smi topo -m)", gpus.len()));
    if others > 0 {
        outcome.skipped(format!("{name}: {others} column(s) of network cards"));
    }
    if cells.iter().flatten().any(|l| *l == Label::Node) {
        outcome.warn(format!(
            "{name}: NODE does not tell whether two GPUs share a switch chip (virtual switches) or a fabric between switches; add `lspci -vv` or an NCCL topology dump"
        ));
    }
    outcome.facts.labels = Some(Labels { cells });
    Ok(outcome)
}

fn check_square(cells: &[Vec<Label>], gpus: usize) -> std::result::Result<(), String> {
    if cells.len() != gpus {
        return Err(format!("{} rows for {gpus} GPUs", cells.len()));
    }
    for (i, row) in cells.iter().enumerate() {
        for (j, cell) in row.iter().enumerate() {
            if (*cell == Label::Same) != (i == j) {
                return Err(format!("row {i}, column {j}: X belongs on the diagonal only"));
            }
            if *cell != cells[j][i] {
                return Err(format!("GPU{i} to GPU{j} is {}, but back it is {}", cell.cell(), cells[j][i].cell()));
            }
        }
    }
    Ok(())
}

fn is_gpu(name: &str) -> bool {
    name.strip_prefix("GPU").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// The names of the label columns, if the line is the header.
fn columns(line: &str) -> Option<Vec<&str>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let second_is_name = words.get(1).is_none_or(|w| is_gpu(w) || w.starts_with("NIC") || w.starts_with("mlx") || *w == "CPU");
    if words.first().is_none_or(|w| *w != "GPU0") || !second_is_name {
        return None;
    }
    Some(words.into_iter().take_while(|w| *w != "CPU" && *w != "NUMA").collect())
}

/// Name and cells, if the line is a GPU's row.
fn row(line: &str) -> Option<(&str, Vec<&str>)> {
    let mut words = line.split_whitespace();
    let name = words.next().filter(|w| is_gpu(w))?;
    let cells: Vec<&str> = words.collect();
    (cells.first().is_some_and(|c| Label::from_cell(c).is_some())).then_some((name, cells))
}

/// The NUMA node: the whole number after the CPU affinity. Columns may be
/// empty, so tabs decide where there are any.
fn numa(line: &str, columns: usize) -> Option<u32> {
    let field = if line.contains('\t') {
        line.split('\t').map(str::trim).skip(1 + columns).nth(1)
    } else {
        line.split_whitespace().skip(1 + columns).nth(1)
    };
    field?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\t\u{1b}[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\u{1b}[0m\n\
        GPU0\t X \tPIX\tSYS\tNODE\t0-63,128-191\t0\t\tN/A\nGPU1\tPIX\t X \tSYS\tNODE\t0-63,128-191\t0\t\tN/A\n\
        GPU2\tSYS\tSYS\t X \tSYS\t64-127\t1\t\tN/A\nNIC0\tNODE\tNODE\tSYS\t X \t\t\n\nLegend:\n\n  X    = Self\n  PIX  = one switch\n";

    #[test]
    fn labels_and_numa_nodes_are_read() {
        assert!(detect(TABLE));
        let outcome = read("topo", TABLE).expect("reads");
        let labels = outcome.facts.labels.expect("labels");
        assert_eq!(labels.cells[0], [Label::Same, Label::Pix, Label::Sys]);
        assert_eq!(outcome.facts.gpus.iter().map(|g| g.numa).collect::<Vec<_>>(), [Some(0), Some(0), Some(1)]);
        assert!(outcome.skipped[0].contains("1 column(s)"));
    }

    #[test]
    fn spaces_serve_where_tabs_were_lost() {
        let pasted = TABLE.replace('\t', "  ");
        let outcome = read("topo", &pasted).expect("reads");
        assert_eq!(outcome.facts.gpus[2].numa, Some(1));
    }

    #[test]
    fn wrong_tables_are_refused() {
        for text in [
            "GPU0 GPU1\nGPU0 X PIX\n",
            "GPU0 GPU1\nGPU0 X PIX\nGPU1 SYS X\n",
            "GPU0 GPU1\nGPU0 X PIX\nGPU1 FOO X\n",
            "GPU0 GPU1\nGPU0 PIX X\nGPU1 X PIX\n",
            "GPU0 GPU1\nGPU0 X\nGPU1 PIX X\n",
            "nothing",
            "",
        ] {
            assert_eq!(read("topo", text).map(|_| ()).expect_err(text).code, CODE);
        }
    }
}
