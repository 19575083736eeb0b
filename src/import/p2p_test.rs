//! `p2pBandwidthLatencyTest` of the CUDA samples: matrices by title.

use crate::error::Fault;
use crate::error::Result;
use crate::import::facts::Gpu;
use crate::import::facts::Matrix;
use crate::import::formats::Format;
use crate::import::formats::Looks;
use crate::import::formats::Read;
use crate::import::outcome::Outcome;

/// p2pBandwidthLatencyTest.
pub(super) const FORMAT: Format = Format { kind: "p2p-test", looks: Looks::Text(detect), read: Read::Text(read) };

const CODE: &str = "import-p2p-test";

/// More columns than this are no GPUs.
const GPUS_MAX: usize = 256;

/// Whether `head` looks like it.
pub fn detect(head: &str) -> bool {
    head.contains("P2P=Disabled") || head.contains("P2P=Enabled") || head.contains("P2P Connectivity Matrix")
}

/// Reads all matrices.
///
/// # Errors
/// `import-p2p-test` where there is none or one is not square.
pub fn read(name: &str, text: &str) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut title: Option<String> = None;
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some(gpu) = device(line) {
            outcome.facts.gpus.push(gpu);
        }
        if line.contains("Matrix") {
            let measured = line.contains("GB/s") || line.contains("(us)");
            title = measured.then(|| line.trim().to_owned());
        } else if let (Some(title), true) = (&title, is_header(line)) {
            let mut rows = Vec::new();
            while let Some(row) = lines.peek().and_then(|l| numbers(l)).filter(|_| rows.len() <= GPUS_MAX) {
                rows.push(row);
                lines.next();
            }
            take(name, title, line, rows, &mut outcome)?;
        }
    }
    let found = outcome.facts.bandwidth.len() + outcome.facts.latency.len();
    if found == 0 {
        return Err(Fault::new(CODE, format!("{name} holds no matrix"))
            .help("expected the whole output of p2pBandwidthLatencyTest, with its titles `… Bandwidth Matrix (GB/s)`"));
    }
    outcome.understood(format!("{name}: {found} matrices (p2pBandwidthLatencyTest)"));
    Ok(outcome)
}

fn take(name: &str, title: &str, header: &str, rows: Vec<Vec<Option<f64>>>, outcome: &mut Outcome) -> Result<()> {
    let columns = header.split_whitespace().count() - 1;
    if columns == 0 || rows.len() != columns || rows.iter().any(|r| r.len() != columns) {
        return Err(Fault::new(CODE, format!("{name}: the matrix `{title}` is not square"))
            .help("expected one row `N  12.3  45.6 …` for each column"));
    }
    if header.trim_start().starts_with("CPU") {
        outcome.skipped(format!("{name}: `{title}` as the CPU saw it"));
        return Ok(());
    }
    let matrix = Matrix {
        title: title.to_owned(),
        peer_access: !title.contains("P2P=Disabled"),
        bidirectional: title.starts_with("Bidirectional"),
        reads: title.contains("P2P Reads"),
        cells: rows,
    };
    if title.contains("(us)") {
        outcome.facts.latency.push(matrix)
    } else {
        outcome.facts.bandwidth.push(matrix)
    }
    Ok(())
}

/// `Device: 0, NVIDIA RTX …, pciBusID: 3, pciDeviceID: 0, pciDomainID:0`.
fn device(line: &str) -> Option<Gpu> {
    let rest = line.trim().strip_prefix("Device: ")?;
    let mut parts = rest.split(',').map(str::trim);
    parts.next()?.parse::<u32>().ok()?;
    let name = parts.next()?.to_owned();
    let of = |key: &str| rest.split(key).nth(1).and_then(|r| r.trim_start_matches([':', ' ']).split(',').next()).map(str::trim);
    let hex = |key: &str| of(key).and_then(|t| u32::from_str_radix(t, 16).ok());
    let bus = match (hex("pciDomainID"), hex("pciBusID"), hex("pciDeviceID")) {
        (domain, Some(bus), Some(slot)) => format!("{:04x}:{bus:02x}:{slot:02x}.0", domain.unwrap_or(0)),
        _ => String::new(),
    };
    Some(Gpu { name, bus, numa: None })
}

/// `   D\D     0      1` or `   GPU     0      1` or `   CPU     0 …`.
fn is_header(line: &str) -> bool {
    let mut words = line.split_whitespace();
    matches!(words.next(), Some("D\\D" | "GPU" | "CPU")) && words.all(|w| w.parse::<u32>().is_ok())
}

/// `     0 1488.10  56.57` without its first column.
fn numbers(line: &str) -> Option<Vec<Option<f64>>> {
    let mut words = line.split_whitespace();
    words.next()?.parse::<u32>().ok()?;
    let cells: Vec<&str> = words.take(GPUS_MAX + 1).collect();
    if cells.is_empty() || cells.iter().any(|c| c.parse::<f64>().is_err() && *c != "N/A") {
        return None;
    }
    Some(cells.into_iter().map(|c| c.parse().ok().filter(|n: &f64| n.is_finite() && *n >= 0.0)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\n\
        Device: 0, NVIDIA RTX PRO 6000, pciBusID: 3, pciDeviceID: 0, pciDomainID:0\n\
        Device: 1, NVIDIA RTX PRO 6000, pciBusID: c1, pciDeviceID: 0, pciDomainID:0\n\
        P2P Connectivity Matrix\n     D\\D     0     1\n     0\t     1     1\n     1\t     1     1\n\
        Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)\n   D\\D     0      1 \n     0 1488.10  41.20 \n     1  41.30 1416.77 \n\
        Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n   D\\D     0      1 \n     0 1488.10  56.57 \n     1  56.50 1416.77 \n\
        Bidirectional P2P=Enabled Bandwidth Matrix (GB/s)\n   D\\D     0      1 \n     0 1485.22 111.38 \n     1 111.39 1416.86 \n\
        P2P=Enabled Latency (P2P Writes) Matrix (us)\n   GPU     0      1 \n     0   2.07   0.37 \n     1   0.36   2.07 \n\n\
        \x20  CPU     0      1 \n     0   2.51   1.90 \n     1   1.91   2.50 \n\nNOTE: …\n";

    #[test]
    fn matrices_are_told_apart() {
        assert!(detect(TEXT));
        let outcome = read("p2p.txt", TEXT).expect("reads");
        let facts = &outcome.facts;
        assert_eq!((facts.bandwidth.len(), facts.latency.len()), (3, 1));
        assert!(!facts.bandwidth[0].peer_access && facts.bandwidth[2].bidirectional);
        assert_eq!(facts.bandwidth[1].between().collect::<Vec<_>>(), [56.57, 56.5]);
        assert_eq!(facts.latency[0].cells[1][0], Some(0.36));
        assert_eq!(facts.gpus[1].bus, "0000:c1:00.0");
        assert!(outcome.skipped[0].contains("CPU"));
    }

    #[test]
    fn broken_matrices_are_refused() {
        for text in ["", "P2P=Enabled", &TEXT.replace("     1 111.39 1416.86 \n", ""), "Bandwidth Matrix (GB/s)\n D\\D 0 1\n 0 1\n"] {
            assert_eq!(read("p2p.txt", text).map(|_| ()).expect_err(text).code, CODE);
        }
    }
}
