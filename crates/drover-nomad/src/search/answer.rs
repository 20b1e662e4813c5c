//! From a search to what it finds.

use serde_json::Value;

use super::request::{Manner, SearchRequest};
use super::{fuzzy, prefix};
use crate::resource::Scopes;
use crate::world::World;

/// Searches. Each asked context is a key, also where nothing was found.
pub(crate) fn answer(request: &SearchRequest, world: &World, scopes: &Scopes) -> Value {
    match request.manner {
        Manner::Prefix => prefix::answer(request, world, scopes),
        Manner::Fuzzy => fuzzy::answer(request, world, scopes),
    }
}
