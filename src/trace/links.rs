//! What a simulated trace says about links: `# link.switch0 > gpu0 = 45.700 GB/s; attn_allreduce 86016; …`,
//! the rate of a directed link and the bytes that one operation of each name
//! takes over it. Compare names links by it, and Perfetto counts by it.

use std::collections::BTreeMap;

use crate::trace::record::Header;

/// What keys of link lines begin with.
const PREFIX: &str = "link.";

/// One directed link.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkLoad {
    /// `from > to`.
    pub name: String,
    /// What it can carry, 10^9 bytes per second.
    pub gbps: f64,
    /// Bytes that one operation of that name and size takes over it, all ranks
    /// together: (name, bytes of the operation) → bytes on the link.
    pub loads: BTreeMap<(String, u64), u64>,
}

/// Adds a line for each link to `header`.
pub fn write(header: &mut Header, links: &[LinkLoad]) {
    for link in links {
        let loads: String = link.loads.iter().map(|((name, size), bytes)| format!("; {name} {size} {bytes}")).collect();
        header.set(&format!("{PREFIX}{}", link.name), &format!("{:.3} GB/s{loads}", link.gbps));
    }
}

/// The links of a header, in its order; lines that are not understood are left out.
pub fn read(header: &Header) -> Vec<LinkLoad> {
    header.entries.iter().filter_map(|(key, value)| link(key.strip_prefix(PREFIX)?, value)).collect()
}

fn link(name: &str, value: &str) -> Option<LinkLoad> {
    let mut parts = value.split(';').map(str::trim);
    let gbps: f64 = parts.next()?.strip_suffix("GB/s")?.trim().parse().ok()?;
    if !gbps.is_finite() || gbps < 0.0 {
        return None;
    }
    let load = |part: &str| {
        let mut words = part.split(' ');
        let found = (words.next()?.to_owned(), words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(((found.0, found.1), found.2))
    };
    Some(LinkLoad { name: name.to_owned(), gbps, loads: parts.filter_map(load).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_come_back() {
        let loads = BTreeMap::from([(("attn_allreduce".to_owned(), 43008), 86016), (("logits_gather".to_owned(), 99), 7)]);
        let links = [
            LinkLoad { name: "switch0 > gpu0".to_owned(), gbps: 45.7, loads },
            LinkLoad { name: "cpu0 memory".to_owned(), gbps: 114.0, loads: BTreeMap::new() },
        ];
        let mut header = Header::from_source("simulated");
        write(&mut header, &links);
        assert_eq!(header.get("link.switch0 > gpu0"), Some("45.700 GB/s; attn_allreduce 43008 86016; logits_gather 99 7"));
        assert_eq!(read(&header), links);
    }

    #[test]
    fn what_is_not_understood_is_left_out() {
        let mut header = Header::default();
        header.set("link.a", "fast");
        header.set("link.b", "NaN GB/s");
        header.set("link.c", "1 GB/s; x; y 1 z");
        assert_eq!(read(&header), [LinkLoad { name: "c".to_owned(), gbps: 1.0, loads: BTreeMap::new() }]);
    }
}
