//! Models: a `config.json` becomes layers, and layers become operations of one
//! rank with FLOPs and bytes. Knows no GPU, no time and no collective.

pub mod op;

pub use op::{Dtype, Family, Op};
