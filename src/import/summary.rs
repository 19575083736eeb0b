//! Sums by kernel (`nsys stats -r cuda_gpu_kern_sum -f csv`): no start times,
//! so no trace can be made of it; what it tells is which kernels cost most.

use std::fmt::Write as _;

use crate::error::Fault;
use crate::error::Result;
use crate::import::formats::Format;
use crate::import::formats::Looks;
use crate::import::formats::Read;
use crate::import::kernel_name;
use crate::import::outcome::Outcome;
use crate::trace::line;
use crate::trace::record::Kind;

/// nsys `cuda_gpu_kern_sum`.
pub(super) const FORMAT: Format =
    Format { kind: "nsys-summary", looks: Looks::Text(|text| text.lines().any(is_header)), read: Read::Text(read) };

const CODE: &str = "import-kern-sum";

/// The header of the CSV that is written.
pub const COLUMNS: &str = "name,kind,instances,total_us,mean_us,median_us,min_us,max_us,detail";

/// One kernel's sums.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelSummary {
    /// The kernel.
    pub name: String,
    /// What it is made of.
    pub kind: Kind,
    /// How often it ran.
    pub instances: u64,
    /// All of them together, in nanoseconds.
    pub total_ns: f64,
    /// Mean.
    pub mean_ns: f64,
    /// Median; very old versions have none.
    pub median_ns: Option<f64>,
    /// Smallest.
    pub min_ns: f64,
    /// Largest.
    pub max_ns: f64,
}

/// Whether a line is the header, of any version.
pub fn is_header(line: &str) -> bool {
    line.starts_with("Time (%)") && line.contains("Instances") && line.contains("Name")
        || line.starts_with("Time(%)") && line.contains("Instances")
}

/// Reads the table.
///
/// # Errors
/// `import-kern-sum` with the line.
pub fn read(name: &str, text: &str) -> Result<Outcome> {
    let mut lines = text.lines().enumerate().skip_while(|(_, l)| !is_header(l));
    let Some((_, header)) = lines.next() else {
        return Err(Fault::new(CODE, format!("{name} has no header line `Time (%),Total Time (ns),Instances,…`")));
    };
    let names = line::split(header).unwrap_or_default();
    if let Some(twice) = line::twice(&names) {
        return Err(Fault::new(CODE, format!("{name}: the column `{twice}` stands there twice")));
    }
    let place = |wanted: &str| names.iter().position(|n| n.trim().starts_with(wanted));
    let mut outcome = Outcome::default();
    for (number, row) in lines {
        if row.trim().is_empty() || !row.trim_start().starts_with(|c: char| c.is_ascii_digit()) {
            break;
        }
        let fields = line::split(row).unwrap_or_default();
        let text = |wanted: &str| place(wanted).and_then(|i| fields.get(i)).map_or("", String::as_str);
        let ns = |wanted: &str| text(wanted).parse::<f64>().ok().filter(|n| (0.0..1e18).contains(n));
        let all = (ns("Total Time"), text("Instances").parse().ok(), ns("Avg").or_else(|| ns("Average")), ns("Min"), ns("Max"));
        let (Some(total_ns), Some(instances), Some(mean_ns), Some(min_ns), Some(max_ns)) = all else {
            return Err(Fault::new(CODE, format!("{name}: line {}: a number is missing", number + 1)).help(format!("expected {header}")));
        };
        let kernel = text("Name").to_owned();
        let kind = kernel_name::kind(&kernel);
        outcome.summary.push(KernelSummary { name: kernel, kind, instances, total_ns, mean_ns, median_ns: ns("Med"), min_ns, max_ns });
    }
    if outcome.summary.is_empty() {
        return Err(Fault::new(CODE, format!("{name} lists no kernel")));
    }
    let total: f64 = outcome.summary.iter().map(|s| s.total_ns).sum();
    let shared: f64 = outcome.summary.iter().filter(|s| s.kind == Kind::Communication).map(|s| s.total_ns).sum();
    outcome.understood(format!(
        "{name}: {} kernels, {:.1} % of their time in communication, waiting included (cuda_gpu_kern_sum)",
        outcome.summary.len(),
        if total > 0.0 { 100.0 * shared / total } else { 0.0 }
    ));
    outcome.warn(format!("{name}: sums have no start times: for a trace export `cuda_gpu_trace`"));
    Ok(outcome)
}

/// The CSV of `summary`, communication named by library, algorithm and protocol.
pub fn write_csv(summary: &[KernelSummary]) -> String {
    let mut out = format!("{COLUMNS}\n");
    for s in summary {
        line::push_field(&mut out, &s.name);
        let us = |ns: f64| line::trimmed(ns / 1e3, 3);
        let _ = write!(out, ",{},{},{},{},", s.kind.name(), s.instances, us(s.total_ns), us(s.mean_ns));
        let _ = write!(out, "{},{},{},", s.median_ns.map_or(String::new(), us), us(s.min_ns), us(s.max_ns));
        line::push_field(&mut out, &kernel_name::detail(&s.name));
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_read() {
        let new = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n 70.0,7000,7,1000.0,990.0,900,1200,10.0,\"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(a, b)\"\n30.0,3000,1,3000.0,3000.0,3000,3000,0.0,gemm\n";
        let outcome = read("k.csv", new).expect("reads");
        assert_eq!(
            (outcome.summary[0].instances, outcome.summary[0].median_ns, outcome.summary[0].kind),
            (7, Some(990.0), Kind::Communication)
        );
        assert!(outcome.understood[0].contains("70.0 %"));
        assert!(write_csv(&outcome.summary).contains(",communication,7,7,1,0.99,0.9,1.2,library=nccl;"));
        let grid = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),GridXYZ,BlockXYZ,Name\n1,1,1,1,1,1,1,0,1 1 1,2 1 1,gemm\n";
        assert_eq!(read("k.csv", grid).expect("reads").summary[0].name, "gemm");
        let old = "Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name\n1,1,1,1,1,1,gemm\n";
        assert_eq!(read("k.csv", old).expect("reads").summary[0].median_ns, None);
        assert!(read("k.csv", "Time (%),Total Time (ns),Instances,Name\n1,x,1,k\n").is_err());
        assert!(read("k.csv", "").is_err());
    }
}
