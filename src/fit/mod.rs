//! Constants against observations.
//!
//! [`observe`] simulates what an observation measured; [`validate`] groups the
//! differences. [`filter`] and [`split`] say which rows are fitted and which
//! tested; [`constants`] fits (`search` moves, [`linear`] solves, [`bootstrap`] says how sure).

pub mod accuracy;
pub mod baseline;
pub mod bootstrap;
pub mod constants;
pub mod filter;
pub mod flows;
pub mod linear;
pub mod observe;
mod search;
pub mod split;
pub mod validate;
