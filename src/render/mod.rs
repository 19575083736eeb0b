//! Tables, drawings and pages, without a word of the domain.
//!
//! | file | what it gives |
//! |---|---|
//! | [`number`] | numbers with fixed decimals, the same bytes on any machine |
//! | [`table`] | one table as terminal text, CSV, JSON or HTML |
//! | [`screen`] | how wide and how colourful the terminal is |
//! | [`scale`] | axes: linear and logarithmic, with their ticks |
//! | [`drawing`] | what drawings share: two widths, legends, words for those who do not see them |
//! | [`chart`] | lines and points over linear or logarithmic axes |
//! | [`bars`] | stacked bars and timelines |
//! | [`graph`] | a graph in layers, its edges coloured by their load |
//! | [`page`] | one HTML file with everything in it |
//! | [`write`] | whole files or none, and a stdout that may close |
//!
//! It reads no environment and knows no machine, model or strategy: what to
//! show, how wide and in which unit is decided by the caller.

pub mod bars;
pub mod chart;
pub mod drawing;
pub mod graph;
pub mod number;
pub mod page;
pub mod scale;
pub mod screen;
pub mod table;
pub mod write;

pub use number::Number;
pub use screen::Screen;
pub use table::{Cell, Column, Table};
