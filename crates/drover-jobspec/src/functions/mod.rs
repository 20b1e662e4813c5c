//! The functions of job files, with the names and results of HCL's and cty's libraries as Nomad offers them.

mod addresses;
mod arguments;
mod call;
mod collections;
mod context;
mod encoding;
mod files;
mod numbers;
mod sets;
mod strings;
mod times;

pub(crate) use call::call;
pub(crate) use context::Context;
