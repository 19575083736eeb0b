//! What operations and protocol steps cost, from a machine's constants.

pub mod protocol;
