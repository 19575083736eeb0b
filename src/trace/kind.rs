//! What an operation of a trace is made of.

/// What an operation is made of; decides colours, sums and attribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A kernel that computes.
    Compute,
    /// A collective or a transfer to another rank.
    Communication,
    /// Waiting for a rank that arrives later.
    Skew,
    /// A copy by a copy engine, to or from host memory or on the device.
    Copy,
    /// Setting memory.
    Memset,
    /// Host time of launching.
    Launch,
    /// Host code outside any launch.
    Host,
    /// A whole CUDA graph shown as one block.
    Graph,
    /// Anything else.
    Other,
}

impl Kind {
    const ALL: [Kind; 9] =
        [Kind::Compute, Kind::Communication, Kind::Skew, Kind::Copy, Kind::Memset, Kind::Launch, Kind::Host, Kind::Graph, Kind::Other];

    /// As the file names it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Compute => "compute",
            Kind::Communication => "communication",
            Kind::Skew => "skew",
            Kind::Copy => "copy",
            Kind::Memset => "memset",
            Kind::Launch => "launch",
            Kind::Host => "host",
            Kind::Graph => "graph",
            Kind::Other => "other",
        }
    }

    /// From the name in a file; unknown ones are [`Kind::Other`].
    pub fn from_name(name: &str) -> Kind {
        Kind::ALL.into_iter().find(|k| k.name() == name).unwrap_or(Kind::Other)
    }
}
