//! What an import can write, and the writing of it.

use std::io::Write;

use crate::error::Fault;
use crate::error::Result;
use crate::import::cabling;
use crate::import::facts::Facts;
use crate::import::facts_toml;
use crate::import::machine;
use crate::import::machine::Wish;
use crate::import::outcome::Outcome;
use crate::import::serving;
use crate::import::summary;
use crate::trace::observation;
use crate::trace::record::Writer;

/// A kind of file that an import writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Product {
    /// The Trace CSV.
    Trace,
    /// The Observations CSV.
    Observations,
    /// The CSV of serving observations.
    Serving,
    /// The CSV of sums by kernel.
    Summary,
    /// A machine file.
    Machine,
    /// Facts as TOML.
    Facts,
}

impl Product {
    /// In words, with the usual ending of its name.
    pub fn describe(self) -> (&'static str, &'static str) {
        match self {
            Product::Trace => ("a trace", "csv"),
            Product::Observations => ("observations", "csv"),
            Product::Serving => ("serving observations", "csv"),
            Product::Summary => ("a kernel summary", "csv"),
            Product::Machine => ("a machine", "toml"),
            Product::Facts => ("facts", "toml"),
        }
    }
}

/// What can be written of an outcome, the most telling first.
pub fn products(outcome: &Outcome) -> Vec<Product> {
    let facts = &outcome.facts;
    let has = [
        (Product::Trace, outcome.trace.is_some()),
        (Product::Observations, !outcome.observations.is_empty()),
        (Product::Serving, !outcome.serving.is_empty()),
        (Product::Summary, !outcome.summary.is_empty()),
        (Product::Machine, cabling::cabling(facts).is_some()),
        (Product::Facts, *facts != Facts::default()),
    ];
    has.into_iter().filter(|(_, has)| *has).map(|(product, _)| product).collect()
}

/// Writes one product. `wish` names the machine; `pass` picks one pass of a trace.
///
/// # Errors
/// `import-nothing` when the outcome has no such product, those of making a
/// machine, `io` of the output.
pub fn write(outcome: &Outcome, product: Product, wish: &Wish, pass: Option<u32>, mut output: impl Write) -> Result<()> {
    let all = products(outcome);
    if !all.contains(&product) {
        let gives: Vec<&str> = all.iter().map(|product| product.describe().0).collect();
        let help = if gives.is_empty() { "it gives nothing".to_owned() } else { format!("it gives {}", gives.join(", ")) };
        return Err(
            Fault::new("import-nothing", format!("the input gives no {}", product.describe().0.trim_start_matches("a "))).help(help)
        );
    }
    let text = match product {
        Product::Trace => return write_trace(outcome, wish, pass, output),
        Product::Observations => {
            let mut observations = outcome.observations.clone();
            observations.iter_mut().filter(|o| o.machine.is_empty()).for_each(|o| o.machine.clone_from(&wish.id));
            observation::write_csv(&outcome.understood, &observations)
        }
        Product::Serving => {
            let mut runs = outcome.serving.clone();
            runs.iter_mut().filter(|r| r.machine.is_empty()).for_each(|r| r.machine.clone_from(&wish.id));
            serving::write_csv(&runs)
        }
        Product::Summary => summary::write_csv(&outcome.summary),
        Product::Machine => machine::machine(&outcome.facts, wish)?.to_toml(),
        Product::Facts => facts_toml::write(&outcome.facts),
    };
    output.write_all(text.as_bytes()).map_err(|e| io_fault(&e))
}

fn write_trace(outcome: &Outcome, wish: &Wish, pass: Option<u32>, output: impl Write) -> Result<()> {
    let Some(trace) = &outcome.trace else { return Ok(()) };
    let mut header = trace.header.clone();
    if !wish.id.is_empty() {
        header.set("machine", &wish.id);
    }
    let mut writer = Writer::create(output, &header).map_err(|e| io_fault(&e))?;
    trace.for_each(pass, &mut |record| writer.write(record).map_err(|e| io_fault(&e)))?;
    writer.finish().map(|_| ()).map_err(|e| io_fault(&e))
}

fn io_fault(error: &std::io::Error) -> Box<Fault> {
    Fault::new("io", format!("cannot write the output: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::read_bytes;
    use crate::trace::record::Reader;

    fn written(bytes: &[u8], product: Product) -> Result<String> {
        let mut outcome = read_bytes("x", bytes, None)?;
        if let Some(trace) = &mut outcome.trace {
            trace.finish();
        }
        let mut out = Vec::new();
        write(&outcome, product, &Wish { id: "box".into(), gpu: None, ..Wish::default() }, None, &mut out)?;
        Ok(String::from_utf8(out).expect("UTF-8"))
    }

    #[test]
    fn what_is_written_reads_back() {
        let csv = "Start (ns),Duration (ns),CorrId,Device,Strm,Name\n1000,9000,7,X (0),7,ncclDevKernel_AllReduce_Sum_bf16_RING_LL\n";
        let text = written(csv.as_bytes(), Product::Trace).expect("a trace");
        let mut reader = Reader::open("t.csv", text.as_bytes()).expect("reads");
        assert_eq!((reader.header().get("source"), reader.header().get("machine")), (Some("imported"), Some("box")));
        assert_eq!(reader.read_all().expect("reads").len(), 1);
        let table = "# nThread 1 nGpus 2\n#  Rank  0 Group 0 Pid 1 on x\n#  Rank  1 Group 0 Pid 1 on x\n 43008 21504 half sum -1 29.5 1 1 0 28.7 1 1 0\n";
        let text = written(table.as_bytes(), Product::Observations).expect("observations");
        assert!(observation::read_bytes("o.csv", text.as_bytes()).expect("reads").iter().all(|o| o.machine == "box"));
        assert_eq!(written(table.as_bytes(), Product::Machine).expect_err("no GPUs").code, "import-nothing");
        let topo = "\tGPU0\tGPU1\nGPU0\tX\tPIX\nGPU1\tPIX\tX\n";
        assert!(written(topo.as_bytes(), Product::Machine).expect("a machine").contains("id = \"box\""));
    }
}
