//! NCCL's graph XML (`NCCL_GRAPH_DUMP_FILE`): the rings and trees it chose.

use crate::error::Fault;
use crate::error::Result;
use crate::import::formats::Format;
use crate::import::formats::Looks;
use crate::import::formats::Read;
use crate::import::nccl_facts::Graph;
use crate::import::outcome::Outcome;
use crate::import::xml;

/// NCCL graph XML.
pub(super) const FORMAT: Format = Format { kind: "nccl-graph", looks: Looks::Xml("<graphs"), read: Read::Text(read) };

/// Reads the XML.
///
/// # Errors
/// `xml`; `import-nccl-graph` for other documents.
pub fn read(name: &str, text: &str) -> Result<Outcome> {
    let root = xml::read(name, text)?;
    if root.name != "graphs" {
        return Err(
            Fault::new("import-nccl-graph", format!("{name}: the root element is <{}>", root.name)).help("expected <graphs version=\"1\">")
        );
    }
    let mut outcome = Outcome::default();
    for graph in root.all("graph") {
        let order =
            graph.all("channel").map(|c| c.all("gpu").map(|g| g.number(if g.get("dev").is_empty() { "rank" } else { "dev" })).collect());
        let bandwidth = ["speedintra", "bwintra"].iter().find_map(|key| graph.get(key).parse::<f64>().ok()).filter(|n| n.is_finite());
        outcome.facts.nccl.graphs.push(Graph {
            pattern: graph.number("pattern"),
            channels: graph.number("nchannels"),
            bandwidth_gbps: bandwidth.unwrap_or(0.0),
            path: graph.get("typeintra").to_owned(),
            order: order.collect(),
        });
    }
    let found = outcome.facts.nccl.graphs.len();
    if found == 0 {
        return Err(Fault::new("import-nccl-graph", format!("{name} holds no <graph>")));
    }
    outcome.understood(format!("{name}: {found} graphs (NCCL)"));
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_read() {
        let text = r#"<graphs version="1"><graph id="0" pattern="4" crossnic="0" nchannels="1" speedintra="24" speedinter="24" typeintra="PHB" typeinter="PIX">
            <channel><gpu dev="0"/><gpu dev="2"/><gpu dev="1"/></channel></graph></graphs>"#;
        let graph = &read("g.xml", text).expect("reads").facts.nccl.graphs[0];
        assert_eq!((graph.pattern_name(), graph.channels, graph.bandwidth_gbps, graph.path.as_str()), ("ring", 1, 24.0, "PHB"));
        assert_eq!(graph.order, [[0, 2, 1]]);
        assert!(read("g.xml", "<graphs/>").is_err());
    }
}
