//! The same GPUs on other cabling.

/// Ways to cable GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cabling {
    /// Each GPU on its own root port.
    Direct,
}
