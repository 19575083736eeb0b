//! Records: traces of passes, observations, flows; and their CSV.
//!
//! This floor knows how results are written down and read back, and nothing of
//! what they mean: no machine, plan or strategy.

pub mod flows;
pub mod kind;
pub mod line;
pub mod links;
pub mod observation;
pub mod perfetto;
pub mod record;
pub mod row;
pub mod table;
