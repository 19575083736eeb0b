//! Constants against observations.
//!
//! [`observe`] simulates what an observation measured; [`validate`] groups the
//! differences; [`residuals`] keeps them for intervals of forecasts.

pub mod observe;
pub mod residuals;
pub mod validate;
