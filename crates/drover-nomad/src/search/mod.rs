//! Search (`spec/api.md` 5): by the beginning of ids, by which the command line completes names, and by a part of names,
//! as people look for things. What is found is no more than the caller may list.

mod context;
mod fuzzy;
mod prefix;
mod request;

use serde_json::Value;

pub use context::Context;
pub use request::{Manner, SearchRequest};

use crate::resource::Scopes;
use crate::world::World;

/// The most that is found of a context.
const MOST: usize = 20;

/// Searches. Each asked context is a key, also where nothing was found.
pub(crate) fn answer(request: &SearchRequest, world: &World, scopes: &Scopes) -> Value {
    match request.manner {
        Manner::Prefix => prefix::answer(request, world, scopes),
        Manner::Fuzzy => fuzzy::answer(request, world, scopes),
    }
}
