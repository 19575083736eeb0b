//! Constants against observations.
//!
//! [`observe`] simulates what an observation measured; [`validate`] groups the
//! differences.

pub mod observe;
pub mod validate;
