//! The configuration of NCCL's example tuner plugin: which algorithm, protocol
//! and channels for which sizes.

use std::fmt::Write as _;

use crate::error::Fault;
use crate::error::Result;
use crate::trace::line;
use crate::trace::observation::Algorithm;
use crate::trace::observation::Collective;
use crate::trace::observation::Protocol;

const CODE: &str = "nccl-tuner-file";

/// One rule; NCCL takes the first that fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunerRule {
    /// Which collective.
    pub collective: Collective,
    /// Smallest message, in bytes.
    pub min_bytes: u64,
    /// Largest message, in bytes.
    pub max_bytes: u64,
    /// Algorithm; the format has no `auto`.
    pub algorithm: Algorithm,
    /// Protocol; the format has no `auto`.
    pub protocol: Protocol,
    /// Channels; `None`: NCCL's choice (-1).
    pub channels: Option<u32>,
    /// Nodes; `None`: any (-1).
    pub nodes: Option<u32>,
    /// Ranks; `None`: any (-1).
    pub ranks: Option<u32>,
}

/// Collectives by the plugin's names.
const COLLECTIVES: [(&str, Collective); 5] = [
    ("allreduce", Collective::AllReduce),
    ("allgather", Collective::AllGather),
    ("reducescatter", Collective::ReduceScatter),
    ("broadcast", Collective::Broadcast),
    ("reduce", Collective::Reduce),
];

/// The file for `rules`, with `comments` before them.
///
/// # Errors
/// `nccl-tuner-file` for what the format cannot say.
pub fn write(comments: &[String], rules: &[TunerRule]) -> Result<String> {
    let mut out = String::new();
    for comment in comments {
        let _ = writeln!(out, "# {}", comment.replace(['\n', '\r'], " "));
    }
    out.push_str("# collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff\n");
    for rule in rules {
        let collective = COLLECTIVES.iter().find(|(_, c)| *c == rule.collective).map(|(name, _)| *name);
        let algorithm = rule.algorithm.name();
        let protocol = rule.protocol.name();
        let unsaid = |what: &str| Fault::new(CODE, format!("NCCL's tuner file cannot say {what}"));
        let collective = collective.ok_or_else(|| unsaid(rule.collective.name()))?;
        if matches!(rule.algorithm, Algorithm::Auto | Algorithm::Other(_)) || matches!(rule.protocol, Protocol::Auto | Protocol::Other(_)) {
            return Err(unsaid(&format!("algorithm {algorithm} with protocol {protocol}")).help("give one algorithm and one protocol"));
        }
        let any = |n: Option<u32>| n.map_or("-1".to_owned(), |n| n.to_string());
        let (channels, nodes, ranks) = (any(rule.channels), any(rule.nodes), any(rule.ranks));
        let _ = writeln!(out, "{collective},{},{},{algorithm},{protocol},{channels},{nodes},{ranks},-1,-1", rule.min_bytes, rule.max_bytes);
    }
    Ok(out)
}

/// Reads such a file.
///
/// # Errors
/// `nccl-tuner-file` with the line.
pub fn read(name: &str, text: &str) -> Result<Vec<TunerRule>> {
    let mut rules = Vec::new();
    for (number, row) in text.lines().enumerate() {
        if row.trim().is_empty() || row.trim_start().starts_with('#') {
            continue;
        }
        let rule = rule(row).ok_or_else(|| {
            Fault::new(CODE, format!("{name}: line {}: `{}` is no rule", number + 1, row.chars().take(80).collect::<String>()))
                .help("expected collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks[,numPipeOps,regBuff]")
        })?;
        rules.push(rule);
    }
    Ok(rules)
}

fn rule(row: &str) -> Option<TunerRule> {
    let fields = line::split(row)?;
    if !(8..=10).contains(&fields.len()) {
        return None;
    }
    // -1 is "any"; other negative numbers are wrong.
    let any = |text: &str| if text == "-1" { Some(None) } else { text.parse().ok().map(Some) };
    Some(TunerRule {
        collective: COLLECTIVES.iter().find(|(name, _)| *name == fields[0]).map(|(_, c)| c.clone())?,
        min_bytes: fields[1].parse().ok()?,
        max_bytes: fields[2].parse().ok()?,
        algorithm: Some(Algorithm::from_name(&fields[3])).filter(|a| !matches!(a, Algorithm::Other(_) | Algorithm::Auto))?,
        protocol: Some(Protocol::from_name(&fields[4])).filter(|p| !matches!(p, Protocol::Other(_) | Protocol::Auto))?,
        channels: any(&fields[5])?,
        nodes: any(&fields[6])?,
        ranks: any(&fields[7])?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_come_back() {
        let rule = TunerRule {
            collective: Collective::AllReduce,
            min_bytes: 0,
            max_bytes: 65536,
            algorithm: Algorithm::Ring,
            protocol: Protocol::Ll,
            channels: Some(4),
            nodes: Some(1),
            ranks: None,
        };
        let text = write(&["why".into()], std::slice::from_ref(&rule)).expect("sayable");
        assert!(text.ends_with("allreduce,0,65536,ring,ll,4,1,-1,-1,-1\n"), "{text}");
        assert_eq!(read("t.conf", &text).expect("reads"), [rule.clone()]);
        assert!(write(&[], &[TunerRule { protocol: Protocol::Auto, ..rule.clone() }]).is_err());
        assert!(write(&[], &[TunerRule { collective: Collective::AllToAll, ..rule }]).is_err());
        for text in ["allreduce,0", "allreduce,0,1,ring,ll,-2,1,1", "allreduce,0,1,auto,ll,1,1,1", "foo,0,1,ring,ll,1,1,1", "\"allreduce"] {
            assert_eq!(read("t.conf", text).expect_err(text).code, CODE);
        }
    }
}
