//! Many cases in one run: a grid, a list or random draws over any of a case's
//! numbers and names.
//!
//! | file | what it holds |
//! |---|---|
//! | [`value`] | one value of an axis, and drawing values |
//! | [`grid`] | the file: axes, and which values a case has |
//! | [`setting`] | the names of axes and what they change |
//! | [`cycle`] | what drafting costs a case |
//! | [`space`] | the cases, what they share, and the row of each |
//! | [`run`] | rows in order from several threads |
//! | [`part`] | the file that grows, and going on after a kill |
//! | [`summary`] | which rows are worth a look |

pub mod cycle;
pub mod grid;
pub mod part;
pub mod run;
pub mod setting;
pub mod space;
pub mod summary;
pub mod value;

pub use grid::Grid;
pub use part::Part;
pub use space::Space;
