//! Constants against observations.
//!
//! [`observe`] simulates what an observation measured; [`validate`] groups the
//! differences. [`filter`] and [`split`] say which rows are fitted and which
//! tested; [`constants`] fits (`search` moves, [`linear`] solves, [`bootstrap`] says how sure).
//! [`residuals`] keeps the differences for intervals of forecasts.

pub mod accuracy;
pub mod baseline;
pub mod bootstrap;
pub mod constants;
pub mod filter;
pub mod flows;
pub mod linear;
pub mod observe;
pub mod residuals;
mod search;
pub mod split;
pub mod validate;
