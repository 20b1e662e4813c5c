//! Text from values, by the rules of Go's `fmt` and `strconv`.

mod float;
mod printer;
mod quote;

pub(crate) use float::shortest;
pub(crate) use printer::{print, printable, printf, println};
pub(crate) use quote::quote;
