//! Who uses whom: no circle of files, and no arrow against the order of the crates.
//!
//! Input: the program text of the workspace without its tests, and `cargo metadata`. An arrow leads from a file to the
//! file that defines what it names, in a `use` or anywhere else. A re-export is transparent: a file that takes a name
//! from it uses the file of the definition, and a file of `mod` lines and re-exports is neither begin nor end of an
//! arrow. Calls of methods are no arrows, for program text alone does not tell whose method it is. Must never know what
//! a crate is for.

mod arrows;
mod attributes;
mod circles;
mod order;
mod report;
mod resolve;
mod sources;

pub use report::{ImportsFigure, check};
