//! Processors by name: what NCCL's search asks of them, from the words of
//! `lspci` or from what a user says.

use crate::error::Fault;
use crate::error::Result;
use crate::machine::CpuVendor;

/// A maker with CPUID family and model; 0 where not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processor {
    /// Who made it.
    pub vendor: CpuVendor,
    /// CPUID family.
    pub family: u32,
    /// CPUID model.
    pub model: u32,
}

const fn amd(family: u32, model: u32) -> Processor {
    Processor { vendor: CpuVendor::Amd, family, model }
}

const fn intel(model: u32) -> Processor {
    Processor { vendor: CpuVendor::Intel, family: 6, model }
}

/// What a user can say; CPUID numbers of the server parts of each generation.
const NAMED: [(&str, Processor); 9] = [
    ("amd-zen2", amd(0x17, 0x31)),
    ("amd-zen3", amd(0x19, 0x01)),
    ("amd-zen4", amd(0x19, 0x11)),
    ("amd-zen5", amd(0x1A, 0x02)),
    ("intel-skylake", intel(0x55)),
    ("intel-ice-lake", intel(0x6A)),
    ("intel-sapphire-rapids", intel(0x8F)),
    ("intel-emerald-rapids", intel(0xCF)),
    ("intel-granite-rapids", intel(0xAD)),
];

/// Words of `lspci` that tell a generation. "Starship/Matisse" stands for two.
const WORDS: [(&str, Processor); 8] = [
    ("Turin", amd(0x1A, 0x02)),
    ("Family 1Ah", amd(0x1A, 0x02)),
    ("Genoa", amd(0x19, 0x11)),
    ("Milan", amd(0x19, 0x01)),
    ("Starship", amd(0x17, 0x31)),
    ("Sapphire Rapids", intel(0x8F)),
    ("Emerald Rapids", intel(0xCF)),
    ("Granite Rapids", intel(0xAD)),
];

/// By the name that a user gives.
///
/// # Errors
/// `import-machine` with the known names.
pub fn named(name: &str) -> Result<Processor> {
    NAMED.iter().find(|(known, _)| *known == name).map(|(_, processor)| *processor).ok_or_else(|| {
        let known: Vec<&str> = NAMED.iter().map(|(known, _)| *known).collect();
        Fault::new("import-machine", format!("no processor is called `{name}`")).help(format!("expected one of {}", known.join(", ")))
    })
}

/// From the description of a host bridge or root port. A generation that is
/// not told has the numbers 0.
pub fn of_bridge(description: &str) -> Option<Processor> {
    let maker = if description.contains("Advanced Micro Devices") || description.contains("AMD") {
        amd(0, 0)
    } else if description.contains("Intel") {
        intel(0)
    } else {
        return None;
    };
    let told = WORDS.iter().find(|(word, processor)| processor.vendor == maker.vendor && description.contains(word));
    Some(told.map_or(maker, |(_, processor)| *processor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_bridges_tell_processors() {
        assert_eq!(named("amd-zen5").expect("known").family, 0x1A);
        assert!(named("z80").expect_err("unknown").help.is_some_and(|help| help.contains("intel-skylake")));
        let of = |text| of_bridge(text).map(|p| (p.vendor, p.family));
        assert_eq!(of("Host bridge: Advanced Micro Devices, Inc. [AMD] Turin Root Complex"), Some((CpuVendor::Amd, 0x1A)));
        assert_eq!(of("Host bridge: Intel Corporation Device 09a2 (rev 04)"), Some((CpuVendor::Intel, 6)));
        assert_eq!(of("Host bridge: Ampere Computing"), None);
    }
}
