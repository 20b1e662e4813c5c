//! Evaluation of a template's tree, by the rules of Go's `text/template`.

mod executor;
mod fields;

pub(crate) use executor::execute;
