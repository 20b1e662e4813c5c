//! Renders one template, in a process of its own: `droverd render-template`.
//!
//! Input: a [`RenderOrder`] on standard input. Output: a [`RenderAnswer`] on standard output: the text, what is
//! missing, or what is wrong. The language is Go's `text/template` with consul-template's functions.
//!
//! Whatever a template does, this process opens no file and no connection, and its steps, bytes and time are limited.
//!
//! Must never know: allocations, tasks, the API server, where values come from.

mod budget;
mod execute;
mod fault;
mod format;
mod functions;
mod order;
mod parse;
mod render;
mod run;
mod runes;
mod value;
mod values;

pub use fault::RenderLimit;
pub use order::{RenderAnswer, RenderError, RenderErrorKind, RenderLimits, RenderOrder};
pub use render::render;
pub use run::run;
pub use values::{Needed, ServiceInstance, ValueBytes, Values};

#[cfg(test)]
mod tests;
