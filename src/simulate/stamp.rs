//! A time together with what it was spent on along the path that led to it.
//!
//! Each timestamp of the simulation carries the picoseconds that its critical
//! path spent on each kind of cost. The parts always add up to the time. They
//! are what reports break down by, what `compare` attributes by and, each being
//! linear in its constant, the derivatives that `fit` needs.

/// What time is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Gaps between kernels, launches by the host.
    Launch,
    /// Compute kernels.
    Compute,
    /// A communication kernel's prologue and end.
    Kernel,
    /// Entering and leaving a primitive: barriers, pointers, counters.
    Step,
    /// Moving lines or data through the threads.
    Work,
    /// From a line's arrival to the poll that sees it.
    Poll,
    /// Fences before flags.
    Fence,
    /// Propagation along the links.
    Latency,
    /// Waiting for bandwidth.
    Wire,
    /// Credits on their way back.
    Credit,
}

/// How many parts there are.
pub const PARTS: usize = 10;

impl Part {
    /// All parts in order.
    pub const ALL: [Part; PARTS] = [
        Part::Launch,
        Part::Compute,
        Part::Kernel,
        Part::Step,
        Part::Work,
        Part::Poll,
        Part::Fence,
        Part::Latency,
        Part::Wire,
        Part::Credit,
    ];

    /// Lower-case name for reports and files.
    pub fn name(self) -> &'static str {
        match self {
            Part::Launch => "launch",
            Part::Compute => "compute",
            Part::Kernel => "kernel",
            Part::Step => "step",
            Part::Work => "work",
            Part::Poll => "poll",
            Part::Fence => "fence",
            Part::Latency => "latency",
            Part::Wire => "wire",
            Part::Credit => "credit",
        }
    }
}

/// A point in time in picoseconds, and the parts of the path to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Picoseconds since the start.
    pub time: u64,
    /// Picoseconds per [`Part`]; they sum to `time`.
    pub parts: [u64; PARTS],
}

impl Stamp {
    /// `ps` later, spent on `part`.
    #[must_use]
    pub fn after(mut self, part: Part, ps: u64) -> Stamp {
        self.time += ps;
        self.parts[part as usize] += ps;
        self
    }

    /// Moved to `time` if that is later; the wait is spent on `part`.
    #[must_use]
    pub fn until(self, part: Part, time: u64) -> Stamp {
        self.after(part, time.saturating_sub(self.time))
    }

    /// The later of two; `self` on a tie.
    #[must_use]
    pub fn max(self, other: Stamp) -> Stamp {
        if other.time > self.time { other } else { self }
    }

    /// What lies between an earlier stamp and this one. A part may have shrunk
    /// where this one rests on another path: its difference wraps.
    #[must_use]
    pub fn since(&self, earlier: &Stamp) -> Stamp {
        let mut step = Stamp { time: self.time.wrapping_sub(earlier.time), parts: self.parts };
        for (part, before) in step.parts.iter_mut().zip(earlier.parts) {
            *part = part.wrapping_sub(before);
        }
        step
    }

    /// Moved by `count` periods, each `later - earlier` long.
    #[must_use]
    pub fn shifted(mut self, period: &Stamp, count: u64) -> Stamp {
        self.time += period.time * count;
        for (part, more) in self.parts.iter_mut().zip(period.parts) {
            *part += more * count;
        }
        self
    }
}
