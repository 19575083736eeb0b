//! The kernels' sources, embedded, and how each is compiled.

use crate::gpu::element::Element;

const COMMON: &str = include_str!("../../kernels/common.cu");

/// A folder whose files stand in for the embedded sources, for work on kernels
/// without a new build.
pub const FOLDER_VARIABLE: &str = "LANECAST_KERNELS";

/// One source of `kernels/` with the functions in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file's name without its ending, which is also the first function.
    pub name: &'static str,
    /// All `__global__` functions.
    pub functions: &'static [&'static str],
    text: &'static str,
}

macro_rules! sources {
    ($($name:literal: [$($function:literal),+];)+) => {
        /// Every kernel of the project.
        pub const SOURCES: &[Source] = &[$(Source {
            name: $name,
            functions: &[$($function),+],
            text: include_str!(concat!("../../kernels/", $name, ".cu")),
        },)+];
    };
}

sources! {
    "one_shot_push_ll": ["one_shot_push_ll"];
    "one_shot_push": ["one_shot_push"];
    "one_shot_pull": ["one_shot_pull"];
    "two_shot": ["two_shot"];
    "two_shot_pull": ["two_shot_pull"];
    "ring_ll": ["ring_ll"];
    "packet_all_pair": ["packet_all_pair"];
    "symmetric_ll": ["symmetric_ll"];
    "hierarchical_ll": ["hierarchical_ll"];
    "host_staged": ["host_staged"];
    "accumulate": ["accumulate"];
    "fused_one_shot": ["fused_one_shot"];
    "all_to_all": ["all_to_all"];
    "compare": ["compare"];
    "flag_ping_pong": ["flag_ping_pong"];
    "read_latency": ["read_latency"];
    "fence": ["fence"];
    "stores_in_flight": ["stores_in_flight"];
    "reads_in_flight": ["reads_in_flight"];
    "copy_packs": ["copy_packs"];
    "empty": ["empty"];
    "busy": ["busy"];
    "code": ["code"];
    "ticker": ["ticker"];
    "mark": ["mark"];
    "pattern": ["write_pattern", "read_pattern"];
    "matvec": ["matvec"];
    "attention": ["attention_split", "attention_join"];
    "router": ["top_k", "align"];
    "elementwise": ["rms_norm", "rotate", "activate", "add", "combine", "embed", "fill"];
    "sample": ["sample_parts", "sample_last"];
}

/// The source of that name.
pub fn source(name: &str) -> Option<&'static Source> {
    SOURCES.iter().find(|s| s.name == name)
}

/// What a kernel is compiled for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Variant {
    /// Ranks of the group, 2 to 16.
    pub ranks: u32,
    /// bf16 or fp16.
    pub element: Element,
    /// Further macros, e.g. `("GROUP", 4)`.
    pub macros: Vec<(&'static str, u32)>,
}

impl Variant {
    /// No macros of its own.
    pub fn new(ranks: u32, element: Element) -> Variant {
        Variant { ranks, element, macros: Vec::new() }
    }

    /// As NVRTC's options, for compute capability `sm` (90 for 9.0).
    pub fn options(&self, sm: u32) -> Vec<String> {
        let mut options = vec![
            format!("--gpu-architecture=sm_{sm}"),
            "--std=c++17".to_owned(),
            // Registers, spills and shared memory go into the log.
            "--ptxas-options=-v".to_owned(),
            format!("-DRANKS={}", self.ranks),
        ];
        if self.element == Element::F16 {
            options.push("-DELEMENT_F16".to_owned());
        }
        options.extend(self.macros.iter().map(|(name, value)| format!("-D{name}={value}")));
        options
    }
}

impl Source {
    /// The whole text that NVRTC sees.
    /// From the folder that [`FOLDER_VARIABLE`] names instead, for work on a kernel.
    pub fn text(&self) -> String {
        let fresh = |name: &str| {
            let folder = std::env::var_os(FOLDER_VARIABLE)?;
            std::fs::read_to_string(std::path::Path::new(&folder).join(format!("{name}.cu"))).ok()
        };
        let common = fresh("common").unwrap_or_else(|| COMMON.to_owned());
        let text = fresh(self.name).unwrap_or_else(|| self.text.to_owned());
        format!("{common}\n#line 1 \"{}.cu\"\n{text}", self.name)
    }
}
