//! From a template's text to its tree, by the grammar of Go's `text/template`.
//!
//! Must never know what a function does; it asks for their names only.

mod lexer;
mod literal;
mod number;
mod parser;
mod tree;

pub(crate) use number::{int_to_float, parse_float, parse_int, parse_uint, uint_to_float};
pub(crate) use parser::{Forest, parse};
pub(crate) use tree::{Branch, Command, Expression, Node, Number, Pipeline, Spot, Term};
