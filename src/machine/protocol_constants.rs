//! What the steps of communication protocols cost inside a thread block.

use crate::constants;

constants! {
    /// Fitted constants of the protocols; `simulate` says how they combine.
    pub struct ProtocolConstants {
        /// From a line's arrival in local memory to the poll that sees it.
        poll_ns: "ns", 0.0..=5000.0, default 200.0 in 100.0..=400.0, "assumed";
    }
}
