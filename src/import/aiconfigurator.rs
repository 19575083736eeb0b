//! AIConfigurator's tables of collectives (CSV): sizes in elements, times in milliseconds.

use crate::error::Result;
use crate::import::formats::Format;
use crate::import::formats::Looks;
use crate::import::formats::Read;
use crate::import::nccl_tests;
use crate::import::outcome::Outcome;
use crate::import::outcome::base_name;
use crate::trace::line::trimmed;
use crate::trace::observation::Algorithm;
use crate::trace::observation::Collective;
use crate::trace::observation::Implementation;
use crate::trace::observation::Observation;
use crate::trace::observation::Protocol;
use crate::trace::observation::Timing;
use crate::trace::table::Table;

/// AIConfigurator's table of collectives.
pub(super) const FORMAT: Format = Format { kind: "aiconfigurator", looks: Looks::Text(detect), read: Read::Text(read) };

const CODE: &str = "import-aiconfigurator";

/// Whether `head` looks like it.
pub fn detect(head: &str) -> bool {
    let header = head.lines().find(|l| !l.starts_with('#')).unwrap_or("");
    let has = |column: &str| header.split(',').any(|c| c.trim() == column);
    has("message_size") && has("latency") && (has("nccl_dtype") || has("allreduce_dtype")) && has("num_gpus")
}

/// Reads the table.
///
/// # Errors
/// `import-aiconfigurator` with the line.
pub fn read(name: &str, text: &str) -> Result<Outcome> {
    let mut table = Table::open(name, text, CODE, &["num_gpus", "message_size", "latency"])?;
    let mut outcome = Outcome::default();
    let (mut single, mut unknown, mut rows) = (0, 0, 0);
    while let Some(row) = table.next_row()? {
        rows += 1;
        let dtype = [row.text("nccl_dtype"), row.text("allreduce_dtype")].into_iter().find(|d| !d.is_empty()).unwrap_or("").to_owned();
        let row = &row;
        let missing = |column| move || row.fault(column, "is empty", "a number");
        let elements = row.number("message_size", 1.0..=1e12)?.ok_or_else(missing("message_size"))?;
        let ranks = row.number("num_gpus", 1.0..=65536.0)?.ok_or_else(missing("num_gpus"))? as u32;
        let ms = row.number("latency", 1e-9..=1e9)?.ok_or_else(missing("latency"))?;
        let Some(width) = width_of(&dtype) else {
            unknown += 1;
            continue;
        };
        if ranks < 2 {
            single += 1;
            continue;
        }
        outcome.observations.push(Observation {
            machine: String::new(),
            ranks,
            implementation: implementation(row.text("kernel_source"), row.text("implementation"), row.text("backend")),
            algorithm: Algorithm::Auto,
            protocol: Protocol::Auto,
            channels: None,
            threads: None,
            buffer_bytes: None,
            timing: Timing::GraphChain,
            bytes: (elements * width) as u64,
            dtype: nccl_tests::dtype_name(&dtype).to_owned(),
            version: row.text("version").to_owned(),
            collective: Collective::from_name(if row.text("op_name").contains("custom") { "" } else { row.text("op_name") }),
            // From milliseconds: six digits of a microsecond, without the noise of the product.
            latency_us: trimmed(ms * 1000.0, 6).parse().unwrap_or(ms * 1000.0),
            low_us: None,
            high_us: None,
            source: format!("AIConfigurator, {} {}, {}", row.text("framework"), row.text("device"), base_name(name)),
        });
    }
    if rows == 0 {
        return Err(table.no_rows());
    }
    if single > 0 {
        outcome.skipped(format!("{name}: {single} rows of one GPU"));
    }
    if unknown > 0 {
        outcome.skipped(format!("{name}: {unknown} rows with an unknown element type"));
    }
    if outcome.observations.iter().any(|o| !matches!(o.collective, Collective::AllReduce)) {
        outcome.warn(format!(
            "{name}: the source does not say whether sizes of all-gather, reduce-scatter and all-to-all count one rank or all"
        ));
    }
    outcome.understood(format!("{name}: {} times (AIConfigurator)", outcome.observations.len()));
    Ok(outcome)
}

fn width_of(dtype: &str) -> Option<f64> {
    match dtype.to_ascii_lowercase().as_str() {
        "half" | "float16" | "fp16" | "bfloat16" | "bf16" => Some(2.0),
        "float" | "float32" | "fp32" => Some(4.0),
        "int8" | "fp8" | "float8" => Some(1.0),
        _ => None,
    }
}

fn implementation(kernel: &str, implementation: &str, backend: &str) -> Implementation {
    let named = [implementation, backend].into_iter().find(|t| !t.is_empty()).unwrap_or("");
    let all = format!("{kernel} {named}").to_ascii_lowercase();
    if all.contains("nccl") || all.trim().is_empty() {
        Implementation::Nccl
    } else if named.is_empty() {
        Implementation::from_name(kernel)
    } else {
        Implementation::from_name(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_and_milliseconds_are_converted() {
        let text = "framework,version,device,op_name,kernel_source,nccl_dtype,num_gpus,message_size,latency\n\
            NCCL,2.29.2,RTX PRO 6000,all_reduce,NCCL,half,2,256,0.00634\nNCCL,2.29.2,RTX PRO 6000,all_reduce,NCCL,half,1,256,0.001\n\
            NCCL,2.29.2,RTX PRO 6000,all_reduce,NCCL,int4,2,256,0.001\n";
        assert!(detect(text));
        let outcome = read("nccl.csv", text).expect("reads");
        let o = &outcome.observations[0];
        assert_eq!((o.bytes, o.latency_us, o.ranks, o.dtype.as_str()), (512, 6.34, 2, "fp16"));
        assert_eq!((o.implementation.clone(), outcome.skipped.len()), (Implementation::Nccl, 2));
        assert!(read("nccl.csv", "num_gpus,message_size,latency\n2,-1,1\n").is_err());
        assert!(read("nccl.csv", "a\n").is_err());
    }
}
