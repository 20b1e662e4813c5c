//! Search (`spec/api.md` 5): by the beginning of ids, by which the command line completes names, and by a part of
//! names, as people look for things. What is found is no more than the caller may list.

mod answer;
mod context;
mod fuzzy;
mod prefix;
mod request;

pub(crate) use answer::answer;
pub use context::Context;
pub use request::{Manner, SearchRequest};
